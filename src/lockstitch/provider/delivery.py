"""How an answer goes out: its bytes, the silences between them, and where it breaks off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from msgspec import Struct

from lockstitch.provider.faults import Fault


class Silence(Struct, frozen=True):
    """So many seconds without a byte."""

    seconds: float


class End(Enum):
    """How an answer ended: whole, cut off to order, or because its client went away."""

    WHOLE = "whole"
    CUT = "cut"
    GONE = "gone"


Step = bytes | Silence | End


def steps(events: Iterable[bytes], fault: Fault) -> Iterator[Step]:
    """Yield what happens to the body of an answer, one step after the other."""
    left = fault.cut_bytes
    for number, event in enumerate(events):
        if fault.cut is not None and number >= fault.cut:
            yield End.CUT
            return
        if number and fault.slow:
            yield Silence(fault.slow)
        if left is not None and len(event) >= left:
            yield event[:left]
            yield End.CUT
            return
        left = None if left is None else left - len(event)
        yield event
        if fault.stall is not None and number + 1 == fault.after:
            yield Silence(fault.stall)
    yield End.WHOLE
