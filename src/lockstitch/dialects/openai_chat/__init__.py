"""OpenAI Chat Completions, and everything that speaks it: the view, its marks, a quick walker."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec import UNSET

from lockstitch.conversation.pairing import SINGLE
from lockstitch.conversation.parts import (
    ASSISTANT,
    CALL,
    RESULT,
    SYSTEM,
    TEXT,
    TOOL,
    UNKNOWN,
    USER,
    Message,
    Part,
    Path,
)
from lockstitch.dialects.base import (
    CALLS_ELSEWHERE,
    NO_CALLS,
    SPEAKERS,
    Dialect,
    Walker,
    as_id,
    as_json,
    broken_part,
    copy_part,
    media_blocks,
    objects_at,
    replace_at,
    slot_path,
    text_of_blocks,
    view_block,
    view_content,
    without_calls,
)

_ROLES = {
    "user": USER,
    "assistant": ASSISTANT,
    "system": SYSTEM,
    "developer": SYSTEM,
    "tool": TOOL,
    "function": SYSTEM,
}
_WIRE = {UNKNOWN: "user"}
_MEDIA = ("image_url", "input_audio", "file", "video_url")
_BESIDE_CONTENT = ("refusal", "audio", "function_call")
_CONTENT = ("content",)
_CALL_WORDS = frozenset(
    {"name", "tool_name", "toolName", "arguments", "arguments_json", "args", "input"}
)
_ALSO_PLAIN = ("assistant", "system")
_SAID_OR_NOT = (str, type(None))
_DECODE = msgspec.json.Decoder().decode
SEVERAL = -1


class ChatWalker(Walker):
    """Walks OpenAI Chat messages with texts, function calls and tool messages.

    Ids may repeat, so the table of the ids of plain calls is only made if someone asks for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []
        self.places: list[int] = []

    def run(  # noqa: C901 - one flat loop: calls would cost more than they check
        self, raw: Sequence[Any], start: int, seams: list[int], stop: int | None = None
    ) -> int:
        index, end = start, len(raw) if stop is None else stop
        # the calls that the next tool messages have to answer, the first one last
        waiting, self.waiting = self.waiting, []
        called, places, met, names = self.called, self.places, self.met, self.names
        try:
            for index, message in enumerate(raw[start:end], start):
                if type(message) is not dict:
                    return index
                role, content = message["role"], message["content"]
                if waiting:
                    if role != "tool" or type(content) is not str or "tool_calls" in message:
                        return index
                    if message["tool_call_id"] != waiting.pop():
                        return index
                elif "tool_calls" in message:
                    calls = message["tool_calls"]
                    if role != "assistant" or type(content) not in _SAID_OR_NOT:
                        return index
                    if type(calls) is not list or not calls:
                        return index
                    for call in calls if len(calls) == 1 else reversed(calls):
                        # a missing field raises, and so do arguments that do not parse
                        function = call["function"] if type(call) is dict else None
                        if type(function) is not dict or call["type"] != "function":
                            return index
                        number, name = call["id"], function["name"]
                        arguments = function["arguments"]
                        if type(number) is not str or type(name) is not str or not number:
                            return index
                        if type(arguments) is not str or type(_DECODE(arguments)) is not dict:
                            return index
                        if number in waiting or number in met:
                            return index
                        called.append(number)
                        places.append(index)
                        waiting.append(number)
                        names.add(name)
                elif type(content) is not str or not content:
                    return index
                elif role == "user":
                    seams.append(index)
                elif role not in _ALSO_PLAIN:
                    return index
        except (KeyError, ValueError, RecursionError):
            return index
        if waiting and end == len(raw):
            return end - 1
        self.waiting = waiting
        return end

    def is_prompt(self, message: Any) -> bool:
        return type(message) is dict and message.get("role") == "user"

    def is_quiet(self, message: Any) -> bool:
        return (
            type(message) is dict
            and message.get("role") == "assistant"
            and "tool_calls" not in message
        )

    def ids_in(self, message: Any) -> list[str]:
        if type(message) is not dict or (
            "tool_calls" not in message and "tool_call_id" not in message
        ):
            return []
        calls = message.get("tool_calls")
        calls = calls if type(calls) is list else []
        ids = [call.get("id") for call in calls if type(call) is dict]
        return [call for call in (*ids, message.get("tool_call_id")) if type(call) is str]

    def ids(self) -> Iterable[str]:
        return {*self.called, *self.met}

    @cached_property
    def homes(self) -> dict[str, int]:
        """The index of the message that made each call, -1 if several did; for use after the walk.

        A call that failed and was then noted counts for one message only.
        """
        homes: dict[str, int] = {}
        for call, index in zip(self.called, self.places, strict=True):
            homes[call] = SEVERAL if call in homes else index
        return {**self.met, **homes}

    def home_of(self, call: str) -> int | None:
        return self.homes.get(call)


