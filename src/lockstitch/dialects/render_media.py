"""Media as pieces of a conversation: sound images are carried, documents read, the rest named."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from lockstitch.dialects.base import text_of_blocks
from lockstitch.dialects.media import ACCEPTED, head_of, images_in, is_decodable, sniff
from lockstitch.dialects.render_script import NOT_CARRIED, Picture, Piece, Words, inline_size
from lockstitch.model.parts import Part

_IMAGES = ("image", "image_url", "input_image")
_DOCUMENT = "[document]\n{text}"
_LABELS = ("media_type", "mimeType", "mime_type", "format")
_PAYLOADS = ("data", "bytes", "base64", "file_data")
_ADDRESSES = ("url", "uri", "fileUri", "file_uri", "file_id", "image_url", "file_url")
_WEB = ("https://", "http://")
_NESTED = 3


def piece_of_media(part: Part, place: str) -> tuple[Piece, bool]:
    """Give a media part as a piece, and whether anything but its name is kept."""
    raw = part.raw if isinstance(part.raw, dict) else {}
    data = _inline(part, raw)
    kind = _kind_of(data)
    if kind:
        return Picture(place=place, kind=kind, data=_as_base64(data)), True
    fields = _flat(raw, _NESTED)
    url = _address(fields) if part.flavor in _IMAGES and not data else ""
    if url.startswith(_WEB):
        return Picture(place=place, url=url), True
    text = _document_text(raw)
    if text:
        return Words(_DOCUMENT.format(text=text)), True
    return Words(NOT_CARRIED.format(what=_described(part.flavor, fields))), False


def _inline(part: Part, raw: dict[str, Any]) -> str | bytes:
    """Give the payload of an image, in every dialect's spelling and LangChain's two own ones."""
    for image in images_in(part):
        return image.data
    if part.flavor != "image":
        return ""
    data = raw.get("base64") or (raw.get("data") if raw.get("source_type") == "base64" else "")
    return data if isinstance(data, str) else ""


def _kind_of(data: str | bytes) -> str:
    """Tell what image a payload really is, "" if it is none that providers take."""
    kind = sniff(head_of(data)) if data else ""
    return kind if kind in ACCEPTED and is_decodable(data) else ""


def _as_base64(data: str | bytes) -> str:
    return b64encode(data).decode() if isinstance(data, bytes) else "".join(data.split())


def _flat(value: dict[str, Any], depth: int) -> dict[Any, Any]:
    """Give the fields of a block and of the objects in it, the outer ones first."""
    inner = [field for field in value.values() if isinstance(field, dict)] if depth else []
    fields = {key: field for key, field in value.items() if not isinstance(field, dict)}
    for nested in inner:
        fields = {**_flat(nested, depth - 1), **fields}
    return fields


def _address(fields: dict[Any, Any]) -> str:
    return next((fields[key] for key in _ADDRESSES if isinstance(fields.get(key), str)), "")


def _document_text(raw: dict[str, Any]) -> str:
    """Give the words of a document that is text."""
    inner = raw.get("document")
    source = (inner if isinstance(inner, dict) else raw).get("source")
    if not isinstance(source, dict):
        return ""
    text = source.get("data") if source.get("type") == "text" else source.get("text")
    content = source.get("content")
    return text if isinstance(text, str) else text_of_blocks(content or None)


def _described(flavor: str, fields: dict[Any, Any]) -> str:
    """Name media by their type and size, or by where they are."""
    label = next((fields[key] for key in _LABELS if isinstance(fields.get(key), str)), flavor)
    payload = next(
        (fields[key] for key in _PAYLOADS if isinstance(fields.get(key), str | bytes)), ""
    )
    if payload:
        return f"{label}, {inline_size(payload)}"
    address = _address(fields)
    return f"{label} at {address}" if address and not address.startswith("data:") else label
