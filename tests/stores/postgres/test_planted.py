"""A schema ``lockstitch`` that somebody else made is not used: it would run his code as ours."""

from __future__ import annotations

from pathlib import Path

import pytest

import lockstitch
from lockstitch.errors import Unreadable
from lockstitch.journal.records import NEW, blob_name
from lockstitch.stores.base import Listing
from lockstitch.stores.opening import open_backend
from lockstitch.stores.postgres import PostgresBackend
from lockstitch.stores.postgres.trust import Untrusted
from tests.formats.langgraph_postgres import stage
from tests.formats.langgraph_postgres.planting import Planted, make_role
from tests.postgres_server import shared
from tests.stores.postgres.making import entries, entry, keys, run

COMMANDS = (
    ["check"],
    ["scan"],
    ["show", "--session", "s"],
    ["export", "--session", "s"],
    ["repair", "--yes"],
    ["vacuum"],
    ["delete", "--session", "s", "--yes"],
)


@pytest.fixture
def dsn() -> str:
    """The address of a database that was never used."""
    return shared().fresh()


@pytest.fixture
def planted(dsn: str) -> Planted:
    return Planted(dsn)


def assert_nothing_runs(planted: Planted, tmp_path: Path) -> str:
    """Give the store to all that opens one, as a superuser; gives what the commands said."""
    for create in (True, False):
        with pytest.raises(Unreadable):
            open_backend(planted.dsn, create=create)
    with pytest.raises(Untrusted):
        lockstitch.open(planted.dsn)
    said = ""
    for words in (*COMMANDS, ["migrate", f"sqlite:///{tmp_path}/to.db"]):
        done = stage.run(words[0], planted.dsn, *words[1:])
        assert not planted.has_run, words
        assert done.status == 2, (words, done)
        said += done.out + done.err
    assert not planted.has_run
    return said


def test_a_schema_of_another(planted: Planted, tmp_path: Path) -> None:
    planted.as_mallory(
        "CREATE SCHEMA lockstitch; CREATE VIEW lockstitch.versions AS SELECT 5 AS version WHERE"
        " evil.shell()"
    )
    said = assert_nothing_runs(planted, tmp_path)
    assert "lockstitch.versions is a view of the role mallory and not a table" in said


def test_an_empty_schema_of_another(planted: Planted) -> None:
    """Nothing is made in it, since it could be exchanged for another one at any moment."""
    planted.as_mallory("CREATE SCHEMA lockstitch")
    with pytest.raises(Untrusted, match="the schema lockstitch belongs to the role mallory"):
        PostgresBackend(planted.dsn)
    assert run(planted.dsn, "SELECT to_regclass('lockstitch.versions')") == [(None,)]
    with PostgresBackend(planted.dsn, owners=["mallory"]) as backend:
        backend.append(backend.acquire("s"), entries("a"), 0)


EXCHANGED = {
    "a table": "ALTER TABLE lockstitch.labels OWNER TO mallory",
    "a function": "ALTER FUNCTION lockstitch.durably_v1() OWNER TO mallory",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON lockstitch.records FOR EACH ROW"
    " EXECUTE FUNCTION evil.fired()",
    "a right to create": "GRANT CREATE ON SCHEMA lockstitch TO mallory",
    "a right of all to create": "GRANT CREATE ON SCHEMA lockstitch TO PUBLIC",
}


@pytest.mark.parametrize("what", EXCHANGED)
def test_what_another_has_in_our_schema(planted: Planted, what: str, tmp_path: Path) -> None:
    with PostgresBackend(planted.dsn) as backend:
        backend.append(backend.acquire("s"), entries("a"), 0)
    planted.as_superuser(EXCHANGED[what])
    said = assert_nothing_runs(planted, tmp_path)
    who = "PUBLIC" if "all" in what else "mallory"
    assert f"the role {who}" in said
    if who == "PUBLIC":
        assert "REVOKE CREATE ON SCHEMA lockstitch FROM PUBLIC" in said
    else:
        assert f"{planted.dsn}?owner=mallory" in said
        with open_backend(f"{planted.dsn}?owner=mallory") as backend:
            assert keys(backend, "s") == ["a"]


def test_tables_of_an_application(dsn: str) -> None:
    """Who may only read another role's store says that he trusts it."""
    for role in ("app", "looker"):
        make_role(dsn, role)
    run(dsn, "CREATE SCHEMA lockstitch AUTHORIZATION app")
    with PostgresBackend(dsn.replace("postgres@", "app@")) as backend:
        backend.append(backend.acquire("s"), entries("a"), 0)
    run(dsn, "GRANT USAGE ON SCHEMA lockstitch TO looker")
    run(dsn, "GRANT SELECT ON ALL TABLES IN SCHEMA lockstitch TO looker")
    looker = dsn.replace("postgres@", "looker@")
    with pytest.raises(Untrusted, match=r"belongs to the role app.*\?owner=app'"):
        open_backend(looker, create=False)
    with open_backend(f"{looker}?owner=app", create=False) as backend:
        assert keys(backend, "s") == ["a"]


