"""Let one writer commit at a time: threads share commits, and processes use a lock file.

The first thread that wants to write does the work of all threads that wait.

A thread that finds no other at work becomes the leader. When it may write, it takes its own job and
all queued jobs, has them committed together, and makes the first thread that arrived in the
meantime the next leader. A single thread pays nothing for this, and there is no background thread.
A thread that has waited for as long as it wanted gives up, unless its job has been begun.

An exception from outside (Ctrl-C, a signal handler that raises) may come between any two lines. It
cannot leave a commit half done, for these reasons:

- The leader has ``leads`` set in its job, and ``_leave`` runs for every job, whatever happened
  before. If ``_leave`` is interrupted itself, it runs once more.
- ``_leave`` names the next leader before the old one stops leading, and running it twice has the
  same effect as running it once. Only the wake-up call may then be missing, and it is repeated.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from lockstitch.errors import Busy, Unreadable, Unsure, UsageError, Where, reason_of

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

MOST = 512
E = TypeVar("E", bound=Exception)


class CommitJob:
    """One job; the committer calls ``run``, which may raise an error that concerns this job only.

    ``until`` is the time up to which the job waits to be begun; None leaves that to the committer.
    A job that is ``alone`` shares no commit with others. For ``patience`` seconds the job does not
    lead, but waits for another leader to take it along; ``has_led`` says that none did.
    """

    __slots__ = (
        "alone", "error", "has_led", "is_done", "leads", "patience", "result", "run", "signal",
        "until",
    )  # fmt: skip

    def __init__(
        self,
        run: Callable[[Any], Any],
        until: float | None = None,
        *,
        alone: bool = False,
        patience: float = 0.0,
    ) -> None:
        self.run = run
        self.until = until
        self.alone = alone
        self.patience = patience
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = self.leads = self.has_led = False
        self.signal: threading.Lock | None = None

    def end(self, error: BaseException | None = None) -> None:
        """Mark the job as done or failed, and wake the thread that waits for it."""
        if not self.is_done:
            self.error = self.error or error
            self.is_done = True
        if self.signal is not None and self.signal.locked():
            # Releasing it twice does no harm, since its thread waits only once.
            self.signal.release()


_THE_STORE = Where("the store")


class GroupCommit:
    """Passes jobs to ``commit`` in batches; ``commit`` must end every job of a batch.

    The batch contains only the leader's job until ``commit`` is ready to write and calls
    ``gather``. ``where`` says in errors whose writes these are.
    """

    def __init__(
        self, commit: Callable[[list[CommitJob]], None], where: Where = _THE_STORE
    ) -> None:
        self._commit = commit
        self._where = where
        self._guard = threading.Lock()
        self._queue: deque[CommitJob] = deque()
        self._batch: list[CommitJob] = []
        self._leader: CommitJob | None = None
        self._thread = 0

    def do(
        self, run: Callable[[Any], Any], until: float | None = None, *, alone: bool = False
    ) -> Any:
        """Have a job committed, together with other waiting jobs or ``alone``; return its result.

        Raises ``Busy`` if the job was not begun at ``until``, a time of the ``monotonic`` clock.
        """
        return self.finish(CommitJob(run, until, alone=alone))

    def finish(self, job: CommitJob) -> Any:
        """Wait for a job, leading if necessary; return its result or raise its error."""
        if self._thread == threading.get_ident():
            # The thread would wait for itself forever.
            raise UsageError(
                "called from inside one of its own writes; a signal handler should set a flag "
                "or raise"
            ).about(*self._where)
        try:
            self._join(job)
            if job.leads and not job.is_done:
                job.has_led, self._thread = True, threading.get_ident()
                self._batch = batch = [job]
                self._commit(batch)
        finally:
            try:
                self._leave(job)
            except BaseException:
                self._leave(job)
                leader = self._leader
                if leader is not None and leader.signal is not None and leader.signal.locked():
                    leader.signal.release()
                raise
        if job.error is not None:
            raise job.error
        return job.result

    def gather(self, batch: list[CommitJob]) -> None:
        """Add the waiting jobs to the leader's batch."""
        if not self._queue:
            return  # the next leader handles jobs that arrive from now on
        with self._guard:
            while self._queue and len(batch) < MOST:
                if batch[0].alone or self._queue[0].alone:
                    return
                # First into the batch, then out of the queue: an exception in between leaves it in
                # both.
                if not self._queue[0].is_done:
                    batch.append(self._queue[0])
                self._queue.popleft()

    def put_back(self, batch: list[CommitJob]) -> None:
        """Put jobs that were not begun back into the queue, except for the leader's."""
        with self._guard:
            while len(batch) > 1 and not batch[-1].is_done:
                job = batch.pop()
                job.result = job.error = None
                if job not in self._queue:
                    self._queue.appendleft(job)

    def _join(self, job: CommitJob) -> None:
        """Become the leader if there is none; else wait until the job is done or may lead."""
        with self._guard:
            if self._leader is None and not job.patience:
                job.leads = True
                self._leader = job
                return
            job.signal = signal = threading.Lock()
            signal.acquire()
            self._queue.append(job)
        if job.patience:
            if signal.acquire(timeout=job.patience):
                return
            with self._guard:
                job.patience = 0.0
                if self._leader is None and job in self._queue:
                    self._queue.remove(job)
                    job.leads = True
                    self._leader = job
                    return
        left = -1.0 if job.until is None else max(job.until - time.monotonic(), 0.0)
        if not signal.acquire(timeout=left):
            with self._guard:
                if job in self._queue:
                    self._queue.remove(job)
                    raise Busy(
                        "another write to the store has not ended in the time that this one may "
                        "wait; nothing was written: try again"
                    )
            signal.acquire()  # The job has become the leader, or another leader has begun it.

    def _leave(self, job: CommitJob) -> None:
        """Stop waiting: remove the job if nobody has begun it, and pass the lead on."""
        if self._leader is job:
            for one in self._batch:
                one.end(Unsure("the write was interrupted: open the session again"))
        with self._guard:
            if job in self._queue:
                self._queue.remove(job)
            if not job.leads:
                return
            if self._leader is job:
                self._batch, self._thread = [], 0
                # Jobs with patience are not made leaders; they take the lead themselves.
                self._leader = next((one for one in self._queue if not one.patience), None)
            heir = self._leader
            if heir is not None:
                if heir in self._queue:
                    self._queue.remove(heir)
                heir.leads = True
            job.leads = False
            if heir is not None and heir.signal is not None and heir.signal.locked():
                heir.signal.release()


