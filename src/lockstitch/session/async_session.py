"""Sessions on asyncio or trio, for writing or for reading only.

Work that may wait runs in threads, tools run as tasks or in threads, streams are read as they
arrive, and asking a model for a summary blocks nobody.
"""

# ruff: noqa: SLF001 - what both twins do, and say, is written once: in the synchronous one

from __future__ import annotations

import asyncio
import atexit
import inspect
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

import anyio
import anyio.lowlevel

from lockstitch.compaction.ladder import Compaction, Failure
from lockstitch.compaction.running import (
    Action,
    Apart,
    CompactOptions,
    CompactSettings,
    Question,
    Sleep,
    attempt,
    check_answer,
    compact_settings,
    failure_of,
    silence,
)
from lockstitch.conversation.steps import adrive
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.journal.state import Fact
from lockstitch.session.decisions import Call, Recovered, Turn
from lockstitch.session.listing import Parent
from lockstitch.session.reader import Reader, SessionReadMixin, end_of
from lockstitch.session.replies import ReplyStream, StreamRecorder, stream_in
from lockstitch.session.session import Session
from lockstitch.session.tool_run import (
    GLANCE,
    Abort,
    Policy,
    Tool,
    ToolJob,
    ToolRun,
    run_in_thread,
)
from lockstitch.session.writing import reason_of
from lockstitch.stores.base import Backend

T = TypeVar("T")
P = ParamSpec("P")
PATIENCE = 5.0
# How often a task checks by itself whether its work is done, in seconds.
LOOK_EVERY = 0.5
# Threads whose writes must not be lost if the program ends in the meantime.
_WRITING: set[threading.Thread] = set()


@atexit.register
def _finish_writes() -> None:
    """Let running writes finish, however often somebody presses Ctrl-C."""
    end = time.monotonic() + PATIENCE
    for thread in list(_WRITING):
        while thread.is_alive() and time.monotonic() < end:
            with suppress(KeyboardInterrupt):
                thread.join(end - time.monotonic())


