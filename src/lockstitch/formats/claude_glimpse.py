"""What a Claude Code file tells at its two ends: its title, the first words, the project."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os.path import basename, splitext
from typing import Any

from lockstitch.formats.base import Glimpse
from lockstitch.formats.claude_chain import is_prompt
from lockstitch.formats.claude_context import CLIENT_WORDS, words_of
from lockstitch.formats.records import as_str

# The record and the field of a title, what a person chose first; the last of a kind counts.
_TITLES = (("custom-title", "customTitle"), ("ai-title", "aiTitle"), ("summary", "summary"))


def glimpse(path: str, head: Sequence[dict[str, Any]], tail: Sequence[dict[str, Any]]) -> Glimpse:
    """Return what the first and the last records of a file tell of its session."""
    lines = [*head, *tail]
    name = splitext(basename(path))[0]  # noqa: PTH119, PTH122 - there may be 100 000 of them
    is_aside = name.startswith("agent-")
    spoken = (value for value in lines if is_aside or not value.get("isSidechain"))
    return Glimpse(
        title=_title(lines),
        prompt=next(filter(None, map(_own_words, spoken)), ""),
        session=_last(lines, "sessionId") or name,
        project=_last(lines, "cwd"),
        is_aside=is_aside,
    )


def _title(lines: Sequence[dict[str, Any]]) -> str:
    known = {value.get("uuid") for value in lines}
    for kind, field in _TITLES:
        for value in reversed(lines):
            # old files begin with the summaries of other sessions
            is_own = kind != "summary" or value.get("leafUuid") in known
            found = as_str(value.get(field))
            if value.get("type") == kind and is_own and found and found.strip():
                return found
    return ""


def _own_words(value: dict[str, Any]) -> str:
    if not is_prompt(value):
        return ""
    words = words_of(value).strip()
    return "" if words.startswith(CLIENT_WORDS) else words


def _last(lines: Iterable[dict[str, Any]], key: str) -> str | None:
    found = [value[key] for value in lines if type(value.get(key)) is str and value[key]]
    return found[-1] if found else None
