"""LangChain's side of an exchange: responses, streams, and requests made from other dialects.

A stream brings ``AIMessageChunk`` after ``AIMessageChunk``, which add up to an ``AIMessage``.
LangChain's own sum reads arguments that broke off as if they were whole. Here they become invalid
calls, as they would without streaming.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from lockstitch.conversation.parts import ASSISTANT, OTHER, REASONING, SYSTEM, TEXT, USER, Part
from lockstitch.dialects.exchange import (
    Accumulator,
    Exchange,
    Fields,
    arguments_in,
    fields_at,
    is_sealed,
    list_at,
    text_at,
    unsealed_citations,
    with_raw,
    without,
)
from lockstitch.dialects.langchain import envelope_of, fields_of, type_of
from lockstitch.dialects.profiles import Profile
from lockstitch.dialects.script import (
    Block,
    NeutralCall,
    NeutralResult,
    NeutralTurn,
    Piece,
    TextPiece,
    TurnWriter,
    address_of,
    as_object,
    join_texts,
)

_SIGNATURES = ("thoughtSignature", "thought_signature")
_BOUND_KWARGS = (
    "reasoning_content", "reasoning", "reasoning_details", "reasoning_text", "thinking_blocks",
    "reasoning_opaque", "thought_signature", "audio", "thinking", "signature",
    "__gemini_function_call_thought_signatures__", "__openai_function_call_ids__",
)  # fmt: skip
_ITEM_IDS = ("msg_", "resp_")
_TYPES = {USER: "human", ASSISTANT: "ai", SYSTEM: "system"}
_CHUNKS = ("AIMessageChunk", "ai")
_CALLS = (
    "tool_use",
    "tool_call",
    "tool_call_chunk",
    "function_call",
    "input_json_delta",
    "server_tool_call_chunk",
)
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")
_REASONS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
_SAME = ("id", "output_version", "model_provider", "model_name", "model", "type", *_REASONS)
_LAST = ("index", "created", "timestamp")
_INVALID = {"error": None, "type": "invalid_tool_call"}
# The provider's own copies of what a message says, as far as they have come.
_COPIES = ("tool_calls", "function_call", "audio")


class LangChainStream(Accumulator):
    """Gathers chunks, as objects or in any of their serialised forms."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._content: Any = ""
        self._chunks: list[Fields] = []
        self._calls: list[Fields] = []
        self._fields: Fields = {"additional_kwargs": {}, "response_metadata": {}}
        self._ids: list[str] = []

    def take(self, event: Fields) -> None:
        if type_of(event) not in _CHUNKS:
            return
        fields = fields_of(event)
        self._content = _add_content(self._content, fields.get("content"))
        for key in ("additional_kwargs", "response_metadata", "usage_metadata"):
            if isinstance(fields.get(key), dict):
                self._fields[key] = _merge(fields_at(self._fields, key), fields[key])
        chunks = [c for c in list_at(fields, "tool_call_chunks") if isinstance(c, dict)]
        self._chunks = _merge_lists(self._chunks, chunks)
        self._calls += [] if chunks else list_at(fields, "tool_calls")
        self._ids += [text_at(fields, "id")] if fields.get("id") else []
        metadata = self._fields["response_metadata"]
        is_last = fields.get("chunk_position") == "last" or type_of(event) == "ai"
        self.complete = self.complete or is_last or any(metadata.get(key) for key in _REASONS)
        self.blocks_closed = len(self._closed_chunks()) + len(self._calls)

    def response_so_far(self) -> Fields:
        read = [(chunk, _arguments(chunk, lenient=True)) for chunk in self._chunks]
        good = [_call(chunk, args) for chunk, args in read if args is not UNSET]
        bad = [
            {**{key: chunk.get(key) for key in ("name", "args", "id")}, **_INVALID}
            for chunk, args in read
            if args is UNSET
        ]
        content = self._content
        if isinstance(content, list):
            # a block that stands for a call is replaced by the call as it was read
            known = {call["id"]: call for call in good}
            content = [_read(block, known) for block in content]
        return {
            "content": content,
            **self._fields,
            "type": "ai",
            # prefer an id of the provider's own, then one of a run, then any
            "id": max(self._ids, key=_rank, default=None),
            "tool_calls": [*self._calls, *good],
            "invalid_tool_calls": bad,
        }

    def part_to_keep(self) -> Fields | None:
        calls = list(self._calls)
        for chunk in self._closed_chunks():
            args = _arguments(chunk)
            if text_at(chunk, "id") and text_at(chunk, "name") and args is not UNSET:
                calls.append(_call(chunk, args))
        content = self._content_to_keep()
        if not content and not calls:
            return None
        whole = self.response_so_far()
        kwargs = {k: v for k, v in whole["additional_kwargs"].items() if k not in _COPIES}
        rest = {"content": content, "tool_calls": calls, "invalid_tool_calls": []}
        return {**whole, **rest, "additional_kwargs": kwargs}

    def _closed_chunks(self) -> list[Fields]:
        """Return the calls that will not change any more: all but the last, until the end."""
        return self._chunks if self.complete else self._chunks[:-1]

    def _content_to_keep(self) -> Any:
        """Return the content so far: text, and blocks after which something has come."""
        if not isinstance(self._content, list):
            return self._content
        last = None if self.complete or self._chunks else self._content[-1:]
        blocks = [block for block in self._content if _may_be_kept(block, [block] == last)]
        while blocks and _kind(blocks[-1]) in _THOUGHTS:
            blocks.pop()
        return blocks or ""


