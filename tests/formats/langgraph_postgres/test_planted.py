"""What others planted in a database does not run, whoever looks and whatever the command."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from lockstitch import sessions
from lockstitch.errors import Unreadable, UsageError
from lockstitch.formats.langgraph.postgres.database import Database, LangGraphSchema
from lockstitch.formats.langgraph.postgres.reading import ThreadReader
from lockstitch.stores.postgres.connections import Connection
from lockstitch.stores.postgres.trust import Untrusted
from tests.postgres_server import shared

from . import stage
from .planting import Planted, make_role

COMMANDS = {
    "check": [],
    "scan": [],
    "show": ["--session", stage.BROKEN],
    "export": ["--session", stage.BROKEN],
    "migrate": ["--dry-run"],
    "import": [],
    "repair": ["--yes"],
    "undo": [],
}


@pytest.fixture
def planted(dsn: str) -> Planted:
    stage.templates(dsn)
    return Planted(dsn)


def each_told(planted: Planted, folder: Path, schema: str) -> str:
    """Run all commands as a superuser, with the schema alone and with all; none may succeed."""
    said = ""
    for address in (f"{planted.dsn}?schema={schema}", planted.dsn):
        for word, options in COMMANDS.items():
            target = [f"sqlite:///{folder}/to.db"] if word in {"migrate", "import"} else []
            done = stage.run(word, address, *target, *options)
            assert not planted.has_run, word
            assert done.status == 2, (word, done)
            said += done.out + done.err
    return said


def test_views(planted: Planted, tmp_path: Path) -> None:
    planted.copy_tables("checkpoints")
    for table in ("checkpoint_blobs", "checkpoint_writes"):
        planted.as_superuser(f"GRANT SELECT ON public.{table} TO mallory")
        planted.as_mallory(
            f"CREATE VIEW evil.{table} AS SELECT * FROM public.{table} WHERE evil.shell()"  # noqa: S608
        )
    said = each_told(planted, tmp_path, "evil")
    assert "evil.checkpoint_blobs is a view of the role mallory and not a table" in said


def test_tables_with_functions_in_them(planted: Planted, tmp_path: Path) -> None:
    """A condition of an index is worked out before anything is read."""
    planted.copy_tables(*stage.TABLES)
    planted.as_mallory(
        "CREATE INDEX ON evil.checkpoints (thread_id) WHERE evil.quiet(1);"
        "CREATE INDEX ON evil.checkpoint_blobs (thread_id) WHERE evil.quiet(1);"
        "ALTER TABLE evil.checkpoints ADD COLUMN more boolean DEFAULT evil.shell();"
        "CREATE TRIGGER t BEFORE INSERT ON evil.checkpoints FOR EACH ROW"
        " EXECUTE FUNCTION evil.fired()"
    )
    said = each_told(planted, tmp_path, "evil")
    assert "the table evil.checkpoint_blobs belongs to the role mallory" in said
    assert f"{planted.dsn}?schema=evil&owner=mallory" in said


def test_what_is_not_planted_is_looked_at_all_the_same(planted: Planted) -> None:
    """Somebody's schema does not keep others from being checked and repaired; it is told of."""
    planted.copy_tables(*stage.TABLES)
    for words in (["check", planted.dsn, "--json"], ["scan", planted.dsn, "--json"]):
        found = stage.run(*words)
        assert found.status == 2
        sessions_of = {one["session"]: one["status"] for one in found.sessions}
        assert sessions_of == {stage.HEALTHY: "ok", stage.BROKEN: "broken", None: "unreadable"}
    done = stage.run("repair", planted.dsn, "--yes")
    assert done.status == 2
    assert "the table evil." in done.err
    assert stage.run("check", f"{planted.dsn}?schema=public").status == 0
    assert [one.error is None for one in sessions.scan([planted.dsn])] == [True, True, False]


