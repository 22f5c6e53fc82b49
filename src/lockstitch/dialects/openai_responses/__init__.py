"""OpenAI Responses: a flat list of items, each call kind with its own kind of output.

The view, its marks, and a quick proof of everyday lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from lockstitch.conversation.pairing import FLAT
from lockstitch.conversation.parts import (
    ASSISTANT,
    CALL,
    MEDIA,
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
from lockstitch.dialects.base import (
    SPEAKERS,
    Dialect,
    as_id,
    as_json,
    copy_part,
    media_blocks,
    objects_at,
    text_of_blocks,
    view_block,
    view_content,
)
from lockstitch.dialects.fast import PlainProof

_ROLES = {"user": USER, "assistant": ASSISTANT, "system": SYSTEM, "developer": SYSTEM}
_TEXTS = ("input_text", "output_text", "text")
_MEDIA = ("input_image", "input_file", "input_audio")


class CallKind(Struct, frozen=True):
    """How one kind of call is answered.

    ``outputs`` are the item types that may answer it; the first is the one that we write.
    ``arguments`` is the field that must hold JSON text, if there is one.
    """

    outputs: tuple[str, ...]
    arguments: str = ""


CALL_KINDS = {
    "function_call": CallKind(("function_call_output",), "arguments"),
    "custom_tool_call": CallKind(("custom_tool_call_output",)),
    "local_shell_call": CallKind(("local_shell_call_output", "function_call_output")),
    "shell_call": CallKind(("shell_call_output",)),
    "apply_patch_call": CallKind(("apply_patch_call_output",)),
    "computer_call": CallKind(("computer_call_output",)),
    "tool_search_call": CallKind(("tool_search_output",)),
}
_SPOKEN_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
OUTPUTS = frozenset(output for kind in CALL_KINDS.values() for output in kind.outputs)
ID_PREFIXES = {
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "message": "msg",
    "reasoning": "rs",
}
_OWN_ITEMS = frozenset({*CALL_KINDS, *OUTPUTS, "reasoning", "message", "item_reference"})
_KNOWN_ITEMS = frozenset({*CALL_KINDS, *OUTPUTS, "reasoning", "item_reference", "compaction"})
_ITEM_KEYS = {"type", "role", "content", "id", "status"}
_CALL_KEYS = {"type", "call_id", "name", "arguments", "id", "status"}
_DECODE = msgspec.json.Decoder().decode
MADE_BY_CLIENT = frozenset({"item_reference", "mcp_approval_response", "compaction_trigger"})


class ResponsesProof(PlainProof):
    """Walks items of type message, reasoning, function_call and function_call_output."""

    def __init__(self) -> None:
        super().__init__()
        self.leads = False

    @property
    def is_open(self) -> bool:
        """Whether a call has no output yet, or reasoning has led to nothing yet."""
        return bool(self.waiting) or self.leads

    def passes(self, message: dict[str, Any], before: Any) -> bool:
        kind = message["type"]
        if kind == "function_call_output":
            if self.leads or not self.waiting or "id" in message:
                return False
            return message["call_id"] == self.waiting.pop(0) and type(message["output"]) is str
        if kind == "function_call":
            return self._calls(message, before)
        if self.waiting:
            return False
        if kind == "reasoning":
            if "model" in message or "execution" in message or not self._is_named(message, "rs"):
                return False
            summary = message["summary"]
            if type(summary) is not list:
                return False
            for text in summary:
                if type(text) is not dict or type(text["text"]) is not str or not text["type"]:
                    return False
            self.leads = self.leads or "id" in message
            return True
        return kind == "message" and self._says(message)

    def _calls(self, item: dict[str, Any], before: Any) -> bool:
        # after an output, a call would begin another batch, which must wait until all are answered
        if self.waiting and before["type"] != "function_call":
            return False
        call, name, arguments = item["call_id"], item["name"], item["arguments"]
        if not item.keys() <= _CALL_KEYS or not self._is_named(item, "fc"):
            return False
        if not self.is_new(call) or type(name) is not str or type(arguments) is not str:
            return False
        if type(_DECODE(arguments)) is not dict:
            return False
        self.names.add(name)
        self.waiting.append(call)
        self.leads = False
        return True

    def _says(self, item: dict[str, Any]) -> bool:
        role, content = item["role"], item["content"]
        if not item.keys() <= _ITEM_KEYS or not self._is_named(item, "msg"):
            return False
        if role == "assistant":
            kind, self.leads = "output_text", False
        elif role == "user" and not self.leads:
            kind = "input_text"
        else:
            return False
        if type(content) is not list or not content:
            return False
        return all(
            type(block) is dict and block["type"] == kind and type(block["text"]) is str
            for block in content
        )

    def _is_named(self, item: dict[str, Any], prefix: str) -> bool:
        if "id" not in item:
            return True
        name = item["id"]
        return type(name) is str and name.startswith(prefix) and self.is_new(name)

    def ids_in(self, message: Any) -> Iterable[str]:
        found = (message.get("id"), message.get("call_id")) if type(message) is dict else ()
        return [name for name in found if type(name) is str]


class OpenAIResponses(Dialect):
    """View over ``input``: each item is one message of the view."""

    name = "openai-responses"
    layout = FLAT
    roles = SPEAKERS | {"developer"}
    own_keys = frozenset({"type"})
    own_blocks = frozenset({"input_text", "output_text", "input_image", "input_file"})
    stream_end = re.compile(rb'"type": ?"(?:response\.(?:completed|failed|incomplete)|error)"')
    previous_key = "previous_response_id"
    sdk_modules = ("openai.types.responses.", "openai.lib.streaming.responses.")
    proof = ResponsesProof

    def _message(self, index: int, raw: Any) -> Message:
        if not isinstance(raw, dict):
            return Message(raw, index, UNKNOWN, [], flaw="not-an-object")
        kind = raw.get("type")
        if kind == "message" or (kind is None and "role" in raw):
            neutral = _role(raw.get("role"))
            content = raw.get("content")
            if isinstance(content, str):
                parts = [Part(TEXT, content, ("content",), index, flavor="", text=content)]
                return Message(raw, index, neutral, parts)
            parts, flaw = view_content(self._block, content, index)
            return Message(raw, index, neutral, parts, flaw=flaw)
        if kind is None and set(raw) == {"id"}:
            kind = "item_reference"
        if not isinstance(kind, str) or (kind == "item_reference" and not as_id(raw.get("id"))):
            return Message(raw, index, UNKNOWN, [], flaw="type")
        if kind in CALL_KINDS and not _is_run_by_server(raw):
            call = as_id(raw.get("call_id"))
            part = Part(CALL, raw, (), index, call, as_id(raw.get("name")), kind)
            return Message(raw, index, ASSISTANT, [part])
        if kind in OUTPUTS and not _is_run_by_server(raw):
            call = raw.get("call_id")
            if call is None and kind == "local_shell_call_output":
                call = raw.get("id")  # older outputs name their call there
            part = Part(RESULT, raw, (), index, as_id(call), None, kind)
            return Message(raw, index, TOOL, [part])
        if kind == "reasoning":
            part = Part(REASONING, raw, (), index, as_id(raw.get("id")), flavor=kind)
            return Message(raw, index, ASSISTANT, [part])
        role = SYSTEM if kind in MADE_BY_CLIENT else ASSISTANT
        return Message(raw, index, role, [Part(OTHER, raw, (), index, flavor=kind)])

    def _block(self, raw: Any, at: Path, home: int) -> Part:
        return view_block(raw, at, home, _MEDIA, _TEXTS)

    def rebuild(self, message: Message) -> Any:
        if len(message.parts) == 1 and message.parts[0].kind in (CALL, RESULT, REASONING):
            return message.parts[0].raw
        raw = dict(message.raw) if isinstance(message.raw, dict) else {}
        if _role(raw.get("role")) != message.role:
            raw["role"] = USER if message.role == UNKNOWN else message.role
        raw["content"] = self._content(message)
        return raw

    def _content(self, message: Message) -> Any:
        parts = message.parts
        if not parts:
            return ""
        if len(parts) == 1 and isinstance(parts[0].raw, str):
            return parts[0].raw
        kind = "output_text" if message.role == ASSISTANT else "input_text"
        return [{"type": kind, "text": p.raw} if isinstance(p.raw, str) else p.raw for p in parts]

    def text_part(self, text: str, role: str) -> Part:
        return Part(TEXT, text, flavor="", text=text)

    def note_block(self, text: str) -> Any:
        return {"type": "input_text", "text": text}

    def answer(self, call: Part, text: str, *, failed: bool = True) -> Part | None:
        kind = CALL_KINDS[call.flavor].outputs[0] if call.flavor in CALL_KINDS else ""
        raw: dict[str, Any] = {"type": kind, "call_id": call.id, "output": text}
        if kind == "local_shell_call_output":
            raw = {"type": kind, "id": call.id, "call_id": call.id, "output": text}
        elif kind == "shell_call_output":
            outcome = {"type": "exit", "exit_code": int(failed)}
            out, err = ("", text) if failed else (text, "")
            raw["output"] = [{"stdout": out, "stderr": err, "outcome": outcome}]
        elif kind == "apply_patch_call_output":
            status = "failed" if failed else "completed"
            raw = {"type": kind, "call_id": call.id, "status": status, "output": text}
        elif kind == "tool_search_output":
            raw = {"type": kind, "call_id": call.id, "execution": "client"}
            raw |= {"status": "incomplete", "tools": []}
        elif kind not in ("function_call_output", "custom_tool_call_output"):
            # the output of a computer call must be a screenshot, which nobody here can make up
            return None
        return Part(RESULT, raw, id=call.id, flavor=kind)

    def convert_output(self, result: Part, call: Part) -> Part | None:
        """Return a result as the kind of output that its call asks for, None if there is no way."""
        fresh = self.answer(call, self.result_text(result))
        if fresh is None or call.flavor == "tool_search_call":
            return None
        if call.flavor == "apply_patch_call":
            fresh.raw["status"] = "completed"
        return copy_part(result, fresh.raw, flavor=fresh.flavor)

    def is_placeholder(self, part: Part) -> bool:
        if part.flavor == "tool_search_output":
            return part.raw.get("status") == "incomplete" and not part.raw.get("tools")
        return super().is_placeholder(part)

    def result_text(self, part: Part) -> str:
        output = part.raw.get("output")
        if isinstance(output, str):
            return output
        if part.flavor == "computer_call_output":
            return ""
        if output is None:
            return as_json(self.outcome(part))
        if isinstance(output, list) and part.flavor != "shell_call_output":
            return text_of_blocks(output)
        if not isinstance(output, list):
            return as_json(output)
        chunks = [chunk for chunk in output if isinstance(chunk, dict)]
        streams = [chunk.get(key) for chunk in chunks for key in ("stdout", "stderr")]
        return "\n".join(text for text in streams if isinstance(text, str) and text)

    def result_media(self, part: Part) -> list[Part]:
        output = part.raw.get("output")
        if part.flavor == "computer_call_output" and isinstance(output, dict):
            image = {"type": "input_image", "image_url": output.get("image_url")}
            return [Part(MEDIA, image, flavor="input_image")]
        return media_blocks(output, _MEDIA)

    def with_id(self, part: Part, new_id: str) -> Part:
        keys = {"call_id"} if "call_id" in part.raw or part.kind == CALL else {"id"}
        if part.flavor == "local_shell_call_output" and part.raw.get("id") == part.id:
            keys.add("id")
        return copy_part(part, {**part.raw, **dict.fromkeys(keys, new_id)}, id=new_id)

    def with_name(self, part: Part, name: str) -> Part:
        if part.kind == RESULT or ("name" not in part.raw and part.flavor != "function_call"):
            return part
        return copy_part(part, {**part.raw, "name": name}, name=name)

    def arguments(self, part: Part) -> Any:
        field = CALL_KINDS[part.flavor].arguments
        return part.raw.get(field) if field else UNSET

    def with_arguments(self, part: Part, arguments: dict[str, Any]) -> Part:
        field = CALL_KINDS[part.flavor].arguments
        return copy_part(part, {**part.raw, field: as_json(arguments)})

    def payload(self, part: Part) -> Any:
        return part.raw.get("output") if part.flavor in _SPOKEN_OUTPUTS else UNSET

    def with_payload(self, part: Part, payload: Any) -> Part:
        return copy_part(part, {**part.raw, "output": payload})

    def ends_well(self, body: dict[str, Any], raw: list[Any], model: str | None) -> bool:
        # reasoning that the provider does not store must come back to it, sealed
        return body.get("store") is not False or all(
            type(item.get("encrypted_content")) is str
            for item in raw
            if item["type"] == "reasoning"
        )

    def owns(self, message: dict[str, Any]) -> bool:
        kind = message.get("type")
        return isinstance(kind, str) and kind in _OWN_ITEMS and "tool_calls" not in message

    def marks_body(self, body: dict[str, Any]) -> bool:
        return isinstance(body.get("input"), (list, str))

    def is_response(self, value: dict[str, Any]) -> bool:
        if value.get("type") == "message":
            # Anthropic's message shares the type, but has no status and other blocks
            return "status" in value or any(
                block.get("type") in ("output_text", "refusal")
                for block in objects_at(value, "content")
            )
        listed = isinstance(value.get("output"), list) and "type" not in value
        return value.get("object") == "response" or listed

    def is_event(self, event: dict[str, Any]) -> bool:
        kind = event.get("type")
        return isinstance(kind, str) and kind.startswith("response.")

    def fits(self, message: dict[str, Any]) -> bool:
        kind = message.get("type", "message")
        if kind == "message":
            return super().fits(message)
        return type(kind) is str and (kind in _KNOWN_ITEMS or "id" in message)

    def speaker(self, message: Message) -> tuple[str, str]:
        if message.role == SYSTEM and not (isinstance(message.raw, dict) and "role" in message.raw):
            return USER, ""
        return super().speaker(message)


def _role(role: Any) -> str:
    return _ROLES.get(role, UNKNOWN) if isinstance(role, str) else UNKNOWN


def _is_run_by_server(raw: dict[str, Any]) -> bool:
    return raw.get("execution") == "server" or (
        raw.get("type") in ("tool_search_call", "tool_search_output") and not raw.get("call_id")
    )
