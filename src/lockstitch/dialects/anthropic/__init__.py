"""Anthropic Messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from lockstitch.conversation.narrowing import Walker
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
)
from lockstitch.dialects.base import (
    BlockDialect,
    as_id,
    broken_part,
    copy_part,
    media_blocks,
    slot_path,
    text_of_blocks,
)
from lockstitch.dialects.fast import AnthropicWalker

_ROLES = ("user", "assistant", "system")
_MEDIA = ("image", "document")
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_CONTENT = ("content",)


class Anthropic(BlockDialect):
    """View over ``{"role", "content": str | [block, ...]}``."""

    name = "anthropic"
    layout = GROUPED

    def read(self, raw: Sequence[Any]) -> list[Message]:
        return [self._message(index, message) for index, message in enumerate(raw)]

    def _message(self, index: int, raw: Any) -> Message:
        if type(raw) is not dict:
            return Message(raw, index, UNKNOWN, [], flaw="not-an-object")
        role = raw.get("role")
        neutral = role if type(role) is str and role in _ROLES else UNKNOWN
        content = raw.get("content")
        if type(content) is str:
            parts = [Part(TEXT, content, _CONTENT, index, None, None, "", content)]
            return Message(raw, index, neutral, parts)
        if type(content) is list:
            part = self._part
            blocks = [part(block, index, i) for i, block in enumerate(content)]
            return Message(raw, index, neutral, blocks)
        if content is None:
            return Message(raw, index, neutral, [])
        return Message(raw, index, neutral, self._odd_content(content, index), flaw="content")

    def _odd_content(self, content: Any, index: int) -> list[Part]:
        if isinstance(content, dict):
            return [self._part(content, index, None)]
        return [broken_part(content, _CONTENT, index, "content")]

    def _part(self, raw: Any, home: int, slot: int | None) -> Part:
        at = _CONTENT if slot is None else slot_path("content", slot)
        if type(raw) is not dict:
            if type(raw) is str:
                return Part(TEXT, raw, at, home, None, None, "bare", raw)
            return broken_part(raw, at, home, "not-an-object")
        kind = raw.get("type")
        if kind == "text":
            text = raw.get("text")
            if type(text) is str:
                return Part(TEXT, raw, at, home, None, None, "text", text)
            return broken_part(raw, at, home, "text")
        if kind == "tool_use":
            return Part(CALL, raw, at, home, as_id(raw.get("id")), as_id(raw.get("name")), kind)
        if kind == "tool_result":
            return Part(RESULT, raw, at, home, as_id(raw.get("tool_use_id")), None, kind)
        return self._rarer(raw, kind, at, home)

    def _rarer(self, raw: dict[str, Any], kind: Any, at: Any, home: int) -> Part:
        if type(kind) is not str or not kind:
            return broken_part(raw, at, home, "type")
        if kind in ("thinking", "redacted_thinking"):
            return Part(REASONING, raw, at, home, flavor=kind)
        if kind in _MEDIA:
            return Part(MEDIA, raw, at, home, flavor=kind)
        if kind in _SERVER_CALLS:
            call, name = as_id(raw.get("id")), as_id(raw.get("name"))
            if call is None or name is None:
                return broken_part(raw, at, home, "server")
            return Part(SERVER_CALL, raw, at, home, call, name, kind)
        if kind.endswith("_tool_result"):
            return Part(SERVER_RESULT, raw, at, home, as_id(raw.get("tool_use_id")), None, kind)
        return Part(OTHER, raw, at, home, flavor=kind)

    def neutral_role(self, role: object) -> str:
        return role if isinstance(role, str) and role in _ROLES else UNKNOWN

    def text_part(self, text: str, role: str) -> Part:
        return Part(TEXT, {"type": "text", "text": text}, flavor="text", text=text)

    def answer(self, call: Part, text: str, *, failed: bool = True) -> Part:
        raw: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id, "content": text}
        if failed:
            raw["is_error"] = True
        return Part(RESULT, raw, id=call.id, flavor="tool_result")

    def result_text(self, part: Part) -> str:
        content = part.raw.get("content")
        return content if type(content) is str else text_of_blocks(content)

    def result_media(self, part: Part) -> list[Part]:
        return media_blocks(part.raw.get("content"), (*_MEDIA, "search_result"))

    def foreign_result(self, call_id: str, content: Any) -> Part | None:
        raw = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        return Part(RESULT, raw, id=call_id, flavor="tool_result")

    def with_id(self, part: Part, new_id: str) -> Part:
        key = "tool_use_id" if part.kind in (RESULT, SERVER_RESULT) else "id"
        return copy_part(part, {**part.raw, key: new_id}, id=new_id)

    def with_name(self, part: Part, name: str) -> Part:
        return copy_part(part, {**part.raw, "name": name}, name=name)

    def arguments(self, part: Part) -> Any:
        return part.raw.get("input", UNSET)

    def with_arguments(self, part: Part, arguments: dict[str, Any]) -> Part:
        return copy_part(part, {**part.raw, "input": arguments})

    def walker(self) -> Walker:
        return AnthropicWalker()
