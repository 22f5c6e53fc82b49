"""The tables and functions of the PostgreSQL store: what version is there, and bringing it up.

Everything lives in a schema of its own, ``lockstitch``, and is always named with it, so the search
path plays no part: a pooler may lose it, and other tables of the database cannot be mistaken for
ours. A version is a numbered file in ``migrations``, applied once, in one transaction. A schema of
this name that somebody else made is not used: its functions would run with our rights.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, LiteralString

import psycopg
from msgspec import Struct

from lockstitch.errors import LockstitchError, Unreadable, UsageError
from lockstitch.stores.postgres import errors, trust
from lockstitch.stores.postgres.connections import Connection, Silent
from lockstitch.stores.postgres.pool import SLOW, Pool

OLDEST_SERVER = 130000
# Any constant will do that no other program takes for its own lock.
_LOCK = 0x6C6F636B73746974
_ASK = """
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
    current_setting('server_version_num')::int, to_regclass('lockstitch.versions') IS NOT NULL,
    EXISTS (SELECT FROM pg_namespace WHERE nspname = 'lockstitch')
"""
TABLES = ("versions", "sessions", "records", "blobs", "uses", "parts", "labels")
_HAS_SCHEMA = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'lockstitch')"
VERSIONS_TABLE = """
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


class _Home(Struct, frozen=True):
    """The address of the database, to be shown, and the roles whose tables are trusted there."""

    url: str
    owners: tuple[str, ...]


def prepare(pool: Pool, *, create: bool, owners: tuple[str, ...] = ()) -> None:
    """Make sure that the database holds this version's tables; without ``create`` only look.

    Raises ``Untrusted`` if they are of others than us, a superuser and ``owners``.
    """
    url = pool.address.url
    home = _Home(url, owners)
    try:
        with pool.connection() as connection:
            with connection.transaction():
                connection.execute(f"{trust.SAFELY}; {trust.NO_VIEWS}")
                found = _found(connection, home)
            _require_usable(found, url, create=create)
            if found.version < latest():
                connection.patience = pool.timeout * SLOW
                _migrate(connection, home)
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


def _found(connection: Connection, home: _Home) -> _Found:
    """Look what is there, in a transaction that finds nothing by a search path."""
    is_read_only, server, is_there, has_schema = _one(connection, _ASK)
    version = 0
    if has_schema and server >= OLDEST_SERVER:
        wanted = trust.Wanted("lockstitch", TABLES, home.owners, writes=True, is_whole=True)
        if doubts := trust.doubts(connection, wanted):
            raise trust.error_of(doubts, home.url, home.url)
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


def _migrate(connection: Connection, home: _Home) -> None:
    """Apply what is missing, all or none; who comes second finds it done."""
    with connection.transaction():
        # What others did while this one waited for the lock must be seen, whatever the default.
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        connection.execute(trust.SAFELY)
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        # Its own check: IF NOT EXISTS wants the right to create one even where there is one.
        # It is read from the table, since what the server remembers may be from before the lock.
        if _one(connection, _HAS_SCHEMA) == (False,):
            connection.execute("CREATE SCHEMA lockstitch")
        connection.execute(VERSIONS_TABLE)
        version = _found(connection, home).version
        _require_known(version, home.url)
        for number in range(version + 1, latest() + 1):
            connection.execute(migrations()[number].encode())
            connection.execute("INSERT INTO lockstitch.versions (version) VALUES (%s)", (number,))
        _found(connection, home)


def _one(connection: Connection, statement: LiteralString) -> tuple[Any, ...]:
    row = connection.execute(statement).fetchone()
    return row or ()
