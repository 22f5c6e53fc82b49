"""Turn what a person names into sources: a file, a folder, an id, or the address of a store.

``resolve`` finds out once what a target is, from as little of it as possible: its address, its
path, its first records or its tables. Code that has the sources need not ask again.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from lockstitch.errors import UnknownFormat, Unreadable, UsageError
from lockstitch.files import read
from lockstitch.formats.interface import (
    DOCUMENT,
    HEAD,
    LINES,
    NAMES,
    Format,
    below,
    first_records,
    format_named,
    owner_of,
    recognize,
)
from lockstitch.formats.records import BOM_BYTES, first_values
from lockstitch.sources.own_stores import (
    DATABASES,
    MAGIC,
    POSTGRES,
    SCHEMES,
    may_be,
    names_schema,
    place_of,
    psycopg_hint,
)
from lockstitch.sources.source import OWN, ManySource, Source
from lockstitch.stores.addresses import public

SUFFIXES = (".jsonl", ".json", ".jsonl.zst", ".db", ".sqlite", ".sqlite3", ".traj")
OWN_FOLDER = ".lockstitch"
LANGGRAPH = "langgraph"
# The kinds of targets: sessions of programs, a Lockstitch store, LangGraph's threads in PostgreSQL.
SESSIONS, STORE, THREADS = "sessions", "store", "threads"
# How many sessions to name if an id may mean several.
_LISTED = 5
_OWN = (
    "it is a Lockstitch store: in Python name one session of it with lockstitch.stored; on the "
    "command line check, repair, undo, show, export, checkpoints, rewind and fork take it"
)


# Where programs keep their sessions.


def places_of(form: Format, home: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the files of one program."""
    for place in form.places:
        paths = sorted(_matches(home, environ, form.variable, place))
        yield from (path for path in paths if not read.is_shadowed_by_plain(path))


def _matches(home: Path, environ: Mapping[str, str], variable: str, place: str) -> list[str]:
    """Return the files at a place, and folders on the way that cannot be read."""
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


def searched_folders(
    *, home: Path | None = None, environ: Mapping[str, str] | None = None
) -> list[str]:
    """Return the folders that are searched for sessions if none is named."""
    where = os.environ if environ is None else environ
    places = known_folders(home or Path.home(), where)
    return [*dict.fromkeys(folder for folder, _ in places)]


