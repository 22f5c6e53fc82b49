"""Which running programs have a session open: nothing is written to it then.

A repair answers a call that looks open. While its program lives, the call may be at work, and
its real result would arrive beside the answer and be ignored for good.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from lockstitch import disk, processes
from lockstitch.errors import Busy

# A clock that is read in two ways, or a file system with coarse times, may be off by so much.
SLACK = 2.0


class User(Struct, frozen=True):
    """A process that has a session open; one that is not ``sure`` only may have.

    ``record`` is the file by which it is known, where only that can be asked.
    """

    pid: int
    sure: bool = True
    record: str = ""


def require_closed(title: str, users: Iterable[User], way: str = "") -> None:
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


def holding(path: Path) -> Iterator[User]:
    """Give the processes that have a file open for writing: a session's own, or a lock's."""
    with suppress(OSError):
        handle = os.open(path, disk.READING)
        try:
            yield from (User(pid) for pid in disk.holders(handle) if pid != os.getpid())
        finally:
            os.close(handle)


def working(names: Iterable[str], path: str, is_project: Callable[[str], bool]) -> Iterator[User]:
    """Give the processes that work in a session's folder and may have written it.

    For programs that neither keep the file open nor say which session they have: one that started
    after the last change of the file has not written it.
    """
    try:
        changed = Path(path).stat().st_mtime
    except OSError:
        return
    for process in processes.named(frozenset(names)):
        if process.started <= changed + SLACK and is_project(process.folder):
            yield User(process.pid, sure=False)
