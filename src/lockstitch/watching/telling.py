"""Telling somebody else: a notice on the desktop, and a command that is run for every event.

What is told reaches neither through a shell: it goes as words of a command line, on standard input
and in the environment.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from lockstitch.errors import UsageError
from lockstitch.watching.events import Notice, in_words

_NO_DESKTOP = "--notify needs notify-send (on Linux) or osascript (on macOS), and finds neither"
_SCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)
_PATIENCE = 60
Complain = Callable[[str], None]


def notifier() -> list[str]:
    """Return the command that shows a notice, without its title and text; raises UsageError."""
    found = shutil.which("notify-send")
    if found:
        return [found, "--app-name=lockstitch", "--"]
    found = shutil.which("osascript")
    if found:
        return [found, *(word for line in _SCRIPT for word in ("-e", line))]
    raise UsageError(_NO_DESKTOP)


def command_of(given: str) -> list[str]:
    """Take a command apart as a shell does, without one; raises UsageError."""
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise UsageError(f"--exec takes a command: {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise UsageError(f"--exec: there is no command {words[0] if words else given!r}")
    return words


class Tellers:
    """Commands that are run for every event, one after the other, beside all that goes on."""

    def __init__(self, complain: Complain) -> None:
        self._complain = complain
        self._pool = ThreadPoolExecutor(1)

    def notify(self, command: list[str], event: Notice) -> None:
        """Show a notice."""
        title = f"{event.report.format or 'Session'}: {event.kind}"
        self._start([*command, title, f"{event.report.target}: {in_words(event)}"], b"", {})

    def run(self, command: list[str], event: Notice, document: bytes) -> None:
        """Run a command with the event on its standard input and in its environment."""
        told = {
            "LOCKSTITCH_EVENT": event.kind,
            "LOCKSTITCH_TARGET": event.report.target,
            "LOCKSTITCH_FORMAT": event.report.format or "",
            "LOCKSTITCH_SESSION": event.report.session or "",
            "LOCKSTITCH_CODES": " ".join(event.codes),
            "LOCKSTITCH_SAID": in_words(event),
            "LOCKSTITCH_COMMAND": event.command,
        }
        # No value of the environment can hold one, and no name of a file does.
        self._start(
            command, document, {name: text.replace("\0", "") for name, text in told.items()}
        )

    def close(self) -> None:
        """Wait for what was started."""
        self._pool.shutdown()

    def _start(self, command: list[str], document: bytes, told: Mapping[str, str]) -> None:
        self._pool.submit(self._run, command, document, told)

    def _run(self, command: list[str], document: bytes, told: Mapping[str, str]) -> None:
        try:
            done = subprocess.run(  # noqa: S603 - the command that a person gave
                command,
                input=document,
                env={**os.environ, **told},
                timeout=_PATIENCE,
                stdout=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self._complain(f"{command[0]} took more than {_PATIENCE} s and was ended")
        except OSError as error:
            self._complain(f"{command[0]} could not be run: {error.strerror}")
        else:
            if done.returncode:
                self._complain(f"{command[0]} ended with status {done.returncode}")
