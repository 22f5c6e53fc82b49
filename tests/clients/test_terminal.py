"""The terminal that clients are typed into, with a program of three lines."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from .terminal import COLUMNS, NotSeen, Terminal

PROGRAM = """
import os
print("\\033[2J\\033[5;10Hsize", os.get_terminal_size().columns, flush=True)
print("said", input("> "), flush=True)
input()
"""


def test_what_is_typed_is_answered_on_the_screen(tmp_path: Path) -> None:
    with Terminal([sys.executable, "-c", PROGRAM], tmp_path, os.environ) as terminal:
        terminal.wait(f"size {COLUMNS}")
        terminal.type("hello")
        terminal.press("enter")
        terminal.wait("said hello")
        with pytest.raises(NotSeen, match="said hello"):
            terminal.wait("good-bye", 0.2)
        assert not terminal.ended(0.1)
        terminal.press("enter")
        assert terminal.ended()
        with pytest.raises(NotSeen):
            terminal.wait("good-bye")


def test_a_program_that_goes_on_is_ended_with_the_window(tmp_path: Path) -> None:
    with Terminal(["sleep", "600"], tmp_path, os.environ) as terminal:
        assert terminal.process.poll() is None
    assert terminal.process.poll() is not None
