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
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from lockstitch.conversation.parts import ASSISTANT, CALL, RESULT, TOOL, USER, Message, Part

ANSWER = "answer"
DUPLICATE = "duplicate"
ORPHAN = "orphan"

GROUPED = "grouped"
SINGLE = "single"
FLAT = "flat"

# At most this many calls of one turn with the same id are compared with a repeated result.
_NEAR = 8


# Zones, results and calls are compared by identity. None of them leads back to itself: a call holds
# the result that answers it, and that result knows only the part of the call.


class Zone(Struct, gc=False, eq=False):
    """One batch of calls and the stretch in which its results belong.

    ``caller`` is the position of the last message that calls. The messages from ``start`` up to
    ``stop`` may hold the results.
    """

    caller: int
    start: int = 0
    stop: int = 0

    @property
    def holders(self) -> range:
        """Positions of the messages that may hold this zone's results."""
        return range(self.start, self.stop)


class PairedResult(Struct, gc=False, eq=False):
    """A result, and what became of it.

    ``position`` is the position of the message that holds it, and ``order`` is its rank in the
    conversation. ``zone`` is None if no batch of calls expects a result there. ``alias`` is a
    second, weaker key (a tool's name) for formats in which ids are optional.

    ``call`` is the call that it answers, or the call whose answer it repeats; an orphan has none.
    For a duplicate, ``answer`` is the result that does answer that call, and ``is_masking`` says
    that the duplicate is a placeholder that stood before the real result. ``is_displaced`` says
    that the result answers a call from outside its zone.
    """

    part: Part
    position: int
    order: int
    zone: Zone | None
    key: str
    alias: str = ""
    verdict: str = ""
    call: Part | None = None
    answer: PairedResult | None = None
    is_displaced: bool = False
    is_masking: bool = False


class PairedCall(Struct, gc=False, eq=False):
    """A call, and the result that answers it, None while the call is open.

    The other fields are those of a ``PairedResult``.
    """

    part: Part
    order: int
    zone: Zone | None
    key: str
    alias: str = ""
    answer: PairedResult | None = None


class PairedCalls(Struct):
    """The calls and results of one list of messages, paired, and the zones in it."""

    calls: list[PairedCall]
    results: list[PairedResult]
    zones: list[Zone]


class ResultReader(Protocol):
    """What pairing asks a dialect about calls and results.

    Where ids are optional, calls and results are paired by name, too.
    """

    ids_are_optional: bool

    def is_placeholder(self, part: Part) -> bool:
        """Whether a program wrote this result in place of a real one."""

    def same_result(self, first: Part, second: Part) -> bool:
        """Whether two results say the same."""


def pair_messages(messages: Sequence[Message], layout: str, dialect: ResultReader) -> PairedCalls:
    """Find the zones of a conversation and pair its calls and results."""
    zones, caller_zone, holder_zone = _ZONERS[layout](messages)
    calls: list[PairedCall] = []
    results: list[PairedResult] = []
    latest: dict[str, Zone | None] = {}
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
                calls.append(PairedCall(part, order, zone, key, alias))
            else:
                zone = latest.get(key) if layout == FLAT else holder_zone[position]
                results.append(PairedResult(part, position, order, zone, key, alias))
    pair_results(calls, results, dialect)
    return PairedCalls(calls, results, zones)


def pair_results(
    calls: Sequence[PairedCall], results: Sequence[PairedResult], dialect: ResultReader
) -> None:
    """Record which result answers which call, and the verdict on every result.

    The dialect is asked about results only where it matters.
    """
    left: list[PairedResult] = []
    first, at, total = 0, 0, len(results)
    while results and first < len(calls):
        zone = calls[first].zone
        stop = first + 1
        while stop < len(calls) and calls[stop].zone is zone:
            stop += 1
        while at < total and results[at].order < calls[first].order:
            left.append(results[at])
            at += 1
        end = at + stop - first
        # exactly one result a call in this zone, in order
        if (
            end <= total
            and (end == total or results[end].zone is not zone)
            and all(
                result.zone is zone and result.key == call.key
                for call, result in zip(calls[first:stop], results[at:end], strict=True)
            )
        ):
            for call, result in zip(calls[first:stop], results[at:end], strict=True):
                call.answer, result.call, result.verdict = result, call.part, ANSWER
            at = end
        first = stop
    left += results[at:]
    if left:
        _PairingTable(calls, left, dialect).pair()


