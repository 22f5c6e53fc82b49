"""Sessions that keep a graph's thread for an integration: told apart, not understood.

Their records are the integration's own, and only it knows what they add up to. Whoever lists,
copies, searches or removes sessions needs less: whether one keeps a thread, and what is said in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lockstitch.dialects import LANGCHAIN
from lockstitch.journal.queries import Spoken, said_in
from lockstitch.journal.records import JournalRecord

THREAD_NAMES = ("langgraph.", "langgraph-")
FIRST = b'{"kind":"thread"'
_LATER = (b'{"kind":"checkpoint"', b'{"kind":"writes"')
THREAD_RECORDS = (FIRST, *_LATER)


class ThreadConversation(Struct):
    """The messages of a thread's last checkpoint, with the results that its tasks have stored.

    ``settled`` are those that can be judged: in a run that was broken off, or that waits for a
    person, the last calls are open on purpose.
    """

    messages: list[Any]
    settled: list[Any]
    checkpoints: int


class _Items(Struct):
    items: tuple[Raw, ...] = ()


def may_be_thread(session: str) -> bool:
    """Whether a session may keep a thread, by its name."""
    return session.startswith(THREAD_NAMES)


def begins_thread(records: Iterable[JournalRecord]) -> bool:
    """Whether the first of some records says that a session keeps a thread."""
    return any(record.body.startswith(FIRST) for record in records)


def thread_spoken(
    body: bytes, may_match: Callable[[bytes], bool], payload: Callable[[str], bytes]
) -> Spoken | None:
    """Return who says what in the messages that a record brings; None if it is not of a thread.

    ``may_match`` is a quick look at its bytes, before anything is decoded.
    """
    if not body.startswith(_LATER):
        return None
    if b'{"x":"' not in body and not may_match(body):
        return iter(())
    return _spoken(body, payload)


def _spoken(body: bytes, payload: Callable[[str], bytes]) -> Spoken:
    try:
        items = msgspec.json.decode(body, type=_Items).items
    except msgspec.MsgspecError:
        return
    for item in items:
        value = msgspec.json.decode(item)
        if isinstance(value, dict) and "x" in value and "t" not in value:
            value = msgspec.json.decode(payload(value["x"]))
        if isinstance(value, dict) and isinstance(value.get("data"), dict):
            yield from ((who, text) for _, who, text in said_in(LANGCHAIN, [value]))
