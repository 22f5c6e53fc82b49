"""The life of a mutant: checked, repaired, checked and repaired again, undone, by the command.

``lived`` says what of it broke a promise. The command runs within this process, by the same words
and through the same door as from a shell, in a folder of its own that is empty afterwards.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shutil
import sqlite3
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstitch import cli
from lockstitch.cli import repair as cli_repair
from lockstitch.cli import terminal
from lockstitch.cli.terminal import describe_bug
from lockstitch.errors import LockstitchError
from lockstitch.files import os_files
from lockstitch.files import os_files as processes
from tests.formats.campaign import LONG_AGO, named_lines

from .mutants import Mutant
from .watch import Watch

MARK = re.compile(r"MARK-\w")
# What no terminal may get, but for line breaks and tabs.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
GROWTH = 200_000  # kilobytes that one small session may take more than any before it
BACKUPS = ".lockstitch"
NOTHING = io.StringIO()
# What a check finds in all that a database has of a thread, and a repair has no need to look for.
SEARCHED = ("LS902", "LS909")
Findings = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Failure:
    """A promise that was broken: which, and enough to know the same one again."""

    kind: str
    where: str
    detail: str = ""

    @property
    def sign(self) -> str:
        return f"{self.kind}: {self.where}"


class Broken(Exception):
    """What ends the life of a mutant: the rest would only follow from it."""

    def __init__(self, kind: str, where: str = "", detail: str = "") -> None:
        super().__init__(kind)
        self.failure = Failure(kind, where, detail)


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command said and did."""

    status: int
    out: bytes
    err: str

    @property
    def sessions(self) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = json.loads(self.out)["sessions"]
        except (ValueError, KeyError, TypeError):
            return []
        return found

    @property
    def findings(self) -> Findings:
        return [finding for session in self.sessions for finding in session["findings"]]

    @property
    def unread(self) -> int:
        return sum("error" in session for session in self.sessions)


def lived(mutant: Mutant, root: Path, watch: Watch | None = None) -> Failure | None:
    """Let a mutant live through all commands; returns the first promise that was broken."""
    peak = _most_memory()
    life = _Life(mutant, root, watch)
    try:
        with life.housed():
            life.whole()
    except Broken as broken:
        return broken.failure
    grown = _most_memory() - peak
    if grown > GROWTH:
        return Failure("too much memory", "", f"{grown // 1000} MB for {len(mutant.data)} bytes")
    return None