def own_copy(error: E) -> E:
    """Return a copy of an error that several threads raise, since each needs its own traceback."""
    try:
        copy = type(error)(*error.args)
    except TypeError:
        return error
    copy.__dict__.update(error.__dict__)  # the target and session that our errors carry
    copy.__cause__ = error.__cause__
    return copy


_FLAGS = (
    os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
)  # fmt: skip
_PAUSE = 0.002
_OWNERS: weakref.WeakSet[ForkedOwner] = weakref.WeakSet()


class ForkedOwner(Protocol):
    """An owner of something shared with forked children, which a child must not use or close."""

    def forget(self) -> None:
        """Let go of the shared thing in the child."""


def forget_in_children(owner: ForkedOwner) -> None:
    """Call ``forget`` of an owner in every child that this process forks."""
    _OWNERS.add(owner)


def _forget() -> None:
    for owner in list(_OWNERS):
        owner.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class LockFile:
    """The lock file at a path; it is created when first needed and never removed.

    It also locks threads of this process against each other, if each has its own ``LockFile``. One
    ``LockFile`` must be used by one thread at a time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._name = str(path)
        self._handle = -1
        self._file = (0, 0)
        self._left: _LockWait | None = None
        forget_in_children(self)

    @contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """Hold the lock; raise ``Busy`` if others held it for all of these seconds."""
        deadline = time.monotonic() + seconds
        while True:
            if self._handle < 0:
                self._open()
            try:
                if not _locked_at_once(self._handle):
                    self._wait(deadline)
            except TimeoutError as error:
                raise Busy(
                    f"another process has held the lock for {seconds:.3g} seconds and makes no "
                    "progress; nothing was written: try again, or see what that process is doing"
                ).about(self.path) from error
            except OSError as error:
                raise Unreadable(f"it cannot be locked: {reason_of(error)}").about(
                    self.path
                ) from error
            # If the path now names another file, this lock protects nothing.
            with suppress(FileNotFoundError):
                found = os.lstat(self._name)
                if (found.st_dev, found.st_ino) == self._file:
                    break
            self.close()
        try:
            yield
        finally:
            try:
                if sys.platform == "win32":
                    msvcrt.locking(self._handle, msvcrt.LK_UNLCK, 1)
                else:
                    fcntl.flock(self._handle, fcntl.LOCK_UN)
            except OSError:
                self.close()

    def close(self) -> None:
        """Close the file."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def forget(self) -> None:
        """Close the file in a forked child, so that its lock cannot outlive the parent."""
        self.close()

    def _open(self) -> None:
        try:
            handle = os.open(self.path, _FLAGS, 0o600)
        except OSError as error:
            raise Unreadable(f"it cannot be opened for locking: {reason_of(error)}").about(
                self.path
            ) from error
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            os.close(handle)
            raise Unreadable("it is not a plain file and cannot be locked").about(self.path)
        self._handle, self._file = handle, (found.st_dev, found.st_ino)

    def _wait(self, deadline: float) -> None:
        """Wait for the lock; the open file is handed to the waiting thread until that succeeds."""
        if deadline <= time.monotonic():
            raise TimeoutError
        if self._left is not None and not self._left.is_over:
            # If the lock is never released, one waiting thread is enough.
            while not _locked_at_once(self._handle):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                time.sleep(min(left, _PAUSE))
            return
        handle, self._handle = self._handle, -1
        waiting = _LockWait(handle)
        try:
            waiting.start()
            waiting.join(deadline - time.monotonic())
            self._handle = handle
        except BaseException:
            waiting.give_up()
            self._left = waiting
            raise


class _LockWait:
    """A thread that waits for the lock in the kernel's queue, which is fair and has no time limit.

    A caller that stops waiting leaves the open file to this thread, which closes it in the end.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._guard = threading.Lock()
        self._ended = threading.Lock()
        self._ended.acquire()
        self._error: OSError | None = None
        self.is_over = False
        self._is_given_up = False

    def start(self) -> None:
        """Begin to wait."""
        threading.Thread(target=self._run, name="lockstitch-lock", daemon=True).start()

    def _run(self) -> None:
        try:
            if sys.platform == "win32":
                while not _locked_at_once(self._handle):
                    time.sleep(_PAUSE)
            else:
                fcntl.flock(self._handle, fcntl.LOCK_EX)
        except OSError as error:
            self._error = error
        with self._guard:
            self.is_over = True
            if self._is_given_up:
                os.close(self._handle)
        self._ended.release()

    def join(self, seconds: float) -> None:
        """Wait for the thread; raise ``TimeoutError`` if that takes too long."""
        if not self._ended.acquire(timeout=max(seconds, 0)):
            raise TimeoutError
        if self._error is not None:
            raise self._error

    def give_up(self) -> None:
        """Leave the open file to the thread, or close it if the thread has ended."""
        with self._guard:
            self._is_given_up = True
            if self.is_over:
                os.close(self._handle)


def _locked_at_once(handle: int) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
