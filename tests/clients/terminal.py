"""A program in a terminal of its own: what is on its screen, and a person's keys."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte

ROWS, COLUMNS = 60, 160
PATIENCE = 60.0
KEYS = {
    "enter": "\r",
    "esc": "\x1b",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "shift-tab": "\x1b[Z",
    "ctrl-b": "\x02",
    "ctrl-c": "\x03",
    "ctrl-u": "\x15",
}


class NotSeen(AssertionError):
    """Something did not come up on the screen in time."""


class _Screen(pyte.Screen):
    """A screen that answers when the program asks the terminal for its place or its kind."""

    def __init__(self, master: int, columns: int, rows: int) -> None:
        super().__init__(columns, rows)
        self._master = master

    def write_process_input(self, data: str) -> None:
        os.write(self._master, data.encode())

    def report_device_status(self, mode: int = 0, **_: object) -> None:
        super().report_device_status(mode)

    def report_device_attributes(self, mode: int = 0, **_: object) -> None:
        super().report_device_attributes(mode)


class Terminal:
    """A program that runs in a pseudo terminal, at the head of a group of its own."""

    def __init__(
        self,
        command: Sequence[str],
        work: Path,
        environ: Mapping[str, str],
        *,
        columns: int = COLUMNS,
        rows: int = ROWS,
    ) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._screen = _Screen(self._master, columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._changed = time.monotonic()
        self.process = subprocess.Popen(
            command,
            cwd=work,
            env={"TERM": "xterm-256color", **environ},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the program has closed its end
                return
            if not data:
                return
            # A private mode with a prefix that pyte does not know would be taken for text.
            data = re.sub(rb"\x1b\[[<=>][0-9;]*[a-zA-Z]", b"", data)
            with self._lock:
                self._stream.feed(data)
                self._changed = time.monotonic()

    @property
    def text(self) -> str:
        """What is on the screen."""
        with self._lock:
            return "\n".join(line.rstrip() for line in self._screen.display)

    def sees(self, pattern: str) -> bool:
        """Whether this is on the screen, whatever its case."""
        return re.search(pattern, self.text, re.IGNORECASE) is not None

    def wait(self, pattern: str, patience: float = PATIENCE) -> None:
        """Wait until this is on the screen; raises NotSeen."""
        end = time.monotonic() + patience
        while not self.sees(pattern):
            if time.monotonic() > end or self.process.poll() is not None:
                raise NotSeen(f"{pattern!r} is not on the screen:\n{self.text}")
            time.sleep(0.05)

    def rest(self, quiet: float = 0.6, patience: float = PATIENCE) -> None:
        """Wait until the screen has not changed for a moment."""
        end = time.monotonic() + patience
        while time.monotonic() - self._changed < quiet and time.monotonic() < end:
            time.sleep(0.05)

    def type(self, text: str) -> None:
        """Type a text, without a line break at its end."""
        os.write(self._master, text.encode())
        time.sleep(0.3)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, as fast as a person does."""
        for key in keys:
            os.write(self._master, KEYS.get(key, key).encode())
            time.sleep(0.25)

    def ended(self, patience: float = PATIENCE) -> bool:
        """Whether the program ends by itself in time."""
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            return False
        return True
