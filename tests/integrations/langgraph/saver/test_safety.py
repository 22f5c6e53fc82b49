"""What is stored is built again only if it is known to be harmless; all else is said, loudly."""

from __future__ import annotations

import operator
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypedDict
from uuid import UUID

import ormsgpack
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel

from lockstitch.errors import Unreadable, UsageError
from lockstitch.integrations.langgraph import Saver
from lockstitch.integrations.langgraph.saver.serializer import SafeSerializer, names_in

CONFIG: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


class Point(BaseModel):
    x: int = 1


@dataclass
class Plain:
    y: int = 2


class Mine(AIMessage):
    """A message class of an application's own."""


def checkpoint(**values: Any) -> Any:
    return {
        "v": 4,
        "id": "1f000000-0000-6000-8000-000000000001",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, 1),
        "versions_seen": {},
    }


def stored(saver: Saver, **values: Any) -> Any:
    made = checkpoint(**values)
    saver.put(CONFIG, made, {"source": "loop", "step": 1}, made["channel_versions"])
    found = saver.get_tuple(CONFIG)
    assert found is not None
    return found.checkpoint["channel_values"]


def evil(path: Path) -> bytes:
    """A value that makes LangGraph's own reader run a command."""
    call = ormsgpack.packb(("os", "system", f"touch {path}"))
    return ormsgpack.packb(ormsgpack.Ext(0, call))


VALUES = [
    None,
    "text \0 with \U0001f600",
    "half an emoji \ud83d",
    7,
    2**63,
    1.5,
    float("inf"),
    True,
    b"\x00\xff",
    bytearray(b"x"),
    [1, "two", [3.0, None]],
    (1, (2, 3)),
    {"a": {"b": []}, "": 0},
    {1: "number", (1, 2): "pair"},
    {1, 2},
    frozenset({"x"}),
    Decimal("1.5"),
    datetime(2026, 1, 2, tzinfo=UTC),
    UUID(int=5),
    Path("/a/b"),
    Send("node", {"messages": [HumanMessage("x", id="1")], "n": 1}),
    Interrupt("asked", id="i"),
    Command(update={"a": 1}, goto="b"),
    AIMessage("x", id="1", tool_calls=[{"name": "f", "args": {"n": 1.0}, "id": "c"}]),
    [HumanMessage([{"type": "text", "text": "x"}], id="h"), {"role": "user", "content": "y"}],
    ToolMessage("x", tool_call_id="c", artifact={1, 2}),
    ToolMessage("x", tool_call_id="c", artifact={"plain": [1]}, status="error"),
    {"messages": [HumanMessage("x")], "deep": {"deeper": [AIMessage("y")]}},
    _DeltaSnapshot([HumanMessage("x", id="1")]),
    HumanMessage("x", extra_field={"a": 1}),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda one: type(one).__name__)
def test_what_langgraph_can_store_comes_back_as_from_langgraph(path: Path, value: Any) -> None:
    expected = SafeSerializer().loads_typed(SafeSerializer().dumps_typed(value))
    with Saver(f"sqlite:///{path}") as saver:
        assert stored(saver, x=value)["x"] == expected
    with Saver(f"sqlite:///{path}") as cold:
        found = cold.get_tuple(CONFIG)
        assert found is not None
        again = found.checkpoint["channel_values"]["x"]
    assert again == expected
    assert type(again) is type(expected)


def test_a_value_that_runs_code_runs_none(path: Path, tmp_path: Path) -> None:
    mark = tmp_path / "it ran"
    with pytest.raises(Unreadable, match=r"os\.system"):
        SafeSerializer().loads_typed(("msgpack", evil(mark)))
    assert names_in(evil(mark)) == [("os", "system")]
    with Saver(f"sqlite:///{path}") as saver:
        stored(saver, x={1: "to be replaced"})
    swap(path, evil(mark))
    with (
        Saver(f"sqlite:///{path}") as saver,
        pytest.raises(Unreadable, match=r"os\.system") as told,
    ):
        saver.get_tuple(CONFIG)
    assert "allow" in str(told.value)
    assert not mark.exists()


