"""The command on what a dimension put into a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tests import inprocess
from tests.formats.campaign import LONG_AGO

from .dimension import Dimension, Work

Write = Callable[[int, Path], Path]
# What is done before the work that is measured, and the work.
READING = {
    "check": (("check", "--workers", "1", "--json"),),
    "show": (("show", "--full"),),
    "export": (("export", "--to", "openai-chat"),),
    "diff": (("repair", "--diff"),),
}
REPAIR = ("repair", "--yes", "--workers", "1", "--json")
WRITING = {
    "repair": (REPAIR,),
    "undo": (REPAIR, ("undo", "--yes", "--json")),
}
COMMANDS = {**READING, **WRITING}


def run(*words: object, home: Path) -> None:
    """Run a command as somebody who lives in this folder."""
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "NO_COLOR": "1"}
    done = inprocess.command(*words, env=environ, cwd=home)
    assert done.returncode in {0, 1, 2}, done.stderr.decode()
    assert b"Traceback" not in done.stderr, done.stderr.decode()


def commanded(name: str, write: Write, *commands: str) -> Iterator[Dimension]:
    """A dimension for each command, all of the same files."""
    for command in commands:
        yield Dimension(f"{command}: {name}", _making(write, command))


def _making(write: Write, command: str) -> Callable[[int, Path], Work]:
    def make(count: int, folder: Path) -> Work:
        target = write(count, folder)
        if target.is_file():
            os.utime(target, (LONG_AGO, LONG_AGO))
        *before, words = COMMANDS[command]
        for earlier in before:
            run(*earlier, target, home=folder)
        return lambda: run(*words, target, home=folder)

    return make
