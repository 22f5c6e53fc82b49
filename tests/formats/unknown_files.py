"""Files of programs that are not known, by name: each in the shape in which its program writes it.

Some share words with a program or a provider that is known, as far as they do in the wild.
"""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]
SESSION = "11111111-2222-3333-4444-555555555555"


def _lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def _document(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"


def _qwen(place: int, kind: str, parts: list[Json]) -> Json:
    role = "model" if kind == "assistant" else "user"
    return {
        "uuid": f"u-{place}",
        "parentUuid": f"u-{place - 1}" if place > 1 else None,
        "sessionId": SESSION,
        "timestamp": f"2026-08-07T16:52:{place:02d}.000Z",
        "type": kind,
        "cwd": "/home/ada",
        "version": "0.21.7",
        "message": {"role": role, "parts": parts},
    }


QWEN = _lines(
    _qwen(1, "user", [{"text": "Read it."}]),
    _qwen(2, "assistant", [{"functionCall": {"id": "c1", "name": "read", "args": {}}}]),
    _qwen(3, "tool_result", [{"functionResponse": {"id": "c1", "name": "read", "response": {}}}]),
    _qwen(4, "assistant", [{"text": "Read."}]),
)


def _hermes(role: str, text: str | None, **fields: Any) -> Json:
    base = {"message_id": f"m-{role}", "role": role, "state": "final", "text": text}
    return {**base, "reasoning": None, "tool_calls": [], "tool_results": [], **fields}


_HERMES_CALL = {"action_id": "a1", "tool_name": "read", "arguments_json": "{}"}
HERMES = {
    "schema_version": 1,
    "session_id": "hermes-1",
    "messages": [
        _hermes("user", "Read it."),
        _hermes("assistant", "I do.", tool_calls=[_HERMES_CALL]),
        _hermes("tool", None, tool_results=[{"action_id": "a1", "output_preview": "x"}]),
        _hermes("assistant", "Read."),
    ],
}


def _kept(place: int, role: str, content: str | None, **fields: Any) -> Json:
    base = {"id": f"msg_{place}", "sessionID": "ses_1", "role": role, "content": content}
    return {**base, "time": {"created": 1705313000 + place}, **fields}


_BARE_CALL = {"id": "c1", "name": "Write", "arguments": {"path": "a"}}
_CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
OTHER_CHAT = _lines(
    _kept(1, "user", "Write it."),
    _kept(2, "assistant", "I do.", tool_calls=[_BARE_CALL]),
    _kept(3, "tool", "done", tool_call_id="c1"),
    _kept(4, "assistant", "Written."),
)
# The very calls of a provider, in records of somebody's own.
ENVELOPED_CHAT = _lines(
    _kept(1, "user", "List."),
    _kept(2, "assistant", None, tool_calls=[_CHAT_CALL]),
    _kept(3, "assistant", "Listed."),
)
BARE_CALLS = [
    {"role": "user", "content": "Write it."},
    {"role": "assistant", "content": "I do.", "tool_calls": [_BARE_CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "done"},
    {"role": "assistant", "content": "Written."},
    {"role": "user", "content": "Thanks."},
]

_USE = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}


def _droid(place: int, role: str, *blocks: Json) -> Json:
    parent = str(place - 1) if place > 1 else None
    base = {"type": "message", "id": str(place), "parentId": parent, "timestamp": f"t{place}"}
    return {**base, "message": {"role": role, "content": list(blocks)}}


DROID = _lines(
    {"type": "session_start", "id": "d-1", "title": "New session", "owner": "ada"},
    _droid(1, "user", {"type": "text", "text": "List."}),
    _droid(2, "assistant", _USE),
    _droid(3, "user", {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a"}),
)
AMP = {
    "v": 12,
    "id": "T-1",
    "messages": [
        {"role": "user", "messageId": 0, "content": [{"type": "text", "text": "List."}]},
        {"role": "assistant", "messageId": 1, "content": [_USE], "state": {"type": "complete"}},
        {
            "role": "user",
            "messageId": 2,
            "content": [{"type": "tool_result", "toolUseID": "toolu_1", "run": {"status": "done"}}],
        },
    ],
}
ROO = [
    {"role": "user", "content": [{"type": "text", "text": "List."}], "ts": 1},
    {"role": "assistant", "content": [_USE], "ts": 2},
]
CLINE_UI = [
    {"ts": 1, "type": "say", "say": "text", "text": "List."},
    {"ts": 2, "type": "ask", "ask": "tool", "text": "{}"},
]
SHAREGPT = {"conversations": [{"from": "human", "value": "Hi."}, {"from": "gpt", "value": "Hey."}]}
OPENHANDS = [
    {"id": 0, "timestamp": "t0", "source": "user", "message": "List.", "action": "message"},
    {
        "id": 1,
        "source": "agent",
        "action": "run",
        "args": {"command": "ls"},
        "tool_call_metadata": {},
    },
    {"id": 2, "source": "agent", "observation": "run", "content": "a", "extras": {}},
]
COPILOT = {
    "responderUsername": "GitHub Copilot",
    "requests": [{"message": {"text": "List."}, "response": [{"value": "a"}]}],
}
LM_STUDIO = {
    "name": "Chat",
    "messages": [
        {
            "versions": [{"type": "singleStep", "role": "user", "content": []}],
            "currentlySelected": 0,
        }
    ],
}
AI_SDK = [
    {"id": "1", "role": "user", "parts": [{"type": "text", "text": "List."}]},
    {"id": "2", "role": "assistant", "parts": [{"type": "tool-bash", "toolCallId": "c1"}]},
]
SLACK = [
    {"type": "message", "user": "U1", "text": "Hello", "ts": "1.0"},
    {"type": "message", "user": "U2", "text": "Hi", "ts": "2.0"},
]
LOG = _lines(
    {"type": "session_started", "sessionId": "s1", "level": "info"},
    {"type": "user", "sessionId": "s1", "message": "signed in"},
    {"type": "system", "sessionId": "s1", "content": "ready"},
)
SYSTEM_LOG = _lines({"type": "system", "content": "boot"}, {"type": "tool", "content": "fan on"})
STREAM_JSON = _lines(
    {"type": "system", "subtype": "init", "session_id": SESSION, "uuid": "u1"},
    {
        "type": "assistant",
        "message": {"role": "assistant", "content": [_USE]},
        "session_id": SESSION,
        "uuid": "u2",
    },
)
STRINGS = {"messages": [{"id": "greeting", "text": "Hello"}, {"id": "bye", "text": "Bye"}]}
CATALOGUE = {"locale": "en", "messages": {"greeting": "Hello"}}
EVENTS = _lines(
    {"type": "request", "request_params": {"messages": [{"role": "user", "content": "Hi."}]}},
    {"type": "response", "body": {"choices": []}},
)

FILES: dict[str, bytes] = {
    "qwen.jsonl": QWEN,
    "hermes.json": _document(HERMES),
    "other_chat.jsonl": OTHER_CHAT,
    "enveloped_chat.jsonl": ENVELOPED_CHAT,
    "bare_calls.json": _document(BARE_CALLS),
    "droid.jsonl": DROID,
    "amp.json": _document(AMP),
    "roo.json": _document(ROO),
    "cline_ui.json": _document(CLINE_UI),
    "sharegpt.json": _document(SHAREGPT),
    "openhands.json": _document(OPENHANDS),
    "copilot.json": _document(COPILOT),
    "lm_studio.json": _document(LM_STUDIO),
    "ai_sdk.json": _document(AI_SDK),
    "slack.json": _document(SLACK),
    "log.jsonl": LOG,
    "system_log.jsonl": SYSTEM_LOG,
    "stream.jsonl": STREAM_JSON,
    "strings.json": _document(STRINGS),
    "catalogue.json": _document(CATALOGUE),
    "events.jsonl": EVENTS,
    "noise.jsonl": bytes(range(256)) * 8,
}
