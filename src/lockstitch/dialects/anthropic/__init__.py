"""Anthropic Messages: the view, its marks, and quick looks at everyday lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
    CONTENT_SLOTS,
    BlockDialect,
    Walker,
    as_id,
    broken_part,
    copy_part,
    media_blocks,
    objects_at,
    text_of_blocks,
)
from lockstitch.dialects.fast import is_blank

_ROLES = ("user", "assistant", "system")
_MEDIA = ("image", "document")
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_CONTENT = ("content",)
_RESPONSE = ("model", "usage", "stop_reason")
_ANSWER_WORDS = frozenset(
    {"toolUseID", "toolUseId", "tool_call_id", "toolCallId", "call_id", "callId"}
)
_THINKING = ("thinking", "redacted_thinking")
# The most cache markers that a request may have.
_MOST_MARKERS = 4
_LAST_KINDS = ("text", "tool_use")
EVENTS = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    }
)


class AnthropicWalker(Walker):
    """Walks ``{"role", "content"}`` with text, tool_use and tool_result blocks.

    With ``thinks``, signed thinking may stand before them.
    """

    thinks = False
    plain_ids = re.compile(r"[a-zA-Z0-9_-]*")

    def run(  # noqa: C901, PLR0912 - one flat loop: calls would cost more than they check
        self, raw: Sequence[Any], start: int, seams: list[int], stop: int | None = None
    ) -> int:
        index, end = start, len(raw) if stop is None else stop
        # the calls that the results in the next message have to answer, in this order
        waiting, self.waiting = self.waiting, []
        met, names = self.met, self.names
        try:
            for index, message in enumerate(raw[start:end], start):
                if type(message) is not dict:
                    return index
                role, content = message["role"], message["content"]
                if type(content) is str:
                    if waiting or not content or content.isspace():
                        return index
                    if role == "user":
                        seams.append(index)
                    elif role != "assistant" or not index:
                        return index
                elif type(content) is not list or not content:
                    return index
                elif role == "user":
                    answered = 0
                    for block in content:
                        if type(block) is not dict or "cache_control" in block:
                            return index
                        kind = block["type"]
                        if kind == "tool_result":
                            if answered == len(waiting) or type(block["content"]) is not str:
                                return index
                            if block["tool_use_id"] != waiting[answered]:
                                return index
                            answered += 1
                        elif kind != "text" or answered != len(waiting) or is_blank(block["text"]):
                            return index
                    if answered != len(waiting):
                        return index
                    if waiting:
                        waiting = []
                    else:
                        seams.append(index)
                elif role != "assistant" or waiting or not index:
                    return index
                else:
                    for block in content:
                        if type(block) is not dict or "cache_control" in block:
                            return index
                        kind = block["type"]
                        if kind == "text":
                            text = block["text"]
                            if waiting or type(text) is not str or not text or text.isspace():
                                return index
                        elif kind == "tool_use":
                            call, name = block["id"], block["name"]
                            if type(call) is not str or call in met or type(name) is not str:
                                return index
                            if type(block["input"]) is not dict:
                                return index
                            met[call] = index
                            waiting.append(call)
                            names.add(name)
                        elif waiting or not self.thinks or not _is_signed(block, kind):
                            return index
                    if kind not in _LAST_KINDS:
                        return index
        except KeyError:
            return index
        if waiting and end == len(raw):
            return end - 1
        self.waiting = waiting
        return end

    def is_prompt(self, message: Any) -> bool:
        """Whether this is a user message without results."""
        if type(message) is not dict or message.get("role") != "user":
            return False
        content = message.get("content")
        if type(content) is str:
            return True
        return type(content) is list and not any(
            type(block) is dict and block.get("type") == "tool_result" for block in content
        )

    def is_quiet(self, message: Any) -> bool:
        if type(message) is not dict or message.get("role") != "assistant":
            return False
        content = message.get("content")
        if type(content) is str:
            return True
        return type(content) is list and not any(
            type(block) is dict and block.get("type") == "tool_use" for block in content
        )

    def ids_in(self, message: Any) -> list[str]:
        content = message.get("content") if type(message) is dict else None
        if type(content) is not list:
            return []
        ids = [
            block.get("id") or block.get("tool_use_id") for block in content if type(block) is dict
        ]
        return [call for call in ids if type(call) is str]


class AnthropicProof(AnthropicWalker):
    """Anthropic's walker, with signed thinking before the words and calls that it led to."""

    thinks = True


def _is_signed(block: dict[str, Any], kind: Any) -> bool:
    """Whether a block is thinking that can be handed back."""
    if kind == "redacted_thinking":
        return type(block["data"]) is str and block["data"] != ""
    if kind != "thinking" or type(block["thinking"]) is not str:
        return False
    return type(block["signature"]) is str and block["signature"] != ""


