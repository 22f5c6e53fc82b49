"""Long output through a pager, on a terminal; straight out everywhere else."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from lockstitch.cli import terminal

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable

# Leave if it fits on one screen, let colours through, do not clear the screen.
LESS = "-FRX"


def paged(lines: Iterable[str]) -> None:
    """Write lines for a person: through ``$PAGER`` on a terminal, else to stdout.

    A pager that cannot be started is done without; one that quits early ends the output.
    """
    pager = _started() if sys.stdout is not None and sys.stdout.isatty() else None
    if pager is None:
        for line in lines:
            terminal.say(line)
        return
    try:
        _feed(pager, lines)
    finally:
        _see_out(pager)


def _started() -> subprocess.Popen[bytes] | None:
    import shlex
    import subprocess

    environment = {"LESS": LESS, **os.environ}
    try:
        command = shlex.split(os.environ.get("PAGER", f"less {LESS}"))
        if not command or command == ["cat"]:
            return None
        terminal.flush()
        return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)  # noqa: S603 - the user's own pager
    except (OSError, ValueError):
        return None


def _feed(pager: subprocess.Popen[bytes], lines: Iterable[str]) -> None:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    with suppress(BrokenPipeError):
        for line in lines:
            if pager.stdin is not None:
                safe = terminal.harmless_line(line)
                pager.stdin.write(f"{safe}\n".encode(encoding, "backslashreplace"))


def _see_out(pager: subprocess.Popen[bytes]) -> None:
    """Wait for the reader to finish; Ctrl-C is the pager's business until then."""
    if pager.stdin is not None:
        with suppress(OSError):
            pager.stdin.close()
    while pager.returncode is None:
        with suppress(KeyboardInterrupt):
            pager.wait()
