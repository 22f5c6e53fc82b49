"""Requests of every route: a body around messages, and the path it goes to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.kinds_of_break.render import FORMS

TOOLS = ("read_file", "grep", "list_files", "bash")
_SCHEMA = {"type": "object"}


def _anthropic(messages: list[Any]) -> dict[str, Any]:
    tools = [{"name": name, "input_schema": _SCHEMA} for name in TOOLS]
    return {"model": "claude-sonnet-5", "max_tokens": 99, "tools": tools, "messages": messages}


def _chat(messages: list[Any]) -> dict[str, Any]:
    return {"model": "gpt-5", "messages": messages}


def _responses(messages: list[Any]) -> dict[str, Any]:
    return {"model": "gpt-5", "input": messages}


def _gemini(messages: list[Any]) -> dict[str, Any]:
    return {"contents": messages, "generationConfig": {"temperature": 1.0}}


def _bedrock(messages: list[Any]) -> dict[str, Any]:
    specs = [{"toolSpec": {"name": name, "inputSchema": {"json": _SCHEMA}}} for name in TOOLS]
    return {"messages": messages, "toolConfig": {"tools": specs}}


@dataclass(frozen=True)
class Case:
    """A route: its path, the form that its messages have, and the body around them."""

    name: str
    path: str
    form: str
    around: Callable[[list[Any]], dict[str, Any]]

    @property
    def dialect(self) -> str:
        """The dialect of the messages."""
        return FORMS[self.form][0]

    @property
    def list_key(self) -> str:
        """Where a body has its messages."""
        return {"openai-responses": "input", "gemini": "contents"}.get(self.dialect, "messages")

    def body(self, turns: Any, **style: Any) -> bytes:
        """The body of a conversation, spelled in some style."""
        return json.dumps(self.around(FORMS[self.form][1](turns)), **style).encode()


_GEMINI = "/v1beta/models/gemini-2.5-pro"
_BEDROCK = "/model/anthropic.claude-sonnet-5-v1%3A0"
CASES = (
    Case("messages", "/v1/messages", "anthropic", _anthropic),
    Case("count_tokens", "/v1/messages/count_tokens", "anthropic", _anthropic),
    Case("chat", "/v1/chat/completions", "openai-chat", _chat),
    Case("responses", "/v1/responses", "openai-responses", _responses),
    Case("generateContent", f"{_GEMINI}:generateContent", "gemini", _gemini),
    Case("stream, snake", f"{_GEMINI}:streamGenerateContent?alt=sse", "gemini-snake", _gemini),
    Case("converse", f"{_BEDROCK}/converse", "bedrock", _bedrock),
    Case("converse-stream", f"{_BEDROCK}/converse-stream", "bedrock", _bedrock),
)
EACH_DIALECT = tuple({case.form: case for case in CASES}.values())
