"""OpenAI's Chat Completions API, from the provider's side."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lockstitch.provider.openai_errors import FAILURES, openai_refusal
from lockstitch.provider.wire import Refusal, Route, Turn, Wire, json_of, names, pieces


class OpenAIChat(Wire):
    """``POST /v1/chat/completions``."""

    dialect = "openai-chat"
    routes = (Route("/v1/chat/completions"),)
    paths = re.compile(r"/v1/(chat|completions|embeddings)\b")
    required = ("model", "messages")
    list_key = "messages"
    failures = FAILURES

    def tools(self, body: Mapping[str, Any]) -> set[str]:
        return names(body.get("tools"), "function", "name")

    def whole(self, turn: Turn) -> dict[str, Any]:
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
        return {**_envelope(turn, "chat.completion"), "choices": [choice], "usage": _usage(turn)}

    def stream(self, turn: Turn) -> Iterator[bytes]:
        envelope = _envelope(turn, "chat.completion.chunk")
        for delta in _deltas(turn):
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
            yield _chunk({**envelope, "choices": [choice]})
        last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _finish_reason(turn)}
        yield _chunk({**envelope, "choices": [last]})
        options = turn.body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            yield _chunk({**envelope, "choices": [], "usage": _usage(turn)})
        yield b"data: [DONE]\n\n"

    def refusal(self, status: int, text: str, ident: str) -> Refusal:
        return openai_refusal(status, text, ident, self.list_key)

    def lacks(self, field: str) -> str:
        if field == "model":
            return "you must provide a model parameter"
        return f"Missing required parameter: '{field}'."

    def not_json(self) -> str:
        return "We could not parse the JSON body of your request."


def _envelope(turn: Turn, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{turn.ident}",
        "object": kind,
        "created": turn.created,
        "model": turn.model,
    }


def _usage(turn: Turn) -> dict[str, int]:
    return {
        "prompt_tokens": turn.input_tokens,
        "completion_tokens": turn.output_tokens,
        "total_tokens": turn.input_tokens + turn.output_tokens,
    }


def _calls(turn: Turn) -> list[dict[str, Any]]:
    return [
        {
            **turn.call_id("id", "call_", number),
            "type": "function",
            "function": {"name": call.name, "arguments": json_of(call.arguments)},
        }
        for number, call in enumerate(turn.reply.calls)
    ]


def _deltas(turn: Turn) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for piece in pieces(turn.reply.text):
        yield {"content": piece}
    for index, call in enumerate(_calls(turn)):
        function = call["function"]
        opened = {**call, "index": index, "function": {**function, "arguments": ""}}
        yield {"tool_calls": [opened]}
        for piece in pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _finish_reason(turn: Turn) -> str:
    return "tool_calls" if turn.reply.calls else "stop"


def _chunk(data: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()
