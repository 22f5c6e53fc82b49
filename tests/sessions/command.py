"""Running the command as a person would."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

LOCKSTITCH = (sys.executable, "-m", "lockstitch")


def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command with nothing on its stdin, unless told otherwise."""
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(
        [*LOCKSTITCH, *map(str, words)], capture_output=True, text=True, check=False, **options
    )
