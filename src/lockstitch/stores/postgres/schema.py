"""The tables, functions and statements of the PostgreSQL store, and their migrations.

Everything is in a schema of its own, ``lockstitch``, and is always named with the schema. So the
search path plays no part: a pooler may lose it, and other tables of the database cannot be mistaken
for ours. Each version is a numbered file in ``migrations``, applied once in one transaction. A
schema of this name that belongs to somebody else is not used, because its functions would run with
our rights. Each statement is a transaction of its own and takes one round trip.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, LiteralString

import psycopg
from msgspec import Struct

from lockstitch.errors import LockstitchError, Unreadable, UsageError, Where
from lockstitch.stores.postgres import connections, trust
from lockstitch.stores.postgres.connections import SLOW, Pool, ServerConnection, Silent

OLDEST_SERVER = 130000
# Any number that no other program uses for its own advisory lock.
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


class _SchemaState(Struct, frozen=True):
    is_read_only: bool
    server: int
    version: int


@cache
def migrations() -> dict[int, str]:
    """Return the SQL of every version, by number."""
    folder = resources.files("lockstitch.stores.postgres") / "migrations"
    files = sorted((file.name, file) for file in folder.iterdir() if file.name.endswith(".sql"))
    return {int(name.partition("_")[0]): file.read_text("utf-8") for name, file in files}


def latest() -> int:
    """Return the schema version that this Lockstitch works with."""
    return max(migrations())


def prepare(pool: Pool, *, create: bool, owners: tuple[str, ...] = ()) -> None:
    """Make sure that the database has this version's tables; without ``create``, only check.

    Raises ``Untrusted`` if they belong to anybody but us, a superuser or ``owners``.
    """
    url = pool.address.url
    try:
        with pool.connection() as connection:
            with connection.transaction():
                connection.execute(f"{trust.SAFELY}; {trust.NO_VIEWS}")
                found = _found(connection, url, owners)
            if found.server < OLDEST_SERVER:
                raise UsageError("PostgreSQL 13 is the oldest version that works").about(url)
            _require_known(found.version, url)
            if create and found.is_read_only:
                raise UsageError("a replica or read-only; name the primary").about(url)
            if not create and found.version == 0:
                raise Unreadable("the database holds no Lockstitch sessions").about(url)
            if not create and found.version < latest():
                raise Unreadable(
                    f"its tables have version {found.version}, but this Lockstitch works with "
                    f"{latest()}: open it once for writing"
                ).about(url)
            if found.version < latest():
                connection.patience = pool.timeout * SLOW
                _migrate(connection, url, owners)
    except psycopg.Error as error:
        problem: LockstitchError = Unreadable(
            "the connection was lost while the tables were being examined"
        ).about(url)
        if connections.is_rolled_back(error):
            problem = connections.translate_error(error, Where(url))
        elif isinstance(error, Silent):
            problem = Unreadable(
                f"PostgreSQL gave {error}; open it again when the server answers"
            ).about(url)
    else:
        return
    raise problem


def _found(connection: ServerConnection, url: str, owners: tuple[str, ...]) -> _SchemaState:
    """Return the state of the schema; the transaction looks up nothing by a search path."""
    is_read_only, server, is_there, has_schema = _one(connection, _ASK)
    version = 0
    if has_schema and server >= OLDEST_SERVER:
        wanted = trust.Wanted("lockstitch", TABLES, owners, writes=True, is_whole=True)
        if doubts := trust.doubts(connection, wanted):
            raise trust.error_of(doubts, Where(url), url)
    if is_there:
        (version,) = _one(connection, "SELECT coalesce(max(version), 0) FROM lockstitch.versions")
    return _SchemaState(is_read_only, server, version)


def _require_known(version: int, url: str) -> None:
    if version > latest():
        raise Unreadable(
            f"its tables have version {version}, and this Lockstitch knows {latest()} at most: "
            "install a newer one; nothing was changed"
        ).about(url)


def _migrate(connection: ServerConnection, url: str, owners: tuple[str, ...]) -> None:
    """Apply the missing migrations, all or none; a second process finds them applied."""
    with connection.transaction():
        # Changes that others made while this one waited for the lock must be visible, whatever the
        # default.
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        connection.execute(trust.SAFELY)
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        # Checked here, because IF NOT EXISTS needs the right to create a schema even if there is
        # one. Read from the table, because the server's cache may be from before the lock.
        if _one(connection, _HAS_SCHEMA) == (False,):
            connection.execute("CREATE SCHEMA lockstitch")
        connection.execute(VERSIONS_TABLE)
        version = _found(connection, url, owners).version
        _require_known(version, url)
        for number in range(version + 1, latest() + 1):
            connection.execute(migrations()[number].encode())
            connection.execute("INSERT INTO lockstitch.versions (version) VALUES (%s)", (number,))
        _found(connection, url, owners)


def _one(connection: ServerConnection, statement: LiteralString) -> tuple[Any, ...]:
    row = connection.execute(statement).fetchone()
    return row or ()


ACQUIRE = """
SELECT outcome, seq, digest, epoch, token, holder, beats, term, watched
FROM lockstitch.acquire_v2(
    %s::text, %s::text, %s::text, %s::float8, %s::text[], %s::text, %s::bigint,
    %s::boolean, %s::bytea
)"""
APPEND = """
SELECT outcome, seq, digest FROM lockstitch.append_v2(
    %s::text, %s::bigint, %s::text, %s::bigint, %s::bytea,
    %s::text[], %s::bigint[], %s::bytea[], %s::bytea[], %s::text[], %s::bytea[], %s::float8
)"""
ADD = """
SELECT outcome, seq, digest, epoch, token, holder, beats, term, watched FROM lockstitch.add_v2(
    %s::text, %s::text[], %s::text, %s::bigint, %s::bigint, %s::bytea, %s::bigint,
    %s::text[], %s::bigint[], %s::bytea[], %s::bytea[], %s::text[], %s::bytea[]
)"""
REPLACE = """
SELECT outcome, seq, digest FROM lockstitch.replace_v1(
    %s::text, %s::bigint, %s::text, %s::bigint, %s::bytea,
    %s::text[], %s::bigint[], %s::bytea[], %s::bytea[], %s::text[], %s::bytea[], %s::float8
)"""
DELETE = "SELECT lockstitch.delete_v1(%s::text, %s::bigint, %s::text)"
RENEW = "SELECT * FROM lockstitch.renew_v1(%s::text[], %s::text[], %s::float8)"
WATCH = "SELECT lockstitch.watch_v1(%s::text, %s::text, %s::bigint, %s::text)"
RELEASE = "SELECT lockstitch.release_v1(%s::text[], %s::text[])"
FORK = """
SELECT outcome, seq, digest, epoch
FROM lockstitch.fork_v3(%s::text, %s::bigint, %s::text, %s::bytea)"""
# A session that comes from another store: these four statements in one transaction.
DURABLY = "SELECT lockstitch.durably_v1()"
RECEIVE = """
INSERT INTO lockstitch.sessions (session, seq, digest, epoch, created, changed)
VALUES (%s, %s, %s, %s, floor(extract(epoch FROM clock_timestamp()) * 1000), %s)
ON CONFLICT DO NOTHING RETURNING id"""
KEEP = "SELECT lockstitch.keep_v1(%s::bigint, %s::text[], %s::bytea[])"
RECORDS = """
INSERT INTO lockstitch.records (session, seq, epoch, key, at, body, digest)
SELECT %s, * FROM unnest(
    %s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::bytea[], %s::bytea[]
)"""
FOLLOW = "SELECT lockstitch.follow_v1(%s::text, %s::float8)"
HEAD = "SELECT seq, digest, epoch, id, base FROM lockstitch.sessions WHERE session = %s"
# A chunk ends after this many records, or with the record that exceeds this many bytes.
READ = """
SELECT seq, epoch, key, at, body, digest FROM (
    SELECT *, sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS before
    FROM lockstitch.records
    WHERE session = %s AND seq > %s AND seq <= %s ORDER BY seq LIMIT %s
) AS page WHERE before < %s ORDER BY seq"""
# The same through the parts of a fork. The numbers have no gaps, so they are a limit, too. Each
# part is read by the index, even if the planner expects few parts and many records.
_PARTS: LiteralString = """
    SELECT r.* FROM lockstitch.records r
    WHERE r.session = %(number)s AND r.seq > %(after)s AND r.seq <= %(upto)s
    UNION ALL
    SELECT r.* FROM lockstitch.parts p CROSS JOIN LATERAL (
        SELECT * FROM lockstitch.records o WHERE o.session = p.owner
        AND o.seq > greatest(p.after, %(after)s) AND o.seq <= least(p.upto, %(upto)s)
        ORDER BY o.seq OFFSET 0
    ) AS r WHERE p.session = %(number)s AND p.after < %(upto)s AND p.upto > %(after)s"""
READ_PARTS: LiteralString = f"""
SELECT seq, epoch, key, at, body, digest FROM (
    SELECT *, sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS before
    FROM ({_PARTS}) AS shared
) AS page WHERE before < %(bytes)s ORDER BY seq"""  # noqa: S608
PARTS = "SELECT owner, after, upto FROM lockstitch.parts WHERE session = %s ORDER BY upto"
_LISTED: LiteralString = """
SELECT s.session, s.seq, s.epoch, s.created, s.changed,
    CASE WHEN s.token <> '' THEN s.holder ELSE '' END, s.about
