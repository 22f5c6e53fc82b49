"""Anthropic's side of an exchange: responses, streams, and requests made from other dialects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from lockstitch.conversation.parts import (
    ASSISTANT,
    OTHER,
    REASONING,
    SERVER_CALL,
    SERVER_RESULT,
    TEXT,
    USER,
    Part,
)
from lockstitch.dialects.anthropic import EVENTS
from lockstitch.dialects.base import keep_if_same
from lockstitch.dialects.exchange import (
    UNREADABLE,
    Accumulator,
    Exchange,
    Fields,
    Spoken,
    TextResult,
    arguments_in,
    fields_at,
    is_sealed,
    is_text,
    list_at,
    number_at,
    read_each,
    text_at,
    unsealed_citations,
    with_raw,
)
from lockstitch.dialects.profiles import Profile
from lockstitch.dialects.script import (
    BEHIND_USER,
    Block,
    GroupedWriter,
    NeutralCall,
    NeutralResult,
    NeutralTurn,
    Picture,
    Piece,
    TextPiece,
    as_object,
)

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
_GROWING = {"text_delta": ("text", "text"), "thinking_delta": ("thinking", "thinking")}
_THOUGHTS = ("thinking", "redacted_thinking")
_OUTER = ("type", "delta", "usage")


class AnthropicStream(Accumulator):
    """Gathers raw events, also if the SDK's helper mixes its own in."""

    kinds = EVENTS

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
            block = fields_at(event, "content_block")
            self._blocks[index] = dict(block)
            if block.get("type") == "fallback":
                # another model has taken over, and from here on the reply goes by its name
                self._message["model"] = fields_at(block, "to").get("model")
        elif kind == "content_block_delta" and index in self._blocks:
            self._delta(index, fields_at(event, "delta"))
        elif kind == "content_block_stop" and index in self._blocks:
            self._stopped.add(index)
            self.blocks_closed = len(self._stopped)
        elif kind == "message_delta":
            outer = {key: value for key, value in event.items() if key not in _OUTER}
            self._message = _update_totals(self._message, {**outer, **fields_at(event, "delta")})
            self._message["usage"] = _update_totals(
                fields_at(self._message, "usage"), fields_at(event, "usage")
            )
        elif kind == "message_stop":
            self.complete = True

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

    def response_so_far(self) -> Fields:
        blocks = [self._finish_block(index) for index in sorted(self._blocks)]
        return {**self._message, "content": [*list_at(self._message, "content"), *blocks]}

    def _finish_block(self, index: int) -> Fields:
        block, text = self._blocks[index], self._json.get(index, "")
        if not text:
            return dict(block)
        value = arguments_in(text, lenient=True)
        return {**block, "input": {UNREADABLE: text} if value is UNSET else value}

    def part_to_keep(self) -> Fields | None:
        blocks = [
            self._finish_block(index) for index in sorted(self._blocks) if self._may_be_kept(index)
        ]
        blocks = [block for block in blocks if not _is_unanswered(block, blocks)]
        # a message must not end with thinking
        while blocks and blocks[-1].get("type") in _THOUGHTS:
            blocks.pop()
        return {"role": "assistant", "content": blocks} if blocks else None

    def _may_be_kept(self, index: int) -> bool:
        """Whether a block may be kept as it is: it is closed and whole, or it is a text."""
        block = self._blocks[index]
        kind = block.get("type")
        if kind == "text":
            return bool(text_at(block, "text").strip())
        if index not in self._stopped or not isinstance(kind, str):
            return False
        if kind == "thinking":
            return bool(block.get("signature")) or not self.profile.signed_reasoning
        if kind in _CALLS:
            is_named = bool(text_at(block, "id")) and bool(text_at(block, "name"))
            return is_named and arguments_in(self._json.get(index) or "{}") is not UNSET
        return kind != "redacted_thinking" or bool(block.get("data"))


def _update_totals(old: Fields, new: Fields) -> Fields:
    """Return totals updated by later ones; a total that is missing or null there stays."""
    return {**old, **{k: v for k, v in new.items() if v is not None or k not in old}}


