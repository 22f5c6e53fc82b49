"""Healing by excerpt and healing the whole list must come to the same."""

from __future__ import annotations

import copy
import sys
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstitch
from lockstitch.dialects.fast import narrow
from lockstitch.dialects.profiles import new_dialect, profile_named

# the package's `heal` is the function; this is its module
PLAN = sys.modules["lockstitch.repair.plan"]
IDS = st.sampled_from(["a", "b", "c", "d"])


def _anthropic_turn(draw: Any, number: int) -> list[dict[str, Any]]:
    ids = draw(st.lists(IDS.map(lambda stem: f"{stem}{draw(st.integers(0, number))}"), max_size=3))
    calls = [{"type": "tool_use", "id": i, "name": "t", "input": {}} for i in ids]
    results = [
        {"type": "tool_result", "tool_use_id": i, "content": f"out {number} {i}"}
        for i in draw(st.permutations(ids))
        if draw(st.integers(0, 9))
    ]
    turn: list[dict[str, Any]] = [{"role": "user", "content": f"prompt {number}"}]
    turn.append({"role": "assistant", "content": [{"type": "text", "text": "x"}, *calls]})
    if not draw(st.integers(0, 9)):
        turn.append({"role": "user", "content": f"wedge {number}"})
    if results:
        turn.append({"role": "user", "content": results})
    if draw(st.booleans()):
        turn.append({"role": "assistant", "content": f"done {number}"})
    return turn


def _chat_turn(draw: Any, number: int) -> list[dict[str, Any]]:
    ids = draw(st.lists(IDS.map(lambda stem: f"{stem}{draw(st.integers(0, number))}"), max_size=3))
    function = {"name": "t", "arguments": "{}"}
    calls = [{"id": i, "type": "function", "function": function} for i in ids]
    turn: list[dict[str, Any]] = [{"role": "user", "content": f"prompt {number}"}]
    if calls:
        turn.append({"role": "assistant", "content": None, "tool_calls": calls})
    if not draw(st.integers(0, 9)):
        turn.append({"role": "user", "content": f"wedge {number}"})
    turn += [
        {"role": "tool", "tool_call_id": i, "content": f"out {number} {i}"}
        for i in ids
        if draw(st.integers(0, 9))
    ]
    turn.append({"role": "assistant", "content": f"done {number}"})
    return turn


@st.composite
def lists(draw: Any, dialect: str) -> list[dict[str, Any]]:
    """Mostly fine turns with ids that now and then repeat, and now and then a break."""
    make = _anthropic_turn if dialect == "anthropic" else _chat_turn
    fine = draw(st.integers(3, 10))
    turns = [make(draw, number) for number in range(draw(st.integers(1, 4)))]
    quiet = [
        [
            {"role": "user", "content": f"quiet {number}"},
            {"role": "assistant", "content": f"answer {number}"},
        ]
        for number in range(fine)
    ]
    order = draw(st.permutations([*turns, *quiet]))
    return [message for turn in order for message in turn]


@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat"])
@given(data=st.data())
def test_excerpt_and_whole_agree(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(lists(dialect))
    before = copy.deepcopy(messages)
    by_excerpt = lockstitch.plan(messages, dialect)
    with mock.patch.object(PLAN, "narrow", return_value=None):
        whole = lockstitch.plan(messages, dialect)
    assert by_excerpt.findings == whole.findings
    assert by_excerpt.messages == whole.messages
    assert by_excerpt.changes == whole.changes
    assert messages == before


@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat"])
@given(data=st.data())
def test_what_is_proven_fine_has_no_finding(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(lists(dialect))
    found = narrow(new_dialect(dialect), profile_named(dialect), messages)
    if found is not None and not found.numbers:
        with mock.patch.object(PLAN, "narrow", return_value=None):
            assert lockstitch.check(messages, dialect) == []


def test_a_long_list_is_looked_at_in_part() -> None:
    quiet = [
        {"role": role, "content": f"{role} {number}"}
        for number in range(1000)
        for role in ("user", "assistant")
    ]
    call = {"type": "tool_use", "id": "a", "name": "t", "input": {}}
    broken = {"role": "assistant", "content": [call]}
    messages = [*quiet, {"role": "user", "content": "go"}, broken, *quiet]
    found = narrow(new_dialect("anthropic"), profile_named("anthropic"), messages)
    assert found is not None
    assert len(found.numbers) < 20
    healed = lockstitch.heal(messages, "anthropic")
    assert len(healed) == len(messages) + 1
    assert all(new is old for new, old in zip(healed[:2002], messages, strict=False))
    assert lockstitch.check(healed, "anthropic") == []
