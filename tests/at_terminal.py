"""The command at a terminal, as a person has it: all three streams, and the keys that are hit."""

from __future__ import annotations

import os
import pty
import subprocess
from typing import Any

from tests.inprocess import LOCKSTITCH


def at_terminal(*words: object, keys: bytes = b"", **options: Any) -> tuple[int, bytes]:
    """Run the command with a terminal; gives its exit status and all that it showed."""
    ours, theirs = pty.openpty()
    shown = b""
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    try:
        with subprocess.Popen([*LOCKSTITCH, *map(str, words)], **streams, **options) as process:
            os.close(theirs)
            os.write(ours, keys)
            # A terminal that nobody has open any more is an error to read from.
            while piece := _read(ours):
                shown += piece
            status = process.wait(60)
    finally:
        os.close(ours)
    return status, shown


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 1 << 16)
    except OSError:
        return b""