class OpenAIChat(Dialect):
    """View over ``{"role", "content", "tool_calls"}`` and ``{"role": "tool", …}``."""

    name = "openai-chat"
    layout = SINGLE
    part_fields = Dialect.part_fields | {"tool_calls"}
    roles = SPEAKERS | {"developer", "tool", "function"}
    message_fields = frozenset(
        {
            *("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio"),
            *("function_call", "annotations", "parsed", "weight", "prefix", "partial", "images"),
            *("reasoning_content", "reasoning", "reasoning_details", "thinking", "tool_name"),
            *("thinking_blocks", "provider_specific_fields", "cache_control"),
        }
    )
    reasoning_field = "reasoning_content"
    mark_keys = frozenset({"tool_calls", "tool_call_id"})
    own_blocks = frozenset({"image_url", "input_audio"})
    body_keys = frozenset({"max_completion_tokens", "frequency_penalty", "logit_bias"})
    stream_end = re.compile(rb'"finish_reason": ?"|(?:^|\n)data: ?\[DONE\]')
    sdk_modules = ("openai.types.chat.", "openai.lib.streaming.chat.")
    walker = ChatWalker
    proof = ChatWalker

    def _message(self, index: int, raw: Any) -> Message:
        if type(raw) is not dict:
            return Message(raw, index, UNKNOWN, [], flaw="not-an-object")
        neutral = _role(raw.get("role"))
        if neutral == TOOL:
            call = as_id(raw.get("tool_call_id"))
            if raw.get("tool_calls") is None:
                return Message(raw, index, TOOL, [Part(RESULT, raw, (), index, call, None, "tool")])
            # calls that stand in a result's message are not part of the result
            result = Part(RESULT, without_calls(raw), (), index, call, None, "tool")
            return Message(raw, index, TOOL, [result, *self._calls(raw["tool_calls"], index, TOOL)])
        content = raw.get("content")
        if type(content) is str:
            parts, flaw = [Part(TEXT, content, _CONTENT, index, None, None, "", content)], ""
        else:
            parts, flaw = view_content(self._block, content, index)
        calls = raw.get("tool_calls")
        if calls is not None:
            parts += self._calls(calls, index, neutral)
        return Message(raw, index, neutral, parts, flaw=flaw)

    def _block(self, raw: Any, at: Path, home: int) -> Part:
        return view_block(raw, at, home, _MEDIA)

    def _calls(self, calls: Any, home: int, role: str) -> list[Part]:
        if not isinstance(calls, list):
            return [broken_part(calls, ("tool_calls",), home, "tool_calls")]
        if not calls or role not in (ASSISTANT, UNKNOWN):
            why = CALLS_ELSEWHERE if calls else NO_CALLS
            return [broken_part(calls, ("tool_calls",), home, why)]
        return self.listed_calls(calls, home)

    def listed_calls(self, calls: list[Any], home: int) -> list[Part]:
        parts: list[Part] = []
        for number, raw in enumerate(calls):
            at = slot_path("tool_calls", number)
            kind = (raw.get("type") or "function") if isinstance(raw, dict) else None
            body = raw.get(kind) if isinstance(kind, str) else None
            if isinstance(kind, str) and isinstance(body, dict):
                name = as_id(body.get("name"))
                parts.append(Part(CALL, raw, at, home, as_id(raw.get("id")), name, kind))
            else:
                parts.append(broken_part(raw, at, home, "tool_calls"))
        return parts

    def rebuild(self, message: Message) -> Any:
        if message.role == TOOL and message.parts and message.parts[0].kind == RESULT:
            return message.parts[0].raw
        raw = dict(message.raw) if isinstance(message.raw, dict) else {}
        if _role(raw.get("role")) != message.role:
            raw["role"] = _WIRE.get(message.role, message.role)
        calls = [part.raw for part in message.parts if part.kind == CALL]
        inside = [p for p in message.parts if p.kind != CALL and p.at[:1] != ("tool_calls",)]
        raw["content"] = self._join_content(inside, bool(calls), raw.get("content"))
        if calls:
            raw["tool_calls"] = calls
        else:
            raw.pop("tool_calls", None)
        return raw

    def _join_content(self, parts: list[Part], has_calls: bool, before: Any) -> Any:
        """Return content: strings become one string; without parts, None may stay beside calls."""
        if not parts:
            return None if has_calls and before is None else ""
        if all(isinstance(part.raw, str) for part in parts):
            return "\n\n".join(part.raw for part in parts)
        if len(parts) == 1 and parts[0].kind == TEXT and parts[0].home < 0:
            return parts[0].text
        return [
            {"type": "text", "text": part.raw} if isinstance(part.raw, str) else part.raw
            for part in parts
        ]

    def text_part(self, text: str, role: str) -> Part:
        return Part(TEXT, text, flavor="", text=text)

    def answer(self, call: Part, text: str, *, failed: bool = True) -> Part:
        raw = {"role": "tool", "tool_call_id": call.id, "content": text}
        return Part(RESULT, raw, id=call.id, flavor="tool")

    def result_text(self, part: Part) -> str:
        content = part.raw.get("content")
        return content if type(content) is str else text_of_blocks(content)

    def result_media(self, part: Part) -> list[Part]:
        return media_blocks(part.raw.get("content"), _MEDIA)

    def with_id(self, part: Part, new_id: str) -> Part:
        key = "tool_call_id" if part.kind == RESULT else "id"
        return copy_part(part, {**part.raw, key: new_id}, id=new_id)

    def with_name(self, part: Part, name: str) -> Part:
        if part.kind == RESULT:
            return part
        return copy_part(part, replace_at(part.raw, (part.flavor, "name"), name), name=name)

    def arguments(self, part: Part) -> Any:
        if part.flavor != "function":
            return UNSET
        return part.raw["function"].get("arguments")

    def with_arguments(self, part: Part, arguments: dict[str, Any]) -> Part:
        return copy_part(part, replace_at(part.raw, ("function", "arguments"), as_json(arguments)))

    def is_payload(self, value: Any) -> bool:
        return value is None or super().is_payload(value)

    def has_content_beside(self, message: Message) -> bool:
        return any(message.raw.get(key) for key in _BESIDE_CONTENT)

    def beside_content(self, message: Message) -> tuple[dict[str, Any], Path]:
        is_said = message.role == ASSISTANT and isinstance(message.raw, dict)
        return (message.raw if is_said else {}), ()

    def speaker(self, message: Message) -> tuple[str, str]:
        raw = message.raw if isinstance(message.raw, dict) else {}
        if message.role == SYSTEM and raw.get("role") == "function":
            name = raw.get("name") or "function"
            return USER, f"[function {name if isinstance(name, str) else ''}]"
        return super().speaker(message)

    def ends_well(self, body: dict[str, Any], raw: list[Any], model: str | None) -> bool:
        return raw[-1]["role"] in ("user", "tool")

    def marks_message(self, message: dict[str, Any]) -> bool:
        if message.get("type") is not None:
            return False
        role = message.get("role")
        if role == "tool":
            return "tool_call_id" in message
        return role == "assistant" and bool(message.get("tool_calls"))

    def is_response(self, value: dict[str, Any]) -> bool:
        return isinstance(value.get("choices"), list)

    def is_event(self, event: dict[str, Any]) -> bool:
        is_chunk = event.get("object") == "chat.completion.chunk" or event.get("type") == "chunk"
        return is_chunk or "choices" in event

    def foreign_calls(self, message: dict[str, Any]) -> Iterable[bool]:
        for call in objects_at(message, "tool_calls"):
            kinds = ("function", "custom")
            is_own = any(kind in call for kind in kinds) or call.get("type") in kinds
            yield not is_own and not _CALL_WORDS.isdisjoint(call)


def _role(role: Any) -> str:
    return _ROLES.get(role, UNKNOWN) if type(role) is str else UNKNOWN