def _is_unanswered(block: Fields, blocks: list[Any]) -> bool:
    """Whether a call that the provider runs itself has no result yet."""
    if block.get("type") not in _CALLS[1:]:
        return False
    return not any(other.get("tool_use_id") == block["id"] for other in blocks)


class AnthropicWriter(GroupedWriter):
    """Writes ``text``, ``image``, ``tool_use`` and ``tool_result`` blocks."""

    failures_are_text = True
    system_turns = BEHIND_USER

    def speech(self, turn: NeutralTurn) -> None:
        super().speech(turn)
        if turn.calls and self.profile.reasoning_required:
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            self.messages[-1]["content"].insert(0, empty)

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, TextPiece):
            return {"type": "text", "text": piece.text}
        source = {"type": "url", "url": piece.url}
        if piece.data:
            source = {"type": "base64", "media_type": piece.kind, "data": piece.data}
        return {"type": "image", "source": source}

    def call(self, call: NeutralCall) -> Block:
        arguments = as_object(call.arguments)
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}

    def result(self, answer: NeutralResult) -> Block:
        pictured = any(isinstance(piece, Picture) for piece in answer.pieces)
        content = self.result_blocks(answer) if pictured else answer.text
        block = {"type": "tool_result", "tool_use_id": answer.call.id, "content": content}
        return {**block, "is_error": True} if answer.failed else block


class AnthropicExchange(Exchange):
    """Messages, and blocks inside them."""

    provider = "anthropic"
    writer = AnthropicWriter
    stream = AnthropicStream
    results_by_id = True
    marks_failures = True
    joins_user_messages = True

    def messages_in(self, value: Any) -> list[Any]:
        if isinstance(value, list):
            return read_each(
                value, self.messages_in, lambda blocks: {"role": "assistant", "content": blocks}
            )
        if not isinstance(value, dict) or "content" not in value or value.get("type") == "error":
            return []
        role = value.get("role") or "assistant"
        return [keep_if_same(value, {"role": role, "content": value["content"]})]

    def text_message(self, text: str) -> Fields:
        return {"role": USER, "content": [{"type": "text", "text": text}]}

    def plain_messages(self, value: Any) -> list[Fields] | None:
        if type(value) is not dict or value.get("role") != ASSISTANT:
            return None
        content = value.get("content")
        if value.get("type") == "error" or type(content) is not list or not content:
            return None
        first = content[0]
        if type(first) is not dict:
            return None
        if first.get("type") != "tool_use" and not is_text(first.get("text")):
            return None
        is_bare = len(value) == 2  # noqa: PLR2004 - role and content
        return [value if is_bare else {"role": ASSISTANT, "content": content}]

    def words_and_calls(self, messages: list[Any]) -> Spoken:
        words: list[Any] = []
        asked: list[tuple[Any, Any, Any]] = []
        for block in messages[0]["content"]:
            kind = block["type"]
            if kind == "text":
                words.append(block["text"])
            elif kind == "tool_use":
                asked.append((block["id"], block["name"], block["input"]))
            else:
                raise ValueError(kind)
        return words, asked

    def plain_results(self, results: Iterable[TextResult]) -> list[Fields]:
        blocks: list[Fields] = []
        for result in results:
            block: Fields = {
                "type": "tool_result",
                "tool_use_id": result.id,
                "content": result.text,
            }
            if result.failed:
                block["is_error"] = True
            blocks.append(block)
        return [{"role": USER, "content": blocks}]

    def system_parameter(self, text: str) -> Any:
        return text

    def free_part(self, part: Part, parts: list[Part]) -> Part | None:
        if part.kind == REASONING:
            return None
        if part.kind == SERVER_CALL:
            results = (p for p in parts if p.kind == SERVER_RESULT and p.id == part.id)
            return None if any(is_sealed(result.raw) for result in results) else part
        if part.kind in (SERVER_RESULT, OTHER):
            return None if is_sealed(part.raw) else part
        if part.kind == TEXT and isinstance(part.raw, dict):
            return with_raw(part, unsealed_citations(part.raw))
        return part


EXCHANGE = AnthropicExchange()
