"""A program that a test drives by its standard input, one order a line, and listens to."""

from __future__ import annotations

import os
import subprocess


class Driven:
    """The program's process; it starts a child for every order and says what became of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, order: str) -> None:
        """Give the next order."""
        assert self.process.stdin
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()

    def read(self, word: str) -> tuple[str, list[str]]:
        """What stands behind the next line that begins with a word, and the lines before it."""
        assert self.process.stdout
        before: list[str] = []
        for line in self.process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip(), before
            before.append(line.strip())
        raise AssertionError("the driver died")


def say(*words: object) -> None:
    """Print a line in one write, which nothing that another process prints can get into.

    ``print`` makes several of them where Python is told not to buffer.
    """
    os.write(1, (" ".join(map(str, words)) + "\n").encode())
