"""Which sessions a target names, and how they are read.

Where a store of Lockstitch's own is: by its address, or by the path of what it is kept in.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from msgspec import Struct

from lockstitch.errors import LockstitchError, UsageError
from lockstitch.files import read
from lockstitch.formats.langgraph.postgres import KIND as LANGGRAPH_POSTGRES
from lockstitch.sources.source import OWN, Opened, Source, files_below, find_sources, home_places
from lockstitch.sources.source import open_file_source as opened_file
from lockstitch.sources.source import program_folders as searched_in
from lockstitch.stores import addresses
from lockstitch.stores.addresses import public as public  # noqa: PLC0414 - asked for here, too

POSTGRES = ("postgresql:", "postgres:")
SCHEMES = ("sqlite:", "jsonl:", *POSTGRES)
_DATABASES = (".db", ".sqlite", ".sqlite3")
_MAGIC = b"SQLite format 3\0"
_LINES = ".jsonl"
_OPENING = re.compile(rb'\{"lockstitch":\d+,"session":"')
_ADDRESS = re.compile(r"^postgres(ql)?://\S*: ")


class StorePlace(Struct, frozen=True):
    """The address of a store, and of one session in it where that is all that was named."""

    url: str
    session: str | None = None

    def __repr__(self) -> str:
        """Show the address without secrets."""
        return f"Place({public(self.url)!r}, {self.session!r})"


def may_be(target: str) -> bool:
    """Tell at a glance whether a target can be a store, or a file of one."""
    if target.startswith(SCHEMES) or target.endswith(_DATABASES):
        return True
    head = _first_bytes(target)
    return head.startswith(_MAGIC) or _OPENING.match(head) is not None


def place_of(target: str) -> StorePlace | None:
    """Tell which store a target is; None if it is another program's, or none at all.

    An address with our scheme is taken at its word, but that of a database may lead to the
    database of another program.
    """
    if target.startswith("sqlite:"):
        path = path_of(target)
        is_other = os.path.exists(path) and not is_own_database(path)  # noqa: PTH110
        return None if is_other else StorePlace(target)
    if target.startswith(POSTGRES):
        return None if _is_others(target) else StorePlace(target)
    if target.startswith(SCHEMES):
        return StorePlace(target)
    if os.path.isdir(target):  # noqa: PTH112 - pathlib costs start-up time
        return StorePlace(_store_url("jsonl", target)) if _holds_journals(target) else None
    if target.endswith(_LINES):
        return _place_of_lines(target)
    return StorePlace(_store_url("sqlite", target)) if is_own_database(target) else None


def is_postgres(target: str | None) -> bool:
    """Tell whether a target is the address of a PostgreSQL."""
    return target is not None and target.startswith(POSTGRES)


def names_schema(url: str) -> bool:
    """Tell whether an address names a schema, which only those of LangGraph's do."""
    found = addresses.parsed(url)
    return found is not None and bool(found.last("schema"))


def _is_others(url: str) -> bool:
    """Tell whether a PostgreSQL holds checkpoints of LangGraph and no store of ours.

    What cannot be looked at counts as ours: whoever opens it says what is wrong with it.
    """
    if names_schema(url):
        return True
    try:
        from lockstitch.formats.langgraph.postgres.database import look_into  # noqa: PLC0415 - as above

        known = look_into(url)
    except (LockstitchError, ModuleNotFoundError):
        return False
    return bool(known.homes) and not known.is_own


def path_of(url: str) -> str:
    """Give the path in the address of a database or a folder."""
    from urllib.parse import unquote  # noqa: PLC0415 - most targets are no addresses

    return unquote(addresses.split(url).path)[1:]


def brief(message: str, target: str, session: str = "") -> str:
    """Give what an error says without the names that stand before it anyway."""
    if target.startswith(POSTGRES):
        message = _ADDRESS.sub("", message)
    place = None if target.startswith(POSTGRES) else place_of(target)
    path = path_of(place.url) if place and place.url.startswith(("sqlite:", "jsonl:")) else ""
    whole = os.path.abspath(path) if path else ""  # noqa: PTH100 - as the stores name it
    names = (whole, f"{whole}/{session}{_LINES}", f"session {session}")
    for name in names if path else names[2:]:
        message = message.removeprefix(f"{name}: ")
    return message


def _store_url(scheme: str, path: str) -> str:
    from urllib.parse import quote  # noqa: PLC0415 - as above

    return f"{scheme}:///{quote(path)}"