def _read(block: Any, calls: dict[Any, Fields]) -> Any:
    kind = _kind(block)
    if kind == "tool_call_chunk" and block.get("id") in calls:
        extras = {"extras": block["extras"]} if "extras" in block else {}
        return {**calls[block["id"]], **extras}
    if kind == "server_tool_call_chunk":
        args = _arguments(block)
        return block if args is UNSET else {**block, "type": "server_tool_call", "args": args}
    return block


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else ""


def _may_be_kept(block: Any, is_last: bool) -> bool:
    kind = _kind(block)
    if isinstance(block, str) or kind == "text":
        return bool(block if isinstance(block, str) else text_at(block, "text"))
    if is_last or not isinstance(kind, str) or kind in _CALLS:
        return False
    return kind != "thinking" or bool(block.get("signature"))


def _rank(ident: str) -> int:
    if ident.startswith(("lc_run-", "run-")):
        return 1
    return 0 if ident.startswith("lc_") else 2


def _arguments(chunk: Fields, *, lenient: bool = False) -> Any:
    return arguments_in(text_at(chunk, "args") or "{}", lenient=lenient)


def _call(chunk: Fields, args: Any) -> Fields:
    name = text_at(chunk, "name")
    return {"name": name, "args": args, "id": chunk.get("id"), "type": "tool_call"}


def _add_content(old: Any, new: Any) -> Any:
    """Add content to content: texts grow, blocks are matched by index."""
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(new, list):
        return _merge_lists(old if isinstance(old, list) else [old] if old else [], new)
    if not isinstance(new, str) or not new:
        return old
    last = old[-1] if old else None
    return [*old[:-1], last + new] if isinstance(last, str) else [*old, new]


def _merge_lists(old: list[Any], new: list[Any]) -> list[Any]:
    grown = list(old)
    for item in new:
        at = next((n for n, other in enumerate(grown) if _is_same(other, item)), None)
        if at is None:
            grown.append(item)
        else:
            grown[at] = _merge(grown[at], item)
    return grown


def _is_same(old: Any, new: Any) -> bool:
    if not isinstance(old, dict) or not isinstance(new, dict) or new.get("index") is None:
        return False
    agree = not old.get("id") or not new.get("id") or old["id"] == new["id"]
    return old.get("index") == new["index"] and agree


