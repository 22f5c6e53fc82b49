"""Checkpoints as LangGraph.js writes them: JSON, and tables without paths of tasks.

That Node itself takes such threads up again is shown in ``tests/node``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME
from lockstitch.formats.langgraph.codec import JsonCodec
from tests.formats.databases import rows

Run = Callable[..., tuple[int, str]]
Json = dict[str, Any]

TABLES = """
create table checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '',
  checkpoint_id TEXT NOT NULL, parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB,
  metadata BLOB, PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
create table writes (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '',
  checkpoint_id TEXT NOT NULL, task_id TEXT NOT NULL, idx INTEGER NOT NULL,
  channel TEXT NOT NULL, type TEXT, value BLOB,
  PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
"""
# Ids of the input and of the two steps behind it, as LangGraph.js makes them.
INPUT = "1f1e133c-e999-6770-ffff-9f613ce74e25"
FIRST = "1f1e133c-ea00-6020-8000-2499bfac7c67"
SECOND = "1f1e133c-ea93-64e0-8001-f4a203f1ce2c"
UNDEFINED = {"lc": 2, "type": "undefined"}


def message(kind: str, content: Any, **fields: Any) -> Json:
    known = {"content": content, **fields, "additional_kwargs": {}, "response_metadata": {}}
    path = ["langchain_core", "messages", f"{kind}Message"]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": known}


def calls(*ids: str) -> list[Json]:
    return [{"name": "f", "args": {"x": 1}, "id": own, "type": "tool_call"} for own in ids]


HUMAN = message("Human", "hi 👋", id="m1")
REPLY = message("AI", "On it.", tool_calls=calls("a", "b"), invalid_tool_calls=[], id="m2")
RESULT = message("Tool", "the result of a", tool_call_id="a", name="f", artifact=UNDEFINED)


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class Book:
    """A database under construction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path)) as base:
            base.execute("pragma journal_mode = wal")
            base.executescript(TABLES)

    def checkpoint(self, own: str, parent: str | None, values: Json, **more: Any) -> None:
        step = {INPUT: -1, FIRST: 0, SECOND: 1}[own]
        versions = {name: step + 2 for name in values if name != "__pregel_tasks"}
        body = {"v": 4, "id": own, "ts": "2026-11-15T20:26:35.694Z"}
        body |= {"channel_values": {**values, "__pregel_tasks": more.pop("tasks", [])}}
        body |= {"channel_versions": {**versions, **more.pop("versions", {})}}
        body |= {"versions_seen": {"__input__": {}, **more.pop("seen", {})}}
        metadata = {"source": "loop" if step >= 0 else "input", "step": step, "parents": {}, **more}
        self.put("checkpoints", ("t", "", own, parent, "json", text(body), text(metadata)))

    def write(self, own: str, task: str, channel: str, value: Any, index: int = 0) -> None:
        self.put("writes", ("t", "", own, task, index, channel, "json", text(value)))

    def put(self, table: str, values: tuple[Any, ...]) -> None:
        with closing(sqlite3.connect(self.path)) as base, base:
            slots = ", ".join("?" * len(values))
            base.execute(f"insert into {table} values ({slots})", values)  # noqa: S608

    def head(self) -> tuple[Json, Json]:
        query = "select checkpoint, metadata from checkpoints order by checkpoint_id desc"
        with closing(sqlite3.connect(self.path)) as base:
            body, metadata = base.execute(query).fetchone()
        return json.loads(body), json.loads(metadata)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "js.db")


def repaired(book: Book, lockstitch: Run, *words: str) -> tuple[Json, Json]:
    status, printed = lockstitch("repair", "--yes", book.path, *words)
    assert status == 0, printed
    assert lockstitch("check", book.path)[0] == 0
    return book.head()


def conversation(body: Json) -> list[tuple[str, Any]]:
    found = body["channel_values"]["messages"]
    listed = found["value"] if isinstance(found, dict) else found
    return [(one["id"][-1], one["kwargs"]["content"]) for one in listed]


def test_a_batch_that_was_broken_off(book: Book, lockstitch: Run) -> None:
    others = {"jumpTo": UNDEFINED, "seen": {"lc": 2, "type": "constructor", "id": ["Set"]}}
    values = {"messages": [HUMAN, REPLY], "branch:to:tools": "agent", **others}
    book.checkpoint(SECOND, FIRST, values, tasks=[{"node": "tools", "args": {}}])
    book.write(SECOND, "11111111-1111-5111-8111-111111111111", "messages", [RESULT])
    before = rows(book.path)
    body, metadata = repaired(book, lockstitch)
    assert conversation(body) == [
        ("HumanMessage", "hi 👋"),
        ("AIMessage", "On it."),
        ("ToolMessage", "the result of a"),
        ("ToolMessage", UNKNOWN_OUTCOME),
    ]
    made = body["channel_values"]["messages"][-1]
    assert made["id"] == ["langchain_core", "messages", "ToolMessage"]
    assert made["kwargs"].keys() >= {"tool_call_id", "id", "additional_kwargs", "response_metadata"}
    assert body["channel_values"]["messages"][:2] == [HUMAN, REPLY]
    kept = {"messages", *others}
    assert body["channel_values"].keys() == kept
    assert {name: body["channel_values"][name] for name in others} == others
    assert body["channel_versions"]["messages"] == body["channel_versions"]["branch:to:tools"] == 4
    assert body["channel_versions"]["jumpTo"] == 3
    assert metadata["lockstitch"]["repaired"] == SECOND
    lockstitch("undo", "--yes", book.path)
    assert rows(book.path) == before


