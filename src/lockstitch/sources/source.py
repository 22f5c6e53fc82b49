"""Where sessions are: the places of known programs, files, folders, ids; and opening one.

What a check says of one session.
"""

from __future__ import annotations

import fnmatch
import mmap
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from lockstitch.errors import LockstitchError, UnknownFormat, Unreadable, UsageError
from lockstitch.files import read
from lockstitch.files.read import walk_folders
from lockstitch.files.replace import Snapshot, snapshot
from lockstitch.rules.rule import Finding, is_broken
from lockstitch.sources import records as lines
from lockstitch.sources.interface import (
    DOCUMENT,
    LINES,
    NAMES,
    SQLITE,
    Context,
    Format,
    Transcript,
    below,
    format_named,
    format_of,
    likeness,
    owner_of,
)
from lockstitch.sources.records import BOM, SLIM, TORN, Record, close_document
from lockstitch.sources.records import DOCUMENT as WHOLE

_MAGIC = b"SQLite format 3\0"
_HEAD = 1 << 18
_HEAD_LINES = 40
_BOM = b"\xef\xbb\xbf"
_LARGE = 32 << 20
_RESTING = 60
# So many sessions are named of those that an id may mean.
_LISTED = 5
SUFFIXES = (".jsonl", ".json", ".jsonl.zst", ".db", ".sqlite", ".sqlite3", ".traj")
_DATABASES = (".db", ".sqlite", ".sqlite3")
OWN_FOLDER = ".lockstitch"


class Source(Struct, frozen=True):
    """One session in its store: the path, its format, and its id where a store holds many.

    ``error`` says why a file among others could not be read; its format may be unknown then.
    """

    path: str
    format: str
    kind: str
    session: str | None = None
    error: str | None = None

    @property
    def form(self) -> Format:
        """The format itself."""
        return format_named(self.format)


class Opened(Struct):
    """A session that was read; ``before`` is what its file held, None for a database."""

    source: Source
    transcript: Transcript
    before: Snapshot | None = None


