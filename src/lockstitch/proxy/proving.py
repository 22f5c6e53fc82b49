"""Whether a request is certainly fine, told without building a view of it.

Reads the everyday shapes of each dialect. What it passes, the rules pass as well; what it does not
pass may be fine all the same, and is left to them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from lockstitch.dialects.fast import PROOFS, is_blank
from lockstitch.dialects.profiles import traits_of
from lockstitch.proxy import routes
from lockstitch.rules.content import markers_outside

Body = dict[str, Any]

# Larger ones may hold a giant, or be more than the provider takes.
_UNREMARKABLE = 10 << 20
_NUL = re.compile(rb"\\u0000")
_MOST_MARKERS = 4
_THINKING = ("thinking", "redacted_thinking")


class _Around(Struct, frozen=True):
    """A request: the whole body, the messages in it, and the model it is for."""

    body: Body
    raw: list[Any]
    model: str | None


def is_clean(data: bytes) -> bool:
    """Whether a text of JSON is of a usual size and certainly holds no NUL."""
    return len(data) <= _UNREMARKABLE and _NUL.search(data) is None


def is_proven(body: Body, dialect: str, model: str | None) -> bool:
    """Whether the value of a clean text certainly breaks no rule of the dialect."""
    raw = body.get(_LISTS[dialect])
    try:
        if type(raw) is not list or not raw or not _ASIDE[dialect](_Around(body, raw, model)):
            return False
        failed = _walked(raw, dialect)
        if (
            failed < len(raw)
            and dialect == routes.ANTHROPIC
            and _plainer(raw[failed]) is not raw[failed]
        ):
            if not _markers_are_fine(body, raw):
                return False
            failed = _walked([*map(_plainer, raw)], dialect)
        return failed == len(raw)
    except (KeyError, TypeError, AttributeError, IndexError):
        return False


def _walked(raw: list[Any], dialect: str) -> int:
    """Return the number of the first message that is not plain, that of all if every one is."""
    proof = PROOFS[dialect]()
    at = proof.run(raw, 0, [])
    return at if at < len(raw) or proof.is_sound() else 0


def _anthropic(asked: _Around) -> bool:
    """Look at what surrounds the messages: how they end, the tools, and the thinking asked for."""
    body, raw = asked.body, asked.raw
    if any(len(message) != 2 for message in raw) or raw[-1]["role"] != "user":  # noqa: PLR2004
        return False
    tools = body.get("tools")
    names = [tool["name"] for tool in tools] if tools else []
    if not names or len(set(names)) != len(names):
        # without tools a call anywhere counts
        return not tools and len(raw) == 1
    thinking = body.get("thinking")
    if thinking is None or thinking["type"] in ("adaptive", "disabled"):
        return True
    last = raw[-1]["content"]
    if type(last) is str or all(block["type"] != "tool_result" for block in last):
        return True
    said = raw[-2]["content"]
    return raw[-3]["role"] == "user" and type(said) is list and said[0]["type"] in _THINKING


def _markers_are_fine(body: Body, raw: list[Any]) -> bool:
    marked = [
        block
        for message in raw
        if type(message["content"]) is list
        for block in message["content"]
        if "cache_control" in block
    ]
    if any(block["type"] in _THINKING for block in marked):
        return False
    return len(marked) + markers_outside(body) <= _MOST_MARKERS


def _plainer(message: Body) -> Body:
    """Return a message without what is usual and cannot be wrong here: markers, texts in lists."""
    content = message["content"]
    if type(content) is str or not any(map(_is_dressed, content)):
        return message
    return {"role": message["role"], "content": [*map(_undressed, content)]}


def _is_dressed(block: Body) -> bool:
    return "cache_control" in block or type(block.get("content")) is list


def _undressed(block: Body) -> Body:
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    held = plain.get("content")
    if plain["type"] == "tool_result" and type(held) is list and all(map(_is_text, held)):
        plain["content"] = ""
    return plain


def _is_text(block: Body) -> bool:
    return (
        block.keys() == {"type", "text"} and block["type"] == "text" and not is_blank(block["text"])
    )


def _chat(asked: _Around) -> bool:
    return asked.raw[-1]["role"] in ("user", "tool")


def _responses(asked: _Around) -> bool:
    if asked.body.get("store") is not False:
        return True
    return all(
        type(item.get("encrypted_content")) is str
        for item in asked.raw
        if item["type"] == "reasoning"
    )


def _gemini(asked: _Around) -> bool:
    if asked.raw[-1]["role"] != "user":
        return False
    return not traits_of(asked.model).thought_signatures or all(map(_is_signed, asked.raw))


def _is_signed(message: Body) -> bool:
    """Whether the first call of a message, if it makes any, has its signature."""
    calls = [part for part in message["parts"] if "functionCall" in part]
    return not calls or bool(calls[0].get("thoughtSignature"))


def _bedrock(asked: _Around) -> bool:
    return asked.raw[-1]["role"] == "user" and bool(
        asked.body.get("toolConfig") or len(asked.raw) == 1
    )


_LISTS = {
    routes.ANTHROPIC: "messages",
    routes.CHAT: "messages",
    routes.RESPONSES: "input",
    routes.GEMINI: "contents",
    routes.BEDROCK: "messages",
}
_ASIDE: dict[str, Callable[[_Around], bool]] = {
    routes.ANTHROPIC: _anthropic,
    routes.CHAT: _chat,
    routes.RESPONSES: _responses,
    routes.GEMINI: _gemini,
    routes.BEDROCK: _bedrock,
}
