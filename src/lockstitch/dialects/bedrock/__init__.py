"""Bedrock Converse: the view, its marks, and a quick proof of everyday lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

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
    KeyedDialect,
    as_id,
    as_json,
    as_text,
    broken_part,
    view_content,
)
from lockstitch.dialects.fast import PlainProof, is_blank, is_text

_MEDIA = ("image", "document", "video", "audio")
_OWN_KEYS = frozenset({"toolUse", "toolResult", "reasoningContent", "cachePoint", "guardContent"})
_EVENTS = (
    "messageStart",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
)
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


class BedrockProof(PlainProof):
    """Walks ``{"role", "content"}`` with text, toolUse, toolResult and signed reasoning."""

    plain_ids = re.compile(r"[a-zA-Z0-9_.:-]*")

    def passes(self, message: dict[str, Any], before: Any) -> bool:
        role, content = message["role"], message["content"]
        if type(content) is not list or not content or len(message) != 2:  # noqa: PLR2004
            return False
        if role == "assistant":
            is_second = before is None or before["role"] == role
            return not is_second and not self.waiting and self._speaks(content)
        if role != "user" or (before is not None and before["role"] == role):
            return False
        return self._answers(content)

    def _speaks(self, content: list[Any]) -> bool:
        is_last = False
        for block in content:
            if type(block) is not dict or len(block) != 1:
                return False
            is_last = False
            if "toolUse" in block:
                call = block["toolUse"]
                name, number = call["name"], call["toolUseId"]
                if type(name) is not str or type(call["input"]) is not dict or "type" in call:
                    return False
                if not self.is_new(number):
                    return False
                self.names.add(name)
                self.waiting.append(number)
            elif self.waiting:
                return False
            elif "reasoningContent" in block:
                said = block["reasoningContent"]["reasoningText"]
                if type(said["text"]) is not str or not is_text(said["signature"]):
                    return False
                is_last = True
            elif is_blank(block["text"]):
                return False
        return not is_last

    def _answers(self, content: list[Any]) -> bool:
        waiting, self.waiting = self.waiting, []
        results, texts = content[: len(waiting)], content[len(waiting) :]
        if len(results) != len(waiting):
            return False
        for block, call in zip(results, waiting, strict=True):
            result = block["toolResult"]
            if len(block) != 1 or result["toolUseId"] != call or "type" in result:
                return False
            texts_in = result["content"]
            if type(texts_in) is not list or not texts_in:
                return False
            if any(part.keys() != {"text"} or is_blank(part["text"]) for part in texts_in):
                return False
        return all(block.keys() == {"text"} and not is_blank(block["text"]) for block in texts)

    def ids_in(self, message: Any) -> Iterable[str]:
        content = message.get("content") if type(message) is dict else None
        for block in content if type(content) is list else ():
            for kind in ("toolUse", "toolResult"):
                if type(block) is dict and type(block.get(kind)) is dict:
                    yield str(block[kind].get("toolUseId"))


class Bedrock(KeyedDialect):
    """View over ``{"role", "content": [{"text": …} | {"toolUse": …} | …]}``."""

    name = "bedrock"
    layout = GROUPED
    id_key = "toolUseId"
    arguments_key = "input"
    payload_key = media_key = "content"
    media_kinds = _MEDIA
    ids_never_repeat = True
    # The stream is binary, so only the name of the event can be matched.
    stream_end = re.compile(rb"messageStop")
    newest_models = ("anthropic.claude-opus-5-5",)
    message_fields = frozenset({"role", "content"})
    body_keys = frozenset(
        {"toolConfig", "modelId", "inferenceConfig", "additionalModelRequestFields"}
    )
    proof = BedrockProof

    def _message(self, index: int, raw: Any) -> Message:
        if not isinstance(raw, dict):
            return Message(raw, index, UNKNOWN, [], flaw="not-an-object")
        role = self.neutral_role(raw.get("role"))
        parts, flaw = view_content(self._block, raw.get("content"), index)
        return Message(raw, index, role, parts, flaw=flaw)

    def _block(self, raw: Any, at: Path, home: int) -> Part:
        if isinstance(raw, str):
            return Part(TEXT, raw, at, home, flavor="bare", text=raw)
        if not isinstance(raw, dict) or not raw:
            return broken_part(raw, at, home, "not-an-object")
        # a block is a union, in which only one kind may be set
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
        # only tools that the provider runs itself have a type
        served = bool(block.get("type"))
        if key == "toolResult":
            kind = SERVER_RESULT if served else RESULT
            return Part(kind, raw, at, home, call, None, key)
        kind = SERVER_CALL if served else CALL
        return Part(kind, raw, at, home, call, as_id(block.get("name")), key)

    def declare_tools(self, names: Sequence[str]) -> dict[str, Any]:
        specs = [{"name": n, "inputSchema": {"json": {"type": "object"}}} for n in names]
        return {"toolConfig": {"tools": [{"toolSpec": spec} for spec in specs]}}

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

    def is_payload(self, value: Any) -> bool:
        return isinstance(value, list) and all(map(_is_block, value))

    def as_payload(self, value: Any) -> Any:
        values = value if isinstance(value, list) else [value]
        said = (v for v in values if v is not None and v != {"text": None})
        return [
            v if _is_block(v) else {"json": v} if isinstance(v, dict) else {"text": as_text(v)}
            for v in said
        ]

    def ends_well(self, body: dict[str, Any], raw: list[Any], model: str | None) -> bool:
        return raw[-1]["role"] == "user" and bool(body.get("toolConfig") or len(raw) == 1)

    def marks_block(self, block: dict[str, Any]) -> bool:
        return not _OWN_KEYS.isdisjoint(block) or set(block) == {"text"}

    def is_response(self, value: dict[str, Any]) -> bool:
        output = value.get("output")
        return isinstance(output, dict) and "message" in output

    def is_event(self, event: dict[str, Any]) -> bool:
        return any(key in event for key in _EVENTS)


def _is_block(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("text", ""), str):
        return False
    return any(key in value for key in _RESULT_BLOCKS)


_RESULT_BLOCKS = (*_MEDIA, "text", "json", "searchResult")
