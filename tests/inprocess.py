"""The command run within the test's own process: the same words, streams and status, much sooner.

For tests of what it says and does; what a process is for (signals, pipes that break, start-up,
memory) is tested with one. ``LOCKSTITCH_PROCESSES=1`` runs these with processes, too.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from typing import IO, Any
from unittest import mock

from lockstitch import cli

LOCKSTITCH = (sys.executable, "-m", "lockstitch")
Done = subprocess.CompletedProcess[bytes]


def command(*words: object, stdin: bytes = b"", **options: Any) -> Done:
    """Run the command; what it takes to run a process takes one, but for ``cwd`` and ``env``."""
    line = [str(word) for word in words]
    if options.keys() - {"cwd", "env"} or os.environ.get("LOCKSTITCH_PROCESSES"):
        options = {"capture_output": True, "timeout": 600, **options}
        return subprocess.run([*LOCKSTITCH, *line], input=stdin, check=False, **options)
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        if "cwd" in options:
            stack.enter_context(chdir(options["cwd"]))
        if "env" in options:
            stack.enter_context(mock.patch.dict(os.environ, options["env"], clear=True))
        with _streams(*files):
            status = cli.run(line)
        out, err = (_read(file) for file in files[1:])
    return subprocess.CompletedProcess([*LOCKSTITCH, *line], status, out, err)


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


@contextmanager
def _streams(*files: IO[bytes]) -> Iterator[None]:
    """Give this process other streams, both as Python and as the system knows them."""
    names = ("stdin", "stdout", "stderr")
    before = [getattr(sys, name) for name in names]
    kept = [os.dup(number) for number in range(3)]
    try:
        for number, file in enumerate(files):
            os.dup2(file.fileno(), number)
        opened = [_opened(number) for number in range(3)]
        for name, stream in zip(names, opened, strict=True):
            setattr(sys, name, stream)
        try:
            yield
        finally:
            for stream in opened[1:]:
                stream.flush()
    finally:
        for number, (name, stream) in enumerate(zip(names, before, strict=True)):
            os.dup2(kept[number], number)
            os.close(kept[number])
            setattr(sys, name, stream)


def _opened(number: int) -> io.TextIOWrapper:
    """A standard stream as Python opens it where everything is UTF-8."""
    options: dict[str, Any] = {"encoding": "utf-8", "closefd": False}
    errors = "backslashreplace" if number == 2 else "surrogateescape"
    stream = open(number, "r" if number == 0 else "w", errors=errors, **options)  # noqa: SIM115
    assert isinstance(stream, io.TextIOWrapper)
    return stream
