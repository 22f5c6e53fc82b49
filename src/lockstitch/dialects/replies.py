"""What a provider answered, as the messages that a later request hands back.

Everything inside a message stays as it was received: blocks, their order, signatures and fields
that are not known here. Only what a request refuses is left behind: the envelope of the response,
and the few fields that providers write and do not read.

A reply without what binds it to who issued it.

Reasoning and signatures are refused by everybody else, sealed content says nothing to them, and
the ids of items lead to state that only the issuer keeps. What a provider ran itself and tells of
only under such an id, or only in sealed form, cannot be told to another one.
"""

from __future__ import annotations

import operator
from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from lockstitch.conversation.parts import (
    ASSISTANT,
    CALL,
    OTHER,
    REASONING,
    RESULT,
    SERVER_CALL,
    SERVER_RESULT,
    TEXT,
    Message,
    Part,
)
from lockstitch.dialects.base import Dialect, copy_part, replace_at
from lockstitch.dialects.langchain import envelope_of, fields_of, type_of
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.registry import new_dialect

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


def unbind(view: Dialect, message: Message) -> Any:
    """Give an assistant's message without what is bound; None if nothing is left of it."""
    raw = message.raw
    if not isinstance(raw, dict):
        return raw
    if view.name == "openai-responses":
        return _unbound_item(message)
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
    return part if raw is part.raw else copy_part(part, raw)


def _unbound_anthropic(part: Part, parts: list[Part]) -> Part | None:
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


def _unbound_bedrock(part: Part, _: list[Part]) -> Part | None:
    return None if part.kind == REASONING else part


def _unbound_gemini(part: Part, _: list[Part]) -> Part | None:
    if part.kind == REASONING:
        return None
    return _reseated(part, _without(part.raw, _SIGNATURES)) if isinstance(part.raw, dict) else part


def _unbound_chat(part: Part, _: list[Part]) -> Part | None:
    if part.kind == CALL:
        return _reseated(part, _without(part.raw, _CHAT_CALL))
    return None if part.kind == OTHER and part.flavor in _CHAT_BLOCKS else part


def _unbound_langchain(part: Part, _: list[Part]) -> Part | None:
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


def _unbound_item(message: Message) -> Any:
    """Free one item: messages and calls do without their id, what a provider ran does not."""
    raw = message.raw
    part = message.parts[0] if len(message.parts) == 1 and not message.parts[0].at else None
    if part is None:
        return _without(raw, ("id",))
    if part.kind != CALL:
        return None
    return raw if part.flavor in _ID_REQUIRED else _without(raw, ("id", "encrypted_content"))


_PARTS: dict[str, Callable[[Part, list[Part]], Part | None]] = {
    "anthropic": _unbound_anthropic,
    "openai-chat": _unbound_chat,
    "gemini": _unbound_gemini,
    "bedrock": _unbound_bedrock,
    "langchain": _unbound_langchain,
}
_BESIDE: dict[str, Callable[[Fields], Fields]] = {
    "openai-chat": _chat_beside,
    "langchain": _langchain_beside,
}


Fields = dict[str, Any]

_CHAT_OWN = frozenset({"role", "content", "tool_calls"})
_CHAT_NULLS = ("refusal", "audio", "function_call", "tool_calls", "name")
# Providers that check fields refuse these; the ones that wrote them have no use for them.
_CHAT_WRITTEN = ("annotations", "parsed")
_ITEM_WRITTEN = ("created_by", "parsed_arguments")
_STATUS_UNREAD = ("reasoning", "function_call", "custom_tool_call")
_PROVIDERS = {
    "anthropic": "anthropic",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "gemini": "google",
    "bedrock": "aws",
    "langchain": "langchain",
}
# Profiles that differ in what is accepted, not in who serves it.
_NO_PROVIDERS = ("classic", "strict")
_BEDROCK_BYTES = (("reasoningContent", "redactedContent"), ("image", "source", "bytes"))
_SPEAKERS = ("user", "assistant", "system", "developer", "tool", "model", "function")


