"""Calls that run together: which of them do, and each outcome written the moment it exists."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping

from lockstitch.errors import Busy, UsageError
from lockstitch.journal import state as journal
from lockstitch.journal.events import Event
from lockstitch.journal.fold import State
from lockstitch.session import core
from lockstitch.session.calls import Call
from lockstitch.session.core import Candidate, Key
from lockstitch.session.tools import CurrentCall, Job, Outcome, Policy, Tool, unfit
from lockstitch.session.writing import Writer, new_name

# How often a store that is busy, and says that nothing was written, is asked again.
PATIENCE = 10
_LOG = logging.getLogger("lockstitch.session")


class Batch:
    """One run of tools. Everything here may wait for the store, and nothing waits for a tool.

    The order of facts is the point: a call is written as started before it runs, and its outcome
    as soon as there is one, from the thread that has it.
    """

    def __init__(
        self,
        writer: Writer,
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
        self._running: dict[Key, Job] = {}
        self._lock = threading.Lock()
        self._candidates = writer.look(lambda state: core.candidates(state, self._repeats))

    @property
    def lost(self) -> list[Key]:
        """The calls of the last reply that may have run, and that nobody is going to run again."""
        again = {candidate.key for candidate in self._candidates}
        calls = self._writer.look(lambda state: list(state.view.batch))
        return [key for call in calls if core.is_lost(call) and (key := _key(call)) not in again]

    def _repeats(self, call: journal.Call) -> bool:
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

    def begin(self) -> list[Job]:
        """Write what begins, in one append; returns the calls to be run now."""
        self._writer.decide(self._begun)
        return self._launched()

    def _begun(self, state: State) -> list[Event]:
        facts: list[Event] = []
        for candidate in self._candidates:
            if not core.still(state, candidate):
                continue
            self._touched[candidate.key] = self._writer.call(state.view.calls[candidate.key])
            refusal = self._refusal(candidate)
            if refusal:
                facts.append(core.failed(candidate.key, refusal))
            elif candidate.key in self._held:
                facts.append(core.waiting(candidate.key))
            else:
                self._queue.append(candidate)
        return facts + self._wave(state)

    def _wave(self, state: State) -> list[Event]:
        """Take from the queue what may run now, and say that it starts."""
        facts: list[Event] = []
        with self._lock:
            while self._queue and len(self._running) < self._most:
                candidate = self._queue.pop(0)
                if core.still(state, candidate):
                    job = self._job(candidate)
                    self._running[job.key] = job
                    facts.append(job.event)
        return facts

    def _job(self, candidate: Candidate) -> Job:
        asking = self._writer.asking(*candidate.key)
        tool = self._tools[asking.name]
        event = core.started(candidate, new_name())
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
        return Job(event, call, tool, asking.arguments or {}, timeout)

    def _launched(self) -> list[Job]:
        with self._lock:
            fresh = [job for job in self._running.values() if not job.is_launched]
            for job in fresh:
                job.is_launched = True
        return fresh

    def more(self) -> list[Job]:
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
        return unfit(tool, asking.arguments)

    def is_busy(self) -> bool:
        """Whether anything runs or is going to; raises what kept an outcome from the store."""
        if self.error is not None:
            raise self.error
        return not self.is_stopped and bool(self._running or self._queue)

    @property
    def live(self) -> set[Key]:
        """The calls whose tools run."""
        return set(self._running)

    def finish(self, job: Job, outcome: Outcome) -> None:
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

    def finish_alone(self, job: Job, outcome: Outcome) -> None:
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

    def time_out(self, job: Job) -> None:
        """Wait for a call no longer; what it gives later still counts."""
        if self._is_running(job):
            job.call.abort.set()
            self.finish(job, core.timed_out(job.event))

    def cancel(self, job: Job) -> None:
        """Say that a call was broken off; it may have taken effect."""
        if self._is_running(job):
            job.call.abort.set()
            self.finish(job, core.cancelled(job.event))

    def _is_running(self, job: Job) -> bool:
        """Whether a call has no outcome yet: one that has may only not have been heard of."""
        with self._lock:
            return job.key in self._running

    def _leave(self, job: Job) -> None:
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
        if reason not in core.LEAVES_TURN_OPEN:
            self.interrupt_children(reason)
        self.stop()
        self._writer.decide(lambda state: core.broken_off(state, reason, self._touched))

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


def _key(call: journal.Call) -> Key:
    return call.reply, call.index
