"""Errors as OpenAI spells them, in both of its APIs."""

from __future__ import annotations

from lockstitch.provider.wire import INVALID, Refusal

_OTHER = ("invalid_request_error", None)
# The type and the code of an error by its status.
_KINDS: dict[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("permission_error", None),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("service_unavailable_error", None),
    504: ("server_error", None),
    529: ("service_unavailable_error", None),
}
FAILURES = {
    429: "Rate limit reached. Please try again later.",
    500: "The server had an error while processing your request. Sorry about that!",
    503: "The engine is currently overloaded, please try again later",
    529: "The engine is currently overloaded, please try again later",
}


def openai_refusal(status: int, text: str, ident: str, list_key: str) -> Refusal:
    """Return an error; one that is about the conversation names the field it is in."""
    kind, code = _KINDS.get(status, _OTHER)
    param = list_key if status == INVALID else None
    error = {"message": text, "type": kind, "param": param, "code": code}
    return Refusal({"error": error}, {"x-request-id": f"req_{ident}"})
