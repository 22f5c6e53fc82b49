"""Where a store of lines keeps what: ``<session>.jsonl``, ``blobs``, ``bases`` and ``.leases``.

Claims and locks in ``.leases`` are not needed to read a session or to keep it right: which writer
counts is in the file itself. A claim says that the last writer is alive, and the lock keeps two
writers from adding lines at once. A process that was stopped while it had the lock is passed by:
its lines, when it wakes, come behind the next writer's opening line and count for nothing.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from lockstitch.errors import Damaged, Unreadable, Where, reason_of
from lockstitch.files import os_files
from lockstitch.journal.records import NEW, Head, check_session_name, is_session_name
from lockstitch.stores.jsonl.log import (
    Base,
    LogState,
    LogWalk,
    OpeningLine,
    RecordLine,
    parse_line,
    walk_file,
)
from lockstitch.stores.leases import Holder, HolderSighting, HolderWatch, clock, is_gone, myself

SUFFIX = ".jsonl"
_NAMES = re.compile(rb"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_BASE = re.compile(r"[0-9a-f]{32}")
_MOST_KNOWN = 4096
_ENDING = 80
# No first line of a fork is longer.
_FIRST = 4096
_APPENDING = (os_files.APPENDING & ~os.O_WRONLY) | os.O_RDWR


class Files:
    """The files of a store, and how far each was read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.leases = folder / ".leases"
        self.blobs = folder / "blobs"
        self.bases = folder / "bases"
        self._known: dict[str, tuple[bytes, LogState]] = {}
        self._durable: set[Path] = set()
        self._guard = threading.Lock()

    def log(self, session: str) -> Path:
        """The file of a session."""
        return self.folder / f"{check_session_name(session)}{SUFFIX}"

    def base(self, name: str) -> Path:
        """The file whose first records forks share."""
        if not _BASE.fullmatch(name):
            raise Damaged(f"{name!r} is no name of a file in {self.bases}")
        return self.bases / f"{name}{SUFFIX}"

    def lock(self, session: str) -> Path:
        """The lock of a session's writers."""
        return self.leases / f"{session}.lock"

    def claim(self, session: str, token: str) -> Path:
        """The claim of one writer."""
        return self.leases / f"{session}.{token}"

    def exists(self, session: str) -> bool:
        """Whether a session has a file, or anything in its place."""
        try:
            self.log(session).lstat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unreadable(session, reason_of(error)) from error
        return True

    def sessions(self) -> list[str]:
        """The names of all sessions, in order."""
        try:
            names = [one.name.removesuffix(SUFFIX) for one in self.folder.glob(f"*{SUFFIX}")]
        except OSError as error:
            raise Unreadable(f"it cannot be read: {reason_of(error)}").about(self.folder) from error
        return sorted(name for name in names if is_session_name(name))

    def ensure(self, folder: Path) -> None:
        """Make a folder, and its name durable, also if another process made it just now."""
        if folder in self._durable and folder.is_dir():
            return
        folder.mkdir(mode=0o700, parents=folder == self.folder, exist_ok=True)
        os_files.sync_folder(folder.parent)
        self._durable.add(folder)

    def forget(self, session: str) -> None:
        """Read a session's file from its first byte on the next time."""
        with self._guard:
            self._known.pop(session, None)

    def tidy(self) -> None:
        """Remove the drafts that killed processes left: they hold what may have to go."""
        for folder in (self.folder, self.bases, self.blobs, *self.blobs.glob("[0-9a-f][0-9a-f]")):
            os_files.remove_stale_drafts(folder)

    def size(self) -> int:
        """Count the bytes of all files but those of the writers, each once whatever its names."""
        sizes: dict[int, int] = {}
        for folder in (self.folder, self.bases, self.blobs, *self.blobs.glob("[0-9a-f][0-9a-f]")):
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    sizes[found.st_ino] = found.st_size if stat.S_ISREG(found.st_mode) else 0
        return sum(sizes.values())

    @contextmanager
    def reading(self, session: str) -> Iterator[int]:
        """Open a session's file; raises ``Unreadable`` if there is none."""
        handle = self._opened(session, os_files.READING)
        try:
            yield handle
        except OSError as error:
            raise self._unreadable(session, reason_of(error)) from error
        finally:
            os.close(handle)

    def writing(self, session: str, *, create: bool) -> int:
        """Open a session's file for adding to it; a new one is durable when it is first used."""
        if create and not self.exists(session):
            try:
                return os.open(self.log(session), os_files.CREATING, 0o600)
            except FileExistsError:
                pass  # Another process was quicker.
        return self._opened(session, _APPENDING)

    def _opened(self, session: str, flags: int) -> int:
        try:
            handle = os.open(self.log(session), flags)
        except FileNotFoundError as error:
            raise Unreadable(f"there is none in {self.folder}").about(session=session) from error
        except OSError as error:
            raise self._unreadable(session, reason_of(error)) from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise self._unreadable(session, "not a regular file")
        return handle

    def _unreadable(self, session: str, why: str) -> Unreadable:
        return Unreadable(f"its file cannot be read: {why}").about(self.folder, session)

    def walk(self, session: str, handle: int, *, upto: int | None = None) -> LogWalk:
        """Begin to go through a session's file, from where it was read to, if that is not late."""
        ending, state = self._known.get(session, (b"", LogState()))
        is_late = upto is not None and state.seq > upto
        if is_late or _ending(handle, state) != ending:
            state = LogState()
        return LogWalk(state, session)

    def learn(self, session: str, handle: int, walk: LogWalk) -> LogState:
        """Keep how far a file was read, and tell it."""
        state = walk.state
        ending = _ending(handle, state)
        with self._guard:
            self._known.pop(session, None)
            if len(self._known) >= _MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[session] = (ending, state)
        return state

    def appends(self, session: str, after: Head = NEW) -> Iterator[list[RecordLine]]:
        """Read whole appends, those with a record behind ``after`` among them, as of now."""
        with self.reading(session) as handle:
            base = base_of(handle)
            if base is not None and after.seq <= base.seq:
                yield from self.shared(base, after, Where(session=session))
                after = Head(base.seq, bytes.fromhex(base.digest))
            walk = self.walk(session, handle, upto=after.seq)
            self._require(session, after, walk.state.seq, walk.state.digest)
            for whole in walk_file(walk, handle, os.fstat(handle).st_size):
                if whole[0].record.seq <= after.seq <= whole[-1].record.seq:
                    record = whole[after.seq - whole[0].record.seq].record
                    self._require(session, after, record.seq, record.digest)
                yield whole
            self.learn(session, handle, walk)

    def shared(self, base: Base, after: Head, where: Where) -> Iterator[list[RecordLine]]:
        """Read what a fork shares, from behind ``after``; each record as if it was appended alone.

        A base can be a fork itself.
        """
        parts = [base]
        handles: list[int] = []
        try:
            while True:
                handles.append(self._opened_base(parts[-1], where))
                below = base_of(handles[-1])
                if below is None or below.seq <= after.seq:
                    break
                parts.append(below)
            seq, digest = after.seq, after.digest
            for part, handle in reversed(list(zip(parts, handles, strict=True))):
                for whole in _taken(handle, after, part.seq, where):
                    seq, digest = whole[0].record.seq, whole[0].record.digest
                    yield whole
                if seq != part.seq or digest.hex() != part.digest:
                    raise Damaged(f"record {part.seq} is not the one that it was forked at").about(
                        *where
                    )
        finally:
            for handle in handles:
                os.close(handle)

    def own(self, name: str, after: Head, upto: int) -> Iterator[list[RecordLine]]:
        """Read the records of a base's own file, from behind ``after`` to another."""
        where = Where(str(self.base(name)))
        handle = self._opened_base(Base(name, upto, "", 0), where)
        try:
            yield from _taken(handle, after, upto, where)
        finally:
            os.close(handle)

    def _opened_base(self, base: Base, where: Where) -> int:
        try:
            return os.open(self.base(base.name), os_files.READING)
        except OSError as error:
            raise Damaged(f"what it was forked from cannot be read ({reason_of(error)})").about(
                *where
            ) from error

    def only_in(self, session: str) -> set[str]:
        """Return what may be the name of a large value that this session names and no other.

        Bytes are looked at, not records: what is damaged keeps what it names, too.
        """
        return self.unnamed(self.names_in(self.log(session)), but=session)

    def names_in(self, path: Path) -> set[str]:
        """Return what may be the name of a large value that is there and that a file names."""
        found = {one.decode() for one in _NAMES.findall(path.read_bytes())}
        return {one for one in found if (self.blobs / one[:2] / one).exists()}

    def unnamed(self, names: Iterable[str], but: str | None = None) -> set[str]:
        """Return the names that stand in no session's file, or in that of one alone."""
        found = {name.encode() for name in names}
        logs = [self.log(session) for session in self.sessions() if session != but]
        for path in (*logs, *self.bases.glob(f"*{SUFFIX}")) if found else ():
            data = path.read_bytes()
            found = {name for name in found if name not in data}
        return {name.decode() for name in found}

    def _require(self, session: str, after: Head, seq: int, digest: bytes) -> None:
        if seq == after.seq and digest != after.digest:
            raise Damaged(f"record {seq} is another one than was read before").about(
                session=session
            )

    def state(self, session: str) -> LogState:
        """Return how far a session's file counts now."""
        with self.reading(session) as handle:
            walk = self.walk(session, handle)
            for _ in walk_file(walk, handle, os.fstat(handle).st_size):
                pass
            return self.learn(session, handle, walk)


