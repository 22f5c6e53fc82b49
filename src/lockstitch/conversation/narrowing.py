"""Which stretches of a long list need a look: the rest is proven fine in one quick walk.

A *seam* is a message before which nothing is open: a user's prompt with every call answered.
Seams cut a list into stretches; a walker proves stretches fine, and only the others, with the
neighbours that share an id with them, go through the rules and the repair. Of every run of fine
stretches the first message and the end stay in the excerpt, so that each suspect keeps its
neighbours.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from msgspec import Struct


class Walker(Protocol):
    """Walks over raw messages of one dialect and proves the everyday shapes."""

    def run(self, raw: Sequence[Any], start: int, seams: list[int]) -> int:
        """Walk from a seam to the first message that is not plain, and give its index.

        Adds the seams it passes. A call still open at the end fails at the last message.
        """

    def is_prompt(self, message: Any) -> bool:
        """Whether a new stretch may start at this message after a failure."""

    def is_quiet(self, message: Any) -> bool:
        """Whether this is an assistant's message without calls, at which a turn can end."""

    def note(self, message: Any, index: int) -> None:
        """Remember the ids of a message in a suspect stretch, so that later uses fail too."""

    def ids_in(self, message: Any) -> list[str]:
        """Return the ids of calls and results in a message, whatever its state."""

    def is_sound(self) -> bool:
        """Whether what was gathered over the whole walk (ids, names) is fine."""

    def ids(self) -> Iterable[str]:
        """Return every id met on the walk."""

    def home_of(self, call: str) -> int | None:
        """Return the index of the message that made a call, -1 if several did."""


class Excerpt(Struct):
    """The messages that need a look: their indices, and the runs left out between them.

    ``gaps`` maps the index behind which a run was left out to the run's end; ``ids`` holds every
    id of the whole list, so that none is minted twice.
    """

    numbers: list[int]
    gaps: dict[int, int]
    ids: frozenset[str] = frozenset()

    def keeps_seams(self, kept: Iterable[int]) -> bool:
        """Whether every run can be put back behind its first message.

        ``kept`` names the messages that a repair left as they were, in their new order.
        """
        return [number for number in kept if number in self.gaps] == sorted(self.gaps)


def find_excerpt(raw: Sequence[Any], walker: Walker, *, with_ends: bool = False) -> Excerpt | None:
    """Return the messages that need a look; None if that cannot be narrowed down.

    An excerpt without numbers says that the whole list is proven fine; ``with_ends`` asks for the
    first and the last stretch in any case.
    """
    seams, suspects = _walk(raw, walker)
    if not walker.is_sound():
        return None
    if not suspects and not with_ends:
        return Excerpt([], {})
    spans = _with_kin(raw, walker, seams, suspects)
    if spans is None:
        return None
    # Take the suspects and, of each run between them, its first message and its tail.
    numbers: list[int] = []
    gaps: dict[int, int] = {}
    fine = 0
    for start, stop in [*spans, (len(raw), len(raw))]:
        first = max(start, fine)
        tail = first - 1
        if tail > fine and not walker.is_quiet(raw[tail]):
            tail = _stretch_at(seams, tail, len(raw))[0]
        if tail > fine + 1:
            numbers.append(fine)
            gaps[fine] = tail
            fine = tail
        numbers += range(fine, max(stop, fine))
        fine = max(fine, stop)
    found = Excerpt(numbers, gaps)
    found.ids = frozenset(walker.ids())
    return found


Spans = list[tuple[int, int]]


def _walk(raw: Sequence[Any], walker: Walker) -> tuple[list[int], Spans]:
    """Cut a list at its seams, and give the stretches in which the walker failed."""
    seams: list[int] = [0]
    suspects: Spans = []
    start, total = 0, len(raw)
    while start < total:
        failed = walker.run(raw, start, seams)
        if failed == total:
            break
        start = failed + 1
        while start < total and not walker.is_prompt(raw[start]):
            start += 1
        for number in range(seams[-1], start):
            walker.note(raw[number], number)
        suspects.append((seams[-1], start))
        seams.append(start)
    return seams, suspects


def _with_kin(
    raw: Sequence[Any], walker: Walker, seams: list[int], suspects: Spans
) -> Spans | None:
    """Add the stretches that share an id with a suspect, and the two ends of the list."""
    spans = {*suspects, _stretch_at(seams, 0, len(raw)), _stretch_at(seams, len(raw) - 1, len(raw))}
    todo = list(spans)
    while todo:
        start, stop = todo.pop()
        for index in range(start, stop):
            for call in walker.ids_in(raw[index]):
                home = walker.home_of(call)
                if home == -1:
                    return None
                if home is None or start <= home < stop:
                    continue
                span = _stretch_at(seams, home, len(raw))
                if span not in spans:
                    spans.add(span)
                    todo.append(span)
    return sorted(spans)


def _stretch_at(seams: list[int], index: int, total: int) -> tuple[int, int]:
    at = bisect_right(seams, index)
    return seams[at - 1], seams[at] if at < len(seams) else total
