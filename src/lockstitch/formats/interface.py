"""What a format is: how one program's records become a history, and a history its records.

All methods but ``quick``, which streams through a file, are functions from values to values.
``targets`` and ``source`` find and read files, ``rows`` reads databases, and ``repair`` decides
once, for all formats, what is done in which order. A format is recognized by its place, its first
records, or its tables. A history is what a resume would send, with the record that each part comes
from; ``trace_sources`` says the same of a repaired history.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field, structs

from lockstitch.conversation.parts import Path, Place, repr_without
from lockstitch.errors import UnknownFormat, Unreadable, UsageError
from lockstitch.files.os_files import SessionUser, working_in_folder
from lockstitch.formats.records import (
    BOM_BYTES,
    Pattern,
    Record,
    close_document,
    first_values,
    read_json,
)
from lockstitch.repair.draft import Ledger, RepairedMessage
from lockstitch.rules import ERROR, RULES, WARNING, Finding

if TYPE_CHECKING:
    from collections.abc import Callable

    from lockstitch.compaction.ladder import Compaction
    from lockstitch.formats.records import DecodeLine
    from lockstitch.journal.records import JournalRecord
    from lockstitch.session.listing import ThreadConversation


NEW = -1
LOST, LEFT, COMPACTED = "lost", "left", "compacted"


class History(Struct):
    """Messages in a dialect; ``sources`` gives, part by part, the number of the part's record.

    A part is an element of a message's content list, or the whole message if its content is not a
    list. ``paths`` says where in the record each part stands. ``body`` is the request around the
    messages, if the store holds whole requests.
    """

    dialect: str
    messages: list[dict[str, Any]] = []
    sources: list[list[int]] = []
    paths: list[list[Path]] = []
    model: str | None = None
    body: dict[str, Any] | None = None

    __repr__ = repr_without("messages", "body")

    def add(self, message: dict[str, Any], sources: list[int], paths: list[Path]) -> None:
        """Add a message with the records and paths of its parts."""
        self.messages.append(message)
        self.sources.append(sources)
        self.paths.append(paths)

    def extend(self, parts: list[Any], number: int, paths: list[Path]) -> None:
        """Add parts of one record to the content of the last message."""
        self.messages[-1]["content"] += parts
        self.sources[-1] += [number] * len(parts)
        self.paths[-1] += paths

    def home(self, place: Place) -> tuple[int, Path]:
        """Return the record and the path in it of a place, such as ``messages.3.content.1``."""
        number = place.message or 0
        if number >= len(self.messages):
            return (self.sources[-1][-1] if self.sources else NEW), ()
        inner = () if place.message is None else place.steps[2:]
        sources, paths = self.sources[number], self.paths[number]
        if not sources:
            return NEW, ()
        part = inner[1] if len(inner) > 1 and inner[0] == "content" else None
        if type(part) is int and part < len(sources):
            return sources[part], (*paths[part], *inner[2:])
        if len(sources) == 1 and paths[0][-1:] != ("content",):
            return sources[0], (*paths[0], *inner)
        return sources[0], ()


class Aside(Struct):
    """A piece of the stored conversation that a resume does not send.

    ``kind`` says why: ``LOST`` although nobody gave it up, ``LEFT`` on purpose, or ``COMPACTED``
    since a summary stands for it. ``reason`` says it in words. ``first`` is the piece's first
    record, and ``behind`` is the record of the conversation that it follows, -1 if it precedes all
    of it.
    """

    kind: str
    first: int
    behind: int
    history: History
    reason: str


class SourcedMessage(Struct):
    """One repaired message: its parts, each with the record it came from (``NEW``: from none).

    ``origin`` is its number in the stored history. ``earlier`` maps the ``id`` of each changed part
    to the part of the history that it was, None for a new part.
    """

    message: dict[str, Any]
    origin: int
    parts: list[tuple[int, Any]]
    earlier: dict[int, Any] = field(default_factory=dict)

    __repr__ = repr_without("message", "parts", "earlier")


def parts_of(message: Any) -> list[Any]:
    """Return the parts of a message: the blocks of its content, or the message itself."""
    content = message.get("content") if type(message) is dict else None
    return content if type(content) is list and content else [message]


def trace_sources(history: History, repaired: Sequence[RepairedMessage]) -> list[SourcedMessage]:
    """Return each message of a repaired history, with the record of each of its parts.

    Messages after the history, such as the prompt that a resume adds, are left out.
    """
    # origins count only stored messages, not those that were inserted from elsewhere
    stored = (number for number, row in enumerate(history.sources) if row != [NEW])
    counted = {number: place for place, number in enumerate(stored)}
    used = {(part.origin, part.path) for one in repaired for part in one.parts}
    traced: list[SourcedMessage] = []
    for one in repaired:
        origin = one.origin
        if origin is not None and origin >= len(history.messages):
            continue
        elements = parts_of(one.message)
        own = [NEW] if origin is None else history.sources[origin]
        if origin is not None and one.message is history.messages[origin]:
            sources = own
        elif elements[0] is one.message or not one.parts:
            sources = own[:1] * len(elements)
        else:
            known = {id(part.value): part for part in one.parts if type(part.value) is not str}
            # among blocks a bare text becomes a block: an element that is no known part is the next
            # bare text
            texts = iter([part for part in one.parts if type(part.value) is str])
            sources = []
            for element in elements:
                part = known.get(id(element)) or next(texts, None)
                came_from = None if part is None else part.origin
                if part is None or came_from is None or came_from >= len(history.messages):
                    sources.append(NEW)
                else:
                    place = Place.in_list("messages", came_from, part.path)
                    sources.append(history.home(place)[0])
            if own[0] != NEW and NEW in sources and set(sources).isdisjoint(own):
                # a message that stays without any of its parts still keeps its record
                sources[sources.index(NEW)] = own[0]
        number = NEW if origin is None else counted.get(origin, NEW)
        parts = list(zip(sources, elements, strict=True))
        before = None if origin is None else history.messages[origin]
        earlier = {} if one.message is before else {id(one.message): before, **one.earlier}
        made = next((part.value for part in one.parts if part.origin is None), None)
        if origin is not None and made and all(part.origin != origin for part in one.parts):
            # the new part of a message that stays without any of its parts takes the place of one
            # of them
            earlier[id(made)] = _first_free(history.messages[origin], origin, used)
        traced.append(SourcedMessage(one.message, number, parts, earlier))
    return traced


def _first_free(message: Any, number: int, used: set[tuple[int | None, Path]]) -> Any:
    """Return the first part of a message from which nothing in the repaired list comes."""
    for key in ("content", "parts"):
        elements = message.get(key) if type(message) is dict else None
        for place, part in enumerate(elements if type(elements) is list else ()):
            if (number, (key, place)) not in used:
                return part
    return None


# The help of a finding that a repair leaves, under a rule that it can repair in most cases.
_LEFT = "repair leaves this as it is: the file does not hold what a repair would need"
# This many of a file's first bytes are enough to recognize it.
HEAD = 1 << 18
LINES = "lines"
DOCUMENT = "document"
SQLITE = "sqlite"


class Context(Struct):
    """What surrounds the records: the bytes of their file, and other files of the session.

    ``beside`` maps names of side files, such as those of sub-agents, to their paths.
    """

    data: bytes = b""
    name: str = ""
    beside: Mapping[str, str] = {}

    __repr__ = repr_without("data", "beside")


class Transcript(Struct):
    """One parsed session: its records, what a resume would send, and what is wrong.

    ``findings`` are those of the store and the graph; the core finds those of the history.
    ``evidence`` holds, by call id, results that survived outside the history, as parts of the
    dialect. ``left`` counts turns that a resume leaves behind, ``left_size`` their bytes, and
    ``notes`` says what was left behind on purpose. ``size`` is the size of a session in a database
    of many. ``messages`` counts the messages of a file of several independent requests. ``waiting``
    says that the session waits for a person, so that nothing is changed unless it is ``forced``.
    ``sealed`` says that too little of the store can be read to change anything. ``state`` belongs
    to the format.
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

    __repr__ = repr_without("records", "history", "evidence", "state")


