"""The APIs of the vendors as a provider sees them: what they have in common, and their formats.

Those of OpenAI are in ``openai``.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Any, ClassVar

from msgspec import Struct

from lockstitch.dialects import ANTHROPIC, BEDROCK, GEMINI
from lockstitch.dialects.bedrock.exchange import MEDIA_TYPE, encode_event
from lockstitch.provider import ERROR_KINDS, MISSING, REPEATED, SAME, Reply

ANSWER, STREAM, COUNT = "answer", "stream", "count"
INVALID = 400
_PIECE = 12
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class ApiRoute(Struct, frozen=True):
    """A pattern for addresses of an API, and what is requested there.

    With ``ANSWER`` the body may ask for a stream. ``{model}`` in the pattern is the model if the
    body does not name one.
    """

    path: str
    asks: str = ANSWER


class RequestAddress(Struct, frozen=True):
    """The address that a request came to, and what it says about the request.

    ``framing`` is how a stream is framed, if the address chooses that.
    """

    path: str
    asks: str = ANSWER
    model: str = ""
    framing: str = ""


class ErrorReply(Struct, frozen=True):
    """The body of an error, and its headers."""

    body: dict[str, Any]
    headers: dict[str, str] = {}


class AnsweredTurn(Struct, frozen=True):
    """An accepted request and the answer to it."""

    body: Mapping[str, Any]
    reply: Reply
    at: RequestAddress
    ident: str
    created: int
    input_tokens: int
    ids: str = ""

    @property
    def model(self) -> str:
        """The model that the answer names: the one that was asked for."""
        return self.at.model or str(self.body["model"])

    def call_id(self, key: str, prefix: str, number: int) -> dict[str, str]:
        """Return a field with the id of a call; empty if ids are to be missing."""
        if self.ids == MISSING:
            return {}
        ident = "0" * len(self.ident) if self.ids == REPEATED else self.ident
        return {key: f"{prefix}{ident}{0 if self.ids == SAME else number:02}"}

    @property
    def signature(self) -> str:
        """A signature for the thinking in the answer."""
        return b64encode(self.ident.encode()).decode()

    @property
    def stop_reason(self) -> str:
        """Why the model stopped, in the words of Anthropic and Bedrock."""
        return "tool_use" if self.reply.calls else "end_turn"

    @property
    def output_tokens(self) -> int:
        """The approximate number of tokens in the answer."""
        said = len(self.reply.text) + sum(len(json_of(call.arguments)) for call in self.reply.calls)
        return 1 + said // 4


class Wire(ABC):
    """One API: its addresses, the fields that it requires, and its formats.

    ``paths`` matches every path of the API, including those without a route. ``tool_name`` is where
    a declared tool has its name. ``lack`` and ``no_object`` are what the API says if a required
    field is missing, and to a body that is not a JSON object.
    """

    dialect: ClassVar[str]
    routes: ClassVar[tuple[ApiRoute, ...]]
    paths: ClassVar[re.Pattern[str]]
    required: ClassVar[tuple[str, ...]]
    list_key: ClassVar[str]
    tool_name: ClassVar[tuple[str, ...]] = ("name",)
    lack: ClassVar[str]
    no_object: ClassVar[str] = "The request body is not valid JSON."
    # What the API says with a status that is not the fault of the request.
    failures: ClassVar[dict[int, str]]
    # Whether a text may replace the list of messages.
    takes_text: ClassVar[bool] = False

    def tools(self, body: Mapping[str, Any]) -> set[str]:
        """Return the names of the tools that a request offers."""
        return tool_names(body.get("tools"), *self.tool_name)

    @abstractmethod
    def whole(self, turn: AnsweredTurn) -> dict[str, Any]:
        """Return the answer as one response."""

    @abstractmethod
    def stream(self, turn: AnsweredTurn) -> Iterator[bytes]:
        """Yield the answer event by event."""

    @abstractmethod
    def refusal(self, status: int, text: str, ident: str) -> ErrorReply:
        """Return an error in the format of the API."""

    def failure(self, status: int) -> str:
        """Return what the API says when it fails with a status."""
        return self.failures.get(status) or _PHRASES.get(status, "Error")

    def lacks(self, field: str) -> str:
        """Return what the API says if a required field is missing."""
        return self.lack.format(field=field)

    def not_json(self) -> str:
        """Return what the API says to a body that is not a JSON object."""
        return self.no_object

    def counted(self, tokens: int) -> dict[str, Any]:
        """Return the answer to a request that only asks for its number of tokens."""
        return {"input_tokens": tokens}

    def request_in(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request in a body; one for a count may be wrapped."""
        return body

    def media_type(self, at: RequestAddress) -> str:
        """Return the content type of a stream."""
        return "text/event-stream"


def ident_of(data: bytes) -> str:
    """Return a name for a request, used in all ids of its answer.

    It is computed from the body, so that the same run gives the same ids, and a history that has
    grown never meets an id that it contains already.
    """
    return sha256(data).hexdigest()[:24]


def tokens_in(data: bytes) -> int:
    """Return the approximate number of tokens in a body."""
    return 1 + len(data) // 4


