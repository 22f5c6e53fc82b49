"""What the operating system offers for writing files safely, and what it knows of processes.

This is about drafts, swapping, syncing, and finding out who is writing. Every function is one small
step without a policy of its own; ``replace`` decides. A process is identified by its number and the
moment it started, since numbers are reused. While a program has a session open, nothing is written
to it: a call that looks open may be running there, and its real result would arrive beside the
answer and be lost.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from msgspec import Struct

from lockstitch.errors import Busy
from lockstitch.files import read as inputs
from lockstitch.files.read import Folder

if sys.platform != "win32":
    import fcntl

PREFIX = ".lockstitch-"
SUFFIX = ".tmp"
STALE = 3600.0
CHUNK = 1 << 20
_EXCHANGE = 2  # RENAME_EXCHANGE
_HERE = -100  # AT_FDCWD

_BINARY = getattr(os, "O_BINARY", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
READING = inputs.FLAGS | inputs.NOFOLLOW
CREATING = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | _BINARY | _CLOEXEC | inputs.NOFOLLOW
APPENDING = os.O_WRONLY | os.O_APPEND | _BINARY | _CLOEXEC | inputs.NOFOLLOW


class OpenFile(Struct):
    """An open file and its name; a draft that is ``kept`` is not removed."""

    folder: Folder
    name: str
    handle: int
    kept: bool = False

    @property
    def path(self) -> Path:
        """The path of the file, as long as its folder has not moved."""
        return self.folder.path / self.name

    def close(self) -> None:
        """Close the handle, once."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)


@contextmanager
def open_draft(folder: Folder | Path, flags: int = CREATING) -> Iterator[OpenFile]:
    """Create a private temporary file; whatever has its name at the end is removed."""
    where = folder if isinstance(folder, Folder) else Folder(folder)
    made = OpenFile(where, f"{PREFIX}{secrets.token_hex(16)}{SUFFIX}", -1)
    try:
        made.handle = where.open(made.name, flags)
        yield made
    finally:
        made.close()
        if not made.kept:
            where.remove(made.name)


def remove_stale_drafts(folder: Folder | Path, now: float | None = None) -> int:
    """Remove drafts that killed processes of this user left behind; return how many."""
    limit = (time.time() if now is None else now) - STALE
    where = folder if isinstance(folder, Folder) else Folder(folder)
    removed = 0
    with suppress(OSError):
        for name in os.listdir(where.path if where.handle is None else where.handle):  # noqa: PTH208
            if not (name.startswith(PREFIX) and name.endswith(SUFFIX)):
                continue
            with suppress(OSError):
                found = where.look(name)
                # ctime, because a draft that took part in a swap has the mtime of the file it
                # replaced.
                is_stale = found is not None and found.st_ctime < limit
                if found is None or not is_stale or not stat.S_ISREG(found.st_mode):
                    continue
                if os.name == "nt" or found.st_uid == os.geteuid():
                    where.remove(name)
                    removed += 1
    return removed


def read_from(handle: int, start: int = 0, size: int = sys.maxsize) -> bytes:
    """Return the bytes of an open file from a position on, at most ``size`` of them."""
    pieces = []
    end = start + size
    while start < end:
        count = min(CHUNK, end - start)
        if sys.platform == "win32":
            os.lseek(handle, start, os.SEEK_SET)
            piece = os.read(handle, count)
        else:
            piece = os.pread(handle, count, start)
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def write_all(handle: int, data: bytes) -> None:
    """Write all of the data, or raise."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def adopt_owner(handle: int, old: os.stat_result, source: int | None = None) -> None:
    """Give a new file the owner, the access list and the mode of an old one, where allowed.

    The mode comes last, because a change of owner clears some of its bits.
    """
    if sys.platform == "win32":
        return
    try:
        os.fchown(handle, old.st_uid, old.st_gid)
    except OSError:
        with suppress(OSError):
            os.fchown(handle, -1, old.st_gid)
    if source is not None and sys.platform == "linux":
        # Extended attributes include the access list, without which the mode would mean something
        # else.
        with suppress(OSError):
            wanted = set(os.listxattr(source))
            for name in set(os.listxattr(handle)) - wanted:
                with suppress(OSError):
                    os.removexattr(handle, name)
            for name in wanted:
                with suppress(OSError):
                    os.setxattr(handle, name, os.getxattr(source, name))
    os.fchmod(handle, stat.S_IMODE(old.st_mode))


def sync_file(handle: int) -> None:
    """Make the content of an open file durable."""
    if sys.platform == "darwin":
        # On macOS, fsync leaves the data in the cache of the drive.
        with suppress(OSError):
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
            return
    os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; Windows has no way to ask for that."""
    Folder(folder).sync()


