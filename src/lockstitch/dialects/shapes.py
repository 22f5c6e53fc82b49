"""Whether messages are written as those of a dialect, or only look like it.

Programs keep conversations in many shapes that share a word or two with a provider's: a ``role``,
``tool_calls``, ``parts``. Such a list is another program's. Reading it as a dialect would find
everything broken, and a repair would take it apart, so a doubt is enough to leave it alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from lockstitch.dialects.openai_responses import CALL_KINDS, OUTPUTS

# The types that only LangChain gives to messages.
LANGCHAIN = ("human", "ai", "HumanMessageChunk", "AIMessageChunk")
_SPEAKERS = frozenset({"user", "assistant", "system"})
_ROLES = {
    "anthropic": _SPEAKERS,
    "openai-chat": _SPEAKERS | {"developer", "tool", "function"},
    "openai-responses": _SPEAKERS | {"developer"},
    "gemini": frozenset({"user", "model", "function", "system", None}),
    "bedrock": _SPEAKERS,
}
_REPLY = {"id", "type", "model", "stop_reason", "stop_sequence", "stop_details", "usage"}
# What a message may hold, as it is sent or as it came with a reply.
_FIELDS = {
    "anthropic": frozenset({"role", "content", "container", "context_management", *_REPLY}),
    "openai-chat": frozenset(
        {
            *("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio"),
            *("function_call", "annotations", "parsed", "weight", "prefix", "partial", "images"),
            *("reasoning_content", "reasoning", "reasoning_details", "thinking", "tool_name"),
            *("thinking_blocks", "provider_specific_fields", "cache_control"),
        }
    ),
    "gemini": frozenset({"role", "parts"}),
    "bedrock": frozenset({"role", "content"}),
}
# What only a store puts around messages: these dialects have too many fields to list.
_ENVELOPE = frozenset(
    {
        *("sessionId", "sessionID", "session_id", "uuid", "parentUuid", "parentId", "parent_id"),
        *("timestamp", "ts", "time", "created", "createdAt", "messageId", "message_id"),
    }
)
_ITEMS = frozenset({*CALL_KINDS, *OUTPUTS, "reasoning", "item_reference", "compaction"})
_CALL_WORDS = frozenset(
    {"name", "tool_name", "toolName", "arguments", "arguments_json", "args", "input"}
)
_ANSWER_WORDS = frozenset(
    {"toolUseID", "toolUseId", "tool_call_id", "toolCallId", "call_id", "callId"}
)
_SAID = frozenset({"content", "tool_calls", "function_call", "refusal", "audio"})
_PLAIN = re.compile(r"[A-Za-z$_][\w$-]{0,29}")
_SHOWN = 3


def doubt(messages: Sequence[Any], dialect: str) -> str:
    """Return why messages that look like a dialect's are not sure to be; empty if they are."""
    calls = foreign_calls(messages, dialect)
    if calls:
        return calls
    extra = [found for message in messages if (found := _extra(message, dialect))]
    if 10 * len(extra) > len(messages):
        names = sorted({name for found in extra for name in found if _PLAIN.fullmatch(name)})
        some = f" ({', '.join(names[:_SHOWN])})" if names else ""
        return f"its messages have fields that no request has{some}"
    if dialect == "langchain" and not any(map(_is_langchain, messages)):
        return "no message in it says human or ai"
    if 2 * sum(not _fits(message, dialect) for message in messages) > len(messages):
        return "most of its messages have another shape"
    return ""


def foreign_calls(messages: Sequence[Any], dialect: str) -> str:
    """Return that most calls or results are written in another way; empty if they are not."""
    verdicts = [*_calls(messages, dialect)]
    if 2 * sum(verdicts) > len(verdicts):
        return "its calls or results are written in another way"
    return ""


def _calls(messages: Sequence[Any], dialect: str) -> Iterator[bool]:
    """Give for every call, or result, whether it is written as no such dialect does."""
    for message in messages:
        if type(message) is not dict:
            continue
        if dialect == "openai-chat":
            yield from (_is_foreign_call(call) for call in _objects(message, "tool_calls"))
        elif dialect == "anthropic":
            for block in _objects(message, "content"):
                if block.get("type") == "tool_result":
                    named = "tool_use_id" in block
                    yield not named and not _ANSWER_WORDS.isdisjoint(block)
        elif dialect == "gemini":
            yield from ("type" in part for part in _objects(message, "parts"))


def _objects(message: dict[str, Any], key: str) -> list[dict[str, Any]]:
    listed = message.get(key)
    return [one for one in listed if type(one) is dict] if type(listed) is list else []


def _is_foreign_call(call: dict[str, Any]) -> bool:
    if "function" in call or "custom" in call or call.get("type") in ("function", "custom"):
        return False
    return not _CALL_WORDS.isdisjoint(call)


def _is_langchain(message: Any) -> bool:
    if type(message) is not dict:
        return False
    return "lc" in message or "role" in message or message.get("type") in LANGCHAIN


def _extra(message: Any, dialect: str) -> set[str]:
    """Give the fields of a message that the dialect does not have."""
    if type(message) is not dict:
        return set()
    known = _FIELDS.get(dialect)
    return message.keys() - known if known else message.keys() & _ENVELOPE


def _fits(message: Any, dialect: str) -> bool:
    """Whether a message, sound or broken, is one of the dialect's."""
    if type(message) is not dict:
        return False
    if dialect == "langchain":
        return not {"type", "lc", "role"}.isdisjoint(message)
    if dialect == "openai-responses" and message.get("type", "message") != "message":
        return type(message["type"]) is str and (message["type"] in _ITEMS or "id" in message)
    role = message.get("role")
    if type(role) not in (str, type(None)) or role not in _ROLES[dialect]:
        return False
    return "parts" in message if dialect == "gemini" else not _SAID.isdisjoint(message)