def _taken(handle: int, after: Head, upto: int, where: Where) -> Iterator[list[RecordLine]]:
    """Read records of a base, each as if it had been appended alone."""
    walk = LogWalk(LogState(), "")
    walk.where = where
    for whole in walk_file(walk, handle, os.fstat(handle).st_size):
        for part in whole:
            seq = part.record.seq
            if seq == after.seq and part.record.digest != after.digest:
                raise Damaged(f"record {seq} is another one than was read before").about(*where)
            if after.seq < seq <= upto:
                yield [structs.replace(part, index=0, count=1)]
        if whole[-1].record.seq >= upto:
            return


def base_of(handle: int) -> Base | None:
    """Return what a file's first line says that it shares."""
    line = os.pread(handle, _FIRST, 0)
    found = parse_line(line[: line.find(b"\n") + 1])
    return found.base if isinstance(found, OpeningLine) else None


def _ending(handle: int, state: LogState) -> bytes:
    """The checksums at a place, and the file's number: by them it is known again."""
    start = max(state.end - _ENDING, 0)
    return b"%d %s" % (os.fstat(handle).st_ino, os.pread(handle, state.end - start, start))


def sync_data(handle: int) -> None:
    """Make an open file's content and size durable."""
    if sys.platform == "linux":
        os.fdatasync(handle)
    else:
        os_files.sync_file(handle)


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
        """Write that the holder is alive; in place, so that a full disk does not matter."""
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


