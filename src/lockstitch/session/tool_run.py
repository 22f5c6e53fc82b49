"""Tools as a session runs them: what may be declared of one, and what its results become.

Calls that run together: which of them do, and each outcome written the moment it exists.

Running tools in threads, and keeping watch over them from the thread that asked.
"""

from __future__ import annotations

import inspect
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from msgspec import Struct, structs

from lockstitch.errors import Busy, LockstitchError, UsageError
from lockstitch.journal import state as journal
from lockstitch.journal.events import Event, Finished, Started, Waiting, text_payload
from lockstitch.journal.state import JournalState
from lockstitch.session import decisions
from lockstitch.session.content import content_payload, text_of
from lockstitch.session.decisions import Call, Candidate, Key
from lockstitch.session.writing import DeferredSignals, SessionWriter, new_name, reason_of

_TOOLS = "tools are a dictionary of names and functions, or Tool(function, …)"
Policy = bool | Callable[[Call], Any]
Outcome = Finished | Waiting


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call, with its properties.

    ``repeatable``: running it again after a crash does no harm; it gets the same idempotency key
    (``current_call().effect``). ``timeout``: seconds, in place of the one for all tools.
    ``approve``: true, or a function of the call that says so, if somebody has to agree first.
    """

    function: Callable[..., Any]
    repeatable: bool = field(default=False, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)
    approve: Policy = field(default=False, kw_only=True)

    @property
    def is_async(self) -> bool:
        """Whether it has to be awaited."""
        made = getattr(self.function, "__call__", None)  # noqa: B004 - the method, not the question
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(made)


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool returns if a plain value is not enough: content blocks, or a failure.

    ``content`` is a text, or content as ``dialect`` spells it in a tool's result.
    """

    content: Any
    dialect: str = field(default="", kw_only=True)
    error: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Later:
    """What a tool returns when its result will come from elsewhere, in a minute or in a week.

    The call waits, also over restarts, for ``store.deliver(session, effect, result)``.
    """


@dataclass(frozen=True, slots=True)
class CurrentCall:
    """The call that a running tool serves.

    ``effect`` is the same for every attempt: pass it on as an idempotency key. ``abort`` is set
    when nobody waits for the result any more.
    """

    id: str
    name: str
    session: str
    reply: int
    index: int
    effect: str
    attempt: int
    abort: threading.Event

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from every other call of its session."""
        return self.reply, self.index


CURRENT: ContextVar[CurrentCall] = ContextVar("lockstitch_call")


def current_call() -> CurrentCall:
    """Return the call that the running tool serves; raises ``UsageError`` outside a tool."""
    try:
        return CURRENT.get()
    except LookupError:
        raise UsageError("no tool is running here: ask inside a function of run_tools") from None


def read_tools(
    tools: Mapping[str, Callable[..., Any] | Tool], *, can_await: bool
) -> dict[str, Tool]:
    """Read the tools of a call of ``run_tools``; whatever is wrong with them is said first."""
    if not isinstance(tools, Mapping):
        raise UsageError(_TOOLS)
    found = {name: _tool(name, tool) for name, tool in tools.items()}
    for name, tool in found.items():
        if tool.is_async and not can_await:
            raise UsageError(f"the tool {name} is async: run it in a session of async_session()")
        if tool.timeout is not None:
            check_timeout(tool.timeout)
    return found


def _tool(name: object, tool: object) -> Tool:
    if isinstance(tool, Tool):
        return tool
    if not isinstance(name, str) or not callable(tool):
        raise UsageError(_TOOLS)
    return Tool(tool)


def check_timeout(seconds: object) -> float:
    """Give a timeout back if it is a number of seconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise UsageError("a timeout is a number of seconds above 0")
    return float(seconds)


class ToolJob(Struct):
    """A call about to run: the fact that says so, its tool, and what it is called with."""

    event: Started
    call: CurrentCall
    tool: Tool
    arguments: dict[str, Any]
    timeout: float | None = None
    is_launched: bool = False
    deadline: float = math.inf

    @property
    def key(self) -> tuple[int, int]:
        """The call it runs."""
        return self.event.reply, self.event.index

    def run(self) -> Outcome:
        """Call the tool here and now; whatever it does becomes an outcome."""
        CURRENT.set(self.call)
        try:
            return self._finished(_at_hand(self.tool.function(**self.arguments)))
        except BaseException as error:  # noqa: BLE001 - a thread's end: there is nobody to raise to
            return self.failed(error)

    async def run_async(self) -> Outcome:
        """Await the tool; cancellation goes on, anything else becomes an outcome."""
        CURRENT.set(self.call)
        try:
            return self._finished(await self.tool.function(**self.arguments))
        except Exception as error:  # noqa: BLE001 - a tool's failure is for the model to see
            return self.failed(error)

    def failed(self, error: BaseException) -> Finished:
        """Say how the tool failed: the kind and the message, never the traceback."""
        return make_finished(self.key, self.event.attempt, error)

    def _finished(self, value: Any) -> Outcome:
        if isinstance(value, Later):
            return Waiting(reply=self.event.reply, index=self.event.index, outside=True)
        return make_finished(self.key, self.event.attempt, value)


