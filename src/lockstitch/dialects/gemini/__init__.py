"""Gemini ``contents``, in the REST spelling (camelCase) and the SDK's (snake_case).

The view, its marks, and a quick proof of everyday lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import MappingProxyType, NoneType
from typing import Any

from msgspec import UNSET

from lockstitch.conversation.pairing import GROUPED
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
    KeyedDialect,
    as_id,
    as_json,
    broken_part,
    copy_part,
    objects_at,
    view_content,
)
from lockstitch.dialects.fast import PlainProof, is_text

_CALLS = ("functionCall", "function_call")
_RESULTS = ("functionResponse", "function_response")
_MEDIA = ("inlineData", "inline_data", "fileData", "file_data")
_DATA = (
    *_CALLS,
    *_RESULTS,
    *_MEDIA,
    *("executableCode", "executable_code", "codeExecutionResult", "code_execution_result"),
    *("toolCall", "tool_call", "toolResponse", "tool_response"),
)
SIGNATURES = ("thoughtSignature", "thought_signature")
CHUNK_MARKS = frozenset(
    {"candidates", "usageMetadata", "usage_metadata", "promptFeedback", "prompt_feedback"}
)
_PLAIN_TEXT = ({"text"}, {"text", "thoughtSignature"})
_PLAIN_CALL = ({"functionCall"}, {"functionCall", "thoughtSignature"})
_MODEL = re.compile(r"gemini-(\d{1,9})")
# The first version whose calls carry the signature of the thought behind them.
_FIRST_SIGNED = 3


def signs_thoughts(model: str) -> bool | None:
    """Whether a model signs the thoughts that lead to its calls; None if it is not a Gemini."""
    found = _MODEL.search(model.lower())
    return None if found is None else int(found[1]) >= _FIRST_SIGNED


class GeminiProof(PlainProof):
    """Walks ``{"role", "parts"}`` with texts, calls and responses; ids may be missing or repeat."""

    def passes(self, message: dict[str, Any], before: Any) -> bool:
        role, parts = message["role"], message["parts"]
        if type(parts) is not list or not parts or len(message) != 2:  # noqa: PLR2004
            return False
        if role == "model":
            is_second = before is None or before["role"] == "model"
            return not is_second and not self.waiting and self._speaks(parts)
        if role != "user":
            return False
        if self.waiting:
            waiting, self.waiting = self.waiting, []
            if len(parts) != len(waiting):
                return False
            for part, (call, name) in zip(parts, waiting, strict=True):
                block = part["functionResponse"]
                if len(part) != 1 or block.get("id") != call or block["name"] != name:
                    return False
                if "parts" in block or type(block["response"]) is not dict:
                    return False
            return True
        return all(part.keys() == {"text"} and is_text(part["text"]) for part in parts)

    def _speaks(self, parts: list[Any]) -> bool:
        for part in parts:
            keys = part.keys()
            if keys in _PLAIN_CALL:
                block = part["functionCall"]
                name, call = block["name"], block.get("id")
                if type(name) is not str or type(block.get("args", {})) is not dict:
                    return False
                if call is not None and (not is_text(call) or (call, name) in self.waiting):
                    return False
                self.names.add(name)
                self.waiting.append((call, name))
            elif self.waiting or keys not in _PLAIN_TEXT or not is_text(part["text"]):
                return False
        return True


class Gemini(KeyedDialect):
    """View over ``{"role": "user" | "model", "parts": [part, ...]}``."""

    name = "gemini"
    layout = GROUPED
    container = "parts"
    neutral_roles = MappingProxyType(
        {"user": USER, None: USER, "model": ASSISTANT, "function": USER}
    )
    role_names = MappingProxyType(
        {ASSISTANT: "model", **dict.fromkeys((USER, SYSTEM, TOOL, UNKNOWN), "user")}
    )
    arguments_key = "args"
    payload_key = "response"
    media_key = "parts"
    media_kinds = _MEDIA
    ids_are_optional = True
    has_system_role = False
    calls_follow_user = True
    roles = frozenset({"user", "model", "function", "system", None})
    message_fields = frozenset({"role", "parts"})
    own_keys = frozenset({"parts"})
    sdk_modules = ("google.genai.",)
    stream_end = re.compile(rb'"finishReason": ?"')
    newest_models = ("gemini-3-pro",)
    signature_keys = SIGNATURES
    proof = GeminiProof

    def _message(self, index: int, raw: Any) -> Message:
        if isinstance(raw, str):
            return Message(raw, index, USER, [Part(TEXT, raw, (), index, flavor="", text=raw)])
        if not isinstance(raw, dict):
            return Message(raw, index, UNKNOWN, [], flaw="not-an-object")
        role = self.neutral_role(raw.get("role"))
        parts = raw.get("parts")
        if parts is None and "content" in raw:
            # read the words of a message that has ``content`` where ``parts`` belong
            content = raw["content"]
            blocks = content if isinstance(content, list) else [content]
            odd = [self._block(block, ("content",), index) for block in blocks]
            return Message(raw, index, role, odd, flaw="content")
        view, flaw = view_content(self._block, parts, index, "parts")
        return Message(raw, index, role, view, flaw=flaw)

    def _block(self, raw: Any, at: Path, home: int) -> Part:
        if isinstance(raw, str):
            return Part(TEXT, raw, at, home, flavor="bare", text=raw)
        if not isinstance(raw, dict):
            return broken_part(raw, at, home, "not-an-object")
        if not isinstance(raw.get("text", ""), (str, NoneType)):
            return broken_part(raw, at, home, "text")
        keys = [key for key in _DATA if raw.get(key) is not None]
        if len(keys) > 1:
            return broken_part(raw, at, home, "several")
        key = keys[0] if keys else ""
        if key in _CALLS or key in _RESULTS:
            block = raw[key]
            if not isinstance(block, dict):
                return broken_part(raw, at, home, key)
            kind = CALL if key in _CALLS else RESULT
            return Part(kind, raw, at, home, as_id(block.get("id")), as_id(block.get("name")), key)
        if key:
            return Part(MEDIA if key in _MEDIA else OTHER, raw, at, home, flavor=key)
        text = raw.get("text")
        if not isinstance(text, str):
            return broken_part(raw, at, home, "empty" if text is None else "text")
        if raw.get("thought") is True or (not text and signature_of(raw) is not None):
            return Part(REASONING, raw, at, home, flavor="thought")
        return Part(TEXT, raw, at, home, flavor="text", text=text)

    def answer(self, call: Part, text: str, *, failed: bool = True) -> Part:
        said = {"error" if failed else "output": text}
        response: dict[str, Any] = {"name": call.name or "", "response": said}
        if call.id is not None:
            response = {"id": call.id, **response}
        key = "function_response" if call.flavor == "function_call" else "functionResponse"
        return Part(RESULT, {key: response}, id=call.id, name=call.name, flavor=key)

    def result_text(self, part: Part) -> str:
        response = part.raw[part.flavor].get("response")
        if isinstance(response, dict) and len(response) == 1:
            value = next(iter(response.values()))
            return value if isinstance(value, str) else as_json(value)
        return as_json(response)

    def arguments(self, part: Part) -> Any:
        arguments = super().arguments(part)
        return UNSET if arguments is None else arguments

    def is_payload(self, value: Any) -> bool:
        return isinstance(value, dict)

    def as_payload(self, value: Any) -> Any:
        return {} if value is None else {"output": value}

    def ends_well(self, body: dict[str, Any], raw: list[Any], model: str | None) -> bool:
        if raw[-1]["role"] != "user":
            return False
        if not model or not signs_thoughts(model):
            return True
        calls = [[p for p in message["parts"] if "functionCall" in p] for message in raw]
        # only the first call of a message has to carry a signature
        return all(bool(made[0].get("thoughtSignature")) for made in calls if made)

    def owns(self, message: dict[str, Any]) -> bool:
        return "parts" in message and "content" not in message

    def marks_body(self, body: dict[str, Any]) -> bool:
        return isinstance(body.get("contents"), (list, str))

    def is_response(self, value: dict[str, Any]) -> bool:
        return any(key in value for key in ("candidates", "promptFeedback", "prompt_feedback"))

    def is_event(self, event: dict[str, Any]) -> bool:
        return not CHUNK_MARKS.isdisjoint(event)

    def fits(self, message: dict[str, Any]) -> bool:
        role = message.get("role")
        is_known = type(role) in (str, NoneType) and role in self.roles
        return is_known and "parts" in message

    def foreign_calls(self, message: dict[str, Any]) -> Iterable[bool]:
        return ["type" in part for part in objects_at(message, "parts")]

    def sign(self, part: Part, signature: str) -> Part:
        """Return a copy of a call that carries a thought signature."""
        key = "thought_signature" if part.flavor == "function_call" else "thoughtSignature"
        return copy_part(part, {**part.raw, key: signature})


def signature_of(raw: dict[str, Any]) -> Any:
    """Return a part's thought signature, in either spelling."""
    return next((raw[key] for key in SIGNATURES if raw.get(key)), None)
