"""A lock file beside a store: one writer at a time, and those who wait are served in turn."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lockstitch.errors import Busy, Unreadable, reason_of

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_FLAGS = (
    os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
)  # fmt: skip
_PAUSE = 0.002
_OPEN: weakref.WeakSet[LockFile] = weakref.WeakSet()


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
        _OPEN.add(self)

    @contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """Hold the lock; raises ``Busy`` if others held it for all that time."""
        self._take(time.monotonic() + seconds, seconds)
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

    def _take(self, deadline: float, seconds: float) -> None:
        while True:
            if self._handle < 0:
                self._handle = _opened(self.path)
                found = os.fstat(self._handle)
                self._file = (found.st_dev, found.st_ino)
            try:
                if not _locked_at_once(self._handle):
                    self._wait(deadline)
            except TimeoutError as error:
                raise Busy(
                    f"{self.path}: another process has held the lock for {seconds:.3g} seconds"
                    " and does not go on; nothing was written: try again, or look what that process"
                    " is doing"
                ) from error
            except OSError as error:
                raise Unreadable(f"{self.path}: cannot be locked: {reason_of(error)}") from error
            # The lock is worth nothing if another file has the name by now.
            with suppress(FileNotFoundError):
                found = os.lstat(self._name)
                if (found.st_dev, found.st_ino) == self._file:
                    return
            self.close()

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
        self._bell = threading.Lock()
        self._bell.acquire()
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
        self._bell.release()

    def join(self, seconds: float) -> None:
        """Wait for the thread; raises ``TimeoutError`` if that takes too long."""
        if not self._bell.acquire(timeout=max(seconds, 0)):
            raise TimeoutError
        if self._error is not None:
            raise self._error

    def give_up(self) -> None:
        """Leave the open file to the thread, or close it if that has ended."""
        with self._guard:
            self._is_given_up = True
            if self.is_over:
                os.close(self._handle)


def _opened(path: Path) -> int:
    try:
        handle = os.open(path, _FLAGS, 0o600)
    except OSError as error:
        raise Unreadable(f"{path}: cannot be opened for locking: {reason_of(error)}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Unreadable(f"{path}: is not a plain file and cannot be locked")
    return handle


def _locked_at_once(handle: int) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _forget() -> None:
    # The lock belongs to the open file, which a forked child shares: it would outlive the parent.
    for lock_file in list(_OPEN):
        lock_file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
