"""Bedrock Converse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from lockstitch.conversation.pairing import GROUPED
from lockstitch.conversation.parts import (
    CALL,
    MEDIA,
    OTHER,
    REASONING,
    RESULT,
    SERVER_CALL,
    SERVER_RESULT,
    TEXT,
    UNKNOWN,
    Message,
    Part,
    Path,
)
from lockstitch.dialects.base import (
    BlockDialect,
    as_id,
    as_json,
    as_text,
    broken_part,
    copy_part,
    replace_at,
    slot_path,
)

_ROLES = ("user", "assistant", "system")
_MEDIA = ("image", "document", "video", "audio")
_KINDS = frozenset(
    {
        *_MEDIA,
        "text",
        "toolUse",
        "toolResult",
        "reasoningContent",
        "cachePoint",
        "guardContent",
        "citationsContent",
        "searchResult",
    }
)


class Bedrock(BlockDialect):
    """View over ``{"role", "content": [{"text": …} | {"toolUse": …} | …]}``."""

    name = "bedrock"
    layout = GROUPED

    def read(self, raw: Sequence[Any]) -> list[Message]:
        return [self._message(index, message) for index, message in enumerate(raw)]

    def _message(self, index: int, raw: Any) -> Message:
        if not isinstance(raw, dict):
            return Message(raw, index, UNKNOWN, [], flaw="not-an-object")
        role = self.neutral_role(raw.get("role"))
        content = raw.get("content")
        if isinstance(content, list):
            parts = [
                self._part(block, slot_path("content", i), index) for i, block in enumerate(content)
            ]
            return Message(raw, index, role, parts)
        if content is None:
            return Message(raw, index, role, [])
        return Message(raw, index, role, [self._odd(content, index)], flaw="content")

    def _odd(self, content: Any, index: int) -> Part:
        if isinstance(content, str):
            return Part(TEXT, content, ("content",), index, flavor="bare", text=content)
        return self._part(content, ("content",), index)

    def _part(self, raw: Any, at: Path, home: int) -> Part:
        if isinstance(raw, str):
            return Part(TEXT, raw, at, home, flavor="bare", text=raw)
        if not isinstance(raw, dict) or not raw:
            return broken_part(raw, at, home, "not-an-object")
        if len(_KINDS.intersection(raw)) > 1:
            return broken_part(raw, at, home, "several")
        if "text" in raw:
            text = raw["text"]
            if isinstance(text, str):
                return Part(TEXT, raw, at, home, flavor="text", text=text)
            return broken_part(raw, at, home, "text")
        if "toolUse" in raw or "toolResult" in raw:
            return self._tool(raw, at, home)
        if "reasoningContent" in raw:
            return Part(REASONING, raw, at, home, flavor="reasoningContent")
        kind = next(iter(raw))
        return Part(MEDIA if kind in _MEDIA else OTHER, raw, at, home, flavor=str(kind))

    def _tool(self, raw: dict[str, Any], at: Path, home: int) -> Part:
        key = "toolUse" if "toolUse" in raw else "toolResult"
        block = raw[key]
        if not isinstance(block, dict):
            return broken_part(raw, at, home, key)
        call = as_id(block.get("toolUseId"))
        served = bool(block.get("type"))
        if key == "toolResult":
            kind = SERVER_RESULT if served else RESULT
            return Part(kind, raw, at, home, call, None, key)
        kind = SERVER_CALL if served else CALL
        return Part(kind, raw, at, home, call, as_id(block.get("name")), key)

    def neutral_role(self, role: object) -> str:
        return role if isinstance(role, str) and role in _ROLES else UNKNOWN

    def blocks(self, parts: list[Part]) -> Any:
        return [{"text": part.raw} if isinstance(part.raw, str) else part.raw for part in parts]

    def text_part(self, text: str, role: str) -> Part:
        return Part(TEXT, {"text": text}, flavor="text", text=text)

    def note_block(self, text: str) -> Any:
        return {"text": text}

    def answer(self, call: Part, text: str, *, failed: bool = True) -> Part:
        block: dict[str, Any] = {"toolUseId": call.id, "content": [{"text": text}]}
        if failed:
            block["status"] = "error"
        return Part(RESULT, {"toolResult": block}, id=call.id, flavor="toolResult")

    def result_text(self, part: Part) -> str:
        content = part.raw["toolResult"].get("content")
        if not isinstance(content, list):
            return content if isinstance(content, str) else as_json(content)
        return "\n".join(
            block["text"] if isinstance(block.get("text"), str) else as_json(block["json"])
            for block in content
            if isinstance(block, dict) and (isinstance(block.get("text"), str) or "json" in block)
        )

    def foreign_result(self, call_id: str, content: Any) -> Part | None:
        block = {"toolUseId": call_id, "content": self.as_payload(content)}
        return Part(RESULT, {"toolResult": block}, id=call_id, flavor="toolResult")

    def outcome(self, part: Part) -> Any:
        return super().outcome(Part(RESULT, part.raw["toolResult"]))

    def result_media(self, part: Part) -> list[Part]:
        content = part.raw["toolResult"].get("content")
        blocks = content if isinstance(content, list) else []
        return [
            Part(MEDIA, block, flavor=next(iter(block)))
            for block in blocks
            if isinstance(block, dict) and block and next(iter(block)) in _MEDIA
        ]

    def with_id(self, part: Part, new_id: str) -> Part:
        path = (part.flavor, "toolUseId")
        return copy_part(part, replace_at(part.raw, path, new_id), id=new_id)

    def with_name(self, part: Part, name: str) -> Part:
        return copy_part(part, replace_at(part.raw, ("toolUse", "name"), name), name=name)

    def arguments(self, part: Part) -> Any:
        return part.raw["toolUse"].get("input", UNSET)

    def with_arguments(self, part: Part, arguments: dict[str, Any]) -> Part:
        return copy_part(part, replace_at(part.raw, ("toolUse", "input"), arguments))

    def payload(self, part: Part) -> Any:
        return part.raw["toolResult"].get("content")

    def with_payload(self, part: Part, payload: Any) -> Part:
        return copy_part(part, replace_at(part.raw, ("toolResult", "content"), payload))

    def is_payload(self, value: Any) -> bool:
        return isinstance(value, list) and all(map(_is_block, value))

    def as_payload(self, value: Any) -> Any:
        values = value if isinstance(value, list) else [value]
        said = (v for v in values if v is not None and v != {"text": None})
        return [v if _is_block(v) else _as_block(v) for v in said]


def _is_block(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("text", ""), str):
        return False
    return any(key in value for key in _RESULT_BLOCKS)


def _as_block(value: Any) -> dict[str, Any]:
    return {"json": value} if isinstance(value, dict) else {"text": as_text(value)}


_RESULT_BLOCKS = (*_MEDIA, "text", "json", "searchResult")
