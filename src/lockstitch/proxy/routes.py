"""Which API a request speaks, told from its method and its path alone, and errors in its shape."""

from __future__ import annotations

import json
import re
from collections.abc import Container
from typing import Any
from urllib.parse import unquote

from msgspec import Struct, structs

from lockstitch.dialects import ANTHROPIC, BEDROCK, GEMINI, OPENAI_CHAT, OPENAI_RESPONSES

DIALECTS = (ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES, GEMINI, BEDROCK)

# A path that leads out of the folder that an upstream was given, spelled in any way.
_DOTS = re.compile(r"(?:^|[/\\])(?:\.|%2e){1,2}(?:[/\\;?#]|$)", re.IGNORECASE)
_HIDDEN = re.compile(r"%2f|%5c|%00|[\x00-\x20\x7f\\#]", re.IGNORECASE)


class ProxyRoute(Struct, frozen=True):
    """What is known of a request before its body is read.

    ``dialect`` is that of the body, and ``vendor`` says whose API it came to: the two differ where
    one vendor serves another's models. ``name`` is for logs and metrics and comes from a fixed
    list. ``model`` is set where the path names it; ``streams`` where the path asks for a stream.
    """

    name: str
    dialect: str = ""
    vendor: str = ""
    model: str | None = None
    streams: bool = False

    @property
    def is_known(self) -> bool:
        """Whether the body is a conversation that can be checked."""
        return bool(self.dialect)


class _Pattern(Struct, frozen=True):
    """A path, and what is known of the requests to it."""

    path: re.Pattern[str]
    route: ProxyRoute


def _known(path: str, name: str, dialect: str, vendor: str, *, streams: bool = False) -> _Pattern:
    return _Pattern(re.compile(path), ProxyRoute(name, dialect, vendor, streams=streams))


_MODEL = r"(?P<model>[^/:?]+(?:(?::|%3A)[^/:?]+)*)"
_VERTEX = rf"(?:/[^?]*)?/publishers/anthropic/models/{_MODEL}"
_PATTERNS = (
    _known(r"/v1/messages", "messages", ANTHROPIC, ANTHROPIC),
    _known(r"/v1/messages/count_tokens", "count_tokens", ANTHROPIC, ANTHROPIC),
    _known(r"(?:/v1)?/chat/completions", "chat", OPENAI_CHAT, OPENAI_CHAT),
    _known(r"(?:/v1)?/responses", "responses", OPENAI_RESPONSES, OPENAI_RESPONSES),
    _known(r"/openai/deployments/[^/?]+/chat/completions", "chat", OPENAI_CHAT, OPENAI_CHAT),
    _known(r"/openai(?:/v1)?/responses", "responses", OPENAI_RESPONSES, OPENAI_RESPONSES),
    _known(r"/openai/v1/chat/completions", "chat", OPENAI_CHAT, OPENAI_CHAT),
    _known(rf"{_VERTEX}:rawPredict", "messages", ANTHROPIC, GEMINI),
    _known(rf"{_VERTEX}:streamRawPredict", "messages", ANTHROPIC, GEMINI, streams=True),
    _known(rf"(?:/[^?]*)?/models/{_MODEL}:generateContent", "generateContent", GEMINI, GEMINI),
    _known(
        rf"(?:/[^?]*)?/models/{_MODEL}:streamGenerateContent",
        "streamGenerateContent",
        GEMINI,
        GEMINI,
        streams=True,
    ),
    _known(rf"/model/{_MODEL}/converse", "converse", BEDROCK, BEDROCK),
    _known(rf"/model/{_MODEL}/converse-stream", "converse-stream", BEDROCK, BEDROCK, streams=True),
)
OTHER = "other"
NAMES = (*dict.fromkeys(pattern.route.name for pattern in _PATTERNS), OTHER)


def route_of(method: str, path: str, headers: Container[str]) -> ProxyRoute:
    """Return what a request is; one that nobody here knows still has a vendor it goes to.

    ``path`` is as it came, without the query; ``headers`` holds the names, in whatever case their
    container takes.
    """
    if method == "POST":
        for pattern in _PATTERNS:
            if found := pattern.path.fullmatch(path):
                named, route = found.groupdict().get("model"), pattern.route
                return route if named is None else structs.replace(route, model=unquote(named))
    return ProxyRoute(OTHER, vendor=_vendor(path, headers))


def _vendor(path: str, headers: Container[str]) -> str:
    """Return whose API it is; one path, such as ``/v1/models``, is several vendors'."""
    if "anthropic-version" in headers or path.startswith("/v1/messages"):
        return ANTHROPIC
    if "x-goog-api-key" in headers or path.startswith(("/v1beta", "/v1alpha", "/upload/v1beta")):
        return GEMINI
    if path.startswith(("/model/", "/guardrail/", "/async-invoke")):
        return BEDROCK
    return OPENAI_RESPONSES


def is_sound(path: str) -> bool:
    """Whether a path stays on the upstream it is sent to, and says one thing to every reader."""
    return path.startswith("/") and not _DOTS.search(path) and not _HIDDEN.search(path)


_KINDS = {
    400: ("invalid_request_error", "INVALID_ARGUMENT", "ValidationException"),
    401: ("authentication_error", "UNAUTHENTICATED", "UnrecognizedClientException"),
    403: ("permission_error", "PERMISSION_DENIED", "AccessDeniedException"),
    404: ("not_found_error", "NOT_FOUND", "ResourceNotFoundException"),
    408: ("timeout_error", "DEADLINE_EXCEEDED", "ModelTimeoutException"),
    413: ("request_too_large", "INVALID_ARGUMENT", "ValidationException"),
    502: ("api_error", "UNAVAILABLE", "ServiceUnavailableException"),
    504: ("timeout_error", "DEADLINE_EXCEEDED", "ModelTimeoutException"),
}
_OTHERWISE = ("api_error", "INTERNAL", "InternalServerException")


def error_body(status: int, text: str, vendor: str) -> tuple[bytes, list[tuple[str, str]]]:
    """Return the body of an error and the headers that belong to it."""
    common, google, amazon = _KINDS.get(status, _OTHERWISE)
    said = f"lockstitch proxy: {text}"
    headers = [("Content-Type", "application/json")]
    body: dict[str, Any]
    if vendor == ANTHROPIC:
        body = {"type": "error", "error": {"type": common, "message": said}}
    elif vendor == GEMINI:
        body = {"error": {"code": status, "message": said, "status": google}}
    elif vendor == BEDROCK:
        body = {"message": said}
        headers.append(("x-amzn-ErrorType", amazon))
    else:
        body = {"error": {"message": said, "type": common, "param": None, "code": None}}
    return json.dumps(body).encode(), headers
