"""Errors that tools ended with, recorded beside a checkpoint: told as the results that they are."""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.pregel import _algo

from lockstitch.formats.langgraph.naming import ERROR, MESSAGES, PUSH, TASKS, error_told
from lockstitch.integrations.langgraph.repairing import pending
from lockstitch.integrations.langgraph.repairing.identity import named
from lockstitch.redaction import redacted

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple

_HEX = re.compile("([0-9a-fA-F]{2})+")
# What LangGraph's own tool node tells a model.
ERROR_RESULT = "Error: {error}\n Please fix your mistakes."
BATCH_RESULT = "Error: the step that ran this call failed, and kept no result of it: {error}"


def failed_results(saved: CheckpointTuple, messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    """Return the errors of a checkpoint's tasks as results of the calls that are open in it.

    An error is that of a call if the task was sent that call, or if there is no other call that
    it could be of. Where one task had several calls, all that is known is that it failed.
    """
    errors = _errors(saved)
    calls = {asked[0]: asked for asked in pending.unanswered(messages)} if errors else {}
    if not calls:
        return []
    sent = saved.checkpoint["channel_values"].get(TASKS) or ()
    told = {call: errors[task] for task, call in _sent(saved, sent) if task in errors}
    template = ERROR_RESULT
    is_one = len(errors) == 1 and pending.ends_with_calls({MESSAGES: list(messages)})
    if not told and is_one and len(calls) == 1:
        told = dict(zip(calls, errors.values(), strict=True))
    elif not told and is_one and not sent:
        told, template = dict.fromkeys(calls, *errors.values()), BATCH_RESULT
    tools = {
        call["id"]: call["name"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    made = [
        ToolMessage(
            template.format(error=redacted(text)[0]),
            tool_call_id=call,
            name=tools.get(call),
            status="error",
        )
        for call, text in told.items()
        if call in calls
    ]
    found = named([*messages, *made], messages)
    return [one for one in found[len(messages) :] if isinstance(one, ToolMessage)]


def _errors(saved: CheckpointTuple) -> dict[str, str]:
    """Give the texts of errors by task, without what only says that a run was broken off."""
    texts = {
        task: error_told(value if isinstance(value, str) else repr(value))
        for task, channel, value in saved.pending_writes or ()
        if channel == ERROR
    }
    return {task: text for task, text in texts.items() if text is not None}


def _sent(saved: CheckpointTuple, sent: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Give the task of every call that was sent to one of its own."""
    for number, one in enumerate(sent):
        call = _call_of(getattr(one, "arg", None))
        if call is not None:
            yield _task_id(saved, str(getattr(one, "node", "")), number), call


def _call_of(given: Any) -> str | None:
    """Give the id of the one call in what was sent: the call itself, in a list, or with a state."""
    found = given[0] if isinstance(given, list) and len(given) == 1 else given
    if not isinstance(found, dict):
        return None
    call = found.get("tool_call", found)
    known = isinstance(call, dict) and "name" in call and isinstance(call.get("id"), str)
    return str(call["id"]) if known else None


def _task_id(saved: CheckpointTuple, node: str, number: int) -> str:
    """Compute the id that LangGraph gives to a task that was sent, from what it is made of.

    Nothing if this version makes ids in another way: then no error is known to be that task's.
    """
    hashed = getattr(_algo, "_xxhash_str", None)
    checkpoint = saved.checkpoint["id"].replace("-", "")
    if hashed is None or not _HEX.fullmatch(checkpoint):
        return ""
    above = saved.config["configurable"].get("checkpoint_ns") or ""
    space = f"{above}|{node}" if above else node
    step = str(int(saved.metadata.get("step", -2)) + 1)
    found: str = hashed(unhexlify(checkpoint), space, step, node, PUSH, str(number))
    return found
