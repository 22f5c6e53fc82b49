"""Forks that share records, large values, and sessions copied from other stores.

Since files only grow, a fork can share the file of its source: a second name (a hard link) in
``bases`` keeps it, and the first line of the fork says which base and up to which record. Before a
session is deleted or its file replaced, the base gets a copy of what its forks need. On a file
system without hard links, a fork is a copy. Large values are in files named by their content,
``blobs/<first two digits>/<name>``.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

from msgspec import structs

from lockstitch.errors import Damaged, LockstitchError, Unsure, UsageError, Where
from lockstitch.files import os_files
from lockstitch.files.replace import snapshot
from lockstitch.journal.records import NEW, Head, blob_name
from lockstitch.stores.base import (
    IncomingSession,
    StoreFault,
    check_blob,
    find_fork_point,
)
from lockstitch.stores.jsonl.files import SUFFIX, Files, base_of, write_draft
from lockstitch.stores.jsonl.log import Base, RecordLine, fork_line, opening_line, record_line
from lockstitch.stores.jsonl.writer import hold_lock
from lockstitch.stores.leases import now


def fork_file(files: Files, source: str, upto: int, target: str) -> Head:
    """Fork a session; raise ``Held`` if ``target`` has other records, and ``OSError``."""
    records = (part.record for part in _parts(files, source, upto))
    point = find_fork_point(records, upto, source)
    if not files.exists(target):
        head = point.head
        name = _base(files, source, head.seq) if head.seq else None
        if name is None:
            # The file system has no hard links, so copy the records.
            lines = copy_lines(target, _parts(files, source, head.seq))
        else:
            base = Base(name, head.seq, head.digest.hex(), point.changed, point.about)
            lines = iter([fork_line(target, head.epoch, now(), base)])
        with write_draft(files.folder, lines) as draft:
            is_placed = place_file(draft, files.log(target))
        if is_placed:
            return files.state(target).head
    return point.require_same(files.state(target).head, target)


def _parts(files: Files, session: str, upto: int) -> Iterator[RecordLine]:
    for whole in files.appends(session):
        for part in whole:
            if part.record.seq <= upto:
                yield structs.replace(part, index=0, count=1)
        if whole[-1].record.seq >= upto:
            return


def _base(files: Files, source: str, upto: int) -> str | None:
    """Return the name of the base for a session's first records, creating it.

    None without links.
    """
    with files.reading(source) as handle:
        base = base_of(handle)
        found = os.fstat(handle)
    while base is not None and upto <= base.seq:
        below = _below(files.base(base.name))
        if below is None or upto > below.seq:
            return base.name
        base = below
    name = _name_of(files, found) or secrets.token_hex(16)
    try:
        files.ensure(files.bases)
        if not files.base(name).exists():
            os.link(files.log(source), files.base(name), follow_symlinks=False)
            os_files.sync_folder(files.bases)
    except (OSError, NotImplementedError):
        return None
    return name


def _below(path: Path) -> Base | None:
    handle = os.open(path, os_files.READING)
    try:
        return base_of(handle)
    finally:
        os.close(handle)


def _name_of(files: Files, found: os.stat_result) -> str | None:
    """Return the name under which a file is a base, if it is one."""
    for path in files.bases.glob(f"*{SUFFIX}") if found.st_nlink > 1 else ():
        if os.path.samestat(path.lstat(), found):
            return path.name.removesuffix(SUFFIX)
    return None


def place_file(draft: Path, target: Path) -> bool:
    """Give a file its name, but never replace another file; return whether that worked."""
    try:
        os.link(draft, target, follow_symlinks=False)
    except FileExistsError:
        return False
    except (OSError, NotImplementedError):
        # The file system has no hard links, so the best that can be done is to look first.
        if target.exists():
            return False
        draft.rename(target)
    return True


def copy_lines(
    target: str, parts: Iterable[RecordLine], base: Base | None = None
) -> Iterator[bytes]:
    """Yield the lines of a copy; each epoch starts with an opening line that names no holder."""
    at = now()
    rest = iter(parts)
    first = next(rest, None)
    epoch = first.record.epoch if first is not None else 0
    if base is not None:
        yield fork_line(target, epoch, at, base)
    else:
        yield opening_line(target, epoch, at, None, None)
    for part in chain([first] if first is not None else [], rest):
        if part.record.epoch != epoch:
            epoch = part.record.epoch
            yield opening_line(target, epoch, at, None, None)
        yield record_line(part)


# What remains of a base after its session was deleted.


def keep_shared(files: Files, session: str) -> None:
    """Copy what a session's forks share into a file of its own, before the session's file goes."""
    found = files.log(session).lstat()
    name = _name_of(files, found)
    if name is None:
        return
    needed = _needed(files).get(name, 0)
    if not needed:
        files.base(name).unlink()
        os_files.sync_folder(files.bases)
        return
    with suppress(Damaged):  # A damaged base is kept whole, so that it can be examined.
        _shorten(files, name, needed)


def unneeded_base(files: Files) -> tuple[Path, int] | None:
    """Return a base with more than forks need, and how many records they need, 0 for none."""
    needed = _needed(files)
    for path in sorted(files.bases.glob(f"*{SUFFIX}")):
        name = path.name.removesuffix(SUFFIX)
        upto = needed.get(name, 0)
        if not upto:
            return path, 0
        if path.lstat().st_nlink == 1:
            with suppress(Damaged):  # a damaged base is left as it is
                if any(one.record.seq > upto for [one] in files.own(name, NEW, upto + 1)):
                    return path, upto
    return None


def _needed(files: Files) -> dict[str, int]:
    """Return the bases that forks name, and up to which record."""
    needed: dict[str, int] = {}
    logs = [files.log(session) for session in files.sessions()]
    for path in (*logs, *files.bases.glob(f"*{SUFFIX}")):
        base = _below(path)
        if base is not None:
            needed[base.name] = max(needed.get(base.name, 0), base.seq)
    return needed


def _shorten(files: Files, name: str, upto: int) -> None:
    """Replace a base by a copy of its first records."""
    below = _below(files.base(name))
    after = NEW if below is None else Head(below.seq, bytes.fromhex(below.digest))
    parts = [one for [one] in files.own(name, after, upto)]
    write_whole(files.base(name), b"".join(copy_lines("", parts, below)))


def write_whole(path: Path, data: bytes) -> None:
    """Write a file durably under a temporary name, and move it into place."""
    with write_draft(path.parent, [data]) as draft:
        draft.replace(path)


_NAME = re.compile(r"[0-9a-f]{32}")
_QUICK = 0.1
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Blobs:
    """The large values of a store; a file with the name of one is complete and durable."""

    def __init__(self, files: Files) -> None:
        self.folder = files.blobs
        self._doomed = self.folder / ".doomed"
        self._files = files
        self._guard = threading.Lock()
        self._durable: set[str] = set()

    def keep(self, values: Iterable[bytes]) -> None:
        """Make values durable before a record names them; raise ``OSError`` if that fails."""
        missing = {blob_name(value): value for value in values}
        with self._guard:
            # Another process may have deleted the value together with the session that named it.
            known = {name for name in self._durable & set(missing) if self.exists(name)}
            for name in sorted(set(missing) - known):
                path = self._path(name)
                self._files.ensure(self.folder)
                self._files.ensure(path.parent)
                # A value written by another process may not be durable yet, or be damaged: then it
                # is written again.
                if self._read(name) != missing[name]:
                    write_whole(path, missing[name])
                else:
                    os_files.sync_folder(path.parent)
                self._durable.add(name)

    @contextmanager
    def alone(self, pass_by: Callable[[float], bool]) -> Iterator[None]:
        """Exclude all others from adding or deleting values and the records that name them."""
        self._files.ensure(self._files.leases)
        with hold_lock(self._files.leases / ".blobs.lock", pass_by):
            if self.is_unfinished():
                found = _NAME.findall(self._doomed.read_text("ascii", "replace"))
                self.drop_bases()
                self._drop(self._files.unnamed(found))
            yield

    @contextmanager
    def dropping(self, names: set[str]) -> Iterator[None]:
        """Delete values after the block has deleted the records that name them.

        If the process dies in between, the next one that is ``alone`` deletes those of them that no
        record names then. A full disk must not prevent a deletion, so the note for this is left out
        if it cannot be written.
        """
        if names or self._files.bases.exists():
            try:
                self._files.ensure(self.folder)
                write_whole(self._doomed, "\n".join(sorted(names)).encode("ascii"))
            except OSError as error:
                if error.errno not in _FULL:
                    raise
        start = time.monotonic()
        yield
        # If the block took long, this process may have been stopped, and others may name the values
        # now.
        is_late = time.monotonic() - start > _QUICK
        self._drop(self._files.unnamed(names) if is_late else names)

    def drop_bases(self) -> None:
        """Delete what no fork shares any more, and the values that only those records named."""
        while (found := unneeded_base(self._files)) is not None:
            path, upto = found
            names = self._files.names_in(path)
            if upto:
                _shorten(self._files, path.name.removesuffix(SUFFIX), upto)
            else:
                path.unlink(missing_ok=True)
                os_files.sync_folder(path.parent)
            self._drop(self._files.unnamed(names))

    def drop_unnamed(self) -> None:
        """Delete the values that no record names; crashes and full disks can leave some."""
        paths = self.folder.glob("[0-9a-f][0-9a-f]/*")
        names = {path.name for path in paths if _NAME.fullmatch(path.name)}
        self._drop(self._files.unnamed(names))

    def is_unfinished(self) -> bool:
        """Whether a process was stopped while it deleted values."""
        return self._doomed.exists()

    def _drop(self, names: set[str]) -> None:
        for name in names:
            self._path(name).unlink(missing_ok=True)
            self._durable.discard(name)
        for folder in {self._path(name).parent for name in names}:
            os_files.sync_folder(folder)
        self._doomed.unlink(missing_ok=True)

    def _read(self, name: str) -> bytes | None:
        with suppress(LockstitchError):
            return snapshot(self._path(name)).data
        return None

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise UsageError("the name of a large value must have 32 hexadecimal digits")
        return self.folder / name[:2] / name

    def exists(self, name: str) -> bool:
        """Whether there is a value with this name."""
        return self._path(name).exists()

    def give(self, names: Iterable[str], where: Where) -> dict[str, bytes]:
        """Return values by name, verified."""
        return {name: check_blob(name, self._read(name), where) for name in names}

    def faults(self, where: Where) -> Iterator[StoreFault]:
        """Read every value; yield the faults."""
        for path in sorted(self.folder.glob("[0-9a-f][0-9a-f]/*")):
            if _NAME.fullmatch(path.name):
                try:
                    self.give([path.name], where)
                except Damaged as error:
                    yield StoreFault("", 0, error.message)


def receive_file(files: Files, blobs: Blobs, incoming: IncomingSession) -> None:
    """Write a session's file and place it, unless another file has its name; raise ``OSError``."""
    names: set[str] = set()

    def parts() -> Iterator[RecordLine]:
        for record, values in incoming.pieces:
            blobs.keep(values)
            named = tuple(map(blob_name, values))
            names.update(named)
            yield RecordLine(record, 0, 1, named)

    with write_draft(files.folder, copy_lines(incoming.session, parts())) as draft:
        # If this took too long, others may have passed by the lock and deleted values not named
        # yet.
        if not all(map(blobs.exists, names)):
            raise Unsure("others removed large values while it was copied; try again").about(
                session=incoming.session
            )
        place_file(draft, files.log(incoming.session))
