"""Ids of messages: told apart where two are the same, and derived where there is none.

Nothing is random: healing the same conversation twice gives the same ids, and the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from langchain_core.messages import BaseMessage, ToolMessage

from lockstitch.formats.base import find
from lockstitch.formats.langgraph.identity import free
from lockstitch.rules import Finding

DUPLICATE = "LS906"


def distinct(
    messages: Sequence[BaseMessage],
) -> tuple[list[BaseMessage], list[Finding]]:
    """Give every message an id of its own: equal copies become one, others get a derived id."""
    seen: dict[str, BaseMessage] = {}
    kept: list[BaseMessage] = []
    findings: list[Finding] = []
    for index, message in enumerate(messages):
        old = message.id and seen.get(message.id)
        if not old:
            kept.append(message)
        else:
            findings.append(find(DUPLICATE, f"messages.{index}", "an id is used twice"))
            if not is_copy(old, message):
                message = _renamed(message, seen)  # noqa: PLW2901 - the one to remember
                kept.append(message)
        if message.id:
            seen.setdefault(message.id, message)
    return kept, findings


def named(messages: Sequence[BaseMessage], known: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Give ids to messages that are new: derived from their call and which answer to it they are.

    Messages that were there before keep what they have.
    """
    old = {id(message) for message in known}
    taken = {message.id for message in messages if message.id}
    count: Counter[str] = Counter()
    out: list[BaseMessage] = []
    for message in messages:
        is_new = message.id is None and id(message) not in old
        if is_new or isinstance(message, ToolMessage):
            source = _source(message)
            count[source] += 1
            if is_new:
                fresh = free(f"{source}:{count[source]}", taken)
                message = message.model_copy(update={"id": fresh})  # noqa: PLW2901 - in its place
        out.append(message)
    return out


def is_copy(one: BaseMessage, other: BaseMessage) -> bool:
    """Tell whether two messages say the same, whatever came with them."""
    if type(one) is not type(other) or one.content != other.content:
        return False
    fields = ("tool_calls", "invalid_tool_calls", "tool_call_id")
    return all(getattr(one, name, None) == getattr(other, name, None) for name in fields)


def _renamed(message: BaseMessage, seen: dict[str, BaseMessage]) -> BaseMessage:
    return message.model_copy(update={"id": free(f"again:{message.id}", set(seen))})


def _source(message: BaseMessage) -> str:
    if isinstance(message, ToolMessage):
        return f"answer:{message.tool_call_id}"
    return f"{message.type}:{message.content!r}"
