"""Streams of every dialect, gathered: whole at the end, and valid wherever they break off."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstitch
from lockstitch.conversation.parts import CALL, REASONING, TEXT, USER, Part
from lockstitch.dialects.exchange import Accumulator, accumulator_for, messages_in
from lockstitch.dialects.profiles import new_dialect
from lockstitch.dialects.recognize import dialect_of_event
from lockstitch.session.replies import reply_event
from tests.conftest import EXAMPLES
from tests.oracles import problems
from tests.property.pieces import json_values

from .spoken import SPEAKERS, Asked, Piece, Said, Sent, Speaker, Thought, replies

sizes = st.sampled_from((2, 3, 5, 8, 30))
few = settings(max_examples=int(EXAMPLES or 25))
ASKS: dict[str, Any] = {
    "anthropic": {"role": "user", "content": "Go."},
    "openai-chat": {"role": "user", "content": "Go."},
    "openai-responses": {"role": "user", "content": "Go."},
    "gemini": {"role": "user", "parts": [{"text": "Go."}]},
    "bedrock": {"role": "user", "content": [{"text": "Go."}]},
    "langchain": {"type": "human", "content": "Go."},
}


every = pytest.mark.parametrize("speaker", SPEAKERS.values(), ids=SPEAKERS)


def fed(dialect: str, events: Iterable[Any]) -> Accumulator:
    made = accumulator_for(dialect)
    for event in events:
        made.feed(event)
    return made


def said(sent: Iterable[Sent]) -> list[str]:
    """The words that had come, a text a block, without blocks that say nothing."""
    texts: dict[int, str] = {}
    for one in sent:
        texts[one.place] = texts.get(one.place, "") + one.words
    return [whole(text) for text in texts.values() if text.strip()]


def whole(text: str) -> str:
    """A text whose characters came in halves; a half without the other cannot be sent."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parts_of(dialect: str, messages: list[Any], kind: str) -> list[Part]:
    view = new_dialect(dialect).read(messages)
    return [part for message in view for part in message.parts if part.kind == kind]


def request_with(dialect: str, messages: list[Any]) -> list[Any]:
    """What is sent next: a question, the partial reply, and a result for each of its calls."""
    view = new_dialect(dialect)
    calls = parts_of(dialect, messages, CALL)
    results = [result for call in calls if (result := view.answer(call, "done")) is not None]
    if results and dialect in ("anthropic", "gemini", "bedrock"):
        lodged = [view.rebuild(view.new_message(USER, results))]
    else:
        lodged = [view.rebuild(view.result_message(result)) for result in results]
    return [ASKS[dialect], *messages, *lodged]


def arguments_of(dialect: str, call: Part) -> Any:
    value = new_dialect(dialect).arguments(call)
    return json.loads(value) if isinstance(value, str) else value


@every
@few
@given(pieces=replies(), size=sizes)
def test_a_whole_stream_is_the_response_in_one_piece(
    speaker: Speaker, pieces: list[Piece], size: int
) -> None:
    pieces = speaker.fitting(pieces)
    made = fed(speaker.dialect, [sent.event for sent in speaker.events(pieces, size)])
    assert made.complete
    assert made.whole() == speaker.whole(pieces)
    event = reply_event(made.whole(), speaker.dialect)
    asked = [piece for piece in pieces if isinstance(piece, Asked)]
    assert [(call.id, call.name) for call in event.calls] == [(a.id, a.name) for a in asked]