def json_of(arguments: dict[str, Any]) -> str:
    """Return the arguments of a call as JSON text."""
    return json.dumps(arguments, ensure_ascii=False)


def pieces(text: str) -> Iterator[str]:
    """Return a text in the pieces in which a stream delivers it."""
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def sse_event(data: Mapping[str, Any]) -> bytes:
    """Return a server-sent event, named after its type."""
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def tool_names(tools: Any, *path: str) -> set[str]:
    """Return the names at a path in each of the declared tools."""
    found = set()
    for tool in tools if isinstance(tools, list) else ():
        value = tool
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, str):
            found.add(value)
    return found


_ANTHROPIC_EMPTY: dict[str, dict[str, Any]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}


class AnthropicApi(Wire):
    """``POST /v1/messages``."""

    dialect = ANTHROPIC
    routes = (ApiRoute("/v1/messages"), ApiRoute("/v1/messages/count_tokens", COUNT))
    paths = re.compile(r"/v1/(messages|complete)\b")
    required = ("model", "max_tokens", "messages")
    list_key = "messages"
    lack = "{field}: Field required"
    failures: ClassVar = {
        429: "This request would exceed your organization's rate limit. Please try again later.",
        500: "Internal server error",
        529: "Overloaded",
    }

    def whole(self, turn: AnsweredTurn) -> dict[str, Any]:
        usage = {"input_tokens": turn.input_tokens, "output_tokens": turn.output_tokens}
        return {
            **_anthropic_opening(turn),
            "content": _anthropic_blocks(turn),
            "stop_reason": turn.stop_reason,
            "usage": usage,
        }

    def stream(self, turn: AnsweredTurn) -> Iterator[bytes]:
        deltas: list[dict[str, Any]]
        yield sse_event({"type": "message_start", "message": _anthropic_opening(turn)})
        yield sse_event({"type": "ping"})
        for index, block in enumerate(_anthropic_blocks(turn)):
            # For each block an empty one first, then its content piece by piece.
            empty = {**block, **_ANTHROPIC_EMPTY[block["type"]]}
            yield sse_event({"type": "content_block_start", "index": index, "content_block": empty})
            if block["type"] == "text":
                deltas = [{"type": "text_delta", "text": one} for one in pieces(block["text"])]
            elif block["type"] == "thinking":
                said = pieces(block["thinking"])
                deltas = [{"type": "thinking_delta", "thinking": one} for one in said]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            else:
                said = pieces(json_of(block["input"]))
                deltas = [{"type": "input_json_delta", "partial_json": one} for one in said]
            for delta in deltas:
                yield sse_event({"type": "content_block_delta", "index": index, "delta": delta})
            yield sse_event({"type": "content_block_stop", "index": index})
        yield sse_event(
            {
                "type": "message_delta",
                "delta": {"stop_reason": turn.stop_reason, "stop_sequence": None},
                "usage": {"output_tokens": turn.output_tokens},
            }
        )
        yield sse_event({"type": "message_stop"})

    def refusal(self, status: int, text: str, ident: str) -> ErrorReply:
        error = {"type": ERROR_KINDS.get(status, ERROR_KINDS[INVALID])[0], "message": text}
        body = {"type": "error", "error": error, "request_id": f"req_{ident}"}
        return ErrorReply(body, {"request-id": f"req_{ident}"})


def _anthropic_opening(turn: AnsweredTurn) -> dict[str, Any]:
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


def _anthropic_blocks(turn: AnsweredTurn) -> list[dict[str, Any]]:
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


SSE = "sse"
# "models/…" in the Gemini API, "projects/…/publishers/google/models/…" in Vertex AI.
_GEMINI_MODEL = r"/{version:v1[a-z0-9]*}{before:(?:/.*)?}/models/{model:[^/:]+}"


class GeminiApi(Wire):
    """``POST /v1beta/models/{model}:generateContent`` and related addresses."""

    dialect = GEMINI
    routes = (
        ApiRoute(_GEMINI_MODEL + ":generateContent", ANSWER),
        ApiRoute(_GEMINI_MODEL + ":streamGenerateContent", STREAM),
        ApiRoute(_GEMINI_MODEL + ":countTokens", COUNT),
    )
    paths = re.compile(r"/v1(beta|alpha)|/v1[a-z0-9]*(/.*)?/models/[^/]*:")
    required = ("contents",)
    list_key = "contents"
    lack = "* GenerateContentRequest.{field}: {field} is not specified\n"
    no_object = "Invalid JSON payload received. Unexpected token."
    failures: ClassVar = {
        429: "Resource has been exhausted (e.g. check quota).",
        500: "An internal error has occurred. Please retry.",
        503: "The model is overloaded. Please try again later.",
        529: "The model is overloaded. Please try again later.",
    }

    def tools(self, body: Mapping[str, Any]) -> set[str]:
        offered = body.get("tools")
        found: set[str] = set()
        for tool in offered if isinstance(offered, list) else ():
            for key in ("functionDeclarations", "function_declarations"):
                found |= tool_names(tool.get(key) if isinstance(tool, dict) else None, "name")
        return found

    def whole(self, turn: AnsweredTurn) -> dict[str, Any]:
        return _gemini_chunk(turn, _gemini_parts(turn), last=True)

    def stream(self, turn: AnsweredTurn) -> Iterator[bytes]:
        if turn.at.framing == SSE:
            yield from (b"data: %s\r\n\r\n" % json.dumps(c).encode() for c in _gemini_chunks(turn))
            return
        lead = b"["
        for chunk in _gemini_chunks(turn):
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
        kind = ERROR_KINDS.get(status, ERROR_KINDS[INVALID])[1]
        return ErrorReply({"error": {"code": status, "message": text, "status": kind}})