class _PairingTable:
    """The tables of one pairing run, for the results that did not simply line up."""

    def __init__(
        self, calls: Sequence[PairedCall], left: list[PairedResult], dialect: ResultReader
    ) -> None:
        self.left = left
        self.dialect = dialect
        # the call whose answer a duplicate repeats
        self.repeated: dict[PairedResult, PairedCall] = {}
        self.by_zone: dict[tuple[Zone | None, str], list[PairedCall]] = {}
        self.by_alias: dict[tuple[Zone | None, str], list[PairedCall]] = {}
        self.in_zone: dict[Zone | None, list[PairedCall]] = {}
        self.cursors: dict[tuple[Zone | None, str], list[int]] = {}
        self.by_key: dict[str, list[PairedCall]] = {}
        self.orders: dict[str, list[int]] = {}
        self.open: dict[str, dict[PairedCall, None]] = {}
        self.masked: dict[str, dict[PairedCall, None]] = {}
        keys = {result.key for result in left}
        zones = {result.zone for result in left}
        for call in calls:
            if call.zone in zones:
                self.in_zone.setdefault(call.zone, []).append(call)
                self.by_zone.setdefault((call.zone, call.key), []).append(call)
                if call.alias:
                    self.by_alias.setdefault((call.zone, call.alias), []).append(call)
            if call.key and call.key in keys:
                self.by_key.setdefault(call.key, []).append(call)
                self.orders.setdefault(call.key, []).append(call.order)
                if call.answer is None:
                    self.open.setdefault(call.key, {})[call] = None
                elif self.is_masked(call):
                    self.masked.setdefault(call.key, {})[call] = None

    def pair(self) -> None:
        """Run the three steps over the results that are left."""
        for step in (self.reserve, self.reserve_by_alias, self.reserve_unnamed, self.move):
            for result in self.left:
                if not result.verdict:
                    step(result)
        for result, call in self.repeated.items():
            result.answer = call.answer

    def reserve(self, result: PairedResult) -> None:
        """Assign a result to the call of its own zone that it names."""
        if result.zone is None or result.key == result.alias:
            return
        calls = self.by_zone.get((result.zone, result.key), [])
        if not result.alias:
            self._claim(result, calls, result.key)
            return
        alike = [call for call in calls if call.alias == result.alias]
        self._claim(result, alike or calls, f"{result.key}\0{bool(alike)}{result.alias}")

    def reserve_by_alias(self, result: PairedResult) -> None:
        """Assign a result to a call of its zone with the same name, where either lacks an id."""
        if result.zone is None or not result.alias:
            return
        named = self.by_alias.get((result.zone, result.alias), [])
        if result.key != result.alias:
            named = [call for call in named if call.key == result.alias]
        self._claim(result, named, f"\0{result.key == result.alias}{result.alias}")

    def reserve_unnamed(self, result: PairedResult) -> None:
        """Assign a result without any id to the first open call of its zone."""
        if result.key or result.zone is None:
            return
        calls = self.in_zone.get(result.zone, [])
        call = self._next_open(result, calls, "\0all") if calls else None
        if call is not None and call.answer is None:
            self._assign(result, call)

    def _claim(self, result: PairedResult, candidates: list[PairedCall], name: str) -> None:
        """Assign a result to an open call among the candidates, or note which answer it repeats.

        ``name`` identifies the list of candidates, whose cursor is kept between calls.
        """
        if not candidates:
            return
        idle = self._next_open(result, candidates, name)
        if idle is not None:
            self._assign(result, idle)
            return
        near = candidates[:_NEAR]
        twin = next((call for call in near if self._repeats(result, call)), candidates[0])
        self._mark_duplicate(result, twin)

    def _next_open(
        self, result: PairedResult, candidates: list[PairedCall], name: str
    ) -> PairedCall | None:
        """Return the first call without an answer, else the first that only a placeholder answers.

        Calls are claimed from the front and a real answer stays, so both cursors only move forward.
        """
        cursor = self.cursors.setdefault((result.zone, name), [0, 0])
        while cursor[0] < len(candidates) and candidates[cursor[0]].answer is not None:
            cursor[0] += 1
        if cursor[0] < len(candidates):
            return candidates[cursor[0]]
        if self.is_placeholder(result):
            return None
        while cursor[1] < len(candidates) and not self.is_masked(candidates[cursor[1]]):
            cursor[1] += 1
        return candidates[cursor[1]] if cursor[1] < len(candidates) else None

    def is_placeholder(self, result: PairedResult) -> bool:
        """Whether a program wrote this result in place of a real one."""
        return self.dialect.is_placeholder(result.part)

    def is_masked(self, call: PairedCall) -> bool:
        """Whether a call is answered by nothing but a placeholder."""
        return call.answer is not None and self.is_placeholder(call.answer)

    def move(self, result: PairedResult) -> None:
        """Find the call of a result that no call of its own zone has claimed."""
        if not result.key:
            result.verdict = ORPHAN
            return
        alike = self.by_key.get(result.key, [])
        at = bisect_left(self.orders.get(result.key, []), result.order)
        latest = alike[at - 1] if at else None
        owner = self._find_call(result, latest)
        if owner is not None:
            self._assign(result, owner)
            result.is_displaced = True
            return
        if latest is None and result.key == result.alias:
            # The result has only a name, which any later call may share, so a later call proves
            # nothing.
            result.verdict = ORPHAN
            return
        if latest is None or latest.answer is None:
            latest = next((call for call in alike if call.answer is not None), None)
        if latest is None:
            result.verdict = ORPHAN
        else:
            self._mark_duplicate(result, latest)

    def _find_call(self, result: PairedResult, latest: PairedCall | None) -> PairedCall | None:
        if latest is not None:
            is_open = latest.answer is None
            if is_open or (self.is_masked(latest) and not self.is_placeholder(result)):
                return latest
            if self._repeats(result, latest):
                return None
        idle = self.open.get(result.key, {})
        if len(idle) == 1:
            return next(iter(idle))
        masked = self.masked.get(result.key, {})
        if not idle and len(masked) == 1 and not self.is_placeholder(result):
            return next(iter(masked))
        return None

    def _repeats(self, result: PairedResult, call: PairedCall) -> bool:
        answer = call.answer
        return answer is not None and self.dialect.same_result(answer.part, result.part)

    def _assign(self, result: PairedResult, call: PairedCall) -> None:
        before = call.answer
        if before is not None:
            self._mark_duplicate(before, call)
            before.is_displaced, before.is_masking = False, True
        call.answer, result.call, result.verdict = result, call.part, ANSWER
        self.open.get(call.key, {}).pop(call, None)
        if self.is_placeholder(result):
            self.masked.setdefault(call.key, {})[call] = None
        else:
            self.masked.get(call.key, {}).pop(call, None)

    def _mark_duplicate(self, result: PairedResult, call: PairedCall) -> None:
        result.verdict, result.call = DUPLICATE, call.part
        self.repeated[result] = call


