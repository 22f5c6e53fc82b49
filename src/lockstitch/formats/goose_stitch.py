"""A healed history put back into the messages of goose, as rows or as lines."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct

from lockstitch.formats.base import Transcript
from lockstitch.formats.blocks import Fields
from lockstitch.formats.goose_items import Talk, Turn, item_of, spelled
from lockstitch.formats.history import NEW, SourcedMessage
from lockstitch.formats.records import Record, new_record
from lockstitch.formats.slots import relisted, steady
from lockstitch.formats.tables import Row, Table, moment, new_row, put_list

_SEEN = {"userVisible": True, "agentVisible": True}


class Line(Struct, eq=False):
    """One message to be stored: the record it stays in, or NEW, its role and its blocks."""

    number: int
    role: str
    blocks: list[Any]


def stitch(transcript: Transcript, strands: Sequence[SourcedMessage], table: Table) -> list[Record]:
    """Give the records in which the conversation is the healed one."""
    return _Stitcher(transcript, table).stitch(strands)


class _Stitcher:
    def __init__(self, transcript: Transcript, table: Table) -> None:
        talk: Talk = transcript.state
        self.data = transcript.context.data
        self.records = transcript.records
        self.session = transcript.session or ""
        self.table = table
        self.turns = {turn.number: turn for turn in talk.turns}
        self.homes = {id(block): turn.items[at] for turn in talk.turns for at, block in turn.blocks}
        self.sent = {turn.number for turn in talk.turns if turn.is_sent and turn.blocks}
        self.names = {spelled(own): own for own in _ids(talk)}
        self.requests: dict[int, dict[str, Any]] = {}
        self.made = 0

    def stitch(self, strands: Sequence[SourcedMessage]) -> list[Record]:
        lines = [line for strand in strands for line in self._lines(strand)]
        stay = steady(self._homes(lines))
        out: dict[int, list[Record]] = {NEW: []}
        kept: set[int] = set()
        anchor = NEW
        for place, line in enumerate(lines):
            if place in stay:
                anchor = line.number
                kept.add(anchor)
                out[anchor] = [self._kept(line)]
            else:
                out[anchor].append(self._fresh(line, anchor))
        return [*self._all(out, kept)]

    def _lines(self, strand: SourcedMessage) -> Iterator[Line]:
        role = str(strand.message.get("role"))
        for (source, _), run in groupby(strand.parts, key=_run):
            yield Line(source, role, [block for _, block in run])

    def _homes(self, lines: Sequence[Line]) -> list[int]:
        """Give the records that messages may stay in: of their own role, and only once."""
        homes: list[int] = []
        seen: set[int] = set()
        for line in lines:
            turn = self.turns.get(line.number)
            fits = turn is not None and turn.role == line.role and line.number not in seen
            homes.append(line.number if fits else NEW)
            seen.add(line.number)
        return homes

    def _all(self, out: dict[int, list[Record]], kept: set[int]) -> Iterator[Record]:
        """Put the messages among what is not sent, which stays where it is."""
        first = min(self.sent, default=len(self.records))
        for number, record in enumerate(self.records):
            if number == first:
                yield from out[NEW]
            if number in kept:
                yield from out[number]
            elif number not in self.sent:
                yield record
            elif self._unsent(self.turns[number]):
                yield self._with(record, self._unsent(self.turns[number]))
        if first == len(self.records):
            yield from out[NEW]

    def _kept(self, line: Line) -> Record:
        turn = self.turns[line.number]
        record = self.records[line.number]
        old = [block for _, block in turn.blocks]
        if len(old) == len(line.blocks) and all(
            a is b for a, b in zip(old, line.blocks, strict=True)
        ):
            return record
        return self._with(record, self._items(turn, line.blocks))

    def _items(self, turn: Turn, blocks: Sequence[Fields]) -> list[Any]:
        """Give the items of a message: those that are sent, among those that are not."""
        places = {id(block): at for at, block in turn.blocks}
        told = {at for at, _ in turn.blocks}
        rest = deque(at for at in range(len(turn.items)) if at not in told)
        items: list[Any] = []
        for block in blocks:
            at = places.get(id(block))
            while at is not None and rest and rest[0] < at:
                items.append(turn.items[rest.popleft()])
            items.append(self._item(block, turn))
        return [*items, *(turn.items[at] for at in rest)]

    def _unsent(self, turn: Turn) -> list[Any]:
        told = {at for at, _ in turn.blocks}
        return [item for at, item in enumerate(turn.items) if at not in told]

    def _item(self, block: Fields, turn: Turn | None) -> Any:
        if id(block) in self.homes:
            return self.homes[id(block)]
        own = self.names.get(str(block.get("id")))
        old = self._requests(turn).get(own) if turn and own else None
        return item_of(block, old, self.names)

    def _requests(self, turn: Turn) -> dict[str, Any]:
        """Return the items of a message by their ids, of several the first."""
        if turn.number not in self.requests:
            items = [item for item in turn.items if type(item) is dict]
            named = [item for item in items if type(item.get("id")) is str]
            self.requests[turn.number] = {item["id"]: item for item in reversed(named)}
        return self.requests[turn.number]

    def _with(self, record: Record, items: list[Any]) -> Record:
        if isinstance(record, Row):
            return put_list(record, items)
        return relisted(self.data, record, ("content",), items)

    def _fresh(self, line: Line, anchor: int) -> Record:
        """Make the record that goose would have written, with the time of the one before it."""
        items = [self._item(block, None) for block in line.blocks]
        near = self.records[anchor if anchor != NEW else min(self.sent, default=0)]
        first = anchor == NEW
        self.made += 1
        own = f"msg_{self.session}_lockstitch{self.made:03d}"
        if not isinstance(near, Row):
            created = near.value.get("created", 0)
            times = {"id": own, "role": line.role, "created": created}
            return new_record("", {**times, "content": items, "metadata": _SEEN})
        taken = {key: near.value[key] for key in ("session_id", "timestamp") if key in near.value}
        value = {"message_id": own, **taken, "role": line.role, "content_json": items}
        value["created_timestamp"] = moment(near.value.get("created_timestamp"), before=first)
        value["metadata_json"] = json.dumps(_SEEN, separators=(",", ":"))
        return new_row(self.table, value)


def _run(part: tuple[int, Any]) -> tuple[int, bool]:
    """Say what goes into one message: parts of one record, and new results apart from text."""
    source, block = part
    is_result = type(block) is dict and block.get("type") == "tool_result"
    return source, is_result and source == NEW


def _ids(talk: Talk) -> Iterator[str]:
    for turn in talk.turns:
        for item in turn.items:
            if type(item) is dict and type(item.get("id")) is str:
                yield item["id"]