@every
@few
@given(pieces=replies(), size=sizes)
def test_wherever_a_stream_breaks_off_what_is_kept_is_valid(
    speaker: Speaker, pieces: list[Piece], size: int
) -> None:
    dialect, pieces = speaker.dialect, speaker.fitting(pieces)
    sent = list(speaker.events(pieces, size))
    made = accumulator_for(dialect)
    closed = 0
    for cut, one in enumerate(sent):
        made.feed(one.event)
        kept = made.closed()
        messages = messages_in(dialect, kept)
        assert (kept is None) == (not messages)
        request = request_with(dialect, messages)
        assert lockstitch.check(request, dialect) == []
        assert problems(dialect, request) == []
        # nothing that was said is lost, nothing is in it that was not said
        words = [part.text for part in parts_of(dialect, messages, TEXT)]
        assert [text for text in words if text.strip()] == said(sent[: cut + 1])
        asked = [piece for piece in pieces if isinstance(piece, Asked)]
        calls = parts_of(dialect, messages, CALL)
        assert [call.id for call in calls] == [piece.id for piece in asked][: len(calls)]
        for call, piece in zip(calls, asked, strict=False):
            assert arguments_of(dialect, call) == piece.arguments
        assert made.blocks_closed >= closed
        closed = made.blocks_closed
    assert [call.id for call in calls] == [piece.id for piece in asked]


@few
@given(pieces=replies(), size=sizes)
def test_a_thought_is_kept_whole_and_signed_or_not_at_all(pieces: list[Piece], size: int) -> None:
    whole = {(p.text, p.signature) for p in pieces if isinstance(p, Thought)}
    for name, key in (("anthropic", None), ("bedrock", "reasoningContent")):
        speaker = SPEAKERS[name]
        made = accumulator_for(name)
        for sent in speaker.events(speaker.fitting(pieces), size):
            made.feed(sent.event)
            for part in parts_of(name, messages_in(name, made.closed()), REASONING):
                raw = part.raw[key]["reasoningText"] if key else part.raw
                assert (raw.get("thinking", raw.get("text")), raw["signature"]) in whole


@every
@few
@given(pieces=replies(), size=sizes, strange=st.lists(json_values, max_size=4))
def test_events_that_nobody_knows_change_nothing(
    speaker: Speaker, pieces: list[Piece], size: int, strange: list[Any]
) -> None:
    pieces = speaker.fitting(pieces)
    events: list[Any] = []
    for sent in speaker.events(pieces, size):
        events += [{"type": "of.another.day", "index": 0, "delta": {"text": "x"}}, sent.event]
    made = fed(speaker.dialect, [*strange, *events, *strange])
    assert made.whole() == speaker.whole(pieces)


@every
@few
@given(data=st.data(), pieces=replies(), size=sizes, strange=json_values)
def test_no_event_breaks_a_stream(
    speaker: Speaker, data: st.DataObject, pieces: list[Piece], size: int, strange: Any
) -> None:
    """A server that sends what it should not must not take the words before it with it."""
    events = [sent.event for sent in speaker.events(speaker.fitting(pieces), size)]
    at = data.draw(st.integers(0, len(events) - 1))
    key = data.draw(st.sampled_from(sorted(events[at])))
    made = accumulator_for(speaker.dialect)
    for event in [*events[:at], {**events[at], key: strange}, strange, *events[at:]]:
        made.feed(event)
        made.whole()
        made.closed()


@every
def test_an_event_tells_its_dialect(speaker: Speaker) -> None:
    pieces: list[Piece] = [Said("words"), Asked("toolu_1", "look", {"path": "x"})]
    for sent in speaker.events(pieces, 2):
        told = dialect_of_event(sent.event)
        assert told == speaker.dialect or (told is None and "metadata" in sent.event)


@pytest.mark.parametrize("event", [None, 1, "x", [], {}, {"type": "error"}, {"type": 3}, object()])
def test_what_is_no_event_tells_nothing(event: Any) -> None:
    assert dialect_of_event(event) is None


@every
def test_a_later_state_leaves_what_was_given_before_alone(speaker: Speaker) -> None:
    pieces = speaker.fitting([Said("some words"), *(Asked(f"toolu_{n}", "look", {"a": n})
                                                   for n in range(3))])  # fmt: skip
    made = accumulator_for(speaker.dialect)
    given_out: list[tuple[Any, Any]] = []
    for sent in speaker.events(pieces, 3):
        made.feed(sent.event)
        given_out += [(value, copy.deepcopy(value)) for value in (made.whole(), made.closed())]
    assert all(value == then for value, then in given_out)
