"""Values that run code, in all that a thread has: not only in the checkpoint that is its head.

LangGraph loads older checkpoints for time travel, for forks and for lists of what was, writes with
the checkpoint they hang on, and the checkpoints of subgraphs with their runs. Most of a database
is such rows, so that their bytes are searched, and only what may be harmful is looked into.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from lockstitch.formats.langgraph.calling import PICKLE, called, may_call
from lockstitch.formats.langgraph.coding import Undecodable
from lockstitch.formats.langgraph.safety import unsafe
from lockstitch.formats.langgraph.snapshot import Coded, UnsafeValue
from lockstitch.formats.langgraph.texts import codings
from lockstitch.rules import ERROR

PICKLED = "a pickle, which can hold any code"


class Kept(Struct, frozen=True):
    """A value somewhere in a thread: its row, and what it is in there."""

    place: str
    namespace: str
    value: Coded


def searched(values: Iterable[Kept]) -> list[UnsafeValue]:
    """Return what runs code, each thing that is called once in a namespace, where it is first."""
    found: dict[tuple[str, str], list[str]] = {}
    harmless: dict[str, bytes] = {}
    for one in values:
        tag, data = one.value.tag, one.value.data
        if not may_call(tag, data, harmless.get(tag, b"")):
            harmless[tag] = data
            continue
        for step, name in _harmful(one.value):
            place = ".".join((one.place, *step))
            found.setdefault((one.namespace, name), []).append(place)
    return [
        UnsafeValue(places[0], name, namespace, len(places))
        for (namespace, name), places in found.items()
    ]


def _harmful(value: Coded) -> Iterator[tuple[tuple[str, ...], str]]:
    """Give what a value calls that is an error, each with the field that it is in."""
    if value.tag == PICKLE:
        yield (), PICKLED
        return
    for name, severity in unsafe(called(value.tag, value.data)).items():
        if severity == ERROR:
            yield field_with(name, value), str(name)


def field_with(name: object, value: Coded) -> tuple[str, ...]:
    """Return the path to the field of a checkpoint that calls something; empty if it is hidden."""
    try:
        coding = codings()[value.tag]
        fields = coding.fields(value.data)
        for field, data in fields.items():
            if name in called(value.tag, data):
                inner = coding.fields(data) if field == "channel_values" else {}
                steps = [key for key, part in inner.items() if name in called(value.tag, part)]
                return (field, *steps[:1])
    except Undecodable:
        pass
    return ()
