"""One writer at a time: threads by group commit, processes by a lock file.

Of many threads that write, whoever comes first does the work of all who wait.

A thread that finds nobody at work leads: when it may write, it takes its own job and all that
have queued up, has them committed together, and hands the lead to the first of those who came in
the meantime. A thread alone pays for no hand-over, and there is no thread in the background.
Whoever has waited for as long as they would, and whose job nobody has begun, goes away.

Why an exception from outside (Ctrl-C, a signal handler that raises) can tear nothing, although it
may come between any two lines:

- Whoever leads has ``leads`` set in their job, and ``_leave`` runs for every job, whatever
  happened before; if it is torn itself, it runs once more.
- ``_leave`` names the next leader before the old one stops leading, and doing it twice is the
  same as doing it once. What may be missing then is the wake-up call, which is repeated.
- Only the interpreter's own locks are used: ``with`` cannot be left with one of them locked.
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
    """One piece of work; ``run`` is for the committer to call, and may raise for itself.

    ``until`` is the moment up to which it waits to be begun, None for as long as the committer
    would have it. One that is ``alone`` is in no batch with others. For ``patience`` seconds it
    does not lead, but waits for another job to take it along; ``has_led`` says that none did.
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
        """Note that it is done, or why it failed, and wake the thread that waits for it."""
        if not self.is_done:
            self.error = self.error or error
            self.is_done = True
        if self.signal is not None and self.signal.locked():
            # Once more does no harm, since its thread waits only once.
            self.signal.release()


_THE_STORE = Where("the store")


class GroupCommit:
    """Passes jobs to ``commit``, a batch at a time; it must end every one of them.

    The batch is the leader's job alone until ``commit`` calls ``gather``, when it may write.
    ``where`` says in an error whose writes these are.
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
        """Have a piece of work committed, with whatever else waits for it, or ``alone``.

        Raises ``Busy`` if it was not begun ``until`` then; the clock is that of ``monotonic``.
        """
        return self.finish(CommitJob(run, until, alone=alone))

    def finish(self, job: CommitJob) -> Any:
        """See a job through, and return its result or raise its error."""
        if self._thread == threading.get_ident():
            # It would wait for itself for ever.
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
        """Take all who wait into the leader's batch."""
        if not self._queue:
            return  # whoever comes now is done by the next leader
        with self._guard:
            while self._queue and len(batch) < MOST:
                if batch[0].alone or self._queue[0].alone:
                    return
                # Known before it is taken: torn in between, it is in both, never in none.
                if not self._queue[0].is_done:
                    batch.append(self._queue[0])
                self._queue.popleft()

    def put_back(self, batch: list[CommitJob]) -> None:
        """Have all but the leader's job of a batch done later, if nothing of them was."""
        with self._guard:
            while len(batch) > 1 and not batch[-1].is_done:
                job = batch.pop()
                job.result = job.error = None
                if job not in self._queue:
                    self._queue.appendleft(job)

    def _join(self, job: CommitJob) -> None:
        """Lead, if nobody does; else wait until the job is done or it is our turn to lead."""
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
            signal.acquire()  # It leads, or somebody has begun it.

    def _leave(self, job: CommitJob) -> None:
        """Wait no more: what nobody has begun is not done, and a lead is passed on."""
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
                # Those who wait patiently come forward by themselves.
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
    """Return an error for one of several threads: a traceback belongs to one."""
    try:
        copy = type(error)(*error.args)
    except TypeError:
        return error
    copy.__dict__.update(error.__dict__)  # what it is about, of an error of ours
    copy.__cause__ = error.__cause__
    return copy


_FLAGS = (
    os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
)  # fmt: skip
_PAUSE = 0.002
_OWNERS: weakref.WeakSet[ForkedOwner] = weakref.WeakSet()


class ForkedOwner(Protocol):
    """Has something that a forked child shares, and must let go of, or leave alone."""

    def forget(self) -> None:
        """Let go of it, in the child."""


def forget_in_children(owner: ForkedOwner) -> None:
    """Have an owner forget what it has in every child that this process forks."""
    _OWNERS.add(owner)


def _forget() -> None:
    for owner in list(_OWNERS):
        owner.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class LockFile:
    """The lock file at a path; it is made when it is first needed and stays.

    It locks threads of this process against each other, too, if each has a ``LockFile`` of its
    own; one ``LockFile`` must be used by one thread at a time.
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
        """Hold the lock; raises ``Busy`` if others held it for all that time."""
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
            # The lock is worth nothing if another file has the name by now.
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
        """Let go of the file."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def forget(self) -> None:
        """In a forked child: let go of the file, or its lock would outlive the parent."""
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
        """Wait for the lock; the open file is ours again only if that went well."""
        if deadline <= time.monotonic():
            raise TimeoutError
        if self._left is not None and not self._left.is_over:
            # One thread in the queue for a lock that nobody gives back is enough.
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

    Whoever stops waiting leaves the open file to the thread, which closes it in the end.
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
        """Wait for the thread; raises ``TimeoutError`` if that takes too long."""
        if not self._ended.acquire(timeout=max(seconds, 0)):
            raise TimeoutError
        if self._error is not None:
            raise self._error

    def give_up(self) -> None:
        """Leave the open file to the thread, or close it if that has ended."""
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
