"""What a newcomer meets at the prompt: names, representations, logs, and refusals."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any

import pytest

import lockstitch
from lockstitch.repair.edits import apply

BROKEN: list[dict[str, Any]] = [
    {"role": "user", "content": "my secret"},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}],
    },
]
PLACE = "messages.1.content.0"
HOPELESS = [{"role": "user", "content": "x" * (6 << 20)}]  # words are never cut
COPILOT = "openai-responses:copilot"


def test_dir_lists_every_public_name() -> None:
    assert set(lockstitch.__all__) <= set(dir(lockstitch))


def test_a_plan_says_what_it_is_without_content() -> None:
    plan = lockstitch.plan(BROKEN, "anthropic")
    assert repr(plan) == "<Plan for anthropic: 1 findings, 1 changes, healed>"
    assert [str(change) for change in plan.changes] == [
        f"LS101 inserted at {PLACE}: open call toolu_1 was answered with a neutral result."
    ]
    assert apply(plan.edits, BROKEN) == plan.plain


def test_a_store_and_its_sessions_say_what_they_are() -> None:
    with lockstitch.open("memory:") as store, store.session("ticket-42") as session:
        session.say("my secret")
        assert repr(store) == "<Store memory:>"
        assert repr(session) == "<Session ticket-42: 1 records, turn open>"
        assert repr(store.read("ticket-42")) == "<Reader ticket-42: 1 records, turn open>"


def test_memory_is_not_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(lockstitch.UsageError, match="write memory: for a store"):
        lockstitch.open("sqlite:///:memory:")
    assert list(tmp_path.iterdir()) == []


def test_heal_tells_the_log_and_the_callback(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockstitch")
    plans: list[lockstitch.Plan] = []
    healed = lockstitch.heal(BROKEN, "anthropic", on_heal=plans.append)
    assert caplog.messages == [f"anthropic: LS101 inserted at {PLACE}"]
    assert [plan.messages for plan in plans] == [healed]


def test_heal_is_silent_when_nothing_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockstitch")
    plans: list[lockstitch.Plan] = []
    assert lockstitch.heal(BROKEN[:1], "anthropic", on_heal=plans.append) is not None
    assert (caplog.messages, plans) == ([], [])


def test_strict_heal_raises(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockstitch")
    with pytest.raises(lockstitch.Unhealed, match="nothing was changed") as caught:
        lockstitch.heal(HOPELESS, COPILOT, strict=True)
    assert isinstance(caught.value, lockstitch.LockstitchError)
    assert caught.value.codes == ("LS504",)
    assert caplog.messages == [f"{COPILOT}: LS504 remains at input.0"]


def test_places_to_go_back_to_are_typed() -> None:
    for function in (
        lockstitch.Session.rewind,
        lockstitch.AsyncSession.rewind,
        lockstitch.Store.fork,
    ):
        [annotation] = [
            parameter.annotation
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name in {"to", "at"}
        ]
        assert "Checkpoint | str | int" in str(annotation)