def test_half_a_character_is_no_damage(book: Book, lockstitch: Run) -> None:
    half = message("Human", "half \ud83d", id="m0")
    values = {"messages": [half, HUMAN, REPLY], "notes": ["\ud83d", 1e3]}
    book.checkpoint(SECOND, FIRST, values)
    body, _ = repaired(book, lockstitch)
    assert body["channel_values"]["notes"] == values["notes"]
    assert [words for _, words in conversation(body)][:2] == ["half \ufffd", "hi 👋"]
    with closing(sqlite3.connect(book.path)) as base:
        [(found,)] = base.execute(
            "select checkpoint from checkpoints order by checkpoint_id desc limit 1"
        )
    assert b'"notes":["\\ud83d",1000.0]' in found


def test_text_in_place_of_bytes_stays_text(book: Book, lockstitch: Run) -> None:
    book.checkpoint(SECOND, FIRST, {"messages": [HUMAN, REPLY]})
    book.write(SECOND, "11111111-1111-5111-8111-111111111111", "messages", [RESULT])
    with closing(sqlite3.connect(book.path)) as base, base:
        base.execute(
            "update checkpoints set checkpoint = cast(checkpoint as text), "
            "metadata = cast(metadata as text), type = null"
        )
        base.execute("update writes set value = cast(value as text), type = null")
    body, _ = repaired(book, lockstitch)
    assert len(conversation(body)) == 4
    with closing(sqlite3.connect(book.path)) as base:
        kinds = base.execute("select typeof(checkpoint), typeof(metadata), type from checkpoints")
        assert set(kinds) == {("text", "text", None)}


def test_what_was_said_before_a_crash(book: Book, lockstitch: Run) -> None:
    said = {"messages": [{"role": "user", "content": "hi"}, ["user", "there"], "you"]}
    book.checkpoint(INPUT, None, {"messages": [], "__start__": said})
    body, _ = repaired(book, lockstitch)
    assert conversation(body) == [
        ("HumanMessage", "hi"),
        ("HumanMessage", "there"),
        ("HumanMessage", "you"),
    ]
    assert all(one["kwargs"]["id"] for one in body["channel_values"]["messages"])
    assert "__start__" not in body["channel_values"]


def test_a_conversation_that_is_stored_as_changes(book: Book, lockstitch: Run) -> None:
    delta = {"lc": 2, "type": "delta_snapshot", "value": [HUMAN]}
    count = {"counters_since_delta_snapshot": {"messages": [1, 1], "files": [1, 2]}}
    book.checkpoint(FIRST, None, {"messages": delta})
    book.write(FIRST, "11111111-1111-5111-8111-111111111111", "messages", [REPLY])
    versions = {"messages": 3}
    book.checkpoint(SECOND, FIRST, {"branch:to:tools": None}, versions=versions, **count)
    book.write(SECOND, "22222222-2222-5222-8222-222222222222", "messages", [RESULT])
    body, metadata = repaired(book, lockstitch)
    kinds = [kind for kind, _ in conversation(body)]
    assert kinds == ["HumanMessage", "AIMessage", "ToolMessage", "ToolMessage"]
    assert body["channel_values"]["messages"]["type"] == "delta_snapshot"
    assert metadata["counters_since_delta_snapshot"] == {"files": [1, 3]}


def test_a_question_is_left_alone(book: Book, lockstitch: Run) -> None:
    values = {"messages": [HUMAN, REPLY], "branch:to:tools": "agent"}
    book.checkpoint(SECOND, FIRST, values)
    task = "11111111-1111-5111-8111-111111111111"
    book.write(SECOND, task, "__interrupt__", {"id": "x", "value": "may I?"}, -3)
    before = rows(book.path)
    status, printed = lockstitch("repair", "--yes", book.path)
    assert (status, "waits for a person" in printed) == (0, True)
    assert rows(book.path) == before
    body, _ = repaired(book, lockstitch, "--force-cleanup")
    assert [text for _, text in conversation(body)[2:]] == [UNKNOWN_OUTCOME] * 2


def test_results_that_a_prompt_has_hidden_since(book: Book, lockstitch: Run) -> None:
    book.checkpoint(FIRST, None, {"messages": [HUMAN, REPLY]})
    book.write(FIRST, "11111111-1111-5111-8111-111111111111", "messages", [RESULT])
    again = message("Human", "still there?", id="m3")
    book.checkpoint(SECOND, FIRST, {"messages": [HUMAN, REPLY, again]})
    book.write(SECOND, "22222222-2222-5222-8222-222222222222", "__error__", {"message": "400"}, -1)
    body, _ = repaired(book, lockstitch)
    assert [text for _, text in conversation(body)] == [
        "hi 👋",
        "On it.",
        "the result of a",
        UNKNOWN_OUTCOME,
        "still there?",
    ]


def test_an_edge_from_several_nodes_is_due_once_all_have_come() -> None:
    coding = JsonCodec()
    assert coding.members(b'["a","b"]') == {"a", "b"}
    assert coding.members(b'{"lc":2,"type":"constructor","id":["Set"],"args":[["a"]]}') == {"a"}
    assert coding.members(b"null") == set()
