"""A reply that comes in pieces: what has come is kept, whatever happens to the rest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from msgspec import structs

from lockstitch.dialects.exchange import Accumulator
from lockstitch.dialects.replies import (
    accumulator_for,
    calls_in,
    dialect_of_event,
    messages_in,
    provider_of,
)
from lockstitch.errors import Busy, LockstitchError, UsageError
from lockstitch.journal.events import AskedCall, Partial
from lockstitch.session import decisions
from lockstitch.session.content import json_payload, reply_event
from lockstitch.session.writing import DeferredSignals, SessionWriter, new_name, reason_of

OFTEN = 2.0


class StreamRecorder:
    """A streamed reply on its way into a session; each of these calls may wait for the store.

    What had come is written when a block closes and every ``OFTEN`` seconds of text, each time in
    full, so that the last one stands for all before.
    """

    def __init__(  # noqa: PLR0913 - options by name
        self,
        writer: SessionWriter,
        holder: object,
        dialect: str | None,
        *,
        provider: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> None:
        self.has_ended = False
        self.is_complete = False
        self.reply: dict[str, Any] | None = None
        self._writer = writer
        # A session that nobody holds gives its lease back; whoever reads a stream holds it.
        self._holder = holder
        self._provider, self._model = provider, model
        self._key = key
        self._clock = time.monotonic
        self._name = new_name()
        self._after = 0
        self._dialect = dialect
        self._gathered: Accumulator | None = accumulator_for(dialect) if dialect else None
        self._early: list[Any] = []
        self._closed = 0
        self._written: Any = None
        self._at = self._clock()
        self._require_no_other()

    def begin(self) -> None:
        """Be the one stream of the session from now on."""
        self._require_no_other()
        self._after = self._writer.last_request()
        self._writer.streams.append(self)

    def _require_no_other(self) -> None:
        if self._writer.streams:
            raise UsageError("a stream of this session is still open: end it first")

    def take(self, event: Any) -> bool:
        """Take the next event; tells whether it is time for :meth:`keep`."""
        if self._gathered is None:
            self._early.append(event)
            self._dialect = dialect_of_event(event)
            if self._dialect is None:
                return False
            self._gathered = accumulator_for(self._dialect)
            for early in self._early:
                self._gathered.feed(early)
        else:
            self._gathered.feed(event)
        return self._gathered.blocks_closed > self._closed or self._clock() - self._at >= OFTEN

    def keep(self) -> None:
        """Write what has come so far, if there is anything new in it.

        A store that is busy now is asked again with the next event.
        """
        part = self._part()
        if part is not None and self._gathered is not None:
            with suppress(Busy):
                self._writer.add(part)
                self._written = part.payload
                self._closed, self._at = self._gathered.blocks_closed, self._clock()

    def _part(self) -> Partial | None:
        if self._gathered is None:
            return None
        message = self._gathered.closed()
        part = None if message is None else self._partial(message, self._gathered)
        return None if part is None or part.payload == self._written else part

    def _partial(self, message: Any, gathered: Accumulator) -> Partial:
        name = gathered.profile.full_name
        asked = calls_in(name, messages_in(name, message))
        return Partial(
            payload=json_payload(message),
            dialect=gathered.profile.dialect,
            provider=provider_of(name) if self._provider is None else self._provider,
            model=_model_in(gathered.whole()) if self._model is None else self._model,
            calls=tuple(AskedCall(*call) for call in asked),
            stream=self._name,
            after=self._after,
        )

    def end(self, error: BaseException | None = None, reason: str = "user") -> None:
        """End it: with the whole reply if it came, else with what came of it and an interrupt."""
        if self.has_ended:
            return
        with DeferredSignals():
            if not self._is_recorded():
                self._broken_off(reason if error is None else reason_of(error))
            self.has_ended = True
            if self in self._writer.streams:
                self._writer.streams.remove(self)

    def _is_recorded(self) -> bool:
        """Record the reply if it is all there; a failure in the shape of one is none."""
        gathered = self._gathered
        if gathered is None or not gathered.complete:
            return False
        whole = gathered.whole()
        try:
            event = reply_event(
                whole, gathered.profile.full_name, provider=self._provider, model=self._model
            )
        except UsageError:
            return False
        event = structs.replace(event, stream=self._name, after=self._after)
        self._writer.add_reply(event, self._key)
        self.reply, self.is_complete = whole, True
        return True

    def _broken_off(self, reason: str) -> None:
        part = self._part()
        self._writer.decide(lambda state: decisions.end_stream(state, part, self._name, reason))


def _model_in(whole: dict[str, Any]) -> str:
    inner = whole.get("response_metadata")
    fields = inner if isinstance(inner, dict) else whole
    names = (fields.get(key) for key in ("model", "model_name", "modelVersion", "model_version"))
    return next((name for name in names if isinstance(name, str)), "")


class Stream:
    """A streamed reply in a ``with`` block: iterate it as you would the stream itself.

    Left before its end, by ``break``, an exception or Ctrl-C, what had come is kept and the turn
    is interrupted; otherwise the reply is recorded as a whole. ``complete`` tells which.
    """

    def __init__(self, recorder: StreamRecorder, source: Any) -> None:
        self._recorder = recorder
        self._source = check_source(source)
        self._events: Iterator[Any] | None = None

    @property
    def complete(self) -> bool:
        """Whether the reply came to its end and was recorded as a whole."""
        return self._recorder.is_complete

    @property
    def reply(self) -> dict[str, Any] | None:
        """The reply as it would have come in one piece, once it is complete."""
        return self._recorder.reply

    def __enter__(self) -> Self:
        """Go in."""
        self._recorder.begin()
        try:
            source = stream_in(self._source)
            enter = getattr(source, "__enter__", None)
            self._events = iter(enter() if enter else source)
        except BaseException as error:
            self._recorder.end(error)
            raise
        return self

    def __iter__(self) -> Iterator[Any]:
        """Return its events."""
        return self

    def __next__(self) -> Any:
        """Return the next event, after what it adds is kept."""
        if self._events is None:
            raise UsageError("a stream is read inside its with block")
        try:
            event = next(self._events)
        except StopIteration:
            self._recorder.end(reason="cut")
            raise
        with DeferredSignals():
            if self._recorder.take(event):
                self._recorder.keep()
        return event

    def finish(self) -> Stream:
        """Read the rest of it."""
        for _ in self:
            pass
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Go out, whatever happened."""
        try:
            try:
                self._recorder.end(error)
            except LockstitchError:
                if error is None:
                    raise
        finally:
            self._left(kind, error, trace)

    def _left(self, *exc: Any) -> None:
        source = stream_in(self._source)
        if self._events is not None and hasattr(source, "__exit__"):
            source.__exit__(*exc)
        else:
            close = getattr(source, "close", None)
            if callable(close):
                close()


def check_source(source: Any) -> Any:
    """Return a source; raises ``UsageError`` for what can never be a stream of events."""
    if source is None or isinstance(source, str | bytes | int | float):
        kind = type(source).__name__
        raise UsageError(f"a stream is a client's stream, or an iterator of events, not a {kind}")
    return source


def stream_in(source: Any) -> Any:
    """Return the stream in what a client gave: botocore hands it over in a response."""
    return source["stream"] if isinstance(source, dict) and "stream" in source else source