def messages_in(dialect: str, value: Any) -> list[Any]:
    """Give the messages (or items) to replay of a response, a message, or a list of either.

    Of several choices or candidates the first counts. What says nothing, and what is no answer
    at all, gives an empty list.
    """
    name = profile_named(dialect).dialect
    found = _READERS[name](value)
    if all(map(_plainly_says, found)):
        return found
    view = new_dialect(name)
    return [raw for raw, seen in zip(found, view.read(found), strict=True) if says(view, seen)]


def calls_in(dialect: str, messages: Sequence[Any]) -> list[tuple[str, str]]:
    """Give the id and the name of every call in order, "" for what is missing.

    Calls that the provider ran itself are none, nor are those that the reply itself answers.
    """
    view = new_dialect(profile_named(dialect).dialect)
    return [(call.id or "", call.name or "") for call in call_parts(view.read(messages))]


def call_parts(messages: Sequence[Message]) -> list[Part]:
    """Give the calls in a reply's view that wait for an answer, in order."""
    parts = [part for message in messages for part in message.parts]
    answered = {part.id for part in parts if part.kind == RESULT and part.id}
    return [part for part in parts if part.kind == CALL and part.id not in answered]


def provider_of(dialect: str) -> str:
    """Name who serves a dialect or a profile, where nobody says otherwise."""
    profile = profile_named(dialect)
    is_named = bool(profile.name) and profile.name not in _NO_PROVIDERS
    return profile.name if is_named else _PROVIDERS[profile.dialect]


def without_reasoning(dialect: str, messages: Sequence[Any]) -> list[Any]:
    """Give the same messages for a receiver that did not issue them.

    Reasoning, signatures, sealed content and ids that only the issuer can look up are left out,
    and so is a message with nothing else in it. Messages that had none are the same objects.
    """
    view = new_dialect(profile_named(dialect).dialect)
    freed: list[Any] = []
    for message in view.read(messages):
        if message.role != ASSISTANT:
            freed.append(message.raw)
            continue
        raw = unbind(view, message)
        if raw is message.raw or (raw is not None and says(view, view.read([raw])[0])):
            freed.append(raw)
    return freed


def _plainly_says(raw: Any) -> bool:
    """Tell whether a message begins with words or a call, which every view counts as saying."""
    content = raw.get("content") if type(raw) is dict else None
    if type(content) is not list or not content or type(content[0]) is not dict:
        return type(content) is str and content != ""
    first = content[0]
    return first.get("type") == "tool_use" or (
        type(first.get("text")) is str and first["text"] != ""
    )


def says(view: Dialect, message: Message) -> bool:
    """Tell whether anything is in a message: a reply may be empty, a message in a request not."""
    if any(part.kind != TEXT or part.text for part in message.parts):
        return True
    beside = getattr(view, "has_content_beside", None)
    return isinstance(message.raw, dict) and beside is not None and bool(beside(message))


def _anthropic(value: Any) -> list[Any]:
    if isinstance(value, list):
        return _listed(value, _anthropic, lambda blocks: {"role": "assistant", "content": blocks})
    if not isinstance(value, dict) or "content" not in value or value.get("type") == "error":
        return []
    role = value.get("role") or "assistant"
    return [_kept(value, {"role": role, "content": value["content"]})]


def _bedrock(value: Any) -> list[Any]:
    if isinstance(value, list):
        return _listed(value, _bedrock, lambda blocks: {"role": "assistant", "content": blocks})
    output = value.get("output") if isinstance(value, dict) else None
    message = output.get("message") if isinstance(output, dict) else value
    if not isinstance(message, dict) or "content" not in message:
        return []
    role, content = message.get("role") or "assistant", message["content"]
    if isinstance(content, list):
        spelled = list(map(_with_bytes, content))
        content = content if all(map(operator.is_, spelled, content)) else spelled
    return [_kept(message, {"role": role, "content": content})]


def _with_bytes(block: Any) -> Any:
    """Give a block with bytes where AWS's SDK wants them; JSON has them in base64."""
    for path in _BEDROCK_BYTES:
        value = block
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, str):
            with suppress(ValueError):
                return replace_at(block, path, b64decode(value, validate=True))
    return block


