"""What a resume of a Codex rollout sends: the items of the file, replayed as the program does.

A compaction with a replacement starts the list anew, one without keeps what the user said and adds
the summary; a rollback drops the last turns; and in a paginated file nothing before the last
``session_meta`` is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from lockstitch.conversation.parts import Path
from lockstitch.formats.codex_head import META, is_whole
from lockstitch.formats.codex_items import is_readable
from lockstitch.formats.history import COMPACTED as SUMMED_UP
from lockstitch.formats.history import LEFT, LOST
from lockstitch.formats.records import Record
from lockstitch.formats.slots import Home

ITEM, EVENT, COMPACTED = "response_item", "event_msg", "compacted"
TYPES = frozenset(
    {
        *(META, ITEM, EVENT, COMPACTED),
        *("turn_context", "world_state", "token_usage_record"),
        *("inter_agent_communication", "inter_agent_communication_metadata"),
    }
)
_PAYLOAD = ("payload",)
_REPLACEMENT = ("payload", "replacement_history")
# What the program itself puts into the user's or the developer's mouth; no turn starts there.
_CONTEXT = (
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<environment_context>",
    "<environments",
    "<external_",
    "<skill>",
    "<user_shell_command>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<codex_internal_context",
    "<goal_context>",
    "<recommended_plugins>",
    "<hook_prompt",
)
# Of those, what holds for the whole session.
_SETTING = _CONTEXT[:4]
_SUMMARY = "Another language model started to solve this problem"
_NO_SUMMARY = "(no summary available)"


def payload_of(value: dict[str, Any]) -> dict[str, Any]:
    """Give the payload of a line; empty if it has none."""
    payload = value.get("payload")
    return payload if type(payload) is dict else {}


def is_read(value: dict[str, Any]) -> bool:
    """Tell whether the program reads a line at all: it needs a time, and no odd ordinal."""
    if "payload" not in value:
        return True
    ordinal = value.get("ordinal")
    return type(value.get("timestamp")) is str and (ordinal is None or type(ordinal) is int)


def is_bare_item(value: dict[str, Any]) -> bool:
    """Tell whether a line is an item without an envelope, as in the first versions."""
    return "payload" not in value and type(value.get("type")) is str


def misspelled(value: dict[str, Any]) -> list[Path]:
    """Give the paths to items of a line that the program cannot read, so that it skips the line."""
    payload = payload_of(value)
    if value.get("type") == ITEM:
        return [] if is_readable(payload) else [_PAYLOAD]
    replacement = payload.get("replacement_history") if value.get("type") == COMPACTED else None
    items = replacement if type(replacement) is list else []
    return [
        (*_REPLACEMENT, place)
        for place, item in enumerate(items)
        if type(item) is dict and not is_readable(item)
    ]


def metas(records: Sequence[Record]) -> list[int]:
    """Return the numbers of the records with the session's own data that the program reads."""
    return [
        number
        for number, record in enumerate(records)
        if record.is_record and is_whole(record.value) and is_read(record.value)
    ]


def is_prompt(item: dict[str, Any]) -> bool:
    """Tell whether a turn starts with an item: words of a person or of another agent."""
    if item.get("type") == "agent_message":
        return True
    return _is_message(item, "user") and not _is_context(item)


def setting_of(item: dict[str, Any]) -> str:
    """Name the surroundings that an item tells of, such as the working directory; "" for none."""
    if not _is_message(item, "user"):
        return ""
    texts = [text.lstrip() for text in texts_of(item)]
    return next((tag for tag in _SETTING for text in texts if text.startswith(tag)), "")


def summary_in(item: dict[str, Any]) -> str:
    """Give the words of a summary that the program wrote, "" if an item is none."""
    if not _is_message(item, "user"):
        return ""
    return next((text for text in texts_of(item) if text.startswith(_SUMMARY)), "")


def _is_message(item: dict[str, Any], role: str) -> bool:
    return item.get("type", "message") == "message" and item.get("role") == role


def _is_context(item: dict[str, Any]) -> bool:
    return any(text.lstrip().startswith(_CONTEXT) for text in texts_of(item))