def test_the_owner_that_is_named_is_trusted(dsn: str) -> None:
    """A role that may only read checks tables of an application's role, once it is told to."""
    for role in ("app", "looker"):
        make_role(dsn, role)
    stage.ask(dsn, "GRANT CREATE ON SCHEMA public TO app")
    as_app = dsn.replace("postgres@", "app@")
    stage.templates(as_app)
    stage.ask(as_app, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO looker")
    assert stage.run("check", as_app).status == 1
    for role in ("looker", "postgres"):
        address = dsn.replace("postgres@", f"{role}@")
        done = stage.run("check", address)
        assert done.status == 2
        assert "belongs to the role app" in done.err
        [typed] = [word.strip("'") for word in done.err.split() if "owner=" in word]
        assert stage.run("check", typed).status == 1
    stage.ask(dsn, "CREATE ROLE one_of_app LOGIN IN ROLE app")
    try:
        assert stage.run("check", dsn.replace("postgres@", "one_of_app@")).status == 1
    finally:
        stage.ask(dsn, "DROP ROLE one_of_app")


TAKEN_IN = {
    "a trigger that somebody else was let add": (
        "GRANT TRIGGER ON public.checkpoints TO mallory",
        "CREATE TRIGGER t AFTER INSERT ON public.checkpoints FOR EACH ROW"
        " EXECUTE FUNCTION evil.fired()",
        "",
        ["repair"],
    ),
    "an index that calls a function": (
        "",
        "",
        "CREATE INDEX ON public.checkpoints (thread_id) WHERE evil.quiet(1)",
        ["check", "repair"],
    ),
    "a constraint that calls a function": (
        "",
        "",
        "ALTER TABLE public.checkpoints ADD CHECK (evil.quiet(1) OR thread_id <> '')",
        ["check", "repair"],
    ),
    "a default that calls a function": (
        "",
        "",
        "ALTER TABLE public.checkpoint_blobs ADD COLUMN more boolean;"
        "ALTER TABLE public.checkpoint_blobs ALTER COLUMN more SET DEFAULT evil.shell()",
        ["repair"],
    ),
    "statistics that call a function": (
        "",
        "",
        "CREATE STATISTICS counted ON (evil.quiet(1)), thread_id FROM public.checkpoints",
        ["check", "repair"],
    ),
    "a column of a type with a condition": (
        "",
        "CREATE DOMAIN evil.word AS text CHECK (evil.quiet(1))",
        "ALTER TABLE public.checkpoint_blobs ADD COLUMN more evil.word",
        ["check", "repair"],
    ),
    "a child of a table": (
        "",
        "",
        "CREATE TABLE public.child () INHERITS (public.checkpoint_writes);"
        "ALTER TABLE public.child OWNER TO mallory",
        ["check", "repair"],
    ),
}


@pytest.mark.parametrize("name", TAKEN_IN)
def test_what_a_table_takes_in_of_others(planted: Planted, name: str) -> None:
    """The table is ours, and what belongs to it calls what is not."""
    first, by_mallory, last, words = TAKEN_IN[name]
    planted.as_superuser(first or "SELECT 1")
    planted.as_mallory(by_mallory or "SELECT 1")
    planted.as_superuser(last or "SELECT 1")
    planted.proof.unlink(missing_ok=True)
    for word in ("check", "repair"):
        done = stage.run(word, planted.dsn, *(["--yes"] if word == "repair" else []))
        assert not planted.has_run, word
        assert done.status == (2 if word in words else 1), done
        assert ("mallory" in done.err) == (word in words)
    # What her functions do then is another matter.
    assert "mallory," not in stage.run("repair", f"{planted.dsn}?owner=mallory", "--yes").err


def test_a_foreign_key_that_goes_on_to_delete(planted: Planted) -> None:
    """What is deleted with our rows has triggers, too, and those behind it run with our rights."""
    assert stage.run("repair", planted.dsn, "--yes").status == 0
    planted.as_superuser("GRANT SELECT, REFERENCES ON public.checkpoints TO mallory")
    planted.as_mallory(
        "CREATE TABLE evil.hanging (a text, b text, c text, FOREIGN KEY (a, b, c) REFERENCES"
        " public.checkpoints ON DELETE CASCADE);"
        "CREATE TRIGGER t AFTER DELETE ON evil.hanging FOR EACH ROW EXECUTE FUNCTION evil.fired();"
        "INSERT INTO evil.hanging SELECT thread_id, checkpoint_ns, checkpoint_id"
        " FROM public.checkpoints"
    )
    done = stage.run("undo", planted.dsn)
    assert not planted.has_run
    assert done.status == 2
    assert "a foreign key of it uses the table hanging of the role mallory" in done.err
    assert stage.run("check", planted.dsn).status == 0


def test_a_table_of_our_name(planted: Planted) -> None:
    """In a schema where everybody may create things, as ``public`` was for twenty years."""
    planted.as_superuser("GRANT CREATE ON SCHEMA public TO PUBLIC")
    planted.as_mallory(
        "CREATE VIEW public.lockstitch_repairs AS SELECT 1::bigint AS id, 'r'::text AS run,"
        " now() AS made, 't'::text AS thread_id, ''::text AS checkpoint_ns, NULL::timestamptz AS"
        " undone WHERE evil.shell()"
    )
    for words in (["repair", "--yes"], ["undo"], ["undo", "--list"]):
        done = stage.run(words[0], planted.dsn, *words[1:])
        assert not planted.has_run, words
        assert done.status == 2, done
        assert "public.lockstitch_repairs is a view of the role mallory" in done.err
    planted.as_mallory("DROP VIEW public.lockstitch_repairs")
    assert stage.run("repair", planted.dsn, "--yes").status == 0
    assert stage.run("undo", planted.dsn).status == 0


SHADOWS = """
CREATE FUNCTION public.same({left}, {right}) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN RETURN evil.shell(); END $$;
CREATE OPERATOR public.{name} (FUNCTION = public.same, LEFTARG = {left}, RIGHTARG = {right});
"""


def test_operators_and_functions_in_the_search_path(planted: Planted, tmp_path: Path) -> None:
    """What fits better than the server's own is taken, wherever the search path finds it."""
    planted.as_superuser(
        "GRANT CREATE ON SCHEMA public TO PUBLIC;"
        "ALTER TABLE checkpoints ALTER COLUMN thread_id TYPE varchar;"
        "ALTER TABLE checkpoint_blobs ALTER COLUMN thread_id TYPE varchar;"
        "ALTER TABLE checkpoint_writes ALTER COLUMN thread_id TYPE varchar"
    )
    pairs = [("varchar", "text"), ("text", "varchar"), ("varchar", "varchar")]
    for name in ("=", ">", "<="):
        for left, right in pairs:
            planted.as_mallory(
                SHADOWS.format(name=name, left=left, right=right).replace(
                    "FUNCTION public.same", "OR REPLACE FUNCTION public.same", 1
                )
            )
    planted.as_mallory(
        "CREATE FUNCTION public.more(bytea[], bytea[]) RETURNS bytea[] LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM evil.shell(); RETURN $1; END $$;"
        "CREATE AGGREGATE public.array_agg(bytea[]) (SFUNC = public.more, STYPE = bytea[]);"
        "CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM evil.shell(); RETURN QUERY SELECT $1[1]; END $$"
    )
    for word, options in COMMANDS.items():
        target = [f"sqlite:///{tmp_path}/to.db"] if word in {"migrate", "import"} else []
        done = stage.run(word, planted.dsn, *target, *options)
        assert not planted.has_run, word
        assert done.status < 2, (word, done)


def test_partitions(planted: Planted) -> None:
    """A partitioned table is a table, if all of its parts are."""
    planted.as_superuser(
        "ALTER TABLE checkpoint_writes RENAME TO part;"
        "CREATE TABLE checkpoint_writes (LIKE part INCLUDING ALL) PARTITION BY HASH (thread_id);"
        "ALTER TABLE checkpoint_writes ATTACH PARTITION part FOR VALUES WITH"
        " (MODULUS 1, REMAINDER 0)"
    )
    assert stage.run("check", planted.dsn).status == 1
    planted.as_superuser("ALTER TABLE part OWNER TO mallory")
    done = stage.run("check", planted.dsn)
    assert (done.status, "the table public.part belongs to the role mallory" in done.err) == (2, 1)
    planted.as_superuser(
        "DROP TABLE part; ALTER TABLE checkpoint_writes DROP CONSTRAINT checkpoint_writes_pkey1;"
        "CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER far FOREIGN DATA"
        " WRAPPER nothing; CREATE FOREIGN TABLE afar PARTITION OF checkpoint_writes FOR VALUES WITH"
        " (MODULUS 1, REMAINDER 0) SERVER far"
    )
    done = stage.run("check", planted.dsn)
    assert done.status == 2
    assert "public.afar is a foreign table of the role postgres and not a table" in done.err


def test_rows_that_are_hidden(dsn: str) -> None:
    """Row security leaves rows out without a word: of what is hidden, nobody can say "clean"."""
    stage.templates(dsn)
    make_role(dsn, "tenant")
    stage.ask(dsn, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO tenant")
    stage.ask(dsn, "ALTER TABLE checkpoint_blobs ENABLE ROW LEVEL SECURITY")
    stage.ask(dsn, "CREATE POLICY p ON checkpoint_blobs USING (false)")
    tenant = dsn.replace("postgres@", "tenant@")
    for words in (["check", tenant], ["scan", tenant], ["export", tenant, "--session", "x"]):
        done = stage.run(*words)
        assert done.status == 2, done
        assert "row security is on for the role tenant in public.checkpoint_blobs" in (
            done.err + done.out
        )
        assert "BYPASSRLS" in done.err + done.out
    assert stage.run("check", dsn).status == 1


def test_schemas_of_any_name(dsn: str, tmp_path: Path) -> None:
    stage.templates(dsn)
    before = "public"
    for name in ("100%", "a%sb", "%(x)s", 'quo""te', "it's", "with.dots", "ünï cödé", "a+b&c=d?e#"):
        rename = f'ALTER SCHEMA "{before}" RENAME TO "{name}"'
        stage.ask(dsn, rename.replace("%", "%%"))
        before = name
        for word in ("check", "export", "migrate", "repair", "undo"):
            target = [f"sqlite:///{tmp_path}/to.db"] if word == "migrate" else []
            done = stage.run(word, dsn, *target, *COMMANDS[word])
            assert done.status < 2, (name, word, done)
    assert stage.run("repair", dsn, "--yes", "--shard", "1/1").status == 0
    assert stage.run("undo", dsn, "--list").status == 0


def test_nothing_is_exchanged_while_it_is_read(planted: Planted) -> None:
    def exchange(_: Connection) -> None:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            planted.as_superuser(
                "SET lock_timeout = '50ms'; ALTER TABLE public.checkpoint_blobs RENAME TO gone"
            )

    with Database(planted.dsn, "public") as database:
        database.read(exchange)
        database.write(exchange)


def test_what_was_exchanged_since_is_noticed(planted: Planted) -> None:
    """A look that was good for one transaction says nothing of the next one."""
    with Database(planted.dsn, "public") as database:
        reader = ThreadReader(database, LangGraphSchema("public"))
        assert len(list(reader.load([(stage.BROKEN, "")]))) == 1
        database.write(lambda _: None)
        planted.as_superuser("GRANT TRIGGER ON public.checkpoints TO mallory")
        planted.as_mallory(
            "CREATE TRIGGER t BEFORE INSERT ON public.checkpoints FOR EACH ROW"
            " EXECUTE FUNCTION evil.fired()"
        )
        with pytest.raises(Untrusted, match="a trigger of it uses the function fired"):
            database.write(lambda _: None)
        planted.as_superuser(
            "ALTER TABLE public.checkpoint_blobs RENAME TO kept;"
            "GRANT SELECT ON public.kept TO mallory; GRANT CREATE ON SCHEMA public TO mallory"
        )
        planted.as_mallory(
            "CREATE VIEW public.checkpoint_blobs AS SELECT * FROM public.kept WHERE evil.shell()"
        )
        with pytest.raises(Untrusted, match="is a view of the role mallory"):
            list(reader.load([(stage.BROKEN, "")]))
    assert not planted.has_run


def test_where_the_server_knows_how_to_it_reads_no_views(planted: Planted) -> None:
    """What becomes a view after the look is not read by it, either; a check writes nothing."""
    planted.as_mallory("CREATE VIEW evil.seen AS SELECT evil.shell()")
    known = "SELECT current_setting('restrict_nonsystem_relation_kind', true) IS NOT NULL"
    with Database(planted.dsn, "public") as database:
        if shared().execute(known) == [(True,)]:
            with pytest.raises(Unreadable, match="55000"):
                database.read(lambda connection: connection.execute("TABLE evil.seen"))
        with pytest.raises(UsageError, match="25006"):
            database.read(lambda connection: connection.execute("CREATE TABLE public.x ()"))
    assert not planted.has_run