def home_places(home: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Give the files of all programs that are known, wherever the environment put them."""
    for name in NAMES:
        yield from places_of(format_named(name), home, environ)


def places_of(form: Format, home: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Give the files of one program."""
    for place in form.places:
        paths = sorted(_matches(home, environ, form.variable, place))
        yield from (path for path in paths if not read.is_shadowed_by_plain(path))


def program_folders(home: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the folders in which sessions of known programs are looked for."""
    found: dict[str, None] = {}
    for name in NAMES:
        form = format_named(name)
        for place in form.places:
            moved = environ.get(form.variable) if form.variable else None
            steps = (below(form.variable, place) if moved else place).split("/")
            fixed = [
                step for n, step in enumerate(steps[:-1]) if "*" not in "".join(steps[: n + 1])
            ]
            found[str(Path(moved or home, *fixed))] = None
    return [*found]


def _matches(home: Path, environ: Mapping[str, str], variable: str, place: str) -> list[str]:
    """Give the files at a place; a folder on the way that may not be looked into is given, too."""
    moved = environ.get(variable) if variable else None
    found, closed = [str(Path(moved) if moved else home)], []
    for step in (below(variable, place) if moved else place).split("/"):
        names, found = found, []
        for folder in names:
            try:
                if "*" in step:
                    own = fnmatch.filter(os.listdir(folder), step)  # noqa: PTH208 - as below
                    found += [os.path.join(folder, name) for name in own]  # noqa: PTH118
                elif os.lstat(os.path.join(folder, step)):  # noqa: PTH118 - as below
                    found.append(os.path.join(folder, step))  # noqa: PTH118 - as below
            except PermissionError as error:
                closed.append(str(error.filename))
            except OSError:
                continue
    return found + closed


def files_below(folder: str) -> Iterator[str]:
    """Give the files below a folder that may hold sessions, in a steady order.

    A folder that cannot be looked into is given, too, so that whoever opens it says so.
    """
    closed: list[str] = []
    for root, folders, names in walk_folders(
        folder, lambda error: closed.append(str(error.filename))
    ):
        folders[:] = sorted(name for name in folders if name != OWN_FOLDER)
        for name in sorted(names):
            path = os.path.join(root, name)  # noqa: PTH118 - a walk may give 100 000 names
            if name.endswith(SUFFIXES) and not read.is_shadowed_by_plain(path):
                yield path
    yield from closed


def find_sources(
    target: str, name: str | None, session: str | None, home: Path, environ: Mapping[str, str]
) -> list[Source]:
    """Give the sessions that a target names: a file, a folder, or an id or its beginning."""
    path = target.removeprefix("sqlite:///") if target.startswith("sqlite:///") else target
    if os.path.isdir(path):  # noqa: PTH112 - pathlib costs start-up time
        inside = [
            one for file in files_below(path) for one in _sources_or_error(file, name, environ)
        ]
        return [one for one in inside if _is_meant(one, session)]
    if os.path.lexists(path):
        return [one for one in sources_in(path, name, environ) if _is_meant(one, session)]
    if os.sep in target or target.endswith(SUFFIXES):
        raise Unreadable("no such file")
    return [_by_id(target, home, environ)]


def _is_meant(source: Source, session: str | None) -> bool:
    if session is None or source.session == session:
        return True
    return bool(source.format) and source.form.is_part_of(source.session, session)


def _sources_or_error(path: str, name: str | None, environ: Mapping[str, str]) -> list[Source]:
    """Give the sessions in one file of many, among which are those of other programs.

    A file that cannot be read is given too, so that whoever opens it says so.
    """
    try:
        return sources_in(path, name, environ)
    except UnknownFormat:
        return []
    except (Unreadable, UsageError) as error:
        owner = None if name else owner_of(path, environ)
        known = name or (owner.name if owner else "")
        return [Source(path, known, LINES, error=str(error))]


def sources_in(
    path: str, name: str | None = None, environ: Mapping[str, str] | None = None
) -> list[Source]:
    """Give the sessions in one file; raises UnknownFormat if it is of no program that is known.

    What is in a program's own place is that program's session, in whatever state it is. Anywhere
    else the first records must be such that no other program writes them.
    """
    # A database that this process has open would lose its locks if anything else closed it.
    if path.endswith(_DATABASES):
        return _database_sources(path, name)
    head = _read_source_head(path)
    if head.startswith(_MAGIC):
        return _database_sources(path, name)
    if head.startswith(read.ZSTD_MAGIC):
        head = read.unpacked_head(path, _HEAD)
        if not head:
            raise Unreadable("is packed, and damaged before anything of it can be unpacked")
    owner = None if name else owner_of(path, os.environ if environ is None else environ)
    if owner is not None:
        return [_source_in_place(path, owner, head)]
    kind, values = _first_records(path, head)
    form = format_named(name) if name else format_of(kind, _name_of(path), values)
    if form is None:
        like = likeness(kind, values)
        raise UnknownFormat(unknown_program(like), like)
    if form.name == "list" and kind == LINES and _is_torn_list(head):
        raise Unreadable("is a list of messages that is not whole JSON: it cannot be told apart")
    return [Source(path, form.name, kind)]


def _is_torn_list(head: bytes) -> bool:
    """Whether a file that is no JSON begins as one list does, and not with lists on lines."""
    first = head.removeprefix(_BOM).lstrip().partition(b"\n")[0]
    return first.startswith(b"[") and not [*_first_values(first)]


def _name_of(path: str) -> str:
    return read.plain_name(os.path.basename(path))  # noqa: PTH119 - pathlib costs start-up time


def _source_in_place(path: str, owner: Format, head: bytes) -> Source:
    """Give the session in a program's own place; raises Unreadable if it is surely no such one."""
    kind = DOCUMENT if DOCUMENT in owner.kinds and path.endswith(".json") else LINES
    try:
        found, values = _first_records(path, head)
    except Unreadable:
        return Source(path, owner.name, kind)
    kind = found if found in owner.kinds else kind
    why = owner.doubt(values)
    if why:
        where = f"is where {owner.title} keeps its sessions, but {why}"
        raise Unreadable(f"{where}; nothing was changed, --format {owner.name} reads it anyway")
    return Source(path, owner.name, kind)


def unknown_program(like: str) -> str:
    """Say of a file of no program that is known what it looks like, and what can be done."""
    if not like:
        return "not a program that is known: it holds no session that could be read"
    forced = "--format NAME (or check --dialect NAME) reads it as what you say it is"
    return f"{like}: not a program that is known, so nothing was changed; {forced}"


def _database_sources(path: str, name: str | None) -> list[Source]:
    from lockstitch.sources import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

    tables = sorted(rows.table_names(path))
    form = format_named(name) if name else format_of(SQLITE, path, tables)
    if form is not None and SQLITE not in form.kinds:
        raise UnknownFormat("is a database, which that format is not kept in")
    if form is None:
        raise UnknownFormat("is a database, but of no program that is known")
    found = rows.list_sessions(path, form)
    return [Source(path, form.name, SQLITE, row.id, row.error) for row in found]


def _read_source_head(path: str) -> bytes:
    return read.read_head(path, _HEAD)


def is_recognized(source: Source, data: bytes) -> bool:
    """Whether bytes are told as a session of a source's format by what they hold alone."""
    try:
        kind, values = _first_records(source.path, data[:_HEAD], data)
    except Unreadable:
        return False
    form = format_of(kind, _name_of(source.path), values)
    return form is not None and form.name == source.format


def _first_records(path: str, head: bytes, whole: bytes | None = None) -> tuple[str, list[Any]]:
    """Read the first values of a file, and tell lines of JSON from one document."""
    if not head.strip(b" \t\r\n"):
        raise UnknownFormat("is empty")
    if not head.strip(b"\0 \t\r\n"):
        raise Unreadable("holds nothing but NUL bytes")
    values = [*_first_values(head)]
    has_objects = any(type(value) is dict for value in values)
    # a list may have its objects on lines of their own
    is_list = head.removeprefix(_BOM).lstrip().startswith(b"[")
    if has_objects and not is_list and not _is_document(values, head):
        return LINES, values
    if whole is None and len(head) >= _HEAD:
        whole = _unpacked(read.read_file(path)).data
    data = head if whole is None else whole
    try:
        return DOCUMENT, [lines.decode_json(data.removeprefix(_BOM))]
    except ValueError:
        # a first line that is longer than the head, as a prompt with a picture is
        values = values or [*_first_values(data)]
    torn = None if any(type(value) is dict for value in values) else _torn_document(data)
    return (LINES, values) if torn is None else (DOCUMENT, [torn])


def _torn_document(data: bytes) -> Any:
    """Return what is whole of a document of a program that breaks off, None if it is none."""
    if not data.removeprefix(_BOM).lstrip().startswith(b"{") or b'"messages"' not in data:
        return None
    for name in NAMES:
        form = format_named(name)
        found = close_document(data.removeprefix(_BOM), form.lists) if form.lists else None
        if found is not None and form.claims("", [found.value]):
            return found.value
    return None


def _is_document(values: Sequence[Any], head: bytes) -> bool:
    """Tell whether the only line is an object that holds a whole conversation."""
    [first, *rest] = values
    whole = not rest and head.count(b"\n") <= 1 and type(first) is dict
    return whole and any(type(value) is list for value in first.values())


def _first_values(head: bytes) -> Iterator[Any]:
    for line in head.removeprefix(_BOM).split(b"\n")[:_HEAD_LINES]:
        try:
            yield lines.decode_json(line.strip(b"\0"))
        except ValueError:
            continue


def _by_id(target: str, home: Path, environ: Mapping[str, str]) -> Source:
    """Find a session of this machine by its id, or by a beginning that only one has."""
    matches = [
        source
        for path in home_places(home, environ)
        if target in path or path.endswith((".db", ".sqlite"))
        for source in _sources_or_error(path, None, environ)
        if _named(source).startswith(target) or f"-{target}" in _named(source)
    ]
    if not matches:
        raise Unreadable("is neither a file nor the id of a session on this machine")
    if len(matches) > 1:
        ids = sorted({_named(source) for source in matches})
        which = ids if len(ids) == len(matches) else sorted(source.path for source in matches)
        more = [f"and {len(which) - _LISTED} more"] if len(which) > _LISTED else []
        listed = ", ".join([*which[:_LISTED], *more])
        raise UsageError(f"is the beginning of {len(which)} sessions, {listed}: give more of it")
    return matches[0]


def _named(source: Source) -> str:
    return source.session or Path(source.path).stem


def open_file_source(
    source: Source, *, follow_symlinks: bool = False, search: bool = False
) -> Opened:
    """Read a session, once, and understand it; ``search`` looks into all that a database has."""
    if source.error is not None:
        raise Unreadable(source.error)
    if source.kind == SQLITE:
        from lockstitch.sources import rows  # noqa: PLC0415 - see above

        session = str(source.session)
        loaded = rows.load_rows(
            source.path, source.form, session, follow=follow_symlinks, search=search
        )
        name = str(source.session)
        return Opened(source, source.form.parse(loaded, Context(b"", name)))
    before = snapshot(source.path, follow_symlinks=follow_symlinks)
    return Opened(source, parse_file(source, before.data), before)


def _unpacked(data: bytes) -> read.Unpacked:
    is_packed = data[: len(read.ZSTD_MAGIC)] == read.ZSTD_MAGIC
    return read.unpack(data) if is_packed else read.Unpacked(data, whole=True)


def glance(source: Source) -> Opened:
    """Read a session for a look only: a large file is mapped, not loaded."""
    if source.error is not None:
        raise Unreadable(source.error)
    status = os.stat(source.path)  # noqa: PTH116 - pathlib costs start-up time
    # A mapped file that its program cuts short ends this process, so it must be at rest.
    at_rest = time.time() - status.st_mtime > _RESTING
    is_plain = source.kind == LINES and not read.is_packed(source.path)
    if not is_plain or status.st_size <= _LARGE or not at_rest:
        return open_file_source(source, follow_symlinks=True, search=True)
    with read.open_regular(source.path) as handle:
        read.require_size(os.fstat(handle).st_size)
        mapped: Any = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
    transcript = parse_file(source, mapped, source.form.slim(mapped))
    if _is_slim(transcript):
        transcript = parse_file(source, mapped)
    return Opened(source, transcript)


def _is_slim(transcript: Transcript) -> bool:
    """Tell whether the history holds records of which only the links were read."""
    records = transcript.records
    numbers = {number for row in transcript.history.sources for number in row}
    return any(SLIM in records[number].value for number in numbers)


def parse_file(source: Source, data: bytes, slim: lines.DecodeLine | None = None) -> Transcript:
    """Understand the bytes of a session's file."""
    held = _unpacked(data)
    context = Context(held.data, _name_of(source.path), Beside(source.path))
    records = records_of(source, held.data, slim)
    if not held.whole:
        records.append(_break(records, len(held.data)))
    transcript = source.form.parse(records, context)
    known = (source.form.is_record(record.value) for record in records if record.is_record)
    if source.kind == LINES and not transcript.history.messages and not any(known):
        raise Unreadable(_destroyed(source, held.data))
    return transcript


def _break(records: Sequence[Record], size: int) -> Record:
    """Return the place where a packed file breaks off: a torn piece of which nothing is left."""
    place = records[-1].place if records else "1"
    return Record(place, None, TORN, size, size, b"", codes=("LS601",))


def _destroyed(source: Source, data: bytes) -> str:
    """Say that a file holds nothing of the session that should be in it."""
    held = "is empty" if not data else "holds nothing but NUL bytes"
    held = held if not data[:_HEAD].strip(b"\0") else "holds no record that can be read"
    return f"{held}: nothing of a session of {source.form.title} is left in it"


def records_of(source: Source, data: bytes, slim: lines.DecodeLine | None = None) -> list[Record]:
    """Take the bytes of a file apart into records."""
    if source.kind == LINES:
        return lines.read_lines(data, source.form.is_record, slim)
    text = data.removeprefix(b"\xef\xbb\xbf")
    start = len(data) - len(text)
    bom = [Record("1", None, BOM, 0, start, b"", codes=("LS604",))] if start else []
    try:
        value, codes = lines.read_json(text)
        return [*bom, Record("1", value, WHOLE, start, len(data), b"", codes=codes)]
    except ValueError:
        closed = close_document(text, source.form.lists)
    if closed is None:
        raise Unreadable("is not JSON, or is cut off")
    end = start + closed.end
    whole = Record("1", closed.value, WHOLE, start, end, b"", closed.data)
    place = f"messages.{len(closed.value['messages'])}"
    return [*bom, whole, Record(place, None, TORN, end, len(data), b"", codes=("LS601",))]


class Beside(Mapping[str, bytes]):
    """The sub-agents' files of a session, read when somebody asks for them."""

    def __init__(self, path: str) -> None:
        base = Path(path)
        self._folder = base.parent / base.name.removesuffix(".jsonl") / "subagents"
        self._names: list[str] | None = None

    def _listed(self) -> list[str]:
        if self._names is None:
            found = self._folder.iterdir() if self._folder.is_dir() else ()
            self._names = sorted(path.name for path in found if path.name.startswith("agent-"))
        return self._names

    def __getitem__(self, name: str) -> bytes:
        """Give the content of one of them."""
        if name not in self._listed():
            raise KeyError(name)
        try:
            return read.read_file(self._folder / name)
        except LockstitchError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        """Give their names."""
        return iter(self._listed())

    def __len__(self) -> int:
        """Give their number."""
        return len(self._listed())


# The format of sessions in stores of Lockstitch's own.
OWN = "lockstitch"
# The states of a session that its program resumes with all that was said.
HEALTHY = ("ok", "notes")


# Files that hold many sessions.
DATABASES = (".db", ".sqlite", ".sqlite3")


class Report(Struct):
    """What is known of one session after a check; ``error`` says why it could not be read.

    ``reachable`` and ``unreachable`` count turns, ``left`` the bytes of those that a resume leaves
    behind. ``notes`` says what was left on purpose, ``records`` counts those of a session in a
    store of Lockstitch's own. ``is_unknown`` says of a file that no program is known that writes
    such ones, so that there may be no session in it at all.
    """

    target: str
    format: str | None = None
    session: str | None = None
    project: str | None = None
    messages: int = 0
    reachable: int = 0
    unreachable: int = 0
    left: int = 0
    size: int = 0
    updated: float = 0.0
    dialect: str | None = None
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    records: int = 0
    is_unknown: bool = False

    @property
    def status(self) -> str:
        """The word for it in reports: ok, notes, broken or unreadable."""
        return "unreadable" if self.error is not None else status_of_findings(self.findings)


def may_hold_many(target: str) -> bool:
    """Whether a file may hold many sessions, so that its path alone names none of them."""
    return target.endswith(DATABASES)


def status_of_findings(findings: Sequence[Finding]) -> str:
    """Return the word for a session with these findings: ok, notes or broken."""
    if not findings:
        return "ok"
    return "broken" if is_broken(findings) else "notes"
