"""Many threads, one commit: whoever comes first does the work of all who wait.

A thread that finds nobody at work leads: it takes its own job and all that have queued up, has
them committed together, and hands the lead to the first of those who came in the meantime. A
thread alone pays for no hand-over. There is no thread in the background.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from lockstitch.errors import Unsure

MOST = 512


class Job:
    """One piece of work: ``run`` gets what the committer hands it, and may raise for itself."""

    __slots__ = ("error", "is_settled", "leads", "result", "run", "signal")

    def __init__(self, run: Callable[[Any], Any]) -> None:
        self.run = run
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_settled = False
        self.leads = False
        self.signal: threading.Lock | None = None

    def settle(self, error: BaseException | None = None) -> None:
        """Say how it ended, and wake the thread that waits for it."""
        if not self.is_settled:
            self.error = self.error or error
            self.is_settled = True
            self._wake()

    def lead(self) -> None:
        """Make its thread the one that works."""
        self.leads = True
        self._wake()

    def outcome(self) -> Any:
        """Give the result, or raise the error, each thread an error of its own."""
        if self.error is not None:
            raise self.error
        return self.result

    def _wake(self) -> None:
        if self.signal is not None:
            self.signal.release()


class Combiner:
    """Passes jobs to ``commit``, a batch at a time; it must settle every one of them."""

    def __init__(self, commit: Callable[[list[Job]], None]) -> None:
        self._commit = commit
        self._guard = threading.Lock()
        self._queue: deque[Job] = deque()
        self._is_led = False

    def do(self, run: Callable[[Any], Any]) -> Any:
        """Have a piece of work committed, with whatever else waits for it."""
        job = Job(run)
        if self._joined(job) or self._promoted(job):
            self._lead(job)
        return job.outcome()

    def put_back(self, batch: list[Job]) -> None:
        """Have all but the leader's job of a batch done later: nothing of them was."""
        with self._guard:
            while len(batch) > 1:
                job = batch.pop()
                job.result = job.error = None
                self._queue.appendleft(job)

    def _joined(self, job: Job) -> bool:
        """Lead, if nobody does; else queue up."""
        with self._guard:
            if not self._is_led:
                self._is_led = True
                return True
            job.signal = threading.Lock()
            job.signal.acquire()
            self._queue.append(job)
            return False

    def _promoted(self, job: Job) -> bool:
        """Wait until the job is done, or until it is this thread's turn to lead."""
        assert job.signal is not None  # noqa: S101
        try:
            job.signal.acquire()
        except BaseException:
            self._leave(job)
            raise
        return not job.is_settled

    def _leave(self, job: Job) -> None:
        """Stop waiting: a job that nobody has begun is not done, and a lead is passed on."""
        with self._guard:
            if job in self._queue:
                self._queue.remove(job)
        if job.leads:
            self._pass_on()

    def _lead(self, job: Job) -> None:
        batch = [job]
        try:
            with self._guard:
                while self._queue and len(batch) < MOST:
                    batch.append(self._queue.popleft())
            self._commit(batch)
        finally:
            for one in batch:
                one.settle(Unsure("the write was broken off: open the session again"))
            self._pass_on()

    def _pass_on(self) -> None:
        with self._guard:
            if self._queue:
                self._queue.popleft().lead()
            else:
                self._is_led = False
