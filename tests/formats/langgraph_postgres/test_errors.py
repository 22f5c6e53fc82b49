"""What goes wrong with a database is said in plain words, without the password: status 2."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests import postgres_server
from tests.postgres_server import shared

from . import graphs, stage

WORDS = [["scan"], ["check"], ["repair", "--yes"], ["undo"], ["show"], ["export"]]


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
def test_no_server(words: list[str]) -> None:
    url = "postgresql://ada:sesame@127.0.0.1:1/x?connect_timeout=1"
    for form in ([], ["--format", "langgraph"] if words[0] not in {"scan", "undo"} else []):
        done = stage.run(words[0], url, *words[1:], *form)
        assert done.status == 2
        assert "refused" in done.out + done.err
        assert "sesame" not in done.out + done.err


def test_no_such_role_or_database() -> None:
    for url in (shared().address("nowhere"), shared().address("postgres", "nobody", "sesame")):
        done = stage.run("check", url, "--format", "langgraph")
        assert done.status == 2
        assert "does not exist" in done.err
        assert "sesame" not in done.err


def test_no_right_to_write(dsn: str) -> None:
    stage.templates(dsn)
    stage.ask(dsn, "DROP ROLE IF EXISTS reader")
    stage.ask(dsn, "CREATE ROLE reader LOGIN")
    for table in stage.TABLES:
        stage.ask(dsn, f"GRANT SELECT ON {table} TO reader")
    reader = dsn.replace("postgres@", "reader@")
    assert stage.run("check", reader).status == 1
    done = stage.run("repair", reader, "--yes")
    assert done.status == 2
    assert "lacks a privilege" in done.err
    assert "lockstitch_repairs" in done.err
    assert "nothing was written" in done.err
    assert stage.run("repair", dsn, "--yes").status == 0
    stage.ask(dsn, "GRANT SELECT ON lockstitch_repairs TO reader")
    undone = stage.run("undo", reader)
    assert undone.status == 2
    assert "lacks a privilege" in undone.err
    stage.ask(dsn, "DROP OWNED BY reader")
    stage.ask(dsn, "DROP ROLE reader")


def test_no_tables(dsn: str) -> None:
    done = stage.run("check", dsn, "--format", "langgraph")
    assert done.status == 2
    assert "holds no LangGraph checkpoints" in done.err
    assert stage.run("repair", dsn, "--yes", "--format", "langgraph").status == 2


def test_tables_of_the_shallow_saver(dsn: str) -> None:
    for table in stage.TABLES:
        stage.ask(dsn, f"CREATE TABLE {table} (thread_id text, checkpoint_ns text)")
    done = stage.run("check", dsn, "--format", "langgraph")
    assert done.status == 2
    assert "do not have the form" in done.err


def test_no_such_thread(dsn: str) -> None:
    stage.templates(dsn)
    for words in (["check"], ["repair", "--yes"], ["show"], ["export"]):
        done = stage.run(words[0], dsn, *words[1:], "--session", "nobody")
        assert done.status == 2, words
        assert "Traceback" not in done.err


def test_psycopg_is_missing() -> None:
    code = "import sys; sys.modules['psycopg'] = None; from lockstitch import cli; "
    code += "sys.exit(cli.run(['check', 'postgresql://h/d', '--format', 'langgraph']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'lockstitch[postgres]'" in done.stderr


def test_the_server_is_killed_half_way() -> None:
    with postgres_server.running({"fsync": "off"}) as server:
        dsn = server.fresh()
        stage.many(dsn, 0, 230)
        address = f"{dsn}?{postgres_server.PATIENT}"
        worker = stage.start("repair", address, "--yes", "--workers", "1")
        assert worker.stderr
        worker.stderr.readline()
        worker.send_signal(signal.SIGSTOP)
        server.kill()
        worker.send_signal(signal.SIGCONT)
        _, err = worker.communicate(timeout=600)
        assert worker.returncode == 2, err
        assert "Traceback" not in err
        assert "connection" in err
        server.start()
        assert stage.run("repair", dsn, "--yes").status == 0
        counts = "SELECT count(*), count(DISTINCT thread_id) FROM checkpoints "
        assert stage.ask(dsn, f"{counts} WHERE metadata ? 'lockstitch'") == [(230, 230)]
        assert stage.ask(dsn, "SELECT count(*) FROM lockstitch_repairs") == [(230,)]


def test_a_thread_that_cannot_be_read_does_not_end_the_others(dsn: str) -> None:
    stage.many(dsn, 0, 3)
    stage.ask(
        dsn,
        "UPDATE checkpoint_blobs SET blob = '\\xc1'::bytea "
        "WHERE thread_id = 'broken-00000002' AND channel = 'messages'",
    )
    found = {s["session"]: s for s in stage.run("check", dsn, "--json").sessions}
    assert [f["code"] for f in found["broken-00000002"]["findings"]] == ["LS907"]
    assert stage.run("repair", dsn, "--yes").status == 1
    graphs.say(dsn, "broken-00000003", "go on")


def test_options_that_make_no_sense(dsn: str) -> None:
    stage.templates(dsn)
    for words in (
        ["repair", dsn, "-o", "x"],
        ["check", dsn, "--workers", "many"],
        ["undo", dsn, "--force"],
        ["check", f"{dsn}?lease=soon", "--format", "langgraph"],
    ):
        done = stage.run(*words)
        assert done.status == 2, words
