"""Which result answers which call: the one pairing algorithm, for every dialect.

Pairing is positional and by occurrence, because ids repeat across turns with several providers.
A *zone* is the stretch of the conversation in which the provider expects the results of a batch of
calls. Three layouts cover every dialect:

- ``GROUPED``: all results of a turn stand in the user message right after it (Anthropic,
  Bedrock, Gemini). A run of assistant messages is one turn.
- ``SINGLE``: each result is a message of its own, right after the message that called
  (OpenAI Chat, LangChain).
- ``FLAT``: results are items that may stand anywhere behind their call (OpenAI Responses).

1. *Reserve*: inside a zone, results go to the calls of that zone with the same key (and, where
   names are known, the same name), first in first out; a real result takes the place of a
   placeholder. A result that names no call at all goes to the first call of its zone that is
   still open.
2. *Move*: a result outside its zone goes to the latest earlier call with its key if that call is
   still open, else to the only open call with its key, if there is exactly one.
3. What is left is a duplicate of an answered call, or an orphan.

Zones in which calls and results simply line up are paired in one linear walk; the tables behind
the three steps are built only for what is left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from lockstitch.conversation.parts import ASSISTANT, CALL, RESULT, TOOL, USER, Message, Part

ANSWER = "answer"
DUPLICATE = "duplicate"
ORPHAN = "orphan"

NOWHERE = -1
# How many calls of one turn with one id are compared with a repeated result.
_NEAR = 8


class PairingSlot(Struct, gc=False):
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


class ResultContents(Struct):
    """What pairing may ask about results, by their index; asked only where it matters."""

    same: Callable[[int, int], bool]
    is_placeholder: Callable[[int], bool]


def pair_slots(
    calls: Sequence[PairingSlot], results: Sequence[PairingSlot], contents: ResultContents
) -> Pairing:
    """Pair results with calls."""
    pairing = Pairing(
        [NOWHERE] * len(calls), [NOWHERE] * len(results), [""] * len(results), set(), {}
    )
    left = _pair_in_step(calls, results, pairing) if results else []
    if left:
        _PairingTable(calls, results, contents, pairing, left).pair()
    return pairing


def _pair_in_step(
    calls: Sequence[PairingSlot], results: Sequence[PairingSlot], pairing: Pairing
) -> list[int]:
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
        # exactly one result a call in this zone, in order
        if (
            end <= total
            and (end == total or results[end].zone != zone)
            and all(
                result.zone == zone and result.key == call.key
                for call, result in zip(calls[first:stop], results[at:end], strict=True)
            )
        ):
            for call, result in zip(range(first, stop), range(at, end), strict=True):
                pairing.answers[call] = result
                pairing.owners[result] = call
                pairing.verdicts[result] = ANSWER
            at = end
        first = stop
    return left + list(range(at, total))


class _PairingTable:
    """The tables of one pairing run, for what did not simply line up."""

    def __init__(
        self,
        calls: Sequence[PairingSlot],
        results: Sequence[PairingSlot],
        contents: ResultContents,
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
                answer = self.pairing.answers[number]
                if answer == NOWHERE:
                    self.open.setdefault(call.key, {})[number] = None
                elif self.is_placeholder(answer):
                    self.masked.setdefault(call.key, {})[number] = None

    def reserve(self, index: int) -> None:
        """Assign a result to the call of its own zone that it names."""
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
        """Assign a result to a call of its zone with the same name, where either lacks an id."""
        slot = self.results[index]
        if self.pairing.verdicts[index] or slot.zone == NOWHERE or not slot.alias:
            return
        named = self.by_alias.get((slot.zone, slot.alias), [])
        if slot.key != slot.alias:
            named = [number for number in named if self.calls[number].key == slot.alias]
        self._claim(index, named, f"\0{slot.key == slot.alias}{slot.alias}")

    def reserve_unnamed(self, index: int) -> None:
        """Assign a result without any id to the first open call of its zone."""
        slot = self.results[index]
        if self.pairing.verdicts[index] or slot.key or slot.zone == NOWHERE:
            return
        calls = self.in_zone.get(slot.zone, [])
        number = self._next_open(index, calls, "\0all") if calls else NOWHERE
        if number != NOWHERE and self.pairing.answers[number] == NOWHERE:
            self._assign(index, number)

    def _claim(self, index: int, candidates: list[int], name: str) -> None:
        """Assign a result to an open call of these; ``name`` tells the list from others."""
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
        """Return the first call without an answer, else the first answered by a placeholder only.

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
        at = bisect_left(self.orders.get(slot.key, []), slot.order)
        latest = self.by_key[slot.key][at - 1] if at else NOWHERE
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


GROUPED = "grouped"
SINGLE = "single"
FLAT = "flat"


class Zone(Struct, gc=False):
    """One batch of calls and the stretch in which its results belong.

    ``caller`` is the position of the last message that calls; the messages from ``start`` up to
    ``stop`` are those that may hold the results.
    """

    caller: int
    start: int = 0
    stop: int = 0

    @property
    def holders(self) -> range:
        """Positions of the messages that may hold this zone's results."""
        return range(self.start, self.stop)