class _ThreadWork(Generic[T]):
    """Runs a function in a thread that no exit of the program waits for."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._soon = _loop_scheduler()
        self._has_ended = anyio.Event()
        self._context = copy_context()
        self._lock = threading.Lock()
        self._left: Callable[[T], None] | None = None
        self._is_done = False
        self._result: list[T] = []
        self._error: BaseException | None = None

    def start(self, *, insist: bool = False) -> None:
        target = self._context.run
        name = "lockstitch work"
        thread = threading.Thread(target=target, args=(self._run,), name=name, daemon=True)
        if insist:
            _WRITING.add(thread)
        thread.start()

    def _run(self) -> None:
        try:
            try:
                self._result.append(self._function())
            except BaseException as error:  # noqa: BLE001 - raised where the result is waited for
                self._error = error
            with self._lock:
                self._is_done = True
                left = self._left
            if left is not None and self._result:
                left(self._result[0])
            self._soon(self._has_ended.set)
        finally:
            _WRITING.discard(threading.current_thread())

    async def wait(self) -> None:
        """Wait until the function has ended.

        The notification can get lost: a second Ctrl-C may hit the very callback that delivers it.
        """
        while not self._has_ended.is_set():
            with anyio.move_on_after(LOOK_EVERY):
                await self._has_ended.wait()
            if self._is_done:
                return

    def leave(self, undo: Callable[[T], None]) -> None:
        """Stop waiting; ``undo`` gets the result if the function still returns one."""
        with self._lock:
            if not self._is_done:
                self._left = undo
                return
        if self._result:
            undo(self._result[0])

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


async def run_to_end(function: Callable[[], T], *, insist: bool = False) -> T:
    """Run a function in a thread to its end, and raise a cancellation only then.

    Without ``insist`` it does not start if the task is cancelled already.
    """
    if not insist:
        await anyio.lowlevel.checkpoint_if_cancelled()
    work = _ThreadWork(function)
    work.start(insist=insist)
    caught: BaseException | None = None
    # The thread cannot be stopped, so cancelling has to wait until it has ended.
    with anyio.CancelScope(shield=True):
        while True:
            try:
                await work.wait()
                break
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - asyncio's own cancel minds no shield
                caught = caught or error
    if caught is not None:
        raise caught
    return work.result()


async def unless_cancelled(function: Callable[[], T], undo: Callable[[T], None]) -> T:
    """Run a function in a thread; if the task is cancelled, ``undo`` gets the late result."""
    work = _ThreadWork(function)
    work.start()
    try:
        await work.wait()
    except BaseException:
        work.leave(undo)
        raise
    return work.result()


class AsyncWatch:
    """Watches one run of tools in the calling task until every call has an outcome."""

    def __init__(self, run: ToolRun, abort: Abort | None) -> None:
        self._run = run
        self._abort = abort
        self._news = anyio.Event()
        self._soon = _loop_scheduler()
        run.wake = lambda: self._soon(self._hear)

    def _hear(self) -> None:
        self._news.set()

    async def run(self) -> None:
        """Run all calls; when interrupted, give every call an outcome before raising."""
        try:
            async with anyio.create_task_group() as group:
                run, is_begun = self._run, False
                try:
                    while not is_begun or run.is_busy():
                        if self._is_aborted():
                            break
                        if is_begun:
                            with anyio.move_on_after(math.inf if self._abort is None else GLANCE):
                                await self._news.wait()
                            self._news = anyio.Event()
                        is_begun = True
                        for job in await run_to_end(run.start):
                            group.start_soon(self._call, job)
                except LockstitchError:
                    run.stop()
                    raise
                except BaseException as error:
                    reason = reason_of(error)
                    with suppress(LockstitchError):
                        await run_to_end(lambda: run.break_off(reason), insist=True)
                    raise
                if self._is_aborted():
                    await run_to_end(lambda: run.break_off("aborted"), insist=True)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as error:
            # if several tasks fail, the caller gets a single error to act on
            raise error.exceptions[0] from None

    def _is_aborted(self) -> bool:
        return self._abort is not None and self._abort.is_set()

    async def _call(self, job: ToolJob) -> None:
        """Run one call to its outcome; errors of the store are raised by the watch, not here."""
        run = self._run
        try:
            with anyio.move_on_after(job.timeout) as limit:
                if job.tool.is_async:
                    outcome = await job.run_async()
                    await run_to_end(lambda: run.finish(job, outcome), insist=True)
                else:
                    done = anyio.Event()
                    run_in_thread(run, job, lambda: self._soon(done.set))
                    await done.wait()
            if limit.cancelled_caught:
                await run_to_end(lambda: run.conclude(job, "timed-out"), insist=True)
        except LockstitchError:
            pass  # the run remembers it, and the watch raises it
        except anyio.get_cancelled_exc_class() as error:
            # The tool cancelled itself, which is an outcome. If the program is being terminated,
            # the call gets none here, so that a repeatable tool runs again.
            if not run.is_stopped and reason_of(error) != "exit":
                await run_to_end(lambda: run.conclude(job, "cancelled"), insist=True)
        finally:
            self._hear()


def _loop_scheduler() -> Any:
    """Return a function that schedules a call in this event loop from any thread."""
    native: Any = anyio.lowlevel.current_token().native_token
    # asyncio's loop has the first method, trio's token the second; either may be closed by then
    call = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon

    def soon(function: Any, *arguments: Any) -> None:
        with suppress(Exception):
            call(function, *arguments)

    return soon


_END = object()


class AsyncStream(ReplyStream):
    """A streamed reply in an ``async with`` block: iterate over it as over the SDK's stream.

    A reply that arrives in full is recorded as a whole, and :attr:`complete` is true. If the block
    is left earlier, the part that has arrived is kept, and its calls are not run: ``break`` and
    cancellation also interrupt the turn, while after an exception, or if the provider cuts the
    stream, the turn stays open and the model can be asked again. Parts are stored as they arrive,
    so a crash keeps all but the last moments.
    """

    def __init__(self, recorder: StreamRecorder, source: Any) -> None:
        super().__init__(recorder, source)
        self._events: Any = None

    async def __aenter__(self) -> Self:
        """Begin to read the stream."""
        self._recorder.begin()
        try:
            if inspect.isawaitable(self._source):
                self._source = await self._source
            self._source = stream_in(self._source)
            source = self._source
            if hasattr(source, "__aenter__"):
                source = await source.__aenter__()
            elif hasattr(source, "__enter__"):
                source = await run_to_end(source.__enter__)
            self._events = (
                aiter(source) if hasattr(source, "__aiter__") else _ThreadIterator(iter(source))
            )
        except BaseException as error:
            await self._leave(error)
            raise
        return self

    def __aiter__(self) -> AsyncIterator[Any]:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> Any:
        """Return the next event of the source, after storing what it adds."""
        if self._events is None:
            raise UsageError("a stream is read inside its async with block")
        try:
            event = await anext(self._events)
        except StopAsyncIteration:
            await run_to_end(lambda: self._recorder.end(reason="cut"), insist=True)
            raise
        if self._recorder.take(event):
            await run_to_end(self._recorder.keep, insist=True)
        return event

    async def finish(self) -> AsyncStream:
        """Read the rest of the stream, and return the stream."""
        async for _ in self:
            pass
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the reply, and close the source."""
        try:
            await self._leave(error)
        finally:
            source = self._source
            if hasattr(source, "__aexit__"):
                await source.__aexit__(kind, error, trace)
            elif hasattr(source, "aclose"):
                await source.aclose()
            elif hasattr(source, "__exit__"):
                await run_to_end(lambda: source.__exit__(kind, error, trace), insist=True)
            elif hasattr(source, "close"):
                await run_to_end(source.close, insist=True)

    async def _leave(self, error: BaseException | None) -> None:
        await run_to_end(lambda: self._recorder.leave(error), insist=True)


