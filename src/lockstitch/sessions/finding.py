"""Which sessions a target names, and how they are read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from lockstitch import places
from lockstitch.errors import UsageError
from lockstitch.formats.langgraph.postgres import KIND as POSTGRES
from lockstitch.formats.sources import Opened, Source, files_below, found, home_places
from lockstitch.formats.sources import opened as opened_file
from lockstitch.formats.sources import searched as searched_in
from lockstitch.report import OWN

_OWN = (
    "is a store of Lockstitch's own: name one session of it with lockstitch.stored; check, "
    "repair, undo, show, export, checkpoints, rewind and fork take it on the command line"
)


def sources(  # noqa: PLR0913 - options, all by name
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
    if places.may_be(target) and format in (None, OWN) and places.place_of(target):
        raise UsageError(_OWN)
    if places.is_postgres(target):
        return list(islice(_threads(target, session), most))
    where = home or Path.home()
    return found(target, format, session, where, os.environ if environ is None else environ)


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


def opened(source: Source, *, follow_symlinks: bool = False, search: bool = False) -> Opened:
    """Read a session, once, and understand it; ``search`` looks into all that a database has."""
    if source.kind != POSTGRES:
        return opened_file(source, follow_symlinks=follow_symlinks, search=search)
    from lockstitch.formats.langgraph.postgres import work  # noqa: PLC0415 - needs psycopg

    return Opened(source, work.open_thread(source, search=search))


def searched(*, home: Path | None = None, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the folders in which ``paths`` looks where nothing is named."""
    return searched_in(home or Path.home(), os.environ if environ is None else environ)


def paths(
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
