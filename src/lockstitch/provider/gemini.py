"""Google's Gemini API, from the provider's side; Vertex AI's addresses too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lockstitch.dialects import GEMINI
from lockstitch.provider.wire import (
    ANSWER,
    COUNT,
    STREAM,
    AnsweredTurn,
    ApiRoute,
    ErrorReply,
    RequestAddress,
    Wire,
    pieces,
    tool_names,
)

SSE = "sse"
# "models/…" of the Gemini API, "projects/…/publishers/google/models/…" of Vertex AI.
_MODEL = r"/{version:v1[a-z0-9]*}{before:(?:/.*)?}/models/{model:[^/:]+}"
_STATUSES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}
_FAILURES = {
    429: "Resource has been exhausted (e.g. check quota).",
    500: "An internal error has occurred. Please retry.",
    503: "The model is overloaded. Please try again later.",
    529: "The model is overloaded. Please try again later.",
}


class GeminiApi(Wire):
    """``POST /v1beta/models/{model}:generateContent`` and its siblings."""

    dialect = GEMINI
    routes = (
        ApiRoute(_MODEL + ":generateContent", ANSWER),
        ApiRoute(_MODEL + ":streamGenerateContent", STREAM),
        ApiRoute(_MODEL + ":countTokens", COUNT),
    )
    paths = re.compile(r"/v1(beta|alpha)|/v1[a-z0-9]*(/.*)?/models/[^/]*:")
    required = ("contents",)
    list_key = "contents"
    failures = _FAILURES

    def tools(self, body: Mapping[str, Any]) -> set[str]:
        offered = body.get("tools")
        found: set[str] = set()
        for tool in offered if isinstance(offered, list) else ():
            for key in ("functionDeclarations", "function_declarations"):
                found |= tool_names(tool.get(key) if isinstance(tool, dict) else None, "name")
        return found

    def whole(self, turn: AnsweredTurn) -> dict[str, Any]:
        return _chunk(turn, _parts(turn), last=True)

    def stream(self, turn: AnsweredTurn) -> Iterator[bytes]:
        if turn.at.framing == SSE:
            yield from (b"data: %s\r\n\r\n" % json.dumps(c).encode() for c in _chunks(turn))
            return
        lead = b"["
        for chunk in _chunks(turn):
            yield lead + json.dumps(chunk, indent=2).encode()
            lead = b"\n,\r\n"
        yield b"\n]\n"

    def media_type(self, at: RequestAddress) -> str:
        return "text/event-stream" if at.framing == SSE else "application/json"

    def counted(self, tokens: int) -> dict[str, Any]:
        return {"totalTokens": tokens}

    def request_in(self, body: dict[str, Any]) -> dict[str, Any]:
        wrapped = body.get("generateContentRequest", body.get("generate_content_request"))
        return wrapped if isinstance(wrapped, dict) else body

    def refusal(self, status: int, text: str, ident: str) -> ErrorReply:
        kind = _STATUSES.get(status, "INVALID_ARGUMENT")
        return ErrorReply({"error": {"code": status, "message": text, "status": kind}})

    def lacks(self, field: str) -> str:
        return f"* GenerateContentRequest.{field}: {field} is not specified\n"

    def not_json(self) -> str:
        return "Invalid JSON payload received. Unexpected token."


def _parts(turn: AnsweredTurn) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    reply = turn.reply
    if reply.thinking:
        parts.append({"text": reply.thinking, "thought": True})
    if reply.text:
        parts.append({"text": reply.text})
    for number, call in enumerate(reply.calls):
        ident = turn.call_id("id", "", number)
        parts.append({"functionCall": {**ident, "name": call.name, "args": call.arguments}})
    # The first of parallel calls is signed; without calls the last words are, if there was thought.
    if reply.calls:
        parts[-len(reply.calls)]["thoughtSignature"] = turn.signature
    elif reply.thinking and reply.text:
        parts[-1]["thoughtSignature"] = turn.signature
    return parts


def _chunk(turn: AnsweredTurn, parts: list[dict[str, Any]], *, last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if last:
        candidate["finishReason"] = "STOP"
    return {
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": turn.input_tokens,
            "candidatesTokenCount": turn.output_tokens,
            "totalTokenCount": turn.input_tokens + turn.output_tokens,
        },
        "modelVersion": turn.model,
        "responseId": turn.ident,
    }


def _chunks(turn: AnsweredTurn) -> Iterator[dict[str, Any]]:
    """Yield responses that each hold a piece; a text comes in bits, a call in one."""
    bits = [bit for part in _parts(turn) for bit in _bits(part)]
    for number, bit in enumerate(bits, 1):
        yield _chunk(turn, [bit], last=number == len(bits))


def _bits(part: dict[str, Any]) -> list[dict[str, Any]]:
    if "text" not in part:
        return [part]
    plain = {key: value for key, value in part.items() if key == "thought"}
    bits = [{"text": piece, **plain} for piece in pieces(part["text"])]
    bits[-1] = {**part, **bits[-1]}
    return bits
