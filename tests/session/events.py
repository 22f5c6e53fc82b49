"""Streams of events as providers send them, whole or broken off."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

Event = dict[str, Any]


def anthropic() -> list[Event]:
    """A text, a call, a second call, and the end."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    events: list[Event] = [{"type": "message_start", "message": message}]
    events += _block(0, {"type": "text", "text": ""}, "text_delta", "text", ["Let me ", "see."])
    for n in (1, 2):
        use = {"type": "tool_use", "id": f"c{n}", "name": "quick", "input": {}}
        pieces = ['{"n', f'": {n}}}']
        events += _block(n, use, "input_json_delta", "partial_json", pieces)
    delta = {"stop_reason": "tool_use", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}})
    events.append({"type": "message_stop"})
    return events


def _block(n: int, block: Event, kind: str, key: str, pieces: list[str]) -> list[Event]:
    deltas = [
        {"type": "content_block_delta", "index": n, "delta": {"type": kind, key: piece}}
        for piece in pieces
    ]
    start = {"type": "content_block_start", "index": n, "content_block": block}
    return [start, *deltas, {"type": "content_block_stop", "index": n}]


def openai_chat() -> list[Event]:
    """The same, as chunks."""
    deltas: list[Event] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": "Let me "}, {"content": "see."}]
    for n in (1, 2):
        begin = {"name": "quick", "arguments": ""}
        call = {"index": n - 1, "id": f"c{n}", "type": "function", "function": begin}
        deltas.append({"tool_calls": [call]})
        deltas += [
            {"tool_calls": [{"index": n - 1, "function": {"arguments": piece}}]}
            for piece in ('{"n', f'": {n}}}')
        ]
    return [*(_chunk(delta, None) for delta in deltas), _chunk({}, "tool_calls")]


def _chunk(delta: Event, reason: str | None) -> Event:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-5.2",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }


WHOLE: dict[str, Callable[[], list[Event]]] = {
    "anthropic": anthropic,
    "openai-chat": openai_chat,
}
# How many events of each are through when the first call is closed and the second is half there.
HALF = {"anthropic": 11, "openai-chat": 8}


def half(dialect: str, stalled: Callable[[], None]) -> Iterator[Event]:
    """The events up to the middle of the second call; then it stalls."""
    yield from WHOLE[dialect]()[: HALF[dialect]]
    stalled()
    threading.Event().wait(60)


def sse(dialect: str, events: list[Event]) -> bytes:
    """Events as they go over the wire."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if dialect == "anthropic" else ""
        lines.append(f"{name}data: {json.dumps(event)}\n\n")
    return "".join(lines).encode()
