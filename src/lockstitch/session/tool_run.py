"""Tools as a session runs them: how a tool is declared, and one run of several calls.

Calls run together, in threads of their own, and each outcome is written as soon as it exists.
"""

from __future__ import annotations

import base64
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

import msgspec
from msgspec import Struct, structs

from lockstitch.conversation.parts import repr_without
from lockstitch.errors import Busy, LockstitchError, UsageError
from lockstitch.journal.events import Event, Finished, Outcome, Started, Waiting, text_payload
from lockstitch.journal.state import CallState, JournalState
from lockstitch.session import decisions
from lockstitch.session.decisions import Call, Candidate, Key
from lockstitch.session.replies import content_payload
from lockstitch.session.writing import DeferredSignals, SessionWriter, new_name, reason_of

_TOOLS = "tools must be a dictionary of names and functions, or Tool(function, …)"
Policy = bool | Callable[[Call], Any]
# How often a write is tried again if the store is busy and says that nothing was written.
PATIENCE = 10
# How often the abort signal is checked, and the longest wait if there is none, in seconds.
GLANCE = 0.05
LONGEST = 1.0
_LOG = logging.getLogger("lockstitch.session")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call, with its properties.

    ``repeatable`` says that it may run again after a crash: it then gets the same idempotency key
    (``current_call().effect``). ``timeout`` is in seconds, and replaces the timeout for all tools.
    ``approve``, true or a function of the call, says whether somebody has to approve the call
    first.
    """

    function: Callable[..., Any]
    repeatable: bool = field(default=False, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)
    approve: Policy = field(default=False, kw_only=True)

    @property
    def is_async(self) -> bool:
        """Whether the function has to be awaited."""
        made = getattr(self.function, "__call__", None)  # noqa: B004 - the method, not the question
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(made)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool that returns content blocks, or that reports a failure with ``error``.

    ``content`` is a text, or a tool result's content in the format of ``dialect``.
    """

    content: Any
    dialect: str = field(default="", kw_only=True)
    error: bool = field(default=False, kw_only=True)

    __repr__ = repr_without("content")


@dataclass(frozen=True, slots=True)
class Later:
    """The return value of a tool whose result will come from elsewhere, in a minute or in a week.

    The call waits, also across restarts, for ``store.deliver(session, effect, result)``.
    """


@dataclass(frozen=True, slots=True)
class CurrentCall:
    """The call that the running tool answers.

    ``effect`` is the same for every attempt: pass it on as an idempotency key. ``abort`` is set
    when nobody is waiting for the result any longer.
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
        """The place of the call, which no other call of its session has."""
        return self.reply, self.index


CURRENT: ContextVar[CurrentCall] = ContextVar("lockstitch_call")


def current_call() -> CurrentCall:
    """Return the call that the running tool serves; raise ``UsageError`` outside a tool."""
    try:
        return CURRENT.get()
    except LookupError:
        raise UsageError(
            "no tool is running here: call this inside a function of run_tools"
        ) from None


def read_tools(
    tools: Mapping[str, Callable[..., Any] | Tool], *, can_await: bool
) -> dict[str, Tool]:
    """Return the tools given to ``run_tools``; raise ``UsageError`` if one of them is not valid."""
    if not isinstance(tools, Mapping):
        raise UsageError(_TOOLS)
    found: dict[str, Tool] = {}
    for name, tool in tools.items():
        is_named: object = name
        if not isinstance(tool, Tool) and not (isinstance(is_named, str) and callable(tool)):
            raise UsageError(_TOOLS)
        found[name] = tool if isinstance(tool, Tool) else Tool(tool)
    for name, tool in found.items():
        if tool.is_async and not can_await:
            raise UsageError(f"the tool {name} is async: run it in a session of async_session()")
        if tool.timeout is not None:
            check_timeout(tool.timeout)
    return found


def check_timeout(seconds: object) -> float:
    """Return a timeout in seconds; raise ``UsageError`` if it is not valid."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise UsageError("a timeout must be a number of seconds above 0")
    return float(seconds)