def swap(path: Path, value: bytes) -> None:
    """Write another value into the database, with right checksums, as somebody evil could."""
    import msgspec

    from lockstitch.journal.records import NEW, JournalEntry
    from lockstitch.stores.sqlite import SqliteBackend

    with SqliteBackend(path) as backend:
        name = next(iter(backend.sessions())).session
        bodies = [record.body for record in backend.read(name)]
        lease = backend.acquire(name)
        lines = [msgspec.json.decode(body) for body in bodies]
        from base64 import b64encode

        lines[-1]["values"] = {"x": {"t": "msgpack", "b": b64encode(value).decode()}}
        entries = [
            JournalEntry(f"k{n}", 1, msgspec.json.encode(one)) for n, one in enumerate(lines)
        ]
        backend.replace(lease, entries, len(bodies))
        assert backend.head(name) != NEW


def test_a_class_of_ones_own_is_refused_when_it_is_written(quick: Saver) -> None:
    for value in (Point(), Plain(), [Point()], {"deep": [{"er": Plain()}]}, Mine("x")):
        with pytest.raises(UsageError, match="nothing was written") as told:
            stored(quick, x=value)
        assert __name__ in str(told.value)
        assert "allow=" in str(told.value)
    assert quick.get_tuple(CONFIG) is None


def test_a_class_that_is_allowed_comes_back(path: Path) -> None:
    allow = [Point, (Plain.__module__, "Plain"), Mine]
    with Saver(f"sqlite:///{path}", allow=allow) as saver:
        found = stored(saver, x=Point(x=3), y=[Plain(4)], z=[Mine("x", id="1")])
        assert found == {"x": Point(x=3), "y": [Plain(4)], "z": [Mine("x", id="1")]}
    with Saver(f"sqlite:///{path}") as strict:
        with pytest.raises(Unreadable, match="Point"):
            strict.get_tuple(CONFIG)
        more = strict.with_allowlist([(__name__, "Point"), (__name__, "Plain"), (__name__, "Mine")])
        again = more.get_tuple(CONFIG)
        assert again is not None
        assert again.checkpoint["channel_values"] == found


def test_a_class_that_has_changed_is_not_a_bare_dictionary(path: Path) -> None:
    with Saver(f"sqlite:///{path}", allow=[Plain]) as saver:
        stored(saver, x=Plain())
    tag, data = SafeSerializer([Plain]).dumps_typed(Plain())
    gone = data.replace(b"Plain", b"Gonee")
    with pytest.raises(Unreadable, match="cannot be built"):
        SafeSerializer([(__name__, "Gonee")]).loads_typed((tag, gone))


def test_pickle_is_never_read() -> None:
    with pytest.raises(Unreadable, match="pickle"):
        SafeSerializer().loads_typed(("pickle", b"cos\nsystem\n(S'true'\ntR."))


class Mask:
    """No cipher, but nothing can be read through it."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "mask", bytes(byte ^ 0xA5 for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "mask"
        return self.encrypt(ciphertext)[1]


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]
    log: Annotated[list[Any], operator.add]


def test_everything_can_be_encrypted(path: Path) -> None:
    serde = EncryptedSerializer(Mask())

    def act(_state: State) -> dict[str, Any]:
        return {"messages": [AIMessage("SECRET reply")], "log": ["SECRET log"]}

    config: Any = {"configurable": {"thread_id": "1"}}
    for turn in range(3):
        with Saver(f"sqlite:///{path}", serde=serde) as saver:
            graph = StateGraph(State).add_node(act).add_edge(START, "act").compile(saver)
            graph.invoke({"messages": [HumanMessage("SECRET input")], "log": []}, config)
            assert len(graph.get_state(config).values["messages"]) == 2 * turn + 2
    with sqlite3.connect(path) as base:
        bodies = b"".join(body for (body,) in base.execute("select body from pieces"))
    base.close()
    assert b"SECRET" not in bodies


def test_a_large_value_is_kept_apart_and_verified(path: Path) -> None:
    large = "x" * 300_000
    with Saver(f"sqlite:///{path}") as saver:
        found = stored(saver, x=large, y={1: large}, messages=[HumanMessage(large, id="1")])
        assert found["x"] == found["y"][1] == found["messages"][0].content == large
    with sqlite3.connect(path) as base:
        [(count,)] = base.execute("select count(*) from blobs")
        [(most,)] = base.execute("select sum(length(body)) from pieces")
    base.close()
    assert count == 3
    assert most < 4000
    with Saver(f"sqlite:///{path}") as saver:
        again = saver.get_tuple(CONFIG)
        assert again is not None
        assert again.checkpoint["channel_values"] == found
