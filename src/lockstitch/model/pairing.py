"""Which result answers which call: the one pairing algorithm, for every dialect.

Pairing is positional and by occurrence, because ids repeat across turns with several providers.
Each call and each result is a *slot*; a slot's ``zone`` is the stretch of the conversation in
which the provider expects the result to stand.

1. *Reserve*: inside a zone, results go to the calls of that zone with the same key (and, where
   names are known, the same name), first in first out; a real result takes the place of a
   placeholder. A result that names no call at all
   goes to the first call of its zone that is still open.
2. *Move*: a result outside its zone goes to the latest earlier call with its key if that call is
   still open, else to the only open call with its key, if there is exactly one.
3. What is left is a duplicate of an answered call, or an orphan.

Zones in which calls and results simply line up are settled in one linear walk; the tables behind
the three steps are built only for what is left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from msgspec import Struct

ANSWER = "answer"
DUPLICATE = "duplicate"
ORPHAN = "orphan"

NOWHERE = -1
# How many calls of one turn with one id are compared with a repeated result.
_NEAR = 8


class Slot(Struct, gc=False):
    """A call or a result as pairing sees it.

    ``order`` is its position in the conversation; ``zone`` -1 means "in no zone".
    ``alias`` is a second, weaker key (a tool's name) for formats in which ids are optional.
    """

    order: int
    zone: int
    key: str
    alias: str = ""


class Pairing(Struct):
    """Per call the index of its result, per result the index of its call and a verdict.

    A duplicate's owner is the call it duplicates the answer of; an orphan's is -1.
    ``displaced`` holds the results that answer a call from outside its zone, ``masked`` maps a
    placeholder to the real result that took its place.
    """

    answers: list[int]
    owners: list[int]
    verdicts: list[str]
    displaced: set[int]
    masked: dict[int, int]


class Contents(Struct):
    """What pairing may ask about results, by their index; asked only where it matters."""

    same: Callable[[int, int], bool]
    is_placeholder: Callable[[int], bool]


def pair(calls: Sequence[Slot], results: Sequence[Slot], contents: Contents) -> Pairing:
    """Pair results with calls."""
    pairing = Pairing(
        [NOWHERE] * len(calls), [NOWHERE] * len(results), [""] * len(results), set(), {}
    )
    left = _settle_in_step(calls, results, pairing)
    if left:
        _Table(calls, results, contents, pairing, left).pair()
    return pairing


def _settle_in_step(calls: Sequence[Slot], results: Sequence[Slot], pairing: Pairing) -> list[int]:
    """Pair the zones whose results line up with their calls; give the results that are left."""
    left: list[int] = []
    first, at, total = 0, 0, len(results)
    while first < len(calls):
        zone = calls[first].zone
        stop = first + 1
        while stop < len(calls) and calls[stop].zone == zone:
            stop += 1
        while at < total and results[at].order < calls[first].order:
            left.append(at)
            at += 1
        end = at + stop - first
        if _lines_up(calls, results, (first, stop), (at, end)):
            for call, result in zip(range(first, stop), range(at, end), strict=True):
                pairing.answers[call] = result
                pairing.owners[result] = call
                pairing.verdicts[result] = ANSWER
            at = end
        first = stop
    return left + list(range(at, total))


def _lines_up(
    calls: Sequence[Slot], results: Sequence[Slot], mine: tuple[int, int], theirs: tuple[int, int]
) -> bool:
    """Tell whether a zone holds exactly one result a call, in order."""
    zone = calls[mine[0]].zone
    if theirs[1] > len(results):
        return False
    if theirs[1] < len(results) and results[theirs[1]].zone == zone:
        return False
    return all(
        results[result].zone == zone and results[result].key == calls[call].key
        for call, result in zip(range(*mine), range(*theirs), strict=True)
    )


class _Table:
    """The tables of one pairing run, for what did not simply line up."""

    def __init__(
        self,
        calls: Sequence[Slot],
        results: Sequence[Slot],
        contents: Contents,
        pairing: Pairing,
        left: list[int],
    ) -> None:
        self.calls = calls
        self.results = results
        self.same = contents.same
        self.is_placeholder = contents.is_placeholder
        self.pairing = pairing
        self.left = left
        self.by_zone: dict[tuple[int, str], list[int]] = {}
        self.by_alias: dict[tuple[int, str], list[int]] = {}
        self.in_zone: dict[int, list[int]] = {}
        self.cursors: dict[tuple[int, str], list[int]] = {}
        self.by_key: dict[str, list[int]] = {}
        self.orders: dict[str, list[int]] = {}
        self.open: dict[str, dict[int, None]] = {}
        self.masked: dict[str, dict[int, None]] = {}

    def pair(self) -> None:
        """Run the three steps over the results that are left."""
        self._index()
        for step in (self.reserve, self.reserve_by_alias, self.reserve_unnamed, self.move):
            for index in self.left:
                step(index)

    def _index(self) -> None:
        keys = {self.results[index].key for index in self.left}
        zones = {self.results[index].zone for index in self.left}
        for number, call in enumerate(self.calls):
            if call.zone in zones:
                self.in_zone.setdefault(call.zone, []).append(number)
                self.by_zone.setdefault((call.zone, call.key), []).append(number)
                if call.alias:
                    self.by_alias.setdefault((call.zone, call.alias), []).append(number)
            if call.key and call.key in keys:
                self.by_key.setdefault(call.key, []).append(number)
                self.orders.setdefault(call.key, []).append(call.order)
                self._index_state(number, call.key)

    def _index_state(self, number: int, key: str) -> None:
        answer = self.pairing.answers[number]
        if answer == NOWHERE:
            self.open.setdefault(key, {})[number] = None
        elif self.is_placeholder(answer):
            self.masked.setdefault(key, {})[number] = None

    def reserve(self, index: int) -> None:
        """Give a result to the call of its own zone that it names."""
        slot = self.results[index]
        if slot.zone == NOWHERE or slot.key == slot.alias:
            return
        calls = self.by_zone.get((slot.zone, slot.key), [])
        if not slot.alias:
            self._claim(index, calls, slot.key)
            return
        alike = [number for number in calls if self.calls[number].alias == slot.alias]
        self._claim(index, alike or calls, f"{slot.key}\0{bool(alike)}{slot.alias}")

    def reserve_by_alias(self, index: int) -> None:
        """Give a result to a call of its zone with the same name, where either lacks an id."""
        slot = self.results[index]
        if self.pairing.verdicts[index] or slot.zone == NOWHERE or not slot.alias:
            return
        named = self.by_alias.get((slot.zone, slot.alias), [])
        if slot.key != slot.alias:
            named = [number for number in named if self.calls[number].key == slot.alias]
        self._claim(index, named, f"\0{slot.key == slot.alias}{slot.alias}")

    def reserve_unnamed(self, index: int) -> None:
        """Give a result without any id to the first open call of its zone."""
        slot = self.results[index]
        if self.pairing.verdicts[index] or slot.key or slot.zone == NOWHERE:
            return
        calls = self.in_zone.get(slot.zone, [])
        number = self._next_open(index, calls, "\0all") if calls else NOWHERE
        if number != NOWHERE and self.pairing.answers[number] == NOWHERE:
            self._assign(index, number)

    def _claim(self, index: int, candidates: list[int], name: str) -> None:
        """Give a result to an open call of these; ``name`` tells the list from others."""
        if not candidates:
            return
        idle = self._next_open(index, candidates, name)
        if idle != NOWHERE:
            self._assign(index, idle)
            return
        near = candidates[:_NEAR]
        twin = next((call for call in near if self._repeats(index, call)), candidates[0])
        self._mark(index, DUPLICATE, twin)

    def _next_open(self, index: int, candidates: list[int], name: str) -> int:
        """Give the first call without an answer, else the first answered by a placeholder only.

        Calls are claimed from the front and a real answer stays, so both cursors only advance.
        """
        answers = self.pairing.answers
        cursor = self.cursors.setdefault((self.results[index].zone, name), [0, 0])
        while cursor[0] < len(candidates) and answers[candidates[cursor[0]]] != NOWHERE:
            cursor[0] += 1
        if cursor[0] < len(candidates):
            return candidates[cursor[0]]
        if self.is_placeholder(index):
            return NOWHERE
        while cursor[1] < len(candidates) and not self._is_masked(candidates[cursor[1]]):
            cursor[1] += 1
        return candidates[cursor[1]] if cursor[1] < len(candidates) else NOWHERE

    def _is_masked(self, call: int) -> bool:
        answer = self.pairing.answers[call]
        return answer != NOWHERE and self.is_placeholder(answer)

    def move(self, index: int) -> None:
        """Find the call of a result that stands in no zone of its own."""
        if self.pairing.verdicts[index]:
            return
        slot = self.results[index]
        if not slot.key:
            self._mark(index, ORPHAN, NOWHERE)
            return
        occurrences = self.by_key.get(slot.key, [])
        latest = self._latest_before(slot)
        owner = self._owner(index, latest, slot.key)
        if owner != NOWHERE:
            self._assign(index, owner)
            self.pairing.displaced.add(index)
            return
        answers = self.pairing.answers
        if latest == NOWHERE and slot.key == slot.alias:
            # only a name, which any later call may have: what comes later says nothing of it
            self._mark(index, ORPHAN, NOWHERE)
            return
        if latest == NOWHERE or answers[latest] == NOWHERE:
            latest = next((call for call in occurrences if answers[call] != NOWHERE), NOWHERE)
        self._mark(index, ORPHAN if latest == NOWHERE else DUPLICATE, latest)

    def _owner(self, index: int, latest: int, key: str) -> int:
        if latest != NOWHERE:
            if self._is_open_for(latest, index):
                return latest
            if self._repeats(index, latest):
                return NOWHERE
        idle = self.open.get(key, {})
        if len(idle) == 1:
            return next(iter(idle))
        masked = self.masked.get(key, {})
        if not idle and len(masked) == 1 and not self.is_placeholder(index):
            return next(iter(masked))
        return NOWHERE

    def _latest_before(self, slot: Slot) -> int:
        at = bisect_left(self.orders.get(slot.key, []), slot.order)
        return self.by_key[slot.key][at - 1] if at else NOWHERE

    def _is_open_for(self, call: int, index: int) -> bool:
        answer = self.pairing.answers[call]
        if answer == NOWHERE:
            return True
        return self.is_placeholder(answer) and not self.is_placeholder(index)

    def _repeats(self, index: int, call: int) -> bool:
        answer = self.pairing.answers[call]
        return answer != NOWHERE and self.same(answer, index)

    def _assign(self, index: int, call: int) -> None:
        before = self.pairing.answers[call]
        if before != NOWHERE:
            self._mark(before, DUPLICATE, call)
            self.pairing.displaced.discard(before)
            self.pairing.masked[before] = index
        self.pairing.answers[call] = index
        self._mark(index, ANSWER, call)
        key = self.calls[call].key
        self.open.get(key, {}).pop(call, None)
        if self.is_placeholder(index):
            self.masked.setdefault(key, {})[call] = None
        else:
            self.masked.get(key, {}).pop(call, None)

    def _mark(self, index: int, verdict: str, call: int) -> None:
        self.pairing.verdicts[index] = verdict
        self.pairing.owners[index] = call
