"""Decide which tables may be used: code of a stranger's table would run with our rights.

A view in place of a table calls functions when it is read. When a table is written, its triggers,
defaults, constraints and policies call functions, and so do the triggers of tables that have
foreign keys to it. The expressions of its indexes and statistics are called even when a statement
is only planned. All of that is decided by the owner of the table, or by the owners of the
functions. So only ordinary and partitioned tables are used, and only those that belong to us, to a
role that we are a member of, to a superuser, or to a role that the user has named. For a superuser
membership means nothing, because superusers have the rights of every role.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

from msgspec import Struct
from psycopg.sql import SQL, Composed, Literal

from lockstitch.errors import Unreadable, Where
from lockstitch.stores.addresses import with_option

# Nothing of ours is looked up in a schema where others may create objects, no rows are hidden
# silently, and servers that can are told not to expand views. It takes one round trip.
SAFELY = "SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL row_security = off"
NO_VIEWS = """
SELECT CASE WHEN current_setting('restrict_nonsystem_relation_kind', true) IS NOT NULL
    THEN set_config('restrict_nonsystem_relation_kind', 'view, foreign-table', true) END
"""

# The roles to trust; "pg_database_owner" stands for the owner of the database.
_ROLES = """
me AS MATERIALIZED (
    SELECT r.oid, r.rolname, r.rolsuper, d.datdba
    FROM pg_roles r, pg_database d WHERE r.rolname = session_user AND d.datname = current_database()
), roles AS MATERIALIZED (
    SELECT r.oid, o.rolname,
        o.rolsuper OR o.oid = me.oid OR o.rolname::text = ANY (%(owners)s::text[])
            OR (NOT me.rolsuper AND o.rolname = current_user)
            OR (NOT me.rolsuper AND pg_has_role(me.oid, o.oid, 'USAGE')) AS trusted,
        NOT me.rolsuper AND o.oid = me.datdba AS has_database
    FROM me, pg_roles r JOIN pg_roles o
        ON o.oid = CASE r.rolname WHEN 'pg_database_owner' THEN (SELECT datdba FROM me)
            ELSE r.oid END
)"""
_TABLES = """
tables AS (
    SELECT c.oid, c.oid AS root FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s::text AND c.relname = ANY (%(tables)s::text[])
    UNION
    SELECT i.inhrelid, t.root FROM tables t JOIN pg_inherits i ON i.inhparent = t.oid
)"""
# The parts of a table that may call functions; the last column says whether only writes do.
_PARTS = """
parts AS (
    SELECT t.oid AS relation, 'pg_class'::regclass AS class, i.indexrelid AS object,
        'an index' AS kind, false AS on_write
    FROM tables t JOIN pg_index i ON i.indrelid = t.oid
    UNION ALL SELECT t.oid, 'pg_attrdef'::regclass, d.oid, 'a default', a.attgenerated = ''
    FROM tables t JOIN pg_attrdef d ON d.adrelid = t.oid
    JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.adnum
    UNION ALL SELECT t.oid, 'pg_constraint'::regclass, c.oid, 'a constraint', false
    FROM tables t JOIN pg_constraint c ON c.conrelid = t.oid
    UNION ALL SELECT t.oid, 'pg_statistic_ext'::regclass, s.oid, 'a statistic', false
    FROM tables t JOIN pg_statistic_ext s ON s.stxrelid = t.oid
    UNION ALL SELECT t.oid, 'pg_policy'::regclass, p.oid, 'a policy', false
    FROM tables t JOIN pg_policy p ON p.polrelid = t.oid
    UNION ALL SELECT t.oid, 'pg_rewrite'::regclass, w.oid, 'a rule', false
    FROM tables t JOIN pg_rewrite w ON w.ev_class = t.oid
    UNION ALL SELECT t.oid, 'pg_trigger'::regclass, g.oid, 'a trigger', true
    FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid
    UNION ALL SELECT t.oid, 'pg_class'::regclass, t.oid, 'a partition key', false FROM tables t
), used AS (
    SELECT p.relation, p.kind, 'function' AS what, f.proname AS name, f.proowner AS owner,
        p.on_write
    FROM parts p JOIN pg_depend d ON d.classid = p.class AND d.objid = p.object
        AND d.refclassid = 'pg_proc'::regclass JOIN pg_proc f ON f.oid = d.refobjid
    UNION ALL
    SELECT p.relation, p.kind, 'operator', o.oprname, o.oprowner, p.on_write
    FROM parts p JOIN pg_depend d ON d.classid = p.class AND d.objid = p.object
        AND d.refclassid = 'pg_operator'::regclass JOIN pg_operator o ON o.oid = d.refobjid
    UNION ALL
    SELECT p.relation, p.kind, 'type', y.typname, y.typowner, p.on_write
    FROM parts p JOIN pg_depend d ON d.classid = p.class AND d.objid = p.object
        AND d.refclassid = 'pg_type'::regclass JOIN pg_type y ON y.oid = d.refobjid
    UNION ALL
    SELECT t.oid, 'a foreign key', 'table', k.relname, k.relowner, true
    FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid JOIN pg_class k ON k.oid = g.tgconstrrelid
    UNION ALL
    SELECT t.oid, 'a column', 'type', y.typname, y.typowner, false
    FROM tables t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type y ON y.oid = a.atttypid
)"""
_DOUBTS = f"""
WITH RECURSIVE {_ROLES}, {_TABLES}, {_PARTS}
SELECT 'kind' AS doubt, n.nspname || '.' || c.relname AS name, o.rolname::text AS owner,
    CASE c.relkind WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a materialized view'
        WHEN 'f' THEN 'a foreign table' ELSE 'something else' END AS detail
