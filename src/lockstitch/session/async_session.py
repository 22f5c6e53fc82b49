"""A session as a program on asyncio or trio holds it, for writing or for reading only."""

# ruff: noqa: SLF001 - what both twins do, and say, is written once: in the synchronous one

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from lockstitch.compaction.ladder import Compaction
from lockstitch.compaction.running import CompactOptions, CompactSettings, compact_settings
from lockstitch.conversation.steps import adrive
from lockstitch.journal.events import About, Role
from lockstitch.journal.queries import Usage
from lockstitch.journal.state import Checkpoint, Fact
from lockstitch.session.decisions import Call, Recovered, Turn
from lockstitch.session.event_loop import (
    AsyncStream,
    AsyncWatch,
    perform,
    run_to_end,
    unless_cancelled,
)
from lockstitch.session.listing import Parent
from lockstitch.session.reader import Note, Reader, SessionReadMixin, end_of
from lockstitch.session.replies import StreamRecorder
from lockstitch.session.session import Session
from lockstitch.session.tool_run import Abort, Policy, Tool
from lockstitch.stores.base import Backend


class Opening:
    """A session about to be opened: for ``async with``, or ``await``."""

    def __init__(
        self,
        backend: Backend,
        name: str,
        *,
        wait: float,
        create: bool,
        parent: Parent | None = None,
    ) -> None:
        opening = partial(Session, backend, name, wait=wait, create=create)
        self._open = partial(opening, parent=parent)
        self._name = name
        self._session: AsyncSession | None = None

    def __repr__(self) -> str:
        """Name the session, and say whether it was opened."""
        return f"<{type(self).__name__} {self._name}: {'opened' if self._session else 'not yet'}>"

    async def _opened(self) -> AsyncSession:
        self._session = AsyncSession(await unless_cancelled(self._open, Session.close))
        return self._session

    def __await__(self) -> Generator[Any, Any, AsyncSession]:
        """Open it."""
        return self._opened().__await__()

    async def __aenter__(self) -> AsyncSession:
        """Go in."""
        return await self._opened()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Go out, whatever happened."""
        if self._session is not None:
            await self._session.__aexit__(kind, error, trace)


class AsyncSession(SessionReadMixin):
    """One conversation, open for writing; tasks may share it.

    When a method returns, what it was given is durable. A cancelled task never tears a write: it is
    done or not begun. As a context manager the session is left in order: a turn still open then
    is left for later, or broken off if an exception passes through.
    """

    def __init__(self, inner: Session) -> None:
        self._inner = inner
        self._view = inner._writer

    @property
    def recovered(self) -> Recovered:
        """What the last writer left when it died; empty, and false, if it ended properly."""
        return self._inner.recovered

    async def say(self, content: Any, *, dialect: str = "", key: str | None = None) -> Turn:
        return await run_to_end(lambda: self._inner.say(content, dialect=dialect, key=key))

    async def instruct(self, text: str, *, role: Role = "system") -> None:
        await run_to_end(lambda: self._inner.instruct(text, role=role))

    async def record(
        self,
        reply: Any,
        dialect: str | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> Turn:
        """Keep a model's reply: an SDK's response object, its dict, or its JSON as it came.

        Returns the turn with the calls it asked for; a reply that asks for none ends the turn. What
        a model gave is kept also by a task that is being cancelled.
        """
        record = partial(self._inner.record, reply, dialect, provider=provider, model=model)
        return await run_to_end(lambda: record(key=key), insist=True)

    def stream(
        self,
        source: Any,
        dialect: str | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> AsyncStream:
        """Keep a reply while it comes: ``async with session.stream(…) as stream``.

        ``source`` is an SDK's stream, the manager of one, something to await that gives one, or
        any iterator of its events.
        """
        recorder = StreamRecorder(
            self._inner._writer, self._inner, dialect, provider=provider, model=model, key=key
        )
        return AsyncStream(recorder, source)

    async def request(  # noqa: PLR0913 - options, all by name
        self,
        dialect: str,
        *,
        profile: str | None = None,
        model: str | None = None,
        provider: str | None = None,
        budget: int | None = None,
        summarize: Callable[[str], str | Awaitable[str]] | None = None,
        **options: Unpack[CompactOptions],
    ) -> list[Any]:
        name = f"{dialect}:{profile}" if profile else dialect
        settings = compact_settings(budget, dialect, options)
        actions = self._inner._request_actions(name, model, provider, settings, summarize)
        return await adrive(actions, perform)

    async def run_tools(
        self,
        tools: Mapping[str, Callable[..., Any] | Tool],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - of each call, and it ends none of ours
        approve: Policy | None = None,
        abort: Abort | None = None,
        max_parallel: int | None = None,
    ) -> list[Call]:
        """Run what the model asked for, in parallel; returns the calls with their outcomes.

        Async functions are awaited, the others run in threads. Runs the calls of the last reply
        that never started, and every call that was approved. Each start is durable before its
        tool runs, each outcome as soon as it exists. ``timeout`` is in seconds for every call;
        ``approve``, or a function of the call, makes calls wait for approval instead; a set
        ``abort`` breaks the turn off, as cancelling the task does.
        """
        run = await run_to_end(
            lambda: self._inner._tool_run(tools, timeout, max_parallel, can_await=True)
        )
        for candidate, policy, call in run.questions(approve):
            answer = policy(call) if callable(policy) else policy
            if await answer if inspect.isawaitable(answer) else answer:
                run.hold(candidate)
        self._inner._runs.add(run)
        try:
            await AsyncWatch(run, abort).run()
        finally:
            run.is_stopped = True
            self._inner._runs.discard(run)
        return run.outcome()

    async def interrupt(self, reason: str = "user") -> Turn:
        return await run_to_end(lambda: self._inner.interrupt(reason), insist=True)

    async def resume(self) -> Turn:
        return await run_to_end(self._inner.resume)

    async def approve(self, call: Call | str) -> Call:
        return await run_to_end(lambda: self._inner.approve(call))

    async def deny(self, call: Call | str, reason: str | None = None) -> Call:
        return await run_to_end(lambda: self._inner.deny(call, reason))

    async def deliver(self, call: Call | str, result: Any, *, key: str | None = None) -> Turn:
        """Deliver a call's result that came from elsewhere: a value, ``Result`` or exception.

        The call is named by itself, by its ``effect``, or by an id that no other call has. The
        same ``key`` again changes nothing. ``store.async_deliver`` does it without holding the
        session.
        """
        return await run_to_end(lambda: self._inner.deliver(call, result, key=key), insist=True)

    async def wait(self, timeout: float | None = None) -> Turn:  # noqa: ASYNC109 - as in sync
        until = end_of(timeout)
        while (turn := await run_to_end(lambda: self._inner._listen(until))) is None:
            pass
        return turn

    async def output(self, call: Call) -> Any:
        return await run_to_end(lambda: self._inner.output(call))

    async def note(self, name: str, value: Any = None, *, key: str | None = None) -> int:
        return await run_to_end(lambda: self._inner.note(name, value, key=key))

    async def describe(
        self,
        title: str | None = None,
        tags: Iterable[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> About:
        return await run_to_end(lambda: self._inner.describe(title, tags, metadata))

    async def notes(self, name: str | None = None, *, rewound: bool = False) -> list[Note]:
        return await run_to_end(lambda: self._view.notes(name, rewound=rewound))

    async def usage(self) -> Usage:
        return await run_to_end(self._view.usage)

    async def checkpoint(self, label: str) -> int:
        return await run_to_end(lambda: self._inner.checkpoint(label))

    async def rewind(self, to: Checkpoint | str | int, reason: str = "") -> Turn:
        return await run_to_end(lambda: self._inner.rewind(to, reason))

    async def undo_rewind(self) -> Turn:
        return await run_to_end(self._inner.undo_rewind)

    async def revert_interrupted(self) -> Turn:
        return await run_to_end(self._inner.revert_interrupted)

    async def compact(
        self,
        summarize: Callable[[str], str | Awaitable[str]] | None = None,
        *,
        budget: int,
        dialect: str | None = None,
        **options: Unpack[CompactOptions],
    ) -> Compaction:
        settings = CompactSettings(tokens=budget, dialect=dialect, **options)
        return await adrive(self._inner._compact_actions(summarize, settings), perform)

    async def uncompact(self) -> None:
        await run_to_end(self._inner.uncompact)

    async def close(self) -> None:
        await run_to_end(self._inner.close, insist=True)

    async def __aenter__(self) -> Self:
        """Go in."""
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        """Go out, whatever happened."""
        await run_to_end(lambda: self._inner._close(error), insist=True)


class AsyncReader(SessionReadMixin):
    """A session as it stood when it was last read; :meth:`refresh` reads on."""

    def __init__(self, inner: Reader) -> None:
        self.inner = inner
        self._view = inner._view

    async def refresh(self) -> list[Fact]:
        return await run_to_end(self.inner.refresh)

    async def request(
        self,
        dialect: str,
        *,
        profile: str | None = None,
        model: str | None = None,
        provider: str | None = None,
    ) -> list[Any]:
        request = partial(self.inner.request, dialect, profile=profile, model=model)
        return await run_to_end(lambda: request(provider=provider))

    async def output(self, call: Call) -> Any:
        return await run_to_end(lambda: self.inner.output(call))

    async def notes(self, name: str | None = None, *, rewound: bool = False) -> list[Note]:
        return await run_to_end(lambda: self.inner.notes(name, rewound=rewound))

    async def usage(self) -> Usage:
        return await run_to_end(self.inner.usage)

    def follow(self, timeout: float | None = None) -> Following:
        return Following(self, timeout)


class Following:
    """Facts as they are added, for ``async for``.

    No generator: one that is left early has to be closed by hand on trio.
    """

    def __init__(self, reader: AsyncReader, timeout: float | None) -> None:
        self._reader = reader
        self._timeout = timeout
        self._facts: deque[Fact] = deque()

    def __repr__(self) -> str:
        """Name the session that is followed."""
        return f"<{type(self).__name__} {self._reader.name}>"

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Fact:
        """Wait for the next one."""
        while not self._facts:
            listen = partial(self._reader.inner.listen, end_of(self._timeout))
            while (is_longer := await unless_cancelled(listen, _forget)) is None:
                pass
            if not is_longer:
                raise StopAsyncIteration
            self._facts.extend(await self._reader.refresh())
        return self._facts.popleft()


async def open_reader(backend: Backend, name: str) -> AsyncReader:
    """Read a session; raises ``Unreadable`` if there is none."""
    return AsyncReader(await unless_cancelled(partial(Reader, backend, name), _forget))


def _forget(_: object) -> None:
    """Reading leaves nothing to be undone."""


def _take_docstrings(kind: type, twin: type) -> None:
    for name, method in vars(kind).items():
        if callable(method) and not method.__doc__ and hasattr(twin, name):
            method.__doc__ = getattr(twin, name).__doc__


_take_docstrings(AsyncSession, Session)
_take_docstrings(AsyncReader, Reader)
