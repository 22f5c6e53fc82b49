"""Tell a list's dialect by marks that only one format leaves.

Whether messages are written as those of a dialect, or only look like it.

Programs keep conversations in many shapes that share a word or two with a provider's: a ``role``,
``tool_calls``, ``parts``. Such a list is another program's. Reading it as a dialect would find
everything broken, and a repair would take it apart, so a doubt is enough to leave it alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from lockstitch.dialects.anthropic import Anthropic
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.bedrock import Bedrock
from lockstitch.dialects.gemini import Gemini
from lockstitch.dialects.langchain import LangChain
from lockstitch.dialects.openai_chat import OpenAIChat
from lockstitch.dialects.openai_responses import CALL_KINDS, OUTPUTS, OpenAIResponses
from lockstitch.dialects.profiles import profile_named
from lockstitch.errors import AmbiguousDialect, UsageError

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


def find_doubt(messages: Sequence[Any], dialect: str) -> str:
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


CLASSES: dict[str, type[Dialect]] = {
    "anthropic": Anthropic,
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "gemini": Gemini,
    "bedrock": Bedrock,
    "langchain": LangChain,
}
# So many messages tell what a list is.
ENOUGH = 2000
_LANGCHAIN = frozenset({"human", "ai", "AIMessageChunk"})
_ANTHROPIC = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "image"}
)
_CHAT = frozenset({"image_url", "input_audio"})
_RESPONSES = frozenset({"input_text", "output_text", "input_image", "input_file"})
_RESPONSE_ITEMS = frozenset({*CALL_KINDS, *OUTPUTS, "reasoning", "message", "item_reference"})
_BEDROCK = frozenset({"toolUse", "toolResult", "reasoningContent", "cachePoint", "guardContent"})
_BODY_MARKS = {
    "anthropic": {"anthropic_version", "stop_sequences", "top_k"},
    "openai-chat": {"max_completion_tokens", "frequency_penalty", "logit_bias"},
    "bedrock": {"toolConfig", "modelId", "inferenceConfig", "additionalModelRequestFields"},
}


_NAME_IT = "name its dialect (--dialect on the command line, dialect= in Python)"


def new_dialect(name: str) -> Dialect:
    """Make a fresh view for a dialect."""
    return CLASSES[name]()


def dialect_of(value: Any) -> str:
    """Name the dialect of a list or body; raises ``AmbiguousDialect`` unless exactly one fits."""
    marks = marks_of(value)
    if len(marks) == 1:
        [found] = marks
        why = foreign_calls(messages_of(value)[:ENOUGH], found)
        if why:
            raise AmbiguousDialect(f"this looks like {found}, but {why}; {_NAME_IT}")
        return found
    if not isinstance(value, (list, dict)):
        raise UsageError(f"expected a list of messages or a request body, got {_kind(value)}")
    if not marks:
        raise AmbiguousDialect(
            f"cannot tell which API this list is for; {_NAME_IT}, one of {', '.join(CLASSES)}"
        )
    raise AmbiguousDialect(f"this list has marks of {' and '.join(sorted(marks))}; {_NAME_IT}")


def confirm_dialect(value: Any, dialect: str | None) -> str:
    """Give the dialect to use: the one named, unless all marks speak for one other.

    Reading a list as what it is not would find everything broken, and healing it would take it
    apart; LangChain reads OpenAI's dicts as well as its own.
    """
    if dialect is None:
        return dialect_of(value)
    named = profile_named(dialect).dialect
    marks = marks_of(value)
    if named in marks or len(marks) != 1 or (named == "langchain" and marks == {"openai-chat"}):
        return dialect
    raise UsageError(f"this is {marks.pop()}, not {named}; leave the dialect out or name that one")


def marks_of(value: Any) -> set[str]:
    """Return the dialects that left a mark in a list or body."""
    return set(_marks(value))


def messages_of(value: Any) -> list[Any]:
    """Return the messages of a list or a body; none if it has no list of them."""
    if isinstance(value, dict):
        lists = (value.get(key) for key in ("messages", "input", "contents"))
        value = next((found for found in lists if isinstance(found, list)), None)
    return value if isinstance(value, list) else []


def _kind(value: Any) -> str:
    return type(value).__name__


def _marks(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _body_marks(value)
        if isinstance(value.get("messages"), list):
            yield from _list_marks(value["messages"])
    elif isinstance(value, list):
        yield from _list_marks(value)


def _body_marks(body: dict[str, Any]) -> Iterator[str]:
    if isinstance(body.get("input"), (list, str)):
        yield "openai-responses"
    if isinstance(body.get("contents"), (list, str)):
        yield "gemini"
    if not isinstance(body.get("messages"), list):
        return
    for name, keys in _BODY_MARKS.items():
        if any(key in body for key in keys):
            yield name
    model = body.get("model")
    if isinstance(model, str) and model.startswith("claude"):
        yield "anthropic"
    system = body.get("system")
    typed = isinstance(system, list) and all(isinstance(b, dict) and "type" in b for b in system)
    if isinstance(system, str) or (system and typed) or isinstance(body.get("thinking"), dict):
        yield "anthropic"


def _list_marks(messages: Sequence[Any]) -> Iterator[str]:
    for message in messages[:ENOUGH]:
        if isinstance(message, dict):
            yield from _message_marks(message)


def _message_marks(message: dict[str, Any]) -> Iterator[str]:
    kind = message.get("type")
    if "lc" in message or (isinstance(kind, str) and kind in _LANGCHAIN):
        yield "langchain"
        return
    enveloped = "data" in message or ("role" not in message and "content" in message)
    if isinstance(kind, str) and kind in ("human", "system", "tool") and enveloped:
        yield "langchain"
        return
    if "parts" in message and "content" not in message:
        yield "gemini"
        return
    if isinstance(kind, str) and kind in _RESPONSE_ITEMS and "tool_calls" not in message:
        yield "openai-responses"
        return
    if kind is None and _is_chat(message):
        yield "openai-chat"
    yield from _block_marks(message.get("content"))


def _is_chat(message: dict[str, Any]) -> bool:
    role = message.get("role")
    if role == "tool":
        return "tool_call_id" in message
    return role == "assistant" and bool(message.get("tool_calls"))


def _block_marks(content: Any) -> Iterator[str]:
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind is not None and not isinstance(kind, str):
            continue
        if kind is None:
            if any(key in block for key in _BEDROCK) or set(block) == {"text"}:
                yield "bedrock"
        elif kind in _ANTHROPIC:
            yield "anthropic"
        elif kind in _CHAT:
            yield "openai-chat"
        elif kind in _RESPONSES:
            yield "openai-responses"
