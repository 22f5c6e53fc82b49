"""Results of Codex's tools that are on disk, but not where a resume looks: in the events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lockstitch.formats.codex_thread import EVENT, payload_of
from lockstitch.formats.records import Record

_OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "function_call_output",
}


def evidence_of(
    records: Sequence[Record], items: Iterable[dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Gather, by call id, the outputs that events hold of calls among the items."""
    calls = [item for item in items if str(item.get("type")) in _OUTPUTS]
    kinds = {str(call.get("call_id")): _OUTPUTS[call["type"]] for call in calls}
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        if not record.is_record or record.value.get("type") != EVENT:
            continue
        for call, text in _ended(payload_of(record.value)):
            kind = kinds.get(call)
            if kind is not None and text:
                found.setdefault(call, {"type": kind, "call_id": call, "output": text})
    return found


def _ended(event: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Give the call that an event ends, and what came of it."""
    kind, call = event.get("type"), event.get("call_id")
    if kind == "item_completed":
        item = event.get("item")
        if type(item) is dict and item.get("type") == "CommandExecution":
            call = item.get("call_id") or item.get("id")
            if type(call) is str and item.get("status") not in ("in_progress", "declined"):
                yield call, _command(item)
    elif type(call) is not str:
        return
    elif kind == "exec_command_end":
        yield call, _command(event)
    elif kind == "mcp_tool_call_end":
        yield call, _answer(event.get("result"))
    elif kind == "patch_apply_end":
        yield call, _joined(event)


def _command(event: dict[str, Any]) -> str:
    """Give what a command came to, as the program told the model or as it would have."""
    seen = event.get("formatted_output")
    if type(seen) is str and seen:
        return seen
    output = event.get("aggregated_output")
    text = output if type(output) is str and output else _joined(event)
    code = event.get("exit_code")
    return f"Exit code: {code}\nOutput:\n{text}" if type(code) is int else text


def _joined(event: dict[str, Any]) -> str:
    streams = (event.get("stdout"), event.get("stderr"))
    return "".join(text for text in streams if type(text) is str)


def _answer(result: Any) -> str:
    """Give the words of an MCP server's answer, or its error."""
    if type(result) is not dict:
        return ""
    if type(result.get("Err")) is str:
        return f"err: {result['Err']}"
    answer = result.get("Ok")
    blocks = answer.get("content") if type(answer) is dict else None
    texts = [b.get("text") for b in blocks or () if type(b) is dict]
    return "\n".join(text for text in texts if type(text) is str)
