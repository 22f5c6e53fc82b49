"""Where a store of lines keeps what: ``<session>.jsonl``, ``blobs``, ``bases`` and ``.leases``."""

from __future__ import annotations

import os
import re
import stat
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import structs

from lockstitch import disk
from lockstitch.errors import Damaged, Unreadable, UsageError, reason_of
from lockstitch.journal.records import NEW, Head, checked_session
from lockstitch.stores.jsonl.lines import Base, Opened, Written, parsed
from lockstitch.stores.jsonl.log import State, Walk, walked

SUFFIX = ".jsonl"
_NAMES = re.compile(rb"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_BASE = re.compile(r"[0-9a-f]{32}")
_MOST_KNOWN = 4096
_ENDING = 80
# No first line of a fork is longer.
_FIRST = 4096
_APPENDING = (disk.APPENDING & ~os.O_WRONLY) | os.O_RDWR


class Files:
    """The files of a store, and how far each was read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.leases = folder / ".leases"
        self.blobs = folder / "blobs"
        self.bases = folder / "bases"
        self._known: dict[str, tuple[bytes, State]] = {}
        self._durable: set[Path] = set()
        self._guard = threading.Lock()

    def log(self, session: str) -> Path:
        """The file of a session."""
        return self.folder / f"{checked_session(session)}{SUFFIX}"

    def base(self, name: str) -> Path:
        """The file whose first records forks share."""
        if not _BASE.fullmatch(name):
            raise Damaged(f"{self.bases}: {name!r} is no name of a file there")
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
        for folder in (self.folder, self.bases, self.blobs, *self.blobs.glob("[0-9a-f][0-9a-f]")):
            disk.tidy(folder)

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
            base = base_of(handle)
            if base is not None and after.seq <= base.seq:
                yield from self.shared(base, after, f"session {session}")
                after = Head(base.seq, bytes.fromhex(base.digest))
            walk = self.walk(session, handle, upto=after.seq)
            self._require(session, after, walk.state.seq, walk.state.digest)
            for whole in walked(walk, handle, os.fstat(handle).st_size):
                if whole[0].record.seq <= after.seq <= whole[-1].record.seq:
                    record = whole[after.seq - whole[0].record.seq].record
                    self._require(session, after, record.seq, record.digest)
                yield whole
            self.learn(session, handle, walk)

    def shared(self, base: Base, after: Head, where: str) -> Iterator[list[Written]]:
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
                    raise Damaged(
                        f"{where}: record {part.seq} is not the one that it was forked at"
                    )
        finally:
            for handle in handles:
                os.close(handle)

    def own(self, name: str, after: Head, upto: int) -> Iterator[list[Written]]:
        """Read the records of a base's own file, from behind ``after`` to another."""
        where = str(self.base(name))
        handle = self._opened_base(Base(name, upto, "", 0), where)
        try:
            yield from _taken(handle, after, upto, where)
        finally:
            os.close(handle)

    def _opened_base(self, base: Base, where: str) -> int:
        try:
            return os.open(self.base(base.name), disk.READING)
        except OSError as error:
            raise Damaged(
                f"{where}: what it was forked from cannot be read ({reason_of(error)})"
            ) from error

    def only_in(self, session: str) -> set[str]:
        """Give what may be the name of a large value that this session names and no other.

        Bytes are looked at, not records: what is damaged keeps what it names, too.
        """
        return self.unnamed(self.names_in(self.log(session)), but=session)

    def names_in(self, path: Path) -> set[str]:
        """Give what may be the name of a large value that is there and that a file names."""
        found = {one.decode() for one in _NAMES.findall(path.read_bytes())}
        return {one for one in found if (self.blobs / one[:2] / one).exists()}

    def unnamed(self, names: Iterable[str], but: str | None = None) -> set[str]:
        """Give the names that stand in no session's file, or in that of one alone."""
        found = {name.encode() for name in names}
        logs = [self.log(session) for session in self.sessions() if session != but]
        for path in (*logs, *self.bases.glob(f"*{SUFFIX}")) if found else ():
            data = path.read_bytes()
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


def _taken(handle: int, after: Head, upto: int, where: str) -> Iterator[list[Written]]:
    """Read records of a base, each as if it had been appended alone."""
    walk = Walk(State(), "")
    walk.where = where
    for whole in walked(walk, handle, os.fstat(handle).st_size):
        for part in whole:
            seq = part.record.seq
            if seq == after.seq and part.record.digest != after.digest:
                raise Damaged(f"{where}: record {seq} is another one than was read before")
            if after.seq < seq <= upto:
                yield [structs.replace(part, index=0, count=1)]
        if whole[-1].record.seq >= upto:
            return


def base_of(handle: int) -> Base | None:
    """Tell what a file's first line says that it shares."""
    line = os.pread(handle, _FIRST, 0)
    found = parsed(line[: line.find(b"\n") + 1])
    return found.base if isinstance(found, Opened) else None


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
