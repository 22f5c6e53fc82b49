"""Message lists as people keep them: JSON documents, request bodies, JSONL."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.oracles import problems as refused

from .stored import Json, Marks, Stored, of_file, read_lines, torn

TOOL = {"name": "bash", "input_schema": {"type": "object"}}


def _anthropic(marks: Marks, *, answered: bool) -> list[Json]:
    call = {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "bash",
        "input": {"command": marks.words("ls")},
    }
    messages: list[Json] = [
        {"role": "user", "content": marks.words("List the files.")},
        {"role": "assistant", "content": [{"type": "text", "text": marks.words("I look.")}, call]},
    ]
    if answered:
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": marks.words("a.txt")}
        messages.append({"role": "user", "content": [result]})
        messages.append({"role": "assistant", "content": marks.words("One file.")})
    return [*messages, {"role": "user", "content": marks.words("And?")}]


def _chat(marks: Marks, *, answered: bool) -> list[Json]:
    arguments = json.dumps({"command": marks.words("ls")})
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "bash", "arguments": arguments},
    }
    messages: list[Json] = [
        {"role": "user", "content": marks.words("List the files.")},
        {"role": "assistant", "content": marks.words("I look."), "tool_calls": [call]},
    ]
    if answered:
        content = marks.words("a.txt")
        messages.append({"role": "tool", "tool_call_id": "call_1", "content": content})
    return [*messages, {"role": "user", "content": marks.words("And?")}]


def _document(name: str, value: Any, marks: Marks, dialect: str, *, healthy: bool) -> Stored:
    data = json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
    return of_file(
        name,
        format="list",
        path=f"project/{name}.json",
        session="",
        data=data,
        problems=lambda given: refused(dialect, json.loads(given)),
        sent=json.loads,
        marks=marks,
        healthy=healthy,
    )


def _lines(name: str, data: bytes, marks: Marks, dialect: str, **fields: Any) -> Stored:
    return of_file(
        name,
        format="list",
        path=f"project/{name}.jsonl",
        session="",
        data=data,
        problems=lambda given: _line_problems(dialect, given),
        sent=lambda given: read_lines(given)[0],
        marks=marks,
        **fields,
    )


def _line_problems(dialect: str, data: bytes) -> list[str]:
    lines, found = read_lines(data)
    return found + refused(dialect, lines)


def _dump(messages: list[Json]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def _cases() -> Iterable[Stored]:
    for answered in (True, False):
        word = "healthy" if answered else "open_call"
        marks = Marks(f"plain_list_{word}")
        messages = _anthropic(marks, answered=answered)
        yield _document(f"list_{word}", messages, marks, "anthropic", healthy=answered)
        marks = Marks(f"plain_body_{word}")
        body = {"model": "claude-sonnet-4-5", "max_tokens": 100, "tools": [TOOL]}
        value = {**body, "messages": _anthropic(marks, answered=answered), "x": 1.0}
        yield _document(f"body_{word}", value, marks, "anthropic", healthy=answered)
        marks = Marks(f"plain_chat_{word}")
        data = _dump(_chat(marks, answered=answered))
        yield _lines(f"chat_{word}", data, marks, "openai-chat", healthy=answered)
    marks = Marks("plain_lines_torn")
    data = torn(_dump(_chat(marks, answered=True)), marks.last, more=0)
    yield _lines("lines_torn", data, marks, "openai-chat", spare=(marks.last,))


CASES: list[Stored] = list(_cases())
