"""What the facts of a view carry, decoded: many at once, since each has little of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from lockstitch.dialects.fast import encoded_size
from lockstitch.journal.events import Event, Partial, Replied, value_of
from lockstitch.journal.large import Large
from lockstitch.journal.state import Item, Late, Reply

# So many items are decoded at once, in memory that is at hand.
_CHUNK = 64
_REPLIES = (Replied, Partial)
_MISSING = object()
_decode = msgspec.json.Decoder(list[Any]).decode


class Values:
    """Decoded payloads; ``large`` gives those that are kept apart, one by one when asked for.

    What is given out is nobody else's, and the same until the next items come. ``is_clean`` tells
    whether all of it is text that UTF-8 can say, without a NUL. Written anew as JSON it has
    ``size`` bytes at most, and what is decoded at once ``largest``.
    """

    def __init__(self, large: Large) -> None:
        self.is_clean = True
        self.size = 0
        self.largest = 0
        self._large = large
        self._ready: dict[int, Any] = {}

    def ahead(self, items: Sequence[Item]) -> Iterator[Item]:
        """Pass items on, with what they carry decoded some items ahead."""
        for start in range(0, len(items), _CHUNK):
            chunk = items[start : start + _CHUNK]
            before = self.size
            self._ready = self._read(list(_facts(chunk)))
            self.largest = max(self.largest, self.size - before)
            yield from chunk
        self._ready = {}

    def of(self, event: Event) -> Any:
        """Decode what an event carries; None for nothing, and for what cannot be read."""
        value = self._ready.get(id(event), _MISSING)
        if value is _MISSING and event.blob:
            before = self.size
            value = self._decoded([event]).get(id(event), _MISSING)
            self.largest = max(self.largest, self.size - before)
        if value is _MISSING or (type(value) is str and isinstance(event, _REPLIES)):
            return self._alone(event)
        return value

    def _alone(self, event: Event) -> Any:
        """Decode one payload in whatever way it can be read."""
        self.is_clean = False
        try:
            return value_of(self._payload(event), inner=isinstance(event, _REPLIES))
        except (ValueError, RecursionError):
            return None

    def _payload(self, event: Event) -> msgspec.Raw:
        return msgspec.Raw(self._large.whole(event.blob)) if event.blob else event.payload

    def _read(self, events: list[Event]) -> dict[int, Any]:
        """Decode what events carry, small payloads together; large ones wait to be asked for."""
        return self._decoded([event for event in events if not event.blob])

    def _decoded(self, events: list[Event]) -> dict[int, Any]:
        """Decode payloads as one list; none if one of them is not to be read like that."""
        joined = b"[%b]" % b",".join(map(self._payload, events))
        try:
            values = _decode(joined)
        except (ValueError, RecursionError):
            return {}
        if len(values) != len(events):
            return {}
        self._weigh(values, len(joined))
        return dict(zip(map(id, events), values, strict=True))

    def _weigh(self, values: list[Any], length: int) -> None:
        """Add what is known of decoded values: a text is never longer than it was.

        Anything else can be, a number for one, and stands here twice, since a result names its
        call once more.
        """
        others = encoded_size([value for value in values if type(value) is not str])
        texts = (value for value in values if type(value) is str)
        self.is_clean = self.is_clean and others >= 0 and not any("\0" in text for text in texts)
        self.size += length + 2 * others


def _facts(items: Iterable[Item]) -> Iterator[Event]:
    for item in items:
        if isinstance(item, Late):
            yield item.fact
            continue
        yield item.event
        if isinstance(item, Reply):
            for call in item.calls:
                if call.outcome is not None:
                    yield call.outcome.fact
