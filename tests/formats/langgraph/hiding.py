"""Values that make a folder when LangGraph loads them, in every form and hidden in every place."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, TypedDict

import psycopg
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from msgspec import Raw
from msgspec.msgpack import Ext, decode, encode

THREAD, RUN, LASTING = "thread", "inner:0f5d", "inner"
Hide = Callable[[Any, str, bytes], None]


class State(TypedDict):
    """A conversation."""

    messages: Annotated[list[AnyMessage], add_messages]


class _Pickled:
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def forms(path: Path) -> dict[str, tuple[str, bytes]]:
    """The tag and the bytes of each value."""
    call = Ext(0, encode(["os", "mkdir", str(path)]))
    order = {"lc": 2, "type": "constructor", "id": ["os", "mkdir"], "args": [str(path)]}
    text = json.dumps([order])
    twice = b"\x82\xa1a" + encode(call) + b"\xa1a\x01"
    return {
        "msgpack": ("msgpack", encode(call)),
        "msgpack in an object": ("msgpack", encode(Ext(2, encode(["app", "Thing", {"a": call}])))),
        "msgpack in a snapshot": ("msgpack", encode(Ext(7, encode([call])))),
        "msgpack under a key that stands there twice": ("msgpack", twice),
        "msgpack that breaks off": ("msgpack", b"\x92" + encode(call)),
        "msgpack with more behind it": ("msgpack", encode([call]) + b"more"),
        "msgpack with more in it": (
            "msgpack",
            encode(Ext(0, encode(["os", "mkdir", str(path)]) + b"more")),
        ),
        "json": ("json", text.encode()),
        "json with letters as numbers": ("json", text.replace('"lc"', '"\\u006cc"').encode()),
        "json with a key that stands there twice": (
            "json",
            text.replace('"lc": 2', '"lc": 1, "lc": 2').encode(),
        ),
        "json that is hidden by a key that stands there twice": (
            "json",
            f'{{"a": {text}, "a": 1}}'.encode(),
        ),
        "json that breaks off": ("json", text[:-1].encode()),
        "json of another encoding": ("json", text.encode("utf-16")),
        "json with a broken number": ("json", text.replace('"lc": 2', '"lc": 2.0').encode()),
        "pickle": ("pickle", pickle.dumps(_Pickled(path))),
    }


def talk(saver: Any) -> None:
    """Two whole turns of a thread, so that there are older checkpoints, with writes on each."""
    graph = StateGraph(State).add_node("reply", lambda _: {"messages": [AIMessage("ok")]})
    made = graph.add_edge(START, "reply").compile(checkpointer=saver)
    for words in ("hi", "and now?"):
        made.invoke({"messages": [HumanMessage(words)]}, config())


def config(namespace: str = "") -> Any:
    """What names the thread to LangGraph."""
    return {"configurable": {"thread_id": THREAD, "checkpoint_ns": namespace}}


# SQLite

HEAD = f"(select max(checkpoint_id) from checkpoints where thread_id = '{THREAD}')"  # noqa: S608
FIRST = HEAD.replace("max", "min")


def changed(path: Path, statement: str, *values: Any) -> None:
    """Run one statement."""
    with closing(sqlite3.connect(path)) as base, base:
        assert base.execute(statement, values).rowcount == 1


def _in_row(which: str, *fields: str) -> Hide:
    def hide(path: Path, tag: str, data: bytes) -> None:
        value: Any = data
        if fields:
            with closing(sqlite3.connect(path)) as base:
                query = f"select checkpoint from checkpoints where checkpoint_id = {which}"  # noqa: S608
                [(old,)] = base.execute(query)
            assert tag == "msgpack"
            whole = decode(old, type=dict[str, Raw])
            outer, *inner = fields
            held = decode(whole.get(outer, b"\x80"), type=dict[str, Raw]) if inner else {}
            new = encode({**held, inner[0]: Raw(data)}) if inner else data
            value = encode({**whole, outer: Raw(new)})
        statement = f"update checkpoints set type = ?, checkpoint = ? where checkpoint_id = {which}"  # noqa: S608
        changed(path, statement, tag, value)

    return hide


def _namespace(namespace: str) -> Hide:
    def hide(path: Path, tag: str, data: bytes) -> None:
        copy = (
            "insert into checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, checkpoint, "  # noqa: S608
            f"metadata) select thread_id, '{namespace}', checkpoint_id, ?, ?, metadata from "
            f"checkpoints where checkpoint_id = {HEAD}"
        )
        changed(path, copy, tag, data)

    return hide


def _write(which: str, namespace: str = "") -> Hide:
    def hide(path: Path, tag: str, data: bytes) -> None:
        if namespace:
            whole = f"select checkpoint from checkpoints where checkpoint_id = {HEAD}"  # noqa: S608
            with closing(sqlite3.connect(path)) as base:
                [(old,)] = base.execute(whole)
            _namespace(namespace)(path, "msgpack", old)
        insert = (
            "insert into writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, "
            f"type, value) select '{THREAD}', '{namespace}', {which}, 'task', 7, 'x', ?, ?"
        )
        changed(path, insert, tag, data)

    return hide


SQLITE: dict[str, Hide] = {
    "a channel of the head": _in_row(HEAD, "channel_values", "x"),
    "the head, outside its channels": _in_row(HEAD, "extra"),
    "the versions of the head": _in_row(HEAD, "channel_versions", "x"),
    "the head as a whole": _in_row(HEAD),
    "a channel of an older checkpoint": _in_row(FIRST, "channel_values", "x"),
    "an older checkpoint, outside its channels": _in_row(FIRST, "extra"),
    "an older checkpoint as a whole": _in_row(FIRST),
    "a write on the head": _write(HEAD),
    "a write on an older checkpoint": _write(FIRST),
    "a run of a subgraph": _namespace(RUN),
    "a write in a run of a subgraph": _write(HEAD, RUN),
    "a subgraph with a memory": _namespace(LASTING),
    "a write in a subgraph with a memory": _write(HEAD, LASTING),
}

# PostgreSQL


def _row(dsn: str, statement: str, *values: Any) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert connection.execute(statement, values).rowcount == 1  # type: ignore[arg-type]


def _blob(order: str, namespace: str = "") -> Hide:
    """A blob that a checkpoint of its own refers to by a version of its own."""

    def hide(dsn: str, tag: str, data: bytes) -> None:
        if namespace:
            _copied(dsn, namespace)
        picked = (
            f"SELECT checkpoint_id FROM checkpoints WHERE checkpoint_ns = '{namespace}' "  # noqa: S608
            f"ORDER BY checkpoint_id {order} LIMIT 1"
        )
        _row(
            dsn,
            "UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, "  # noqa: S608
            "'{channel_versions,x}', '\"7\"') "
            f"WHERE checkpoint_ns = '{namespace}' AND checkpoint_id = ({picked})",
        )
        _row(
            dsn,
            "INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob) "
            "VALUES (%s, %s, 'x', '7', %s, %s)",
            *(THREAD, namespace, tag, data),
        )

    return hide


def _copied(dsn: str, namespace: str) -> None:
    _row(
        dsn,
        "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, checkpoint, metadata) "
        "SELECT thread_id, %s, checkpoint_id, jsonb_set(checkpoint, '{channel_versions}', '{}'), "
        "metadata FROM checkpoints ORDER BY checkpoint_id DESC LIMIT 1",
        namespace,
    )


def _row_write(order: str, namespace: str = "") -> Hide:
    def hide(dsn: str, tag: str, data: bytes) -> None:
        if namespace:
            _copied(dsn, namespace)
        _row(
            dsn,
            "INSERT INTO checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, "  # noqa: S608
            "channel, type, blob) SELECT thread_id, checkpoint_ns, checkpoint_id, 'task', 7, 'x', "
            f"%s, %s FROM checkpoints WHERE checkpoint_ns = '{namespace}' "
            f"ORDER BY checkpoint_id {order} LIMIT 1",
            *(tag, data),
        )

    return hide


POSTGRES: dict[str, Hide] = {
    "a channel of the head": _blob("DESC"),
    "a channel of an older checkpoint": _blob("ASC"),
    "a write on the head": _row_write("DESC"),
    "a write on an older checkpoint": _row_write("ASC"),
    "a run of a subgraph": _blob("DESC", RUN),
    "a write in a run of a subgraph": _row_write("DESC", RUN),
    "a subgraph with a memory": _blob("DESC", LASTING),
    "a write in a subgraph with a memory": _row_write("DESC", LASTING),
}
