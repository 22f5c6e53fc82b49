"""One life of many sessions: checked, repaired, repaired again, undone, by the command itself.

All sessions of a campaign go through each command together, so that a process is started a
few times for all of them and not a few times for each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import inprocess

LONG_AGO = 1_788_000_000
LOCKSTITCH = (sys.executable, "-m", "lockstitch")
PASSED_ON = ("PATH", "PYTHONPATH", "PYTHONHASHSEED", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command said and did."""

    status: int
    out: bytes
    err: str
    changed: tuple[str, ...]

    @property
    def sessions(self) -> dict[str, dict[str, Any]]:
        """The sessions of a report, by target."""
        listed = [json.loads(line)["sessions"] for line in self.out.splitlines()]
        return {session["target"]: session for sessions in listed for session in sessions}

    def __add__(self, other: Ran) -> Ran:
        """Both, as if it had been one run."""
        return Ran(
            max(self.status, other.status),
            self.out + other.out,
            self.err + other.err,
            (*self.changed, *other.changed),
        )


@dataclass
class Home:
    """A home directory with sessions in it, and the command run inside of it."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)
    paths: dict[str, Path] = field(default_factory=dict)

    def put(self, name: str, path: str, data: bytes) -> Path:
        """Write a session that was last used long ago; *name* is how tests find it again."""
        return self.make(name, path, lambda target: _write(target, data))

    def make(self, name: str, path: str, write: Callable[[Path], None]) -> Path:
        """The same for what writes itself."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        write(target)
        os.utime(target, (LONG_AGO, LONG_AGO))
        self.paths[name] = target
        return target

    def _environ(self) -> dict[str, str]:
        passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return passed_on | {"HOME": str(self.root), "NO_COLOR": "1", **self.environ}

    def here(self, *words: str | Path) -> Ran:
        """Run the command as ``run`` does, but within this process, which is much sooner done."""
        before = self.snapshot()
        done = inprocess.command(*words, env=self._environ(), cwd=self.root)
        return Ran(done.returncode, done.stdout, done.stderr.decode(), self.since(before))

    def run(self, *words: str | Path) -> Ran:
        """Run the command with this home and nothing else of the environment."""
        before = self.snapshot()
        done = subprocess.run(
            [*LOCKSTITCH, *map(str, words)],
            env=self._environ(),
            cwd=self.root,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=600,
        )
        return Ran(done.returncode, done.stdout, done.stderr.decode(), self.since(before))

    def each(self, *words: str, targets: list[Path]) -> Ran:
        """Run a command that reports in JSON on many targets.

        Should one of them bring the whole run down, the others are tried without it, so that a
        test fails for its own file and not for its neighbour's.
        """
        ran = self.run(*words, *targets)
        if ran.out or len(targets) < 2:
            return ran
        half = len(targets) // 2
        return self.each(*words, targets=targets[:half]) + self.each(*words, targets=targets[half:])

    def snapshot(self) -> dict[str, bytes]:
        """Every file of the home, by its path."""
        files = (path for path in sorted(self.root.rglob("*")) if path.is_file())
        return {str(path.relative_to(self.root)): path.read_bytes() for path in files}

    def since(self, before: Mapping[str, bytes]) -> tuple[str, ...]:
        """The files that are new, gone or different."""
        now = self.snapshot()
        return tuple(sorted(path for path in {*now, *before} if now.get(path) != before.get(path)))

    def read(self) -> dict[str, bytes]:
        """Every session's bytes, by name."""
        return {name: path.read_bytes() for name, path in self.paths.items()}


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def session_of(ran: Ran, path: Path) -> dict[str, Any]:
    """What a report says about one file."""
    found = ran.sessions.get(str(path))
    assert found is not None, f"not in the report: {path.name}\n{ran.err}"
    return found


def quarantined(ran: Ran, path: Path) -> str:
    """What a repair took out of a session and keeps beside the backup, as JSON."""
    backup = (ran.sessions.get(str(path)) or {}).get("backup")
    if backup is None:
        return ""
    manifest = json.loads((path.parent / backup).with_suffix(".json").read_bytes())
    return json.dumps(manifest["details"].get("quarantine"))


def named_lines(edits: Iterable[Mapping[str, Any]]) -> set[int]:
    """The lines that edits name, counted from 1; a source counts as well as a place."""
    places = [edit.get(key) for edit in edits for key in ("place", "source")]
    heads = [str(place).split(".")[0] for place in places if place is not None]
    return {int(head) for head in heads if head.isdigit()}
