"""Changed files as the operating system reports them, through watchfiles in threads of its own.

Which folders are watched, and which of their files may be sessions, is decided here, too.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from lockstitch.errors import LockstitchError, UsageError
from lockstitch.files import read
from lockstitch.sources.targets import OWN_FOLDER, SUFFIXES, files_below, known_folders

# The log of a database, which is written first.
_LOG = "-wal"


class SessionPlace(Struct, frozen=True):
    """A folder with sessions in it; ``steps`` are the patterns of their paths below it.

    Without steps, every file below it that may hold a session counts.
    """

    folder: str
    steps: tuple[str, ...] = ()

    @property
    def is_deep(self) -> bool:
        """Whether sessions may be in folders below it, too."""
        return len(self.steps) != 1

    def files(self) -> Iterator[str]:
        """Yield the files that are there now."""
        found: Iterable[str] = files_below(self.folder) if self.is_deep else []
        if not self.is_deep:
            with suppress(OSError), os.scandir(self.folder) as entries:
                found = [entry.path for entry in entries if entry.is_file()]
        yield from (path for path in found if self.holds(path))

    def holds(self, path: str) -> bool:
        """Whether a path is that of a session here, judging by its name."""
        rest = Path(os.path.relpath(path, self.folder)).parts
        if rest[:1] == (os.pardir,) or OWN_FOLDER in rest or read.is_shadowed_by_plain(path):
            return False
        if not self.steps:
            return path.endswith(SUFFIXES)
        return len(rest) == len(self.steps) and all(map(fnmatch.fnmatchcase, rest, self.steps))


def known_places(home: Path, environ: Mapping[str, str]) -> list[SessionPlace]:
    """Return the places of all known programs, whether they exist or not."""
    return [SessionPlace(*place) for place in dict.fromkeys(known_folders(home, environ))]


def given_places(paths: Sequence[str]) -> list[SessionPlace]:
    """Return the places that were named: folders, or files in them."""
    places: list[SessionPlace] = []
    for path in paths:
        whole = os.path.abspath(path)  # noqa: PTH100 - a link is followed where it was named
        folder, name = os.path.split(whole)
        own = SessionPlace(folder, (glob.escape(name),))
        places.append(SessionPlace(whole) if Path(path).is_dir() else own)
    return places


def log_of(database: str) -> str:
    """Return the path of a database's log."""
    return f"{database}{_LOG}"


_MISSING = "watching needs watchfiles, which is not installed: pip install 'lockstitch[watch]'"
# In milliseconds: how close changes are taken as one; how often the system's queue is read, which
# is all that an idle watch does; and how often the watch checks whether to end.
_DEBOUNCE, _STEP, _TIMEOUT = 1000, 250, 60_000

# How watchfiles ends when something happens to a file whose name is not UTF-8. Who starts it again,
# and looks for what changed since, has missed nothing.
_NOT_UTF8 = "Unable to decode path"

Watch = Callable[..., Iterable[set[tuple[Any, str]]]]


class Changes:
    """The files below some places, as they change.

    A folder of which only its own files matter is not watched more deeply.
    """

    def __init__(self, places: Sequence[SessionPlace]) -> None:
        self._places = places
        self._queue: SimpleQueue[set[str] | Exception | None] = SimpleQueue()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._roots: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        """Start to watch."""
        try:
            from watchfiles import watch  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise UsageError(_MISSING) from error
        self._roots = _find_folders(self._places)
        deep = _outermost(one.folder for one in self._places if one.is_deep)
        flat = {one.folder for one in self._places if not one.is_deep}
        for folders, is_deep in ((deep, True), (flat, False)):
            there = sorted(folders & self._roots.keys())
            if there:
                thread = threading.Thread(
                    target=self._follow, args=(watch, there, is_deep), daemon=True
                )
                thread.start()
                self._threads.append(thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the threads."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def is_stale(self) -> bool:
        """Whether a folder was created, removed or replaced, so that others have to be watched."""
        return _find_folders(self._places) != self._roots

    def end(self) -> None:
        """Wake a thread that waits for changes, for the last time.

        May be called from a signal handler.
        """
        self._queue.put(None)

    def wait(self, seconds: float) -> set[str] | None:
        """Return the changed session files; empty if none changed in time, None at the end."""
        try:
            found = self._queue.get(timeout=seconds)
        except Empty:
            return set()
        if isinstance(found, OSError):
            raise LockstitchError(f"the folders cannot be watched: {found}") from found
        if isinstance(found, Exception):
            raise found
        return found

    def _follow(self, watch: Watch, folders: Sequence[str], is_deep: bool) -> None:
        try:
            for found in watch(
                *folders,
                watch_filter=None,
                debounce=_DEBOUNCE,
                step=_STEP,
                rust_timeout=_TIMEOUT,
                stop_event=self._stop,
                recursive=is_deep,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                paths = {path for _, path in found}
                # a database writes to its log first
                files = {path.removesuffix(_LOG) for path in paths}
                for folder in filter(os.path.isdir, paths):
                    # Changes in a new folder are not reported before the folder is watched.
                    files.update(files_below(folder))
                relevant = {path for path in files if any(one.holds(path) for one in self._places)}
                if relevant:
                    self._queue.put(relevant)
        except Exception as error:  # noqa: BLE001 - raised where somebody waits for changes
            self._queue.put(None if str(error).startswith(_NOT_UTF8) else error)


def _find_folders(places: Sequence[SessionPlace]) -> dict[str, tuple[int, int]]:
    """Return the folders that exist, each with values that change when it is replaced."""
    found = {}
    for folder in {one.folder for one in places}:
        try:
            status = os.stat(folder)  # noqa: PTH116 - asked again and again
        except OSError:
            continue
        found[folder] = status.st_dev, status.st_ino
    return found


def _outermost(folders: Iterable[str]) -> set[str]:
    """Return the folders that are not inside another one."""
    kept: set[str] = set()
    for folder in sorted(folders):
        if not any(folder.startswith(f"{one}{os.sep}") for one in kept):
            kept.add(folder)
    return kept
