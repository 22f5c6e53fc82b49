"""What the operating system tells of processes: which are there, since when, and where they work.

A process is told by its number and the moment it started, since numbers are used again.

Which running programs have a session open: nothing is written to it then.

A repair answers a call that looks open. While its program lives, the call may be at work, and
its real result would arrive beside the answer and be ignored for good.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from msgspec import Struct

from lockstitch.errors import Busy
from lockstitch.files import os_files

_SCRIPT_WORDS = 2  # the interpreter and the script
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_PS_TIME = "%a %b %d %H:%M:%S %Y"


class Process(Struct, frozen=True):
    """A running process: its number, its working directory, and when it started, since 1970."""

    pid: int
    folder: str
    started: float


def namespace() -> str:
    """Return the namespace that process numbers belong to; a fork can be in a new one."""
    if sys.platform != "linux":
        return sys.platform
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def ending_with(parent: int) -> Callable[[], None] | None:
    """Return what makes the process that calls it end when its parent does; only Linux has that.

    A parent that is gone by then counts as well.
    """
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - few need it, and it takes a while to load

    library = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        library.prctl(_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return prepare


def start_moment(pid: int) -> str | None:
    """Return the moment a process started, "" if none is alive, None if that cannot be told.

    On Linux it is a number of ticks since the machine started, on macOS a date.
    """
    found: str | None = None
    if sys.platform == "linux":
        found = _start_on_linux(pid)
    elif sys.platform == "darwin":
        found = _start_by_ps(pid)
    return found


def started_at(pid: int) -> float | None:
    """Return when a process started, in seconds since 1970; None if that cannot be told."""
    moment = start_moment(pid)
    if not moment:
        return None
    with suppress(OSError, ValueError):
        if moment.isdecimal():
            return _boot_time() + int(moment) / os.sysconf("SC_CLK_TCK")
        return time.mktime(time.strptime(moment, _PS_TIME))
    return None


@cache
def _boot_time() -> int:
    for line in Path("/proc/stat").read_text("ascii").splitlines():
        if line.startswith("btime "):
            return int(line.split()[1])
    raise ValueError("no time of boot")


def _start_on_linux(pid: int) -> str | None:
    try:
        # The name in parentheses may hold anything, spaces and parentheses too.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return "" if _is_nobody(pid) else None
    return "" if fields[0] in {"Z", "X"} else fields[19]


def _is_nobody(pid: int) -> bool:
    # Asked for itself, because processes of others may be hidden in /proc.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _start_by_ps(pid: int) -> str | None:
    command = ["/bin/ps", "-p", str(pid), "-o", "lstart="]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("ascii", "replace").strip()


def processes_named(names: Collection[str]) -> Iterator[Process]:
    """Give the running processes of a program, as far as this user may look; Linux only."""
    if sys.platform != "linux" or not names:
        return
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        with suppress(OSError):
            if pid == os.getpid() or names_of(pid).isdisjoint(names):
                continue
            since = started_at(pid)
            if since is not None:
                yield Process(pid, str((entry / "cwd").readlink()), since)


def names_of(pid: int) -> set[str]:
    """Return the names under which a process may be known: its own, and those of its script."""
    folder = Path("/proc", str(pid))
    own = (folder / "comm").read_text("utf-8", "replace").strip()
    given = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    words = [word for word in given if word and not word.startswith("-")][:_SCRIPT_WORDS]
    return {own, *(Path(word).name.partition(".")[0] for word in words)}


def environ_of(pid: int) -> dict[str, str] | None:
    """Return the environment that a process was started with; None if it may not be read."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    pairs = (os.fsdecode(one).partition("=") for one in raw.split(b"\0") if one)
    return {name: value for name, _, value in pairs}


# A clock that is read in two ways, or a file system with coarse times, may be off by so much.
SLACK = 2.0


class SessionUser(Struct, frozen=True):
    """A process that has a session open; one that is not ``sure`` only may have.

    ``record`` is the file by which it is known, where only that can be asked.
    """

    pid: int
    sure: bool = True
    record: str = ""


def require_closed(title: str, users: Iterable[SessionUser], way: str = "") -> None:
    """Raise Busy if any process has a session open; ``way`` says what else can be done."""
    found = sorted(users, key=lambda user: not user.sure)
    if not found:
        return
    user = found[0]
    open_in = "has" if user.sure else "works in the folder of this session and may have"
    if user.record:
        raise Busy(
            f"{title} (process {user.pid}, elsewhere) had this session open and has not said that "
            f"it ended; nothing was changed: close it first, or remove {user.record} if it is gone"
        )
    raise Busy(
        f"{title} (process {user.pid}) {open_in} it open; nothing was changed: close it first{way}"
    )


def writers_of_file(path: Path) -> Iterator[SessionUser]:
    """Give the processes that have a file open for writing: a session's own, or a lock's."""
    with suppress(OSError):
        handle = os.open(path, os_files.READING)
        try:
            yield from (SessionUser(pid) for pid in os_files.holders(handle) if pid != os.getpid())
        finally:
            os.close(handle)


def working_in_folder(
    names: Iterable[str], path: str, is_project: Callable[[str], bool]
) -> Iterator[SessionUser]:
    """Give the processes that work in a session's folder and may have written it.

    For programs that neither keep the file open nor say which session they have: one that started
    after the last change of the file has not written it.
    """
    try:
        changed = Path(path).stat().st_mtime
    except OSError:
        return
    for process in processes_named(frozenset(names)):
        if process.started <= changed + SLACK and is_project(process.folder):
            yield SessionUser(process.pid, sure=False)