class Quick(Struct):
    """What a quick pass over a healthy file found in it."""

    session: str | None
    project: str | None
    messages: int
    turns: int


class HealthProof(Protocol):
    """A proof that a file is healthy, continued as lines are appended to it."""

    @property
    def is_open(self) -> bool:
        """Whether something is in progress at the end, such as a call without a result."""

    def advance(self, lines: bytes) -> bool:
        """Look at more whole lines; return False if they hold anything unknown."""

    def verdict(self) -> Quick | None:
        """Return what the file holds if all of it is proven healthy and nothing is in progress."""


class Glimpse(Struct):
    """What the two ends of a session's file show to a person who looks for it.

    ``prompt`` is the beginning of what the person said, and ``is_aside`` marks the session of a
    sub-agent.
    """

    title: str = ""
    prompt: str = ""
    session: str | None = None
    project: str | None = None
    is_aside: bool = False

    __repr__ = repr_without("title", "prompt")


class Dropped(Struct):
    """Messages that are stored but that a resume does not send: where they begin, and why.

    ``is_chosen`` says that a person left them behind, so that no repair restores them.
    """

    place: str
    reason: str
    messages: list[Any]
    is_chosen: bool = False

    __repr__ = repr_without("messages")


class Sorting(Struct, frozen=True):
    """Which messages of a history, by number, a compaction must not treat as anyone's words.

    Messages in ``setup`` are always sent, whatever is cut. Messages in ``aside`` stay with the
    message before them. ``summary`` is that of an earlier compaction, and ``previous`` its text.
    ``usage`` says of requests how many of the messages they had, and how many tokens the provider
    counted. ``shortens`` says whether the store can hold shortened results.
    """

    setup: frozenset[int] = frozenset()
    aside: frozenset[int] = frozenset()
    summary: int = NEW
    previous: str = ""
    usage: tuple[tuple[int, int], ...] = ()
    shortens: bool = False