def _gemini_parts(turn: AnsweredTurn) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    reply = turn.reply
    if reply.thinking:
        parts.append({"text": reply.thinking, "thought": True})
    if reply.text:
        parts.append({"text": reply.text})
    for number, call in enumerate(reply.calls):
        ident = turn.call_id("id", "", number)
        parts.append({"functionCall": {**ident, "name": call.name, "args": call.arguments}})
    # The first of parallel calls is signed; without calls, the last text is, if there was thinking.
    if reply.calls:
        parts[-len(reply.calls)]["thoughtSignature"] = turn.signature
    elif reply.thinking and reply.text:
        parts[-1]["thoughtSignature"] = turn.signature
    return parts


def _gemini_chunk(turn: AnsweredTurn, parts: list[dict[str, Any]], *, last: bool) -> dict[str, Any]:
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


def _gemini_chunks(turn: AnsweredTurn) -> Iterator[dict[str, Any]]:
    """Yield responses with one piece each; a text comes in several, a call in one."""
    bits: list[dict[str, Any]] = []
    for part in _gemini_parts(turn):
        if "text" in part:
            plain = {key: value for key, value in part.items() if key == "thought"}
            bits += [{"text": piece, **plain} for piece in pieces(part["text"])]
            # the signature is on the last piece
            bits[-1] = {**part, **bits[-1]}
        else:
            bits.append(part)
    for number, bit in enumerate(bits, 1):
        yield _gemini_chunk(turn, [bit], last=number == len(bits))


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
    tool_name = ("toolSpec", "name")
    lack = (
        "1 validation error detected: Value at '{field}' failed to satisfy constraint: "
        "Member must not be null"
    )
    failures: ClassVar = {
        429: "Too many requests, please wait before trying again.",
        500: (
            "The system encountered an unexpected error during processing. Try your request again."
        ),
        503: "The service is unable to process your request at this time. Please try again.",
        529: "The service is unable to process your request at this time. Please try again.",
    }

    def tools(self, body: Mapping[str, Any]) -> set[str]:
        config = body.get("toolConfig")
        return super().tools(config) if isinstance(config, dict) else set()

    def whole(self, turn: AnsweredTurn) -> dict[str, Any]:
        message = {"role": "assistant", "content": _bedrock_blocks(turn)}
        return {
            "output": {"message": message},
            "stopReason": turn.stop_reason,
            **_bedrock_cost(turn),
        }

    def stream(self, turn: AnsweredTurn) -> Iterator[bytes]:
        deltas: list[dict[str, Any]]
        events: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]
        for index, block in enumerate(_bedrock_blocks(turn)):
            at = {"contentBlockIndex": index}
            if "toolUse" in block:
                start = {key: value for key, value in block["toolUse"].items() if key != "input"}
                events.append(("contentBlockStart", {**at, "start": {"toolUse": start}}))
            if "text" in block:
                deltas = [{"text": one} for one in pieces(block["text"])]
            elif "toolUse" in block:
                arguments = pieces(json_of(block["toolUse"]["input"]))
                deltas = [{"toolUse": {"input": one}} for one in arguments]
            else:
                thought = block["reasoningContent"]["reasoningText"]
                deltas = [{"reasoningContent": {"text": one}} for one in pieces(thought["text"])]
                deltas.append({"reasoningContent": {"signature": thought["signature"]}})
            events += [("contentBlockDelta", {**at, "delta": delta}) for delta in deltas]
            events.append(("contentBlockStop", at))
        events.append(("messageStop", {"stopReason": turn.stop_reason}))
        events.append(("metadata", _bedrock_cost(turn)))
        for name, fields in events:
            yield encode_event(name, json.dumps(fields).encode())

    def media_type(self, at: RequestAddress) -> str:
        return MEDIA_TYPE

    def refusal(self, status: int, text: str, ident: str) -> ErrorReply:
        kind = ERROR_KINDS.get(status, ERROR_KINDS[INVALID])[2]
        headers = {"x-amzn-errortype": kind, "x-amzn-requestid": ident}
        return ErrorReply({"message": text}, headers)


def _bedrock_blocks(turn: AnsweredTurn) -> list[dict[str, Any]]:
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


def _bedrock_cost(turn: AnsweredTurn) -> dict[str, Any]:
    usage = {
        "inputTokens": turn.input_tokens,
        "outputTokens": turn.output_tokens,
        "totalTokens": turn.input_tokens + turn.output_tokens,
    }
    return {"usage": usage, "metrics": {"latencyMs": 1}}