ZoneMaps = tuple[list[Zone], list[Zone | None], list[Zone | None]]


def _grouped_zones(messages: Sequence[Message]) -> ZoneMaps:
    zones: list[Zone] = []
    caller: list[Zone | None] = [None] * len(messages)
    holder: list[Zone | None] = [None] * len(messages)
    run: int | None = None
    current: Zone | None = None
    # the end of the list ends a turn, too
    for position, role in enumerate([*(message.role for message in messages), ""]):
        if role == ASSISTANT:
            current = None
            if run is None:
                run = position
            continue
        if run is not None:
            # Assign zones to the messages of one assistant turn that call, from its end. Calls
            # share the zone after the turn only if nothing but calls follows them in it. Each of
            # the others gets a zone of its own that holds no message.
            current = None
            is_open = True
            for number in range(position - 1, run - 1, -1):
                calls = [part.kind == CALL for part in messages[number].parts]
                if True in calls:
                    if not is_open or current is None:
                        start = position if is_open else 0
                        zones.append(Zone(number, start, start))
                    caller[number] = zones[-1]
                    if is_open:
                        current = zones[-1]
                if False in calls:
                    is_open = False
            run = None
        if role not in (USER, TOOL):
            current = None
        elif current is not None:
            holder[position] = current
            current.stop = position + 1
    return zones, caller, holder


def _single_zones(messages: Sequence[Message]) -> ZoneMaps:
    zones: list[Zone] = []
    caller: list[Zone | None] = [None] * len(messages)
    holder: list[Zone | None] = [None] * len(messages)
    current: Zone | None = None
    for position, message in enumerate(messages):
        role = message.role
        if role == TOOL:
            holder[position] = current
            if current is not None:
                current.stop = position + 1
            continue
        current = None
        if role == ASSISTANT and message.parts and message.has(CALL):
            current = caller[position] = Zone(position, position + 1, position + 1)
            zones.append(current)
    return zones, caller, holder


def _flat_zones(messages: Sequence[Message]) -> ZoneMaps:
    """Return a zone for each run of call items.

    Only the end of a run matters: missing results are inserted after it.
    """
    zones: list[Zone] = []
    caller: list[Zone | None] = [None] * len(messages)
    for position, message in enumerate(messages):
        if not message.has(CALL):
            continue
        if not position or caller[position - 1] is None:
            zones.append(Zone(position))
        caller[position] = zones[-1]
        zones[-1].caller = position
    return zones, caller, [None] * len(messages)


_ZONERS = {GROUPED: _grouped_zones, SINGLE: _single_zones, FLAT: _flat_zones}