class Shortened(Struct, frozen=True):
    """What a compaction leaves of a history: messages in front, the summary, kept messages.

    ``setup`` has the numbers of the messages in front. ``kept`` has the other messages with their
    numbers, as the same objects if they are kept whole. ``summary`` is labelled as data, None if
    there is none, and ``turns`` counts the turns that it stands for. ``messages`` has all of these
    in order, with the summary as a user message.
    """

    setup: list[int]
    summary: str | None
    kept: list[tuple[int, Any]]
    messages: list[Any]
    turns: int
    done: Compaction

    __repr__ = repr_without("summary", "kept", "messages")


class Format(ABC):
    """How one program keeps sessions.

    ``places`` are globs under the home directory, and ``variable`` is the environment variable that
    moves their first folder. ``kinds`` says what the store is: lines of JSON, one JSON document (a
    file with a single record), or an SQLite database. Neither the program nor its provider minds if
    ``tolerated`` rules are broken. If a ``refused`` rule on bytes is broken, this program refuses
    the session, while others only warn. ``survived`` is the rule under which a result is brought
    back from where it survived. ``lists`` are the lists that are read as far as they go when a
    document is cut off. ``programs`` are names of the program's processes, if these are recognized
    only by the folder that they work in. ``resume`` is the command that resumes a session, in which
    ``{id}`` and ``{path}`` stand for its id or path; with ``is_local`` it works only in the
    session's own folder.
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

    def __repr__(self) -> str:
        """Name the format."""
        return f"<{type(self).__name__} {self.name}>"

    def resumed_as(self, path: str, session: str | None) -> str | None:
        """Return the id under which the program resumes the session in a file."""
        return session

    @abstractmethod
    def claims(self, name: str, head: Any) -> bool:
        """Whether a store certainly has this format, judged by its first records or its tables.

        A repair would take another program's file apart, so a store that only looks similar is not
        claimed.
        """

    def doubt(self, head: Any) -> str:
        """Return why records that look like this format's may not be; empty if nothing says so."""
        return ""

    @abstractmethod
    def is_record(self, value: dict[str, Any]) -> bool:
        """Whether an object is a record, not some other object, such as one in a torn record."""

    def beside(self, path: str) -> Mapping[str, str]:
        """Return the paths of the files that belong to a session's file, by their names."""
        return {}

    @abstractmethod
    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        """Parse the records of one session."""

    def slim(self, data: bytes) -> DecodeLine | None:
        """Return a way to decode the lines of a large file without what no resume reads, if any."""
        return None

    def quick(self, path: str) -> Quick | None:
        """Prove in one quick pass over a file that nothing is wrong; None if it needs a look."""
        return None

    def proof(self) -> HealthProof | None:
        """Return an empty proof that can be continued, if the quick pass is of that kind."""
        return None

    def glimpse(
        self, path: str, head: Sequence[dict[str, Any]], tail: Sequence[dict[str, Any]]
    ) -> Glimpse:
        """Return what the first and the last records of a file show about its session."""
        return Glimpse()

    def asides(self, transcript: Transcript) -> list[Aside]:
        """Return the pieces of the conversation that a resume does not send, in file order."""
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

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        """Repair one kind of fault in the tree; return the same records if there is none."""
        return list(transcript.records)

    @abstractmethod
    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        """Write a repaired history into the records: change, add, move and remove what differs."""

    def forced(self, transcript: Transcript) -> Transcript:
        """Return a transcript that waits for a person as one that does not."""
        return structs.replace(transcript, waiting=False, forced=True)

    def write_request(
        self, transcript: Transcript, records: list[Record], body: dict[str, Any]
    ) -> list[Record]:
        """Write what changed around the messages of a stored request into its record."""
        return records

    def fork(self, transcript: Transcript, line: str) -> bytes:
        """Return a branch that a resume leaves behind, as a session of its own."""
        raise UsageError(f"a session of {self.title} has no branches")

    def is_part_of(self, own: str | None, session: str) -> bool:
        """Whether a session is the named one, or belongs to it."""
        return own == session

    def users(self, path: str, session: str | None, project: str | None) -> Iterable[SessionUser]:
        """Return the processes that have a session's file open, as far as that is known."""
        try:
            place = os.path.realpath(project or path)
        except ValueError:  # no folder has such a name: a NUL in it, or half a character
            place = os.path.realpath(path)
        return working_in_folder(self.programs, path, lambda folder: folder == place)

    def belongs(self, path: str, folder: str) -> bool:
        """Whether a file is a session of a working directory, to be resumed there."""
        return False

    def sorting(self, transcript: Transcript) -> Sorting:
        """Return which messages of a history a compaction must not treat as anyone's words."""
        raise UsageError(
            f"a session of {self.title} cannot be compacted; those of Claude Code and Codex, "
            "message lists, and Lockstitch stores can"
        )

    def compacted(self, transcript: Transcript, left: Shortened) -> list[Record]:
        """Return the records after a compaction, written as the program writes its own."""
        raise NotImplementedError

    def named(self, found: Finding, transcript: Transcript) -> Finding:
        """Return a finding on the history under the most specific rule for this store."""
        return found

    def severity(self, found: Finding, transcript: Transcript) -> str:
        """Return the severity of a finding on the history for a resume with this program."""
        return found.severity

    def stored_severity(self, found: Finding, transcript: Transcript) -> str:
        """Return the severity of a finding on the records for a resume with this program."""
        return ERROR if found.code in self.refused else found.severity


