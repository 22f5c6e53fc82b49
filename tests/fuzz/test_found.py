"""What the fuzzer has found, each with the smallest session that shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .life import lived
from .mutants import Mutant


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def codex(**payload: Any) -> Any:
    return {"type": "response_item", "payload": payload}


def claude(name: str, parent: str | None, kind: str, content: Any, **message: Any) -> Any:
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "type": kind,
        "message": {"role": kind, "content": content, **message},
        "uuid": name,
        "timestamp": "2026-09-01T10:00:00.000Z",
        "sessionId": "14649d9a-b272-4fab-9fae-4ac687fa36ae",
        "version": "2.1.325",
        "cwd": "/home/ada/project",
    }


def result(key: Any) -> Any:
    return {"type": "tool_result", "tool_use_id": key, "content": "built"}


def call(key: Any) -> Any:
    return {"type": "tool_use", "id": key, "name": "Bash", "input": {}}


OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "port = 8080"}
SESSION = {"type": "session", "version": 3, "id": "019f6c9f-344e-7189-8b74-721a99c1c579"}
TALK = [{"role": "user", "content": [{"text": "Hi."}]}]
ASSISTANT = {"role": "assistant", "content": [{"text": "One."}]}
EXPORT = {
    "info": {"id": "ses_1"},
    "messages": [
        {"info": {"id": "msg_1", "role": "user"}, "parts": [{"type": "text", "text": "Go."}]},
        {
            "info": {"id": "msg_2", "role": "assistant", "time": {"created": 1}},
            "parts": [
                {
                    "type": "tool",
                    "id": "prt_1",
                    "callID": "toolu_1",
                    "tool": "bash",
                    "state": {"status": "running", "input": {}, "time": {"start": 1}},
                }
            ],
        },
        {"info": {"id": "msg_3", "role": "user"}, "parts": [{"type": "text", "text": "Go on."}]},
    ],
}
DEEP = b'{"a":' * 3000 + b"1" + b"}" * 3000

FOUND: dict[str, tuple[str, str, bytes, tuple[str, ...]]] = {
    "a compaction that keeps what is no id": (
        "claude-code",
        "a30021dd-46f0-47d6-9e0f-91ed73eea63b.jsonl",
        lines(
            {
                **claude("b", None, "system", ""),
                "subtype": "compact_boundary",
                "compactMetadata": {"preservedMessages": {"uuids": ["gone"], "allUuids": [[]]}},
            },
            {**claude("c", "b", "user", "We looked at it."), "isCompactSummary": True},
        ),
        (),
    ),
    "a reply without anything, alone": (
        "claude-code",
        "a30021dd-46f0-47d6-9e0f-91ed73eea63b.jsonl",
        lines(claude("c", "b", "assistant", [])),
        (),
    ),
    "words that are nested deeply": (
        "gemini-cli",
        ".gemini/tmp/project/chats/session-2026-09-01T10-00-bd7679c0.jsonl",
        lines({"sessionId": "bd7679c0", "projectHash": "24", "startTime": "2026-09-01T10:00:00Z"})
        + b'{"id":"52","type":"user","content":[{"text":"Read","":'
        + b"[" * 900
        + b"]" * 900
        + b"}]}"
        b'{"id":"a5","type":"gemini","content":"I look","toolCalls":[]}\n',
        (),
    ),
    "a repair that leaves nothing is not made": (
        "gemini-cli",
        ".gemini/tmp/project/chats/session-2026-09-01T10-00-bd7679c0.jsonl",
        lines({"sessionId": {}, "projectHash": "24", "startTime": "2026-09-01T10:00:00.000Z"})
        + b'{"id":"a5","type":"gemini","content":"","toolCalls":[{"id":"c","name":"n","args":{},'
        b'"status":"executing"}]}{"id":"5',
        ("--force-cleanup",),
    ),
    "a repair that comes to nothing is not made": (
        "gemini-cli",
        "session-2026-09-01T10-00-6a49c5a2.jsonl",
        lines(
            {"id": "ab0004", "type": "user", "content": []},
            {"id": "69", "type": "gemini", "content": "I look", "toolCalls": [{"text": "Read"}]},
        ),
        (),
    ),
    "what the first repair uncovers is repaired with it": (
        "codex",
        "rollout-2026-09-01T10-00-00-019fb9ea-1842-7a94-8abf-3c1cbb4155f9.jsonl",
        lines(codex(**OUTPUT), {"timestamp": "2026-0", **codex(**OUTPUT)}),
        ("--format", "codex"),
    ),
    "a cleanup does not empty a file": (
        "gemini-cli",
        "session-2026-09-01T10-00-6a49c5a2.jsonl",
        b'{"id":"c2d3a4","type":"gemini","content":"Done."}',
        ("--force-cleanup",),
    ),
    "a list that is cut off is not taken for lines": (
        "list",
        "it.json",
        json.dumps([{"role": "user", "content": "Hi."}] * 4, indent=2).encode()[:-30],
        (),
    ),
    "every line that goes is named": (
        "gemini-cli",
        "session-2026-09-01T10-00-6a49c5a2.jsonl",
        lines(
            {"id": "e05c300101d5"},
            {"id": "e05c300101d5", "type": "user", "content": [{}]},
            {"id": "98b866", "type": "info", "content": ["Checkpoint"]},
            {"id": "98b867", "type": "user", "content": [{"text": "Hi."}]},
        ),
        (),
    ),
    "the next prompt can become part of a message": (
        "requests",
        "log.jsonl",
        lines({"messages": [ASSISTANT]}) + b'{"messages":[{"role":"user","content":[{"toolUse"',
        ("--format", "requests"),
    ),
    "a value that no decoder takes is kept with the backup": (
        "list",
        "it.json",
        json.dumps([{"role": "assistant", "content": [{"type": "thinking", "thinking": 77777}]}])
        .encode()
        .replace(b"77777", b"7" * 5000),
        ("--format", "list"),
    ),
    "an undo of what took a deep value out": (
        "list",
        "it.json",
        b'[{"role":"user","content":"Hi."},{"role":"assistant","content":"Yes.","tool_calls":['
        b'{"id":"call00001","type":"function","function":'
        + b'{"a":' * 1500
        + b"1"
        + b"}" * 1500
        + b"}]}]",
        (),
    ),
    "a long number where the folder of a rollout is looked for": (
        "codex",
        "rollout-2026-09-01T10-00-00-019fb9ea-1842-7a94-8abf-3c1cbb4155f9.jsonl",
        b'{"timestamp":"2026-09-01T10:00:03.655Z","type":"response_item","payload":{"type":'
        + b"7" * 4500
        + b"}}\n",
        ("--format", "codex"),
    ),
    "a deep line where the head of a rollout belongs": (
        "codex",
        "rollout-2026-09-01T10-00-00-019fb9ea-1842-7a94-8abf-3c1cbb4155f9.jsonl",
        b'{"type":"session_meta","payload":' + DEEP + b"}\n" + lines(codex(**OUTPUT)),
        ("--format", "codex"),
    ),
    "a deep line where the head of a pi session belongs": (
        "pi",
        "2026-09-01T10-00-00-000Z_019f1728-c1c1-7ed4-8f40-5250cbcb22e2.jsonl",
        b'{"type":"session","cwd":' + DEEP + b"}\n" + lines({"type": "message", "id": "1"}),
        ("--format", "pi"),
    ),
    "a folder with a NUL in its name": (
        "pi",
        "2026-09-01T10-00-00-000Z_019f1728-c1c1-7ed4-8f40-5250cbcb22e2.jsonl",
        lines({**SESSION, "timestamp": "2026-09-01T10:00:00.000Z", "cwd": "/home\0/ada"}) + b"{",
        (),
    ),
    "a folder with half a character in its name": (
        "pi",
        "2026-09-01T10-00-00-000Z_019f1728-c1c1-7ed4-8f40-5250cbcb22e2.jsonl",
        lines({**SESSION, "timestamp": "2026-09-01T10:00:00.000Z", "cwd": "/\ud83d"}) + b"{",
        (),
    ),
    "half a character in the id of a session of pi": (
        "pi",
        "2026-09-01T10-00-00-000Z_019f1728-c1c1-7ed4-8f40-5250cbcb22e2.jsonl",
        lines(
            {**SESSION, "id": "\ud83d", "timestamp": "2026-09-01T10:00:00.000Z", "cwd": "/x"},
            {
                "type": "message",
                "id": "1",
                "parentId": None,
                "message": {
                    "role": "assistant",
                    "content": [
                        {"type": "toolCall", "id": "toolu_1", "name": "x", "arguments": {}}
                    ],
                },
            },
        ),
        (),
    ),
    "half a character in the id of a record of Claude Code": (
        "claude-code",
        "it.jsonl",
        lines(
            claude("a\ud83d", None, "user", "Go."),
            claude("b\ud83d", "a\ud83d", "assistant", [call("toolu_1")], id="msg_1"),
            claude("c", "b\ud83d", "user", "Well?"),
        ),
        (),
    ),
    "half a character in the id of a message of Gemini CLI": (
        "gemini-cli",
        "session-2026-09-01T10-00-6a49c5a2.jsonl",
        lines(
            {"sessionId": "\ud83d", "projectHash": "x", "startTime": "x", "lastUpdated": "x"},
            {"id": "\ud83d", "type": "gemini", "content": "Done."},
        ),
        (),
    ),
    "a session behind a bracket": (
        "gemini-cli",
        "session-2026-09-01T10-00-6a49c5a2.jsonl",
        b"[]"
        + lines(
            {"sessionId": "6a49", "projectHash": "x", "startTime": "x", "lastUpdated": "x"},
            {"id": "319d20", "type": "user", "content": [{"text": "Run."}]},
            {"id": "a5", "type": "gemini", "content": "So", "toolCalls": [{"name": "run"}]},
        ),
        (),
    ),
    "an export with values of other kinds everywhere": (
        "opencode-export",
        "it.json",
        json.dumps({"info": [], "messages": [3, {"info": 3}, {"parts": {}}, {}]}).encode(),
        ("--format", "opencode-export"),
    ),
    "an export whose first message is none": (
        "opencode-export",
        "it.json",
        json.dumps(
            {
                "info": {"id": "ses_1", "directory": ["x"]},
                "messages": [
                    {"info": None, "parts": []},
                    {
                        "info": {"id": "msg_1", "role": "assistant"},
                        "parts": [{"id": "prt_1", "type": "text", "text": "One."}],
                    },
                ],
            }
        ).encode(),
        (),
    ),
    "an id of a call that is a list": (
        "claude-code",
        "it.jsonl",
        lines(
            claude("a", None, "user", "Go."),
            claude("b", "a", "assistant", [call("toolu_1")], id="msg_1"),
            claude("c", "b", "user", [result(["toolu_1"])]),
            claude("d", "b", "user", [result({"a": 1})]),
        ),
        (),
    ),
    "an id of a call that is a map": (
        "claude-code",
        "it.jsonl",
        lines(
            claude("a", None, "user", "Go."),
            claude("b", "a", "assistant", [call({})], id="msg_1"),
            {**claude("c", "b", "user", [result({})]), "sourceToolAssistantUUID": "b"},
        ),
        (),
    ),
    "a record glued to one whose uuid is a list": (
        "claude-code",
        "it.jsonl",
        b"{" + lines({**claude("a", None, "user", "Go."), "uuid": [0]}),
        ("--format", "claude-code"),
    ),
    "a line of two records and a record on two lines": (
        "claude-code",
        "it.jsonl",
        lines(claude("a", None, "user", "Go."))
        + lines(claude("b", "a", "user", "On."))[:-1]
        + lines(claude("c", "b", "user", "On."))
        + lines(claude("d", "c", "user", "On.")).replace(b', "uuid"', b',\n"uuid"'),
        (),
    ),
    "an empty uuid": (
        "claude-code",
        "it.jsonl",
        lines(
            claude("a", "lost", "assistant", [{"type": "text", "text": "The port."}]),
            {"type": "x"},
            {"parentUuid": "gone", "type": "user", "message": {"content": "Go on."}, "uuid": ""},
            claude("b", "none", "assistant", [{"type": "text", "text": "I go on."}], id="msg_1"),
        ),
        ("--format", "claude-code"),
    ),
    "types and names of other kinds": (
        "claude-code",
        "it.jsonl",
        lines(
            claude("a", None, "user", "Go."),
            {**claude("b", "a", "system", "x"), "subtype": ["x"]},
            {**claude("c", "b", "user", "x"), "type": ["user"]},
            claude("d", "a", "assistant", [{**call("toolu_1"), "name": ["Bash"]}], id="msg_1"),
        ),
        (),
    ),
    "the last moment that there is": (
        "claude-code",
        "it.jsonl",
        lines(
            {**claude("a", None, "user", "Go."), "timestamp": "9999-12-31T23:59:59.999Z"},
            claude("b", "lost", "assistant", [call("toolu_1")], id="msg_1"),
        ),
        (),
    ),
    "a compaction that names a line twice": (
        "claude-code",
        "it.jsonl",
        lines(
            claude("a", "lost", "assistant", [{"type": "text", "text": "I build."}], id="msg_1"),
            claude("b", "a", "assistant", [call("toolu_1")], id="msg_1"),
            {
                **claude("c", None, "system", ""),
                "subtype": "compact_boundary",
                "compactMetadata": {
                    "preservedSegment": {"headUuid": "a", "anchorUuid": "d", "tailUuid": "b"},
                    "preservedMessages": {
                        "anchorUuid": "d",
                        "uuids": ["b", "a", "b"],
                        "allUuids": ["a", "b"],
                    },
                },
            },
            {**claude("d", "c", "user", "We looked."), "isCompactSummary": True},
        ),
        (),
    ),
    "ids of calls that cannot be read here": (
        "claude-code",
        "it.jsonl",
        lines(
            claude("a", "lost", "assistant", [call("toolu_1")], id="msg_1"),
            claude("b", "a", "assistant", [call("toolu_2")], id="msg_2"),
        ).replace(b'"toolu_1"', b"7" * 5000),
        (),
    ),
    "a first reply with a NUL in it": (
        "gemini-cli",
        "it.jsonl",
        lines({"id": "ef706e", "type": "gemini", "content": "nul \0 nul"}),
        ("--format", "gemini-cli"),
    ),
    "a message whose first line holds bare text": (
        "claude-code",
        "it.jsonl",
        lines(
            claude("a", None, "user", "Go."),
            claude("b", "a", "assistant", "I go.", id="msg_1"),
            claude("c", "b", "assistant", [call("toolu_1")], id="msg_1"),
        ),
        (),
    ),
    "copies of calls whose ids are lists": (
        "list",
        "it.json",
        lines(
            [
                {"type": "human", "content": "Go."},
                {
                    "type": "ai",
                    "content": "",
                    "tool_calls": [{"name": "bash", "args": 1, "id": "call_1"}],
                    "additional_kwargs": {"tool_calls": [{"id": [], "type": "function"}]},
                },
                {"type": "tool", "content": "a.py", "tool_call_id": "call_1"},
            ]
        ),
        (),
    ),
    "an export with another one behind it": (
        "opencode-export",
        "it.json",
        lines(EXPORT, {"info": {"id": "ses_2"}, "messages": []}),
        ("--format", "opencode-export"),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_it_is_found_no_more(name: str, tmp_path: Path) -> None:
    form, file, data, words = FOUND[name]
    given = words if words[:1] == ("--format",) else ()
    way = () if given else words
    mutant = Mutant(form, name, f"work/{file}", data, given=given, way=way, shown=True)
    assert lived(mutant, tmp_path) is None
