"""A function that sums up, and what is known of it in this process: its failures, its silence.

The same function gets nothing but a prompt, whoever calls it: if it is down, it is down for every
session. So its failures are remembered here by the function itself, and by each session, under
the function's name, for processes to come. One that failed is asked again after a pause, which
grows while it goes on failing.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from lockstitch.compaction.ladder import Compaction
from lockstitch.errors import UsageError

# Twice as long that often is longer than anybody's longest pause, and no number that overflows.
_DOUBLINGS = 64


class Pauses(Struct, frozen=True):
    """How long nobody asks, in seconds: twice as long after each failure in a row."""

    first: float = 30.0
    longest: float = 30 * 60.0

    def after(self, failures: int) -> float:
        """Return how long the pause is after so many failures in a row."""
        if failures < 1:
            return 0.0
        return min(self.first * 2.0 ** min(failures - 1, _DOUBLINGS), self.longest)


PAUSES = Pauses()


class SummarizerPast(Struct, frozen=True):
    """What became of a summarizer: how often in a row it failed, and when it was asked last.

    ``since`` is in seconds since 1970, so that another process can go by it.
    """

    failures: int = 0
    since: float = 0.0

    def paused_until(self, now: float, pauses: Pauses = PAUSES) -> float | None:
        """Return when it may be asked again; None if it may be now.

        A clock that was put back ends a pause: at worst it is asked once too often.
        """
        until = self.since + pauses.after(self.failures)
        return until if self.since <= now < until else None

    def after(self, done: Compaction, now: float) -> SummarizerPast:
        """Return what is known after a compaction; the same if it asked nobody.

        One answer says that it is not down: what failed before that counts no more.
        """
        if not done.asked:
            return self
        if done.rung == "summary":
            return SummarizerPast(0, now)
        is_down = len(done.failures) >= done.asked
        return SummarizerPast(self.failures + 1 if is_down else 1, now)


def latest_past(pasts: Iterable[SummarizerPast], now: float) -> SummarizerPast:
    """Return the last that is known; what a clock says is yet to come counts for nothing."""
    return max((past for past in pasts if past.since <= now), key=_since, default=SummarizerPast())


def _since(past: SummarizerPast) -> float:
    return past.since


def pause_reason(past: SummarizerPast, until: float) -> str:
    """Return why a summarizer is not asked, and until when."""
    moment = datetime.fromtimestamp(until, UTC).isoformat(sep=" ", timespec="seconds")
    times = "once" if past.failures == 1 else f"{past.failures} times in a row"
    return f"the summarizer is paused until {moment}: it failed {times}"


SILENT = "an earlier question to the summarizer has not come back, and its time is over"
_UNKNOWN = SummarizerPast()
# What became of functions, for as long as they live.
_PASTS: list[tuple[weakref.ref[Any], SummarizerPast]] = []
# The questions that have not come back.
_OPEN: set[Question] = set()
# Taken again by the thread that has it, if that collects a question nobody waits for any more.
_LOCK = threading.RLock()
_now = time.time


class Question:
    """A question on its way: from when it is begun until its function returns, however late."""

    def __init__(self, asked: Summarizer, seconds: float) -> None:
        self.asked = asked
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def is_overdue(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() >= self._end

    def __enter__(self) -> Self:
        """Begin."""
        with _LOCK:
            _OPEN.add(self)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        """It has come back."""
        with _LOCK:
            _OPEN.discard(self)


class Summarizer:
    """A function that one compaction may ask; ``past`` is what its session knows of it.

    ``scope`` names the session. With ``ignore_pause`` it is asked whatever became of it before.
    """

    def __init__(
        self,
        function: Callable[[str], Any],
        *,
        scope: str = "",
        past: SummarizerPast = _UNKNOWN,
        ignore_pause: bool = False,
    ) -> None:
        checked_model(function)
        self.function = function
        self.name = name_of(function)
        self._scope = scope
        self._ignores = ignore_pause
        self._kept = past
        now = _now()
        self.past = latest_past([past, _remembered(function)], now)
        self._until = self.past.paused_until(now)

    @property
    def unasked(self) -> str:
        """Why it is not asked now; empty if it is."""
        if self._ignores:
            return ""
        if self._until is not None:
            return pause_reason(self.past, self._until)
        with _LOCK:
            others = [one for one in _OPEN if one.asked.is_same(self)]
        return SILENT if any(one.is_overdue for one in others) else ""

    def is_same(self, other: Summarizer) -> bool:
        """Whether it is the same function, or, in one session, one of the same name.

        Many are made anew for each request, from the same line of a program.
        """
        if self._scope and (self._scope, self.name) == (other._scope, other.name):
            return True
        return _is_same(self.function, other.function)

    def learn(self, done: Compaction) -> SummarizerPast | None:
        """Remember what became of it; returns what a session has to keep, None for nothing."""
        if not done.asked:
            return None
        self.past = self.past.after(done, _now())
        # Remember without keeping it alive; what cannot be remembered so is left to its session.
        is_method = inspect.ismethod(self.function)
        with _LOCK, suppress(TypeError):
            made = weakref.WeakMethod(self.function) if is_method else weakref.ref(self.function)
            known = [(ref(), ref, old) for ref, old in _PASTS]
            others = [(ref, old) for one, ref, old in known if not _is_same(one, self.function)]
            _PASTS[:] = [*(one for one in others if one[0]() is not None), (made, self.past)]
        return self.past if self.past.failures or self._kept.failures else None


def checked_model(summarize: object) -> None:
    """Raise ``UsageError`` for a model that cannot be called."""
    if not callable(summarize):
        raise UsageError("summarize is a function from a prompt to a summary, or None")


def name_of(function: Callable[..., Any]) -> str:
    """Return a name by which another process knows a function again."""
    while isinstance(function, functools.partial):
        function = function.func
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(named, "__module__", None) or "builtins"
    name = f"{module}.{named.__qualname__}"
    code = getattr(function, "__code__", None)
    # one module has many without a name
    return f"{name}:{code.co_firstlineno}" if code and name.endswith("<lambda>") else name


def _is_same(one: object, other: object) -> bool:
    """Whether it is the same object; a method is another one each time it is looked up."""
    return one is other or (inspect.ismethod(one) and one == other)


def _remembered(function: Callable[..., Any]) -> SummarizerPast:
    with _LOCK:
        return next((past for ref, past in _PASTS if _is_same(ref(), function)), _UNKNOWN)


def forget() -> None:
    """Forget every function and every question, as a process does that has just begun."""
    with _LOCK:
        _PASTS.clear()
        _OPEN.clear()


def _forget_questions() -> None:
    """Forget the questions of a process that forked: its threads are not here."""
    global _LOCK  # noqa: PLW0603 - somebody may have held it when the process forked
    _LOCK = threading.RLock()
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_questions)
