"""OpenAI's Responses stream: items that are added, grow and are done, and the response at the end.

The last event brings the whole response; before it the items that are done count as they came.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from lockstitch.dialects.openai_responses import CALL_KINDS
from lockstitch.dialects.profiles import Profile
from lockstitch.dialects.streams import (
    Accumulator,
    Fields,
    arguments_in,
    fields_at,
    list_at,
    number_at,
    text_at,
)

_STARTS = ("response.created", "response.in_progress", "response.queued")
_ENDS = ("response.completed", "response.incomplete")
_TEXTS = {
    "response.output_text.delta": ("output_text", "text"),
    "response.refusal.delta": ("refusal", "refusal"),
}


class ResponsesStream(Accumulator):
    """Gathers events; what is partial is a list of items."""

    kinds = frozenset(
        {
            *_STARTS,
            *_ENDS,
            *_TEXTS,
            "response.output_item.added",
            "response.output_item.done",
            "response.output_text.annotation.added",
        }
    )

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._response: Fields = {}
        self._items: dict[int, Fields] = {}
        self._parts: dict[tuple[int, int], Fields] = {}
        self._done: set[int] = set()

    def take(self, event: Fields) -> None:
        kind = event["type"]
        if kind in _STARTS or kind in _ENDS:
            self._response = dict(fields_at(event, "response"))
            self.complete = kind in _ENDS
            return
        index = number_at(event, "output_index", len(self._done))
        if kind.startswith("response.output_item."):
            self._items[index] = dict(fields_at(event, "item"))
            if kind.endswith(".done"):
                self._done.add(index)
                self.blocks_closed = len(self._done)
        elif kind in _TEXTS:
            self._grow(index, event, *_TEXTS[kind])
        else:
            part = self._parts.get((index, number_at(event, "content_index", 0)))
            if part is not None and "annotation" in event:
                part["annotations"] = [*list_at(part, "annotations"), event["annotation"]]

    def _grow(self, index: int, event: Fields, kind: str, key: str) -> None:
        self._items.setdefault(index, {"type": "message", "role": "assistant"})
        fresh = {"type": kind, key: "", **({"annotations": []} if key == "text" else {})}
        part = self._parts.setdefault((index, number_at(event, "content_index", 0)), fresh)
        part[key] = text_at(part, key) + text_at(event, "delta")

    def gathered(self) -> Fields:
        done = [self._items[index] for index in sorted(self._done)]
        # some servers send the last event without what they sent before
        return {**self._response, "output": list_at(self._response, "output") or done}

    def standing(self) -> list[Any] | None:
        items = [self._standing(index) for index in sorted(self._items)]
        kept: list[Any] = [item for item in items if item is not None]
        while kept and kept[-1].get("type") == "reasoning":
            kept.pop()
        return kept or None

    def _standing(self, index: int) -> Fields | None:
        """Return an item as it may be kept: done and whole, or a message with its text so far."""
        item = self._items[index]
        kind = item.get("type")
        if index not in self._done:
            return self._begun(index) if kind == "message" else None
        if kind == "message":
            return item if any(map(_says, list_at(item, "content"))) else None
        is_whole = isinstance(kind, str) and (kind not in CALL_KINDS or _is_call(item, kind))
        return item if is_whole else None

    def _begun(self, index: int) -> Fields | None:
        places = sorted(place for place in self._parts if place[0] == index)
        parts = [dict(self._parts[place]) for place in places]
        said = list(filter(_says, parts))
        return {**self._items[index], "status": "incomplete", "content": said} if said else None


def _says(part: Any) -> bool:
    return isinstance(part, dict) and part.get("text") != "" and part.get("refusal") != ""


def _is_call(item: Fields, kind: str) -> bool:
    """Whether a call is whole: it can be answered, and its arguments are an object."""
    if item.get("status") == "incomplete":
        return False
    field = CALL_KINDS[kind].arguments
    is_named = "name" in item or kind != "function_call"
    is_readable = not field or arguments_in(text_at(item, field)) is not UNSET
    return is_named and is_readable and (bool(text_at(item, "call_id")) or _is_served(item))


def _is_served(item: Fields) -> bool:
    return item.get("execution") == "server" or item.get("type") == "tool_search_call"
