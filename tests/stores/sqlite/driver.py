"""A writer as a program of its own, to be killed or failed at any system call.

``python -m tests.stores.sqlite.driver FILE`` works with the store each time a line comes in on
stdin, in a child of its own, and prints the child's process id and then its status. ``append``
stops the child when it has the session open, ``open`` before the store is opened, an order of
``changes`` before that change; a debugger can then be attached. What the child was promised, it
says.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

from lockstitch.errors import LockstitchError
from lockstitch.journal.records import JournalEntry
from lockstitch.stores.base import Lease
from lockstitch.stores.sqlite import SqliteBackend, connections, writer
from tests.driven import say
from tests.stores import changes

SESSION = "s"
BEFORE = 2


def entry(seq: int) -> JournalEntry:
    """The record that always stands there."""
    return JournalEntry(
        f"key-{seq}", seq, b'{"n":%d,"text":"%s"}' % (seq, b"x" * 3000), (b"y" * 70_000,)
    )


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def add(store: SqliteBackend, lease: Lease, after: int) -> None:
    """Append the next record, as a careful caller does, and say so."""
    head = store.append(lease, [entry(after + 1)], after)
    say(f"acked {head.seq}")


def write(path: Path, order: str) -> None:
    """Open, append, checkpoint, close: from the first or from the second on with a debugger."""
    if order == "open":
        stop()
    with SqliteBackend(path) as store:
        if order in changes.ORDERS:
            change = changes.Change(store, order)
            stop()
            change()
            say("acked 1")
            return
        lease = store.acquire(SESSION)
        if order == "append":
            stop()
        add(store, lease, lease.head.seq)


def again(path: Path, order: str) -> None:
    """After a failure: whatever is there now, one record more is there in the end."""
    with SqliteBackend(path) as store:
        if order in changes.ORDERS:
            changes.again(store, order)
            say("acked 1")
            return
        lease = store.acquire(SESSION)
        if lease.head.seq <= BEFORE:
            add(store, lease, lease.head.seq)


def child(path: Path, order: str) -> int:
    """Write; the exit status is 0 if it was done, 1 if it raised what it should, else 2."""
    writer.CHECKPOINT = 1
    # A lock that cannot be had is waited for, and that need not be long here.
    connections.BUSY_SECONDS = writer.BUSY_SECONDS = 0.1
    try:
        write(path, order)
    except LockstitchError as error:
        say(f"raised {type(error).__name__} {error}")
    else:
        return 0
    try:
        again(path, order)
    except LockstitchError as error:
        say(f"raised {type(error).__name__} {error}")
    return 1


def serve(path: Path) -> None:
    """Fork a child a line."""
    with tempfile.TemporaryDirectory() as folder:
        # What is loaded when it is first used is loaded here, and not by every child.
        write(Path(folder, "warm.db"), "warm")
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            status = 2
            try:
                status = child(path, line.strip())
            finally:
                os._exit(status)
        say(f"started {pid}")
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        say(f"ended {status}")


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