def new_finding(code: str, place: str, message: str, severity: str = "", **flags: bool) -> Finding:
    """Return a finding of a rule on stores."""
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


def new_warning(code: str, place: str, message: str) -> Finding:
    """Return a warning about something that the program repairs by itself."""
    return new_finding(code, place, message, WARNING)


# In the order in which they are tried: the most specific first, plain lists last.
_CLASSES = {
    "claude-code": ("claude_code", "ClaudeCode"),
    "codex": ("codex", "Codex"),
    "pi": ("pi", "Pi"),
    "openclaw": ("pi.openclaw", "OpenClaw"),
    "gemini-cli": ("gemini_cli", "GeminiCli"),
    "opencode": ("opencode", "OpenCode"),
    "opencode-export": ("opencode", "OpenCodeExport"),
    "goose": ("goose", "Goose"),
    "openai-agents": ("openai_agents", "OpenAIAgents"),
    "langgraph": ("langgraph.sqlite", "LangGraph"),
    "list": ("plain", "PlainList"),
    "requests": ("plain", "Requests"),
}
NAMES = tuple(_CLASSES)
# These formats are only in databases, so other files need not be tested for them.
_IN_DATABASES = ("openclaw", "openai-agents", "langgraph")
# Variables that move the folder of a program; all other places begin with a hidden folder.
VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCLAW_STATE_DIR", "XDG_DATA_HOME")
_loaded: dict[str, Format] = {}
# Formats that were registered in this process; they are tried before all others.
_registered: list[str] = []


def register(form: Format) -> None:
    """Add a format from elsewhere in this process; it is found by its name and its records."""
    _loaded[form.name] = form
    _registered.append(form.name)


def format_named(name: str) -> Format:
    """Return a format by its name; its module is imported on first use."""
    if name not in _CLASSES and name not in _loaded:
        raise UsageError(f"there is no format {name!r}; known formats are {', '.join(NAMES)}")
    if name not in _loaded:
        module, kind = _CLASSES[name]
        _loaded[name] = getattr(import_module(f"lockstitch.formats.{module}"), kind)()
    return _loaded[name]


def read_thread(
    records: Iterable[JournalRecord], fetch: Callable[[list[str]], dict[str, bytes]]
) -> ThreadConversation:
    """Read the conversation of a thread that LangGraph keeps in a Lockstitch store."""
    module = import_module("lockstitch.formats.langgraph.journal")
    found: ThreadConversation = module.read_conversation(records, fetch)
    return found


