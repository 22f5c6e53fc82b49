"""The spelling of items that Codex reads back; what is spelled otherwise it drops in silence."""

from __future__ import annotations

from typing import Any

from lockstitch.dialects.base import as_json

_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


def is_readable(item: dict[str, Any]) -> bool:
    """Tell whether Codex reads an item when it loads a rollout, as far as that is known."""
    kind, content = item.get("type"), item.get("content")
    if kind in _OUTPUTS:
        return kind != _OUTPUTS[2] and type(item.get("output")) in (str, list)
    if kind == "message" or (kind is None and "role" in item):
        blocks = content if type(content) is list else []
        plain = any(type(b) is str or (type(b) is dict and b.get("type") == "text") for b in blocks)
        return kind is not None and type(content) is not str and not plain
    return True


def spelled(item: Any) -> Any:
    """Spell an item as Codex does; the same object if it is so already."""
    if type(item) is not dict or is_readable(item):
        return item
    if item.get("type") in _OUTPUTS:
        kind = "custom_tool_call_output" if item["type"] == _OUTPUTS[1] else _OUTPUTS[0]
        kept = {key: value for key, value in item.items() if key not in ("type", "id", "output")}
        return {"type": kind, **kept, "output": _words(item.get("output"))}
    content = item.get("content")
    blocks = content if type(content) is list else [content]
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    rest = {key: value for key, value in item.items() if key not in ("type", "content")}
    return {"type": "message", **rest, "content": [_block(block, kind) for block in blocks]}


def _block(block: Any, kind: str) -> Any:
    if type(block) is str:
        return {"type": kind, "text": block}
    if type(block) is dict and block.get("type") == "text":
        return {**block, "type": kind}
    return block


def _words(output: Any) -> Any:
    """Give the words of an output that older versions kept in an object."""
    if type(output) in (str, list):
        return output
    content = output.get("content") if type(output) is dict else None
    if type(content) is str:
        return content
    return "" if output is None else as_json(output)
