"""Files that change, as the operating system tells it: watchfiles, in threads of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

from lockstitch.errors import LockstitchError, UsageError
from lockstitch.formats.sources import files_below
from lockstitch.watching.places import SessionPlace, session_file

_MISSING = "watching needs watchfiles, which is not installed: pip install 'lockstitch[watch]'"
# In milliseconds: what changes so shortly after each other is one change; how often the queue of
# the system is looked at, which is all that an idle watch does; how often it asks whether to end.
_DEBOUNCE, _STEP, _TIMEOUT = 1000, 250, 60_000

Watch = Callable[..., Iterable[set[tuple[Any, str]]]]


class Changes:
    """The files below some places that changed, as they change.

    Folders whose own files are meant are not looked into more deeply than that.
    """

    def __init__(self, places: Sequence[SessionPlace]) -> None:
        self._places = places
        self._queue: SimpleQueue[set[str] | Exception | None] = SimpleQueue()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._roots: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        """Start to watch."""
        watch = _watch()
        self._roots = _there(self._places)
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
        """Whether a folder came up, went away or was replaced, so that others are to be watched."""
        return _there(self._places) != self._roots

    def end(self) -> None:
        """Let whoever waits for changes know that there are no more; may be called by a signal."""
        self._queue.put(None)

    def wait(self, seconds: float) -> set[str] | None:
        """Return the session files that changed, empty if none did in time, None at the end."""
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
                meant = self._meant({path for _, path in found})
                if meant:
                    self._queue.put(meant)
        except Exception as error:  # noqa: BLE001 - raised where somebody waits for changes
            self._queue.put(error)

    def _meant(self, paths: set[str]) -> set[str]:
        """Return the session files among paths that changed."""
        files = {session_file(path) for path in paths}
        for folder in filter(os.path.isdir, paths):
            # What is written into a new folder before that is watched is told by nobody.
            files.update(files_below(folder))
        return {path for path in files if any(one.holds(path) for one in self._places)}


def _watch() -> Watch:
    try:
        from watchfiles import watch  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise UsageError(_MISSING) from error
    return watch


def _there(places: Sequence[SessionPlace]) -> dict[str, tuple[int, int]]:
    """Return the folders that exist, each with what tells it from another of the same name."""
    found = {}
    for folder in {one.folder for one in places}:
        try:
            status = os.stat(folder)  # noqa: PTH116 - asked again and again
        except OSError:
            continue
        found[folder] = status.st_dev, status.st_ino
    return found


def _outermost(folders: Iterable[str]) -> set[str]:
    """Return folders without those inside of others."""
    kept: set[str] = set()
    for folder in sorted(folders):
        if not any(folder.startswith(f"{one}{os.sep}") for one in kept):
            kept.add(folder)
    return kept
