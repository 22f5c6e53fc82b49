"""Checks of many files: at once on all cores, or beside what a person does meanwhile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lockstitch import sessions
from lockstitch.cli import own_failure
from lockstitch.cli.databases import cores
from lockstitch.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.pool import Pool

# Below this many bytes in all, starting other processes costs more than it saves.
WORTH_WORKERS = 32 << 20
_DATABASES = (".db", ".sqlite", ".sqlite3")
# A part of a file: which one, of how many.
Piece = tuple[str, int, int]


def size_of(path: str) -> int:
    """Return the size of a file; 0 if nobody can say."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - there may be 100 000 of them
    except OSError:
        return 0


def parts_of(path: str) -> int:
    """Return into how many parts a file is divided: many, for a large database."""
    is_large = path.endswith(_DATABASES) and size_of(path) >= WORTH_WORKERS
    return 4 * cores() if is_large else 1


def scan_piece(piece: Piece) -> list[Report]:
    """Check the sessions of a part of a file."""
    return scan_one(*piece)


def scan_one(path: str, *part: int) -> list[Report]:
    """Check the sessions of one file, or of a part of it.

    A failure of our own is said and does not end the scan.
    """
    try:
        return sessions.scan_file(path, *part)
    except Exception as error:  # noqa: BLE001 - reported like anything else that stands in the way
        return [Report(path, error=own_failure(error))]


def pool(workers: int) -> Pool:
    """Start the workers, each a fresh interpreter that leaves Ctrl-C to this process."""
    import signal
    from multiprocessing import get_context

    # What is ignored while a process is started stays ignored in it.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return get_context("spawn").Pool(workers)
    finally:
        signal.signal(signal.SIGINT, before)


class Background:
    """Checks that go on while a person looks at a list; ``wake`` is called when some are done."""

    def __init__(self, files: Sequence[str], wake: Callable[[], object]) -> None:
        from queue import SimpleQueue

        self.done: SimpleQueue[list[Report]] = SimpleQueue()
        self.wake = wake
        self.pool: Pool | None = None
        self.is_over = False
        if sum(map(size_of, files)) >= WORTH_WORKERS:
            self.pool = pool(max(cores() - 1, 1))
            for path in files:
                # the newest first, one by one: a person looks at those
                self.pool.apply_async(scan_one, (path,), callback=self._checked)
            return
        from threading import Thread

        Thread(target=self._all, args=(files,), daemon=True).start()

    def _all(self, files: Sequence[str]) -> None:
        for path in files:
            if self.is_over:
                return
            self._checked(scan_one(path))

    def _checked(self, reports: list[Report]) -> None:
        self.done.put(reports)
        self.wake()

    def reports(self) -> list[Report]:
        """Return what was checked since the last time."""
        found: list[Report] = []
        while not self.done.empty():
            found += self.done.get()
        return found

    def close(self) -> None:
        """Stop; what was not checked stays so."""
        self.is_over = True
        if self.pool is not None:
            self.pool.terminate()
            self.pool.join()
