"""Calls that failed: the error that a task left beside the checkpoint, told as what it was.

LangGraph stores what a task raised, and under which task; which call that was is said by the list
of tasks in the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

import msgspec
from msgspec.msgpack import Ext

from lockstitch.conversation.json_text import is_index
from lockstitch.conversation.parts import CALL
from lockstitch.dialects.langchain import LangChain
from lockstitch.dialects.placeholders import CANCELLED, FAILED
from lockstitch.formats.langgraph.coding import Item, Undecodable, coding_of
from lockstitch.formats.langgraph.naming import ERROR, PUSH, TASKS, error_told
from lockstitch.formats.langgraph.snapshot import JSON, WITHIN, Coded, Write

if TYPE_CHECKING:
    from lockstitch.formats.langgraph.conversation import Reading

_LONGEST = 10_000
# The keys under which a task is given its call, in several versions.
_KEYS = ("tool_call", "lg_tool_call", "toolCall")


def failures(reading: Reading, lacking: set[str]) -> Iterator[Item]:
    """Give, for the calls that lack a result and failed, the messages that say so."""
    for write in reading.snapshot.head.writes if lacking else ():
        text = _text(reading, write) if write.channel == ERROR else ""
        call = _call(reading, write, lacking) if text else None
        if call is not None:
            told = error_told(text)
            view = {
                "type": "tool",
                "content": CANCELLED if told is None else f"{FAILED} {told}",
                "tool_call_id": call,
                "name": _names(reading).get(call),
                "status": "error",
            }
            raw = reading.coding.written(view, None)
            item = reading.coding.message(raw) or Item(view, raw, reading.coding.tag)
            item.record = write.record
            yield item


def _text(reading: Reading, write: Write) -> str:
    """Return what was raised, as LangGraph has written it; empty if that cannot be read."""
    try:
        found = coding_of(reading.codings, write.value).plain(write.value.data)
    except Undecodable:
        return ""
    if type(found) is dict:
        found = ": ".join(str(found[key]) for key in ("name", "message") if found.get(key))
    return found[:_LONGEST] if type(found) is str else ""


def _call(reading: Reading, write: Write, lacking: set[str]) -> str | None:
    """Return the call that a task was for; None if that cannot be told."""
    sent = _sent(reading)
    for number, (node, arg) in enumerate(sent):
        call = _id_in(arg)
        if call in lacking and _is_task(reading, write, number, node):
            return call
    # One node for a whole batch; with one call in it, there is no other that can have failed.
    is_batch = not sent and not write.path.startswith(f"~{PUSH}")
    return next(iter(lacking)) if is_batch and len(lacking) == 1 else None


def _is_task(reading: Reading, write: Write, number: int, node: str) -> bool:
    """Whether a write is of the task with that number; LangGraph.js keeps only the task's id."""
    if write.path:
        steps = write.path.removeprefix("~").split(", ")
        return (
            steps[0] == PUSH and len(steps) > 1 and is_index(steps[1]) and int(steps[1]) == number
        )
    head, space = reading.snapshot.head, reading.snapshot.namespace
    step = head.metadata.get("step")
    try:
        start = UUID(head.id)
    except ValueError:
        return False
    within = f"{space}{WITHIN}{node}" if space else node
    words = [within, str(step + 1 if type(step) is int else 0), node, PUSH, str(number)]
    name = json.dumps(words, separators=(",", ":"), ensure_ascii=False)
    return str(uuid5(start, name)) == write.task


def _sent(reading: Reading) -> list[tuple[str, Any]]:
    """Return the node and the argument of every task in the list of a head."""
    value = reading.snapshot.head.values.get(TASKS)
    return [] if value is None else [*_tasks(value)]


def _tasks(value: Coded) -> Iterator[tuple[str, Any]]:
    try:
        is_text = value.tag == JSON
        found = msgspec.json.decode(value.data) if is_text else msgspec.msgpack.decode(value.data)
        for one in found if type(found) is list else ():
            if is_text:
                yield str(one["node"]), one.get("args", one.get("arg"))
            elif isinstance(one, Ext):
                _, _, [node, arg, *_] = msgspec.msgpack.decode(bytes(one.data))
                yield str(node), arg
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return


def _id_in(arg: Any) -> str | None:
    """Return the id of the call that a task was given, in any of the shapes that it may have."""
    if type(arg) is list and len(arg) == 1:
        arg = arg[0]
    if type(arg) is dict:
        arg = next((arg[key] for key in _KEYS if type(arg.get(key)) is dict), arg)
        found = arg.get("id")
        return found if type(found) is str else None
    return None


def _names(reading: Reading) -> dict[str, str]:
    views = LangChain().read([item.view for item in reading.items])
    return {
        part.id: part.name
        for view in views
        for part in view.parts
        if part.kind == CALL and part.id and part.name
    }
