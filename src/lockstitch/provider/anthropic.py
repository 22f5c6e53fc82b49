"""Anthropic's Messages API, from the provider's side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lockstitch.dialects import ANTHROPIC
from lockstitch.provider.wire import (
    COUNT,
    AnsweredTurn,
    ApiRoute,
    ErrorReply,
    Wire,
    json_of,
    pieces,
    sse_event,
    tool_names,
)

_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}
_OTHER = "invalid_request_error"
_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_FAILURES = {
    429: "This request would exceed your organization's rate limit. Please try again later.",
    500: "Internal server error",
    529: "Overloaded",
}


class AnthropicApi(Wire):
    """``POST /v1/messages``."""

    dialect = ANTHROPIC
    routes = (ApiRoute("/v1/messages"), ApiRoute("/v1/messages/count_tokens", COUNT))
    paths = re.compile(r"/v1/(messages|complete)\b")
    required = ("model", "max_tokens", "messages")
    list_key = "messages"
    failures = _FAILURES

    def tools(self, body: Mapping[str, Any]) -> set[str]:
        return tool_names(body.get("tools"), "name")

    def whole(self, turn: AnsweredTurn) -> dict[str, Any]:
        usage = {"input_tokens": turn.input_tokens, "output_tokens": turn.output_tokens}
        return {
            **_opening(turn),
            "content": _blocks(turn),
            "stop_reason": _stop_reason(turn),
            "usage": usage,
        }

    def stream(self, turn: AnsweredTurn) -> Iterator[bytes]:
        yield sse_event({"type": "message_start", "message": _opening(turn)})
        yield sse_event({"type": "ping"})
        for index, block in enumerate(_blocks(turn)):
            # One block: an empty one first, then what belongs in it bit by bit.
            empty = {**block, **_EMPTY[block["type"]]}
            yield sse_event({"type": "content_block_start", "index": index, "content_block": empty})
            for delta in _deltas(block):
                yield sse_event({"type": "content_block_delta", "index": index, "delta": delta})
            yield sse_event({"type": "content_block_stop", "index": index})
        yield sse_event(
            {
                "type": "message_delta",
                "delta": {"stop_reason": _stop_reason(turn), "stop_sequence": None},
                "usage": {"output_tokens": turn.output_tokens},
            }
        )
        yield sse_event({"type": "message_stop"})

    def refusal(self, status: int, text: str, ident: str) -> ErrorReply:
        error = {"type": _KINDS.get(status, _OTHER), "message": text}
        body = {"type": "error", "error": error, "request_id": f"req_{ident}"}
        return ErrorReply(body, {"request-id": f"req_{ident}"})

    def lacks(self, field: str) -> str:
        return f"{field}: Field required"

    def not_json(self) -> str:
        return "The request body is not valid JSON."


def _opening(turn: AnsweredTurn) -> dict[str, Any]:
    return {
        "id": f"msg_{turn.ident}",
        "type": "message",
        "role": "assistant",
        "model": turn.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": turn.input_tokens, "output_tokens": 1},
    }


def _blocks(turn: AnsweredTurn) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if turn.reply.thinking:
        said = turn.reply.thinking
        blocks.append({"type": "thinking", "thinking": said, "signature": turn.signature})
    if turn.reply.text:
        blocks.append({"type": "text", "text": turn.reply.text})
    for number, call in enumerate(turn.reply.calls):
        ident = turn.call_id("id", "toolu_", number)
        blocks.append({"type": "tool_use", **ident, "name": call.name, "input": call.arguments})
    return blocks


def _stop_reason(turn: AnsweredTurn) -> str:
    return "tool_use" if turn.reply.calls else "end_turn"


def _deltas(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if block["type"] == "text":
        yield from ({"type": "text_delta", "text": piece} for piece in pieces(block["text"]))
    elif block["type"] == "thinking":
        for piece in pieces(block["thinking"]):
            yield {"type": "thinking_delta", "thinking": piece}
        yield {"type": "signature_delta", "signature": block["signature"]}
    else:
        for piece in pieces(json_of(block["input"])):
            yield {"type": "input_json_delta", "partial_json": piece}