FROM lockstitch.sessions s"""
LIST = f"{_LISTED} WHERE s.session > %s AND s.changed > %s ORDER BY s.session LIMIT %s"
# The condition names both tables, so that either index can be used.
LIST_TAGGED = f"""{_LISTED} JOIN lockstitch.labels l ON l.session = s.session
WHERE l.tag = %s AND l.session > %s AND s.session > %s AND s.changed > %s
ORDER BY l.session LIMIT %s"""
_BEHIND: LiteralString = """
s.changed > %s AND s.changed <= %s AND (s.changed < %s OR s.session > %s)"""
# The index stores changes by the minute.
LIST_NEWEST = f"""{_LISTED} WHERE s.minute >= %s AND s.minute <= %s AND {_BEHIND}
ORDER BY s.minute DESC, s.changed DESC, s.session LIMIT %s"""
LIST_NEWEST_TAGGED = f"""{_LISTED} JOIN lockstitch.labels l ON l.session = s.session
WHERE l.tag = %s AND {_BEHIND} ORDER BY s.changed DESC, s.session LIMIT %s"""
BLOB_SIZES = "SELECT name, octet_length(body) FROM lockstitch.blobs WHERE name = ANY (%s::text[])"
BLOBS = "SELECT name, body FROM lockstitch.blobs WHERE name = ANY (%s::text[])"

# For a check of the entire store: only what existed when it began, so that it ends.
CHECK_END = "SELECT coalesce(max(id), 0) FROM lockstitch.sessions"
CHECK_HEADS = """
SELECT id, session, seq, digest, epoch, created, changed,
    CASE WHEN token <> '' THEN holder ELSE '' END,
    EXISTS (SELECT FROM lockstitch.records r WHERE r.session = s.id AND r.seq > s.seq), s.base
