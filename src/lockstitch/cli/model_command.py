"""A command of the user's that sums up: a prompt on its stdin, the summary on its stdout."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from lockstitch.errors import UsageError

if TYPE_CHECKING:
    from types import TracebackType

_MOST_BYTES = 4 << 20


class CommandFailed(Exception):
    """The command gave no summary; ``status_code`` is its exit status, if it ended by itself."""

    def __init__(self, status: int | None = None) -> None:
        super().__init__()
        self.status_code = status


def reason_of(failure: str) -> str:
    """Say why a command gave no summary as a shell would."""
    name, _, status = failure.partition(" ")
    return f"exit status {status.strip('()')}" if name == CommandFailed.__name__ else failure


class ModelCommand:
    """Runs a command for each question, without a shell; at the end none of them is left running.

    What it prints is taken for the summary and shown to nobody.
    """

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError:
            raise UsageError("--model-command: a quotation mark is not closed") from None
        if not self._words or shutil.which(self._words[0]) is None:
            raise UsageError("--model-command: there is no such program")
        self._running: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __call__(self, prompt: str) -> str:
        """Ask once; raises CommandFailed."""
        self.stop()
        process = self._started()
        feeder = threading.Thread(target=_feed, args=(process, prompt), daemon=True)
        feeder.start()
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        with process.stdout as out:
            text = out.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            _kill(process)
        status = process.wait()
        feeder.join()
        if status or len(text) > _MOST_BYTES:
            raise CommandFailed(status)
        return text.decode("utf-8", "replace")

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            try:
                self._running = subprocess.Popen(  # noqa: S603 - the user's own command
                    self._words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                raise CommandFailed from error
            return self._running

    def stop(self) -> None:
        """End the command that was asked last, if it is still running, and all it started."""
        with self._lock:
            if self._running is not None and self._running.poll() is None:
                _kill(self._running)
                self._running.wait()
            self._running = None

    def __enter__(self) -> Self:
        """Go in."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        """Leave nothing running."""
        self.stop()


def _feed(process: subprocess.Popen[bytes], prompt: str) -> None:
    """Give the prompt; a command that does not read it all is free to."""
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    with suppress(OSError):
        process.stdin.write(prompt.encode("utf-8", "replace"))
    with suppress(OSError):
        process.stdin.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
