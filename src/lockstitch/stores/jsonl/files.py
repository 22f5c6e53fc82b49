"""The files of a JSON lines store, and what can be read of them when lines are damaged.

Sessions are in ``<session>.jsonl``, everything else in ``blobs``, ``bases`` and ``.leases``. Every
line has its own checksum. So a single changed bit is found and corrected, and damage in one line
does not affect the lines after it.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct, structs

from lockstitch.errors import Damaged, Held, Unreadable, Where, reason_of
from lockstitch.files import os_files
from lockstitch.journal.records import NEW, START, Head, check_session_name, is_session_name
from lockstitch.journal.salvage import SEARCHED, Remains, Remnant, flip_each_bit
from lockstitch.stores.base import require_stamp
from lockstitch.stores.jsonl.log import (
    FORKED,
    VERSION,
    Base,
    Line,
    LogState,
    LogWalk,
    OpeningLine,
    RecordLine,
    hidden_lines,
    left_of,
    parse_line,
    split_lines,
    walk_file,
    was_whole,
    wrong_version,
)

SUFFIX = ".jsonl"
_NAMES = re.compile(rb"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_BASE = re.compile(r"[0-9a-f]{32}")
_MOST_KNOWN = 4096
_ENDING = 80
# No first line of a fork is longer than this.
_FIRST = 4096
_APPENDING = (os_files.APPENDING & ~os.O_WRONLY) | os.O_RDWR


class Files:
    """The files of a store, and how far each has been read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.leases = folder / ".leases"
        self.blobs = folder / "blobs"
        self.bases = folder / "bases"
        self._known: dict[str, tuple[bytes, LogState]] = {}
        self._durable: set[Path] = set()
        self._guard = threading.Lock()

    def log(self, session: str) -> Path:
        """Return the path of a session's file."""
        return self.folder / f"{check_session_name(session)}{SUFFIX}"

    def base(self, name: str) -> Path:
        """Return the path of the file whose first records forks share."""
        if not _BASE.fullmatch(name):
            raise Damaged(f"{name!r} is not the name of a file in {self.bases}")
        return self.bases / f"{name}{SUFFIX}"

    def lock(self, session: str) -> Path:
        """Return the path of the lock for a session's writers."""
        return self.leases / f"{session}.lock"

    def claim(self, session: str, token: str) -> Path:
        """Return the path of a writer's claim."""
        return self.leases / f"{session}.{token}"

    def exists(self, session: str) -> bool:
        """Whether there is a file, or anything else, under a session's name."""
        try:
            self.log(session).lstat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unreadable(session, reason_of(error)) from error
        return True

    def sessions(self) -> list[str]:
        """Return the names of all sessions, in order."""
        try:
            names = [one.name.removesuffix(SUFFIX) for one in self.folder.glob(f"*{SUFFIX}")]
        except OSError as error:
            raise Unreadable(f"it cannot be read: {reason_of(error)}").about(self.folder) from error
        return sorted(name for name in names if is_session_name(name))

    def ensure(self, folder: Path) -> None:
        """Create a folder and make its name durable, even if another process created it."""
        if folder in self._durable and folder.is_dir():
            return
        folder.mkdir(mode=0o700, parents=folder == self.folder, exist_ok=True)
        os_files.sync_folder(folder.parent)
        self._durable.add(folder)

    def forget(self, session: str) -> None:
        """Forget how far a session's file was read, so that it is read from the start again."""
        with self._guard:
            self._known.pop(session, None)

    def tidy(self) -> None:
        """Delete the drafts that killed processes left, since they may contain deleted content."""
        for folder in (self.folder, self.bases, self.blobs, *self.blobs.glob("[0-9a-f][0-9a-f]")):
            os_files.remove_stale_drafts(folder)

    def size(self) -> int:
        """Return the size of all files except those of writers.

        A file with two names counts once.
        """
        sizes: dict[int, int] = {}
        for folder in (self.folder, self.bases, self.blobs, *self.blobs.glob("[0-9a-f][0-9a-f]")):
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    sizes[found.st_ino] = found.st_size if stat.S_ISREG(found.st_mode) else 0
        return sum(sizes.values())

    @contextmanager
    def reading(self, session: str) -> Iterator[int]:
        """Open a session's file; raise ``Unreadable`` if there is none."""
        handle = self._opened(session, os_files.READING)
        try:
            yield handle
        except OSError as error:
            raise self._unreadable(session, reason_of(error)) from error
        finally:
            os.close(handle)

    def writing(self, session: str, *, create: bool) -> int:
        """Open a session's file for appending; a new one becomes durable with its first line."""
        if create and not self.exists(session):
            try:
                return os.open(self.log(session), os_files.CREATING, 0o600)
            except FileExistsError:
                pass  # Another process created it at the same moment.
        return self._opened(session, _APPENDING)

    def _opened(self, session: str, flags: int) -> int:
        try:
            handle = os.open(self.log(session), flags)
        except FileNotFoundError as error:
            raise Unreadable(f"it does not exist in {self.folder}").about(
                session=session
            ) from error
        except OSError as error:
            raise self._unreadable(session, reason_of(error)) from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise self._unreadable(session, "not a regular file")
        return handle

    def _unreadable(self, session: str, why: str) -> Unreadable:
        return Unreadable(f"its file cannot be read: {why}").about(self.folder, session)

    def walk(self, session: str, handle: int, *, upto: int | None = None) -> LogWalk:
        """Return a walk through a session's file, continuing the last walk if possible."""
        ending, state = self._known.get(session, (b"", LogState()))
        is_late = upto is not None and state.seq > upto
        if is_late or _ending(handle, state) != ending:
            state = LogState()
        return LogWalk(state, session)

    def learn(self, session: str, handle: int, walk: LogWalk) -> None:
        """Remember how far a file was read."""
        ending = _ending(handle, walk.state)
        with self._guard:
            self._known.pop(session, None)
            if len(self._known) >= _MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[session] = (ending, walk.state)

    def appends(self, session: str, after: Head = NEW) -> Iterator[list[RecordLine]]:
        """Yield the appends that contain a record after ``after``, as of now."""
        where = Where(session=session)
        with self.reading(session) as handle:
            base = base_of(handle)
            if base is not None and after.seq <= base.seq:
                yield from self.shared(base, after, where)
                after = Head(base.seq, bytes.fromhex(base.digest))
            walk = self.walk(session, handle, upto=after.seq)
            _require(after, walk.state.seq, walk.state.digest, where)
            for whole in walk_file(walk, handle, os.fstat(handle).st_size):
                if whole[0].record.seq <= after.seq <= whole[-1].record.seq:
                    record = whole[after.seq - whole[0].record.seq].record
                    _require(after, record.seq, record.digest, where)
                yield whole
            self.learn(session, handle, walk)

    def shared(self, base: Base, after: Head, where: Where) -> Iterator[list[RecordLine]]:
        """Yield the records that a fork shares, after ``after``, each as an append of its own.

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
                for whole in _base_records(handle, after, part.seq, where):
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
        """Yield the records in a base's own file, after ``after`` and up to ``upto``."""
        where = Where(str(self.base(name)))
        handle = self._opened_base(Base(name, upto, "", 0), where)
        try:
            yield from _base_records(handle, after, upto, where)
        finally:
            os.close(handle)

    def _opened_base(self, base: Base, where: Where) -> int:
        try:
            return os.open(self.base(base.name), os_files.READING)
        except OSError as error:
            raise Damaged(
                f"the session it was forked from cannot be read ({reason_of(error)})"
            ).about(*where) from error

    def only_in(self, session: str) -> set[str]:
        """Return the possible names of large values that only this session's file contains.

        It searches bytes, not records, so that damaged records keep the values that they name, too.
        """
        return self.unnamed(self.names_in(self.log(session)), but=session)

    def names_in(self, path: Path) -> set[str]:
        """Return every text in a file that is the name of an existing large value."""
        found = {one.decode() for one in _NAMES.findall(path.read_bytes())}
        return {one for one in found if (self.blobs / one[:2] / one).exists()}

    def unnamed(self, names: Iterable[str], but: str | None = None) -> set[str]:
        """Return the names that are in no base and in no session's file, except that of ``but``."""
        found = {name.encode() for name in names}
        logs = [self.log(session) for session in self.sessions() if session != but]
        for path in (*logs, *self.bases.glob(f"*{SUFFIX}")) if found else ():
            data = path.read_bytes()
            found = {name for name in found if name not in data}
        return {name.decode() for name in found}

    def state(self, session: str) -> LogState:
        """Return the state of a session's file: which part of it counts now."""
        with self.reading(session) as handle:
            return self.walk_to_end(session, handle).state

    def walk_to_end(self, session: str, handle: int) -> LogWalk:
        """Walk through a session's file as it is now, and remember how far."""
        walk = self.walk(session, handle)
        for _ in walk_file(walk, handle, os.fstat(handle).st_size):
            pass
        self.learn(session, handle, walk)
        return walk


