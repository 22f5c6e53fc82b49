"""pi's messages as Anthropic's, the way pi sends them, and back.

What pi leaves out of a request (blank texts, thinking of another provider, messages that ended in
an error) is left out here, too; it stays in the file whatever happens to the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lockstitch.conversation.parts import Path

USER, ASSISTANT, RESULT = "user", "assistant", "toolResult"
TOOL_RESULT = "tool_result"
SKIPPED = ("error", "aborted")
_ANTHROPIC = "anthropic-messages"
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_ID_LIMIT = 64
_COMPACTED = "The conversation history before this point was compacted into the following summary:"
_BRANCHED = "The following is a summary of a branch that this conversation came back from:"

Block = dict[str, Any]
Found = tuple[Path, Block]


def message_of(value: dict[str, Any]) -> dict[str, Any]:
    """Give the message of an entry; empty if it has none."""
    message = value.get("message")
    return message if value.get("type") == "message" and type(message) is dict else {}


def wire_id(name: Any) -> Any:
    """Spell the id of a call as pi sends it to Anthropic."""
    return _UNFIT.sub("_", name)[:_ID_LIMIT] if type(name) is str else name


def role_of(value: dict[str, Any]) -> str:
    """Say who speaks on the wire in an entry; empty if nobody does."""
    message, kind = message_of(value), value.get("type")
    role = message.get("role")
    if role == ASSISTANT:
        return "" if message.get("stopReason") in SKIPPED else ASSISTANT
    if role == "bashExecution":
        return "" if message.get("excludeFromContext") else USER
    speaks = role in (USER, RESULT, "custom", "hookMessage")
    return USER if speaks or kind in ("custom_message", "branch_summary", "compaction") else ""


def blocks_in(value: dict[str, Any]) -> Iterator[Found]:
    """Give the blocks that pi sends of an entry, each with its path in the entry."""
    message, kind = message_of(value), value.get("type")
    role = message.get("role")
    if kind == "compaction":
        yield from _said(("summary",), _summary(_COMPACTED, value))
    elif kind == "branch_summary":
        yield from _said(("summary",), _summary(_BRANCHED, value))
    elif kind == "custom_message":
        yield from _items(("content",), value.get("content"), _user_block)
    elif role == RESULT:
        yield ("message",), result_block(message)
    elif role == "bashExecution":
        yield from _said(("message",), _command(message))
    elif role == ASSISTANT:
        signs = message.get("api") == _ANTHROPIC

        def assistant_block(item: Block) -> Block | None:
            return _assistant_block(item, signs)

        yield from _items(("message", "content"), message.get("content"), assistant_block)
    else:
        yield from _items(("message", "content"), message.get("content"), _user_block)


def _said(path: Path, text: str) -> Iterator[Found]:
    if text.strip():
        yield path, {"type": "text", "text": text}


def _summary(lead: str, value: dict[str, Any]) -> str:
    summary = value.get("summary")
    return f"{lead}\n\n<summary>\n{summary}\n</summary>" if type(summary) is str else ""


def _command(message: dict[str, Any]) -> str:
    output = message.get("output")
    shown = f"```\n{output}\n```" if output else "(no output)"
    return f"Ran `{message.get('command')}`\n{shown}"


def _items(path: Path, content: Any, convert: Any) -> Iterator[Found]:
    if type(content) is str:
        yield from _said(path, content)
        return
    for place, item in enumerate(content if type(content) is list else ()):
        block = convert(item) if type(item) is dict else None
        if block is not None:
            yield (*path, place), block


def _user_block(item: Block) -> Block | None:
    if item.get("type") == "image":
        return _image(item)
    text = item.get("text")
    return {"type": "text", "text": text} if type(text) is str and text.strip() else None


def _image(item: Block) -> Block:
    source = {"type": "base64", "media_type": item.get("mimeType"), "data": item.get("data")}
    return {"type": "image", "source": source}


def _assistant_block(item: Block, signs: bool) -> Block | None:
    kind = item.get("type")
    if kind == "toolCall":
        arguments = item.get("arguments")
        given = {} if arguments is None else arguments
        name = item.get("name")
        return {"type": "tool_use", "id": wire_id(item.get("id")), "name": name, "input": given}
    if kind == "thinking":
        return _thinking(item) if signs else None
    return _user_block(item) if kind == "text" else None


def _thinking(item: Block) -> Block | None:
    text, signature = item.get("thinking"), item.get("thinkingSignature")
    if item.get("redacted"):
        return {"type": "redacted_thinking", "data": signature}
    if type(text) is not str or not text.strip():
        return None
    if type(signature) is str and signature.strip():
        return {"type": "thinking", "thinking": text, "signature": signature}
    return {"type": "text", "text": text}


def result_block(message: dict[str, Any]) -> Block:
    """Give a result as it is sent."""
    content = message.get("content")
    items = [item for item in content if type(item) is dict] if type(content) is list else []
    sent: Any = content if type(content) is str else [b for i in items if (b := _user_block(i))]
    if not any(item.get("type") == "image" for item in items) and type(sent) is list:
        sent = "\n".join(str(item.get("text") or "") for item in items)
    name = wire_id(message.get("toolCallId"))
    block = {"type": TOOL_RESULT, "tool_use_id": name, "content": sent}
    return {**block, "is_error": True} if message.get("isError") else block


# And back: what a repair has changed or made.


def item_of(block: Block, ids: dict[str, str], old: Any = None) -> Block:
    """Spell a block as pi keeps it; what the old item had beside it stays."""
    kind = block.get("type")
    if kind == "tool_use":
        name = block.get("id")
        known = ids.get(str(name), name)
        fields = {"id": known, "name": block.get("name"), "arguments": block.get("input")}
        item: Block = {"type": "toolCall", **fields}
    elif kind == "thinking":
        said = {"thinking": block.get("thinking"), "thinkingSignature": block.get("signature")}
        item = {"type": "thinking", **said}
    elif kind == "redacted_thinking":
        hidden = {"thinking": "", "thinkingSignature": block.get("data"), "redacted": True}
        item = {"type": "thinking", **hidden}
    elif kind == "image" and type(block.get("source")) is dict:
        source = block["source"]
        item = {"type": "image", "data": source.get("data"), "mimeType": source.get("media_type")}
    else:
        item = {"type": "text", "text": block.get("text")}
    same = type(old) is dict and old.get("type") == item["type"]
    return {**old, **item} if same else item


def items_of(content: Any, ids: dict[str, str]) -> list[Block]:
    """Spell what a result carries as pi keeps it."""
    if type(content) is list:
        return [item_of(block, ids) for block in content if type(block) is dict]
    return [{"type": "text", "text": content if type(content) is str else ""}]


def result_of(block: Block, ids: dict[str, str], names: dict[str, Any]) -> dict[str, Any]:
    """Make the message of a new result."""
    wire = str(block.get("tool_use_id"))
    return {
        "role": RESULT,
        "toolCallId": ids.get(wire, wire),
        "toolName": names.get(wire) or "",
        "content": items_of(block.get("content"), ids),
        "isError": bool(block.get("is_error")),
    }