class ClaimWatch:
    """Knows whether holders of claims are alive; of those of another boot, by what changes."""

    def __init__(self, seconds: float) -> None:
        self._here = myself()
        self._watching = HolderWatch(seconds)

    def is_alive(self, claim: Claim, path: Path) -> bool:
        """Whether the holder of a claim, which is kept at ``path``, has to be waited for."""
        holder = claim.holder
        if is_gone(holder):
            return False
        if holder.boot == self._here.boot:
            # A deadline further away than that was set before the clock began anew.
            return 0 < claim.deadline - clock() <= claim.seconds + 1
        beside, noted = noted_at(path), ""
        with suppress(OSError):
            noted = beside.read_text("ascii", "replace")
        seen = HolderSighting(holder.token, "", claim.deadline, claim.seconds, noted)
        left = self._watching.see(holder.token, seen)
        if left and (note := self._watching.note(holder.token, seen)):
            # Without it, the next process begins to watch anew.
            with suppress(OSError):
                beside.write_text(note, "ascii")
        return left > 0


def noted_at(path: Path) -> Path:
    """Name the file beside a claim in which is noted who saw it when."""
    return path.with_name(f"{path.name}.seen")


@contextmanager
def hold_lock(path: Path, pass_by: Callable[[float], bool]) -> Iterator[None]:
    """Have the lock of a session; ``pass_by`` is asked with the seconds waited while it is taken.

    It may raise, or answer True: then the lock is replaced by a new one.
    """
    handle = _take_lock(path, pass_by)
    try:
        yield
    finally:
        with suppress(OSError):
            # A child forked meanwhile shares the open file: closing it would not unlock it.
            fcntl.flock(handle, fcntl.LOCK_UN)
        with suppress(OSError):
            os.close(handle)


def _take_lock(path: Path, pass_by: Callable[[float], bool]) -> int:
    start = time.monotonic()
    for count in range(sys.maxsize):
        handle = os.open(path, _WRITING | os.O_CREAT, 0o600)
        if not os_files.is_locked(handle):
            # The lock is worth nothing if the path names another file by now.
            with suppress(FileNotFoundError):
                if os.path.samestat(path.lstat(), os.fstat(handle)):
                    return handle
        os.close(handle)
        if pass_by(time.monotonic() - start):
            break
        time.sleep(_STEPS[min(count, len(_STEPS) - 1)])
    # Whoever has the lock is passed by: a new one takes its place.
    draft = path.with_name(f"{os_files.PREFIX}{secrets.token_hex(16)}{os_files.SUFFIX}")
    handle = os.open(draft, _WRITING | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os_files.is_locked(handle)
        draft.replace(path)
    except BaseException:
        os.close(handle)
        draft.unlink(missing_ok=True)
        raise
    return handle
