"""The loop of a watch: wait for changes or for what is due, and tell what came of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from lockstitch.watching.changes import Changes
from lockstitch.watching.events import Notice
from lockstitch.watching.places import SessionPlace
from lockstitch.watching.watcher import Watcher

# In seconds: how often folders are looked for that were not there.
_ROUND = 30.0
# A session that was written to so shortly before the start is looked at as if it had just changed.
_RECENT = 3600.0


class WatchStart(Struct):
    """What a watch found at its start."""

    folders: list[str]
    sessions: int


class Loop:
    """A watch over some places; it ends when somebody says so."""

    def __init__(self, places: Sequence[SessionPlace], watcher: Watcher) -> None:
        self._places = places
        self._watcher = watcher
        self._changes: Changes | None = None
        self._is_over = False

    def end(self) -> None:
        """Let the watch end soon; may be called by a signal."""
        self._is_over = True
        if self._changes is not None:
            self._changes.end()

    def run(self, started: Callable[[WatchStart], None], tell: Callable[[Notice], None]) -> None:
        """Watch, until the end."""
        since = time.time() - _RECENT
        is_first = True
        while not self._is_over:
            with self._watched() as changes:
                found = self._note_recent(since)
                if is_first:
                    started(found)
                is_first = False
                since = time.time()
                self._follow(changes, tell)

    @contextmanager
    def _watched(self) -> Iterator[Changes]:
        with Changes(self._places) as changes:
            self._changes = changes
            try:
                yield changes
            finally:
                self._changes = None

    def _note_recent(self, since: float) -> WatchStart:
        """Take note of what was written to lately, and count what there is."""
        files = {path for place in self._places for path in place.files()}
        now = time.time()
        for path in files:
            try:
                changed = os.stat(path).st_mtime  # noqa: PTH116 - there may be thousands
            except OSError:
                continue
            if changed >= since:
                self._watcher.note(path, max(now - changed, 0.0))
        folders = sorted({one.folder for one in self._places if os.path.isdir(one.folder)})  # noqa: PTH112
        return WatchStart(folders, len(files))

    def _follow(self, changes: Changes, tell: Callable[[Notice], None]) -> None:
        """Watch these folders, until the end or until there are others."""
        while not self._is_over:
            for event in self._watcher.due():
                tell(event)
            until = min(self._watcher.wake - time.monotonic(), _ROUND)
            found = changes.wait(max(until, 0.0))
            if found is None or changes.is_stale:
                return
            for path in sorted(found):
                self._watcher.note(path)