class _Life:
    """A mutant in its home, and what the commands do to it."""

    def __init__(self, mutant: Mutant, root: Path, watch: Watch | None) -> None:
        self.mutant, self.root, self.watch = mutant, root, watch
        self.path = root / mutant.path
        self.name = str(self.path)

    @contextmanager
    def housed(self) -> Iterator[None]:
        """Put the mutant into an empty home, and clear that afterwards."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for beside, data in self.mutant.side.items():
            place = self.path.parent / beside
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        self.path.write_bytes(self.mutant.data)
        os.utime(self.path, (LONG_AGO, LONG_AGO))
        kept = os.environ.get("HOME")
        os.environ["HOME"] = str(self.root)
        try:
            yield
        finally:
            if kept is not None:
                os.environ["HOME"] = kept
            for entry in list(self.root.iterdir()):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def whole(self) -> None:
        """Go through all commands; raises Broken at the first promise that does not hold."""
        before, first = self.files(), self.state()
        check = self.told("check", "--json", *self.mutant.given)
        if self.mutant.shown:
            self.looked_at()
        if changed := self.changes(before):
            raise Broken("reading changed files", "", ", ".join(sorted(changed)))
        repair = self.told("repair", "--yes", "--json", *self.mutant.given, *self.mutant.way)
        changed = self.changes(before)
        if changed - {self.mutant.path}:
            raise Broken("other files changed", detail=", ".join(sorted(changed)))
        self.same_findings(check, repair)
        if not changed:
            if any(session.get("applied") for session in repair.sessions):
                raise Broken("told as repaired, and nothing changed")
            return
        self.changed_rightly(check, repair)
        self.no_worse(check, repair)
        self.unnamed_lines_stay(repair)
        self.once_is_enough()
        undo = self.run("undo", "--yes")
        if undo.status != 0:
            raise Broken("undo is refused", _shape(undo.err), undo.err)
        if self.state() != first:
            raise Broken("undo is not exact")
        if self.changes(before) - {self.mutant.path}:
            raise Broken("undo left files behind")

    # Commands

    def run(self, *words: str) -> Ran:
        """Run a command on the mutant, within this process."""
        told, err = io.BytesIO(), io.StringIO()
        errors: list[BaseException] = []
        complain = terminal.complain

        def noted(text: str) -> None:
            if (error := sys.exception()) is not None:
                errors.append(error)
            complain(text)

        def described(error: BaseException) -> str:
            errors.append(error)
            return describe_bug(error)

        out = io.TextIOWrapper(told, "utf-8")
        changed: list[tuple[Any, str, Any]] = [
            (sys, "stdin", NOTHING),
            (sys, "stdout", out),
            (sys, "stderr", err),
            (terminal, "complain", noted),
            (cli_repair, "describe_bug", described),
        ]
        if not self.mutant.asks:
            changed += [(os_files, "holders", _none), (processes, "processes_named", _none)]
        with _set(changed), self.watch.below(self.root) if self.watch else _nobody() as seen:
            status = cli.run([*words, self.name])
        out.flush()
        ran = Ran(status, told.getvalue(), err.getvalue())
        for error in errors:
            if not isinstance(error, LockstitchError):
                raise Broken(f"exception in {words[0]}", _place(error), _traced(error))
        if status not in (0, 1, 2) or "internal error" in ran.err:
            raise Broken(f"status of {words[0]}", _shape(ran.err), ran.err)
        if seen:
            raise Broken(f"{words[0]} reached outside", seen[0], "\n".join(seen))
        return ran

    def told(self, *words: str) -> Ran:
        """Run a command that must not print what was said."""
        ran = self.run(*words)
        text = f"{ran.out.decode()} {ran.err}"
        if self.mutant.told and MARK.search(text):
            raise Broken(f"{words[0]} prints what was said", "", text)
        if CONTROL.search(ran.err):
            raise Broken(f"{words[0]} prints control characters", "", repr(ran.err))
        return ran

    def looked_at(self) -> None:
        """Try the commands that print for people."""
        given = self.mutant.given
        for words in (("check",), ("scan", "--json"), ("repair", "--diff"), ("show",)):
            ran = self.run(*words, *(() if words[0] == "scan" else given))
            shown = f"{ran.out.decode('utf-8', 'replace')}{ran.err}"
            if CONTROL.search(shown):
                raise Broken(f"{words[0]} prints control characters", "", repr(shown))
        self.run("export", *given)

    # Promises

    def same_findings(self, check: Ran, repair: Ran) -> None:
        if "--force-cleanup" in self.mutant.way:
            return  # it looks at what waits for a person, too
        if self.mutant.form in ("list", "requests"):
            return  # checked as it goes out, repaired as it is kept: a prompt comes behind it
        # what no program is known to have written is checked as a list, and never repaired; and
        # a check reads older checkpoints, too, which may be on pages that are damaged
        if check.unread > repair.unread and self.mutant.form != "langgraph":
            raise Broken("check and repair differ in what they can read", "", repair.err)
        found, planned = (
            [one for one in ran.findings if one["code"] not in SEARCHED] for ran in (check, repair)
        )
        if _sorted(found) != _sorted(planned) and not repair.unread and not check.unread:
            codes = _difference(found, planned)
            raise Broken("check and repair find other things", codes)

    def changed_rightly(self, check: Ran, repair: Ran) -> None:
        if not any(session.get("applied") for session in repair.sessions):
            raise Broken("changed, and not told as repaired", _shape(repair.err), repair.err)
        forced = "--force-cleanup" in self.mutant.way
        if not forced and not any(finding["fixable"] for finding in repair.findings):
            raise Broken("changed what is not broken")

    def no_worse(self, check: Ran, repair: Ran) -> None:
        """Nothing more is wrong than before, and the repair told the truth of what is left."""
        again = self.told("check", "--json", *self.mutant.given)
        is_list = self.mutant.form in ("list", "requests")
        before = (
            repair.findings if is_list or "--force-cleanup" in self.mutant.way else check.findings
        )
        if again.unread > check.unread or (not again.sessions and check.sessions):
            raise Broken("cannot be read after the repair", _shape(again.err), again.err)
        for severities in (("error",), ("error", "warning"), ("error", "warning", "note")):
            count = [
                sum(finding["severity"] in severities for finding in found)
                for found in (before, again.findings)
            ]
            if count[1] > count[0]:
                codes = _difference(before, again.findings)
                raise Broken(f"more findings ({severities[-1]}s)", codes, f"{count[0]}, {count[1]}")
        left = [
            finding
            for session in repair.sessions
            for finding in (
                session.get("remaining", []) if session.get("applied") else session["findings"]
            )
        ]
        # by code: lines have other numbers once some are gone, and one line is no file of lines
        told, true = (
            [one for one in found if one["severity"] != "note" and one["code"] not in SEARCHED]
            for found in (left, again.findings)
        )
        if _codes(told) != _codes(true) and not again.unread and not repair.unread:
            raise Broken("left is other than told", _difference(left, again.findings))

    def unnamed_lines_stay(self, repair: Ran) -> None:
        """Lines that no edit names keep their bytes."""
        if self.mutant.is_base or not self.name.endswith(".jsonl"):
            return
        sessions = repair.sessions
        edits = [edit for session in sessions for edit in session.get("edits", [])]
        if any(not edit["place"][:1].isdigit() for edit in edits):
            return  # one line that is a whole document: places are inside of it
        named = named_lines(edits)
        whole = [
            line.strip()
            for number, line in enumerate(self.mutant.data.split(b"\n"), start=1)
            if number not in named and _is_object(line)
        ]
        now = (line.strip() for line in self.path.read_bytes().split(b"\n"))
        gone = Counter(whole) - Counter(now)
        if gone:
            lines = [
                number
                for number, line in enumerate(self.mutant.data.split(b"\n"), start=1)
                if line in gone
            ]
            codes = sorted({edit["code"] for edit in edits})
            raise Broken("a line changed that no edit names", " ".join(codes), f"lines {lines}")

    def once_is_enough(self) -> None:
        mended = self.path.read_bytes()
        rows = self.state()
        again = self.told("repair", "--yes", "--json", *self.mutant.given, *self.mutant.way)
        if self.path.read_bytes() == mended or self.state() == rows:
            return
        edits = [edit for session in again.sessions for edit in session.get("edits", [])]
        codes = sorted({f"{edit['code']} {edit['action']}" for edit in edits})
        raise Broken("a second repair changes more", ", ".join(codes), json.dumps(edits))

    # State

    def files(self) -> dict[str, bytes]:
        """Every file of the home but for backups.

        Of a database that SQLite cannot read, it leaves an empty log and its index behind.
        """
        found: dict[str, bytes] = {}
        for folder, inner, names in os.walk(self.root):
            if BACKUPS in inner:
                inner.remove(BACKUPS)
            for name in names:
                path = Path(folder, name)
                if name.endswith("-shm") or (name.endswith("-wal") and not path.stat().st_size):
                    continue
                found[str(path.relative_to(self.root))] = path.read_bytes()
        return found

    def changes(self, before: dict[str, bytes]) -> set[str]:
        now = self.files()
        return {path for path in {*now, *before} if now.get(path) != before.get(path)}

    def state(self) -> Any:
        """What an undo has to bring back: the bytes of a file, every row of a database."""
        data = self.path.read_bytes()
        if not self.mutant.is_base:
            return data
        log = Path(f"{self.name}-wal")
        if log.exists() and log.stat().st_size:
            raise Broken("a log was left beside the database")
        with closing(sqlite3.connect(":memory:")) as base:
            base.text_factory = bytes
            try:
                base.deserialize(data[:18] + b"\1\1" + data[20:])
                return data if data[18:20] not in (b"\1\1", b"\2\2") else _rows(base)
            except (sqlite3.Error, OverflowError, UnicodeDecodeError):
                return data


def _most_memory() -> int:
    """Return the most kilobytes that this process ever had.

    What getrusage says counts the program that started this one, too, which may be larger.
    """
    with suppress(OSError):
        found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
        if found:
            return int(found[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _rows(base: sqlite3.Connection) -> list[Any]:
    """Return every row of every table, and the tables themselves; an error for what is damaged."""
    schema = base.execute("select type, name, tbl_name, sql from sqlite_master").fetchall()
    found: list[Any] = sorted(schema, key=repr)
    for kind, name, _, _ in found[:]:
        if kind == b"table":
            quoted = name.decode("utf-8", "replace").replace('"', '""')
            try:
                rows = base.execute(f'select * from "{quoted}"')  # noqa: S608
                found.append((name, sorted(rows, key=repr)))
            except sqlite3.Error as error:
                found.append((name, str(error)))
    return found


@contextmanager
def _set(values: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Give modules other attributes for a while."""
    before = [(home, name, getattr(home, name)) for home, name, _ in values]
    for home, name, value in values:
        setattr(home, name, value)
    try:
        yield
    finally:
        for home, name, value in before:
            setattr(home, name, value)


def _none(_asked: Any) -> list[Any]:
    return []


@contextmanager
def _nobody() -> Iterator[list[str]]:
    yield []


def _sorted(findings: Findings) -> list[str]:
    return sorted(json.dumps(finding, sort_keys=True) for finding in findings)


def _codes(findings: Findings) -> Counter[str]:
    return Counter(f"{one['code']} {one['severity']}" for one in findings)


def _difference(before: Findings, after: Findings) -> str:
    """Say which codes there are more of, and which fewer."""
    old, new = _codes(before), _codes(after)
    more, fewer = sorted((new - old).keys()), sorted((old - new).keys())
    if not more and not fewer:
        return "the same codes elsewhere"
    return f"+ {' '.join(more)} - {' '.join(fewer)}"


def _shape(text: str) -> str:
    """Return a message without what differs from mutant to mutant."""
    return re.sub(r"\d+|/\S+", "#", text)[-160:]


def _place(error: BaseException) -> str:
    """Return the kind of an error and the innermost place of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/lockstitch/" in frame.filename] or frames
    last = ours[-1]
    return f"{type(error).__name__} in {Path(last.filename).name}:{last.name}"


def _traced(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-3000:]


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
