"""A program at a terminal that is its own: keys and the size of the window become signals."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 60.0


class AtKeys:
    """A program in the foreground of a pseudo terminal that it can be stopped and ended from."""

    def __init__(self, words: Sequence[str], work: Path, environ: Mapping[str, str]) -> None:
        self.master, slave = os.openpty()
        os.set_blocking(self.master, False)
        self.size(24, 80)

        def take_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            words,
            cwd=work,
            env=environ,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=take_terminal,  # noqa: PLW1509 - it is a process of one thread
        )
        os.close(slave)
        self.shown = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def size(self, rows: int, columns: int) -> None:
        """Give the window another size."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        """Hit keys."""
        os.write(self.master, keys)

    def read(self) -> bytes:
        """Return all that was shown so far."""
        try:
            while piece := os.read(self.master, 1 << 16):
                self.shown += piece
        except OSError:  # nothing more yet, or nobody there any more
            pass
        return self.shown

    def wait(self, text: bytes) -> None:
        """Wait until something was shown."""
        end = time.monotonic() + PATIENCE
        while text not in self.read():
            assert time.monotonic() < end, (text, self.shown)
            time.sleep(0.02)

    def status(self) -> int:
        """Return the exit status, once it has ended."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            self.read()  # a full terminal would be waited for
            time.sleep(0.02)
        self.read()
        return self.process.wait(1)
