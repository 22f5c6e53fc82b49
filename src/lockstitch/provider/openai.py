"""OpenAI's Chat Completions and Responses as a provider sees them, with the errors of both."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from lockstitch.dialects import OPENAI_CHAT, OPENAI_RESPONSES
from lockstitch.provider.apis import (
    INVALID,
    AnsweredTurn,
    ApiRoute,
    ErrorReply,
    Wire,
    json_of,
    pieces,
    sse_event,
)

_OTHER = ("invalid_request_error", None)
# The type and the code of an error, by its status.
_KINDS: dict[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("permission_error", None),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("service_unavailable_error", None),
    504: ("server_error", None),
    529: ("service_unavailable_error", None),
}


class _OpenAiApi(Wire):
    """What both APIs have in common."""

    lack = "Missing required parameter: '{field}'."
    no_object = "We could not parse the JSON body of your request."
    failures: ClassVar = {
        429: "Rate limit reached. Please try again later.",
        500: "The server had an error while processing your request. Sorry about that!",
        503: "The engine is currently overloaded, please try again later",
        529: "The engine is currently overloaded, please try again later",
    }

    def refusal(self, status: int, text: str, ident: str) -> ErrorReply:
        """Return an error; one about the conversation names the field that contains it."""
        kind, code = _KINDS.get(status, _OTHER)
        param = self.list_key if status == INVALID else None
        error = {"message": text, "type": kind, "param": param, "code": code}
        return ErrorReply({"error": error}, {"x-request-id": f"req_{ident}"})


class ChatApi(_OpenAiApi):
    """``POST /v1/chat/completions``."""

    dialect = OPENAI_CHAT
    routes = (ApiRoute("/v1/chat/completions"),)
    paths = re.compile(r"/v1/(chat|completions|embeddings)\b")
    required = ("model", "messages")
    list_key = "messages"
    tool_name = ("function", "name")

    def whole(self, turn: AnsweredTurn) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "refusal": None}
        message["content"] = turn.reply.text or None
        if turn.reply.calls:
            message["tool_calls"] = _calls(turn)
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _finish_reason(turn),
        }
        return {
            **_envelope(turn, "chat.completion"),
            "choices": [choice],
            "usage": _chat_usage(turn),
        }

    def stream(self, turn: AnsweredTurn) -> Iterator[bytes]:
        envelope = _envelope(turn, "chat.completion.chunk")
        for delta in _deltas(turn):
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            yield _chunk({**envelope, "choices": [choice]})
        last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _finish_reason(turn)}
        yield _chunk({**envelope, "choices": [last]})
        options = turn.body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            yield _chunk({**envelope, "choices": [], "usage": _chat_usage(turn)})
        yield b"data: [DONE]\n\n"

    def lacks(self, field: str) -> str:
        return "you must provide a model parameter" if field == "model" else super().lacks(field)


def _envelope(turn: AnsweredTurn, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{turn.ident}",
        "object": kind,
        "created": turn.created,
        "model": turn.model,
    }


def _chat_usage(turn: AnsweredTurn) -> dict[str, int]:
    return {
        "prompt_tokens": turn.input_tokens,
        "completion_tokens": turn.output_tokens,
        "total_tokens": turn.input_tokens + turn.output_tokens,
    }


def _calls(turn: AnsweredTurn) -> list[dict[str, Any]]:
    return [
        {
            **turn.call_id("id", "call_", number),
            "type": "function",
            "function": {"name": call.name, "arguments": json_of(call.arguments)},
        }
        for number, call in enumerate(turn.reply.calls)
    ]


def _deltas(turn: AnsweredTurn) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for piece in pieces(turn.reply.text):
        yield {"content": piece}
    for index, call in enumerate(_calls(turn)):
        function = call["function"]
        opened = {**call, "index": index, "function": {**function, "arguments": ""}}
        yield {"tool_calls": [opened]}
        for piece in pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _finish_reason(turn: AnsweredTurn) -> str:
    return "tool_calls" if turn.reply.calls else "stop"


def _chunk(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


Events = Iterator[dict[str, Any]]


class ResponsesApi(_OpenAiApi):
    """``POST /v1/responses``."""

    dialect = OPENAI_RESPONSES
    takes_text = True
    routes = (ApiRoute("/v1/responses"),)
    paths = re.compile(r"/v1/responses\b")
    required = ("model", "input")
    list_key = "input"

    def whole(self, turn: AnsweredTurn) -> dict[str, Any]:
        return _response(turn, "completed", _items(turn))

    def stream(self, turn: AnsweredTurn) -> Iterator[bytes]:
        for number, data in enumerate(_events(turn)):
            yield sse_event({**data, "sequence_number": number})


def _response(turn: AnsweredTurn, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {
        "input_tokens": turn.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": turn.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": turn.input_tokens + turn.output_tokens,
    }
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
        "usage": usage if status == "completed" else None,
    }


def _items(turn: AnsweredTurn) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if turn.reply.thinking:
        # a summary of the thinking, and all of it encrypted for requests that ask for that
        included = turn.body.get("include")
        asked = isinstance(included, list) and "reasoning.encrypted_content" in included
        items.append(
            {
                "id": f"rs_{turn.ident}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": turn.reply.thinking}],
                **({"encrypted_content": turn.signature} if asked else {}),
            }
        )
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


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _events(turn: AnsweredTurn) -> Events:
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