def recognize(kind: str, name: str, head: Sequence[Any]) -> tuple[Format | None, str]:
    """Return the format that a store's first values surely have.

    If there is none, return None and what the values look like; empty if they look like nothing
    known.
    """
    # only a message list is a list, so the other formats need not be imported
    is_list = kind == DOCUMENT and all(type(value) is list for value in head)
    tried: list[Format] = []
    for known in ("list",) if is_list else (*_registered, *NAMES):
        if known in _IN_DATABASES and kind != SQLITE:
            continue
        form = format_named(known)
        if kind in form.kinds and form.claims(name, head):
            return form, ""
        tried += [form] if kind in form.kinds else []
    return None, next((why for form in tried if (why := form.doubt(head))), "")


def first_records(head: bytes, whole: Callable[[], bytes]) -> tuple[str, list[Any]]:
    """Return the kind of a file, lines of JSON or one document, and its first values.

    ``whole`` returns the whole file; it is called only if the head does not show the kind.
    """
    if not head.strip(b" \t\r\n"):
        raise UnknownFormat("it is empty")
    if not head.strip(b"\0 \t\r\n"):
        raise Unreadable("it holds nothing but NUL bytes")
    values = first_values(head)
    has_objects = any(type(value) is dict for value in values)
    # a list may have its objects on lines of their own
    is_list = head.removeprefix(BOM_BYTES).lstrip().startswith(b"[")
    if has_objects and not is_list:
        # the only line may be an object that holds a whole conversation
        is_alone = len(values) == 1 and head.count(b"\n") <= 1 and type(values[0]) is dict
        if not is_alone or not any(type(value) is list for value in values[0].values()):
            return LINES, values
    data = whole()
    text = data.removeprefix(BOM_BYTES)
    try:
        return DOCUMENT, [read_json(text)[0]]
    except ValueError:
        # a first line can be longer than the head, such as a prompt with a picture
        values = values or first_values(data)
    if any(type(value) is dict for value in values):
        return LINES, values
    # a program's document that breaks off, but whose beginning is whole
    is_object = text.lstrip().startswith(b"{") and b'"messages"' in text
    for form in map(format_named, NAMES if is_object else ()):
        found = close_document(text, form.lists) if form.lists else None
        if found is not None and form.claims("", [found.value]):
            return DOCUMENT, [found.value]
    return LINES, values


def is_recognized(form: Format, name: str, data: bytes) -> bool:
    """Whether a file is recognized as a session of a format by its content."""
    try:
        kind, values = first_records(data[:HEAD], lambda: data)
    except Unreadable:
        return False
    found, _ = recognize(kind, name, values)
    return found is not None and found.name == form.name


def owner_of(path: str, environ: Mapping[str, str]) -> Format | None:
    """Return the program in whose own place a file is, in this home or in a copy of one."""
    whole = os.path.abspath(path)  # noqa: PTH100 - pathlib costs start-up time
    moved = {name: value for name in VARIABLES if (value := environ.get(name))}
    if f"{os.sep}." not in whole and not any(map(whole.startswith, moved.values())):
        return None
    for name in NAMES:
        form = None if name in _IN_DATABASES else format_named(name)
        if form and any(_is_at(PurePath(whole), form.variable, p, moved) for p in form.places):
            return form
    return None


def _is_at(path: PurePath, variable: str, place: str, moved: Mapping[str, str]) -> bool:
    """Whether a file is in a program's place, or where that was moved to."""
    folder = moved.get(variable)
    if path.match(place) or folder is None or not path.is_relative_to(folder):
        return path.match(place)
    rest, pattern = path.relative_to(folder), below(variable, place)
    return len(rest.parts) == pattern.count("/") + 1 and rest.match(pattern)


def below(variable: str, place: str) -> str:
    """Return the rest of a place below the folder that an environment variable moves."""
    # desktop variables move two folders (.local/share), those of programs one
    return place.split("/", 2)[2] if variable.startswith("XDG") else place.partition("/")[2]


# Blocks of the Anthropic dialect, which several programs use for their history.

Fields = dict[str, Any]
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def words_block(text: str) -> Fields:
    """Return a text block."""
    return {"type": "text", "text": text}


def words(block: Fields) -> str:
    """Return the text of a block, of a result, or of a whole message."""
    content = block.get("text", block.get("content"))
    if type(content) is list:
        texts = (part.get("text") for part in content if type(part) is dict)
        return "\n".join(text for text in texts if type(text) is str)
    return content if type(content) is str else ""


def medium(mime: str, data: str = "", url: str = "") -> Fields | None:
    """Return a picture or a document as a block, by its bytes or address; None for other files."""
    kind = "image" if mime in _IMAGES else "document" if mime == "application/pdf" else None
    if kind and data:
        return {"type": kind, "source": {"type": "base64", "media_type": mime, "data": data}}
    if kind and url:
        return {"type": kind, "source": {"type": "url", "url": url}}
    return None
