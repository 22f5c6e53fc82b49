"""Threads of LangGraph's in a PostgreSQL as the inspector shows and repairs them."""

from __future__ import annotations

from lockstitch.inspector import actions

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
