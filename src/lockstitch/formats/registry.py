"""All formats, and how one is told: by its place, its first records, or its tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import PurePath
from typing import Any

from lockstitch.errors import UsageError
from lockstitch.formats.base import DOCUMENT, SQLITE, Format

# In the order in which they are tried: the most particular first, plain lists last.
_CLASSES = {
    "claude-code": ("claude_code.format", "ClaudeCode"),
    "codex": ("codex.format", "Codex"),
    "pi": ("pi.format", "Pi"),
    "openclaw": ("pi.openclaw", "OpenClaw"),
    "gemini-cli": ("gemini_cli.format", "GeminiCli"),
    "opencode": ("opencode.format", "OpenCode"),
    "opencode-export": ("opencode.format", "OpenCodeExport"),
    "goose": ("goose", "Goose"),
    "openai-agents": ("openai_agents", "OpenAIAgents"),
    "langgraph": ("langgraph.sqlite", "LangGraph"),
    "list": ("plain", "PlainList"),
    "requests": ("requests", "Requests"),
}
NAMES = tuple(_CLASSES)
# Kept in databases alone, so that no file of another kind has to wait for them.
_IN_DATABASES = ("openclaw", "openai-agents", "langgraph")
# What moves the folder of a program; all other places begin with a hidden folder.
VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCLAW_STATE_DIR", "XDG_DATA_HOME")
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
    """Return the format that a store's first values are surely of, None if there is none."""
    return next((form for form in _candidates(kind, head) if form.claims(name, head)), None)


def likeness(kind: str, head: Sequence[Any]) -> str:
    """Return what values look like that no format claims; empty if they look like nothing."""
    return next((why for form in _candidates(kind, head) if (why := form.doubt(head))), "")


def _candidates(kind: str, head: Sequence[Any]) -> Iterator[Format]:
    # only a message list is a list, and the others need not be loaded to see that
    is_list = kind == DOCUMENT and all(type(value) is list for value in head)
    for known in ("list",) if is_list else NAMES:
        if known in _IN_DATABASES and kind != SQLITE:
            continue
        form = format_named(known)
        if kind in form.kinds:
            yield form


def owner_of(path: str, environ: Mapping[str, str]) -> Format | None:
    """Return the program in whose own place a file is, in this home or in a copy of one."""
    whole = os.path.abspath(path)  # noqa: PTH100 - pathlib costs start-up time
    moved = {name: value for name in VARIABLES if (value := environ.get(name))}
    if f"{os.sep}." not in whole and not any(map(whole.startswith, moved.values())):
        return None
    for name in NAMES:
        form = None if name in _IN_DATABASES else format_named(name)
        if form and any(_is_at(PurePath(whole), form.variable, p, moved) for p in form.places):
            return form
    return None


def _is_at(path: PurePath, variable: str, place: str, moved: Mapping[str, str]) -> bool:
    """Whether a file is in a place of some program, or where its folder was moved to."""
    folder = moved.get(variable)
    if path.match(place) or folder is None or not path.is_relative_to(folder):
        return path.match(place)
    rest, pattern = path.relative_to(folder), below(variable, place)
    return len(rest.parts) == pattern.count("/") + 1 and rest.match(pattern)


def below(variable: str, place: str) -> str:
    """Return the rest of a place below the folder that a variable of the environment moves."""
    # the variables of the desktop move two folders, .local/share, those of programs their own
    return place.split("/", 2)[2] if variable.startswith("XDG") else place.partition("/")[2]
