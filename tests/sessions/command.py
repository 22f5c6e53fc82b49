"""Running the command as a person would."""

from __future__ import annotations

import subprocess
from typing import Any

from tests import inprocess

LOCKSTITCH = inprocess.LOCKSTITCH


def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command with nothing on its stdin; with options, as a process that has them."""
    if options:
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            [*LOCKSTITCH, *map(str, words)], capture_output=True, text=True, check=False, **options
        )
    done = inprocess.command(*words)
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )
