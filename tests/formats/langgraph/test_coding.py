"""Stored values against LangGraph's own serializer: read without running anything."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite
from msgspec.msgpack import Ext, encode

from lockstitch.formats.langgraph.codec import (
    Codec,
    JsonCodec,
    MsgpackCodec,
    Undecodable,
    new_codecs,
)
from lockstitch.formats.langgraph.safety import names_in, unsafe_names

from .graphs import Colour, Note

SERDE = JsonPlusSerializer()
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CALL = {"name": "f", "args": {"x": [1, {"y": None}]}, "id": "c1", "type": "tool_call"}
MESSAGES: list[BaseMessage] = [
    HumanMessage("hi", id="1", name="ada"),
    HumanMessage([{"type": "text", "text": "hi"}, {"type": "image", "url": "x"}], id="2"),
    AIMessage(
        "", tool_calls=[CALL], id="3", response_metadata={"at": datetime(2026, 1, 1, tzinfo=UTC)}
    ),
    AIMessage(
        [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "ö"}],
        id="4",
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    ),
    ToolMessage("done", tool_call_id="c1", artifact=Note("n", Colour.RED, {"a"}), id="5"),
    SystemMessage("be good", id="6"),
    FunctionMessage("x", name="f", id="7"),
    ChatMessage("x", role="critic", id="8"),
    AIMessageChunk("part", id="9"),
    RemoveMessage(id="10"),
]
SAFE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.just(UTC))
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False)
    | st.sampled_from(MESSAGES)
    | st.frozensets(st.text(), max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def packed(value: Any) -> bytes:
    tag, data = SERDE.dumps_typed(value)
    assert tag == "msgpack"
    return data


def loaded(data: bytes) -> Any:
    return SERDE.loads_typed(("msgpack", data))


@given(st.dictionaries(st.text(), SAFE, max_size=5))
def test_a_map_comes_apart_and_together_again(value: dict[str, Any]) -> None:
    coding = MsgpackCodec()
    data = packed(value)
    fields = coding.fields(data)
    assert coding.join_map(fields) == data
    assert [*fields] == [*value]
    assert all(coding.encode(coding.plain(part)) for part in fields.values())
    found = names_in(coding, data)
    assert found.fault == ""
    assert {name.module for name in unsafe_names(found.names)} <= {Note.__module__}


@given(st.lists(SAFE, max_size=6))
def test_a_list_comes_apart_and_together_again(value: list[Any]) -> None:
    coding = MsgpackCodec()
    data = packed(value)
    assert coding.join_list(coding.items(data) or []) == data


@given(SAFE)
def test_what_stands_for_an_object_is_written_as_that_object(value: Any) -> None:
    coding = MsgpackCodec()
    data = packed([value])
    assert loaded(coding.encode(coding.plain(data))) == loaded(data)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.type)
def test_a_message_is_read_as_its_fields(message: BaseMessage) -> None:
    coding = MsgpackCodec()
    item = coding.message(packed([message])[1:])
    assert item is not None
    assert (item.id, item.type, item.raw) == (message.id, message.type, packed([message])[1:])
    assert item.view["content"] == message.content
    assert item.view.keys() == message.model_dump().keys()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.type)
def test_a_changed_message_keeps_all_but_the_change(message: BaseMessage) -> None:
    coding = MsgpackCodec()
    item = coding.message(packed([message])[1:])
    assert item is not None
    written = coding.write_message({**item.view, "content": "other"}, item)
    [own] = loaded(packed([message]))
    assert loaded(coding.join_list([written])) == [own.model_copy(update={"content": "other"})]


@pytest.mark.parametrize(
    "message",
    [
        ToolMessage("no", tool_call_id="c1", status="error", name="f", id="x"),
        HumanMessage("hi", id="x"),
        AIMessage("hi", id="x"),
        SystemMessage("hi", id="x"),
    ],
    ids=lambda message: message.type,
)
def test_a_new_message_is_the_one_that_langchain_makes(message: BaseMessage) -> None:
    brief = message.model_dump(exclude_defaults=True, exclude_none=True)
    written = MsgpackCodec().write_message({**brief, "type": message.type}, None)
    [made] = loaded(MsgpackCodec().join_list([written]))
    assert (made, type(made)) == (message, type(message))


def test_wrappings_are_told_and_taken_off() -> None:
    coding = MsgpackCodec()
    inner = packed(["a"])
    assert coding.unwrap(packed(_DeltaSnapshot(["a"]))) == inner
    assert loaded(coding.wrap(inner)) == _DeltaSnapshot(["a"])
    assert coding.unwrap(inner) == inner
    for form in (
        Overwrite(["a"]),
        {"__overwrite__": ["a"]},
        {"type": "__overwrite__", "value": ["a"]},
    ):
        assert coding.replacement_in(packed(form)) == inner
    for other in (["a"], {"value": ["a"]}, "a", None):
        assert coding.replacement_in(packed([other])[1:]) is None


def test_names_of_an_application_are_told() -> None:
    value = {"a": [Note("n", Colour.RED, {"x"})], "b": (date(2026, 1, 2), timedelta(1), Decimal(1))}
    found = names_in(MsgpackCodec(), packed(value))
    assert {str(name): severity for name, severity in unsafe_names(found.names).items()} == {
        "tests.formats.langgraph.graphs.Note": "warning",
        "tests.formats.langgraph.graphs.Colour": "warning",
    }


# Values that run code


def crafted(path: Path) -> dict[str, bytes]:
    """Values that make a folder when LangGraph loads them, each hidden in another way."""
    order = ["os", "mkdir", str(path)]
    call = Ext(0, encode(order))
    said = Ext(3, encode(["x", "y", "os", "z"]))
    message = ToolMessage("x", tool_call_id="c", id="1").model_dump() | {"artifact": call}
    where = ["langchain_core.messages.tool", "ToolMessage", message, "model_validate_json"]
    return {
        "bare": encode(call),
        "nested": encode({"a": [{"b": call}]}),
        "inner": encode(Ext(7, encode([Ext(2, encode(["app", "Thing", {"field": call}]))]))),
        "by position": encode(Ext(1, encode(["os", "mkdir", [str(path)]]))),
        "in a map": encode(Ext(0, encode(dict(enumerate(order))))),
        "by another name": encode(Ext(0, encode([said, "mkdir", str(path)]))),
        "beside damage": encode([call, Ext(5, b"\xc1")]),
        "in a message": encode([Ext(5, encode(where))]),
    }


@pytest.mark.parametrize("how", list(crafted(Path("x"))))
def test_what_runs_code_in_langgraph_does_nothing_here(how: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    data = crafted(made)[how]
    coding = MsgpackCodec()
    found = unsafe_names(names_in(coding, data).names)
    for step in (coding.plain, coding.message, coding.items, coding.unwrap, coding.is_plain):
        step(data)
    assert not made.exists()
    assert "error" in found.values()
    loaded(data)
    assert made.exists(), "the value is as harmful as it is said to be"


def test_old_json_names_are_told() -> None:
    value = {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["x"]}
    found = names_in(JsonCodec(), msgspec.json.encode({"a": [value]}))
    assert {str(name): severity for name, severity in unsafe_names(found.names).items()} == {
        "os.system": "error"
    }
    harmless = {"lc": 2, "type": "constructor", "id": ["Set"], "method": None, "args": [["a"]]}
    assert names_in(JsonCodec(), msgspec.json.encode([harmless])).names == ()


# Bytes that are nothing


def torn(data: bytes, at: int, change: bytes) -> bytes:
    place = at % (len(data) + 1)
    return data[:place] + change + data[place + len(change) :]


BLOBS = [
    packed({"channel_values": {"messages": MESSAGES}, "v": 4}),
    packed(MESSAGES),
    packed(_DeltaSnapshot(MESSAGES[:3])),
    packed(Overwrite(MESSAGES[:2])),
    packed({"uuid": UUID(int=1), "set": {1}, "path": Path("/x")}),
    msgspec.json.encode({"lc": 1, "type": "constructor", "id": ["a", "AIMessage"], "kwargs": {}}),
    msgspec.json.encode([{"lc": 2, "type": "delta_snapshot", "value": [{"role": "user"}]}]),
]
DAMAGED = st.binary(max_size=60) | st.builds(
    torn, st.sampled_from(BLOBS), st.integers(0, 5000), st.binary(max_size=4)
)


def steps(coding: Codec) -> list[Any]:
    return [
        coding.fields,
        coding.items,
        coding.plain,
        coding.is_plain,
        coding.message,
        coding.unwrap,
        coding.replacement_in,
        coding.members,
        partial(names_in, coding),
    ]


@given(DAMAGED, st.integers(0, 400))
def test_damage_is_said_and_nothing_else_happens(data: bytes, end: int) -> None:
    for coding in new_codecs().values():
        for piece in (data, data[: len(data) - end]):
            for step in steps(coding):
                with suppress(Undecodable):
                    step(piece)


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * 200_000,
        b"\xdd\xff\xff\xff\xff" * 3,
        b"\xc9\xff\xff\xff\xff\x05",
        b"[" * 200_000,
        b'{"a":' * 100_000,
        os.urandom(3000),
    ],
    ids=["deep list", "long list", "long object", "deep json", "deep map", "noise"],
)
def test_hostile_bytes_cost_little(data: bytes) -> None:
    for coding in new_codecs().values():
        for step in steps(coding):
            with suppress(Undecodable):
                step(data)


def test_objects_in_objects_end_somewhere() -> None:
    data = encode("x")
    for _ in range(500):
        data = encode(Ext(0, b"\x93\xa1a\xa1b" + data))
    found = names_in(MsgpackCodec(), data)
    assert found.fault == "it is nested too deeply"
    assert [str(name) for name in found.names] == ["a.b"]
