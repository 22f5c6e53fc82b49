"""The shape of a format: how one program's records become a history, and a history its records.

All but ``quick``, which streams through a file, are functions from values to values. Files are
found and read by ``sources``, databases by ``rows``; what is done in which order is decided once,
for all formats, in ``doctor``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field, structs

from lockstitch.errors import UsageError
from lockstitch.formats.history import COMPACTED, LEFT, Aside, History, SourcedMessage
from lockstitch.formats.records import Record
from lockstitch.formats.running import User, working
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, RULES, WARNING, Finding

if TYPE_CHECKING:
    from lockstitch.formats.compacting import Shortened, Sorting, Story
    from lockstitch.formats.lines import Decode

# The help of a finding under a rule that mends most, but not this one.
_LEFT = "repair leaves this as it is: the file does not hold what it would take"
LINES = "lines"
DOCUMENT = "document"
SQLITE = "sqlite"

# A path of keys, in which None stands for any element of a list.
Pattern = tuple[str | None, ...]


class Context(Struct):
    """What stands around the records: the bytes of their file, and what other files hold.

    ``beside`` gives the content of side files by name: the sub-agents' files of a session.
    """

    data: bytes = b""
    name: str = ""
    beside: Mapping[str, bytes] = field(default_factory=dict)


class Transcript(Struct):
    """One stored session, understood: its records, what a resume would send, what is wrong.

    ``findings`` are those of the store and the graph; those of the history are found by the core.
    ``evidence`` holds, by call id, results that survived outside the history, as parts of the
    dialect. ``left`` counts turns that a resume leaves behind, ``left_size`` their bytes, and
    ``notes`` says what was left behind on purpose. ``size`` is that of the session in a database
    of many. ``messages`` counts those of a file of several requests, of which none goes on another.
    ``waiting`` says that a person is asked, so that nothing is changed unless it is
    ``forced``; ``sealed`` that too little of the store can be read to change anything. ``state``
    is the format's own.
    """

    context: Context
    records: Sequence[Record]
    history: History
    findings: list[Finding] = field(default_factory=list)
    session: str | None = None
    project: str | None = None
    turns: int = 0
    messages: int = 0
    left: int = 0
    left_size: int = 0
    notes: list[str] = field(default_factory=list)
    evidence: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: str = ""
    size: int = 0
    waiting: bool = False
    forced: bool = False
    sealed: bool = False
    state: Any = None


class Quick(Struct):
    """What a quick pass over a healthy file tells of it."""

    session: str | None
    project: str | None
    messages: int
    turns: int


class Proof(Protocol):
    """A proof that a file is healthy, carried on as lines are appended to it."""

    @property
    def is_open(self) -> bool:
        """Whether something is under way at the end, such as a call that has no result yet."""

    def advance(self, lines: bytes) -> bool:
        """Look at more whole lines; false if anything in them is not known here."""

    def verdict(self) -> Quick | None:
        """Say what the file is if all of it is proven healthy and nothing is under way."""


class Glimpse(Struct):
    """What the two ends of a session's file tell a person who looks for it.

    ``prompt`` are the first words of the person, ``is_aside`` says that it is a sub-agent's.
    """

    title: str = ""
    prompt: str = ""
    session: str | None = None
    project: str | None = None
    is_aside: bool = False


class Dropped(Struct):
    """Messages that are stored but not sent by a resume: where they begin, and why.

    ``is_chosen`` says that a person left them behind, so that no repair brings them back.
    """

    place: str
    reason: str
    messages: list[Any]
    is_chosen: bool = False


class Format(ABC):
    """One program's way to keep sessions.

    ``places`` are globs under the home directory, ``variable`` names the environment variable
    that moves the first folder of them, and ``kinds`` says what the store is: lines of JSON, one
    JSON document (a file whose only record is the whole of it), or an SQLite database.
    ``tolerated`` are rules whose breach neither the program nor its provider minds; ``refused``
    are rules on bytes that others only warn of, but for which this program refuses the session;
    ``survived`` is the rule under which a result is brought back from where it survived;
    ``lists`` are the lists of a document that is cut off which are read as far as they go.
    ``programs`` are names of its processes, where these can be told only by the folder that they
    work in. ``resume`` are the words that resume a session, in which ``{id}`` and ``{path}`` stand
    for what it is named by; ``is_local`` says that they work only in the session's own folder.
    """

    name: str
    title: str
    dialect: str
    kinds: tuple[str, ...] = (LINES,)
    places: tuple[str, ...] = ()
    variable: str = ""
    tolerated: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    survived: str = "LS708"
    programs: tuple[str, ...] = ()
    lists: tuple[Pattern, ...] = ()
    resume: tuple[str, ...] = ()
    is_local: bool = False

    @abstractmethod
    def claims(self, name: str, head: Any) -> bool:
        """Whether a store is surely of this format, by its first records or its tables.

        A repair of another program's file would take it apart, so what only looks alike is left.
        """

    def doubt(self, head: Any) -> str:
        """Return what speaks against records that look like this format's; empty if nothing."""
        return ""

    @abstractmethod
    def is_record(self, value: dict[str, Any]) -> bool:
        """Tell a record from any other object, such as one inside a torn record."""

    @abstractmethod
    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        """Understand the records of one session."""

    def slim(self, data: bytes) -> Decode | None:
        """Give a way to decode the lines of a large file without what no resume reads."""
        return None

    def quick(self, path: str) -> Quick | None:
        """Prove in one quick pass over a file that nothing is wrong; None: it needs a look."""
        return None

    def proof(self) -> Proof | None:
        """Give an empty proof that can be carried on, where the quick pass is such a one."""
        return None

    def glimpse(
        self, path: str, head: Sequence[dict[str, Any]], tail: Sequence[dict[str, Any]]
    ) -> Glimpse:
        """Return what the first and the last records of a file tell of its session."""
        return Glimpse()

    def asides(self, transcript: Transcript) -> list[Aside]:
        """Give the pieces of the conversation that a resume does not send, in file order."""
        return []

    def dropped(self, transcript: Transcript) -> list[Dropped]:
        """Return the turns that a resume would not send, piece by piece."""
        return [
            Dropped(
                f"line {transcript.records[one.first].place}",
                one.reason,
                one.history.messages,
                is_chosen=one.kind == LEFT,
            )
            for one in self.asides(transcript)
            if one.kind != COMPACTED
        ]

    def straighten(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        """Mend one round of what is wrong with the graph; the same records if nothing is."""
        return list(transcript.records)

    @abstractmethod
    def stitch(
        self, transcript: Transcript, strands: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        """Put a healed history into the records: change, add, move and take out what differs."""

    def forced(self, transcript: Transcript) -> Transcript:
        """Give a transcript in which a person is asked as if nobody were."""
        return structs.replace(transcript, waiting=False, forced=True)

    def dress(
        self, transcript: Transcript, records: list[Record], body: dict[str, Any]
    ) -> list[Record]:
        """Put what changed around the messages of a stored request into its record."""
        return records

    def fork(self, transcript: Transcript, line: str) -> bytes:
        """Give a branch that a resume leaves behind as a session of its own."""
        raise UsageError(f"a session of {self.title} has no branches")

    def is_part_of(self, own: str | None, session: str) -> bool:
        """Whether a session is the one that is named, or belongs to it."""
        return own == session

    def users(self, path: str, session: str | None, project: str | None) -> Iterable[User]:
        """Give the processes that have a session's file open, as far as can be told."""
        try:
            place = os.path.realpath(project or path)
        except ValueError:  # no folder has such a name: a NUL in it, or half a character
            place = os.path.realpath(path)
        return working(self.programs, path, lambda folder: folder == place)

    def belongs(self, path: str, folder: str) -> bool:
        """Whether a file is a session of a working directory, which its program would resume."""
        return False

    def sorting(self, transcript: Transcript) -> Sorting:
        """Tell what of a history is nobody's words, for a compaction."""
        raise UsageError(
            f"a session of {self.title} cannot be compacted; those of Claude Code and Codex, "
            "message lists, and stores of Lockstitch's own can"
        )

    def compacted(self, transcript: Transcript, story: Story, out: Shortened) -> list[Record]:
        """Give the records with a compaction, written as the program writes its own."""
        raise NotImplementedError

    def named(self, found: Finding, transcript: Transcript) -> Finding:
        """Give a finding on the history under the rule that says most about this store."""
        return found

    def severity(self, found: Finding, transcript: Transcript) -> str:
        """Say how bad a finding on the history is for a resume with this program."""
        return found.severity

    def stored_severity(self, found: Finding, transcript: Transcript) -> str:
        """Say how bad a finding on the records is for a resume with this program."""
        return ERROR if found.code in self.refused else found.severity


def find(code: str, place: str, message: str, severity: str = "", **flags: bool) -> Finding:
    """Make a finding of a rule on stores."""
    rule = RULES[code]
    is_left = rule.fixable and not flags.get("fixable", True)
    return Finding(
        code=code,
        name=rule.name,
        severity=severity or rule.severity,
        place=place,
        message=message,
        error=rule.errors[0][1] if rule.errors else None,
        fixable=flags.get("fixable", rule.fixable),
        lossy=flags.get("lossy", rule.lossy),
        help=_LEFT if is_left else rule.help,
    )


def warn(code: str, place: str, message: str) -> Finding:
    """Make a finding that the program mends by itself."""
    return find(code, place, message, WARNING)
