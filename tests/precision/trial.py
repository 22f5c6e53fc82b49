"""A folder of real sessions through the commands, and each session through the real clients."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.formats.campaign import LONG_AGO, Home

from .clients import Sender, Session
from .evidence import places, reasons, spoken
from .sent import Piece, difference
from .verdict import HARMFUL, HARMLESS, UNSURE, Sent, Verdict, changed, is_right, unchanged, worst

Json = dict[str, Any]

HEALTHY = "healthy"
_NO_SESSIONS = (".md", ".tsv", ".txt", ".py", ".lock", ".toml", ".html", ".log", "truth.json")
_AT_ONCE = 400


@dataclass
class Trial:
    """One file: what the commands say of it, whether repair changes it, what clients send.

    ``truth`` is what is known of it beforehand: that it is healthy, or what broke it.
    """

    name: str
    path: Path
    program: str | None
    status: str
    findings: list[Json]
    before: bytes
    after: bytes
    truth: str | None = None
    exports: str = ""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    sent: dict[str, tuple[Sent, Sent | None]] = field(default_factory=dict)

    @property
    def is_changed(self) -> bool:
        """Whether repair wrote other bytes."""
        return self.before != self.after

    @property
    def is_flagged(self) -> bool:
        """Whether there is more than a note on it."""
        return any(found["severity"] != "note" for found in self.findings)

    @property
    def verdict(self) -> str | None:
        """The class over all clients; None if none could be asked and nothing is known."""
        names = [verdict.name for verdict in self.verdicts.values()]
        if not names and self.truth == HEALTHY:
            return HARMFUL if self.is_changed else HARMLESS
        return worst(names) if names else None

    @property
    def codes(self) -> list[tuple[str, str]]:
        """The codes that were found, each with its severity."""
        return sorted({(found["code"], found["severity"]) for found in self.findings})

    @property
    def is_missed(self) -> bool:
        """Whether it is called clean although a provider would refuse it."""
        refused = any(before.refused for before, _ in self.sent.values())
        return refused and not self.is_flagged

    def is_right(self, severity: str) -> bool:
        """Whether a finding of this severity is right about this file."""
        if self.truth == HEALTHY and severity != "note":
            return False
        return self.verdict is not None and is_right(severity, self.verdict)


def tried(folders: Sequence[Path], scratch: Path, limit: int | None = None) -> list[Trial]:
    """Check, scan and repair a copy of all files below *folders*; the originals are only read."""
    home = Home(scratch / "home")
    listed = list(_copied(folders, scratch / "home" / "sessions", limit))
    truths = _truths(folders)
    checked = _reports(home, "check", [copy for _, _, copy in listed])
    before = {copy: copy.read_bytes() for _, _, copy in listed}
    exported = {
        copy: _export(home, copy, checked.get(str(copy), {}).get("format")) for _, _, copy in listed
    }
    repaired = _reports(home, "repair", [copy for _, _, copy in listed], "--yes")
    trials = []
    for name, path, copy in listed:
        report = checked.get(str(copy)) or {"status": "not reported", "findings": []}
        known = report.get("format") or repaired.get(str(copy), {}).get("format")
        trial = Trial(
            name=name,
            path=path,
            program=known,
            status=report["status"],
            findings=report["findings"],
            before=before[copy],
            after=copy.read_bytes() if copy.exists() else b"",
            truth=truths.get(name) or truths.get(path.name),
        )
        if trial.is_changed:
            now = _export(home, copy, known)
            trial.exports = "the same" if now == exported[copy] else "differs"
        trials.append(trial)
    return trials


def _copied(
    folders: Sequence[Path], into: Path, limit: int | None
) -> Iterator[tuple[str, Path, Path]]:
    """Copy everything, last used long ago; give the session files: name, original and copy."""
    left = limit
    for number, folder in enumerate(folders):
        root = folder if folder.is_dir() else folder.parent
        paths = sorted(folder.rglob("*")) if folder.is_dir() else [folder]
        for path in paths:
            if not path.is_file() or ".lockstitch" in path.parts:
                continue
            copy = into / str(number) / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            os.utime(copy, (LONG_AGO, LONG_AGO))
            if path.name.endswith(_NO_SESSIONS) or _is_beside(path):
                continue
            if left is not None:
                left -= 1
                if left < 0:
                    return
            yield str(path.relative_to(root)), path, copy


def _is_beside(path: Path) -> bool:
    """Whether a file belongs to the session whose folder it is in."""
    return any(
        parent.with_name(f"{parent.name}.jsonl").is_file()
        for parent in path.parents[:3]
        if parent.name
    )


def _truths(folders: Sequence[Path]) -> dict[str, str]:
    """Return what a ``truth.json`` in a folder says of its files, by name."""
    found: dict[str, str] = {}
    for folder in folders:
        path = folder / "truth.json"
        if path.is_file():
            found |= json.loads(path.read_text("utf-8"))
    return found


def _reports(home: Home, command: str, paths: list[Path], *words: str) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for start in range(0, len(paths), _AT_ONCE):
        ran = home.each(command, *words, "--json", targets=paths[start : start + _AT_ONCE])
        found |= ran.sessions
    return found


def _export(home: Home, path: Path, program: str | None) -> bytes:
    """Return what a session without a client to ask would send, by our own word."""
    if program in {None, "claude-code", "codex"}:
        return b""
    return home.run("export", path).out


def ask(
    trials: Iterable[Trial],
    clients: Sequence[Sender],
    *,
    workers: int,
    everything: bool = True,
    moved: Callable[[], None] = lambda: None,
) -> None:
    """Let the clients resume each session before and, if it was changed, after its repair."""
    wanted = [
        (trial, client)
        for trial in trials
        for client in clients
        if client.program == trial.program and (everything or trial.is_flagged or trial.is_changed)
    ]
    with ThreadPoolExecutor(workers) as pool:
        for future in as_completed([pool.submit(_asked, *each) for each in wanted]):
            future.result()
            moved()


def planned(trials: Iterable[Trial], clients: Sequence[Sender], *, everything: bool) -> int:
    """Return how many resumes :func:`ask` will see to."""
    return sum(
        client.program == trial.program and (everything or trial.is_flagged or trial.is_changed)
        for trial in trials
        for client in clients
    )


def _asked(trial: Trial, client: Sender) -> None:
    beside = {str(p.relative_to(trial.path.parent)): p.read_bytes() for p in _beside(trial.path)}
    before = client.send(Session(trial.path, trial.before, beside))
    if before.failed == "names no session":
        return
    if not trial.is_changed:
        trial.sent[client.name] = (before, None)
        trial.verdicts[client.name] = unchanged(before)
        return
    after = client.send(Session(trial.path, trial.after, beside))
    lines = spoken(trial.before, {*before.pieces, *after.pieces})
    changes = difference(before.pieces, after.pieces, lines)
    why = reasons(trial.before, before.pieces, changes.more)
    verdict = changed(before, after, changes, why)
    if trial.truth == HEALTHY and verdict.name != HARMLESS:
        verdict = Verdict(HARMFUL, f"a healthy session: {verdict.why}", changes, why)
    elif trial.truth not in {None, HEALTHY} and verdict.name == UNSURE:
        verdict = Verdict("true", f"{trial.truth}: {verdict.why}", changes, why)
    trial.sent[client.name] = (before, after)
    trial.verdicts[client.name] = verdict


def _beside(path: Path) -> list[Path]:
    folder = path.with_name(path.name.removesuffix(".jsonl"))
    return [each for each in sorted(folder.rglob("*")) if each.is_file()] if folder.is_dir() else []


def where(trial: Trial, pieces: Iterable[Piece]) -> list[int]:
    """Return the lines of the original that say these pieces."""
    return sorted({n for numbers in places(trial.before, pieces).values() for n in numbers})