class _ThreadIterator:
    """Takes each step of a plain iterator in a thread."""

    def __init__(self, events: Any) -> None:
        self._events = events

    async def __anext__(self) -> Any:
        """Return the next event."""
        event = await run_to_end(lambda: next(self._events, _END))
        if event is _END:
            raise StopAsyncIteration
        return event


# Seconds that a cancelled question to a model gets to clean up before it is abandoned.
GRACE = 0.5
# Keeps abandoned tasks alive, because asyncio holds only weak references to tasks.
_left: set[asyncio.Future[Any]] = set()


async def perform(action: Action) -> Any:
    """Perform an action of a compaction; if cancelled, undo what it started."""
    if isinstance(action, Apart):
        work = run_to_end if action.must_end else _beside
        return await work(action.function)
    if isinstance(action, Sleep):
        return await anyio.sleep(action.seconds)
    with anyio.move_on_after(action.question.seconds):
        return check_answer(await _called(action.question, action.prompt))
    return silence(action.question)


async def _called(question: Question, prompt: str) -> Any:
    function = question.asked.function
    if inspect.iscoroutinefunction(function):
        got = attempt(function, prompt)
    else:

        def heard() -> Any:
            with question:
                return attempt(function, prompt)

        got = await _beside(heard)
    if not inspect.isawaitable(got):
        return got

    async def answered() -> Any:
        try:
            with question:
                return await got
        except Exception as error:  # noqa: BLE001 - whatever a model's client raises
            return failure_of(error)

    # trio has no task that could outlive its parent, so there the model's function has to return.
    if not isinstance(anyio.lowlevel.current_token().native_token, asyncio.AbstractEventLoop):
        return await answered()
    # A separate task, so that a function that ignores its cancellation does not block anybody.
    task = asyncio.ensure_future(answered())
    try:
        await asyncio.wait({task})
    finally:
        if not task.done():
            _left.add(task)
            task.add_done_callback(_left.discard)
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({task}, timeout=GRACE)
    return Failure("CancelledError") if task.cancelled() else task.result()


