"""All formats, and how one is told from its first records or its tables."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from lockstitch.errors import UsageError
from lockstitch.formats.base import SQLITE, Format

# In the order in which they are tried: the most particular first, plain lists last.
_CLASSES = {
    "claude-code": ("claude_code", "ClaudeCode"),
    "codex": ("codex", "Codex"),
    "pi": ("pi", "Pi"),
    "openclaw": ("openclaw", "OpenClaw"),
    "gemini-cli": ("gemini_cli", "GeminiCli"),
    "opencode": ("opencode", "OpenCode"),
    "opencode-export": ("opencode_export", "OpenCodeExport"),
    "goose": ("goose", "Goose"),
    "openai-agents": ("openai_agents", "OpenAIAgents"),
    "langgraph": ("langgraph.format", "LangGraph"),
    "list": ("plain", "PlainList"),
}
NAMES = tuple(_CLASSES)
# Kept in databases alone, so that no file of another kind has to wait for them.
_IN_DATABASES = ("openclaw", "openai-agents", "langgraph")
_made: dict[str, Format] = {}


def format_named(name: str) -> Format:
    """Give a format by its name; its module is loaded when it is first asked for."""
    if name not in _CLASSES:
        raise UsageError(f"no format {name!r}; known are {', '.join(NAMES)}")
    if name not in _made:
        module, kind = _CLASSES[name]
        _made[name] = getattr(import_module(f"lockstitch.formats.{module}"), kind)()
    return _made[name]


def format_of(kind: str, name: str, head: Sequence[Any]) -> Format | None:
    """Tell the format of a store of some kind by its first values, None if no program fits."""
    for known in NAMES:
        if known in _IN_DATABASES and kind != SQLITE:
            continue
        form = format_named(known)
        if kind in form.kinds and form.claims(name, head):
            return form
    return None