def _require(after: Head, seq: int, digest: bytes, where: Where) -> None:
    """Raise ``Damaged`` if a record that was read before is a different one now."""
    if seq == after.seq and digest != after.digest:
        raise Damaged(f"record {seq} differs from what was read before").about(*where)


def _base_records(handle: int, after: Head, upto: int, where: Where) -> Iterator[list[RecordLine]]:
    """Yield records of a base, each as an append of its own."""
    walk = LogWalk(LogState(), "")
    walk.where = where
    for whole in walk_file(walk, handle, os.fstat(handle).st_size):
        for part in whole:
            _require(after, part.record.seq, part.record.digest, where)
            if after.seq < part.record.seq <= upto:
                yield [structs.replace(part, index=0, count=1)]
        if whole[-1].record.seq >= upto:
            return


@contextmanager
def write_draft(folder: Path, pieces: Iterable[bytes]) -> Iterator[Path]:
    """Write a file durably under a temporary name; the block moves it into place."""
    with os_files.open_draft(folder) as new:
        for piece in pieces:
            os_files.write_all(new.handle, piece)
        os_files.sync_file(new.handle)
        new.close()
        yield new.path
    os_files.sync_folder(folder)


def base_of(handle: int) -> Base | None:
    """Return the base that the first line of a fork's file names; None for other files."""
    line = os.pread(handle, _FIRST, 0)
    found = parse_line(line[: line.find(b"\n") + 1])
    return found.base if isinstance(found, OpeningLine) else None


