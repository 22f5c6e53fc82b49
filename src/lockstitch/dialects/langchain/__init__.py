"""LangChain messages in their serialised forms.

The same fields come in three envelopes: bare (``model_dump``), ``{"type", "data"}``
(``message_to_dict``) and ``{"lc": 1, "type": "constructor", "kwargs"}`` (``dumpd``). A view reads
the fields through the envelope and writes them back into it. The module also has the marks of such
lists and a quick proof of everyday ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import json

from lockstitch.conversation.pairing import SINGLE
from lockstitch.conversation.parts import (
    ASSISTANT,
    CALL,
    OTHER,
    REASONING,
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
from lockstitch.conversation.sdk_objects import is_langchain
from lockstitch.dialects.base import (
    CALLS_ELSEWHERE,
    Dialect,
    as_id,
    as_json,
    broken_part,
    copy_part,
    is_whole_block,
    media_blocks,
    replace_at,
    text_of_blocks,
    view_block,
    without_calls,
)
from lockstitch.dialects.fast import PlainProof, is_text

_TYPES = {
    "human": USER,
    "user": USER,
    "HumanMessageChunk": USER,
    "ai": ASSISTANT,
    "assistant": ASSISTANT,
    "AIMessageChunk": ASSISTANT,
    "system": SYSTEM,
    "developer": SYSTEM,
    "SystemMessageChunk": SYSTEM,
    "tool": TOOL,
    "ToolMessageChunk": TOOL,
    "function": SYSTEM,
    "FunctionMessageChunk": SYSTEM,
    "chat": SYSTEM,
    "ChatMessageChunk": SYSTEM,
    "remove": SYSTEM,
}
_CLASSES = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "AIMessageChunk": "AIMessageChunk",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
    "ChatMessage": "chat",
    "RemoveMessage": "remove",
    "HumanMessageChunk": "human",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
}
_WIRE = {USER: "human", ASSISTANT: "ai", SYSTEM: "system", TOOL: "tool", UNKNOWN: "human"}
# Types of content blocks that repeat a call from ``tool_calls``.
_TWINS = ("tool_use", "tool_call", "function_call")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content")
_MEDIA = ("image", "image_url", "audio", "video", "file", "document", "input_image")
_OWN_TYPES = frozenset({"human", "ai", "AIMessageChunk"})
_SAID_TYPES = ("human", "ai", "HumanMessageChunk", "AIMessageChunk")
_OTHERS = ("function", "FunctionMessageChunk", "chat", "ChatMessageChunk")
_PLAIN_CALL = {"name", "args", "id", "type"}
_PLAIN_AI = ({"type", "content", "tool_calls"}, {"type", "content"})
BARE = "bare"
DATA = "data"
KWARGS = "kwargs"


class LangChainProof(PlainProof):
    """Walks bare dicts of type human, ai and tool; ids may repeat across turns."""

    def passes(self, message: dict[str, Any], before: Any) -> bool:
        kind = message["type"]
        if type(message["content"]) is not str:
            return False
        if kind == "tool":
            if not self.waiting or message["status"] not in ("success", "error"):
                return False
            return bool(message["tool_call_id"] == self.waiting.pop(0))
        if self.waiting:
            return False
        if kind == "human":
            return len(message) == 2  # noqa: PLR2004
        if kind != "ai" or message.keys() not in _PLAIN_AI:
            return False
        return all(map(self._asks, message.get("tool_calls", ())))

    def _asks(self, call: Any) -> bool:
        number, name = call["id"], call["name"]
        if call.keys() != _PLAIN_CALL or call["type"] != "tool_call":
            return False
        if not is_text(number) or number in self.waiting or type(call["args"]) is not dict:
            return False
        self.names.add(name)
        self.waiting.append(number)
        return type(name) is str


class LangChain(Dialect):
    """View over LangChain messages; ``tool_calls`` is the canonical list of calls."""

    name = "langchain"
    layout = SINGLE
    part_fields = Dialect.part_fields | {"tool_calls"}
    own_keys = frozenset({"lc", "type"})
    also_reads = frozenset({"openai-chat"})
    proof = LangChainProof

    def __init__(self) -> None:
        self.envelope = BARE

    def read(self, raw: Sequence[Any]) -> list[Message]:
        envelopes = [envelope_of(message) for message in raw if isinstance(message, dict)]
        self.envelope = envelopes[0] if envelopes else BARE
        return super().read(raw)

    def _message(self, index: int, raw: Any) -> Message:
        if isinstance(raw, str):
            return Message(raw, index, USER, [Part(TEXT, raw, (), index, text=raw)])
        if not isinstance(raw, dict):
            return Message(raw, index, UNKNOWN, [], flaw="not-an-object")
        prefix = prefix_of(raw)
        fields = fields_of(raw)
        role = _TYPES.get(type_of(raw), UNKNOWN)
        if role == TOOL:
            # Calls that stand in a result's message are not part of the result.
            call, calls = as_id(fields.get("tool_call_id")), fields.get("tool_calls")
            result = Part(RESULT, raw, (), index, call, flavor="tool")
            if not calls:
                return Message(raw, index, TOOL, [result])
            result.raw = _with_fields(raw, without_calls(fields))
            why = CALLS_ELSEWHERE if isinstance(calls, list) else "tool_calls"
            listed = broken_part(calls, (*prefix_of(raw), "tool_calls"), index, why)
            return Message(raw, index, TOOL, [result, listed])
        parts, flaw = self._content(fields, prefix, index)
        if role in (ASSISTANT, UNKNOWN):
            parts += self._calls(fields, prefix, index)
        return Message(raw, index, role, parts, flaw=flaw)

    def listed_calls(self, calls: list[Any], home: int) -> list[Part]:
        return [self._call(c, ("tool_calls", i), home, "tool_calls") for i, c in enumerate(calls)]

    def _content(self, fields: dict[str, Any], prefix: Path, home: int) -> tuple[list[Part], str]:
        content = fields.get("content")
        at = (*prefix, "content")
        if isinstance(content, str):
            return [Part(TEXT, content, at, home, text=content)] if content else [], ""
        if isinstance(content, list):
            blocks = [self._block(b, (*at, i), home) for i, b in enumerate(content)]
            return blocks, ""
        if content is None:
            return [], ""
        return [self._block(content, at, home)], "content"

    def _block(self, raw: Any, at: Path, home: int) -> Part:
        part = view_block(raw, at, home, _MEDIA)
        if part.flavor in _TWINS:
            key = "call_id" if part.flavor == "function_call" else "id"
            return Part(OTHER, raw, at, home, as_id(raw.get(key)), as_id(raw.get("name")), "twin")
        if part.flavor in _THOUGHTS:
            part.kind = REASONING
        return part

    def _calls(self, fields: dict[str, Any], prefix: Path, home: int) -> list[Part]:
        calls: list[Part] = []
        for key in ("tool_calls", "invalid_tool_calls"):
            listed = fields.get(key)
            if listed is None or (listed == [] and key == "invalid_tool_calls"):
                continue
            if not isinstance(listed, list):
                calls.append(broken_part(listed, (*prefix, key), home, key))
                continue
            calls += [self._call(c, (*prefix, key, i), home, key) for i, c in enumerate(listed)]
        return calls or self._raw_calls(fields, prefix, home)

    def _raw_calls(self, fields: dict[str, Any], prefix: Path, home: int) -> list[Part]:
        """Return the provider's own copy of the calls, which counts where there is no other."""
        kwargs = fields.get("additional_kwargs")
        listed = kwargs.get("tool_calls") if isinstance(kwargs, dict) else None
        at = (*prefix, "additional_kwargs", "tool_calls")
        return [
            Part(OTHER, raw, (*at, i), home, as_id(raw.get("id")), _raw_name(raw), "raw-twin")
            for i, raw in enumerate(listed if isinstance(listed, list) else [])
            if isinstance(raw, dict)
        ]

    def _call(self, raw: Any, at: Path, home: int, flavor: str) -> Part:
        if not isinstance(raw, dict) or not isinstance(raw.get("function", {}), dict):
            return broken_part(raw, at, home, flavor)
        name = _raw_name(raw) if "function" in raw else as_id(raw.get("name"))
        return Part(CALL, raw, at, home, as_id(raw.get("id")), name, flavor)

    def rebuild(self, message: Message) -> Any:
        if message.role == TOOL and message.parts and message.parts[0].kind == RESULT:
            return message.parts[0].raw
        old = fields_of(message.raw) if isinstance(message.raw, dict) else {}
        fields = dict(old)
        calls = [part for part in message.parts if part.kind == CALL]
        fields["content"] = self._rebuilt_content(message, calls)
        if calls or "tool_calls" in old:
            fields["tool_calls"] = [part.raw for part in calls if part.flavor == "tool_calls"]
        if old.get("invalid_tool_calls"):
            invalid = [part.raw for part in calls if part.flavor == "invalid_tool_calls"]
            fields["invalid_tool_calls"] = invalid
        _prune_raw_calls(fields, calls)
        raw = message.raw if isinstance(message.raw, dict) else None
        if raw is not None and _TYPES.get(type_of(raw), UNKNOWN) == message.role:
            return _with_fields(raw, fields)
        return self._wrap(_WIRE[message.role], fields)

    def _rebuilt_content(self, message: Message, calls: list[Part]) -> Any:
        known = {part.id for part in calls}
        inside = [
            part
            for part in message.parts
            if part.kind != CALL
            and part.flavor != "raw-twin"
            and (part.flavor != "twin" or part.id in known)
        ]
        if not inside:
            return ""
        if len(inside) == 1 and inside[0].kind == TEXT and isinstance(inside[0].raw, str):
            return inside[0].raw
        return [
            {"type": "text", "text": p.raw} if isinstance(p.raw, str) else p.raw for p in inside
        ]

    def _wrap(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Wrap fields into a new message, in the same envelope as the list's messages."""
        if self.envelope == BARE:
            return {**fields, "type": kind}
        if self.envelope == DATA:
            return {"type": kind, "data": {**fields, "type": kind}}
        classes = {wire: name for name, wire in reversed(_CLASSES.items()) if "Chunk" not in name}
        path = ["langchain", "schema", "messages", classes[kind]]
        return {"lc": 1, "type": "constructor", "id": path, "kwargs": fields}

    def text_part(self, text: str, role: str) -> Part:
        return Part(TEXT, text, text=text)

    def answer(self, call: Part, text: str, *, failed: bool = True) -> Part:
        status = "error" if failed else "success"
        fields: dict[str, Any] = {"content": text, "tool_call_id": call.id, "status": status}
        if call.name:
            fields["name"] = call.name
        return Part(RESULT, self._wrap("tool", fields), id=call.id, flavor="tool")

    def result_text(self, part: Part) -> str:
        return text_of_blocks(fields_of(part.raw).get("content"))

    def outcome(self, part: Part) -> Any:
        return super().outcome(Part(RESULT, fields_of(part.raw)))

    def result_media(self, part: Part) -> list[Part]:
        return media_blocks(fields_of(part.raw).get("content"), _MEDIA)

    def with_id(self, part: Part, new_id: str) -> Part:
        if part.kind == CALL or part.flavor == "twin":
            key = "call_id" if part.raw.get("type") == "function_call" else "id"
            return copy_part(part, {**part.raw, key: new_id}, id=new_id)
        return self._with_field(part, "tool_call_id", new_id, id=new_id)

    def _with_field(self, part: Part, key: str, value: Any, **changes: Any) -> Part:
        raw = _with_fields(part.raw, {**fields_of(part.raw), key: value})
        return copy_part(part, raw, **changes)

    def with_name(self, part: Part, name: str) -> Part:
        if part.kind == RESULT:
            return part
        path = ("function", "name") if "function" in part.raw else ("name",)
        return copy_part(part, replace_at(part.raw, path, name), name=name)

    def arguments(self, part: Part) -> Any:
        if part.flavor != "tool_calls":
            return ""
        return _raw_arguments(part.raw) if "function" in part.raw else part.raw.get("args")

    def with_arguments(self, part: Part, arguments: dict[str, Any]) -> Part:
        raw: dict[str, Any] = {**part.raw, "args": arguments}
        if part.flavor != "tool_calls":
            # an invalid call becomes a valid one
            raw = {"name": part.name or "", "args": arguments, "id": part.id, "type": "tool_call"}
        elif "function" in part.raw:
            raw = replace_at(part.raw, ("function", "arguments"), as_json(arguments))
        return copy_part(part, raw, flavor="tool_calls")

    def payload(self, part: Part) -> Any:
        return fields_of(part.raw).get("content")

    def beside_payload(self, part: Part) -> Any:
        return fields_of(part.raw).get("artifact")

    def with_payload(self, part: Part, payload: Any) -> Part:
        return self._with_field(part, "content", payload)

    def is_payload(self, value: Any) -> bool:
        if isinstance(value, list):
            return all(isinstance(item, str) or is_whole_block(item) for item in value)
        return value is None or isinstance(value, str)

    def owns(self, message: dict[str, Any]) -> bool:
        kind = message.get("type")
        if "lc" in message or (isinstance(kind, str) and kind in _OWN_TYPES):
            return True
        enveloped = "data" in message or ("role" not in message and "content" in message)
        return isinstance(kind, str) and kind in ("human", "system", "tool") and enveloped

    def is_event(self, event: dict[str, Any]) -> bool:
        return type_of(event) == "AIMessageChunk"

    def is_sdk_class(self, kind: type) -> bool:
        return is_langchain(kind)

    def fits(self, message: dict[str, Any]) -> bool:
        return not {"type", "lc", "role"}.isdisjoint(message)

    def find_doubt(self, messages: list[dict[str, Any]]) -> str:
        for message in messages:
            if "lc" in message or "role" in message or message.get("type") in _SAID_TYPES:
                return ""
        return "no message in it says human or ai"

    def speaker(self, message: Message) -> tuple[str, str]:
        raw = message.raw if isinstance(message.raw, dict) else {}
        kind = type_of(raw)
        if message.role != SYSTEM or kind not in _OTHERS:
            return super().speaker(message)
        fields = fields_of(raw)
        name = fields.get("name") or fields.get("role")
        return USER, f"[{kind} {name if isinstance(name, str) else ''}]"

    def beside_content(self, message: Message) -> tuple[dict[str, Any], Path]:
        if message.role != ASSISTANT or not isinstance(message.raw, dict):
            return {}, ()
        kwargs = fields_of(message.raw).get("additional_kwargs")
        path = (*prefix_of(message.raw), "additional_kwargs")
        return (kwargs, path) if isinstance(kwargs, dict) else ({}, ())

    def call_from_twin(self, twin: Part) -> Part:
        """Make the ``tool_calls`` entry for a call that only a content block mentions."""
        arguments = twin.raw.get("input", twin.raw.get("args"))
        if twin.flavor == "raw-twin":
            arguments = _raw_arguments(twin.raw)
        raw = {"name": twin.name or "", "args": arguments, "id": twin.id, "type": "tool_call"}
        return Part(CALL, raw, id=twin.id, name=twin.name, flavor="tool_calls")


def _raw_name(raw: dict[str, Any]) -> str | None:
    function = raw.get("function")
    return as_id(function.get("name")) if isinstance(function, dict) else None


def _raw_arguments(raw: dict[str, Any]) -> Any:
    function = raw.get("function")
    text = function.get("arguments") if isinstance(function, dict) else None
    try:
        return json.decode(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return text


def envelope_of(raw: dict[str, Any]) -> str:
    """Return the envelope of a message."""
    if isinstance(raw.get("kwargs"), dict) and raw.get("lc") == 1:
        return KWARGS
    if isinstance(raw.get("data"), dict) and "content" not in raw:
        return DATA
    return BARE


def prefix_of(raw: dict[str, Any]) -> Path:
    """Return the path from a message to its fields."""
    envelope = envelope_of(raw)
    return () if envelope == BARE else (envelope,)


def fields_of(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a message's fields, whatever its envelope."""
    envelope = envelope_of(raw)
    fields: dict[str, Any] = raw if envelope == BARE else raw[envelope]
    return fields


def _with_fields(raw: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a message with other fields, in its own envelope."""
    envelope = envelope_of(raw)
    return fields if envelope == BARE else {**raw, envelope: fields}


def type_of(raw: dict[str, Any]) -> str:
    """Return a message's type name as LangChain spells it."""
    if envelope_of(raw) == KWARGS:
        path = raw.get("id")
        last = path[-1] if isinstance(path, list) and path else ""
        return _CLASSES.get(last, "") if isinstance(last, str) else ""
    kind = raw.get("type") or raw.get("role")
    return kind if isinstance(kind, str) else ""


def _prune_raw_calls(fields: dict[str, Any], calls: list[Part]) -> None:
    """Keep the provider's raw copy of the calls in step with the calls themselves."""
    kwargs = fields.get("additional_kwargs")
    if not isinstance(kwargs, dict) or not isinstance(kwargs.get("tool_calls"), list):
        return
    known = {part.id for part in calls}
    copies = [c for c in kwargs["tool_calls"] if isinstance(c, dict)]
    # the id of a copy may be anything, also a list
    kept = [c for c in copies if isinstance(c.get("id"), str | None) and c.get("id") in known]
    if len(kept) != len(kwargs["tool_calls"]):
        fields["additional_kwargs"] = {**kwargs, "tool_calls": kept}
