"""A writer as a program of its own, to be killed, stopped or failed at any system call.

``python -m tests.stores.jsonl.driver FOLDER`` works with the store each time a line comes in on
stdin, in a child of its own, and prints the child's process id and then its status. The child
stops itself before the first step that counts, so that a debugger can be attached: ``all`` before
it takes the session, ``append`` when it has it, an order of ``changes`` before that change.
``limit N`` does not stop, but lets no file grow beyond N bytes, ``limit N ORDER`` neither while
that change is made. What the child was promised, it
says.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from lockstitch.errors import LockstitchError
from lockstitch.journal.records import JournalEntry
from lockstitch.stores.base import Lease
from lockstitch.stores.jsonl import JsonlBackend
from tests.stores import changes

SESSION = "s"
BEFORE = 2
ENDS = (BEFORE, BEFORE + 2, BEFORE + 3)
LEASE = 0.3


def entry(seq: int) -> JournalEntry:
    """The record that always stands there."""
    body = b'{"n":%d,"text":"%s"}' % (seq, b"x" * 60)
    return JournalEntry(f"key-{seq}", seq, body, (b"%d" % seq,) if seq > BEFORE else ())


def say(text: str) -> None:
    try:
        os.write(1, f"{text}\n".encode())
    except OSError:  # The failure was meant for the store.
        os.write(1, f"{text}\n".encode())


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def add(store: JsonlBackend, lease: Lease, after: int) -> None:
    """Append what is missing, twice two records and then the last."""
    for start, end in pairwise((0, *ENDS)):
        if after == start:
            after = store.append(lease, [entry(n + 1) for n in range(start, end)], start).seq
            say(f"acked {after}")


def write(folder: Path, order: str, lease_seconds: float, limit: int | None = None) -> None:
    """Open, take, append twice, give back, close."""
    with JsonlBackend(folder, lease_seconds=lease_seconds) as store:
        if order in changes.ORDERS:
            change = changes.Change(store, order)
            if limit is None:
                stop()
            else:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            change()
            say("acked 1")
            change.end()
            return
        if order == "all":
            stop()
        lease = store.acquire(SESSION)
        if order == "append":
            stop()
        add(store, lease, lease.head.seq)
        store.release(lease)


def child(folder: Path, order: list[str], lease_seconds: float) -> int:
    """Write; the exit status is 0 if it was done, 1 if it raised what it should, else 2."""
    if order[0] == "limit" and not order[2:]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(order[1]), resource.RLIM_INFINITY))
    name, limit = (order[2], int(order[1])) if order[2:] else (order[0], None)
    try:
        write(folder, name, lease_seconds, limit)
    except LockstitchError as error:
        say(f"raised {type(error).__name__} {error}")
    else:
        return 0
    if order[-1] != "once":
        again(folder, name)
    return 1


def again(folder: Path, order: str) -> None:
    """After a failure: look what is there, and add what is missing."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    try:
        if order in changes.ORDERS:
            with JsonlBackend(folder) as store:
                changes.again(store, order)
            say("acked 1")
            return
        write(folder, "", 30)
        say("recovered")
    except LockstitchError as error:
        say(f"raised {type(error).__name__} {error}")


def serve(folder: Path, lease_seconds: float) -> None:
    """Fork a child a line."""
    with tempfile.TemporaryDirectory() as warm:
        # What is loaded when it is first used is loaded here, and not by every child.
        write(Path(warm), "", lease_seconds)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            status = 2
            try:
                status = child(folder, line.split(), lease_seconds)
            finally:
                os._exit(status)
        say(f"started {pid}")
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        say(f"ended {status}")


if __name__ == "__main__":
    serve(Path(sys.argv[1]), float(sys.argv[2]))
