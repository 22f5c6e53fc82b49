"""Images inside parts, in every dialect's spelling: where they are, and their real types."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, TypeGuard

from msgspec import Struct

from lockstitch.conversation.parts import MEDIA, RESULT, Part, Path
from lockstitch.dialects.base import value_at

# Enough to find the size of an image, which a JPEG keeps after other segments.
_HEAD = 64 * 1024
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF", "application/pdf"),
)
ACCEPTED = ("image/png", "image/jpeg", "image/gif", "image/webp")


class Image(Struct, frozen=True):
    """One image: ``path`` leads from the part's raw value to the block that holds it.

    ``label`` is the declared media type and ``label_at`` the path to it inside the block
    (empty where the label is part of a data URL).
    """

    part: Part
    path: Path
    block: Any
    label: str
    data: str | bytes
    label_at: Path


def images_in(part: Part) -> Iterator[Image]:
    """Yield the images that a media part or a result holds inline."""
    blocks: list[tuple[Path, Any]] = []
    if part.kind == MEDIA:
        blocks = [((), part.raw)]
    elif part.kind == RESULT and type(part.raw.get("content")) is not str:
        for keys in _RESULT_LISTS:
            value = value_at(part.raw, keys)
            if isinstance(value, list):
                blocks += [((*keys, number), block) for number, block in enumerate(value)]
    for path, block in blocks:
        readers = (_anthropic, _openai, _gemini, _bedrock) if isinstance(block, dict) else ()
        found = next((found for read in readers if (found := read(block)) is not None), None)
        if found is not None:
            label, data, label_at = found
            yield Image(part, path, block, label, data, label_at)


_RESULT_LISTS: tuple[Path, ...] = (
    ("content",),
    ("output",),
    ("toolResult", "content"),
    ("functionResponse", "parts"),
    ("function_response", "parts"),
    ("data", "content"),
    ("kwargs", "content"),
)


Found = tuple[str, str | bytes, Path] | None


def _anthropic(block: dict[str, Any]) -> Found:
    source = block.get("source")
    if block.get("type") != "image" or not isinstance(source, dict):
        return None
    data, label = source.get("data"), source.get("media_type")
    if source.get("type") != "base64" or not isinstance(data, str) or not isinstance(label, str):
        return None
    return label, data, ("source", "media_type")


def _openai(block: dict[str, Any]) -> Found:
    url = block.get("image_url")
    if isinstance(url, dict):
        url = url.get("url")
    if not isinstance(url, str) or not url.startswith("data:image/") or ";base64," not in url:
        return None
    head, _, data = url.partition(";base64,")
    return head.removeprefix("data:"), data, ()


def _gemini(block: dict[str, Any]) -> Found:
    for key, label_key in (("inlineData", "mimeType"), ("inline_data", "mime_type")):
        inner = block.get(key)
        if isinstance(inner, dict):
            label, data = inner.get(label_key), inner.get("data")
            if isinstance(label, str) and label.startswith("image/") and _is_data(data):
                return label, data, (key, label_key)
    return None


def _bedrock(block: dict[str, Any]) -> Found:
    inner = block.get("image")
    source = inner.get("source") if isinstance(inner, dict) else None
    data = source.get("bytes") if isinstance(source, dict) else None
    label = inner.get("format") if isinstance(inner, dict) else None
    if not isinstance(label, str) or not _is_data(data):
        return None
    return f"image/{label}", data, ("image", "format")


def _is_data(value: Any) -> TypeGuard[str | bytes]:
    return isinstance(value, (str, bytes))


def is_decodable(data: str | bytes) -> bool:
    """Whether an image's payload is bytes, or base64 that decodes."""
    if isinstance(data, bytes):
        return bool(data)
    try:
        has_bytes = bool(binascii.a2b_base64(data, strict_mode=False))
        b64decode(data.strip().replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return False
    return has_bytes


def head_of(data: str | bytes) -> bytes:
    """Return the first bytes of an image's payload, decoded."""
    if isinstance(data, bytes):
        return data[:_HEAD]
    # whole groups of four characters, so that the cut text decodes
    cut = data[: _HEAD * 4 // 3 // 4 * 4]
    try:
        return b64decode(cut + "=" * (-len(cut) % 4))
    except (binascii.Error, ValueError):
        return b""


def sniff(head: bytes) -> str:
    """Return a payload's real media type by its first bytes, "" if it is unknown."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((label for magic, label in _MAGIC if head.startswith(magic)), "")


def pixels(head: bytes) -> int:
    """Return the longer side of an image in pixels, 0 if it is unknown."""
    kind = sniff(head)
    if kind == "image/png":
        return _longer(head[16:20], head[20:24], "big")
    if kind == "image/gif":
        return _longer(head[6:8], head[8:10], "little")
    if kind == "image/jpeg":
        at = 2
        while at + 9 < len(head) and head[at] == _JPEG_MARK:
            if head[at + 1] in _JPEG_FRAMES:
                return _longer(head[at + 5 : at + 7], head[at + 7 : at + 9], "big")
            at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    if kind == "image/webp":
        form = head[12:16]
        if form == b"VP8X":
            return _longer(head[24:27], head[27:30], "little") + 1
        if form == b"VP8 ":
            return _longer(head[26:28], head[28:30], "little") & 0x3FFF
        if form == b"VP8L":
            bits = int.from_bytes(head[21:25], "little")
            return max((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    return 0


def _longer(width: bytes, height: bytes, order: Any) -> int:
    return max(int.from_bytes(width, order), int.from_bytes(height, order))


_JPEG_MARK = 0xFF
# The frame headers that hold an image's size; C4, C8 and CC are other tables.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
