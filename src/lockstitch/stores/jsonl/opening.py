"""Taking a session's file over: the opening line of a new writer, and what it says of the old."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from lockstitch import disk
from lockstitch.errors import Held
from lockstitch.stores.base import Lease
from lockstitch.stores.holders import Holder, myself
from lockstitch.stores.jsonl.claims import OwnClaim, noted_at
from lockstitch.stores.jsonl.files import Files
from lockstitch.stores.jsonl.lines import opening
from lockstitch.stores.jsonl.log import State, Walk, walked
from lockstitch.stores.jsonl.writer import Writer, write_once


def opened(files: Files, session: str, seconds: float, *, create: bool) -> Writer:
    """Become the writer of a session that nobody holds, under its lock.

    Raises ``Held`` if another one became it at the same moment, and ``OSError``.
    """
    handle = files.writing(session, create=create)
    try:
        return _opened(files, session, seconds, handle)
    except BaseException:
        os.close(handle)
        raise


def _opened(files: Files, session: str, seconds: float, handle: int) -> Writer:
    before, holder = _walked(files, session, handle), myself()
    last = files.claim(session, before.state.token)
    claim = OwnClaim(files.claim(session, holder.token), holder, seconds)
    try:
        if last.exists():
            _rewrite(files, session, handle, before.state)
        write_once(handle, _line(session, handle, before, holder))
        if not before.state.epoch:
            disk.sync_folder(files.folder)
        state = _walked(files, session, handle).state
    except BaseException:
        claim.leave()
        raise
    if state.token != holder.token:
        claim.drop()
        raise Held(f"session {session}: another writer took it at the same moment")
    with suppress(OSError):
        last.unlink(missing_ok=True)
        noted_at(last).unlink(missing_ok=True)
    lease = Lease(session, state.epoch, holder.token, state.head)
    return Writer(files, lease, handle, state, claim)


def _walked(files: Files, session: str, handle: int) -> Walk:
    walk = files.walk(session, handle)
    for _ in walked(walk, handle, os.fstat(handle).st_size):
        pass
    files.learn(session, handle, walk)
    return walk


def _line(session: str, handle: int, before: Walk, holder: Holder) -> bytes:
    """The new writer's line, on a line of its own whatever stands before it."""
    now = time.time_ns() // 1_000_000
    line = opening(session, before.state.epoch + 1, now, holder, before.torn)
    size = os.fstat(handle).st_size
    is_line = not size or os.pread(handle, 1, size - 1) == b"\n"
    # The space keeps a line that lacks nothing but its newline from being whole after all.
    return line if is_line else b" \n" + line


def _rewrite(files: Files, session: str, handle: int, state: State) -> None:
    """Write the last append once more, the same bytes in the same place.

    If its writer did not end well, syncing it may have failed, and the system may hold it for
    durable although it never reached the disk. Written again, it is what the next sync brings
    there. Only the last one can need that, since every other was synced before the next.
    """
    if state.end == state.last:
        return
    other = os.open(files.log(session), os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        place = state.last
        while place < state.end and os.path.samestat(os.fstat(other), os.fstat(handle)):
            data = os.pread(handle, min(1 << 20, state.end - place), place)
            place += os.pwrite(other, data, place)
    finally:
        os.close(other)
