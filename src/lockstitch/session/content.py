"""What is said, what tools give and what providers answer, as payloads of facts.

JSON that comes as bytes or text is kept byte for byte. Of an SDK's object the JSON is written that
its provider sent: only fields that were received, under the names they have on the wire, those
among them that the SDK does not know. Where a wire format carries bytes (Gemini's signatures and
inline data, Bedrock's redacted reasoning) its JSON has base64, and so has the event.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from lockstitch.conversation import json_text
from lockstitch.conversation.parts import ASSISTANT
from lockstitch.conversation.sdk_objects import is_langchain, reader_of, to_plain
from lockstitch.dialects.exchange import plain_of
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.registry import confirm_dialect, dialect_of, exchange_of, new_dialect
from lockstitch.dialects.replies import (
    calls_in,
    dialect_of_class,
    dialect_of_response,
    messages_in,
    provider_of,
)
from lockstitch.errors import AmbiguousDialect, UsageError
from lockstitch.journal.events import AskedCall, Replied, payload_of, text_payload, value_of

_WANTED = "say takes a text, or content blocks as the dialect spells them"
_USERS = ("user", "human")


def said_payload(content: Any, dialect: str) -> Raw:
    """Write what the user says as a payload; of a whole message of the user's, its content.

    Raises ``UsageError`` for what no message could hold, before anything is written.
    """
    if isinstance(content, str):
        return text_payload(content)
    if not dialect:
        raise UsageError("content blocks are spelled in some dialect: name it (dialect=…)")
    has_types = exchange_of(profile_named(dialect).dialect).has_typed_blocks
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
    """Return what is wrong with a block, or a piece of text; "" if nothing is."""
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


Fields = dict[str, Any]

_UNFINISHED = ("queued", "in_progress")
_UNWRITABLE = (msgspec.MsgspecError, TypeError, ValueError, RecursionError)


def reply_event(
    reply: Any,
    dialect: str | None = None,
    *,
    provider: str | None = None,
    model: str | None = None,
    likely: str = "",
) -> Replied:
    """Make the event of a reply: a whole response, or the message in it, complete in either case.

    ``reply`` is an SDK's object, plain data, or JSON. Without ``dialect`` its class or its shape
    tells it, and where neither does, it is ``likely``; ``provider`` is by default who serves the
    dialect, ``model`` what the reply names. Raises ``UsageError`` for what is no reply: a request,
    an error, somebody else's message.
    """
    payload, value = _opened(reply)
    shaped = dialect_of_class(reply) or dialect_of_response(value)
    name = _agreed(dialect, shaped, value, likely)
    messages = _checked(name, value)
    return Replied(
        payload=payload,
        dialect=profile_named(name).dialect,
        provider=provider if provider is not None else provider_of(name),
        model=model if model is not None else _model_in(value),
        calls=tuple(map(_asked, calls_in(name, messages))),
    )


def _opened(reply: Any) -> tuple[Raw, Any]:
    """Return the JSON to keep and what it says."""
    if isinstance(reply, (bytes, bytearray, memoryview, str)):
        return _kept(reply if isinstance(reply, str) else bytes(reply))
    kind: type = type(reply)
    if not isinstance(reply, (dict, list)) and reader_of(kind) is None:
        raise UsageError(
            f"cannot read a reply from {kind.__module__}.{kind.__qualname__}; pass the response, "
            "its JSON, or plain data"
        )
    payload = _written(plain_of(reply), _hooked if is_langchain(kind) else None)
    return payload, value_of(payload, inner=True)


def _kept(text: bytes | str) -> tuple[Raw, Any]:
    try:
        payload = payload_of(text)
        return payload, value_of(payload, inner=True)
    except (ValueError, RecursionError):
        raise UsageError(_refused(text)) from None


def _refused(text: bytes | str) -> str:
    """Return why a text is not taken for a reply."""
    try:
        plain = text.decode() if isinstance(text, bytes) else text
        json_text.decode(plain, constants=False)
    except ValueError:
        return "this reply is text that is not JSON; pass the response itself"
    return (
        f"this reply holds an integer of more than {json_text.LONGEST} digits, or is nested too "
        "deeply, so it cannot be recorded; ask the model again"
    )


def _written(value: Any, hook: Callable[[Any], Any] | None) -> Raw:
    try:
        return Raw(msgspec.json.encode(value, enc_hook=hook))
    except UnicodeError:
        # half a character: Python can write it down, and what is kept says so
        return payload_of(json.dumps(msgspec.to_builtins(value, enc_hook=hook)))
    except _UNWRITABLE:
        raise UsageError(
            f"cannot write this {type(value).__name__} as JSON; nothing was recorded"
        ) from None


def _hooked(value: Any) -> Any:
    """Write what LangChain keeps beside its messages, such as an SDK's object in the metadata."""
    kind: type = type(value)
    return plain_of(value) if reader_of(kind) is not None else str(value)


