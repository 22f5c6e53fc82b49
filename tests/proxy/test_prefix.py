"""A conversation that was healed once goes on from the same bytes, so that prompt caches hold."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from lockstitch.proxy.healing import decide
from tests.kinds_of_break.conversations import (
    BROKEN,
    Ask,
    Call,
    Conversation,
    Done,
    Result,
    Say,
    Turn,
)
from tests.proxy.bodies import EACH_DIALECT, Case

EARLY = BROKEN[1]
EACH, STEP = (10_000, 1) if os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES") else (8, 66)
STYLES = ({}, {"separators": (",", ":")}, {"indent": 2})


def growing(begun: tuple[Turn, ...], turns: int) -> Iterator[tuple[Turn, ...]]:
    """Give a conversation at every point at which its client asks the model to go on."""
    history = list(begun)
    if isinstance(history[-1], Say):
        history.append(Ask("go on"))
    for number in range(turns):
        yield tuple(history)
        call = Call(f"late{number:05d}", f"file {number}")
        history += [Say(f"turn {number}", (call,)), Done((Result(call.id, f"résult {number}"),))]
        yield tuple(history)
        history += [Say(f"done {number}"), Ask(f"next {number} 🧵")]


def sent(case: Case, turns: tuple[Turn, ...], **style: Any) -> bytes:
    """The messages of a request as they go out, without the bracket that ends them."""
    data = decide(case.body(turns, **style), case.dialect, None).data
    text = data.decode()
    start = text.index("[", text.index(f'"{case.list_key}":'))
    end = json.JSONDecoder().raw_decode(text, start)[1]
    return text[start : end - 1].rstrip().encode()


def assert_holds(case: Case, begun: tuple[Turn, ...], turns: int, **style: Any) -> None:
    before = b""
    for number, history in enumerate(growing(begun, turns)):
        # one that begins with the bytes of one before it begins with those of all before that
        if number > EACH and number % STEP:
            continue
        now = sent(case, history, **style)
        assert now.startswith(before), (len(history), before[-300:], now[len(before) - 300 :][:600])
        before = now


@pytest.mark.parametrize("case", EACH_DIALECT, ids=lambda case: case.form)
def test_200_turns_behind_a_broken_place(case: Case) -> None:
    assert decide(case.body(EARLY.turns), case.dialect).repaired
    assert_holds(case, EARLY.turns, 200)


@pytest.mark.parametrize("conversation", BROKEN, ids=lambda one: one.name)
def test_every_kind_of_break(conversation: Conversation) -> None:
    for case in EACH_DIALECT:
        for style in STYLES:
            assert_holds(case, conversation.turns, 3, **style)
