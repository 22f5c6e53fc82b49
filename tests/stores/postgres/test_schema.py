from __future__ import annotations

import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lockstitch.errors import Held, Unreadable
from lockstitch.journal.events import Said, entry_of, text_payload
from lockstitch.journal.records import NEW, blob_name, chain_entries
from lockstitch.stores.base import Listing
from lockstitch.stores.postgres import PostgresBackend, schema
from tests.postgres_server import shared
from tests.stores.postgres.making import entries, keys, run

VERSIONS = "SELECT version FROM lockstitch.versions ORDER BY version"
OBJECTS = """
SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
UNION SELECT n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
WHERE n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
"""
BLOBS = "SELECT count(*) FROM lockstitch.blobs"
START = """
import sys
from lockstitch.stores.postgres import PostgresBackend
print("ready", flush=True)
sys.stdin.readline()
PostgresBackend(sys.argv[1]).close()
"""
ROOT = Path(__file__).parents[3]


@pytest.fixture
def dsn() -> str:
    """The address of a database that was never used."""
    return shared().fresh()


def test_everything_lives_in_a_schema_of_its_own(dsn: str) -> None:
    PostgresBackend(dsn).close()
    assert run(dsn, OBJECTS) == [("lockstitch",)]


def test_opening_again_changes_nothing(dsn: str) -> None:
    PostgresBackend(dsn).close()
    ((before,),) = run(dsn, "SELECT pg_current_xact_id()::text::bigint")
    for _ in range(3):
        PostgresBackend(dsn).close()
    ((after,),) = run(dsn, "SELECT pg_current_xact_id()::text::bigint")
    assert after == before + 1
    assert run(dsn, VERSIONS) == [(number,) for number in schema.migrations()]


