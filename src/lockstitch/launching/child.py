"""The program that is started: it has the terminal, and its end is the end of everything.

It stays in the foreground of the same terminal, so that keys, the size of the window and the
signals of the keyboard reach it as if nobody stood in between. What reaches this process alone is
passed on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from lockstitch.errors import UsageError
from lockstitch.processes import ending_with

_SIGNALLED = 128
# The terminal sends these to everybody in the foreground, so that the program has them already.
_FROM_KEYS = ("SIGINT", "SIGQUIT")
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


def run(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program to its end and return its status: 128 and the number of the signal, if any."""
    if sys.platform == "win32":
        raise UsageError("run needs Linux or macOS; `lockstitch proxy` heals requests here, too")
    held: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for process in held:
            with suppress(ProcessLookupError):
                process.send_signal(number)

    with _handled(pass_on):
        try:
            process = subprocess.Popen(  # noqa: S603 - the command that a person gave
                words,
                env=environ,
                preexec_fn=ending_with(os.getpid()),  # noqa: PLW1509 - there are no threads
            )
        except OSError as error:
            raise UsageError(f"{words[0]} cannot be started: {error.strerror}") from error
        held.append(process)
        return _waited(process)


@contextmanager
def _handled(pass_on: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Take signals over; one that was ignored before stays so, here and in the program."""
    passed_on = {signal.Signals[name] for name in _PASSED_ON}
    before = {
        number: old
        for number in {*passed_on, *(signal.Signals[name] for name in _FROM_KEYS)}
        if (old := signal.getsignal(number)) is not signal.SIG_IGN
    }
    for number in before:
        # A function, since what is ignored here would be ignored by the program, too.
        signal.signal(number, pass_on if number in passed_on else _leave_to_the_program)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _leave_to_the_program(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the program got the signal, too, and decides."""


def _waited(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a program; stop with it when it stops, and go on with it."""
    while True:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            continue
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode if process.returncode >= 0 else _SIGNALLED - process.returncode