FROM tables t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN roles o ON o.oid = c.relowner WHERE c.relkind NOT IN ('r', 'p')
UNION ALL
SELECT 'owner', n.nspname || '.' || c.relname, o.rolname::text, ''
FROM tables t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN roles o ON o.oid = c.relowner WHERE NOT o.trusted
UNION ALL
SELECT 'schema', n.nspname::text, o.rolname::text, ''
FROM pg_namespace n JOIN roles o ON o.oid = n.nspowner
WHERE n.nspname = %(schema)s::text AND NOT o.trusted AND NOT o.has_database
UNION ALL
SELECT 'used', n.nspname || '.' || c.relname, o.rolname::text,
    u.kind || ' of it uses the ' || u.what || ' ' || u.name
FROM used u JOIN pg_class c ON c.oid = u.relation JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN roles o ON o.oid = u.owner WHERE NOT o.trusted AND (%(writes)s::boolean OR NOT u.on_write)
UNION ALL
SELECT 'rows', n.nspname || '.' || c.relname, o.rolname::text, session_user::text
FROM tables t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN roles o ON o.oid = c.relowner
WHERE t.oid = t.root AND c.relkind IN ('r', 'p') AND row_security_active(c.oid)
"""  # noqa: S608 - all of it our own

# If a whole schema is used: its functions, and the roles that may add to it.
_REST = f"""
WITH {_ROLES}
SELECT 'function', n.nspname || '.' || f.proname, o.rolname::text, ''
FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace JOIN roles o ON o.oid = f.proowner
WHERE n.nspname = %(schema)s::text AND NOT o.trusted
UNION ALL
SELECT 'grant', n.nspname::text, coalesce(o.rolname::text, 'PUBLIC'), ''
FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a LEFT JOIN roles o ON o.oid = a.grantee
WHERE n.nspname = %(schema)s::text AND a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner
    AND o.trusted IS NOT TRUE AND o.has_database IS NOT TRUE