class ToolJob(Struct):
    """A call about to run: its ``Started`` event, its tool, and its arguments."""

    key: Key
    event: Started
    call: CurrentCall
    tool: Tool
    arguments: dict[str, Any]
    timeout: float | None = None
    is_launched: bool = False
    deadline: float = math.inf

    def run(self) -> Finished | Waiting:
        """Call the tool in this thread; return its result or exception as an event."""
        CURRENT.set(self.call)
        try:
            value = self.tool.function(**self.arguments)
            if inspect.isawaitable(value):
                close = getattr(value, "close", None)
                if callable(close):
                    close()
                value = UsageError(
                    "the tool returned something to await: declare it with async def"
                )
            return self._outcome(value)
        except BaseException as error:  # noqa: BLE001 - a thread's end: there is nobody to raise to
            return self._outcome(error)

    async def run_async(self) -> Finished | Waiting:
        """Await the tool; a cancellation is raised, anything else is returned as an event."""
        CURRENT.set(self.call)
        try:
            return self._outcome(await self.tool.function(**self.arguments))
        except Exception as error:  # noqa: BLE001 - a tool's failure is for the model to see
            return self._outcome(error)

    def _outcome(self, value: Any) -> Finished | Waiting:
        if isinstance(value, Later):
            return Waiting(reply=self.event.reply, index=self.event.index, outside=True)
        return make_finished(self.key, self.event.attempt, value)


def make_finished(key: Key, attempt: int, value: Any) -> Finished:
    """Return the event for the result of a call: a value, content in some dialect, or an exception.

    Of an exception it contains the type and the message, never the traceback.
    """
    made = Finished(reply=key[0], index=key[1], attempt=attempt)
    if isinstance(value, BaseException):
        words = type(value).__name__
        with suppress(Exception):  # an exception whose message cannot be formatted
            words = f"{words}: {value}" if str(value) else words
        value = Result(words, error=True)
    result = value if isinstance(value, Result) else Result(value)
    if result.error:
        made = structs.replace(made, outcome="error")
    if not result.dialect:
        return structs.replace(made, payload=text_payload(text_of(result.content)))
    payload = content_payload(result.content, result.dialect)
    return structs.replace(made, payload=payload, dialect=result.dialect)


def text_of(value: Any) -> str:
    """Return a tool's result as text: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        # Most results are the output of a program.
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            coded = base64.b64encode(data).decode()
            return f"[lockstitch] {len(data)} bytes that are not UTF-8, as base64:\n{coded}"
    try:
        return msgspec.json.encode(value, enc_hook=_plain_form).decode()
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _plain_form(value: Any) -> Any:
    """Return the plain data of an object: a pydantic model's dump, else its own text form."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