class PairedCalls(Struct):
    """Calls, results, zones and the pairing between them, for one list of messages.

    ``result_at`` gives the position of the message that holds a result.
    """

    calls: list[Part]
    results: list[Part]
    result_at: list[int]
    zones: list[Zone]
    call_zone: list[int]
    result_zone: list[int]
    pairing: Pairing


class ResultReader(Protocol):
    """What a dialect says of calls and results; where ids are optional, names pair them, too."""

    ids_are_optional: bool

    def is_placeholder(self, part: Part) -> bool:
        """Whether a result is one that some program wrote in place of a real one."""

    def same_result(self, first: Part, second: Part) -> bool:
        """Whether two results say the same."""


ZoneMaps = tuple[list[Zone], list[int], list[int]]


def pair_messages(messages: Sequence[Message], layout: str, dialect: ResultReader) -> PairedCalls:
    """Find the zones of a conversation and pair its calls and results."""
    zones, caller_zone, holder_zone = _ZONERS[layout](messages)
    calls: list[Part] = []
    results: list[Part] = []
    call_slots: list[PairingSlot] = []
    result_slots: list[PairingSlot] = []
    result_at: list[int] = []
    latest: dict[str, int] = {}
    order = 0
    for position, message in enumerate(messages):
        for part in message.parts:
            order += 1
            if part.kind not in (CALL, RESULT):
                continue
            alias = f"name:{part.name or ''}" if dialect.ids_are_optional else ""
            key = part.id or alias
            if part.kind == CALL:
                zone = caller_zone[position]
                if layout == FLAT:
                    latest[key] = zone
                calls.append(part)
                call_slots.append(PairingSlot(order, zone, key, alias))
            else:
                zone = latest.get(key, NOWHERE) if layout == FLAT else holder_zone[position]
                results.append(part)
                result_at.append(position)
                result_slots.append(PairingSlot(order, zone, key, alias))
    contents = ResultContents(
        lambda one, other: dialect.same_result(results[one], results[other]),
        lambda one: dialect.is_placeholder(results[one]),
    )
    pairing = pair_slots(call_slots, result_slots, contents)
    call_zone = [slot.zone for slot in call_slots]
    result_zone = [slot.zone for slot in result_slots]
    return PairedCalls(calls, results, result_at, zones, call_zone, result_zone, pairing)


def _grouped_zones(messages: Sequence[Message]) -> ZoneMaps:
    zones: list[Zone] = []
    caller = [NOWHERE] * len(messages)
    holder = [NOWHERE] * len(messages)
    run = current = NOWHERE
    # the end of the list ends a turn, too
    for position, role in enumerate([*(message.role for message in messages), ""]):
        if role == ASSISTANT:
            current = NOWHERE
            if run == NOWHERE:
                run = position
            continue
        if run != NOWHERE:
            # Zone the callers of one assistant turn, from its end. Calls share the zone behind the
            # turn only if nothing but calls follows them in it; each of the others has a zone of
            # its own that holds no message.
            current = NOWHERE
            is_open = True
            for number in range(position - 1, run - 1, -1):
                calls = [part.kind == CALL for part in messages[number].parts]
                if True in calls:
                    if not is_open or current == NOWHERE:
                        start = position if is_open else 0
                        zones.append(Zone(number, start, start))
                    caller[number] = len(zones) - 1
                    if is_open:
                        current = caller[number]
                if False in calls:
                    is_open = False
            run = NOWHERE
        if role not in (USER, TOOL):
            current = NOWHERE
        elif current != NOWHERE:
            holder[position] = current
            zones[current].stop = position + 1
    return zones, caller, holder


def _single_zones(messages: Sequence[Message]) -> ZoneMaps:
    zones: list[Zone] = []
    caller = [NOWHERE] * len(messages)
    holder = [NOWHERE] * len(messages)
    current = NOWHERE
    for position, message in enumerate(messages):
        role = message.role
        if role == TOOL:
            holder[position] = current
            if current != NOWHERE:
                zones[current].stop = position + 1
            continue
        current = NOWHERE
        if role == ASSISTANT and message.parts and message.has(CALL):
            current = caller[position] = len(zones)
            zones.append(Zone(position, position + 1, position + 1))
    return zones, caller, holder


def _flat_zones(messages: Sequence[Message]) -> ZoneMaps:
    """A batch is a run of call items; only its end matters, for what must be inserted."""
    zones: list[Zone] = []
    caller = [NOWHERE] * len(messages)
    for position, message in enumerate(messages):
        if not message.has(CALL):
            continue
        if not position or caller[position - 1] == NOWHERE:
            zones.append(Zone(position))
        caller[position] = len(zones) - 1
        zones[-1].caller = position
    return zones, caller, [NOWHERE] * len(messages)


_ZONERS = {GROUPED: _grouped_zones, SINGLE: _single_zones, FLAT: _flat_zones}
