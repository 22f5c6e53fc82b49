"""Copying a session from one store to another, as it is: keys, times, checksums, large values."""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Callable, Iterator
from typing import IO

import msgspec
from msgspec import Struct

from lockstitch.errors import Damaged, Held, Unreadable, UsageError
from lockstitch.journal.checkpoints import Begun, line_of
from lockstitch.journal.events import Unknown, event_of
from lockstitch.journal.records import NEW, Head, Record, checked_session
from lockstitch.session.companions import companions, refuse_internal
from lockstitch.stores.base import Backend, Incoming

Advance = Callable[[int], object]
Piece = tuple[Record, tuple[bytes, ...]]
_IN_MEMORY = 32 << 20
_LENGTH = struct.Struct("<Q")
_NAMES = re.compile(rb'"(?:blob|x)":"([0-9a-f]{32})"')
_DECODER = msgspec.msgpack.Decoder(tuple[Record, tuple[bytes, ...]])


class Copy(Struct, frozen=True):
    """A session that was copied, under which name, and how many records it has.

    ``is_new`` is false if it was there already. ``companions`` went with it.
    """

    session: str
    name: str
    records: int
    is_new: bool
    companions: tuple[str, ...] = ()


def copied(
    source: Backend,
    name: str,
    target: Backend,
    new_name: str | None = None,
    advance: Advance = lambda _: None,
) -> Copy:
    """Copy a session, all of it or nothing; the same again is done already.

    ``advance`` is told the number of records as they are read. Nobody has to stop writing the
    source: what is copied is how it stood when it was begun.
    """
    new = name if new_name is None else new_name
    for one in (name, new):
        refuse_internal(checked_session(one))
    if source is target and new == name:
        raise UsageError(f"session {name}: a copy in the same store needs another name")
    head = source.head(name)
    if head is None:
        raise Unreadable(f"session {name}: there is none in {source.url}")
    _refuse_renaming(source, name, new)
    if _is_there(target, new, head):
        advance(head.seq)
        return Copy(name, new, head.seq, is_new=False)
    others = companions(source, name)
    # The session comes last: where it is, all of it is.
    for other in others:
        _copy_companion(source, other, target, new + other.removeprefix(name))
    _copy(source, name, head, target, new, advance)
    return Copy(name, new, head.seq, is_new=True, companions=tuple(others))


def _copy_companion(source: Backend, name: str, target: Backend, new: str) -> None:
    """Copy a journal that goes with a session, over what a copy that was killed left of it."""
    head = source.head(name)
    if head is None:
        return
    try:
        is_there = _is_there(target, new, head)
    except Held:
        target.delete(target.acquire(new, create=False))
        is_there = False
    if not is_there:
        _copy(source, name, head, target, new, lambda _: None)


def _copy(  # noqa: PLR0913, PLR0917 - from where to where
    source: Backend, name: str, head: Head, target: Backend, new: str, advance: Advance
) -> None:
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
        last = _read(source, name, head, spool, advance)
        end = Head(head.seq, head.digest, last.epoch if last else 0)
        pieces = _pieces(spool)
        target.receive(Incoming(new, end, last.at if last else 0, pieces))
    _verify(target, new, head)


def _refuse_renaming(source: Backend, name: str, new: str) -> None:
    """A thread of LangGraph is found by its id, which its journal holds, too."""
    first = next(iter(source.read(name, upto=1)), None) if new != name else None
    if first is not None and isinstance(line_of(first.body), Begun):
        raise UsageError(f"session {name}: is a thread of LangGraph, which keeps its name")


def _is_there(target: Backend, new: str, head: Head) -> bool:
    """Whether a copy was made before, and perhaps went on since; raises ``Held`` for another."""
    found = target.head(new)
    if found is None:
        return False
    if found.seq >= head.seq and (head.seq or not found.seq):
        last = NEW.digest
        for record in target.read(new, upto=head.seq):
            last = record.digest
        if last == head.digest:
            return True
    raise Held(
        f"session {new}: it exists in {target.url} with other records; give the copy another name,"
        " or delete the one that is there"
    )


def _read(
    source: Backend, name: str, head: Head, spool: IO[bytes], advance: Advance
) -> Record | None:
    """Read a session whole, and verify it, before anything is written elsewhere."""
    last: Record | None = None
    for record in source.read(name, upto=head.seq):
        piece = msgspec.msgpack.encode((record, _values(source, record)))
        spool.write(_LENGTH.pack(len(piece)))
        spool.write(piece)
        last = record
        advance(1)
    if (last.digest if last else NEW.digest) != head.digest:
        raise Unreadable(f"session {name}: it was replaced while it was read: copy it again")
    return last


def _values(source: Backend, record: Record) -> tuple[bytes, ...]:
    """Return the large values that a record names."""
    line = line_of(record.body)
    if line is not None:
        names = () if isinstance(line, Begun) else line.blobs
        return tuple(source.blobs([name])[name] for name in dict.fromkeys(names))
    event = event_of(record)
    if not isinstance(event, Unknown):
        return (source.blobs([event.blob])[event.blob],) if event.blob else ()
    # A later version's: what looks like a name in it is one if there is such a value.
    found = (name.decode() for name in dict.fromkeys(_NAMES.findall(record.body)))
    return tuple(value for name in found if (value := _found(source, name)) is not None)


def _found(source: Backend, name: str) -> bytes | None:
    try:
        return source.blobs([name])[name]
    except Damaged:
        return None


def _pieces(spool: IO[bytes]) -> Iterator[Piece]:
    spool.seek(0)
    while length := spool.read(_LENGTH.size):
        (size,) = _LENGTH.unpack(length)
        yield _DECODER.decode(spool.read(size))


def _verify(target: Backend, new: str, head: Head) -> None:
    """Make sure that what was written is what was read."""
    last = NEW.digest
    for record in target.read(new, upto=head.seq):
        last = record.digest
        event = event_of(record)
        if event.blob:
            target.blobs([event.blob])
    if last != head.digest:
        raise Damaged(f"session {new}: the copy in {target.url} is not what was read")