def _gemini(value: Any) -> list[Any]:
    if isinstance(value, list):
        return _listed(value, _gemini, lambda parts: {"role": "model", "parts": parts})
    candidates = value.get("candidates") if isinstance(value, dict) else None
    found = candidates[0] if isinstance(candidates, list) and candidates else value
    content = found.get("content") if isinstance(found, dict) and "parts" not in found else found
    if not isinstance(content, dict) or not isinstance(content.get("parts"), list):
        return []
    # without a role the words would count as the user's
    role = content.get("role") or "model"
    return [_kept(content, {"role": role, "parts": content["parts"]})]


def _chat(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [message for inner in value if isinstance(inner, dict) for message in _chat(inner)]
    choices = value.get("choices") if isinstance(value, dict) else None
    found = choices[0] if isinstance(choices, list) and choices else value
    message = found.get("message", found) if isinstance(found, dict) else None
    if not isinstance(message, dict) or _CHAT_OWN.isdisjoint(message):
        return []
    if message.get("role", "assistant") != "assistant":
        return [message]
    return [_kept(message, {"role": "assistant", **_chat_fields(message)})]


def _chat_fields(message: Fields) -> Fields:
    kept = {key: value for key, value in message.items() if key not in _CHAT_WRITTEN}
    for key in _CHAT_NULLS:
        if key in kept and (kept[key] is None or (key == "tool_calls" and kept[key] == [])):
            del kept[key]
    if isinstance(kept.get("tool_calls"), list):
        kept["tool_calls"] = _chat_calls(kept["tool_calls"])
    audio = kept.get("audio")
    if isinstance(audio, dict) and "id" in audio:
        kept["audio"] = _kept(audio, {"id": audio["id"]})
    return kept


def _chat_calls(calls: list[Any]) -> list[Any]:
    """Give calls without their place in a stream and what an SDK has read out of them."""
    spelled = [_chat_call(call) if isinstance(call, dict) else call for call in calls]
    return calls if all(map(operator.is_, spelled, calls)) else spelled


def _chat_call(call: Fields) -> Fields:
    body: Any = call.get("function")
    is_parsed = isinstance(body, dict) and "parsed_arguments" in body
    if "index" not in call and not is_parsed:
        return call
    kept = {key: value for key, value in call.items() if key != "index"}
    if is_parsed:
        kept["function"] = {k: v for k, v in body.items() if k != "parsed_arguments"}
    return kept


def _responses(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [item for inner in value for item in _responses(inner)]
    if not isinstance(value, dict):
        return []
    kind = value.get("type")
    if not isinstance(kind, str) and isinstance(value.get("output"), list):
        return _responses(value["output"])
    is_item = isinstance(kind, str) or value.get("role") in _SPEAKERS
    return [_item(value)] if is_item and kind != "error" else []


def _item(item: Fields) -> Fields:
    """Give an output item as the input takes it: without marks of its progress and its origin."""
    drop = {key for key in _ITEM_WRITTEN if key in item}
    kind = item.get("type")
    if kind in _STATUS_UNREAD:
        drop.add("status")
    if kind == "reasoning":
        drop.update(key for key in ("content", "encrypted_content") if item.get(key) is None)
    return _kept(item, {key: value for key, value in item.items() if key not in drop})


def _langchain(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [message for inner in value for message in _langchain(inner)]
    if not isinstance(value, dict) or "choices" in value or "error" in value:
        return []
    fields = fields_of(value)
    known = bool(type_of(value)) or envelope_of(value) == "kwargs"
    return [value] if known and ("content" in fields or "tool_calls" in fields) else []


def _listed(
    values: list[Any], read: Callable[[Any], list[Any]], wrap: Callable[[list[Any]], Fields]
) -> list[Any]:
    """Read a list of messages, or make one message of a list of its blocks."""
    if any(isinstance(value, dict) and value.get("role") in _SPEAKERS for value in values):
        return [message for value in values for message in read(value)]
    blocks = [value for value in values if isinstance(value, dict)]
    return [wrap(values)] if blocks and len(blocks) == len(values) else []


def _kept(old: Fields, new: Fields) -> Fields:
    """Give the object that was received where nothing of it had to go."""
    is_whole = old.keys() == new.keys() and all(map(operator.is_, map(new.get, old), old.values()))
    return old if is_whole else new


_READERS: dict[str, Callable[[Any], list[Any]]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
    "bedrock": _bedrock,
    "langchain": _langchain,
}