class Anthropic(BlockDialect):
    """View over ``{"role", "content": str | [block, ...]}``."""

    name = "anthropic"
    layout = GROUPED
    ids_never_repeat = True
    system_field = "system"
    may_end_empty = True
    message_fields = frozenset(
        {
            *("role", "content", "container", "context_management", "id", "type", "model"),
            *("stop_reason", "stop_sequence", "stop_details", "usage"),
        }
    )
    own_blocks = frozenset(
        {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "image"}
    )
    body_keys = frozenset({"anthropic_version", "stop_sequences", "top_k"})
    sdk_modules = ("anthropic.",)
    stream_end = re.compile(rb'"type": ?"(?:message_stop|error)"')
    newest_models = ("claude-opus-5-5",)
    walker = AnthropicWalker
    proof = AnthropicProof

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
            part, slots = self._part, CONTENT_SLOTS
            if len(content) > len(slots):
                slots = tuple(("content", number) for number in range(len(content)))
            blocks = [part(block, index, slots[i]) for i, block in enumerate(content)]
            return Message(raw, index, neutral, blocks)
        if content is None:
            return Message(raw, index, neutral, [])
        if isinstance(content, dict):
            odd = self._part(content, index, _CONTENT)
        else:
            odd = broken_part(content, _CONTENT, index, "content")
        return Message(raw, index, neutral, [odd], flaw="content")

    def _part(self, raw: Any, home: int, at: Path) -> Part:
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
            call, name = raw.get("id"), raw.get("name")
            call = call if isinstance(call, str) else None
            name = name if isinstance(name, str) else None
            return Part(CALL, raw, at, home, call, name, kind)
        if kind == "tool_result":
            call = raw.get("tool_use_id")
            return Part(RESULT, raw, at, home, call if isinstance(call, str) else None, None, kind)
        return self._rare_part(raw, kind, at, home)

    def _rare_part(self, raw: dict[str, Any], kind: Any, at: Any, home: int) -> Part:
        if type(kind) is not str or not kind:
            return broken_part(raw, at, home, "type")
        if kind in _THINKING:
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

    def declare_tools(self, names: Sequence[str]) -> dict[str, Any]:
        # The tools are only declared for the sake of the history; the model must not call them.
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in names]
        return {"tools": tools, "tool_choice": {"type": "none"}}

    def is_proven(self, body: dict[str, Any], raw: list[Any], model: str | None) -> bool:
        if not self.ends_well(body, raw, model):
            return False
        odd = self.first_odd(raw)
        if odd == len(raw) or _simplify(raw[odd]) is raw[odd]:
            return odd == len(raw)
        marked = [
            block
            for message in raw
            if type(message["content"]) is list
            for block in message["content"]
            if "cache_control" in block
        ]
        if len(marked) + markers_outside(body) > _MOST_MARKERS:
            return False
        # thinking must not carry a marker
        if any(block["type"] in _THINKING for block in marked):
            return False
        return self.first_odd([*map(_simplify, raw)]) == len(raw)

    def ends_well(self, body: dict[str, Any], raw: list[Any], model: str | None) -> bool:
        is_bare = all(len(message) == 2 for message in raw)  # noqa: PLR2004 - role and content
        if not is_bare or raw[-1]["role"] != "user":
            return False
        tools = body.get("tools")
        names = [tool["name"] for tool in tools] if tools else []
        if not names or len(set(names)) != len(names):
            # without tools no message may hold a call, and only a lone message surely holds none
            return not tools and len(raw) == 1
        thinking = body.get("thinking")
        if thinking is None or thinking["type"] in ("adaptive", "disabled"):
            return True
        last = raw[-1]["content"]
        if type(last) is str or all(block["type"] != "tool_result" for block in last):
            return True
        # with thinking on, a tool turn that is still running must begin with it
        said = raw[-2]["content"]
        return raw[-3]["role"] == "user" and type(said) is list and said[0]["type"] in _THINKING

    def marks_body(self, body: dict[str, Any]) -> bool:
        if super().marks_body(body):
            return True
        model, system = body.get("model"), body.get("system")
        named = isinstance(model, str) and model.startswith("claude")
        typed = isinstance(system, list) and all(
            isinstance(block, dict) and "type" in block for block in system
        )
        has_system = isinstance(system, str) or bool(system and typed)
        return isinstance(body.get("messages"), list) and (
            named or has_system or isinstance(body.get("thinking"), dict)
        )

    def is_response(self, value: dict[str, Any]) -> bool:
        # OpenAI's message items share the type, but have a status or blocks of their own
        return (
            value.get("type") == "message"
            and "status" not in value
            and any(key in value for key in _RESPONSE)
            and not any(
                block.get("type") in ("output_text", "refusal")
                for block in objects_at(value, "content")
            )
        )

    def is_event(self, event: dict[str, Any]) -> bool:
        kind = event.get("type")
        return isinstance(kind, str) and (kind in EVENTS or kind == "ping")

    def foreign_calls(self, message: dict[str, Any]) -> Iterable[bool]:
        for block in objects_at(message, "content"):
            if block.get("type") == "tool_result":
                yield "tool_use_id" not in block and not _ANSWER_WORDS.isdisjoint(block)


def markers_outside(body: dict[str, Any] | None) -> int:
    """Return the number of cache markers in ``system`` and ``tools``."""
    fields = [(body or {}).get(key) for key in ("system", "tools")]
    blocks = [block for field in fields if isinstance(field, list) for block in field]
    return sum(isinstance(b, dict) and b.get("cache_control") is not None for b in blocks)


def _simplify(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without markers and lists of texts, which are usual and always fine here."""
    content = message["content"]
    if type(content) is str:
        return message
    if not any("cache_control" in b or type(b.get("content")) is list for b in content):
        return message
    return {"role": message["role"], "content": [*map(_simplify_block, content)]}


def _simplify_block(block: dict[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    held = plain.get("content")
    if plain["type"] != "tool_result" or type(held) is not list:
        return plain
    if all(b.keys() == {"type", "text"} and b["type"] == "text" for b in held) and not any(
        is_blank(b["text"]) for b in held
    ):
        plain["content"] = ""
    return plain
