"""Anthropic's stream: a message that begins, blocks that grow and stop, and its end."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from lockstitch.dialects.profiles import Profile
from lockstitch.dialects.streams import (
    UNREADABLE,
    Accumulator,
    Fields,
    arguments_in,
    fields_at,
    list_at,
    number_at,
    text_at,
)

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
_GROWING = {"text_delta": ("text", "text"), "thinking_delta": ("thinking", "thinking")}
_THOUGHTS = ("thinking", "redacted_thinking")
_OUTER = ("type", "delta", "usage")


class AnthropicStream(Accumulator):
    """Gathers raw events, also where the SDK's helper mixes its own among them."""

    kinds = frozenset(
        {
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        }
    )

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._message: Fields = {}
        self._blocks: dict[int, Fields] = {}
        self._json: dict[int, str] = {}
        self._stopped: set[int] = set()

    def take(self, event: Fields) -> None:
        kind = event["type"]
        index = number_at(event, "index", -1)
        if kind == "message_start":
            self._message = dict(fields_at(event, "message"))
        elif kind == "content_block_start":
            self._start(index, fields_at(event, "content_block"))
        elif kind == "content_block_delta" and index in self._blocks:
            self._delta(index, fields_at(event, "delta"))
        elif kind == "content_block_stop" and index in self._blocks:
            self._stopped.add(index)
            self.blocks_closed = len(self._stopped)
        elif kind == "message_delta":
            outer = {key: value for key, value in event.items() if key not in _OUTER}
            self._message = _over(self._message, {**outer, **fields_at(event, "delta")})
            self._message["usage"] = _over(
                fields_at(self._message, "usage"), fields_at(event, "usage")
            )
        elif kind == "message_stop":
            self.complete = True

    def _start(self, index: int, block: Fields) -> None:
        self._blocks[index] = dict(block)
        if block.get("type") == "fallback":
            # another model has taken over, and the reply is under its name from here on
            self._message["model"] = fields_at(block, "to").get("model")

    def _delta(self, index: int, delta: Fields) -> None:
        block, kind = self._blocks[index], delta.get("type")
        if kind in _GROWING:
            key, source = _GROWING[kind]
            block[key] = text_at(block, key) + text_at(delta, source)
        elif kind == "input_json_delta":
            self._json[index] = self._json.get(index, "") + text_at(delta, "partial_json")
        elif kind == "signature_delta":
            block["signature"] = text_at(delta, "signature")
        elif kind == "citations_delta" and "citation" in delta:
            block["citations"] = [*list_at(block, "citations"), delta["citation"]]
        elif kind == "compaction_delta":
            block.update({key: value for key, value in delta.items() if key != "type"})

    def gathered(self) -> Fields:
        blocks = [self._finished(index) for index in sorted(self._blocks)]
        return {**self._message, "content": [*list_at(self._message, "content"), *blocks]}

    def _finished(self, index: int) -> Fields:
        block, text = self._blocks[index], self._json.get(index, "")
        if not text:
            return dict(block)
        value = arguments_in(text, lenient=True)
        return {**block, "input": {UNREADABLE: text} if value is UNSET else value}

    def standing(self) -> Fields | None:
        blocks = [self._finished(index) for index in sorted(self._blocks) if self._stands(index)]
        blocks = [block for block in blocks if not _is_unanswered(block, blocks)]
        while blocks and blocks[-1].get("type") in _THOUGHTS:
            blocks.pop()
        return {"role": "assistant", "content": blocks} if blocks else None

    def _stands(self, index: int) -> bool:
        """Whether a block may be kept as it is: closed, and whole, or a text."""
        block = self._blocks[index]
        kind = block.get("type")
        if kind == "text":
            return bool(text_at(block, "text").strip())
        if index not in self._stopped or not isinstance(kind, str):
            return False
        if kind == "thinking":
            return bool(block.get("signature")) or not self.profile.signed_reasoning
        if kind in _CALLS:
            return _is_named(block) and arguments_in(self._json.get(index) or "{}") is not UNSET
        return kind != "redacted_thinking" or bool(block.get("data"))


def _over(old: Fields, new: Fields) -> Fields:
    """Put totals over earlier ones; what is left out or null still holds."""
    return {**old, **{k: v for k, v in new.items() if v is not None or k not in old}}


def _is_named(block: Fields) -> bool:
    return bool(text_at(block, "id")) and bool(text_at(block, "name"))


def _is_unanswered(block: Fields, blocks: list[Any]) -> bool:
    """Whether a call that the provider runs itself has not got its result yet."""
    if block.get("type") not in _CALLS[1:]:
        return False
    return not any(other.get("tool_use_id") == block["id"] for other in blocks)