def known_folders(home: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the folders of all programs, each with the patterns of the paths below it."""
    for form in map(format_named, NAMES):
        moved = environ.get(form.variable) if form.variable else None
        for place in form.places:
            steps = (below(form.variable, place) if moved else place).split("/")
            # the last step names files, and everything from the first pattern on is one pattern
            fixed = next((at for at, step in enumerate(steps) if "*" in step), len(steps) - 1)
            yield str(Path(moved or home, *steps[:fixed])), tuple(steps[fixed:])


def session_paths(
    targets: Iterable[str] = (),
    *,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Yield the files to scan: those below the targets, or in all known places of this machine."""
    named = list(targets)
    for target in named:
        if os.path.isdir(target):  # noqa: PTH112 - pathlib costs start-up time
            yield from files_below(target)
        else:
            yield target
    if not named:
        where = os.environ if environ is None else environ
        forms = map(format_named, NAMES)
        own = (path for form in forms for path in places_of(form, home or Path.home(), where))
        yield from dict.fromkeys(own)


def files_below(folder: str) -> Iterator[str]:
    """Yield the files below a folder that may hold sessions, in a stable order.

    A folder that cannot be read is yielded as well, so that opening it reports the reason.
    """
    closed: list[str] = []
    walk = read.walk_folders(folder, lambda error: closed.append(str(error.filename)))
    for root, folders, names in walk:
        folders[:] = sorted(name for name in folders if name != OWN_FOLDER)
        for name in sorted(names):
            path = os.path.join(root, name)  # noqa: PTH118 - a walk may give 100 000 names
            if name.endswith(SUFFIXES) and not read.is_shadowed_by_plain(path):
                yield path
    yield from closed


# Resolving.


def classify(target: str, form: str | None = None) -> str:
    """Return the kind of a target: ``STORE``, ``THREADS``, or ``SESSIONS``, which may be files.

    A folder is a store only if ``form`` says so. Raises ``UnknownFormat`` for a PostgreSQL database
    with neither a store nor threads, and ``Unreadable`` if the target is not what ``form`` says.
    """
    if target.startswith(POSTGRES) and form in (None, LANGGRAPH):
        if form == LANGGRAPH or names_schema(target):
            return THREADS
        return STORE if look_into(target).is_own else THREADS
    if form not in (None, OWN) or target == "-":
        return SESSIONS
    if form is None and (os.path.isdir(target) or not may_be(target)):  # noqa: PTH112 - start-up
        return SESSIONS
    if place_of(target) is not None:
        return STORE
    if form is not None:
        raise Unreadable("it is not a Lockstitch store")
    return SESSIONS


def look_into(url: str) -> Any:
    """Return what a PostgreSQL database holds; raise ``UnknownFormat`` for unknown content."""
    with psycopg_hint():
        from lockstitch.formats.langgraph.postgres import database  # noqa: PLC0415 - an extra

        known = database.look_into(url)
    if not known.homes and not known.is_own:
        raise UnknownFormat("it holds neither a Lockstitch store nor LangGraph checkpoints").about(
            public(url)
        )
    return known


def resolve(  # noqa: PLR0913 - options, all by name
    target: str,
    *,
    format: str | None = None,  # noqa: A002 - the word that the command line has for it
    session: str | None = None,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
    most: int | None = None,
) -> list[Source]:
    """Return the sessions that a target names, whatever holds them.

    A target is a file, a folder, an id or the beginning of one, or the address of a store. A
    database may hold millions of sessions; ``most`` limits how many are listed. A Lockstitch store
    is a single source, which stands for all of its sessions unless one of them is named.
    """
    where = os.environ if environ is None else environ
    if format == OWN or (format is None and target.startswith(SCHEMES)):
        place = place_of(target)
        if place is not None:
            return [own_source(target, session or place.session)]
        if format == OWN:
            raise Unreadable("it is not a Lockstitch store")
    path = target.removeprefix("sqlite:///")
    if target.startswith(POSTGRES):
        with psycopg_hint():
            from lockstitch.sources import threads  # noqa: PLC0415 - needs an extra

            return list(islice(threads.find_threads(target, session), most))
    if os.path.isdir(path):  # noqa: PTH112 - pathlib costs start-up time
        files = files_below(path)
        found = [one for file in files for one in _sources_or_error(file, format, where)]
    elif os.path.lexists(path):
        found = sources_of_file(path, format, where)
        if found and found[0].kind == OWN:
            return [own_source(target, session or found[0].session)]
    elif os.sep in target or target.endswith(SUFFIXES):
        raise Unreadable("no such file")
    else:
        return [_source_by_id(target, home or Path.home(), where)]
    if session is None:
        return found
    return [
        one
        for one in found
        if one.session == session or (one.format and one.form.is_part_of(one.session, session))
    ]


def resolve_sources(  # noqa: PLR0913 - options, all by name
    target: str,
    *,
    format: str | None = None,  # noqa: A002 - as above
    session: str | None = None,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
    most: int | None = None,
) -> list[Source]:
    """Return the sessions of other programs that a target names, as :func:`resolve` does.

    Raises ``UsageError`` for a Lockstitch store.
    """
    found = resolve(target, format=format, session=session, home=home, environ=environ, most=most)
    if any(one.kind == OWN for one in found):
        raise UsageError(_OWN)
    return found


def resolve_whole(target: str, form: str | None, session: str | None = None) -> ManySource | None:
    """Return the store or the database of threads that a target is; None if it is neither.

    Its sessions, or the one that is named, are processed one after the other.
    """
    kind = classify(target, form)
    if kind == STORE:
        place = place_of(target)
        return own_source(target, session or (place.session if place else None))
    return _threads_source(target, session) if kind == THREADS else None


def stores_below(folder: str) -> list[ManySource]:
    """Return the Lockstitch stores among the files below a folder."""
    places = ((path, place_of(path)) for path in files_below(folder) if may_be(path))
    return [own_source(path, place.session) for path, place in places if place]


def sources_in_server(url: str) -> list[ManySource]:
    """Return what a PostgreSQL database holds: a Lockstitch store, LangGraph's threads, or both."""
    known = look_into(url)
    found: list[ManySource] = [own_source(url, None)] if known.is_own else []
    return [*found, _threads_source(url, None)] if known.homes else found


def _threads_source(url: str, session: str | None) -> ManySource:
    with psycopg_hint():
        from lockstitch.sources.threads import ServerThreads  # noqa: PLC0415 - needs an extra

        return ServerThreads(url, LANGGRAPH, "postgresql", session)


def own_source(target: str, session: str | None) -> ManySource:
    """Return a Lockstitch store, or one session of it, as a source."""
    from lockstitch.sources.journals import StoreSource  # noqa: PLC0415 - few are our own

    return StoreSource(target, OWN, OWN, session)


def sources_of_file(
    path: str, name: str | None = None, environ: Mapping[str, str] | None = None
) -> list[Source]:
    """Return the sessions in one file, or the Lockstitch store that is kept in it.

    A database is first checked for our mark. A file of JSON lines is ours only if it belongs to no
    known program, so that most files are opened once.
    """
    place = place_of(path) if name is None and path.endswith(DATABASES) else None
    if place is None:
        try:
            return sources_in(path, name, environ)
        except Unreadable:
            place = place_of(path) if name is None and may_be(path) else None
            if place is None:
                raise
    return [own_source(path, place.session)]


def _sources_or_error(path: str, name: str | None, environ: Mapping[str, str]) -> list[Source]:
    """Return the sessions in one of many files, which may belong to other programs.

    A file that cannot be read is a source as well, so that opening it reports the reason.
    """
    try:
        return sources_in(path, name, environ)
    except UnknownFormat:
        return []
    except (Unreadable, UsageError) as error:
        owner = None if name else owner_of(path, environ)
        known = name or (owner.name if owner else "")
        return [Source(path, known, LINES, error=str(error))]


def _source_by_id(target: str, home: Path, environ: Mapping[str, str]) -> Source:
    """Return the session of this machine with an id, or with a unique beginning of one."""
    matches: dict[Source, str] = {}
    for form in map(format_named, NAMES):
        for path in places_of(form, home, environ):
            if target in path or path.endswith((".db", ".sqlite")):
                for source in _sources_or_error(path, None, environ):
                    name = source.session or Path(source.path).stem
                    if name.startswith(target) or f"-{target}" in name:
                        matches[source] = name
    if not matches:
        raise Unreadable("it is neither a file nor the id of a session on this machine")
    if len(matches) > 1:
        ids = sorted(set(matches.values()))
        which = ids if len(ids) == len(matches) else sorted(source.path for source in matches)
        more = [f"and {len(which) - _LISTED} more"] if len(which) > _LISTED else []
        listed = ", ".join([*which[:_LISTED], *more])
        raise UsageError(
            f"it is the beginning of {len(which)} session ids, {listed}: type more of it"
        )
    return next(iter(matches))


def sources_in(
    path: str, name: str | None = None, environ: Mapping[str, str] | None = None
) -> list[Source]:
    """Return the sessions in one file; raise ``UnknownFormat`` if it belongs to no known program.

    A file in a program's own folder is that program's session, whatever state it is in. Anywhere
    else, its first records must be such that only that program writes them.
    """
    # If this process has the database open, opening it any other way would drop SQLite's locks.
    head = b"" if path.endswith(DATABASES) else read.read_head(path, HEAD)
    if path.endswith(DATABASES) or head.startswith(MAGIC):
        from lockstitch.sources.rows import sources_in_database  # noqa: PLC0415 - loads sqlite3

        return sources_in_database(path, name)
    if head.startswith(read.ZSTD_MAGIC):
        head = read.unpacked_head(path, HEAD)
        if not head:
            raise Unreadable("it is packed, and damaged before anything in it can be unpacked")

    def whole() -> bytes:
        """Return the entire file, in case its beginning does not show what it is."""
        data = read.read_file(path) if len(head) >= HEAD else head
        return read.unpack(data).data if data.startswith(read.ZSTD_MAGIC) else data

    owner = None if name else owner_of(path, os.environ if environ is None else environ)
    if owner is not None:
        return [_source_in_place(path, owner, head, whole)]
    kind, values = first_records(head, whole)
    file_name = os.path.basename(path).removesuffix(read.ZSTD_SUFFIX)  # noqa: PTH119 - start-up time
    form, like = (format_named(name), "") if name else recognize(kind, file_name, values)
    if form is None:
        raise UnknownFormat(unknown_program(like), like)
    if form.name == "list" and kind == LINES:
        # a file that is not JSON, but begins like a single list and not like lists on lines
        first = head.removeprefix(BOM_BYTES).lstrip().partition(b"\n")[0]
        if first.startswith(b"[") and not first_values(first):
            raise Unreadable(
                "it is a list of messages that is not complete JSON, so its format cannot be "
                "recognised"
            )
    return [Source(path, form.name, kind)]


def _source_in_place(path: str, owner: Format, head: bytes, whole: Callable[[], bytes]) -> Source:
    """Return the session in a program's own folder; raise ``Unreadable`` if it cannot be one."""
    kind = DOCUMENT if DOCUMENT in owner.kinds and path.endswith(".json") else LINES
    try:
        found, values = first_records(head, whole)
    except Unreadable:
        return Source(path, owner.name, kind)
    kind = found if found in owner.kinds else kind
    why = owner.doubt(values)
    if why:
        where = f"it is where {owner.title} keeps its sessions, but {why}"
        raise Unreadable(f"{where}; nothing was changed, --format {owner.name} reads it anyway")
    return Source(path, owner.name, kind)


def unknown_program(like: str) -> str:
    """Return a text that says what a file of no known program looks like, and what can be done."""
    if not like:
        return "not a program that Lockstitch knows: it holds no session that could be read"
    forced = "--format NAME (or check --dialect NAME) reads it as what you say it is"
    return f"{like}: not a program that Lockstitch knows, so nothing was changed; {forced}"
