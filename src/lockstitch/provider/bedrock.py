"""Amazon Bedrock's Converse API, from the provider's side."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lockstitch.dialects import BEDROCK
from lockstitch.dialects.bedrock.exchange import MEDIA_TYPE, encode_event
from lockstitch.provider.wire import (
    ANSWER,
    STREAM,
    AnsweredTurn,
    ApiRoute,
    ErrorReply,
    RequestAddress,
    Wire,
    json_of,
    pieces,
    tool_names,
)

_KINDS = {
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
    504: "ModelTimeoutException",
    529: "ServiceUnavailableException",
}
_FAILURES = {
    429: "Too many requests, please wait before trying again.",
    500: "The system encountered an unexpected error during processing. Try your request again.",
    503: "The service is unable to process your request at this time. Please try again.",
    529: "The service is unable to process your request at this time. Please try again.",
}


class BedrockApi(Wire):
    """``POST /model/{modelId}/converse`` and ``/converse-stream``."""

    dialect = BEDROCK
    routes = (
        ApiRoute("/model/{model}/converse", ANSWER),
        ApiRoute("/model/{model}/converse-stream", STREAM),
    )
    paths = re.compile(r"/model/")
    required = ("messages",)
    list_key = "messages"
    failures = _FAILURES

    def tools(self, body: Mapping[str, Any]) -> set[str]:
        config = body.get("toolConfig")
        return tool_names(
            config.get("tools") if isinstance(config, dict) else None, "toolSpec", "name"
        )

    def whole(self, turn: AnsweredTurn) -> dict[str, Any]:
        message = {"role": "assistant", "content": _blocks(turn)}
        return {"output": {"message": message}, "stopReason": _stop_reason(turn), **_cost(turn)}

    def stream(self, turn: AnsweredTurn) -> Iterator[bytes]:
        for name, fields in _events(turn):
            yield encode_event(name, json.dumps(fields).encode())

    def media_type(self, at: RequestAddress) -> str:
        return MEDIA_TYPE

    def refusal(self, status: int, text: str, ident: str) -> ErrorReply:
        kind = _KINDS.get(status, "ValidationException")
        headers = {"x-amzn-errortype": kind, "x-amzn-requestid": ident}
        return ErrorReply({"message": text}, headers)

    def lacks(self, field: str) -> str:
        return (
            f"1 validation error detected: Value at '{field}' failed to satisfy constraint: "
            "Member must not be null"
        )

    def not_json(self) -> str:
        return "The request body is not valid JSON."


def _blocks(turn: AnsweredTurn) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    reply = turn.reply
    if reply.thinking:
        thought = {"text": reply.thinking, "signature": turn.signature}
        blocks.append({"reasoningContent": {"reasoningText": thought}})
    if reply.text:
        blocks.append({"text": reply.text})
    for number, call in enumerate(reply.calls):
        ident = turn.call_id("toolUseId", "tooluse_", number)
        blocks.append({"toolUse": {**ident, "name": call.name, "input": call.arguments}})
    return blocks


def _stop_reason(turn: AnsweredTurn) -> str:
    return "tool_use" if turn.reply.calls else "end_turn"


def _cost(turn: AnsweredTurn) -> dict[str, Any]:
    usage = {
        "inputTokens": turn.input_tokens,
        "outputTokens": turn.output_tokens,
        "totalTokens": turn.input_tokens + turn.output_tokens,
    }
    return {"usage": usage, "metrics": {"latencyMs": 1}}


def _events(turn: AnsweredTurn) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "messageStart", {"role": "assistant"}
    for index, block in enumerate(_blocks(turn)):
        at = {"contentBlockIndex": index}
        if "toolUse" in block:
            start = {key: value for key, value in block["toolUse"].items() if key != "input"}
            yield "contentBlockStart", {**at, "start": {"toolUse": start}}
        for delta in _deltas(block):
            yield "contentBlockDelta", {**at, "delta": delta}
        yield "contentBlockStop", at
    yield "messageStop", {"stopReason": _stop_reason(turn)}
    yield "metadata", _cost(turn)


def _deltas(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "text" in block:
        yield from ({"text": piece} for piece in pieces(block["text"]))
    elif "toolUse" in block:
        arguments = json_of(block["toolUse"]["input"])
        yield from ({"toolUse": {"input": piece}} for piece in pieces(arguments))
    else:
        thought = block["reasoningContent"]["reasoningText"]
        yield from ({"reasoningContent": {"text": piece}} for piece in pieces(thought["text"]))
        yield {"reasoningContent": {"signature": thought["signature"]}}
