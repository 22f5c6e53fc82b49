"""Where a store of lines keeps what: ``<session>.jsonl``, ``blobs`` and ``.leases``."""

from __future__ import annotations

import os
import re
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstitch import disk
from lockstitch.errors import Damaged, Unreadable, UsageError, reason_of
from lockstitch.journal.records import NEW, Head, checked_session
from lockstitch.stores.jsonl.lines import Written
from lockstitch.stores.jsonl.log import State, Walk, walked

SUFFIX = ".jsonl"
_NAMES = re.compile(rb"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_MOST_KNOWN = 4096
_ENDING = 80
_APPENDING = (disk.APPENDING & ~os.O_WRONLY) | os.O_RDWR


class Files:
    """The files of a store, and how far each was read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.leases = folder / ".leases"
        self.blobs = folder / "blobs"
        self._known: dict[str, tuple[bytes, State]] = {}
        self._durable: set[Path] = set()
        self._guard = threading.Lock()

    def log(self, session: str) -> Path:
        """The file of a session."""
        return self.folder / f"{checked_session(session)}{SUFFIX}"

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
            raise Unreadable(f"{self.log(session)}: {reason_of(error)}") from error
        return True

    def sessions(self) -> list[str]:
        """The names of all sessions, in order."""
        try:
            names = [one.name.removesuffix(SUFFIX) for one in self.folder.glob(f"*{SUFFIX}")]
        except OSError as error:
            raise Unreadable(f"{self.folder}: {reason_of(error)}") from error
        return sorted(name for name in names if _may_be_session(name))

    def ensure(self, folder: Path) -> None:
        """Make a folder, and its name durable, also if another process made it just now."""
        if folder in self._durable and folder.is_dir():
            return
        folder.mkdir(mode=0o700, parents=folder == self.folder, exist_ok=True)
        disk.sync_folder(folder.parent)
        self._durable.add(folder)

    def forget(self, session: str) -> None:
        """Read a session's file from its first byte on the next time."""
        with self._guard:
            self._known.pop(session, None)

    def tidy(self) -> None:
        """Remove the drafts that killed processes left: they hold what may have to go."""
        for folder in (self.folder, self.blobs, *self.blobs.glob("[0-9a-f][0-9a-f]")):
            disk.tidy(folder)

    @contextmanager
    def reading(self, session: str) -> Iterator[int]:
        """Open a session's file; raises ``Unreadable`` if there is none."""
        handle = self._opened(session, disk.READING)
        try:
            yield handle
        except OSError as error:
            raise Unreadable(f"{self.log(session)}: {reason_of(error)}") from error
        finally:
            os.close(handle)

    def writing(self, session: str, *, create: bool) -> int:
        """Open a session's file for adding to it; a new one is durable when it is first used."""
        if create and not self.exists(session):
            try:
                return os.open(self.log(session), disk.CREATING, 0o600)
            except FileExistsError:
                pass  # Another process was quicker.
        return self._opened(session, _APPENDING)

    def _opened(self, session: str, flags: int) -> int:
        try:
            handle = os.open(self.log(session), flags)
        except FileNotFoundError as error:
            raise Unreadable(f"session {session}: there is none in {self.folder}") from error
        except OSError as error:
            raise Unreadable(f"{self.log(session)}: {reason_of(error)}") from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise Unreadable(f"{self.log(session)}: is not a regular file")
        return handle

    def walk(self, session: str, handle: int, *, upto: int | None = None) -> Walk:
        """Begin to go through a session's file, from where it was read to, if that is not late."""
        ending, state = self._known.get(session, (b"", State()))
        is_late = upto is not None and state.seq > upto
        if is_late or _ending(handle, state) != ending:
            state = State()
        return Walk(state, session)

    def learn(self, session: str, handle: int, walk: Walk) -> State:
        """Keep how far a file was read, and tell it."""
        state = walk.state
        ending = _ending(handle, state)
        with self._guard:
            self._known.pop(session, None)
            if len(self._known) >= _MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[session] = (ending, state)
        return state

    def appends(self, session: str, after: Head = NEW) -> Iterator[list[Written]]:
        """Read whole appends, those with a record behind ``after`` among them, as of now."""
        with self.reading(session) as handle:
            walk = self.walk(session, handle, upto=after.seq)
            self._require(session, after, walk.state.seq, walk.state.digest)
            for whole in walked(walk, handle, os.fstat(handle).st_size):
                if whole[0].record.seq <= after.seq <= whole[-1].record.seq:
                    record = whole[after.seq - whole[0].record.seq].record
                    self._require(session, after, record.seq, record.digest)
                yield whole
            self.learn(session, handle, walk)

    def only_in(self, session: str) -> set[str]:
        """Give what may be the name of a large value that this session names and no other.

        Bytes are looked at, not records: what is damaged keeps what it names, too.
        """
        found = set(_NAMES.findall(self.log(session).read_bytes()))
        found = {one for one in found if (self.blobs / one[:2].decode() / one.decode()).exists()}
        return self.unnamed((one.decode() for one in found), but=session)

    def unnamed(self, names: Iterable[str], but: str | None = None) -> set[str]:
        """Give the names that stand in no session's file, or in that of one alone."""
        found = {name.encode() for name in names}
        for session in self.sessions() if found else ():
            if session != but:
                data = self.log(session).read_bytes()
                found = {name for name in found if name not in data}
        return {name.decode() for name in found}

    def _require(self, session: str, after: Head, seq: int, digest: bytes) -> None:
        if seq == after.seq and digest != after.digest:
            raise Damaged(f"session {session}: record {seq} is another one than was read before")

    def state(self, session: str) -> State:
        """Tell how far a session's file counts now."""
        with self.reading(session) as handle:
            walk = self.walk(session, handle)
            for _ in walked(walk, handle, os.fstat(handle).st_size):
                pass
            return self.learn(session, handle, walk)


def _ending(handle: int, state: State) -> bytes:
    """The checksums at a place, and the file's number: by them it is known again."""
    start = max(state.end - _ENDING, 0)
    return b"%d %s" % (os.fstat(handle).st_ino, os.pread(handle, state.end - start, start))


def _may_be_session(name: str) -> bool:
    try:
        return bool(checked_session(name))
    except UsageError:
        return False


def sync_data(handle: int) -> None:
    """Make an open file's content and size durable."""
    if sys.platform == "linux":
        os.fdatasync(handle)
    else:
        disk.sync(handle)