async def _beside(function: Callable[[], T]) -> T:
    """Run a function in a thread that is abandoned if this task is cancelled.

    Not even the end of the program waits for it, because a model may never answer.
    """
    return await unless_cancelled(function, lambda _: None)


def _async_twin(
    method: Callable[Concatenate[Any, P], T], *, insist: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the asynchronous twin of a method, which runs it in a thread to its end."""

    @wraps(method)
    async def twin(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        return await run_to_end(lambda: method(self._inner, *args, **options), insist=insist)

    return twin


def _with_docstring_of(twin: Callable[..., Any]) -> Callable[[T], T]:
    """Copy the docstring of the synchronous twin to a method that has its own body."""

    def described(method: T) -> T:
        method.__doc__ = twin.__doc__
        return method

    return described


class Opening:
    """A session about to be opened: use it with ``async with``, or await it."""

    def __init__(
        self,
        backend: Backend,
        name: str,
        *,
        wait: float,
        create: bool,
        parent: Parent | None = None,
    ) -> None:
        self._open = partial(Session, backend, name, wait=wait, create=create, parent=parent)
        self._name = name
        self._session: AsyncSession | None = None

    def __repr__(self) -> str:
        """Return the session's name, and whether it was opened."""
        return f"<{type(self).__name__} {self._name}: {'opened' if self._session else 'not yet'}>"

    async def _opened(self) -> AsyncSession:
        self._session = AsyncSession(await unless_cancelled(self._open, Session.close))
        return self._session

    def __await__(self) -> Generator[Any, Any, AsyncSession]:
        """Open the session."""
        return self._opened().__await__()

    async def __aenter__(self) -> AsyncSession:
        """Open the session."""
        return await self._opened()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Release the session, whatever happened."""
        if self._session is not None:
            await self._session.__aexit__(kind, error, trace)


class AsyncSession(SessionReadMixin):
    """One conversation on asyncio or trio, open for writing; see :meth:`Store.async_session`.

    It works as :class:`Session` does, on asyncio or trio, and any number of tasks may share it.
    When a method returns, what it was given is durable. Cancelling a task never tears a write: it
    is done or not begun. A model's reply, or a result from elsewhere, is stored even by a task that
    is being cancelled.

    Use it as an async context manager. At the end of the block the lease is released, and a turn
    that is still open stays open for the next run. An ordinary exception or an exit leaves the turn
    open as well; cancelling the task interrupts it. After a crash, open the session again: calls
    that were running get the outcome ``unknown``, and :attr:`recovered` lists them. The errors are
    those of :class:`Session`.
    """

    def __init__(self, inner: Session) -> None:
        self._inner = inner
        self._view = inner._writer

    @property
    def recovered(self) -> Recovered:
        """What the last writer left when it crashed; false if it ended properly."""
        return self._inner.recovered

    say = _async_twin(Session.say)
    instruct = _async_twin(Session.instruct)
    record = _async_twin(Session.record, insist=True)

    def stream(
        self,
        source: Any,
        dialect: str | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> AsyncStream:
        """Record a reply while it arrives: ``async with session.stream(…) as stream``.

        ``source`` is an SDK's stream, the context manager of one, an awaitable that returns one, or
        any iterator of its events. Raises ``UsageError`` if another stream of this session is open.
        """
        recorder = StreamRecorder(
            self._inner._writer, self._inner, dialect, provider=provider, model=model, key=key
        )
        return AsyncStream(recorder, source)

    @_with_docstring_of(Session.request)
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
        """Run the calls of the last reply in parallel; return them with their outcomes.

        Async functions are awaited, the others run in threads. The calls are those that never
        started, calls with an unknown outcome if their tool is ``repeatable``, and every approved
        call. Each start is durable before its tool runs, and each outcome as soon as it exists, so
        a crash never makes a tool run twice that is not repeatable. An exception in a tool becomes
        a failed result.

        ``timeout`` is in seconds for each call. ``approve``, true or a function of the call, makes
        calls wait for approval instead of running. Setting ``abort`` interrupts the turn, as
        cancelling the task does. At most ``max_parallel`` tools run at once.
        """
        run = await run_to_end(
            lambda: self._inner._tool_run(tools, timeout, max_parallel, can_await=True)
        )
        for candidate, answer in run.questions(approve):
            if await answer if inspect.isawaitable(answer) else answer:
                run.hold(candidate)
        with self._inner._running(run):
            await AsyncWatch(run, abort).run()
        return run.outcome()

    interrupt = _async_twin(Session.interrupt, insist=True)
    resume = _async_twin(Session.resume)
    approve = _async_twin(Session.approve)
    deny = _async_twin(Session.deny)
    deliver = _async_twin(Session.deliver, insist=True)

    @_with_docstring_of(Session.wait)
    async def wait(self, timeout: float | None = None) -> Turn:  # noqa: ASYNC109 - as in sync
        until = end_of(timeout)
        while (turn := await run_to_end(lambda: self._inner._listen(until))) is None:
            pass
        return turn

    output = _async_twin(Session.output)
    note = _async_twin(Session.note)
    describe = _async_twin(Session.describe)
    notes = _async_twin(Session.notes)
    usage = _async_twin(Session.usage)
    checkpoint = _async_twin(Session.checkpoint)
    rewind = _async_twin(Session.rewind)
    undo_rewind = _async_twin(Session.undo_rewind)
    revert_interrupted = _async_twin(Session.revert_interrupted)

    @_with_docstring_of(Session.compact)
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

    uncompact = _async_twin(Session.uncompact)
    close = _async_twin(Session.close, insist=True)

    async def __aenter__(self) -> Self:
        """Return the session itself."""
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Release the session, whatever happened in the block."""
        await run_to_end(lambda: self._inner._close(error), insist=True)


class AsyncReader(SessionReadMixin):
    """A session open for reading from asyncio or trio; get one from :meth:`Store.async_read`.

    It works as :class:`Reader` does.
    """

    def __init__(self, inner: Reader) -> None:
        self._inner = inner
        self._view = inner._view

    refresh = _async_twin(Reader.refresh)
    request = _async_twin(Reader.request)
    output = _async_twin(Reader.output)
    notes = _async_twin(Reader.notes)
    usage = _async_twin(Reader.usage)

    @_with_docstring_of(Reader.follow)
    def follow(self, timeout: float | None = None) -> Following:
        return Following(self, timeout)


class Following:
    """The facts of a session as they are added, for ``async for``.

    This is not a generator, because trio requires a generator that is left early to be closed by
    hand.
    """

    def __init__(self, reader: AsyncReader, timeout: float | None) -> None:
        self._reader = reader
        self._timeout = timeout
        self._facts: deque[Fact] = deque()

    def __repr__(self) -> str:
        """Return the name of the session."""
        return f"<{type(self).__name__} {self._reader.name}>"

    def __aiter__(self) -> Self:
        """Return the iterator itself."""
        return self

    async def __anext__(self) -> Fact:
        """Wait for the next fact."""
        while not self._facts:
            listen = partial(self._reader._inner.listen, end_of(self._timeout))
            while (is_longer := await unless_cancelled(listen, _forget)) is None:
                pass
            if not is_longer:
                raise StopAsyncIteration
            self._facts.extend(await self._reader.refresh())
        return self._facts.popleft()


async def open_reader(backend: Backend, name: str) -> AsyncReader:
    """Open a session for reading; raise ``Unreadable`` if there is none."""
    return AsyncReader(await unless_cancelled(partial(Reader, backend, name), _forget))


def _forget(_: object) -> None:
    """Ignore a late result: reading needs no undo."""