def test_many_threads_open_a_new_database_at_once(dsn: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        for backend in threads.map(PostgresBackend, [dsn] * 8):
            backend.close()
    assert run(dsn, VERSIONS) == [(number,) for number in schema.migrations()]


def test_many_processes_open_a_new_database_at_once(dsn: str) -> None:
    command = [sys.executable, "-c", START, dsn]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert run(dsn, VERSIONS) == [(number,) for number in schema.migrations()]


@pytest.mark.parametrize("create", [True, False])
def test_a_newer_version_is_refused_and_left_alone(dsn: str, create: bool) -> None:
    with PostgresBackend(dsn) as backend:
        backend.append(backend.acquire("s"), entries("a"), 0)
    newer = schema.latest() + 1
    run(dsn, "INSERT INTO lockstitch.versions (version) VALUES (%s)", newer)
    with pytest.raises(Unreadable, match=f"version {newer}.*newer one; nothing was changed"):
        PostgresBackend(dsn, create=create)


def test_an_older_version_is_brought_up_once(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with PostgresBackend(dsn) as backend:
        backend.append(backend.acquire("s"), entries("a"), 0)
    later = schema.migrations() | {
        schema.latest() + 1: "CREATE TABLE lockstitch.more (); -- 100 % of it",
        schema.latest() + 2: "ALTER TABLE lockstitch.more ADD COLUMN one int",
    }
    monkeypatch.setattr(schema, "migrations", lambda: later)
    with pytest.raises(Unreadable, match="open it once for writing"):
        PostgresBackend(dsn, create=False)
    for _ in range(2):
        with PostgresBackend(dsn) as backend:
            assert keys(backend, "s") == ["a"]
    assert run(dsn, VERSIONS) == [(number,) for number in later]


def test_a_store_of_version_1_is_brought_up(dsn: str) -> None:
    """Version 1 did not note which session names which large value; version 2 removes by that."""
    large = text_payload("large " * 40_000)
    made = entry_of(Said(payload=large), "k1", 1)
    [record] = chain_entries(NEW, 1, [made])
    make_of(dsn, 1)
    run(dsn, ADD, "s", 1, record.digest, 1, "gone", "{}")
    run(dsn, ADD_RECORD, "k1", record.body, record.digest)
    run(dsn, "INSERT INTO lockstitch.blobs VALUES (%s, %s)", blob_name(bytes(large)), bytes(large))
    with PostgresBackend(dsn) as backend:
        assert run(dsn, VERSIONS) == [(number,) for number in schema.migrations()]
        assert keys(backend, "s") == ["k1"]
        assert [one.session for one in backend.listed(Listing(newest=True))] == ["s"]
        run(dsn, "UPDATE lockstitch.sessions SET token = ''")
        backend.delete(backend.acquire("s"))
    assert run(dsn, BLOBS) == [(0,)]


ADD = """
INSERT INTO lockstitch.sessions
    (session, seq, digest, epoch, created, changed, token, holder, deadline)
VALUES (%s, %s, %s, %s, 0, 0, %s, %s, clock_timestamp() + interval '1 hour')
"""
ADD_RECORD = "INSERT INTO lockstitch.records VALUES (1, 1, 1, %s, 1, %s, %s)"


def make_of(dsn: str, version: int) -> None:
    """Make the tables of an earlier version."""
    run(dsn, "CREATE SCHEMA lockstitch")
    run(dsn, "CREATE TABLE lockstitch.versions (version int PRIMARY KEY, applied timestamptz)")
    for number in range(1, version + 1):
        run(dsn, schema.migrations()[number])
        run(dsn, "INSERT INTO lockstitch.versions VALUES (%s, now())", number)


def test_a_writer_of_version_2_goes_on_while_the_store_is_brought_up(dsn: str) -> None:
    """It calls the functions that it knows; by them it counts on, and is heard of."""
    make_of(dsn, 2)
    run(dsn, TAKE_2, START_DIGEST)
    with PostgresBackend(dsn, lease_seconds=0.5) as backend:
        for _ in range(4):
            run(dsn, "SELECT * FROM lockstitch.renew_v1(ARRAY['old'], ARRAY['s'], 0.5)")
            with pytest.raises(Held):
                backend.acquire("s", wait=0.3)
        assert run(dsn, TAKE_2.replace("'old'", "'other'"), START_DIGEST)[0][0] == "held"
        assert backend.acquire("s", wait=60).epoch == 2


TAKE_2 = """
SELECT outcome FROM lockstitch.acquire_v1(
    's', 'old', '{}', 0.5, ARRAY[]::text[], true, %s::bytea)
"""
START_DIGEST = bytes(16)


def test_a_version_that_fails_leaves_the_one_before(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = schema.migrations()
    bad = first | {schema.latest() + 1: "CREATE TABLE lockstitch.more (); SELECT 1 / 0"}
    monkeypatch.setattr(schema, "migrations", lambda: bad)
    with pytest.raises(Unreadable, match="DivisionByZero"):
        PostgresBackend(dsn)
    assert run(dsn, "SELECT to_regnamespace('lockstitch')") == [(None,)]
    monkeypatch.setattr(schema, "migrations", lambda: first)
    with PostgresBackend(dsn) as backend:
        backend.append(backend.acquire("s"), entries("a"), 0)
    monkeypatch.setattr(schema, "migrations", lambda: bad)
    with pytest.raises(Unreadable):
        PostgresBackend(dsn)
    monkeypatch.setattr(schema, "migrations", lambda: first)
    with PostgresBackend(dsn) as backend:
        assert keys(backend, "s") == ["a"]


def test_without_create_a_database_stays_as_it_is(dsn: str) -> None:
    with pytest.raises(Unreadable, match="no Lockstitch sessions"):
        PostgresBackend(dsn, create=False)
    assert run(dsn, "SELECT to_regnamespace('lockstitch')") == [(None,)]


def test_a_schema_made_beforehand_needs_no_right_on_the_database(dsn: str) -> None:
    run(dsn, "CREATE ROLE maker LOGIN")
    try:
        run(dsn, "CREATE SCHEMA lockstitch AUTHORIZATION maker")
        with PostgresBackend(dsn.replace("postgres@", "maker@")) as backend:
            backend.append(backend.acquire("s"), entries("a"), 0)
    finally:
        run(dsn, "DROP OWNED BY maker")
        run(dsn, "DROP ROLE maker")


def test_tables_of_the_same_names_elsewhere_are_left_alone(dsn: str) -> None:
    run(dsn, "CREATE TABLE public.sessions (mine int)")
    run(dsn, "CREATE TABLE public.records (mine int)")
    name = dsn.rpartition("/")[2]
    run(dsn, f"ALTER DATABASE {name} SET search_path = public, nowhere")
    with PostgresBackend(dsn) as backend:
        backend.append(backend.acquire("s"), entries("a"), 0)
        assert keys(backend, "s") == ["a"]
    assert run(dsn, "SELECT count(*) FROM public.sessions") == [(0,)]


def test_versions_are_numbered_without_a_gap() -> None:
    assert list(schema.migrations()) == list(range(1, schema.latest() + 1))


def test_the_wheel_holds_every_version(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = [name for name in packed.namelist() if name.endswith(".sql") and "postgres" in name]
    assert len(names) == len(schema.migrations())


def test_every_migration_has_a_number_of_its_own() -> None:
    """One that shares its number with another would be left out without a word."""
    folder = Path(schema.__file__).parent / "migrations"
    files = sorted(folder.glob("*.sql"))
    assert [int(file.name[:4]) for file in files] == list(range(1, len(files) + 1))
