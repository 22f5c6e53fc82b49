"""Which dialect a stream is in, and who gathers it."""

from __future__ import annotations

from typing import Any

from lockstitch.dialects.anthropic.exchange import AnthropicStream
from lockstitch.dialects.bedrock.exchange import BedrockStream
from lockstitch.dialects.gemini.exchange import CHUNK_MARKS, GeminiStream
from lockstitch.dialects.langchain import type_of
from lockstitch.dialects.langchain.exchange import LangChainStream
from lockstitch.dialects.openai_chat.exchange import ChatStream
from lockstitch.dialects.openai_responses.exchange import ResponsesStream
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.streams import Accumulator
from lockstitch.session.content import dialect_of_class

_CLASSES: dict[str, type[Accumulator]] = {
    "anthropic": AnthropicStream,
    "openai-chat": ChatStream,
    "openai-responses": ResponsesStream,
    "gemini": GeminiStream,
    "bedrock": BedrockStream,
    "langchain": LangChainStream,
}
_ANTHROPIC = (AnthropicStream.kinds or frozenset()) | {"ping"}
_BEDROCK = (
    "messageStart",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
)


def accumulator_for(dialect: str) -> Accumulator:
    """Make what gathers a stream in a dialect, or of a profile of one."""
    profile = profile_named(dialect)
    return _CLASSES[profile.dialect](profile)


def dialect_of_event(event: Any) -> str | None:
    """Name the dialect of a stream by one of its events; None if this one does not tell."""
    return _dialect_of_shape(event) if isinstance(event, dict) else dialect_of_class(event)


def _dialect_of_shape(event: dict[str, Any]) -> str | None:
    kind = event.get("type")
    if isinstance(kind, str) and kind in _ANTHROPIC:
        return "anthropic"
    if isinstance(kind, str) and kind.startswith("response."):
        return "openai-responses"
    if event.get("object") == "chat.completion.chunk" or kind == "chunk" or "choices" in event:
        return "openai-chat"
    if any(key in event for key in _BEDROCK):
        return "bedrock"
    if CHUNK_MARKS.intersection(event):
        return "gemini"
    return "langchain" if type_of(event) == "AIMessageChunk" else None