"""  # noqa: S608 - all of it our own


# A fingerprint of all of that, at a fraction of the cost: while it stays the same, only trusted
# roles can have changed anything.
_LOOK: LiteralString = """
SELECT c.oid, c.relkind, c.relowner, n.nspowner, row_security_active(c.oid),
    ARRAY(SELECT t.oid FROM pg_trigger t WHERE t.tgrelid = c.oid),
    ARRAY(SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = c.oid),
    ARRAY(SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = c.oid),
    ARRAY(SELECT k.oid FROM pg_constraint k WHERE k.conrelid = c.oid),
    ARRAY(SELECT d.oid FROM pg_attrdef d WHERE d.adrelid = c.oid),
    ARRAY(SELECT s.oid FROM pg_statistic_ext s WHERE s.stxrelid = c.oid),
    ARRAY(SELECT p.oid FROM pg_policy p WHERE p.polrelid = c.oid),
    ARRAY(SELECT w.oid FROM pg_rewrite w WHERE w.ev_class = c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema}::text AND c.relname = ANY ({tables}::text[]) ORDER BY c.relname
"""

# The order in which doubts are reported.
_ORDER = ("kind", "owner", "schema", "function", "used", "grant", "rows")


class Untrusted(Unreadable):
    """The tables were not read, because somebody else's code would run with our rights."""


class Doubt(Struct, frozen=True):
    """One reason against using some tables."""

    kind: str
    name: str
    owner: str
    detail: str


class Wanted(Struct, frozen=True):
    """The tables to be read or written, and the roles that the user has named as trusted.

    ``is_whole`` says that the entire schema is used, including its functions.
    """

    schema: str
    tables: tuple[str, ...]
    owners: tuple[str, ...] = ()
    writes: bool = False
    is_whole: bool = False


def look(schema: str, tables: Sequence[str]) -> Composed:
    """Return a query whose rows stay the same as long as the tables do."""
    return SQL(_LOOK).format(schema=Literal(schema), tables=Literal(list(tables)))


def doubts(connection: Any, wanted: Wanted) -> list[Doubt]:
    """Return the reasons against using tables; call it in the transaction that uses them."""
    values = {
        "schema": wanted.schema,
        "tables": list(wanted.tables),
        "owners": list(wanted.owners),
        "writes": wanted.writes,
    }
    found = [Doubt(*row) for row in connection.execute(_DOUBTS, values)]
    if wanted.is_whole:
        found += [Doubt(*row) for row in connection.execute(_REST, values)]
    return sorted(found, key=lambda doubt: (_ORDER.index(doubt.kind), doubt.name, doubt.owner))


def error_of(found: Sequence[Doubt], where: Where, address: str) -> Untrusted:
    """Return the error for tables that must not be used, with what to type in order to trust them.

    ``address`` is what was typed, as far as it may be shown.
    """
    first = found[0]
    if first.kind == "kind":
        return Untrusted(
            f"{first.name} is {first.detail} of the role {first.owner} and not a table;"
            " reading it would run what its owner wrote, so it was not read"
        ).about(*where)
    if first.kind == "grant":
        return Untrusted(
            f"the role {first.owner} may create things in the schema {first.name}, which"
            f" would run with your rights: REVOKE CREATE ON SCHEMA {first.name} FROM {first.owner}"
            f"{_trusting(address, [first.owner])}"
        ).about(*where)
    strangers = sorted({doubt.owner for doubt in found if doubt.kind not in {"rows", "grant"}})
    if not strangers:
        return Untrusted(
            f"row security is on for the role {first.detail} in {first.name}, so rows may be "
            f"hidden from it: connect as the owner ({first.owner}), or as a role that has "
            "BYPASSRLS; nothing was read"
        ).about(*where)
    what = {
        "owner": f"the table {first.name} belongs to the role {first.owner}",
        "schema": f"the schema {first.name} belongs to the role {first.owner}",
        "function": f"the function {first.name} belongs to the role {first.owner}",
        "used": f"{first.name}: {first.detail} of the role {first.owner}",
    }[first.kind]
    return Untrusted(
        f"{what}, who could have it run code with your rights, so it was neither read"
        f" nor written{_trusting(address, strangers)}"
    ).about(*where)


def _trusting(address: str, owners: Sequence[str]) -> str:
    """Return the address extended by the owners to trust."""
    if "PUBLIC" in owners:
        return ""
    for owner in owners:
        address = with_option(address, "owner", owner)
    return f". If you trust {' and '.join(owners)}, use the address '{address}'"
