"""Conversations in other channels than the one that a thread is known by, such as a supervisor's.

Which reducer such a channel has is not known from outside. So nothing that waits to be written to
it is merged into it, but for the results of calls that are open in it; and a list counts as a
conversation only if all that is in it are message objects, and somebody is spoken to in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from lockstitch.dialects.langchain import fields_of
from lockstitch.formats import doctor
from lockstitch.formats.base import Transcript, find
from lockstitch.formats.history import History, SourcedMessage, trace_sources
from lockstitch.formats.langgraph.coding import Item, Undecodable, coding_of, codings
from lockstitch.formats.langgraph.conversation import OPAQUE, Reading, open_calls
from lockstitch.formats.langgraph.failing import failures
from lockstitch.formats.langgraph.naming import is_control
from lockstitch.formats.langgraph.reducing import given, stored_messages
from lockstitch.formats.slots import Home, enter
from lockstitch.repair.draft import Ledger
from lockstitch.rules import Finding
from lockstitch.rules.rule import shown

HIDDEN = "is stored next to the checkpoint, where a new prompt hides it"
_SPOKEN_TO = frozenset({"human", "system"})


def read_others(reading: Reading) -> None:
    """Read every further channel of a head that holds a conversation."""
    head = reading.snapshot.head
    names = [name for name in head.values if name != reading.channel and not is_control(name)]
    reading.others = [found for name in names if (found := _read(reading, name)) is not None]


def _read(reading: Reading, name: str) -> Reading | None:
    """Read one channel; None if it is no conversation."""
    snapshot = reading.snapshot
    value = snapshot.head.values[name]
    if value.tag in OPAQUE or value.tag != snapshot.coding:
        return None
    other = Reading(snapshot, codings(), name)
    try:
        coding = coding_of(other.codings, value)
        other.changes = coding.opened(value.data) is not value.data
        other.base = stored_messages(coding, value.data, snapshot.head.record, (name,))
    except Undecodable:
        return None
    if not _is_conversation(other.base):
        return None
    other.items = list(other.base)
    other.items += _results(other)
    return other


def _is_conversation(items: Sequence[Item]) -> bool:
    spoken_to = any(item.type in _SPOKEN_TO for item in items)
    return spoken_to and all(item.frame is not None for item in items)


def _results(other: Reading) -> Iterator[Item]:
    """Give the results of open calls that wait to be written to the channel."""
    lacking = open_calls(other.base, real=True)
    for write in other.snapshot.head.writes if lacking else ():
        if write.channel != other.channel or write.value.tag != other.snapshot.coding:
            continue
        try:
            items = given(coding_of(other.codings, write.value), write.value.data, write.record)
        except Undecodable:
            continue
        for item in items:
            if fields_of(item.view).get("tool_call_id") in lacking:
                lacking.discard(fields_of(item.view)["tool_call_id"])
                yield item
    yield from failures(other, lacking)


def history_of(other: Reading) -> History:
    """Return the conversation of a channel with the places of its messages."""
    history = History("langchain", [], [], [])
    for item in other.items:
        enter(history, item.view, Home(item.record, item.path))
    return history


def findings_in(other: Reading, transcript: Transcript) -> Iterator[Finding]:
    """Give what is wrong with the conversation of a channel."""
    history = history_of(other)
    head = other.snapshot.head
    for item in other.items[len(other.base) :]:
        call = shown(fields_of(item.view).get("tool_call_id"))
        text = f"the result of call {call} in channel {shown(other.channel)} {HIDDEN}"
        place = transcript.records[item.record or head.record].place
        yield find("LS901", place, text)
    for found in doctor.plan_history(history, frozenset()).findings:
        place = doctor.place_in_store(found.place, history, transcript)
        yield structs.replace(found, place=place)


def healed(
    other: Reading, transcript: Transcript, ledger: Ledger | None = None
) -> list[SourcedMessage]:
    """Return the conversation of a channel as it is mended; nothing if it need not or cannot be."""
    history = history_of(other)
    plan = doctor.plan_history(history, frozenset())
    lossy = frozenset(f.code for f in plan.findings if f.lossy and f.code in doctor.LOSSY)
    plan = doctor.plan_history(history, lossy) if lossy else plan
    if not plan.healed or not (plan.changed or len(other.items) > len(other.base)):
        return []
    if ledger is not None:
        doctor.take_over(plan, history, transcript, ledger)
    messages: list[Any] = doctor.healed_messages(plan, history)
    return trace_sources(history, messages)
