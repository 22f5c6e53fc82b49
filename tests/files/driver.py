"""A repair with its backup as a program of its own, to be killed, interrupted or failed.

``python -m tests.files.driver FILE exchange|link|rename`` repairs the file each time a line
comes in on stdin, in a child of its own, and prints the child's process id and then its status.
``N kill|interrupt`` does that to the child at the N-th line of our own code; after an empty line
the child stops itself first, so that a debugger can be attached.
"""

from __future__ import annotations

import os
import signal
import sys
import types
from pathlib import Path
from typing import Any

from lockstitch.errors import LockstitchError
from lockstitch.files import backup, os_files, read, replace
from tests.driven import say

OLD = b'{"n": 1}\n{"n": 2}\n'
NEW = b'{"n": 1, "mended": true}\n{"n": 2}\n'
OURS = {module.__file__ for module in (backup, backup, os_files, replace, read, backup, replace)}


def repair(path: Path) -> None:
    """What the repair command does to a file."""
    backup.replace_with_backup(replace.snapshot(path), NEW, "run", {"codes": ["LS101"]})


def restore(path: Path) -> None:
    """The old file, quiet for a day, so that nobody waits for writers of it."""
    path.write_bytes(OLD)
    os.utime(path, (path.stat().st_mtime - 86400,) * 2)


def _refuse(*_: object, **__: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def swap_by(way: str) -> None:
    """Leave only one of the ways to swap two files."""
    if way != "exchange":
        os_files._exchange_names = lambda *_: False  # noqa: SLF001
    if way == "rename":
        os.link = _refuse


class At:
    """A trace function that does something at the N-th line of our code."""

    def __init__(self, count: int, what: str) -> None:
        self.left = count
        self.what = what

    def __call__(self, frame: types.FrameType, event: str, _: Any) -> At | None:
        if frame.f_code.co_filename not in OURS:
            return None
        if event == "line":
            self.left -= 1
            if not self.left:
                self.act(frame)
        return self

    def act(self, frame: types.FrameType) -> None:
        """Die, or raise."""
        if self.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        say("at", frame.f_code.co_name)
        raise KeyboardInterrupt


def child(path: Path, order: list[str]) -> int:
    """Do one repair; the exit status is 0 if it was done, 1 if it raised what it should."""
    if not order:
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        sys.settrace(At(int(order[0]), order[1]))
    try:
        repair(path)
    except (LockstitchError, OSError, KeyboardInterrupt) as error:
        sys.settrace(None)
        say("raised", repr(error), getattr(error, "filename", None))
        return 1
    sys.settrace(None)
    return 0


def main(path: Path, way: str) -> None:
    """Repair the file once a line."""
    swap_by(way)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            status = 3
            try:
                status = child(path, line.split())
            finally:
                os._exit(status)
        say("started", pid)
        _, status = os.waitpid(pid, 0)
        say("ended", os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
