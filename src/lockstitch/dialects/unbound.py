"""A reply without what binds it to who issued it.

Reasoning and signatures are refused by everybody else, sealed content says nothing to them, and
the ids of items lead to state that only the issuer keeps. What a provider ran itself and tells of
only under such an id, or only in sealed form, cannot be told to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lockstitch.dialects.base import Dialect, reseat
from lockstitch.dialects.langchain import envelope_of, fields_of
from lockstitch.model.parts import (
    CALL,
    OTHER,
    REASONING,
    SERVER_CALL,
    SERVER_RESULT,
    TEXT,
    Message,
    Part,
)

Fields = dict[str, Any]

_SIGNATURES = ("thoughtSignature", "thought_signature")
_SEALED = ("encrypted_content", "encrypted_index", "encrypted_stdout")
_CHAT_REASONING = (
    "reasoning_content", "reasoning", "reasoning_details", "reasoning_text", "thinking_blocks",
    "reasoning_opaque", "thought_signature", "audio",
)  # fmt: skip
_CHAT_BLOCKS = ("thinking", "redacted_thinking", "reasoning")
_CHAT_CALL = ("extra_content", "provider_specific_fields", *_SIGNATURES)
# The API refuses these calls without an id, so theirs stays.
_ID_REQUIRED = ("computer_call", "local_shell_call")
_KWARGS = (
    *_CHAT_REASONING, "thinking", "signature", "__gemini_function_call_thought_signatures__",
    "__openai_function_call_ids__",
)  # fmt: skip
_ITEM_IDS = ("msg_", "resp_")


def unbound(view: Dialect, message: Message) -> Any:
    """Give an assistant's message without what is bound; None if nothing is left of it."""
    raw = message.raw
    if not isinstance(raw, dict):
        return raw
    if view.name == "openai-responses":
        return _item(message)
    free = _PARTS[view.name]
    parts = [freed for part in message.parts if (freed := free(part, message.parts)) is not None]
    beside = _BESIDE.get(view.name, _as_it_is)(raw)
    same = len(parts) == len(message.parts) and all(map(_is_same, parts, message.parts))
    if same and beside is raw:
        return raw
    if not parts and not _has_words_beside(beside):
        return None
    return beside if same else view.rebuild(Message(beside, message.index, message.role, parts))


def _is_same(new: Part, old: Part) -> bool:
    return new is old


def _has_words_beside(raw: Fields) -> bool:
    return any(raw.get(key) for key in ("refusal", "function_call"))


def _as_it_is(raw: Fields) -> Fields:
    return raw


def _without(raw: Fields, keys: Iterable[str]) -> Fields:
    found = {key for key in keys if key in raw}
    return {key: value for key, value in raw.items() if key not in found} if found else raw


def _reseated(part: Part, raw: Any) -> Part:
    return part if raw is part.raw else reseat(part, raw)


def _anthropic(part: Part, parts: list[Part]) -> Part | None:
    if part.kind == REASONING:
        return None
    if part.kind == SERVER_CALL:
        results = (p for p in parts if p.kind == SERVER_RESULT and p.id == part.id)
        return None if any(_is_sealed(result.raw) for result in results) else part
    if part.kind == SERVER_RESULT:
        return None if _is_sealed(part.raw) else part
    if part.kind == TEXT and isinstance(part.raw, dict):
        return _reseated(part, _unsealed_citations(part.raw))
    if part.kind == OTHER:
        return None if _is_sealed(part.raw) else part
    return part


def _is_sealed(value: Any) -> bool:
    """Tell whether a block holds something that only its issuer can open."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            if any(inner.get(key) for key in _SEALED):
                return True
            waiting.extend(inner.values())
        elif isinstance(inner, list):
            waiting.extend(inner)
    return False


def _unsealed_citations(block: Fields) -> Fields:
    citations = block.get("citations")
    if not isinstance(citations, list):
        return block
    kept = [citation for citation in citations if not _is_sealed(citation)]
    if len(kept) == len(citations):
        return block
    return {**block, "citations": kept} if kept else _without(block, ("citations",))


def _bedrock(part: Part, _: list[Part]) -> Part | None:
    return None if part.kind == REASONING else part


def _gemini(part: Part, _: list[Part]) -> Part | None:
    if part.kind == REASONING:
        return None
    return _reseated(part, _without(part.raw, _SIGNATURES)) if isinstance(part.raw, dict) else part


def _chat(part: Part, _: list[Part]) -> Part | None:
    if part.kind == CALL:
        return _reseated(part, _without(part.raw, _CHAT_CALL))
    return None if part.kind == OTHER and part.flavor in _CHAT_BLOCKS else part


def _langchain(part: Part, _: list[Part]) -> Part | None:
    if part.kind == REASONING:
        return None
    raw = part.raw
    if not isinstance(raw, dict):
        return part
    if part.kind == OTHER and part.flavor not in ("twin", "raw-twin") and _is_sealed(raw):
        return None
    # the id of a block is that of the item it came from; a call's own stands in ``call_id``
    named = part.kind == TEXT or (part.flavor == "twin" and "call_id" in raw)
    freed = _without(raw, ("extras", *_SIGNATURES, *(("id",) if named else ())))
    return _reseated(part, _unsealed_citations(freed) if part.kind == TEXT else freed)


def _chat_beside(raw: Fields) -> Fields:
    return _without(raw, _CHAT_REASONING)


def _langchain_beside(raw: Fields) -> Fields:
    fields = fields_of(raw)
    kwargs = fields.get("additional_kwargs")
    freed = _without(kwargs, _KWARGS) if isinstance(kwargs, dict) else kwargs
    is_item = str(fields.get("id")).startswith(_ITEM_IDS)
    if freed is kwargs and not is_item:
        return raw
    kept = {**_without(fields, ("id",) if is_item else ()), "additional_kwargs": freed}
    return kept if fields is raw else {**raw, envelope_of(raw): kept}


def _item(message: Message) -> Any:
    """Free one item: messages and calls do without their id, what a provider ran does not."""
    raw = message.raw
    part = message.parts[0] if len(message.parts) == 1 and not message.parts[0].at else None
    if part is None:
        return _without(raw, ("id",))
    if part.kind != CALL:
        return None
    return raw if part.flavor in _ID_REQUIRED else _without(raw, ("id", "encrypted_content"))


_PARTS: dict[str, Callable[[Part, list[Part]], Part | None]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "gemini": _gemini,
    "bedrock": _bedrock,
    "langchain": _langchain,
}
_BESIDE: dict[str, Callable[[Fields], Fields]] = {
    "openai-chat": _chat_beside,
    "langchain": _langchain_beside,
}
