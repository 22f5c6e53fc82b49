"""Running the command as a person would."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from lockstitch import cli

LOCKSTITCH = (sys.executable, "-m", "lockstitch")


def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command with nothing on its stdin, unless told otherwise."""
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(
        [*LOCKSTITCH, *map(str, words)], capture_output=True, text=True, check=False, **options
    )


def here(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, which is much faster than starting another one."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    said = io.StringIO()
    with redirect_stdout(out), redirect_stderr(said):
        status = cli.run([str(word) for word in words])
        out.flush()
    printed = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(words, status, printed, said.getvalue())
