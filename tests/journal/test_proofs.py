"""What a quick proof lets pass, no rule finds anything in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstitch.dialects.fast import encoded_size
from lockstitch.dialects.profiles import new_dialect, profile_named, traits_of
from lockstitch.journal.projection import wanted_blobs
from lockstitch.journal.requests import project
from lockstitch.journal.state import fold
from lockstitch.rules import Case, RequestContext, examine

from .replies import DIALECTS
from .sessions import Session, sessions
from .test_requests import Talk, patient_sessions

SEVERAL = settings(max_examples=settings().max_examples * 2)
VALUES: tuple[Any, ...] = (
    *("", " ", "call_1", "call_2", "has space", "x" * 70, None, 7, [], {}, [{}], {"type": "x"}),
    *("user", "assistant", "model", "tool", "human", "ai", "{}", "[", "rs_1", "msg_1", "fc_1"),
)
KEYS = (
    *("id", "text", "role", "type", "content", "parts", "name", "input", "signature", "model"),
    *("cache_control", "call_id", "toolUseId", "thinking", "summary", "output", "thought"),
)


def _findings(dialect: str, messages: list[Any]) -> list[Any]:
    view = new_dialect(dialect)
    request = RequestContext(view, profile_named(dialect), traits_of(None))
    return examine(Case(request, view.read(messages), encoded_size(messages)))


def _passes(dialect: str, messages: list[Any]) -> bool:
    proof = new_dialect(dialect).proof()
    return proof.run(messages, 0, []) == len(messages) and proof.is_sound()


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _containers(inner)


def _changed(draw: Callable[[Any], Any], messages: list[Any]) -> list[Any]:
    """Do something to a list that nobody would do."""
    made = deepcopy(messages)
    spots = [spot for spot in _containers(made) if spot]
    if not spots:
        return made
    spot = draw(st.sampled_from(spots))
    deed = draw(st.sampled_from(["set", "delete", "add", "double", "swap"]))
    key = draw(st.sampled_from(list(spot) if isinstance(spot, dict) else range(len(spot))))
    if deed == "set":
        spot[key] = draw(st.sampled_from(VALUES))
    elif deed == "delete":
        del spot[key]
    elif isinstance(spot, dict):
        spot[draw(st.sampled_from(KEYS))] = draw(st.sampled_from(VALUES))
    elif deed == "swap":
        spot[key], spot[-1] = spot[-1], spot[key]
    else:
        spot.insert(key, deepcopy(spot[draw(st.integers(0, len(spot) - 1))]))
    return made


@SEVERAL
@given(session=sessions() | patient_sessions(), data=st.data())
def test_no_rule_finds_anything_in_what_passes(session: Session, data: st.DataObject) -> None:
    view = fold(session.records).view
    blobs = {name: session.blobs[name] for name in wanted_blobs(view)}
    for dialect in DIALECTS:
        messages = project(view, dialect, blobs=blobs)
        for made in (messages, *(_changed(data.draw, messages) for _ in range(3))):
            if made and _passes(dialect, made):
                assert _findings(dialect, made) == [], json.dumps(made, default=repr)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("receiver", DIALECTS)
def test_an_everyday_conversation_passes(dialect: str, receiver: str) -> None:
    talk = Talk(dialect)
    for _ in range(4):
        talk.turn()
    talk.add({"kind": "said", "payload": "go on"})
    messages = talk.request(receiver)
    # LangChain's own replies carry what a longer look is needed for
    assert _passes(receiver, messages) or receiver == dialect == "langchain"


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
def test_no_rule_finds_anything_in_a_plain_list_that_still_passes(
    dialect: str, data: st.DataObject
) -> None:
    talk = Talk(dialect)
    for _ in range(2):
        talk.turn()
    messages = talk.request()
    for _ in range(data.draw(st.integers(1, 3))):
        messages = _changed(data.draw, messages)
    if messages and _passes(dialect, messages):
        assert _findings(dialect, messages) == []