def is_locked(handle: int) -> bool:
    """Try to lock an open file against other repairs; return whether someone else has the lock."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def swap_names(folder: Folder, new: str, target: str) -> bool:
    """Put ``new`` in place of ``target`` in one step, so that ``new`` then names the old file.

    If the file system cannot exchange two names, a hard link keeps the old file. If it has no hard
    links either, the old file is gone and this returns False.
    """
    if _exchange_names(folder, new, target):
        return True
    aside = f"{new.removesuffix(SUFFIX)}.old{SUFFIX}"
    try:
        folder.link(target, aside)
    except FileNotFoundError:
        raise
    except (OSError, NotImplementedError):
        folder.rename(new, target)
        return False
    try:
        folder.rename(new, target)
        folder.rename(aside, new)
    finally:
        folder.remove(aside)
    return True


def _exchange_names(folder: Folder, one: str, other: str) -> bool:
    """Exchange two names in one step; return False if the file system does not offer that."""
    if sys.platform != "linux":
        return False
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    at = _HERE if folder.handle is None else folder.handle
    names = [os.fsencode(folder.path / n if folder.handle is None else n) for n in (one, other)]
    if call(at, names[0], at, names[1], _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in inputs.NOT_OFFERED:
        return False
    raise OSError(number, os.strerror(number), str(folder.path / other))


def count_cores() -> int:
    """Return the number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class WriterWatch(Struct):
    """Tells whether anyone has a file of a folder open for writing.

    Linux knows it for all users and containers: it grants a read lease only on a file without
    writers. The lease is returned at once; a program that opens the file in that instant waits for
    it. Where leases mean nothing (network file systems, macOS), the list of processes is used
    instead.
    """

    folder: Folder
    leases: bool | None = None

    def is_held(self, handle: int) -> bool:
        """Whether a file, open here only for reading, is open for writing anywhere now."""
        if is_leased(handle):
            return False
        if self.leases is None:
            # Nobody can have a new file open for writing, so it gets a lease wherever there are
            # leases.
            with open_draft(self.folder, (CREATING & ~os.O_RDWR) | os.O_RDONLY) as new:
                self.leases = is_leased(new.handle)
        return self.leases or bool(holders(handle))


def is_leased(handle: int) -> bool:
    """Whether a file, open here only for reading, could be leased for a moment."""
    if sys.platform != "linux":
        return False
    try:
        # The default signal for a broken lease would end the process.
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True


