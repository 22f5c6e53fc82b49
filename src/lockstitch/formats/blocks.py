"""Blocks of the Anthropic dialect, which several programs use for their history."""

from __future__ import annotations

from typing import Any

Fields = dict[str, Any]

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def words_block(text: str) -> Fields:
    """Return a block of text."""
    return {"type": "text", "text": text}


def words(block: Fields) -> str:
    """Return the text of a block, of a result, or of a whole message."""
    content = block.get("text", block.get("content"))
    if type(content) is list:
        texts = (part.get("text") for part in content if type(part) is dict)
        return "\n".join(text for text in texts if type(text) is str)
    return content if type(content) is str else ""


def medium(mime: str, data: str = "", url: str = "") -> Fields | None:
    """Return a picture or a document as its bytes or its address; None for any other file."""
    kind = "image" if mime in _IMAGES else "document" if mime == "application/pdf" else None
    if kind and data:
        return {"type": kind, "source": {"type": "base64", "media_type": mime, "data": data}}
    if kind and url:
        return {"type": kind, "source": {"type": "url", "url": url}}
    return None
