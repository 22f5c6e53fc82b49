"""What the parts of a message say, as plain text: calls, thoughts, media, what stands beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct

from lockstitch.dialects.base import as_json, as_text
from lockstitch.dialects.media import images_in
from lockstitch.measures import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lockstitch.conversation.parts import Message, Part
    from lockstitch.dialects.base import Dialect

# Where reasoning is kept in words, and where it is kept for the provider only.
_WORDS = (
    *("thinking", "text", "reasoning", "reasoning_content", "summary", "content"),
    *("reasoningContent", "reasoningText"),
)
_SEALED = ("data", "encrypted_content", "redactedContent", "signature", "thoughtSignature")
_LABELS = ("media_type", "mimeType", "mime_type", "format", "filename", "title")
_DATA = ("data", "bytes", "base64", "file_data", "url", "image_url")
_LINKS = ("url", "image_url", "file_url", "fileUri", "file_uri", "file_id", "fileId", "uri")
_NOT_ARGUMENTS = frozenset(
    {"type", "id", "call_id", "name", "status", "execution", "toolUseId", "cache_control"}
)
_DEEPEST = 4


class Note(Struct, frozen=True):
    """Something said beside the conversation proper."""

    text: str
    style: str


def called(dialect: Dialect, part: Part) -> tuple[str, dict[str, Any] | str]:
    """Give the name of a call and its arguments: by name, or as the text they are."""
    arguments = dialect.arguments(part)
    if arguments is UNSET or arguments in (None, ""):
        arguments = _own_fields(part)
    if isinstance(arguments, str):
        arguments = _decoded(arguments)
    name = part.name or part.flavor or "call"
    return name, arguments if isinstance(arguments, (dict, str)) else as_json(arguments)


def _own_fields(part: Part) -> Any:
    """Give what a call of a kind without arguments was told to do."""
    raw = part.raw if isinstance(part.raw, dict) else {}
    inner = raw.get(part.flavor)
    fields = inner if isinstance(inner, dict) else raw
    kept = {key: value for key, value in fields.items() if key not in _NOT_ARGUMENTS}
    return next(iter(kept.values())) if len(kept) == 1 else kept


def _decoded(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError, ArithmeticError):
        return text
    return value if isinstance(value, dict) else text


def thought(raw: Any) -> Note:
    """Give reasoning as its words, or as its size where only the provider can read it."""
    words = "\n\n".join(_words(raw, _DEEPEST))
    if words.strip():
        return Note(words, "dim")
    sealed = sum(len(as_text(found)) for found in _found(raw, _SEALED, _DEEPEST))
    return Note(f"[reasoning, sealed, {size(sealed)}]" if sealed else "[reasoning, empty]", "dim")


def _words(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth:
        for item in value:
            yield from _words(item, depth - 1)
    elif isinstance(value, dict) and depth:
        for key in _WORDS:
            if key in value:
                yield from _words(value[key], depth - 1)


def _found(value: Any, keys: tuple[str, ...], depth: int) -> Iterator[Any]:
    """Give the values of these keys that are no containers, outermost first."""
    if isinstance(value, dict) and depth:
        for key in keys:
            if isinstance(value.get(key), (str, bytes)):
                yield value[key]
        for inner in value.values():
            yield from _found(inner, keys, depth - 1)


def media(part: Part) -> str:
    """Name a picture, a sound or a file: ``[image/png, 12.3 kB]``."""
    for image in images_in(part):
        return f"[{image.label}, {size(_payload_size(image.data))}]"
    label = next(_found(part.raw, _LABELS, _DEEPEST), part.flavor)
    for link in _found(part.raw, _LINKS, _DEEPEST):
        if isinstance(link, str) and not link.startswith("data:"):
            return f"[{label}, {link}]"
    data = max(_found(part.raw, _DATA, _DEEPEST), key=len, default="")
    return f"[{label}, {size(_payload_size(data))}]" if data else f"[{label}]"


def _payload_size(data: str | bytes) -> int:
    if isinstance(data, bytes):
        return len(data)
    start = data.find(";base64,", 0, 200)
    length = len(data) - (start + 8 if start >= 0 else 0)
    return length * 3 // 4 - data.count("=", len(data) - 2)


def other(part: Part) -> str:
    """Give a block of no special kind: its words if it has some, else what it is and its size."""
    raw = part.raw
    for key in ("refusal", "text", "content", "summary"):
        if isinstance(raw, dict) and isinstance(raw.get(key), str) and raw[key]:
            return f"[{part.flavor}] {raw[key]}"
    return f"[{part.flavor or 'block'}, {size(len(as_json(raw)))}]"


def told(message: Message) -> Iterator[Note]:
    """Give what a message says outside of its content: reasoning, a refusal, an older call."""
    raw = message.raw if isinstance(message.raw, dict) else {}
    for envelope in ("data", "kwargs"):
        if isinstance(raw.get(envelope), dict):
            raw = raw[envelope]
    more = raw.get("additional_kwargs")
    for fields in (raw, more if isinstance(more, dict) else {}):
        for key in ("reasoning_content", "reasoning"):
            if isinstance(fields.get(key), str) and fields[key]:
                yield Note(fields[key], "dim")
        if isinstance(fields.get("refusal"), str) and fields["refusal"]:
            yield Note(f"[refusal] {fields['refusal']}", "yellow")
        if isinstance(fields.get("function_call"), dict):
            yield Note(f"[function_call] {as_json(fields['function_call'])}", "dim")
