"""OpenAI's Responses API, from the provider's side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from lockstitch.provider.openai_errors import FAILURES, openai_refusal
from lockstitch.provider.wire import Refusal, Route, Turn, Wire, event, json_of, names, pieces

Events = Iterator[dict[str, Any]]


class OpenAIResponses(Wire):
    """``POST /v1/responses``."""

    dialect = "openai-responses"
    routes = (Route("/v1/responses"),)
    paths = re.compile(r"/v1/responses\b")
    required = ("model", "input")
    list_key = "input"
    failures = FAILURES

    def tools(self, body: Mapping[str, Any]) -> set[str]:
        return names(body.get("tools"), "name")

    def whole(self, turn: Turn) -> dict[str, Any]:
        return _response(turn, "completed", _items(turn))

    def stream(self, turn: Turn) -> Iterator[bytes]:
        numbers = count()
        for data in _events(turn):
            yield event({**data, "sequence_number": next(numbers)})

    def refusal(self, status: int, text: str, ident: str) -> Refusal:
        return openai_refusal(status, text, ident, self.list_key)

    def lacks(self, field: str) -> str:
        return f"Missing required parameter: '{field}'."

    def not_json(self) -> str:
        return "We could not parse the JSON body of your request."


def _response(turn: Turn, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"resp_{turn.ident}",
        "object": "response",
        "created_at": turn.created,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": turn.model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(turn) if status == "completed" else None,
    }


def _usage(turn: Turn) -> dict[str, Any]:
    return {
        "input_tokens": turn.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": turn.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": turn.input_tokens + turn.output_tokens,
    }


def _items(turn: Turn) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if turn.reply.thinking:
        items.append(_reasoning(turn))
    if turn.reply.text:
        items.append(
            {
                "id": f"msg_{turn.ident}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [_text(turn.reply.text)],
            }
        )
    for number, call in enumerate(turn.reply.calls):
        items.append(
            {
                "id": f"fc_{turn.ident}{number:02}",
                "type": "function_call",
                "status": "completed",
                **turn.call_id("call_id", "call_", number),
                "name": call.name,
                "arguments": json_of(call.arguments),
            }
        )
    return items


def _reasoning(turn: Turn) -> dict[str, Any]:
    """Return a summary of the thinking; sealed, all of it, for those who ask for that."""
    included = turn.body.get("include")
    asked = isinstance(included, list) and "reasoning.encrypted_content" in included
    return {
        "id": f"rs_{turn.ident}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": turn.reply.thinking}],
        **({"encrypted_content": turn.signature} if asked else {}),
    }


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _events(turn: Turn) -> Events:
    opening = _response(turn, "in_progress", [])
    yield {"type": "response.created", "response": opening}
    yield {"type": "response.in_progress", "response": opening}
    items = _items(turn)
    for index, item in enumerate(items):
        yield from _EVENTS[item["type"]](item, {"output_index": index})
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": _response(turn, "completed", items)}


def _text_events(item: dict[str, Any], at: dict[str, Any]) -> Events:
    (part,) = item["content"]
    empty = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", **at, "item": empty}
    at = {**at, "item_id": item["id"], "content_index": 0}
    yield {"type": "response.content_part.added", **at, "part": _text("")}
    for piece in pieces(part["text"]):
        yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}


def _call_events(item: dict[str, Any], at: dict[str, Any]) -> Events:
    empty = {**item, "status": "in_progress", "arguments": ""}
    yield {"type": "response.output_item.added", **at, "item": empty}
    at = {**at, "item_id": item["id"]}
    for piece in pieces(item["arguments"]):
        yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
    yield {
        "type": "response.function_call_arguments.done",
        **at,
        "name": item["name"],
        "arguments": item["arguments"],
    }


def _reasoning_events(item: dict[str, Any], at: dict[str, Any]) -> Events:
    (part,) = item["summary"]
    kind = "response.reasoning_summary"
    yield {"type": "response.output_item.added", **at, "item": {**item, "summary": []}}
    at = {**at, "item_id": item["id"], "summary_index": 0}
    yield {"type": f"{kind}_part.added", **at, "part": {**part, "text": ""}}
    for piece in pieces(part["text"]):
        yield {"type": f"{kind}_text.delta", **at, "delta": piece}
    yield {"type": f"{kind}_text.done", **at, "text": part["text"]}
    yield {"type": f"{kind}_part.done", **at, "part": part}


_EVENTS = {
    "reasoning": _reasoning_events,
    "message": _text_events,
    "function_call": _call_events,
}
