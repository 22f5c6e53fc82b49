"""Where the provider expects the results of a call: the zones of a conversation.

Three layouts cover every dialect:

- ``GROUPED``: all results of a turn stand in the user message right after it (Anthropic,
  Bedrock, Gemini). A run of assistant messages is one turn.
- ``SINGLE``: each result is a message of its own, right after the message that called
  (OpenAI Chat, LangChain).
- ``FLAT``: results are items that may stand anywhere behind their call (OpenAI Responses).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from lockstitch.model.pairing import NOWHERE, Contents, Pairing, Slot, pair
from lockstitch.model.parts import ASSISTANT, CALL, RESULT, TOOL, USER, Message, Part

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


class Threads(Struct):
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


Keys = Callable[[Part], tuple[str, str]]
ZoneMaps = tuple[list[Zone], list[int], list[int]]


def thread(
    messages: Sequence[Message],
    layout: str,
    keys: Keys,
    is_placeholder: Callable[[Part], bool],
    same: Callable[[Part, Part], bool],
) -> Threads:
    """Find the zones of a conversation and pair its calls and results."""
    zones, caller_zone, holder_zone = _ZONERS[layout](messages)
    calls: list[Part] = []
    results: list[Part] = []
    call_slots: list[Slot] = []
    result_slots: list[Slot] = []
    result_at: list[int] = []
    latest: dict[str, int] = {}
    order = 0
    for position, message in enumerate(messages):
        for part in message.parts:
            order += 1
            if part.kind == CALL:
                key, alias = keys(part)
                zone = caller_zone[position]
                if layout == FLAT:
                    latest[key] = zone
                calls.append(part)
                call_slots.append(Slot(order, zone, key, alias))
            elif part.kind == RESULT:
                key, alias = keys(part)
                zone = latest.get(key, NOWHERE) if layout == FLAT else holder_zone[position]
                results.append(part)
                result_at.append(position)
                result_slots.append(Slot(order, zone, key, alias))
    contents = Contents(
        lambda one, other: same(results[one], results[other]),
        lambda one: is_placeholder(results[one]),
    )
    pairing = pair(call_slots, result_slots, contents)
    call_zone = [slot.zone for slot in call_slots]
    result_zone = [slot.zone for slot in result_slots]
    return Threads(calls, results, result_at, zones, call_zone, result_zone, pairing)


def _grouped_zones(messages: Sequence[Message]) -> ZoneMaps:
    zones: list[Zone] = []
    caller = [NOWHERE] * len(messages)
    holder = [NOWHERE] * len(messages)
    run = current = NOWHERE
    for position, message in enumerate(messages):
        role = message.role
        if role == ASSISTANT:
            current = NOWHERE
            if run == NOWHERE:
                run = position
            continue
        if run != NOWHERE:
            current = _zone_the_run(messages, run, position, zones, caller)
            run = NOWHERE
        if role not in (USER, TOOL):
            current = NOWHERE
        elif current != NOWHERE:
            holder[position] = current
            zones[current].stop = position + 1
    if run != NOWHERE:
        _zone_the_run(messages, run, len(messages), zones, caller)
    return zones, caller, holder


def _zone_the_run(
    messages: Sequence[Message], start: int, stop: int, zones: list[Zone], caller: list[int]
) -> int:
    """Give the callers of one assistant turn their zones, and the zone behind the turn.

    Calls share the zone behind the turn only if nothing but calls follows them in it; the
    others are stranded in a zone of their own that holds no message.
    """
    behind = NOWHERE
    open_end = True
    for position in range(stop - 1, start - 1, -1):
        parts = messages[position].parts
        calls = [part.kind == CALL for part in parts]
        if True in calls:
            if not open_end or behind == NOWHERE:
                zones.append(Zone(position, stop if open_end else 0, stop if open_end else 0))
            caller[position] = len(zones) - 1
            if open_end:
                behind = caller[position]
        if False in calls:
            open_end = False
    return behind


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