def texts_of(item: dict[str, Any]) -> list[str]:
    """Return the texts of a message."""
    content = item.get("content")
    if type(content) is str:
        return [content]
    blocks = content if type(content) is list else []
    texts = [block.get("text") for block in blocks if type(block) is dict]
    return [text for text in texts if type(text) is str]


class Thread:
    """The items that a resume sends, and where each of them stands.

    ``hidden`` numbers the records that the program does not get to see, ``dropped`` counts the
    turns that were rolled back.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.metas = metas(records)
        self.meta = payload_of(records[self.metas[0]].value) if self.metas else {}
        self.is_paginated = self.meta.get("history_mode") == "paginated"
        self.items: list[dict[str, Any]] = []
        self.homes: list[Home] = []
        self.dropped = 0
        self.start = self.metas[-1] if self.is_paginated else 0
        for number in range(self.start, len(records)):
            record = records[number]
            if record.is_record and is_read(record.value) and not misspelled(record.value):
                self._replay(number, record.value)

    @cached_property
    def hidden(self) -> list[int]:
        """Give the records with items that stand before the last ``session_meta``."""
        return [
            number
            for number, record in enumerate(self.records[: self.start])
            if record.is_record and record.value.get("type") in (ITEM, COMPACTED)
        ]

    def unsent(self) -> Iterator[tuple[str, str, list[int]]]:
        """Give the records with items that are not sent, by why: hidden, summed up, rolled back."""
        sent = {home.number for home in self.homes}
        kinds = [r.value.get("type") if r.is_record else "" for r in self.records]
        items = [n for n, kind in enumerate(kinds) if kind == ITEM and n not in sent]
        last = max((n for n, kind in enumerate(kinds) if kind == COMPACTED), default=-1)
        yield (
            LOST,
            "written before a second session_meta",
            [number for number in items if number < self.start],
        )
        yield (
            SUMMED_UP,
            "summed up by a compaction",
            [number for number in items if self.start <= number < last],
        )
        yield LEFT, "rolled back", [number for number in items if number >= max(self.start, last)]

    def _replay(self, number: int, value: dict[str, Any]) -> None:
        kind, payload = value.get("type"), payload_of(value)
        if is_bare_item(value):
            self._add(value, Home(number))
        elif kind == ITEM and payload:
            self._add(payload, Home(number, _PAYLOAD))
        elif kind == COMPACTED:
            self._compact(number, payload)
        elif kind == EVENT and payload.get("type") == "thread_rolled_back":
            self._roll_back(payload.get("num_turns"))

    def _add(self, item: dict[str, Any], home: Home) -> None:
        self.items.append(item)
        self.homes.append(home)

    def _compact(self, number: int, payload: dict[str, Any]) -> None:
        replacement = payload.get("replacement_history")
        if type(replacement) is list:
            self.items, self.homes = [], []
            for place, item in enumerate(replacement):
                if type(item) is dict:
                    self._add(item, Home(number, (*_REPLACEMENT, place), listed=True))
            return
        kept = [place for place, item in enumerate(self.items) if self._is_kept(item)]
        self.items = [self.items[place] for place in kept]
        self.homes = [self.homes[place] for place in kept]
        text = payload.get("message")
        text = text if type(text) is str and text else _NO_SUMMARY
        block = {"type": "input_text", "text": text}
        summary = {"type": "message", "role": "user", "content": [block]}
        self._add(summary, Home(number, ("payload", "message"), bound=True))

    def _is_kept(self, item: dict[str, Any]) -> bool:
        said = _is_message(item, "user") and not _is_context(item)
        return said and not any(text.startswith(_SUMMARY) for text in texts_of(item))

    def _roll_back(self, turns: Any) -> None:
        starts = [place for place, item in enumerate(self.items) if is_prompt(item)]
        if not starts or type(turns) is not int or turns <= 0:
            return
        cut = starts[-turns] if turns < len(starts) else starts[0]
        while cut > starts[0] and self._leads_in(self.items[cut - 1]):
            cut -= 1
        self.dropped += min(turns, len(starts))
        del self.items[cut:], self.homes[cut:]

    def _leads_in(self, item: dict[str, Any]) -> bool:
        return _is_message(item, "developer") or (_is_message(item, "user") and _is_context(item))