def _merge(old: Fields, new: Fields) -> Fields:
    merged = dict(old)
    for key, value in new.items():
        merged[key] = _add_value(key, merged.get(key), value)
    return merged


def _add_value(key: str, old: Any, new: Any) -> Any:
    if new is None or old is None:
        return old if new is None else new
    if isinstance(old, str) and isinstance(new, str):
        return old if key == "type" or (key in _SAME and old == new) else old + new
    if isinstance(old, dict) and isinstance(new, dict):
        return _merge(old, new)
    if isinstance(old, list) and isinstance(new, list):
        return _merge_lists(old, new)
    counts = type(old) is int and type(new) is int and key not in _LAST
    return old + new if counts else new


class LangChainWriter(TurnWriter):
    """Writes bare dicts of type ``human``, ``ai``, ``system`` and ``tool``."""

    def speech(self, turn: NeutralTurn) -> None:
        content = self.content(turn.pieces, turn.role)
        message: Block = {"type": _TYPES[turn.role], "content": content}
        if turn.role == ASSISTANT:
            message["tool_calls"] = [self.call(call) for call in turn.calls]
        self.messages.append(message)

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, TextPiece):
            return {"type": "text", "text": piece.text}
        return {"type": "image_url", "image_url": {"url": address_of(piece)}}

    def call(self, call: NeutralCall) -> Block:
        """Write a call."""
        arguments = as_object(call.arguments)
        return {"name": call.name, "args": arguments, "id": call.id, "type": "tool_call"}

    def results(self, answers: list[NeutralResult]) -> None:
        for answer in answers:
            self.messages.append(
                {
                    "type": "tool",
                    "content": self.content(join_texts(answer.pieces), USER),
                    "tool_call_id": answer.call.id,
                    "name": answer.call.name,
                    "status": "error" if answer.failed else "success",
                }
            )


class LangChainExchange(Exchange):
    """Messages in any of their envelopes; new ones are bare dicts."""

    provider = "langchain"
    writer = LangChainWriter
    stream = LangChainStream
    writes_results = False

    def messages_in(self, value: Any) -> list[Any]:
        if isinstance(value, list):
            return [message for inner in value for message in self.messages_in(inner)]
        if not isinstance(value, dict) or "choices" in value or "error" in value:
            return []
        fields = fields_of(value)
        known = bool(type_of(value)) or envelope_of(value) == "kwargs"
        return [value] if known and ("content" in fields or "tool_calls" in fields) else []

    def text_message(self, text: str) -> Fields:
        return {"type": "human", "content": text}

    def user_message(self, content: Any) -> Fields:
        return {"type": "human", "content": content}

    def leading_messages(self, texts: Mapping[Any, str], *, is_own: bool) -> list[Fields]:
        return [{"type": "system", "content": "\n\n".join(texts.values())}] if texts else []

    def free_part(self, part: Part, parts: list[Part]) -> Part | None:
        if part.kind == REASONING:
            return None
        raw = part.raw
        if not isinstance(raw, dict):
            return part
        if part.kind == OTHER and part.flavor not in ("twin", "raw-twin") and is_sealed(raw):
            return None
        # the id of a block is the id of the item it came from; a call's own is in ``call_id``
        named = part.kind == TEXT or (part.flavor == "twin" and "call_id" in raw)
        freed = without(raw, ("extras", *_SIGNATURES, *(("id",) if named else ())))
        return with_raw(part, unsealed_citations(freed) if part.kind == TEXT else freed)

    def free_fields(self, raw: Fields) -> Fields:
        fields = fields_of(raw)
        kwargs = fields.get("additional_kwargs")
        freed = without(kwargs, _BOUND_KWARGS) if isinstance(kwargs, dict) else kwargs
        is_item = str(fields.get("id")).startswith(_ITEM_IDS)
        if freed is kwargs and not is_item:
            return raw
        kept = {**without(fields, ("id",) if is_item else ()), "additional_kwargs": freed}
        return kept if fields is raw else {**raw, envelope_of(raw): kept}


EXCHANGE = LangChainExchange()