def holders(handle: int) -> list[int]:
    """Return the processes that have an open file open for writing, as far as that can be seen."""
    pids: list[int] = []
    if sys.platform == "linux":
        found = os.fstat(handle)
        pids = [int(one.name) for one in Path("/proc").glob("[0-9]*") if _is_writing(one, found)]
    elif sys.platform == "darwin":
        path = fcntl.fcntl(handle, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")
        pids = openers(os.fsdecode(path))
    return pids


def openers(path: str) -> list[int]:
    """Return the processes that have a file open for writing, by its path; it is not opened."""
    # macOS has neither leases nor a table of processes.
    command = ["/usr/sbin/lsof", "-w", "-F", "pa", "--", path]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return []
    return writers_of(done.stdout.decode("utf-8", "replace"))


def writers_of(listing: str) -> list[int]:
    """Return the writers in a listing: ``p`` and a number, then ``a`` and r, w or u for both."""
    pids: list[int] = []
    pid = 0
    for line in listing.splitlines():
        if line.startswith("p"):
            pid = int(line[1:])
        elif line.startswith("a") and line[1:] in ("w", "u") and pid not in pids:
            pids.append(pid)
    return pids


def _is_writing(process: Path, file: os.stat_result) -> bool:
    """Whether a process, given by its folder in /proc, has a file open for writing."""
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                found = descriptor.stat()
                if (found.st_dev, found.st_ino) != (file.st_dev, file.st_ino):
                    continue
                lines = (process / "fdinfo" / descriptor.name).read_text("ascii").splitlines()
                flags = next(line for line in lines if line.startswith("flags:"))
                if int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                    return True
    return False


_SCRIPT_WORDS = 2  # the interpreter and the script
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_PS_TIME = "%a %b %d %H:%M:%S %Y"


class Process(Struct, frozen=True):
    """A running process: its number, its working directory, and its start in seconds since 1970."""

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
    """Return a function that makes its process end when the parent does; Linux only.

    If the parent is gone by the time it is called, the process ends as well.
    """
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        library.prctl(_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return prepare


def start_moment(pid: int) -> str | None:
    """Return the moment a process started, "" if it is not alive, None if that is unknown.

    On Linux the moment is a number of ticks since the machine started, on macOS a date.
    """
    found: str | None = None
    if sys.platform == "linux":
        try:
            status = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
            # The name in parentheses may hold anything, even spaces and parentheses.
            fields = status.rpartition(")")[2].split()
            found = "" if fields[0] in {"Z", "X"} else fields[19]
        except OSError:
            # Ask the process itself, because /proc may hide the processes of other users.
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                found = ""
            except OSError:
                pass
    elif sys.platform == "darwin":
        command = ["/bin/ps", "-p", str(pid), "-o", "lstart="]
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(command, capture_output=True, timeout=10, check=False)  # noqa: S603
            found = done.stdout.decode("ascii", "replace").strip()
    return found


def started_at(pid: int) -> float | None:
    """Return when a process started, in seconds since 1970; None if that is unknown."""
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
    raise ValueError("the boot time is not available")


def processes_named(names: Collection[str]) -> Iterator[Process]:
    """Yield the running processes of a program that this user may look at; Linux only."""
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
    """Return the names under which a process may be known: its own and those of its script."""
    folder = Path("/proc", str(pid))
    own = (folder / "comm").read_text("utf-8", "replace").strip()
    arguments = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    words = [word for word in arguments if word and not word.startswith("-")][:_SCRIPT_WORDS]
    return {own, *(Path(word).name.partition(".")[0] for word in words)}


def environ_of(pid: int) -> dict[str, str] | None:
    """Return the environment that a process was started with; None if it may not be read."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    pairs = (os.fsdecode(one).partition("=") for one in raw.split(b"\0") if one)
    return {name: value for name, _, value in pairs}


# Two readings of a clock, or a file system with coarse times, may differ by this much.
SLACK = 2.0


class SessionUser(Struct, frozen=True):
    """A process that has a session open, or only may have, if it is not ``sure``.

    ``record`` is the file that says so, if the process itself cannot be asked.
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
            f"{title} (process {user.pid}, elsewhere) had this session open and has not reported "
            f"that it ended; nothing was changed: close it first, or remove {user.record} if it "
            "is gone"
        )
    raise Busy(
        f"{title} (process {user.pid}) {open_in} it open; nothing was changed: close it first{way}"
    )


def writers_of_file(path: Path) -> Iterator[SessionUser]:
    """Yield the processes that have a file open for writing: a session's own, or a lock's."""
    with suppress(OSError):
        handle = os.open(path, READING)
        try:
            yield from (SessionUser(pid) for pid in holders(handle) if pid != os.getpid())
        finally:
            os.close(handle)


def working_in_folder(
    names: Iterable[str], path: str, is_project: Callable[[str], bool]
) -> Iterator[SessionUser]:
    """Yield the processes that work in a session's folder and may have written it.

    This is for programs that neither keep the file open nor say which session they have. A process
    that started after the last change of the file has not written it.
    """
    try:
        changed = Path(path).stat().st_mtime
    except OSError:
        return
    for process in processes_named(frozenset(names)):
        if process.started <= changed + SLACK and is_project(process.folder):
            yield SessionUser(process.pid, sure=False)