def _asked(call: tuple[str, str]) -> AskedCall:
    return AskedCall(*(text.encode("utf-8", "replace").decode() for text in call))


def _agreed(dialect: str | None, shaped: str | None, value: Any, likely: str) -> str:
    """Return the dialect to use; one that was named must be the one that the reply is in."""
    if dialect is None:
        return shaped or _guessed(value, likely)
    named = profile_named(dialect).dialect
    if shaped is not None and shaped != named:
        raise UsageError(f"this is a reply in {shaped}, not in {named}; name that one")
    return (
        dialect
        if shaped
        else confirm_dialect(value if isinstance(value, list) else [value], dialect)
    )


def _guessed(value: Any, likely: str) -> str:
    _refuse_others(value)
    messages = value if isinstance(value, list) else [value]
    try:
        return dialect_of(messages)
    except AmbiguousDialect:
        if likely:
            return confirm_dialect(messages, likely)
        raise AmbiguousDialect(
            "nothing in this reply tells its dialect apart; name one, or pass the whole response"
        ) from None


def _checked(name: str, value: Any) -> list[Any]:
    """Return the messages of a reply; raises ``UsageError`` for what is none."""
    _refuse_others(value)
    messages = messages_in(name, value)
    dialect = profile_named(name).dialect
    view = new_dialect(dialect).read(messages)
    if dialect_of_response(value) is None and any(message.role != ASSISTANT for message in view):
        raise UsageError("this is not a reply: it holds a message that no model has sent")
    if not messages and not _is_empty_reply(dialect, value):
        raise UsageError(f"this is not a reply in {dialect}: no message is in it")
    return messages


def _refuse_others(value: Any) -> None:
    """Raise ``UsageError`` for a request, and for an error: neither is part of a conversation."""
    if not isinstance(value, dict):
        return
    if any(isinstance(value.get(key), list) for key in ("messages", "contents", "input")):
        raise UsageError("this is a request body, not a reply; nothing was recorded")
    status = value.get("status")
    if value.get("type") == "error" or value.get("error") or status == "failed":
        raise UsageError("this is an error of the provider's, not a reply; nothing was recorded")
    if value.get("object") == "response" and status in _UNFINISHED:
        raise UsageError("this response is not finished; nothing was recorded")


def _is_empty_reply(dialect: str, value: Any) -> bool:
    """Whether this is a reply with nothing in it: models give those too."""
    if dialect_of_response(value) == dialect:
        return True
    if not isinstance(value, dict):
        return False
    fields = value.get("data") or value.get("kwargs") or value
    fields = fields if isinstance(fields, dict) else value
    is_said = fields.get("role") in ("assistant", "model") or fields.get("type") == "ai"
    return is_said or str(value.get("type")) in ("ai", "AIMessageChunk", "constructor")


def _model_in(value: Any) -> str:
    """Return the model that a response names, "" if it names none."""
    fields = value if isinstance(value, dict) else {}
    for key in ("data", "kwargs", "response_metadata"):
        inner = fields.get(key)
        fields = inner if isinstance(inner, dict) else fields
    names = (fields.get(key) for key in ("model", "model_name", "modelVersion", "model_version"))
    return next((name for name in names if isinstance(name, str) and name), "")
