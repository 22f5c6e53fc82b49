"""A program in a terminal of its own, and a person who presses Ctrl-C there."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PATIENCE = 60
# Makes the terminal the one whose keys are signals to this program and those it starts.
TAKE = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    " os.execvp(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """The person's end of a terminal."""

    def __init__(self, handle: int, process: subprocess.Popen[bytes]) -> None:
        self.handle = handle
        self.process = process
        self.shown = ""

    def press_control_c(self) -> None:
        """Send the byte that the key sends; the kernel makes a signal of it."""
        os.write(self.handle, b"\x03")

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read until the program has shown something."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.shown)):
            assert self.read_for(deadline - time.monotonic()), f"not shown: {pattern}\n{self.shown}"
        return found

    def wait_for_end(self) -> str:
        """Read until the program has ended; gives all it has shown."""
        deadline = time.monotonic() + PATIENCE
        while self.read_for(deadline - time.monotonic()):
            pass
        self.process.wait(PATIENCE)
        return self.shown

    def wait(self, seconds: float) -> None:
        """Let some time pass, and read what is shown meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            # At the end of the program reading returns at once.
            if not self.read_for(left):
                time.sleep(0.01)

    def read_for(self, seconds: float) -> bool:
        """Read what is shown within some time; False if there is nothing, or no more."""
        ready, _, _ = select.select([self.handle], [], [], max(seconds, 0))
        data = b""
        with suppress(OSError):  # the other end is closed
            data = os.read(self.handle, 4096) if ready else b""
        self.shown += data.decode(errors="replace")
        return bool(data)


@contextmanager
def terminal(command: list[str]) -> Iterator[Terminal]:
    """Start a program in a new terminal."""
    ours, theirs = pty.openpty()
    launch = [sys.executable, "-S", "-c", TAKE, *command]
    process = subprocess.Popen(
        launch, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait(PATIENCE)
        os.close(ours)
