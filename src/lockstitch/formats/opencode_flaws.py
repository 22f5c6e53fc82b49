"""Messages and parts on which opencode stumbles, or which it passes over, and what to put there.

What opencode needs was found out by taking it away, field by field: without these it opens no
session, sends nothing, or leaves the part out without a word.
"""

from __future__ import annotations

from typing import Any

from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME
from lockstitch.formats.blocks import Fields, words_block
from lockstitch.formats.opencode_history import ASSISTANT, OPEN
from lockstitch.formats.salvage import substitute

_STOPS = "so that the session cannot be opened"
_PASSED = "so that it is passed over"
_STATES = (*OPEN, "completed", "error")
_OUTPUT = "[lockstitch] A call of the tool {tool} was stored here, damaged. This was its output:\n"
# The parts that opencode itself gives every part and every message, and keeps outside the JSON.
_KEYS = ("id", "sessionID", "messageID")

# The same in SQL, or more, to find those of which the log of events may know more.
FLAWED_PART = """
CASE WHEN json_valid(data) THEN coalesce(CASE json_extract(data, '$.type')
  WHEN 'text' THEN json_type(data, '$.text') IS NOT 'text'
  WHEN 'tool' THEN json_type(data, '$.callID') IS NOT 'text'
    OR json_type(data, '$.state.input') IS NOT 'object'
    OR json_extract(data, '$.state.status') NOT IN ('pending', 'running', 'completed', 'error')
    OR (json_extract(data, '$.state.status') = 'completed' AND (
      json_type(data, '$.state.output') IS NOT 'text'
      OR json_type(data, '$.state.time') IS NOT 'object'))
  ELSE json_type(data, '$.type') IS NOT 'text' END, 1) ELSE 1 END
"""
FLAWED_MESSAGE = """
CASE WHEN json_valid(data) THEN json_type(data, '$.role') IS NOT 'text'
  OR json_type(data, '$.time') IS NOT 'object' ELSE 1 END
"""


def message_flaw(info: Any) -> str:
    """Say what a message lacks, "" if it is whole."""
    if type(info) is not dict or type(info.get("role")) is not str:
        return f"lacks its role, {_PASSED}"
    return "" if type(info.get("time")) is dict else f"lacks its time, {_STOPS}"


def part_flaw(data: Any) -> str:
    """Say what a part lacks, "" if it is whole."""
    kind = data.get("type") if type(data) is dict else None
    if type(kind) is not str:
        return f"lacks its type, {_PASSED}"
    if kind == "text" and type(data.get("text")) is not str:
        return f"is a text without words, {_STOPS}"
    return _tool_flaw(data) if kind == "tool" else ""


def _tool_flaw(data: Fields) -> str:
    state = data.get("state")
    if type(state) is not dict:
        return f"is a call without its state, {_STOPS}"
    if state.get("status") not in _STATES:
        return f"is a call without the status of its state, {_PASSED}"
    if type(data.get("callID")) is not str:
        return f"is a call without an id, {_STOPS}"
    if type(state.get("input")) is not dict:
        return "is a call without its input, which providers refuse"
    if state["status"] == "completed":
        if type(state.get("output")) is not str:
            return f"is a call that ended without its output, {_STOPS}"
        if type(state.get("time")) is not dict:
            return f"is a call that ended without its time, {_STOPS}"
    return ""


def without_keys(logged: Any) -> Fields:
    """Return a part or a message of the log as opencode stores it."""
    value = logged if type(logged) is dict else {}
    return {key: own for key, own in value.items() if key not in _KEYS}


def repaired_part(data: Any, text: str, own: str, time: int) -> Fields:
    """Return what to put in the place of a part that is not whole: as much of it as can be kept.

    A call whose input is lost cannot be sent as one: its input is never made up.
    """
    is_call = type(data) is dict and type(data.get("tool")) is str
    state = data.get("state") if is_call else None
    state = state if type(state) is dict else {}
    output = _output(state)
    if type(state.get("input")) is not dict:
        said = _OUTPUT.format(tool=data.get("tool")) + output if output else substitute(text)
        return words_block(said)
    known = state.get("time")
    times = known if type(known) is dict else {"start": time, "end": time}
    ended = {**state, "time": times}
    if output and state.get("status") != "error":
        title = {"title": state.get("title", ""), "metadata": state.get("metadata", {})}
        ended |= {"status": "completed", "output": output, **title}
    elif state.get("status") not in (*OPEN, "error"):
        ended |= {"status": "error", "error": UNKNOWN_OUTCOME}
    call = data.get("callID")
    named = call if type(call) is str else f"call_{own}"
    return {**data, "type": "tool", "callID": named, "state": ended}


def _output(state: Fields) -> str:
    """Return what a tool gave, also where only the screen kept it."""
    metadata = state.get("metadata")
    shown = metadata.get("output") if type(metadata) is dict else None
    found = (text for text in (state.get("output"), shown) if type(text) is str and text)
    return next(found, "")


def repaired_time(info: Fields, created: int) -> Fields:
    """Return a message with the time that its row has."""
    done = {"completed": created} if info.get("role") == ASSISTANT else {}
    return {**info, "time": {"created": created, **done}}
