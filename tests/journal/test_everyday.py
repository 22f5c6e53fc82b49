"""The quick way to a request and the long one give the same, and the quick one is as strict."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstitch
from lockstitch.conversation.parts import USER
from lockstitch.dialects import script
from lockstitch.dialects.exchange import Exchange, TextResult, exchange_of, messages_in
from lockstitch.dialects.profiles import CLASSES, PROFILES, profile_named
from lockstitch.dialects.render import write_turns
from lockstitch.journal import projection
from lockstitch.journal.events import (
    Finished,
    Replied,
    Said,
    Unknown,
    entry_of,
    event_of,
    text_payload,
)
from lockstitch.journal.projection import Values, is_small, wanted_blobs
from lockstitch.journal.records import JournalRecord, Large
from lockstitch.journal.requests import RequestJudge, project
from lockstitch.journal.state import JournalState, JournalView, Spoken, fold

from .replies import Asked, Speech, reply_of
from .sessions import JUNK, Session, sessions
from .shown import DIALECT_RECEIVERS, OTHER_RECEIVERS

FEWER = settings(max_examples=max(1, settings().max_examples // 3))
WALKED = ("anthropic", "openai-chat")
ODD_REPLIES: tuple[Any, ...] = (
    *JUNK,
    {"role": "assistant", "content": "plain"},
    {"role": "assistant", "content": ""},
    {"content": [{"type": "text", "text": "no role"}]},
    {"content": [{"type": "text", "text": "x"}], "role": "assistant"},
    {"role": "assistant", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "x"}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "y"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]},
    {"role": "assistant", "content": [{"text": "x"}], "type": "error"},
    {"role": "user", "content": [{"type": "text", "text": "x"}]},
    {"id": "msg_1", "type": "message", "role": "assistant", "usage": {}, "model": "m",
     "content": [{"type": "text", "text": "x"}]},
    {"role": "assistant", "content": "x", "tool_calls": []},
    {"role": "assistant", "content": "x", "tool_calls": None},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": {}}]},
    {"role": "assistant", "content": None, "tool_calls": [7]},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "custom": {}}]},
    {"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
     "function": {"name": "b", "arguments": "{}"}}]},
    {"role": "assistant", "content": "x", "tool_calls": [{"id": "a", "index": 0,
     "function": {"name": "b", "arguments": "{}"}}]},
    {"role": "assistant", "content": "x", "tool_calls": [{"id": "a",
     "function": {"name": "b", "arguments": "{}", "parsed_arguments": {}}}]},
    {"role": "assistant", "content": "x", "refusal": None},
)  # fmt: skip


@pytest.mark.parametrize("name", PROFILES)
@given(text=st.text(min_size=1).filter(lambda text: not text.isspace()))
def test_words_are_spelled_as_by_the_writer(name: str, text: str) -> None:
    spelled = exchange_of(profile_named(name).dialect).text_message(text)
    assert json.dumps([spelled]) == json.dumps(write_turns([script.text_turn(USER, text)], name))


@pytest.mark.parametrize("dialect", CLASSES)
def test_replies_are_taken_as_by_a_longer_look(dialect: str) -> None:
    speeches = [
        Speech(1, "<T1>"),
        Speech(2, "<T2>", (Asked("call00001", "grep", "<A1>"),)),
        Speech(3, "", (Asked("call00002", "grep", "<A2>"), Asked("call00003", "bash", "<A3>"))),
        Speech(4, "<T4>", thought="<R4>", seal="SEAL0004"),
    ]
    values = [reply_of(dialect, speech).response for speech in speeches]
    for value in (*values, *ODD_REPLIES):
        taken = exchange_of(dialect).plain_messages(deepcopy(value))
        if taken is not None:
            assert json.dumps(taken) == json.dumps(messages_in(dialect, value))


TEXTS = st.text(min_size=1).filter(lambda text: not text.isspace())
RESULTS = st.builds(TextResult, id=TEXTS, name=TEXTS, text=TEXTS, failed=st.booleans())


@given(
    results=st.lists(RESULTS, min_size=1),
    dialect=st.sampled_from([name for name in CLASSES if exchange_of(name).writes_results]),
)
def test_results_are_written_as_by_the_writer(results: list[TextResult], dialect: str) -> None:
    writer = exchange_of(dialect).writer(profile_named(dialect))
    writer.results(
        [
            script.NeutralResult(
                script.NeutralCall(result.id, result.name, None),
                0,
                [script.TextPiece(result.text)],
                result.failed,
            )
            for result in results
        ]
    )
    assert json.dumps(exchange_of(dialect).plain_results(results)) == json.dumps(writer.messages)


def _slow(name: str) -> Exchange:
    """An exchange to which nothing is everyday."""

    def text_message(_: Exchange, text: str) -> Any:
        return write_turns([script.text_turn(USER, text)], name)[0]

    changes = {
        "writes_results": False,
        "plain_messages": lambda _, __: None,
        "text_message": text_message,
    }
    slow: Exchange = type("Slow", (type(exchange_of(name)),), changes)()
    return slow


def _the_long_way(view: JournalView, profile: str, **options: Any) -> list[Any]:
    """A request for which nothing is everyday: each payload decoded alone, all rules run."""
    slow = {name: _slow(name) for name in CLASSES}
    with (
        patch.object(projection, "exchange_of", slow.__getitem__),
        patch.object(RequestJudge, "has_sound_excerpt", lambda *_: False),
        patch.object(Values, "_read", lambda *_: {}),
    ):
        return project(view, profile, **options)


@FEWER
@given(session=sessions(wild=True), cut=st.integers(0, 40))
def test_the_quick_way_leads_to_the_same_request(session: Session, cut: int) -> None:
    view = fold(session.records[: cut or None]).view
    blobs = {name: session.blobs[name] for name in wanted_blobs(view)}
    for profile, model, provider in (*DIALECT_RECEIVERS, *OTHER_RECEIVERS[:2]):
        options = {"model": model, "provider": provider, "blobs": blobs}
        quick = project(view, profile, **options)
        assert json.dumps(quick, default=repr) == json.dumps(
            _the_long_way(view, profile, **options), default=repr
        )


class Long:
    """A long conversation of plain turns, in which single facts can be odd."""

    def __init__(self, dialect: str, turns: int = 40) -> None:
        self.dialect, self.turns = dialect, turns
        self.outputs: dict[int, Any] = {}
        self.arguments: dict[int, Any] = {}

    def view(self) -> JournalView:
        state = JournalState()
        for turn in range(self.turns):
            self.add(state, {"kind": "said", "payload": f"question {turn}"})
            reply = self.reply(turn)
            calls = [{"id": f"call_{turn}", "name": "grep"}]
            whole = {"kind": "replied", "dialect": self.dialect, "payload": reply, "calls": calls}
            self.add(state, whole)
            output = self.outputs.get(turn, f"output {turn}")
            self.add(state, {"kind": "finished", "reply": state.seq, "payload": output})
            done: Any = f"answer {turn}"
            if self.dialect == "anthropic":
                done = [{"type": "text", "text": done}]
            answer = {"role": "assistant", "content": done}
            self.add(state, {"kind": "replied", "dialect": self.dialect, "payload": answer})
            self.add(state, {"kind": "ended"})
        self.add(state, {"kind": "said", "payload": "and now?"})
        return state.view

    def reply(self, turn: int) -> Any:
        given = self.arguments.get(turn, {"pattern": "x"})
        if self.dialect == "anthropic":
            call = {"type": "tool_use", "id": f"call_{turn}", "name": "grep", "input": given}
            return {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]}
        function = {"name": "grep", "arguments": json.dumps(given)}
        call = {"id": f"call_{turn}", "type": "function", "function": function}
        return {"role": "assistant", "content": "I look.", "tool_calls": [call]}

    def add(self, state: JournalState, event: Any) -> None:
        body = event if isinstance(event, bytes) else json.dumps(event).encode()
        state.apply(JournalRecord(state.seq + 1, 1, f"k{state.seq + 1}", 0, body, b""))


def _is_valid(messages: list[Any], dialect: str, model: str | None) -> bool:
    return RequestJudge(dialect, model).has_sound_excerpt(messages)


def _projector(view: JournalView, dialect: str) -> Any:
    receiver = projection.receiver_of(view, dialect, None, None)
    return projection.Projector(view, receiver, Large({}))


@pytest.mark.parametrize("dialect", WALKED)
def test_an_everyday_conversation_needs_no_longer_look(dialect: str) -> None:
    view = Long(dialect).view()
    made = _projector(view, dialect)
    messages = made.native()
    assert made.bound(messages) is not None
    assert _is_valid(messages, dialect, None)
    assert _is_valid(messages, dialect, "some-model")
    assert lockstitch.check(messages, dialect) == []
    assert project(view, dialect) == messages == _the_long_way(view, dialect)


@pytest.mark.parametrize("dialect", WALKED)
@pytest.mark.parametrize(
    "output",
    ["\x00", "before\x00after", "half an emoji \ud83d", None, 7, {"a": "\x00"}, ["x"], ""],
    ids=["nul", "inner-nul", "surrogate", "nothing", "number", "object", "list", "empty"],
)
def test_an_odd_result_in_a_long_conversation(dialect: str, output: Any) -> None:
    talk = Long(dialect)
    talk.outputs[7] = output
    view = talk.view()
    messages = project(view, dialect)
    assert lockstitch.check(messages, dialect) == []
    assert messages == _the_long_way(view, dialect)


@pytest.mark.parametrize("text", ["\x00", "\\u0000", "a\x00b"], ids=["nul", "spelled", "inner"])
@pytest.mark.parametrize("dialect", WALKED)
def test_a_nul_in_arguments_of_a_long_conversation(dialect: str, text: str) -> None:
    talk = Long(dialect)
    talk.arguments[3] = {"deep": [{"er": text}]}
    view = talk.view()
    messages = project(view, dialect)
    assert lockstitch.check(messages, dialect) == []
    assert messages == _the_long_way(view, dialect)


SCALARS = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.sampled_from([1e15, -1e15, 1e9, 123456789012345.0, 5e-324, 10**18])
JSON = st.recursive(
    SCALARS | NUMBERS | st.integers(-(2**63), 2**64 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    outputs=st.dictionaries(st.integers(0, 4), st.text()),
    arguments=st.dictionaries(st.integers(0, 4), st.dictionaries(st.text(), JSON, max_size=4)),
    dialect=st.sampled_from(WALKED),
)
def test_what_is_called_light_is(outputs: Any, arguments: Any, dialect: str) -> None:
    talk = Long(dialect, turns=5)
    talk.outputs, talk.arguments = outputs, arguments
    view = talk.view()
    made = _projector(view, dialect)
    messages = made.native()
    encoded = msgspec.json.encode(messages)
    bound = made.bound(messages)
    if bound is not None:
        assert len(encoded) <= bound
        assert not any("\0" in text for text in _texts(messages))


def test_numbers_that_grow_are_counted_as_they_are_written() -> None:
    talk = Long("anthropic", turns=5)
    talk.arguments[2] = {"numbers": "?"}
    body = json.dumps(talk.reply(2)).replace('"?"', f"[{','.join(['1e15'] * 5000)}]")
    state = JournalState()
    talk.add(state, {"kind": "said", "payload": "go"})
    replied = Replied(dialect="anthropic", payload=msgspec.Raw(body.encode()))
    talk.add(state, entry_of(replied, "k", 0).body)
    made = _projector(state.view, "anthropic")
    size = len(msgspec.json.encode(made.native()))
    assert size > 3 * len(body)
    assert made.value.size >= size


def _texts(value: Any) -> Any:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _without(messages: list[Any], index: int) -> list[Any]:
    return messages[:index] + messages[index + 1 :]


def _swapped(messages: list[Any], index: int) -> list[Any]:
    return [*messages[:index], messages[index + 1], messages[index], *messages[index + 2 :]]


def _doubled(messages: list[Any], index: int) -> list[Any]:
    return messages[: index + 1] + messages[index:]


def _renamed(messages: list[Any], index: int) -> list[Any]:
    return [*messages[:index], {**messages[index], "role": "narrator"}, *messages[index + 1 :]]


@pytest.mark.parametrize("dialect", WALKED)
@pytest.mark.parametrize(
    "broken", [_without, _swapped, _doubled, _renamed], ids=["lost", "swapped", "doubled", "role"]
)
def test_the_quick_judge_passes_nothing_that_a_rule_finds(dialect: str, broken: Any) -> None:
    messages = project(Long(dialect, turns=12).view(), dialect)
    found = 0
    for index in range(len(messages) - 1):
        wrong = broken(messages, index)
        for model in (None, "some-model"):
            findings = lockstitch.check(wrong, dialect, model=model)
            found += bool(findings)
            assert not findings or not _is_valid(wrong, dialect, model)
    assert found


def test_a_variant_of_a_dialect_gets_the_longer_look() -> None:
    messages = project(Long("openai-chat", turns=12).view(), "openai-chat")
    assert _is_valid(messages, "openai-chat", None)
    assert not _is_valid(messages, "openai-chat:mistral", None)


@pytest.mark.parametrize(
    ("name", "size", "largest", "small"),
    [
        ("anthropic", 32 << 20, 100, True),
        ("anthropic", (32 << 20) + 1, 100, False),
        ("anthropic", 9 << 20, 5 << 20, True),
        ("anthropic", 9 << 20, (5 << 20) + 1, False),
        ("openai-chat", 1 << 40, 100, True),
        ("openai-chat", 1 << 40, (5 << 20) + 1, False),
    ],
    ids=["at-it", "beyond-it", "large-part", "giant", "no-limit", "giant-without-limit"],
)
def test_sizes_near_a_limit_are_looked_at(
    name: str, size: int, largest: int, *, small: bool
) -> None:
    assert is_small(profile_named(name), size, largest) is small


def test_a_value_that_was_given_out_is_nobody_elses() -> None:
    view = Long("anthropic").view()
    first, second = project(view, "anthropic"), project(view, "anthropic")
    before = deepcopy(second)
    for message in first:
        message["content"].clear()
    assert second == before == project(view, "anthropic")


@pytest.mark.parametrize("blob", [b"1,2", b'"a"],["b"', b"[", b"", b"NaN x"])
def test_a_large_value_that_is_not_one_value_is_nothing(blob: bytes) -> None:
    fact = Finished(reply=2, blob="b")
    values = Values(Large({"b": blob}))
    spoken = [Spoken(1, Said(blob="b")), Spoken(2, Said(payload=text_payload("words")))]
    assert [values.of(item.event) for item in values.ahead(spoken)] == [None, "words"]
    assert values.of(fact) is None
    assert not values.is_clean


@pytest.mark.parametrize("body", [b'["x', b"1,2", b"1]", b'"a', b"{"])
def test_a_payload_that_is_not_one_value_makes_no_event(body: bytes) -> None:
    """So payloads can be decoded together: none begins in one and ends in another."""
    record = JournalRecord(1, 1, "k", 0, b'{"kind":"said","payload":' + body + b"}", b"")
    assert type(event_of(record)) is Unknown
