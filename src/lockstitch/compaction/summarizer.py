"""A function that sums up, and what is known of it in this process: its failures, its silence.

The same function gets nothing but a prompt, whoever calls it: if it is down, it is down for every
session. So its failures are remembered here by the function itself, and by each session, under
the function's name, for processes to come.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from lockstitch.compaction import pausing
from lockstitch.compaction.ladder import Compaction
from lockstitch.compaction.pausing import Past
from lockstitch.errors import UsageError

SILENT = "an earlier question to the summarizer has not come back, and its time is over"
_UNKNOWN = Past()
# What became of functions, for as long as they live.
_PASTS: list[tuple[weakref.ref[Any], Past]] = []
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
        past: Past = _UNKNOWN,
        ignore_pause: bool = False,
    ) -> None:
        checked_model(function)
        self.function = function
        self.name = name_of(function)
        self._scope = scope
        self._ignores = ignore_pause
        self._kept = past
        now = _now()
        self.past = pausing.latest([past, _remembered(function)], now)
        self._until = self.past.paused_until(now)

    @property
    def unasked(self) -> str:
        """Why it is not asked now; empty if it is."""
        if self._ignores:
            return ""
        if self._until is not None:
            return pausing.told(self.past, self._until)
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

    def learn(self, done: Compaction) -> Past | None:
        """Remember what became of it; gives what a session has to keep, None if that is nothing."""
        if not done.asked:
            return None
        self.past = self.past.after(done, _now())
        _remember(self.function, self.past)
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


def _remembered(function: Callable[..., Any]) -> Past:
    with _LOCK:
        return next((past for ref, past in _PASTS if _is_same(ref(), function)), _UNKNOWN)


def _remember(function: Callable[..., Any], past: Past) -> None:
    """Remember without keeping it alive; what cannot be remembered so is left to its session."""
    is_method = inspect.ismethod(function)
    with _LOCK, suppress(TypeError):
        made = weakref.WeakMethod(function) if is_method else weakref.ref(function)
        known = [(ref(), ref, old) for ref, old in _PASTS]
        others = [(ref, old) for one, ref, old in known if not _is_same(one, function)]
        _PASTS[:] = [*(one for one in others if one[0]() is not None), (made, past)]


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
