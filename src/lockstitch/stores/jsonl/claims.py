"""Who holds a session's file, and whose turn it is to write: small files in ``.leases``.

None of this is needed to read a session or to keep it right: which writer counts is in the file
itself. A claim says that the last writer is alive, and the lock keeps two writers from adding
lines at once. A process that was stopped while it had the lock is passed by: its lines, when it
wakes, come behind the next writer's opening line and count for nothing.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from lockstitch import disk
from lockstitch.stores.holders import Holder, clock, is_gone, myself
from lockstitch.stores.watching import Sighted, Watching

if sys.platform != "win32":
    import fcntl

_SIZE = 512
_STEPS = (0.0005, 0.001, 0.002, 0.005, 0.01)
_WRITING = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class Claim(Struct, frozen=True):
    """A holder, how long it may be silent, and the moment on its clock when that is over."""

    holder: Holder
    seconds: float
    deadline: float


class OwnClaim:
    """The claim of a writer of this process, in a file of its own that a crash leaves behind."""

    def __init__(self, path: Path, holder: Holder, seconds: float) -> None:
        self.path = path
        self._claim = Claim(holder, seconds, 0.0)
        self._guard = threading.Lock()
        self._handle = os.open(path, _WRITING | os.O_CREAT | os.O_EXCL, 0o600)
        self.beat()

    @property
    def holder(self) -> Holder:
        """Whose claim it is."""
        return self._claim.holder

    def beat(self) -> None:
        """Say that the holder is alive; in place, so that a full disk does not matter."""
        with self._guard:
            if self._handle >= 0:
                self._claim = structs.replace(self._claim, deadline=clock() + self._claim.seconds)
                os.pwrite(self._handle, msgspec.json.encode(self._claim).ljust(_SIZE), 0)

    def is_due(self) -> bool:
        """Whether a third of the time of silence is over."""
        return clock() > self._claim.deadline - self._claim.seconds * 2 / 3

    def drop(self) -> None:
        """Give the claim up: all that was written is durable."""
        self._close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def leave(self) -> None:
        """Give the claim up, but leave its file, because something may not be durable."""
        self._claim = structs.replace(self._claim, seconds=-clock())
        with suppress(OSError):
            self.beat()
        self._close()

    def _close(self) -> None:
        with self._guard:
            handle, self._handle = self._handle, -1
            if handle >= 0:
                os.close(handle)


def read_claim(path: Path) -> Claim | None:
    """Read the claim of a writer; None if it gave it up or cannot be understood."""
    for step in _STEPS:
        try:
            return msgspec.json.decode(path.read_bytes(), type=Claim)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError:
            time.sleep(step)  # It may have been caught while it was written.
    return None


class Watch:
    """Tells whether holders of claims are alive; of those of another boot, by what changes."""

    def __init__(self, seconds: float) -> None:
        self._here = myself()
        self._watching = Watching(seconds)

    def is_alive(self, claim: Claim, path: Path) -> bool:
        """Whether the holder of a claim, which is kept at ``path``, has to be waited for."""
        holder = claim.holder
        if is_gone(holder):
            return False
        if holder.boot == self._here.boot:
            # A deadline further away than that was set before the clock began anew.
            return 0 < claim.deadline - clock() <= claim.seconds + 1
        beside = noted_at(path)
        seen = Sighted(holder.token, "", claim.deadline, claim.seconds, _text(beside))
        left = self._watching.see(holder.token, seen)
        if left and (note := self._watching.note(holder.token, seen)):
            # Without it, the next process begins to watch anew.
            with suppress(OSError):
                beside.write_text(note, "ascii")
        return left > 0


def noted_at(path: Path) -> Path:
    """Name the file beside a claim in which is noted who saw it when."""
    return path.with_name(f"{path.name}.seen")


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""


@contextmanager
def locked(path: Path, pass_by: Callable[[float], bool]) -> Iterator[None]:
    """Have the lock of a session; ``pass_by`` is asked with the seconds waited while it is taken.

    It may raise, or answer True: then the lock is replaced by a new one.
    """
    handle = _taken(path, pass_by)
    try:
        yield
    finally:
        with suppress(OSError):
            # A child forked meanwhile shares the open file: closing it would not unlock it.
            fcntl.flock(handle, fcntl.LOCK_UN)
        with suppress(OSError):
            os.close(handle)


def _taken(path: Path, pass_by: Callable[[float], bool]) -> int:
    start = time.monotonic()
    for count in range(sys.maxsize):
        handle = _try(path)
        if handle is not None:
            return handle
        if pass_by(time.monotonic() - start):
            return _replaced(path)
        time.sleep(_STEPS[min(count, len(_STEPS) - 1)])
    raise AssertionError


def _try(path: Path) -> int | None:
    handle = os.open(path, _WRITING | os.O_CREAT, 0o600)
    if not disk.is_locked(handle) and _is_at(path, handle):
        return handle
    os.close(handle)
    return None


def _is_at(path: Path, handle: int) -> bool:
    """Whether a path still names an open file."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(handle))


def _replaced(path: Path) -> int:
    draft = path.with_name(f"{disk.PREFIX}{secrets.token_hex(16)}{disk.SUFFIX}")
    handle = os.open(draft, _WRITING | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        disk.is_locked(handle)
        draft.replace(path)
    except BaseException:
        os.close(handle)
        draft.unlink(missing_ok=True)
        raise
    return handle
