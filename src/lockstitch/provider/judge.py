"""Whether a request would be accepted; if not, with which words it would be refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.dialects.profiles import profile_named
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.heal import check
from lockstitch.provider.anthropic import Anthropic
from lockstitch.provider.bedrock import Bedrock
from lockstitch.provider.gemini import Gemini
from lockstitch.provider.openai_chat import OpenAIChat
from lockstitch.provider.openai_responses import OpenAIResponses
from lockstitch.provider.wire import COUNT, Address, Wire
from lockstitch.rules import ERROR, Finding

WIRES: tuple[Wire, ...] = (
    Anthropic(),
    OpenAIChat(),
    OpenAIResponses(),
    Gemini(),
    Bedrock(),
)


class Verdict(Struct, frozen=True):
    """What came of one request; ``refusal`` is the text it is refused with."""

    body: Mapping[str, Any] = {}
    findings: tuple[Finding, ...] = ()
    refusal: str | None = None


def chosen(profiles: list[str]) -> dict[str, str]:
    """Return the rules each API is judged by: its own, or those of a profile that was named."""
    rules = {wire.dialect: wire.dialect for wire in WIRES}
    for name in profiles:
        dialect = profile_named(name).dialect
        if dialect not in rules:
            raise UsageError(f"the provider speaks {', '.join(rules)}, not {dialect}")
        rules[dialect] = name
    return rules


def wire_at(path: str) -> Wire | None:
    """Return the API that a path belongs to, also if there is nothing at that path."""
    return next((wire for wire in WIRES if wire.paths.match(path)), None)


def judge(data: bytes, wire: Wire, profile: str, at: Address) -> Verdict:
    """Judge one request body that came to an address."""
    body = _decoded(data)
    if body is None:
        return Verdict(refusal=wire.not_json())
    body = wire.request_in(body)
    asks_for_count = at.asks == COUNT
    required = [name for name in wire.required if not (asks_for_count and name == "max_tokens")]
    missing = next((name for name in required if body.get(name) is None), None)
    if missing is not None:
        return Verdict(body, refusal=wire.lacks(missing))
    return _examined(body, wire, profile, at.model or None)


def _examined(body: dict[str, Any], wire: Wire, profile: str, model: str | None) -> Verdict:
    if isinstance(body[wire.list_key], str) and wire.dialect == "openai-responses":
        return Verdict(body)
    try:
        findings = check(body, profile, model=model)
    except LockstitchError as error:
        return Verdict(body, refusal=str(error))
    except RecursionError:
        return Verdict(body, refusal=f"{wire.list_key}: nested too deeply")
    texts = (found.error or found.message for found in findings if found.severity == ERROR)
    return Verdict(body, tuple(findings), next(texts, None))


def _decoded(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a body, or None; what only msgspec refuses is for the rules."""
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        body = _lenient(data)
    return body if isinstance(body, dict) else None


def _lenient(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None


def _no_number(name: str) -> Any:
    raise ValueError(name)
