"""What is said, and what tools give, as payloads of facts."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
from msgspec import Raw

from lockstitch.conversation.sdk_objects import to_plain
from lockstitch.dialects.profiles import profile_named
from lockstitch.errors import UsageError
from lockstitch.journal.events import text_payload

_WANTED = "say takes a text, or content blocks as the dialect spells them"
_USERS = ("user", "human")
# There the name of a block's field says what it is.
_WITHOUT_TYPES = ("bedrock", "gemini")


def said_payload(content: Any, dialect: str) -> Raw:
    """Write what the user says as a payload; of a whole message of the user's, its content.

    Raises ``UsageError`` for what no message could hold, before anything is written.
    """
    if isinstance(content, str):
        return text_payload(content)
    if not dialect:
        raise UsageError("content blocks are spelled in some dialect: name it (dialect=…)")
    has_types = profile_named(dialect).dialect not in _WITHOUT_TYPES
    blocks = _blocks(to_plain(content)[0])
    for fault in filter(None, (_fault(block, has_types=has_types) for block in blocks)):
        raise UsageError(f"{_WANTED}; this is a list with {fault}")
    return json_payload(blocks)


def _blocks(content: Any) -> Any:
    """Return content as a list of blocks; a text stays one."""
    if isinstance(content, dict):
        content = _inner(content) if _role(content) else [content]
    if not isinstance(content, str | list):
        raise UsageError(f"{_WANTED}; this is of type {type(content).__name__}")
    return content


def _fault(block: Any, *, has_types: bool) -> str:
    """Say what is wrong with a block, or a piece of text; "" if nothing is."""
    if isinstance(block, str):
        return ""
    if not isinstance(block, dict):
        return f"something of type {type(block).__name__} in it"
    if _role(block):
        return "messages in it: say them one by one"
    if not block or (has_types and not isinstance(block.get("type"), str)):
        return "a block in it that has no type"
    return ""


def _inner(message: dict[str, Any]) -> Any:
    if _role(message) not in _USERS:
        raise UsageError(f"{_WANTED}; this is a message of somebody else: record takes replies")
    return message.get("content", message.get("parts"))


def _role(block: Any) -> Any:
    """Return who speaks, in a whole message; blocks have no role."""
    if not isinstance(block, dict):
        return None
    is_message = "content" in block and block.get("type") in {"human", "ai", "system", "tool"}
    return block.get("role") or (block["type"] if is_message else None)


def content_payload(content: Any, dialect: str) -> Raw:
    """Write content blocks as a payload; raises ``UsageError`` for what is no content at all."""
    profile_named(dialect)
    return json_payload(to_plain(content)[0])


def json_payload(value: Any) -> Raw:
    """Write a plain value as a payload; what UTF-8 cannot say in it is replaced."""
    try:
        return Raw(msgspec.json.encode(value))
    except UnicodeEncodeError:
        return Raw(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(error).__name__
        raise UsageError(f"this cannot be written as JSON ({kind}); nothing was written") from None


def text_of(value: Any) -> str:
    """Return a tool's result as text: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return _decoded(bytes(value))
    try:
        return msgspec.json.encode(value, enc_hook=_plain).decode()
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _decoded(data: bytes) -> str:
    """Return the output of a program as the text that it is nearly always."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        told = base64.b64encode(data).decode()
        return f"[lockstitch] {len(data)} bytes that are not UTF-8, as base64:\n{told}"


def _plain(value: Any) -> Any:
    """Return an object's plain form: a pydantic model's own, else what it calls itself."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)