def make_finished(key: tuple[int, int], attempt: int, value: Any) -> Finished:
    """Say what a call gave: a value, content in some dialect, or an exception."""
    made = Finished(reply=key[0], index=key[1], attempt=attempt)
    if isinstance(value, BaseException):
        value = Result(_said_by(value), error=True)
    result = value if isinstance(value, Result) else Result(value)
    if result.error:
        made = structs.replace(made, outcome="error")
    if not result.dialect:
        return structs.replace(made, payload=text_payload(text_of(result.content)))
    payload = content_payload(result.content, result.dialect)
    return structs.replace(made, payload=payload, dialect=result.dialect)


def _at_hand(value: Any) -> Any:
    """Give a value back if it is one; nobody here can await it otherwise."""
    if not inspect.isawaitable(value):
        return value
    close = getattr(value, "close", None)
    if callable(close):
        close()
    raise UsageError("the tool gave something to await: declare it with async def")


def _said_by(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot even say what it is
        return name
    return f"{name}: {text}" if text else name


def argument_fault(tool: Tool, arguments: dict[str, Any]) -> str:
    """Say why a tool cannot be called with these arguments; "" if it can, or nobody can tell."""
    try:
        signature = inspect.signature(tool.function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(**arguments)
    except TypeError as error:
        return f"The arguments do not fit the tool: {error}."
    return ""


# How often a store that is busy, and says that nothing was written, is asked again.
PATIENCE = 10
_LOG = logging.getLogger("lockstitch.session")


class ToolRun:
    """One run of tools. Everything here may wait for the store, and nothing waits for a tool.

    The order of facts is the point: a call is written as started before it runs, and its outcome
    as soon as there is one, from the thread that has it.
    """

    def __init__(
        self,
        writer: SessionWriter,
        tools: Mapping[str, Tool],
        *,
        timeout: float | None,
        max_parallel: int | None,
    ) -> None:
        if max_parallel is not None and max_parallel < 1:
            raise UsageError("max_parallel is 1 or more")
        self.is_stopped = False
        self.error: Exception | None = None
        self.wake: Callable[[], None] = lambda: None
        self.interrupt_children: Callable[[str], None] = lambda _: None
        self._writer = writer
        self._tools = tools
        self._timeout = timeout
        self._most = max_parallel or math.inf
        self._held: set[Key] = set()
        self._queue: list[Candidate] = []
        self._touched: dict[Key, Call] = {}
        self._running: dict[Key, ToolJob] = {}
        self._lock = threading.Lock()
        self._candidates = writer.look(
            lambda state: decisions.find_candidates(state, self._repeats)
        )

    @property
    def lost(self) -> list[Key]:
        """The calls of the last reply that may have run, and that nobody is going to run again."""
        again = {candidate.key for candidate in self._candidates}
        calls = self._writer.look(lambda state: list(state.view.batch))
        return [
            key for call in calls if decisions.is_lost(call) and (key := _key(call)) not in again
        ]

    def _repeats(self, call: journal.CallState) -> bool:
        tool = self._tool((call.reply, call.index))
        return tool is not None and tool.repeatable

    def _tool(self, key: Key) -> Tool | None:
        return self._tools.get(self._writer.asking(*key).name)

    def questions(self, policy: Policy | None) -> Iterator[tuple[Candidate, Policy, Call]]:
        """Return what has to be asked before a call may run: who decides, and on which call."""
        for candidate in self._candidates:
            if candidate.is_approved or candidate.is_repeat or self._refusal(candidate):
                continue
            tool, call = self._tool(candidate.key), self._found(candidate.key)
            for asked in (policy, tool.approve if tool else None):
                if asked and call:
                    yield candidate, asked, call

    def hold(self, candidate: Candidate) -> None:
        """Let a call wait for approval."""
        self._held.add(candidate.key)

    def begin(self) -> list[ToolJob]:
        """Write what begins, in one append; returns the calls to be run now."""
        self._writer.decide(self._begun)
        return self._launched()

    def _begun(self, state: JournalState) -> list[Event]:
        facts: list[Event] = []
        for candidate in self._candidates:
            if not decisions.is_unchanged(state, candidate):
                continue
            self._touched[candidate.key] = self._writer.call(state.view.calls[candidate.key])
            refusal = self._refusal(candidate)
            if refusal:
                facts.append(decisions.make_failed(candidate.key, refusal))
            elif candidate.key in self._held:
                facts.append(decisions.make_waiting(candidate.key))
            else:
                self._queue.append(candidate)
        return facts + self._wave(state)

    def _wave(self, state: JournalState) -> list[Event]:
        """Take from the queue what may run now, and say that it starts."""
        facts: list[Event] = []
        with self._lock:
            while self._queue and len(self._running) < self._most:
                candidate = self._queue.pop(0)
                if decisions.is_unchanged(state, candidate):
                    job = self._job(candidate)
                    self._running[job.key] = job
                    facts.append(job.event)
        return facts

    def _job(self, candidate: Candidate) -> ToolJob:
        asking = self._writer.asking(*candidate.key)
        tool = self._tools[asking.name]
        event = decisions.make_started(candidate, new_name())
        call = CurrentCall(
            candidate.id,
            asking.name,
            self._writer.session,
            event.reply,
            event.index,
            event.effect,
            event.attempt,
            threading.Event(),
        )
        timeout = self._timeout if tool.timeout is None else tool.timeout
        return ToolJob(event, call, tool, asking.arguments or {}, timeout)

    def _launched(self) -> list[ToolJob]:
        with self._lock:
            fresh = [job for job in self._running.values() if not job.is_launched]
            for job in fresh:
                job.is_launched = True
        return fresh

    def more(self) -> list[ToolJob]:
        """Write the start of calls that waited for a free place; gives those to be run now."""
        if self.is_stopped or not self._queue or len(self._running) >= self._most:
            return []
        self._writer.decide(self._wave)
        return self._launched()

    def _refusal(self, candidate: Candidate) -> str:
        """Say why a call cannot run at all; "" if it can."""
        asking = self._writer.asking(*candidate.key)
        tool = self._tools.get(asking.name)
        if tool is None:
            names = ", ".join(sorted(self._tools)) or "none"
            return f"There is no tool of that name. The tools there are: {names}."
        if asking.arguments is None:
            return "The arguments are not a JSON object, so the tool was not run."
        return argument_fault(tool, asking.arguments)

    def is_busy(self) -> bool:
        """Whether anything runs or is going to; raises what kept an outcome from the store."""
        if self.error is not None:
            raise self.error
        return not self.is_stopped and bool(self._running or self._queue)

    @property
    def live(self) -> set[Key]:
        """The calls whose tools run."""
        return set(self._running)

    def finish(self, job: ToolJob, outcome: Outcome) -> None:
        """Write an outcome; late or not, the fold knows what to make of it."""
        try:
            self._write(outcome)
        except Exception as error:
            self.error = self.error or error
            raise
        finally:
            self._leave(job)

    def _write(self, outcome: Outcome) -> None:
        """Write an outcome, patiently: what a tool did is known to nobody else."""
        for _ in range(PATIENCE):
            try:
                self._writer.add(outcome)
            except Busy:
                continue
            return
        self._writer.add(outcome)

    def finish_alone(self, job: ToolJob, outcome: Outcome) -> None:
        """Write an outcome from a tool's own thread, where nothing may be raised."""
        try:
            self.finish(job, outcome)
        except Exception as error:  # noqa: BLE001 - the watch raises it while there is one
            if self.is_stopped:
                _LOG.warning(
                    "session %s: a result of the call %s of record %d came too late to be kept: %s",
                    self._writer.session,
                    job.call.id or job.call.name,
                    job.event.reply,
                    error,
                )

    def time_out(self, job: ToolJob) -> None:
        """Wait for a call no longer; what it gives later still counts."""
        if self._is_running(job):
            job.call.abort.set()
            self.finish(job, decisions.make_timed_out(job.event))

    def cancel(self, job: ToolJob) -> None:
        """Say that a call was broken off; it may have taken effect."""
        if self._is_running(job):
            job.call.abort.set()
            self.finish(job, decisions.make_cancelled(job.event))

    def _is_running(self, job: ToolJob) -> bool:
        """Whether a call has no outcome yet: one that has may only not have been heard of."""
        with self._lock:
            return job.key in self._running

    def _leave(self, job: ToolJob) -> None:
        with self._lock:
            self._running.pop(job.key, None)

    def abandon(self) -> None:
        """Wait no more for calls whose start a rewind took off the line, and tell their tools so.

        What they still give is kept: it counts wherever the call is seen.
        """
        calls = self._writer.look(lambda state: dict(state.view.calls))
        with self._lock:
            for key in list(self._running):
                if key not in calls or not calls[key].is_running:
                    self._running.pop(key).call.abort.set()
        self.wake()

    def break_off(self, reason: str) -> None:
        """Leave what runs, for a reason: every call gets an outcome, and the turn may be over."""
        if reason not in decisions.LEAVES_TURN_OPEN:
            self.interrupt_children(reason)
        self.stop()
        self._writer.decide(lambda state: decisions.break_off(state, reason, self._touched))

    def stop(self) -> None:
        """Wait for nothing any more, and tell the tools so."""
        self.is_stopped = True
        with self._lock:
            for job in self._running.values():
                job.call.abort.set()
        self.wake()

    def outcome(self) -> list[Call]:
        """Return the calls that this run was about, as they stand, or stood before a rewind."""
        return [self._found(key) or self._touched[key] for key in sorted(self._touched)]

    def _found(self, key: Key) -> Call | None:
        call = self._writer.look(lambda state: state.view.calls.get(key))
        return self._writer.call(call) if call else None


def _key(call: journal.CallState) -> Key:
    return call.reply, call.index


# How often an abort signal is looked at, and how long a wait may last that nothing interrupts.
GLANCE = 0.05
LONGEST = 1.0


class Abort(Protocol):
    """Anything that can be asked whether it is set: an event of threading, asyncio or anyio."""

    def is_set(self) -> bool:
        """Whether to stop."""
        ...


def run_in_thread(batch: ToolRun, job: ToolJob, tell: Callable[[], None]) -> None:
    """Run a call in a thread of its own, which also writes its outcome.

    A thread cannot be ended from outside, so it is one that no exit of the program waits for.
    """

    def work() -> None:
        try:
            batch.finish_alone(job, job.run())
        finally:
            tell()

    name = f"lockstitch tool {job.call.name}"
    threading.Thread(target=copy_context().run, args=(work,), name=name, daemon=True).start()


class ThreadWatch:
    """One run of tools, watched by the calling thread until every call has an outcome."""

    def __init__(self, batch: ToolRun, abort: Abort | None) -> None:
        self._batch = batch
        self._abort = abort
        self._news: SimpleQueue[None] = SimpleQueue()
        self._watched: list[ToolJob] = []
        batch.wake = lambda: self._news.put(None)

    def run(self) -> None:
        """Run to the end, or to what interrupts: then every call has an outcome all the same."""
        with DeferredSignals(self._batch.wake) as held:
            try:
                if not self._is_to_stop(held):
                    self._launch(self._batch.begin())
                while self._batch.is_busy() and not self._is_to_stop(held):
                    self._step()
            except BaseException as error:
                self._give_up(error)
                raise
            if self._is_to_stop(held):
                self._batch.break_off(reason_of(held.raised) if held.raised else "aborted")

    def _is_to_stop(self, held: DeferredSignals) -> bool:
        return held.raised is not None or (self._abort is not None and self._abort.is_set())

    def _launch(self, jobs: list[ToolJob]) -> None:
        for job in jobs:
            job.deadline = time.monotonic() + job.timeout if job.timeout else job.deadline
            self._watched.append(job)
            run_in_thread(self._batch, job, self._batch.wake)

    def _step(self) -> None:
        self._hear()
        for job in [job for job in self._watched if job.deadline <= time.monotonic()]:
            self._watched.remove(job)
            if job.key in self._batch.live:
                self._batch.time_out(job)
        self._launch(self._batch.more())

    def _hear(self) -> None:
        """Wait until a call is done, its time is up, or it is time to look at the abort signal."""
        longest = LONGEST if self._abort is None else GLANCE
        first = min((job.deadline for job in self._watched), default=longest + time.monotonic())
        wait = min(max(first - time.monotonic(), 0.0), longest)
        with suppress(Empty):
            self._news.get(timeout=wait)

    def _give_up(self, error: BaseException) -> None:
        """Close what can be closed; where the store is the trouble, opening it again does."""
        if isinstance(error, LockstitchError):
            self._batch.stop()
            return
        with suppress(LockstitchError):
            self._batch.break_off(reason_of(error))