def _ending(handle: int, state: LogState) -> bytes:
    """Return bytes that identify a place in a file: the end of the line before it and the inode."""
    start = max(state.end - _ENDING, 0)
    return b"%d %s" % (os.fstat(handle).st_ino, os.pread(handle, state.end - start, start))


_BREAK = 0x0A


class _LinePiece(Struct):
    """A line, or bytes that form none, with its place; ``line`` may have been corrected."""

    place: int
    data: bytes
    line: Line | None = None
    is_altered: bool = False


def remains(files: Files, session: str) -> Remains:
    """Return what is left of a session's file."""
    with files.reading(session) as handle:
        base = base_of(handle)
        kept = _kept(handle, session)
        stamp = _stamp(handle)
    while base is not None:
        # Records that a fork shares come before its own; its base may be a fork itself.
        try:
            other = os.open(files.base(base.name), os_files.READING)
        except OSError:
            break
        try:
            below = base_of(other)
            # Records after the fork point belong to the other session only.
            shared, seq = _kept(other, session), base.seq
            lines = ((n, one.line) for n, one in enumerate(shared))
            own = (n for n, a in lines if isinstance(a, RecordLine) and a.record.seq > seq)
            kept = [*shared[: next(own, len(shared))], *kept]
        finally:
            os.close(other)
        base = below
    openings = [one for one in kept if not isinstance(one.line, RecordLine)]
    remnants = _numbered(kept)
    # A damaged line is identified by the number that is missing at its place.
    lumps = [one for one in openings if one.line is None]
    is_altered = any(one.is_altered for one in openings)
    extra = len(lumps) > sum(bool(one.raw) for one in remnants)
    notes = ("a line that begins a writer is not what was written",)
    sealed = [one.record for one in remnants if one.record and one.is_sealed]
    last = max(sealed, key=lambda record: record.seq, default=None)
    head = Head(last.seq, last.digest) if last else Head(0, START)
    if remnants and (last is None or remnants[-1].seq > last.seq):
        end = remnants[-1].record
        head = Head(remnants[-1].seq, end.digest if end else b"")
    return Remains(head, remnants, notes if is_altered or extra else (), stamp)


def _kept(handle: int, session: str) -> list[_LinePiece]:
    """Return the lines of a file that count."""
    size = os.fstat(handle).st_size
    found = [one for place, data in split_lines(handle, 0, size) for one in _read(place, data)]
    whole = _joined(found)
    for one in whole:
        if isinstance(one.line, OpeningLine) and one.line.lockstitch not in {VERSION, FORKED}:
            raise wrong_version(one.line, Where(session=session))
    return _drop_uncounted(whole)