class ToolRun:
    """One run of tools. Its methods may wait for the store, but never for a tool.

    The order of events matters: a call is written as started before it runs, and its outcome is
    written as soon as it exists, by the thread that has it. ``lost`` are the calls of the last
    reply that may have run and will not run again.
    """

    def __init__(
        self,
        writer: SessionWriter,
        tools: Mapping[str, Tool],
        *,
        timeout: float | None,
        max_parallel: int | None,
        interrupt_children: Callable[[str], None] = lambda _: None,
    ) -> None:
        if max_parallel is not None and max_parallel < 1:
            raise UsageError("max_parallel must be 1 or more")
        self.is_stopped = False
        self.error: Exception | None = None
        self.wake: Callable[[], None] = lambda: None
        self._interrupt_children = interrupt_children
        self._writer = writer
        self._tools = tools
        self._timeout = timeout
        self._most = max_parallel or math.inf
        self._held: set[Key] = set()
        self._has_begun = False
        self._queue: list[Candidate] = []
        self._touched: dict[Key, Call] = {}
        self._running: dict[Key, ToolJob] = {}
        self._lock = threading.Lock()

        def may_repeat(call: CallState) -> bool:
            tool = tools.get(writer.asking(call.reply, call.index).name)
            return tool is not None and tool.repeatable

        self._candidates, self.lost = writer.look(
            lambda state: decisions.find_candidates(state, may_repeat)
        )

    def questions(self, policy: Policy | None) -> Iterator[tuple[Candidate, Any]]:
        """Yield the calls that may need approval, with the decision, which may be an awaitable."""
        for candidate in self._candidates:
            # A call that is approved, ran before, or cannot run at all needs no approval.
            if candidate.is_approved or candidate.is_repeat or self._refusal(candidate):
                continue
            tool = self._tools[self._writer.asking(*candidate.key).name]
            for asked in (policy, tool.approve):
                if not asked:
                    continue
                found = self._writer.look(
                    lambda state, key=candidate.key: state.view.calls.get(key)  # type: ignore[misc]
                )
                if found:
                    call = self._writer.call(found)
                    yield candidate, asked(call) if callable(asked) else asked

    def hold(self, candidate: Candidate) -> None:
        """Make a call wait for approval."""
        self._held.add(candidate.key)

    def start(self) -> list[ToolJob]:
        """Record the starts of calls in one append; return the jobs to run now.

        The first time these are the calls that were found, later those that waited for a free slot.
        """
        if self._has_begun and (
            self.is_stopped or not self._queue or len(self._running) >= self._most
        ):
            return []
        self._writer.decide(self._starts)
        with self._lock:
            fresh = [job for job in self._running.values() if not job.is_launched]
            for job in fresh:
                job.is_launched = True
        return fresh

    def _starts(self, state: JournalState) -> list[Event]:
        facts: list[Event] = []
        for candidate in () if self._has_begun else self._candidates:
            if not decisions.is_unchanged(state, candidate):
                continue
            reply, index = key = candidate.key
            self._touched[key] = self._writer.call(state.view.calls[key])
            refusal = self._refusal(candidate)
            if refusal:
                payload = text_payload(refusal)
                facts.append(Finished(reply=reply, index=index, outcome="error", payload=payload))
            elif key in self._held:
                facts.append(Waiting(reply=reply, index=index))
            else:
                self._queue.append(candidate)
        self._has_begun = True
        with self._lock:
            while self._queue and len(self._running) < self._most:
                candidate = self._queue.pop(0)
                # It may have waited for a free slot, and may have been answered meanwhile.
                if not decisions.is_unchanged(state, candidate):
                    continue
                reply, index = key = candidate.key
                asking = self._writer.asking(reply, index)
                name, tool, session = asking.name, self._tools[asking.name], self._writer.session
                # Later attempts keep the idempotency key of the first one.
                effect, attempt = candidate.effect or new_name(), candidate.starts + 1
                started = Started(reply=reply, index=index, attempt=attempt, effect=effect)
                place = name, session, reply, index
                call = CurrentCall(candidate.id, *place, effect, attempt, threading.Event())
                timeout = self._timeout if tool.timeout is None else tool.timeout
                arguments = asking.arguments or {}
                self._running[key] = ToolJob(key, started, call, tool, arguments, timeout)
                facts.append(started)
        return facts

    def _refusal(self, candidate: Candidate) -> str:
        """Return why a call cannot run at all, or "" if it can or if that is unknown."""
        asking = self._writer.asking(*candidate.key)
        tool = self._tools.get(asking.name)
        if tool is None:
            names = ", ".join(sorted(self._tools)) or "none"
            return f"There is no tool of that name. The tools there are: {names}."
        if asking.arguments is None:
            return "The arguments are not a JSON object, so the tool was not run."
        try:
            signature = inspect.signature(tool.function)
        except (TypeError, ValueError):
            return ""
        try:
            signature.bind(**asking.arguments)
        except TypeError as error:
            return f"The arguments do not fit the tool: {error}."
        return ""

    def is_busy(self) -> bool:
        """Whether a call is running or queued.

        Raise the error that kept an outcome from the store.
        """
        if self.error is not None:
            raise self.error
        return not self.is_stopped and bool(self._running or self._queue)

    @property
    def live(self) -> set[Key]:
        """The calls whose tools are running."""
        return set(self._running)

    def finish(self, job: ToolJob, outcome: Finished | Waiting) -> None:
        """Record an outcome, late or not.

        A busy store is tried again, because the outcome is known to nobody else.
        """
        try:
            for tries_left in range(PATIENCE, -1, -1):
                try:
                    self._writer.add(outcome)
                except Busy:
                    if not tries_left:
                        raise
                else:
                    return
        except Exception as error:
            self.error = self.error or error
            raise
        finally:
            with self._lock:
                self._running.pop(job.key, None)

    def conclude(self, job: ToolJob, outcome: Outcome) -> None:
        """Stop waiting for a call that was cancelled or has timed out.

        A result that comes later still counts. A call that has an outcome already is left alone:
        the news of it may only not have arrived yet.
        """
        with self._lock:
            is_running = job.key in self._running
        if is_running:
            job.call.abort.set()
            self.finish(job, decisions.concluded(job.event, outcome))

    def abandon(self) -> None:
        """Stop waiting for calls that a rewind has removed, and tell their tools to abort.

        What they still return is kept, and counts wherever the call is visible.
        """
        calls = self._writer.look(lambda state: dict(state.view.calls))
        with self._lock:
            for key in list(self._running):
                if key not in calls or not calls[key].is_running:
                    self._running.pop(key).call.abort.set()
        self.wake()

    def break_off(self, reason: str) -> None:
        """Stop the run: every call gets an outcome, and some reasons end the turn."""
        if reason not in decisions.LEAVES_TURN_OPEN:
            self._interrupt_children(reason)
        self.stop()
        self._writer.decide(lambda state: decisions.break_off(state, reason, self._touched))

    def stop(self) -> None:
        """Stop waiting for all calls, and set the abort signals of their tools."""
        self.is_stopped = True
        with self._lock:
            for job in self._running.values():
                job.call.abort.set()
        self.wake()

    def outcome(self) -> list[Call]:
        """Return the calls of this run as they are now, or as they were before a rewind."""
        writer, touched = self._writer, self._touched
        return writer.look(
            lambda state: [
                writer.call(call) if (call := state.view.calls.get(key)) else touched[key]
                for key in sorted(touched)
            ]
        )