def test_rows_that_are_hidden(dsn: str) -> None:
    make_role(dsn, "tenant")
    PostgresBackend(dsn).close()
    run(dsn, "GRANT USAGE ON SCHEMA lockstitch TO tenant")
    run(dsn, "GRANT SELECT ON ALL TABLES IN SCHEMA lockstitch TO tenant")
    run(dsn, "ALTER TABLE lockstitch.records ENABLE ROW LEVEL SECURITY")
    with pytest.raises(Unreadable, match="row security is on for the role tenant"):
        open_backend(dsn.replace("postgres@", "tenant@"), create=False)


TYPES = ("int2", "int4", "int8", "numeric", "float8", "text", "varchar", "bytea", "timestamptz")
NAMES = ("=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/")
SHADOWS = """
DO $shadows$
DECLARE
    name_ text; left_ regtype; right_ regtype; kind_ text;
BEGIN
    FOR name_, left_, right_ IN
        SELECT n, l, r FROM unnest(ARRAY[{names}]) n, unnest(ARRAY[{types}]::regtype[]) l,
            unnest(ARRAY[{types}]::regtype[]) r
    LOOP
        CONTINUE WHEN to_regoperator(format('pg_catalog.%s(%s,%s)', name_, left_, right_))
            IS NOT NULL;
        kind_ := CASE WHEN name_ IN ('+', '-', '*', '/') THEN left_::text ELSE 'boolean' END;
        EXECUTE format('CREATE OR REPLACE FUNCTION public.shadow_%s(%s, %s) RETURNS %s LANGUAGE'
            ' plpgsql AS $f$ BEGIN PERFORM evil.shell(); RETURN NULL; END $f$',
            CASE kind_ WHEN 'boolean' THEN 'b' ELSE 'n' END, left_, right_, kind_);
        EXECUTE format('CREATE OPERATOR public.%s (FUNCTION = public.shadow_%s, LEFTARG = %s,'
            ' RIGHTARG = %s)', name_, CASE kind_ WHEN 'boolean' THEN 'b' ELSE 'n' END, left_,
            right_);
    END LOOP;
END $shadows$
"""
FUNCTIONS = """
CREATE FUNCTION public.{name}({kind}) RETURNS {result} LANGUAGE plpgsql AS
    $$ BEGIN PERFORM evil.shell(); RETURN; END $$
"""


def test_operators_and_functions_in_the_search_path(planted: Planted) -> None:
    """Whatever fits better than the server's own is planted where the search path finds it."""
    planted.as_superuser("GRANT CREATE ON SCHEMA public TO PUBLIC")
    names, types = (", ".join(f"'{one}'" for one in group) for group in (NAMES, TYPES))
    planted.as_mallory(SHADOWS.format(names=names, types=types))
    for kind in ("text", "bytea", "bigint"):
        planted.as_mallory(
            FUNCTIONS.format(name="unnest", kind=f"{kind}[]", result=f"SETOF {kind}")
        )
    for name, kind in (("cardinality", "text[]"), ("cardinality", "bigint[]")):
        planted.as_mallory(
            FUNCTIONS.format(name=name, kind=kind, result="int").replace("RETURN;", "RETURN 0;")
        )
    planted.proof.unlink(missing_ok=True)
    with open_backend(planted.dsn) as backend:
        lease = backend.acquire("s")
        backend.append(lease, entries("a", "b"), 0)
        backend.release(lease)
        backend.fork("s", 1, "t")
        assert keys(backend, "t") == ["a"]
        assert [one.session for one in backend.listed(Listing(newest=True))] == ["s", "t"]
        assert list(backend.listed(Listing(tag="x"))) == []
        assert list(backend.listed(Listing(newest=True, tag="x"))) == []
        assert len(backend.remains("t").remnants) == 1
        lease = backend.acquire("u")
        backend.replace(lease, [entry("c", b"large" * 9)], 0)
        assert len(backend.blobs([blob_name(b"large" * 9)])) == 1
        backend.add("v", entries("d"), NEW)
        backend.exchange("v", "w", "t")
        assert not backend.wait("s", 2, 0.01)
    assert not planted.has_run
    moved = ["migrate", shared().fresh()]
    for words in (["check"], ["scan"], ["show", "--session", "s"], ["vacuum"], moved):
        assert stage.run(words[0], planted.dsn, *words[1:]).status < 2, words
        assert not planted.has_run, words
    done = stage.run("delete", planted.dsn, "--session", "s", "--yes")
    assert (done.status, planted.has_run) == (0, False)


def test_every_function_of_ours_has_a_search_path_of_its_own(dsn: str) -> None:
    """A later version that replaces one has to say it again."""
    PostgresBackend(dsn).close()
    without = """
    SELECT proname FROM pg_proc WHERE pronamespace = 'lockstitch'::regnamespace
    AND proconfig IS DISTINCT FROM ARRAY['search_path=pg_catalog, pg_temp']"""
    assert run(dsn, without) == []
