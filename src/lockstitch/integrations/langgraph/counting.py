"""What a checkpointer of ours did besides storing: threads healed, conflicts, second tries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from lockstitch.integrations.langgraph.repairing.report import Reconciled


class Counters(Struct, frozen=True):
    """What one checkpointer has done since it was made, in this process.

    ``healed`` counts runs that found their thread broken and began on a healed one, ``codes`` the
    same by what was wrong (a run may have several), ``results`` the real results that were kept
    for them. ``conflicts`` counts what was refused, or went into a fork, since another writer had
    the thread; ``retries`` what was tried again without anybody being told.
    """

    healed: int = 0
    codes: Mapping[str, int] = MappingProxyType({})
    results: int = 0
    conflicts: int = 0
    retries: int = 0


class Counting:
    """Counts, for any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counted: Counter[str] = Counter()
        self._codes: Counter[str] = Counter()

    def heal(self, report: Reconciled) -> None:
        """Count a run that begins on a healed thread."""
        reports = [report]
        for one in reports:
            reports += one.subgraphs
        with self._lock:
            self._counted["healed"] += 1
            self._counted["results"] += sum(one.results for one in reports)
            self._codes.update({code for one in reports for code in one.codes})

    def conflict(self) -> None:
        """Count a conflict."""
        self._count("conflicts")

    def retry(self) -> None:
        """Count a second try."""
        self._count("retries")

    def _count(self, name: str) -> None:
        with self._lock:
            self._counted[name] += 1

    def counters(self) -> Counters:
        """Return what was counted so far; it does not change any more."""
        with self._lock:
            codes = MappingProxyType(dict(sorted(self._codes.items())))
            return Counters(codes=codes, **self._counted)
