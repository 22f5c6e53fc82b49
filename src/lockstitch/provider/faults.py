"""What can go wrong to order: a few words say which fault, where in the answer, and how often.

Then an answer goes out as steps: its bytes, the silences between them, and where it breaks off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

from msgspec import Struct, structs

from lockstitch.errors import UsageError

REPEATED, SAME, MISSING = "repeated", "same", "missing"
SUMMARIES = "summaries"
_LOWEST_STATUS, _HIGHEST_STATUS = 400, 599
_CHOICES = {"ids": (REPEATED, SAME, MISSING), "only": (SUMMARIES,)}
_FAULTS = {"drop", "status", "stall", "slow", "cut", "cut_bytes", "ids"}
_CONDITIONS = {"retry_after", "after", "only", "times"}
_WORDS = (
    *("drop", "status", "retry-after", "stall", "after", "slow", "cut", "cut-bytes"),
    *("ids", "only", "times"),
)
_TOO_MANY = 429


class InjectedFault(Struct, frozen=True, kw_only=True):
    """One fault, or several at once.

    ``drop``: the connection is closed before any byte.
    ``status`` and ``retry_after``: this error instead of an answer.
    ``stall`` and ``after``: silence for so many seconds behind so many events; behind none, the
    head of the answer is held back, too.
    ``slow``: so many seconds between one event and the next.
    ``cut`` and ``cut_bytes``: the connection is closed behind so many events, or bytes of the body.
    ``ids``: the ids of tool calls are ``repeated`` in every reply, the ``same`` within one reply,
    or ``missing``.
    ``only`` and ``times``: which requests, and how many of them, it happens to.
    """

    words: str = ""
    drop: bool = False
    status: int = 0
    retry_after: int | None = None
    stall: float | None = None
    after: int = 0
    slow: float = 0.0
    cut: int | None = None
    cut_bytes: int | None = None
    ids: str = ""
    only: str = ""
    times: int | None = None

    @property
    def breaks(self) -> bool:
        """Whether the answer does not arrive whole, so that a client has to ask again."""
        is_cut = self.cut is not None or self.cut_bytes is not None
        return self.drop or bool(self.status) or is_cut or self.stall == math.inf

    @property
    def headers(self) -> dict[str, str]:
        """The headers that an error comes with: a provider that is asked too often says when."""
        seconds = self.retry_after
        if seconds is None and self.status == _TOO_MANY:
            seconds = 1
        return {} if seconds is None else {"retry-after": str(seconds)}


NONE = InjectedFault()


class Faults:
    """The faults for all requests: each request meets the first one that is meant for it."""

    def __init__(self, faults: Iterable[InjectedFault] = ()) -> None:
        self._left = list(faults)

    def replace(self, faults: Iterable[InjectedFault]) -> None:
        """Let these happen from now on, and no others."""
        self._left = list(faults)

    def take(self, *, summary: bool) -> InjectedFault:
        """Return the fault that the next request meets; ``summary`` is whether it is for one."""
        for index, fault in enumerate(self._left):
            if fault.only == SUMMARIES and not summary:
                continue
            if fault.times == 1:
                del self._left[index]
            elif fault.times is not None:
                self._left[index] = structs.replace(fault, times=fault.times - 1)
            return fault
        return NONE


def faults_in(text: str) -> list[InjectedFault]:
    """Read faults for all requests, with commas between them."""
    return [fault_in(part) for part in text.split(",") if part.strip()]


def fault_in(text: str) -> InjectedFault:
    """Read one fault, such as ``stall=5 after=3``; raise UsageError for what is none."""
    given: dict[str, Any] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        field = name.replace("-", "_")
        if field not in (*_FAULTS, *_CONDITIONS):
            known = ", ".join(_WORDS)
            raise UsageError(f"there is no fault {name!r}; the words for faults are {known}")
        given[field] = _value_of(name, value)
    if given and not given.keys() & _FAULTS:
        raise UsageError(f"{text!r} names no fault, only when one shall happen")
    return InjectedFault(words=" ".join(text.split()), **given)


def _value_of(name: str, value: str) -> Any:
    """Return the value of one word of a fault; raise UsageError for one it cannot have."""
    field = name.replace("-", "_")
    if field == "drop":
        if value:
            raise UsageError(f"the fault {name} takes no value")
        return True
    if known := _CHOICES.get(field):
        if value not in known:
            raise UsageError(f"{name} takes one of {', '.join(known)}, as in {name}={known[0]}")
        return value
    if field in ("stall", "slow"):
        if field == "stall" and not value:
            return math.inf
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise UsageError(f"{name} takes seconds, as in {name}=0.5")
        return seconds
    if not value.isascii() or not value.isdecimal() or len(value) > len(str(10**9)):
        raise UsageError(f"{name} takes a whole number, as in {name}=3")
    number = int(value)
    if field == "times" and not number:
        raise UsageError(f"{name} takes a whole number from 1 on")
    if field == "status" and not _LOWEST_STATUS <= number <= _HIGHEST_STATUS:
        raise UsageError(f"{name} takes the status of an error, {_LOWEST_STATUS} to 599")
    return number


class Silence(Struct, frozen=True):
    """So many seconds without a byte."""

    seconds: float


class DeliveryEnd(Enum):
    """How an answer ended: whole, cut off to order, or because its client went away."""

    WHOLE = "whole"
    CUT = "cut"
    GONE = "gone"


Step = bytes | Silence | DeliveryEnd


def delivery_steps(events: Iterable[bytes], fault: InjectedFault) -> Iterator[Step]:
    """Yield what happens to the body of an answer, one step after the other."""
    left = fault.cut_bytes
    for number, event in enumerate(events):
        if fault.cut is not None and number >= fault.cut:
            yield DeliveryEnd.CUT
            return
        if number and fault.slow:
            yield Silence(fault.slow)
        if left is not None and len(event) >= left:
            yield event[:left]
            yield DeliveryEnd.CUT
            return
        left = None if left is None else left - len(event)
        yield event
        if fault.stall is not None and number + 1 == fault.after:
            yield Silence(fault.stall)
    yield DeliveryEnd.WHOLE
