"""The tables and functions of the PostgreSQL store: what version is there, and bringing it up.

Everything lives in a schema of its own, ``lockstitch``, and is always named with it, so the search
path plays no part: a pooler may lose it, and other tables of the database cannot be mistaken for
ours. A version is a numbered file in ``migrations``, applied once, in one transaction.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, LiteralString

import psycopg
from msgspec import Struct

from lockstitch.errors import LockstitchError, Unreadable, UsageError
from lockstitch.stores.postgres import errors
from lockstitch.stores.postgres.connections import Connection, Silent
from lockstitch.stores.postgres.pool import SLOW, Pool

OLDEST_SERVER = 130000
# Any constant will do that no other program takes for its own lock.
_LOCK = 0x6C6F636B73746974
_ASK = """
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
    current_setting('server_version_num')::int, to_regclass('lockstitch.versions') IS NOT NULL
"""
_MAKE = """
CREATE TABLE IF NOT EXISTS lockstitch.versions (
    version int PRIMARY KEY,
    applied timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""


class _Found(Struct, frozen=True):
    is_read_only: bool
    server: int
    version: int


@cache
def migrations() -> dict[int, str]:
    """The SQL of every version, by its number."""
    folder = resources.files("lockstitch.stores.postgres") / "migrations"
    files = sorted((file.name, file) for file in folder.iterdir() if file.name.endswith(".sql"))
    return {int(name.partition("_")[0]): file.read_text("utf-8") for name, file in files}


def latest() -> int:
    """The version that this Lockstitch works with."""
    return max(migrations())


def prepare(pool: Pool, *, create: bool) -> None:
    """Make sure that the database holds this version's tables; without ``create`` only look."""
    url = pool.address.url
    try:
        with pool.connection() as connection:
            found = _found(connection)
            _require_usable(found, url, create=create)
            if found.version < latest():
                connection.patience = pool.timeout * SLOW
                _migrate(connection, url)
    except psycopg.Error as error:
        problem = _problem(error, url)
    else:
        return
    raise problem


def _problem(error: psycopg.Error, url: str) -> LockstitchError:
    if errors.is_rolled_back(error):
        return errors.translated(error, url)
    if isinstance(error, Silent):
        return Unreadable(f"{url}: PostgreSQL gave {error}; open it again when the server answers")
    return Unreadable(f"{url}: the connection was lost while the tables were looked at")


def _found(connection: Connection) -> _Found:
    is_read_only, server, is_there = _one(connection, _ASK)
    version = 0
    if is_there:
        (version,) = _one(connection, "SELECT coalesce(max(version), 0) FROM lockstitch.versions")
    return _Found(is_read_only, server, version)


def _require_usable(found: _Found, url: str, *, create: bool) -> None:
    if found.server < OLDEST_SERVER:
        raise UsageError(f"{url}: PostgreSQL 13 is the oldest that works")
    _require_known(found.version, url)
    if create and found.is_read_only:
        raise UsageError(f"{url}: a replica or read-only; name the primary")
    if not create and found.version == 0:
        raise Unreadable(f"{url}: the database holds no sessions of Lockstitch")
    if not create and found.version < latest():
        raise Unreadable(
            f"{url}: its tables are of version {found.version}, this Lockstitch works with "
            f"{latest()}: open it once for writing"
        )


def _require_known(version: int, url: str) -> None:
    if version > latest():
        raise Unreadable(
            f"{url}: its tables are of version {version}, and this Lockstitch knows {latest()} "
            "at most: install a newer one; nothing was changed"
        )


def _migrate(connection: Connection, url: str) -> None:
    """Apply what is missing, all or none; who comes second finds it done."""
    with connection.transaction():
        # What others did while this one waited for the lock must be seen, whatever the default.
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        # Its own check: IF NOT EXISTS wants the right to create one even where there is one.
        if _one(connection, "SELECT to_regnamespace('lockstitch') IS NULL") == (True,):
            connection.execute("CREATE SCHEMA lockstitch")
        connection.execute(_MAKE)
        version = _found(connection).version
        _require_known(version, url)
        for number in range(version + 1, latest() + 1):
            connection.execute(migrations()[number].encode())
            connection.execute("INSERT INTO lockstitch.versions (version) VALUES (%s)", (number,))


def _one(connection: Connection, statement: LiteralString) -> tuple[Any, ...]:
    row = connection.execute(statement).fetchone()
    return row or ()
