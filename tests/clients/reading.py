"""What a request says, whoever sent it: calls, results and marks, in the order of the list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.formats.stored import MARK

Json = dict[str, Any]
# Claude Code puts what was typed while a tool ran, and notes of its own, behind the result.
REMINDER = "\n\n<system-reminder>"


@dataclass
class Said:
    """The calls by id, the results by the id they answer, and every mark in order."""

    calls: dict[str, Any] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)


def of_messages(messages: list[Json]) -> Said:
    """What the messages of a request to Anthropic say; thinking does not count."""
    said = Said()
    for block in _blocks(messages):
        kind = block.get("type")
        if kind == "tool_use":
            said.calls[block["id"]] = (block["name"], block["input"])
        elif kind == "tool_result":
            result = text_of(block.get("content"))
            said.results[block["tool_use_id"]] = result.partition(REMINDER)[0]
        if kind != "thinking":
            said.marks += _marks(block)
    return said


def of_items(items: list[Json]) -> Said:
    """What the input of a request to OpenAI's Responses says."""
    said = Said()
    for item in items:
        if item.get("type") == "function_call":
            said.calls[item["call_id"]] = (item["name"], json.loads(item["arguments"]))
        elif item.get("type") == "function_call_output":
            said.results[item["call_id"]] = text_of(item["output"])
        said.marks += _marks(item)
    return said


def text_of(content: Any) -> str:
    """The text of a result, whether it came as one string or in parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", part)) for part in content)
    return content if isinstance(content, str) else json.dumps(content)


def _blocks(messages: list[Json]) -> Iterator[Json]:
    for message in messages:
        content = message["content"]
        yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def _marks(value: Any) -> list[str]:
    return list(dict.fromkeys(MARK.findall(json.dumps(value))))
