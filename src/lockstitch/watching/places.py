"""Which folders are followed, and which files in them may be sessions."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from lockstitch.formats import packed
from lockstitch.formats.registry import NAMES, below, format_named
from lockstitch.formats.sources import OWN_FOLDER, SUFFIXES, files_below

# The log of a database: what is written goes there first.
_LOG = "-wal"


class SessionPlace(Struct, frozen=True):
    """A folder with sessions in it; ``steps`` are the patterns of their paths below it.

    Without steps, every file below that may hold a session is meant.
    """

    folder: str
    steps: tuple[str, ...] = ()

    @property
    def is_deep(self) -> bool:
        """Whether sessions are in folders below it, too."""
        return len(self.steps) != 1

    def files(self) -> Iterator[str]:
        """Return the files there now."""
        if self.is_deep:
            found: Iterator[str] = files_below(self.folder)
        else:
            found = (entry.path for entry in _entries(self.folder))
        yield from (path for path in found if self.holds(path))

    def holds(self, path: str) -> bool:
        """Whether a path is that of a session here, by its name."""
        rest = Path(os.path.relpath(path, self.folder)).parts
        if rest[:1] == (os.pardir,) or OWN_FOLDER in rest or packed.is_hidden(path):
            return False
        if not self.steps:
            return path.endswith(SUFFIXES)
        return len(rest) == len(self.steps) and all(map(fnmatch.fnmatchcase, rest, self.steps))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.is_file()]
    except OSError:
        return []


def known(home: Path, environ: Mapping[str, str]) -> list[SessionPlace]:
    """Return the places of all programs that are known, whether they are there or not."""
    found: dict[SessionPlace, None] = {}
    for form in map(format_named, NAMES):
        moved = environ.get(form.variable) if form.variable else None
        for place in form.places:
            steps = (below(form.variable, place) if moved else place).split("/")
            # The last step names files, and everything from the first pattern on is one.
            fixed = next((at for at, step in enumerate(steps) if "*" in step), len(steps) - 1)
            folder = Path(moved or home, *steps[:fixed])
            found[SessionPlace(str(folder), tuple(steps[fixed:]))] = None
    return list(found)


def given(paths: Sequence[str]) -> list[SessionPlace]:
    """Return the places that were named: folders, or files in them."""
    return [
        SessionPlace(os.path.abspath(path))  # noqa: PTH100 - a link is followed where it was named
        if Path(path).is_dir()
        else SessionPlace(*_split(path))
        for path in paths
    ]


def _split(path: str) -> tuple[str, tuple[str]]:
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100 - as above
    return folder, (name.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]"),)


def session_file(path: str) -> str:
    """Return the file whose sessions changed when this one did: a log is its database's."""
    return path.removesuffix(_LOG)


def log_of(database: str) -> str:
    """Return the log of a database."""
    return f"{database}{_LOG}"