def is_own_database(path: str) -> bool:
    """Tell whether a file is an SQLite database with our mark in it; through SQLite only."""
    if not os.path.isfile(path):  # noqa: PTH113 - as above
        return False
    from lockstitch.stores.sqlite import SqliteBackend  # noqa: PLC0415 - for databases only

    try:
        SqliteBackend(path, readonly=True).close()
    except LockstitchError:
        return _is_marked(path)
    return True


def _is_marked(path: str) -> bool:
    """Look for the mark in what cannot be opened: another program's, or ours of a later version."""
    from lockstitch.sources import sqlite  # noqa: PLC0415 - as above
    from lockstitch.stores.sqlite.connections import APPLICATION  # noqa: PLC0415 - as above

    try:
        with sqlite.open_reading(path, follow=True) as base:
            [(found,)] = base.execute("PRAGMA application_id").fetchall()
    except LockstitchError:
        return False
    return bool(found == APPLICATION)


def _place_of_lines(path: str) -> StorePlace | None:
    if not _is_journal(path):
        return None
    folder, name = os.path.split(path)
    return StorePlace(_store_url("jsonl", folder or "."), name.removesuffix(_LINES))


def _holds_journals(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(_is_journal(entry.path) for entry in entries if entry.name.endswith(_LINES))
    except OSError:
        return False


def _is_journal(path: str) -> bool:
    return _OPENING.match(_first_bytes(path)) is not None


def _first_bytes(path: str) -> bytes:
    try:
        return read.read_head(path, 64)
    except LockstitchError:
        return b""


def pasted(path: str, home: str | None = None) -> str:
    """Return a path as it can be pasted into a shell, with ``~`` for the home directory."""
    own = os.path.expanduser("~") if home is None else home  # noqa: PTH111 - start-up time
    if own and own != os.sep and path.startswith(own.rstrip(os.sep) + os.sep):
        rest = path[len(own.rstrip(os.sep)) + 1 :]
        return f"~/{shlex.quote(rest)}" if rest else "~"
    return shlex.quote(path)


_OWN = (
    "is a store of Lockstitch's own: name one session of it with lockstitch.stored; check, "
    "repair, undo, show, export, checkpoints, rewind and fork take it on the command line"
)


def resolve_sources(  # noqa: PLR0913 - options, all by name
    target: str,
    *,
    format: str | None = None,  # noqa: A002 - the word that the command line has for it
    session: str | None = None,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
    most: int | None = None,
) -> list[Source]:
    """Give the sessions that a target names: a file, a folder, an id or its beginning.

    A database of LangGraph's in a PostgreSQL may hold millions; ``most`` are given of it.
    """
    if may_be(target) and format in (None, OWN) and place_of(target):
        raise UsageError(_OWN)
    if is_postgres(target):
        return list(islice(_threads(target, session), most))
    where = home or Path.home()
    return find_sources(target, format, session, where, os.environ if environ is None else environ)


def _threads(url: str, session: str | None) -> Iterator[Source]:
    """Give the threads of LangGraph's in a PostgreSQL."""
    with psycopg_hint():
        from lockstitch.formats.langgraph.postgres import work  # noqa: PLC0415 - needs psycopg

        yield from work.find_threads(url, session)


@contextmanager
def psycopg_hint() -> Iterator[None]:
    """Say what to install where psycopg is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "psycopg":
            raise
        hint = "a PostgreSQL database needs: pip install 'lockstitch[postgres]'"
        raise UsageError(hint) from error


def open_source(source: Source, *, follow_symlinks: bool = False, search: bool = False) -> Opened:
    """Read a session, once, and understand it; ``search`` looks into all that a database has."""
    if source.kind != LANGGRAPH_POSTGRES:
        return opened_file(source, follow_symlinks=follow_symlinks, search=search)
    from lockstitch.formats.langgraph.postgres import work  # noqa: PLC0415 - needs psycopg

    return Opened(source, work.open_thread(source, search=search))


def searched_folders(
    *, home: Path | None = None, environ: Mapping[str, str] | None = None
) -> list[str]:
    """Return the folders in which ``paths`` looks where nothing is named."""
    return searched_in(home or Path.home(), os.environ if environ is None else environ)


def session_paths(
    targets: Iterable[str] = (),
    *,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Give the files to scan: those below the targets, or all known places of this machine."""
    given = list(targets)
    for target in given:
        if os.path.isdir(target):  # noqa: PTH112 - pathlib costs start-up time
            yield from files_below(target)
        else:
            yield target
    if not given:
        where = home or Path.home()
        yield from dict.fromkeys(home_places(where, os.environ if environ is None else environ))
