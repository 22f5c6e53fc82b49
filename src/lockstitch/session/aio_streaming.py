"""A reply that comes in pieces, read from an event loop."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from lockstitch.errors import LockstitchError, UsageError
from lockstitch.session.streaming import Gathering, checked_source, opened
from lockstitch.threads import through

_END = object()


class AsyncStream:
    """A streamed reply in an ``async with`` block: iterate it as you would the stream itself.

    Left before its end, by ``break``, an exception or cancellation, what had come is kept and the
    turn is interrupted; otherwise the reply is recorded as a whole. ``complete`` tells which.
    """

    def __init__(self, gathering: Gathering, source: Any) -> None:
        self._gathering = gathering
        self._source = checked_source(source)
        self._events: Any = None

    @property
    def complete(self) -> bool:
        """Whether the reply came to its end and was recorded as a whole."""
        return self._gathering.is_complete

    @property
    def reply(self) -> dict[str, Any] | None:
        """The reply as it would have come in one piece, once it is complete."""
        return self._gathering.reply

    async def __aenter__(self) -> Self:
        """Go in."""
        self._gathering.begin()
        try:
            if inspect.isawaitable(self._source):
                self._source = await self._source
            self._source = opened(self._source)
            self._events = await self._entered()
        except BaseException as error:
            await self._settle(error)
            raise
        return self

    async def _entered(self) -> Any:
        source = self._source
        if hasattr(source, "__aenter__"):
            source = await source.__aenter__()
        elif hasattr(source, "__enter__"):
            source = await through(source.__enter__)
        return aiter(source) if hasattr(source, "__aiter__") else _Apart(iter(source))

    def __aiter__(self) -> AsyncIterator[Any]:
        """Return its events."""
        return self

    async def __anext__(self) -> Any:
        """Return the next event, after what it adds is kept."""
        if self._events is None:
            raise UsageError("a stream is read inside its async with block")
        try:
            event = await anext(self._events)
        except StopAsyncIteration:
            await through(lambda: self._gathering.settle(reason="cut"), insist=True)
            raise
        if self._gathering.take(event):
            await through(self._gathering.keep, insist=True)
        return event

    async def finish(self) -> AsyncStream:
        """Read the rest of it."""
        async for _ in self:
            pass
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Go out, whatever happened."""
        try:
            await self._settle(error)
        finally:
            await self._left(kind, error, trace)

    async def _left(self, *exc: Any) -> None:
        source = self._source
        if hasattr(source, "__aexit__"):
            await source.__aexit__(*exc)
        elif hasattr(source, "aclose"):
            await source.aclose()
        elif hasattr(source, "__exit__"):
            await through(lambda: source.__exit__(*exc), insist=True)
        elif hasattr(source, "close"):
            await through(source.close, insist=True)

    async def _settle(self, error: BaseException | None) -> None:
        try:
            await through(lambda: self._gathering.settle(error), insist=True)
        except LockstitchError:
            if error is None:
                raise


class _Apart:
    """A plain iterator, each step of which is taken in a thread."""

    def __init__(self, events: Any) -> None:
        self._events = events

    async def __anext__(self) -> Any:
        """Return the next event, after what it adds is kept."""
        event = await through(lambda: next(self._events, _END))
        if event is _END:
            raise StopAsyncIteration
        return event
