"""Many threads, one commit: whoever comes first does the work of all who wait.

A thread that finds nobody at work leads: when it may write, it takes its own job and all that
have queued up, has them committed together, and hands the lead to the first of those who came in
the meantime. A thread alone pays for no hand-over. There is no thread in the background. Whoever
has waited for as long as they would, and whose job nobody has begun, goes away.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from lockstitch.errors import Busy, Unsure

MOST = 512


class CommitJob:
    """One piece of work: ``run`` gets what the committer hands it, and may raise for itself.

    ``until`` is the moment up to which it waits to be begun, None for as long as the committer
    would have it. One that is ``alone`` is in no batch with others.
    """

    __slots__ = ("alone", "error", "is_settled", "leads", "result", "run", "signal", "until")

    def __init__(
        self, run: Callable[[Any], Any], until: float | None = None, *, alone: bool = False
    ) -> None:
        self.run = run
        self.until = until
        self.alone = alone
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
        self.wake()

    def outcome(self) -> Any:
        """Give the result, or raise the error, each thread an error of its own."""
        if self.error is not None:
            raise self.error
        return self.result

    def wake(self) -> None:
        """Wake its thread; once more does no harm, since it waits only once."""
        if self.signal is not None and self.signal.locked():
            self.signal.release()


class GroupCommit:
    """Passes jobs to ``commit``, a batch at a time; it must settle every one of them.

    The batch is the leader's job alone until ``commit`` calls ``gather``, when it may write.
    An interrupt may be raised in any line here. Whoever leads has ``leads`` set in their job
    and gives the lead up in the end, whatever happens; only the locks of the interpreter itself
    are used, which an interrupt cannot leave locked.
    """

    def __init__(self, commit: Callable[[list[CommitJob]], None]) -> None:
        self._commit = commit
        self._guard = threading.Lock()
        self._queue: deque[CommitJob] = deque()
        self._batch: list[CommitJob] = []
        self._leader: CommitJob | None = None

    def do(
        self, run: Callable[[Any], Any], until: float | None = None, *, alone: bool = False
    ) -> Any:
        """Have a piece of work committed, with whatever else waits for it, or ``alone``.

        Raises ``Busy`` if it was not begun ``until`` then; the clock is that of ``monotonic``.
        """
        job = CommitJob(run, until, alone=alone)
        try:
            self._join(job)
            if job.leads:
                self._lead(job)
        finally:
            try:
                self._leave(job)
            except BaseException:
                self._leave(job)
                self._rouse()
                raise
        return job.outcome()

    def gather(self, batch: list[CommitJob]) -> None:
        """Take all who wait into the leader's batch."""
        with self._guard:
            while self._queue and len(batch) < MOST:
                if batch[0].alone or self._queue[0].alone:
                    return
                batch.append(self._queue.popleft())

    def put_back(self, batch: list[CommitJob]) -> None:
        """Have all but the leader's job of a batch done later, if nothing of them was."""
        with self._guard:
            while len(batch) > 1 and not batch[-1].is_settled:
                job = batch.pop()
                job.result = job.error = None
                self._queue.appendleft(job)

    def _join(self, job: CommitJob) -> None:
        """Lead, if nobody does; else wait until the job is done or it is our turn to lead."""
        with self._guard:
            if self._leader is None:
                job.leads = True
                self._leader = job
                return
            job.signal = signal = threading.Lock()
            signal.acquire()
            self._queue.append(job)
        left = -1.0 if job.until is None else max(job.until - time.monotonic(), 0.0)
        if not signal.acquire(timeout=left):
            with self._guard:
                if job in self._queue:
                    self._queue.remove(job)
                    raise Busy(
                        "another write to the store has not ended in the time that this one would"
                        " wait; nothing was written: try again"
                    )
            signal.acquire()  # It leads, or somebody has begun it.

    def _lead(self, job: CommitJob) -> None:
        self._batch = batch = [job]
        self._commit(batch)

    def _leave(self, job: CommitJob) -> None:
        """Wait no more: what nobody has begun is not done, and a lead is passed on."""
        if job.leads:
            for one in self._batch:
                one.settle(Unsure("the write was broken off: open the session again"))
        with self._guard:
            if job.leads:
                self._pass_on(job)
            elif not job.is_settled and job in self._queue:
                self._queue.remove(job)

    def _pass_on(self, job: CommitJob) -> None:
        self._batch = []
        job.leads = False
        if self._queue:
            self._leader = self._queue[0]
            del self._queue[0]
            self._leader.leads = True
            self._leader.wake()
        else:
            self._leader = None

    def _rouse(self) -> None:
        """Wake who leads now: an interrupt may have come just before that."""
        with self._guard:
            if self._leader is not None:
                self._leader.wake()
