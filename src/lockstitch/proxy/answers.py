"""What the proxy says itself, in the shape that the client of an API can read."""

from __future__ import annotations

import json
from typing import Any

from lockstitch.proxy import routes

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


def error(status: int, text: str, vendor: str) -> tuple[bytes, list[tuple[str, str]]]:
    """Return the body of an error and the headers that belong to it."""
    common, google, amazon = _KINDS.get(status, _OTHERWISE)
    said = f"lockstitch proxy: {text}"
    headers = [("Content-Type", "application/json")]
    body: dict[str, Any]
    if vendor == routes.ANTHROPIC:
        body = {"type": "error", "error": {"type": common, "message": said}}
    elif vendor == routes.GEMINI:
        body = {"error": {"code": status, "message": said, "status": google}}
    elif vendor == routes.BEDROCK:
        body = {"message": said}
        headers.append(("x-amzn-ErrorType", amazon))
    else:
        body = {"error": {"message": said, "type": common, "param": None, "code": None}}
    return json.dumps(body).encode(), headers
