"""Forks of a session's file, which share its first records: they are not copied.

A file is only ever added to, so a second name of it (a hard link) in ``bases`` will do: the first
line of a fork says which file there, and up to which record. Before a session is removed, or its
file replaced, the second name is given to a copy of what forks need. Where a file system knows no
second names, a fork is a copy.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from lockstitch import disk
from lockstitch.errors import Damaged, Held, UsageError
from lockstitch.journal.about import about_in
from lockstitch.journal.records import NEW, Head, Record
from lockstitch.stores.jsonl.files import SUFFIX, Files, base_of
from lockstitch.stores.jsonl.lines import Base, Written, forking, opening, record_line


def forked(files: Files, source: str, upto: int, target: str) -> Head:
    """Fork a session; raises ``Held`` if ``target`` has other records, and ``OSError``."""
    last, about = _record(files, source, upto)
    head = Head(last.seq, last.digest, last.epoch) if last else NEW
    if not files.exists(target) and _made(
        files, target, _lines(files, source, last, target, about)
    ):
        return files.state(target).head
    state = files.state(target)
    if (state.seq, state.digest) != (head.seq, head.digest):
        raise Held(f"session {target}: it exists, with other records than the fork's")
    return state.head


def _record(files: Files, session: str, upto: int) -> tuple[Record | None, bytes | None]:
    """Find the record to fork at, with all before it verified, and how the session is described.

    There is none before the first one.
    """
    last = about = None
    for part in _parts(files, session, upto):
        last = part.record
        about = about_in([last.body]) or about
    if (last.seq if last else 0) != upto:
        raise UsageError(f"session {session}: there is no record {upto} to fork at")
    return last, about


def _parts(files: Files, session: str, upto: int) -> Iterator[Written]:
    for whole in files.appends(session):
        for part in whole:
            if part.record.seq <= upto:
                yield structs.replace(part, index=0, count=1)
        if whole[-1].record.seq >= upto:
            return


def _lines(
    files: Files, source: str, last: Record | None, target: str, about: bytes | None
) -> bytes:
    now = time.time_ns() // 1_000_000
    if last is None:
        return opening(target, 0, now, None, None)
    name = _base(files, source, last.seq)
    if name is None:
        return copied(target, list(_parts(files, source, last.seq)))
    return forking(target, last.epoch, now, Base(name, last.seq, last.digest.hex(), last.at, about))


def _base(files: Files, source: str, upto: int) -> str | None:
    """Find or make the base with a session's first records; None if that cannot be."""
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
            disk.sync_folder(files.bases)
    except (OSError, NotImplementedError):
        return None
    return name


def _below(path: Path) -> Base | None:
    handle = os.open(path, disk.READING)
    try:
        return base_of(handle)
    finally:
        os.close(handle)


def _name_of(files: Files, found: os.stat_result) -> str | None:
    """Find the name that a file has as a base."""
    for path in files.bases.glob(f"*{SUFFIX}") if found.st_nlink > 1 else ():
        if os.path.samestat(path.lstat(), found):
            return path.name.removesuffix(SUFFIX)
    return None


def _made(files: Files, target: str, lines: bytes) -> bool:
    """Put a fork in its place; False if another file is there now."""
    with disk.draft(files.folder) as new:
        disk.write(new.handle, lines)
        disk.sync(new.handle)
        new.close()
        if not placed(new.path, files.log(target)):
            return False
    disk.sync_folder(files.folder)
    return True


def placed(draft: Path, target: Path) -> bool:
    """Give a file its name without ever taking that of another."""
    try:
        os.link(draft, target, follow_symlinks=False)
    except FileExistsError:
        return False
    except (OSError, NotImplementedError):
        # No second names here: then nothing better than looking first.
        if target.exists():
            return False
        draft.rename(target)
    return True


def copied(target: str, parts: list[Written], base: Base | None = None) -> bytes:
    """The lines of a copy: every epoch is opened before its first record, by nobody."""
    now = time.time_ns() // 1_000_000
    epoch = 0
    lines = [] if parts else [opening(target, 0, now, None, None)]
    if base is not None:
        epoch = parts[0].record.epoch if parts else 0
        lines = [forking(target, epoch, now, base)]
    for part in parts:
        if part.record.epoch != epoch:
            epoch = part.record.epoch
            lines.append(opening(target, epoch, now, None, None))
        lines.append(record_line(part))
    return b"".join(lines)


# What is left of a base when its session is gone.


class Left(Struct, frozen=True):
    """A base of which forks need less than there is, or nothing; ``apply`` makes it so."""

    path: Path
    apply: Callable[[], None]


def keep_shared(files: Files, session: str) -> None:
    """Give what forks of a session share a file of its own, before that of the session goes."""
    found = files.log(session).lstat()
    name = _name_of(files, found)
    if name is None:
        return
    needed = _needed(files).get(name, 0)
    if not needed:
        files.base(name).unlink()
        disk.sync_folder(files.bases)
        return
    with suppress(Damaged):  # What is damaged stays whole, for those who want to look at it.
        _shorten(files, name, needed)


def left(files: Files) -> Iterator[Left]:
    """Find bases that nobody needs, or not all of; the next one when the last was applied."""
    while (one := _next_left(files)) is not None:
        yield one


def _next_left(files: Files) -> Left | None:
    needed = _needed(files)
    for path in sorted(files.bases.glob(f"*{SUFFIX}")):
        name = path.name.removesuffix(SUFFIX)
        if name not in needed:
            return Left(path, partial(_unlink, path))
        if path.lstat().st_nlink == 1 and _goes_on(files, name, needed[name]):
            return Left(path, partial(_shorten, files, name, needed[name]))
    return None


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
    disk.sync_folder(path.parent)


def _goes_on(files: Files, name: str, upto: int) -> bool:
    """Whether a base has records behind one; what is damaged stays as it is."""
    try:
        return any(one.record.seq > upto for [one] in files.own(name, NEW, upto + 1))
    except Damaged:
        return False


def _needed(files: Files) -> dict[str, int]:
    """Tell which bases are named, and up to which record."""
    needed: dict[str, int] = {}
    logs = [files.log(session) for session in files.sessions()]
    for path in (*logs, *files.bases.glob(f"*{SUFFIX}")):
        base = _below(path)
        if base is not None:
            needed[base.name] = max(needed.get(base.name, 0), base.seq)
    return needed


def _shorten(files: Files, name: str, upto: int) -> None:
    """Put a copy of the first records of a base in its place."""
    below = _below(files.base(name))
    after = NEW if below is None else Head(below.seq, bytes.fromhex(below.digest))
    parts = [one for [one] in files.own(name, after, upto)]
    with disk.draft(files.bases) as new:
        disk.write(new.handle, copied("", parts, below))
        disk.sync(new.handle)
        new.close()
        new.path.replace(files.base(name))
    disk.sync_folder(files.bases)