class Abort(Protocol):
    """An abort signal: an event of threading, asyncio or anyio, or any object with ``is_set``."""

    def is_set(self) -> bool:
        """Whether to stop."""
        ...


def run_in_threads(run: ToolRun, abort: Abort | None) -> None:
    """Run all calls; when interrupted, give every call an outcome before raising.

    Each call runs in a thread of its own; this thread watches them.
    """
    wakes: SimpleQueue[None] = SimpleQueue()
    run.wake = lambda: wakes.put(None)
    watched: list[ToolJob] = []
    is_begun = False
    with DeferredSignals(run.wake) as held:
        try:
            while not is_begun or run.is_busy():
                if held.raised is not None or (abort is not None and abort.is_set()):
                    break
                if is_begun:
                    # Wake up when a call ends or times out, or when it is time to check the abort
                    # signal.
                    now, longest = time.monotonic(), LONGEST if abort is None else GLANCE
                    first = min((job.deadline for job in watched), default=now + longest)
                    with suppress(Empty):
                        wakes.get(timeout=min(max(first - now, 0.0), longest))
                    for job in [job for job in watched if job.deadline <= time.monotonic()]:
                        watched.remove(job)
                        run.conclude(job, "timed-out")
                is_begun = True
                for job in run.start():
                    job.deadline = time.monotonic() + job.timeout if job.timeout else job.deadline
                    watched.append(job)
                    run_in_thread(run, job, run.wake)
        except LockstitchError:
            # The store has failed; the next writer of the session recovers the open calls.
            run.stop()
            raise
        except BaseException as error:
            with suppress(LockstitchError):
                run.break_off(reason_of(error))
            raise
        if held.raised is not None or (abort is not None and abort.is_set()):
            run.break_off(reason_of(held.raised) if held.raised else "aborted")


def run_in_thread(run: ToolRun, job: ToolJob, ended: Callable[[], None]) -> None:
    """Run a call in a thread that also writes its outcome and then calls ``ended``.

    A thread cannot be stopped from outside, so it is a daemon, which no exit waits for.
    """

    def work() -> None:
        try:
            run.finish(job, job.run())
        except Exception as error:  # noqa: BLE001 - who watches the run raises it, while they do
            if run.is_stopped:
                _LOG.warning(
                    "session %s: a result of the call %s of record %d came too late to be kept: %s",
                    job.call.session,
                    job.call.id or job.call.name,
                    job.event.reply,
                    error,
                )
        finally:
            ended()

    name = f"lockstitch tool {job.call.name}"
    threading.Thread(target=copy_context().run, args=(work,), name=name, daemon=True).start()
