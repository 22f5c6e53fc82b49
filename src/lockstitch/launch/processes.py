"""Run a program, with the proxy beside it, which ends when the program does.

The program stays in the foreground of the same terminal, so that keys, the size of the window and
signals from the keyboard reach it as usual. Signals that reach only this process are passed on. The
proxy is a process of its own. It holds the reading end of a pipe and stops when that closes, which
happens even if this process is killed; on Linux it also gets a signal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, TYPE_CHECKING

import msgspec
from msgspec import Struct

from lockstitch.errors import LockstitchError, UsageError
from lockstitch.files.os_files import ending_with

if TYPE_CHECKING:
    from lockstitch.proxy import Settings
    from lockstitch.proxy.forwarding import ProxyEvent


_SIGNALLED = 128
# The terminal sends these to all processes in the foreground, so the program has got them already.
_FROM_KEYS = ("SIGINT", "SIGQUIT")
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


def run_program(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program to its end.

    Return its status, which is 128 plus the number of a signal, if any.
    """
    if sys.platform == "win32":
        raise UsageError("run needs Linux or macOS; `lockstitch proxy` heals requests here, too")
    held: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for process in held:
            with suppress(ProcessLookupError):
                process.send_signal(number)

    with _take_signals(pass_on):
        try:
            process = subprocess.Popen(  # noqa: S603 - the command that a person gave
                words,
                env=environ,
                preexec_fn=ending_with(os.getpid()),  # noqa: PLW1509 - there are no threads
            )
        except OSError as error:
            raise UsageError(f"{words[0]} cannot be started: {error.strerror}") from error
        held.append(process)
        return _wait_for(process)


@contextmanager
def _take_signals(pass_on: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle signals during the block; an ignored signal stays ignored, here and in the program."""
    passed_on = {signal.Signals[name] for name in _PASSED_ON}
    before = {
        number: old
        for number in {*passed_on, *(signal.Signals[name] for name in _FROM_KEYS)}
        if (old := signal.getsignal(number)) is not signal.SIG_IGN
    }
    for number in before:
        # A function, because a signal that is ignored here would be ignored by the program, too.
        signal.signal(number, pass_on if number in passed_on else lambda *_: None)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _wait_for(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a program; stop when it stops, and continue with it."""
    while True:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            continue
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode if process.returncode >= 0 else _SIGNALLED - process.returncode


_PATIENCE = 60.0


class ProxyActivity(Struct):
    """What the proxy did: the requests that it healed, by code, and its own errors."""

    requests: int = 0
    repaired: Counter[str] = msgspec.field(default_factory=Counter)
    errors: list[str] = msgspec.field(default_factory=list)


class ProxyLine(Struct, frozen=True):
    """A line of the proxy's log, as its process writes it."""

    repaired: dict[str, int] = {}
    error: str = ""
    status: int = 0


class RunningProxy:
    """A proxy that runs beside a program; ``url`` is its address."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: IO[bytes]) -> None:
        self.process = process
        self.url = url
        self._log = log

    def activity(self) -> ProxyActivity:
        """Return what the proxy has done so far."""
        found = ProxyActivity()
        # Read by position: the proxy writes through the same open file, and a seek would move its
        # offset.
        number = self._log.fileno()
        for text in os.pread(number, os.fstat(number).st_size, 0).splitlines():
            try:
                line = msgspec.json.decode(text, type=ProxyLine)
            except ValueError:
                # Libraries write to standard error as well: warnings, and aiohttp's messages about
                # clients that disconnected. These are not meant for the person at the terminal.
                continue
            found.requests += bool(line.repaired)
            found.repaired.update(line.repaired)
            if line.error and line.status != _UPGRADE:
                found.errors.append(line.error)
        return found


# A client that asks for WebSocket is told no, and continues without it, which is not an error.
_UPGRADE = 426


@contextmanager
def start_proxy(settings: Settings) -> Iterator[RunningProxy]:
    """Run a proxy in a process of its own during the block."""
    document = msgspec.json.encode(settings)
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, this module
            [sys.executable, "-m", "lockstitch.launch.processes", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            # Signals from the keyboard are meant for the program.
            start_new_session=True,
        )
        with process:
            if process.stdin is None or process.stdout is None:
                raise AssertionError
            try:
                process.stdin.write(document + b"\n")
                process.stdin.flush()
                url = process.stdout.readline().decode("ascii").strip()
                if not url:
                    # its last line says why it did not start
                    process.wait(_PATIENCE)
                    log.seek(0)
                    lines = log.read().decode("utf-8", "replace").strip().splitlines()
                    why = lines[-1] if lines else "it said nothing"
                    raise LockstitchError(f"the proxy could not be started: {why}")
                yield RunningProxy(process, url, log)
            finally:
                process.stdin.close()
                try:
                    process.wait(_PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()


def require_proxy() -> None:
    """Raise ``UsageError`` if a package that the proxy needs is not installed."""
    from importlib.util import find_spec  # noqa: PLC0415 - only where a proxy is to be started

    if find_spec("aiohttp") is None:
        raise UsageError(
            "the proxy needs aiohttp: pip install 'lockstitch[proxy]', or use --no-proxy"
        )


def main() -> None:
    """Serve until standard input closes; its first line contains the settings."""
    from lockstitch.provider import until_stopped  # noqa: PLC0415 - heavy
    from lockstitch.proxy import Settings, check_settings  # noqa: PLC0415 - as above
    from lockstitch.proxy.server import Served, recorder_at  # noqa: PLC0415 - as above

    prepare = ending_with(int(sys.argv[1]))
    if prepare is not None:
        prepare()
    settings = check_settings(msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings))
    if os.getppid() != int(sys.argv[1]):
        return

    def log(event: ProxyEvent) -> None:
        line = ProxyLine(event.repaired, event.error, event.status)
        if line.repaired or line.error:
            os.write(sys.stderr.fileno(), msgspec.json.encode(line) + b"\n")

    def ready(url: str) -> None:
        os.write(sys.stdout.fileno(), f"{url}\n".encode("ascii"))

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), stop.set)
        connect = recorder_at(settings.record) if settings.record else None
        await until_stopped(Served(settings, log, connect), ready, stop=stop)

    try:
        asyncio.run(serve())
    except LockstitchError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
