"""The path of a newcomer, timed: install, bare ``lockstitch``, repair, the line that resumes.

``python -m tests.newcomer`` builds the wheel, installs it into a fresh environment as ``pip`` does,
and drives the command in a real terminal, without a word of the documentation. The way through the
terminal is also part of the tests (``tests/sessions/test_pick.py``).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.clients.terminal import Terminal
from tests.sessions import claude, homes

ROOT = Path(__file__).parents[1]
RESUME = f"claude --resume {claude.SESSION}"
# What the path may take, without the time in which the wheel is built.
GOAL = 60.0


def main() -> int:
    """Go the path once, print what each step took, and return the exit status."""
    taken: dict[str, float] = {}
    with TemporaryDirectory() as place:
        folder = Path(place)
        wheel = built(folder / "dist")
        with clock(taken, "install"):
            command = installed(wheel, folder / "venv")
        home = folder / "home"
        home.mkdir()
        broken = homes.small(home)
        with clock(taken, "lockstitch, to the line that resumes"):
            shown = repaired(command, home)
        status = subprocess.run([command, "check", str(broken)], check=False, capture_output=True)
    line = next(line.strip() for line in shown.splitlines() if RESUME in line)
    for step, seconds in taken.items():
        print(f"{seconds:6.1f} s  {step}")  # noqa: T201 - a program prints
    total = sum(taken.values())
    print(f"{total:6.1f} s  in all (goal: {GOAL:.0f} s)")  # noqa: T201 - as above
    print(f"resumes with: {line}")  # noqa: T201 - as above
    return 0 if total <= GOAL and status.returncode == 0 else 1


@contextmanager
def clock(taken: dict[str, float], step: str) -> Iterator[None]:
    """Note how long a step takes."""
    start = time.monotonic()
    yield
    taken[step] = time.monotonic() - start


def built(folder: Path) -> Path:
    """Build the wheel of this checkout."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "wheel"]
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*pip, *options, str(ROOT)], check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def installed(wheel: Path, folder: Path) -> str:
    """Install a wheel and what it needs into a fresh environment; gives the command."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", str(wheel)], check=True)
    return str(folder / "bin" / "lockstitch")


def repaired(command: str, home: Path) -> str:
    """Pick the broken session, repair it and leave; gives what stays on the terminal."""
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    with Terminal([command], home, environ, columns=120, rows=24) as terminal:
        terminal.wait("broken: 1 tool call without a result")
        terminal.press("enter")
        terminal.wait("What the repair will do")
        terminal.press("r")
        terminal.wait("Repair it")
        terminal.press("y")
        terminal.wait("Resume it with")
        terminal.press("q")
        terminal.ended()
        terminal.rest()
        return terminal.text


if __name__ == "__main__":
    sys.exit(main())
