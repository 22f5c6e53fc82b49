"""The items of a goose message, and the blocks that a provider gets for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from lockstitch.conversation.parts import Path
from lockstitch.formats.blocks import Fields, medium, words, words_block
from lockstitch.formats.history import History

_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
# What an item of a known type must have to be loaded; of other types nothing is known.
_NEEDED = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "toolRequest": ("id",),
    "toolResponse": ("id",),
    "thinking": ("thinking", "signature"),
    "redactedThinking": ("data",),
}


class Turn(Struct, eq=False):
    """A stored message: the number of its record, its items, and the blocks made of them."""

    number: int
    role: str
    items: list[Any]
    path: Path
    blocks: list[tuple[int, Fields]]
    is_sent: bool = True

    @property
    def has_results(self) -> bool:
        """Tell whether it answers calls."""
        return any(block["type"] == "tool_result" for _, block in self.blocks)

    @property
    def kind(self) -> str:
        """Say which neighbours goose joins it with: results are kept apart from prompts."""
        return "tool" if self.role == "user" and self.has_results else self.role

    @property
    def is_prompt(self) -> bool:
        """Tell whether it is a prompt that is sent."""
        return self.is_sent and bool(self.blocks) and self.kind == "user"


class Talk(Struct):
    """A session as it is sent, and all its messages; ``requests`` are the ids of all requests."""

    history: History
    turns: list[Turn]
    requests: set[Any] | None = None


def spelled(name: Any) -> str:
    """Spell an id or the name of a tool as all providers take it."""
    return _NO_NAME.sub("_", str(name)) or "_"


def flaw(item: Any) -> str:
    """Say why goose cannot load an item, if so."""
    if type(item) is not dict or type(item.get("type")) is not str:
        return "an item has no type"
    if any(type(item.get(key)) is not str for key in _NEEDED.get(item["type"], ())):
        return "an item lacks what its type must have"
    held = {"toolRequest": "toolCall", "toolResponse": "toolResult"}.get(item["type"])
    if held and not _is_outcome(item.get(held), held):
        return "an item has neither a value nor an error"
    return ""


def _is_outcome(held: Any, kind: str) -> bool:
    if type(held) is not dict:
        return False
    if held.get("status") == "error":
        return type(held.get("error")) is str
    value = held.get("value")
    if kind == "toolCall":
        is_call = type(value) is dict and type(value.get("name")) is str
        return held.get("status") == "success" and is_call
    return held.get("status") == "success" and type(value) in (dict, list)


def block_of(item: Any) -> Iterator[Fields]:
    """Give the block that is sent for an item; none for what is there for the screen only."""
    if flaw(item) or not _is_for_model(item):
        return
    kind = item["type"]
    if kind == "text" and item["text"].strip():
        yield words_block(item["text"])
    elif kind == "image":
        yield _image(item)
    elif kind == "toolRequest" and item["toolCall"]["status"] == "success":
        call = item["toolCall"]["value"]
        given = call.get("arguments")
        given = {} if given is None else given if type(given) is dict else {"value": given}
        name = spelled(call["name"])
        yield {"type": "tool_use", "id": spelled(item["id"]), "name": name, "input": given}
    elif kind == "toolResponse":
        yield _result(item)
    elif kind == "thinking" and item["signature"]:
        thought = {"thinking": item["thinking"], "signature": item["signature"]}
        yield {"type": "thinking", **thought}
    elif kind == "redactedThinking":
        yield {"type": "redacted_thinking", "data": item["data"]}


def _is_for_model(item: Fields) -> bool:
    notes = item.get("annotations")
    audience = notes.get("audience") if type(notes) is dict else None
    return type(audience) is not list or "assistant" in audience


def _image(item: Fields) -> Fields:
    mime = str(item.get("mimeType"))
    return medium(mime, str(item.get("data"))) or words_block(f"[Attached {mime}]")


def _result(item: Fields) -> Fields:
    held = item["toolResult"]
    block = {"type": "tool_result", "tool_use_id": spelled(item["id"])}
    if held["status"] == "error":
        return {**block, "content": held["error"], "is_error": True}
    value = held["value"]
    content = value.get("content") if type(value) is dict else value
    listed = content if type(content) is list else []
    parts = [part for part in listed if type(part) is dict and _is_for_model(part)]
    failed = {"is_error": True} if type(value) is dict and value.get("isError") else {}
    pictures = [_image(part) for part in parts if part.get("type") == "image"]
    text = "\n".join(filter(None, map(_text, parts)))
    if not pictures:
        return {**block, "content": text, **failed}
    said = [words_block(text)] if text.strip() else []
    return {**block, "content": [*said, *pictures], **failed}


def _text(part: Fields) -> str:
    inner = part.get("resource") if part.get("type") == "resource" else part
    text = inner.get("text") if type(inner) is dict else None
    return text if type(text) is str else ""


def item_of(block: Fields, old: Fields | None, names: dict[str, str]) -> Fields:
    """Give the item that goose would store for a block; ``old`` is the one it takes the place of.

    ``names`` gives the ids of calls as goose has them.
    """
    kind = block.get("type")
    if kind == "tool_result":
        own = names.get(block["tool_use_id"], block["tool_use_id"])
        said = [words_block(words(block))]
        value = {"content": said, "isError": bool(block.get("is_error"))}
        result = {"status": "success", "value": value}
        return {"type": "toolResponse", "id": own, "toolResult": result}
    if kind == "tool_use":
        call = {"name": block["name"], "arguments": block["input"]}
        own = names.get(block["id"], block["id"])
        held = {"status": "success", "value": call}
        return {**(old or {}), "type": "toolRequest", "id": own, "toolCall": held}
    if kind == "image" and block["source"].get("type") == "base64":
        source = block["source"]
        return {"type": "image", "data": source["data"], "mimeType": source["media_type"]}
    return words_block(words(block))
