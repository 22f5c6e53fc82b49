"""Tell a list's dialect by marks that only one format leaves."""

from __future__ import annotations

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
from lockstitch.dialects.shapes import foreign_calls
from lockstitch.errors import AmbiguousDialect, UsageError

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
        why = foreign_calls(listed(value)[:ENOUGH], found)
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


def confirmed(value: Any, dialect: str | None) -> str:
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


def listed(value: Any) -> list[Any]:
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
