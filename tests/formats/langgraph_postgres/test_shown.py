"""Threads of LangGraph's in a PostgreSQL as the inspector and `repair` show them."""

from __future__ import annotations

from lockstitch.inspector import actions
from lockstitch.stores.addresses import public

from . import stage


def test_a_thread_is_shown_repaired_and_taken_back(dsn: str) -> None:
    stage.many(dsn, 1, 1)
    before = stage.content(dsn)
    found = list(actions.scan(dsn))
    [broken] = [subject for subject, report in found if report.status == "broken"]
    reading = actions.read_session(broken)
    assert reading.timeline.rows
    assert {"repair", "export"} <= {*reading.actions}
    shown = actions.plan_action(broken, "repair", {}).preview
    assert "A new checkpoint will be added; none of the present ones changes." in shown.says
    actions.perform(broken, "repair", {}, shown.stamp)
    assert actions.check_again(broken).status == "ok"
    back = actions.plan_action(broken, "undo", {}).preview
    actions.perform(broken, "undo", {}, back.stamp)
    assert stage.content(dsn) == before


def test_a_plan_says_what_will_be_done_and_a_repair_what_was(dsn: str) -> None:
    stage.templates(dsn)
    planned = stage.run("repair", dsn, "--diff")
    assert planned.status == 1
    assert f"{stage.BROKEN}: planned, nothing is changed yet:" in planned.err
    assert " will insert: open call " in planned.err
    done = stage.run("repair", dsn, "--yes")
    assert (done.status, "planned" in done.err) == (0, False)
    assert " inserted: open call " in done.err
    assert "Repaired 1 of 2 threads." in done.err
    assert f"To undo it: lockstitch undo {public(dsn)}" in done.err.replace("'", "")
