"""Threads of LangGraph's as the inspector shows and repairs them."""

from __future__ import annotations

from pathlib import Path

from lockstitch.inspector import actions
from tests.formats.databases import rows


def test_threads_are_shown_repaired_and_taken_back(threads: Path) -> None:
    before = rows(threads)
    found = list(actions.scan(f"sqlite:///{threads}"))
    broken = [subject for subject, report in found if report.status == "broken"]
    assert broken
    assert len({subject.id for subject, _ in found}) == len(found)
    for subject in broken:
        reading = actions.read_session(subject)
        if "repair" not in reading.actions:
            continue
        assert reading.timeline.rows
        shown = actions.plan_action(subject, "repair", {}).preview
        assert not shown.refusal
        assert shown.records
        actions.perform(subject, "repair", {}, shown.stamp)
        assert actions.check_again(subject).status in {"ok", "notes"}
        back = actions.plan_action(subject, "undo", {}).preview
        actions.perform(subject, "undo", {}, back.stamp)
    assert rows(threads) == before