def exchange_files(files: Files, session: str, aside: str, successor: str, stamp: str) -> None:
    """Rename a session's file, and give its name to another file, while holding both locks."""
    with files.reading(session) as handle:
        require_stamp(stamp, _stamp(handle), session)
    path, beside = files.log(session), files.log(aside)
    try:
        os.link(path, beside, follow_symlinks=False)
    except FileExistsError:
        raise Held("it already exists").about(session=aside) from None
    except (OSError, NotImplementedError):
        # The file system has no hard links, so for a moment no file has the name.
        path.rename(beside)
    os_files.sync_folder(files.folder)
    files.log(successor).replace(path)
    os_files.sync_folder(files.folder)
    for name in (session, aside, successor):
        files.forget(name)


def _stamp(handle: int) -> str:
    found = os.fstat(handle)
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"


def _read(place: int, data: bytes) -> Iterator[_LinePiece]:
    """Yield the line in some bytes.

    Bytes before a whole line on the same line are a separate piece.
    """
    line, is_altered = parse_line(data), False
    if line is None:
        for start, hidden in hidden_lines(data):
            yield from _read(place, data[:start])
            yield _LinePiece(place + start, data[start:], hidden)
            return
        if len(data) <= SEARCHED:
            lines = map(parse_line, flip_each_bit(data))
            line = next((one for one in lines if one is not None), None)
            is_altered = line is not None
    yield _LinePiece(place, data, line, is_altered)


def _joined(found: Iterable[_LinePiece]) -> list[_LinePiece]:
    """Join lines that were one line before one of its bits changed into a line break."""
    kept: list[_LinePiece] = []
    for one in found:
        before = kept[-1] if kept and one.line is None else None
        whole = _join_two(before, one) if before is not None and before.line is None else None
        if whole is not None:
            kept[-1] = whole
        else:
            kept.append(one)
    return kept


def _join_two(one: _LinePiece, other: _LinePiece) -> _LinePiece | None:
    if not one.data.endswith(b"\n"):
        return None
    for bit in range(8):
        data = b"%b%c%b" % (one.data[:-1], _BREAK ^ 1 << bit, other.data)
        if line := parse_line(data):
            return _LinePiece(one.place, data, line, is_altered=True)
    return None


def _drop_uncounted(found: list[_LinePiece]) -> list[_LinePiece]:
    """Leave out lines that do not count: late ones, and incomplete appends left by crashes."""
    kept: list[_LinePiece] = []
    epoch = 0
    for one in found:
        if isinstance(one.line, OpeningLine):
            torn = one.line.torn
            if torn is not None:
                kept = [other for other in kept if other.place < torn]
            epoch = max(epoch, one.line.epoch)
        elif isinstance(one.line, RecordLine) and one.line.record.epoch < epoch:
            continue
        kept.append(one)
    while kept and kept[-1].line is None and not was_whole(kept[-1].data):
        kept.pop()
    # Records of an incomplete append at the end were never acknowledged.
    last = kept[-1].line if kept else None
    if not isinstance(last, RecordLine) or last.index + 1 == last.count:
        return kept
    if any(one.line is None for one in kept):
        return kept
    lines = ((one, one.line) for one in kept)
    return [a for a, b in lines if not isinstance(b, RecordLine) or b.record.seq < last.first]


def _numbered(kept: list[_LinePiece]) -> list[Remnant]:
    """Give each damaged line the number that is missing at its place."""
    found: list[Remnant] = []
    lumps: list[bytes] = []
    seq = 0
    for one in kept:
        if isinstance(one.line, RecordLine):
            number = one.line.record.seq
            if lumps and number > seq + 1:
                found += _spread_damaged(lumps, seq, number)
            lumps = []
            record, is_altered = one.line.record, one.is_altered
            found.append(Remnant(number, record, is_altered=is_altered, is_sealed=True))
            seq = number
        elif one.line is None:
            lumps.append(one.data)
    if lumps:
        found += _spread_damaged(lumps, seq, seq + 1 + len(lumps))
    return found


def _spread_damaged(lumps: list[bytes], seq: int, number: int) -> Iterator[Remnant]:
    """Give damaged lines the numbers between two records; the last one gets all remaining bytes."""
    room = number - seq - 1
    for place, raw in enumerate(lumps[: room - 1], 1):
        yield Remnant(seq + place, left_of(raw), raw)
    if rest := b"".join(lumps[room - 1 :]):
        yield Remnant(seq + min(room, len(lumps)), left_of(rest), rest)
