"""Run the few tests that failed in the last run once more, alone, one after the other.

Many tests let real processes race on a loaded machine. One that lost its race only because of the
others around it passes here, and is named, so that it can be made to wait for what it needs. One
that fails again fails the run, and so do more failures than a race explains.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 8


def main() -> int:
    """Return 0 if every test that failed passes alone."""
    names = sorted(json.loads(FAILED.read_text("utf-8"))) if FAILED.exists() else []
    if not 0 < len(names) <= MOST or any("::" not in name for name in names):
        _say(f"{len(names)} tests failed; only up to {MOST} are run again.")
        return 1
    _say("Failed beside other tests, and run again alone:")
    for name in names:
        _say(f"  {name}")
    command = [sys.executable, "-m", "pytest", "-n", "0", "--last-failed"]
    status = subprocess.run(command, check=False).returncode
    _say("They pass alone." if status == 0 else "They fail alone, too.")
    return status


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a program of its own


if __name__ == "__main__":
    sys.exit(main())
