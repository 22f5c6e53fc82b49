"""Recognize the addresses, files and folders that are Lockstitch stores."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from lockstitch.errors import LockstitchError, UsageError
from lockstitch.files import read
from lockstitch.stores import addresses
from lockstitch.stores.addresses import decoded_path, encoded_path, public

POSTGRES = ("postgresql:", "postgres:")
SCHEMES = ("sqlite:", "jsonl:", *POSTGRES)
# The suffixes of files that hold many sessions.
DATABASES = (".db", ".sqlite", ".sqlite3")
MAGIC = b"SQLite format 3\0"
_LINES = ".jsonl"
_OPENING = re.compile(rb'\{"lockstitch":\d+,"session":"')


def may_hold_many(target: str) -> bool:
    """Whether a file may hold many sessions, so that its path does not identify one."""
    return target.endswith(DATABASES)


class StorePlace(Struct, frozen=True):
    """The address of a store and, if one session was named, that session."""

    url: str
    session: str | None = None

    def __repr__(self) -> str:
        """Return the address without secrets."""
        return f"StorePlace({public(self.url)!r}, {self.session!r})"


def may_be(target: str) -> bool:
    """Whether a target may be a store, or a file of one, judging by its name."""
    if target.startswith(SCHEMES) or target.endswith(DATABASES):
        return True
    head = _first_bytes(target)
    return head.startswith(MAGIC) or _OPENING.match(head) is not None


def place_of(target: str) -> StorePlace | None:
    """Return the store that a target is; None if it is another program's or not a store.

    An address with our scheme is believed, except that a database may belong to another program.
    """
    if target.startswith("sqlite:"):
        path = path_of(target)
        is_other = os.path.exists(path) and not is_own_database(path)  # noqa: PTH110
        return None if is_other else StorePlace(target)
    if target.startswith(POSTGRES):
        return None if _holds_only_threads(target) else StorePlace(target)
    if target.startswith(SCHEMES):
        return StorePlace(target)
    if os.path.isdir(target):  # noqa: PTH112 - pathlib costs start-up time
        try:
            with os.scandir(target) as entries:
                paths = [entry.path for entry in entries if entry.name.endswith(_LINES)]
        except OSError:
            return None
        is_own = any(_OPENING.match(_first_bytes(path)) for path in paths)
        return StorePlace(f"jsonl:///{encoded_path(target)}") if is_own else None
    if target.endswith(_LINES):
        if not _OPENING.match(_first_bytes(target)):
            return None
        folder, name = os.path.split(target)
        return StorePlace(f"jsonl:///{encoded_path(folder or '.')}", name.removesuffix(_LINES))
    return StorePlace(f"sqlite:///{encoded_path(target)}") if is_own_database(target) else None


def is_postgres(target: str | None) -> bool:
    """Whether a target is the address of a PostgreSQL database."""
    return target is not None and target.startswith(POSTGRES)


def names_schema(url: str) -> bool:
    """Whether an address names a schema, which only those of LangGraph's threads do."""
    found = addresses.parsed(url)
    return found is not None and bool(found.last("schema"))


def _holds_only_threads(url: str) -> bool:
    """Whether a PostgreSQL database holds LangGraph's checkpoints and no store of ours.

    A database that cannot be read counts as ours; opening it then says what is wrong.
    """
    if names_schema(url):
        return True
    try:
        from lockstitch.formats.langgraph.postgres import database  # noqa: PLC0415 - an extra

        known = database.look_into(url)
    except (LockstitchError, ModuleNotFoundError):
        return False
    return bool(known.homes) and not known.is_own


def path_of(url: str) -> str:
    """Return the path in the address of a database or a folder."""
    return decoded_path(url)[1:]


def is_same_store(one: str, other: str) -> bool:
    """Whether two names mean one store: its address, its path, or the path of a file in it."""
    return _store_named(one) == _store_named(other)


def _store_named(name: str) -> str:
    if name.startswith(POSTGRES):
        return addresses.public(name).partition("?")[0]
    path = path_of(name) if name.startswith(("sqlite:", "jsonl:")) else name
    if path.endswith(_LINES):
        path = os.path.dirname(path)  # noqa: PTH120 - pathlib costs start-up time
    return os.path.abspath(path)  # noqa: PTH100 - as the stores name it


def is_own_database(path: str) -> bool:
    """Whether a file is an SQLite database with our mark in it; the file is read only by SQLite."""
    if not os.path.isfile(path):  # noqa: PTH113 - as above
        return False
    from lockstitch.formats import sqlite  # noqa: PLC0415 - for databases only
    from lockstitch.stores.sqlite import SqliteBackend  # noqa: PLC0415 - as above
    from lockstitch.stores.sqlite.connections import APPLICATION  # noqa: PLC0415 - as above

    try:
        SqliteBackend(path, readonly=True).close()
    except LockstitchError:
        # another program's, or ours of a later version: the mark tells
        try:
            with sqlite.open_reading(path, follow=True) as base:
                [(found,)] = base.execute("PRAGMA application_id").fetchall()
        except LockstitchError:
            return False
        return bool(found == APPLICATION)
    return True


def _first_bytes(path: str) -> bytes:
    try:
        return read.read_head(path, 64)
    except LockstitchError:
        return b""


@contextmanager
def psycopg_hint() -> Iterator[None]:
    """Turn an ``ImportError`` of psycopg into an error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "psycopg":
            raise
        hint = "a PostgreSQL database needs: pip install 'lockstitch[postgres]'"
        raise UsageError(hint) from error
