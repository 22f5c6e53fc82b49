"""Repairs taken back: exactly what was added, and only where nothing has gone on from it."""

from __future__ import annotations

from lockstitch.formats.langgraph.postgres.database import Database, find_schemas

from . import graphs, stage


def test_the_tables_are_as_they_were(dsn: str) -> None:
    stage.many(dsn, 3, 4)
    before = stage.content(dsn)
    assert stage.run("repair", dsn, "--yes").status == 0
    assert stage.content(dsn) != before
    done = stage.run("undo", dsn)
    assert done.status == 0
    assert "Undid 4 repairs." in done.err
    assert stage.content(dsn) == before


def test_one_thread_is_taken_back(dsn: str) -> None:
    stage.many(dsn, 0, 2)
    before = stage.content(dsn)
    assert stage.run("repair", dsn, "--yes").status == 0
    assert stage.run("undo", dsn, "--session", "broken-00000001").status == 0
    now = stage.content(dsn)
    assert len(now["checkpoints"]) == len(before["checkpoints"]) + 1
    found = stage.run("check", dsn, "--json")
    assert [s["session"] for s in found.sessions if s["findings"]] == ["broken-00000001"]
    assert stage.run("undo", dsn).status == 0
    assert stage.content(dsn) == before
    again = stage.run("undo", dsn)
    assert again.status == 2
    assert "no repair to undo" in again.err


def test_a_thread_that_went_on_is_left_alone(dsn: str) -> None:
    stage.templates(dsn)
    stage.copies(dsn, stage.BROKEN, "other-", 1)
    assert stage.run("repair", dsn, "--yes").status == 0
    graphs.say(dsn, stage.BROKEN, "go on")
    before = stage.content(dsn)
    done = stage.run("undo", dsn)
    assert done.status == 2
    assert f":{stage.BROKEN}: the thread was continued since the repair" in done.err
    assert "Undid 1 repair." in done.err
    now = stage.content(dsn)
    assert len(before["checkpoints"]) - len(now["checkpoints"]) == 1
    graphs.say(dsn, stage.BROKEN, "and on")


def test_runs_have_names_and_are_listed(dsn: str) -> None:
    stage.many(dsn, 0, 2)
    assert stage.run("repair", dsn, "--yes").status == 0
    [(first,)] = stage.ask(dsn, "SELECT DISTINCT run FROM lockstitch_repairs")
    listed = stage.run("undo", "--list", dsn)
    assert listed.status == 0
    assert first in listed.out
    assert "2 repaired" in listed.out
    assert stage.run("undo", dsn, "--run", "second").status == 2
    assert stage.run("undo", dsn, "--run", first).status == 0
    assert "2 undone" in stage.run("undo", "--list", dsn).out


def test_what_others_changed_is_not_deleted(dsn: str) -> None:
    stage.many(dsn, 0, 1)
    assert stage.run("repair", dsn, "--yes").status == 0
    stage.ask(
        dsn,
        "UPDATE checkpoints SET metadata = metadata || '{\"mine\": 1}' "
        "WHERE metadata ? 'lockstitch'",
    )
    before = stage.content(dsn)
    done = stage.run("undo", dsn)
    assert done.status == 2
    assert "have changed since the repair" in done.err
    assert stage.content(dsn) == before


def test_nothing_of_ours_is_made_by_reading(dsn: str) -> None:
    stage.templates(dsn)
    for words in (["scan", dsn], ["check", dsn], ["repair", dsn], ["undo", "--list", dsn]):
        stage.run(*words)
    tables = "SELECT count(*) FROM pg_class WHERE relname ~ '^lockstitch'"
    assert stage.ask(dsn, tables) == [(0,)]
    with Database(dsn):
        assert [home.schema for _, home in find_schemas(dsn)] == ["public"]