FROM lockstitch.sessions s WHERE id > %s AND id <= %s ORDER BY id LIMIT %s"""
CHECK_IDS = "SELECT id FROM lockstitch.sessions WHERE id = ANY (%s::bigint[])"
CHECK_RECORDS = """
SELECT session, seq, epoch, key, at, body, digest FROM (
    SELECT r.*, sum(octet_length(body)) OVER (ORDER BY r.session, r.seq) - octet_length(body)
        AS before
    FROM lockstitch.records r
    WHERE (r.session, r.seq) > (%s, %s) AND r.session <= %s
    ORDER BY r.session, r.seq LIMIT %s
) AS page WHERE before < %s ORDER BY session, seq"""
CHECK_UNOWNED = """
SELECT r.session, count(*) FROM lockstitch.records r
WHERE NOT EXISTS (SELECT FROM lockstitch.sessions s WHERE s.id = r.session)
    AND NOT EXISTS (
        SELECT FROM lockstitch.parts p WHERE p.owner = r.session AND p.upto >= r.seq
    )
GROUP BY r.session ORDER BY r.session"""
CHECK_BLOB_NAMES = """
SELECT name FROM (
    SELECT name, sum(octet_length(body)) OVER (ORDER BY name) - octet_length(body) AS before
    FROM lockstitch.blobs WHERE name > %s ORDER BY name LIMIT %s
) AS page WHERE before < %s ORDER BY name"""
CHECK_NAMES = """
SELECT name FROM pg_catalog.unnest(%s::text[]) AS u (name)
WHERE NOT EXISTS (SELECT FROM lockstitch.blobs b WHERE b.name = u.name)"""

# For the remains of a damaged session: its rows, in parts or one by one, and rows without a
# session.
REMAINS_HEAD = "SELECT id, seq, digest FROM lockstitch.sessions WHERE session = %s"
REMAINS = """
SELECT seq, epoch, key, at, body, digest FROM lockstitch.records
WHERE session = %s AND seq > %s AND seq <= %s ORDER BY seq LIMIT %s"""
REMAINS_ONE = """
SELECT seq, epoch, key, at, body, digest FROM lockstitch.records
WHERE session = %s AND seq = %s"""
REMAINS_BARE = """
SELECT seq, epoch, key, at, ''::bytea, digest FROM lockstitch.records
WHERE session = %s AND seq = %s"""
REMAINS_UNOWNED = """
SELECT r.seq, r.epoch, r.key, r.at, r.body, r.digest, r.session FROM lockstitch.records r
WHERE NOT EXISTS (SELECT FROM lockstitch.sessions s WHERE s.id = r.session)
    AND NOT EXISTS (
        SELECT FROM lockstitch.parts p WHERE p.owner = r.session AND p.upto >= r.seq
    )
ORDER BY r.session, r.seq LIMIT %s"""
EXCHANGE = """
SELECT outcome, token, holder, beats, term FROM lockstitch.exchange_v1(
    %s::text, %s::text, %s::text, %s::bigint, %s::bigint, %s::bytea, %s::text[],
    %s::text, %s::bigint
)"""

# For vacuuming: the tables with their sizes, and whether this role may vacuum them.
TABLE_SIZES = """
SELECT c.oid::regclass::text, pg_total_relation_size(c.oid),
    pg_has_role(c.relowner, 'USAGE') OR pg_has_role(d.datdba, 'USAGE')
FROM pg_class c, pg_database d
WHERE c.relnamespace = 'lockstitch'::regnamespace AND c.relkind = 'r'
    AND d.datname = current_database()
ORDER BY c.relname"""
VACUUM = """
VACUUM lockstitch.sessions, lockstitch.records, lockstitch.blobs, lockstitch.uses,
    lockstitch.parts, lockstitch.labels"""
