"""Writes a repaired history back into the entries of a pi session."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field, structs

from lockstitch.conversation.parts import Path
from lockstitch.formats.interface import NEW, SourcedMessage, Transcript
from lockstitch.formats.pi.session import (
    ASSISTANT,
    COMPACTION,
    RESULT,
    USER,
    Block,
    PiSession,
    is_result,
    item_of,
    items_of,
    message_of,
    new_id,
    result_block,
    result_of,
)
from lockstitch.formats.records import Record, amend_record, new_record
from lockstitch.formats.write_back import (
    Earlier,
    adopt_orphans,
    group_unsent,
    keep_in_order,
    lay_records,
)
from lockstitch.repair.draft import Ledger
from lockstitch.rules import RULES

_OWN_ROLES = (USER, ASSISTANT, "custom", "hookMessage")


class PiUnit(Struct, eq=False):
    """An entry of the new conversation: an old one (``number``) or a new one, and its blocks."""

    role: str
    number: int = NEW
    blocks: list[Block] = field(default_factory=list)
    record: Record | None = None
    id: str | None = None

    @property
    def is_new(self) -> bool:
        """Whether the file does not hold the entry yet."""
        return self.number == NEW


class PiWriteBack:
    """Lays a repaired history out over the entries of a file."""

    def __init__(self, transcript: Transcript) -> None:
        self.data = transcript.context.data
        self.session: PiSession = transcript.state
        self.ids = self.session.ids()
        # the tool of each call, by the id that is sent
        self.names: dict[str, Any] = {}
        self.homes: dict[int, list[tuple[int, Path]]] = {}
        for home in self.session.kept.values():
            self.homes.setdefault(home[0], []).append(home)
        self.used: set[int] = set()
        self.made = 0

    def write_back(self, repaired: Sequence[SourcedMessage], ledger: Ledger) -> list[Record]:
        """Return the records of the file with the repaired conversation."""
        session = self.session
        blocks = [block for sourced in repaired for _, block in sourced.parts]
        self.names = {
            str(b.get("id")): b.get("name") for b in blocks if b.get("type") == "tool_use"
        }
        units = [unit for sourced in repaired for unit in self._units(sourced)]
        # A new entry takes over fields from the old entry before it, or else from the first one.
        old = (unit.number for unit in units if not unit.is_new)
        last = next(old, session.entries[0])
        for unit in units:
            unit.record = (
                self._new_entry(unit, session.value(last))
                if unit.is_new
                else self._keep_entry(unit)
            )
            last = last if unit.is_new else unit.number
        line = self._with_controls(units)
        first = self._first_kept(line, units)
        if not session.is_linear:
            self._link(line)
            for unit in line if first is not None else ():
                if first is not None and unit.number == session.path[session.cut]:
                    path = ("firstKeptEntryId",)
                    unit.record = amend_record(self.data, _record(unit), path, first.id)
        # Content that pi never sent, and that is removed with its entry, is put in quarantine.
        for number in sorted(self._removed_entries()):
            value = session.value(number)
            content = message_of(value).get("content")
            if type(content) is list and len(content) > len(self.homes[number]):
                ledger.set_aside(RULES["LS610"], session.records[number].place, value)
        return self._file(line, first)

    # Which entry holds which blocks.

    def _units(self, sourced: SourcedMessage) -> list[PiUnit]:
        role = str(sourced.message.get("role"))
        units: list[PiUnit] = []
        for source, block in sourced.parts:
            last = units[-1] if units else None
            kind = RESULT if is_result(block) else role
            fits = last is not None and last.role == kind != RESULT
            if last is not None and fits and source in (NEW, last.number):
                last.blocks.append(block)
            elif last is not None and fits and last.is_new and self._takes(source, kind):
                self.used.add(source)
                last.number = source
                last.blocks.append(block)
            else:
                number = source if self._takes(source, kind) else NEW
                self.used.add(number)
                units.append(PiUnit(kind, number, [block]))
        return units

    def _takes(self, source: int, kind: str) -> bool:
        """Whether an entry may hold blocks of this kind; a result's entry may also hold text."""
        if source == NEW or source in self.used:
            return False
        role = message_of(self.session.value(source)).get("role")
        if role in (ASSISTANT, RESULT):
            return role == kind or (role == RESULT and kind == USER)
        return kind == USER

    def _keep_entry(self, unit: PiUnit) -> Record:
        """Return an old entry, with the blocks that are left of it."""
        record, value = self.session.records[unit.number], self.session.value(unit.number)
        found = [self.session.kept.get(id(block)) for block in unit.blocks]
        if found == self.homes[unit.number]:
            return record
        message = message_of(value)
        if unit.role == RESULT:
            return self._amend_result(record, message, unit.blocks[0])
        if message.get("role") in _OWN_ROLES and type(message.get("content")) is list:
            items = self._items(unit, message["content"])
            return amend_record(self.data, record, ("message", "content"), items)
        items = [item_of(block, self.ids) for block in unit.blocks]
        if value.get("type") == "custom_message":
            return amend_record(self.data, record, ("content",), items)
        if not message:
            return record
        time = {"timestamp": message["timestamp"]} if "timestamp" in message else {}
        spoken = {"role": USER, "content": items, **time}
        return amend_record(self.data, record, ("message",), spoken)

    def _items(self, unit: PiUnit, content: list[Any]) -> list[Any]:
        """Return the content of a message: items that were never sent stay, removed ones go."""
        sent = {path[-1]: None for _, path in self.homes[unit.number]}
        homes = [self.session.kept.get(id(block)) for block in unit.blocks]
        kept = {h[1][-1] for h in homes if h is not None and h[0] == unit.number}
        spare = deque(place for place in sent if place not in kept)
        silent = deque(place for place in range(len(content)) if place not in sent)
        items: list[Any] = []
        for block in unit.blocks:
            home = self.session.kept.get(id(block))
            own = home is not None and home[0] == unit.number
            place = int(home[1][-1]) if home is not None and own else NEW
            if not own and spare:
                place = int(spare.popleft())
            while silent and silent[0] < place:
                items.append(content[silent.popleft()])
            old = content[place] if place != NEW else None
            items.append(old if own else item_of(block, self.ids, old))
        return [*items, *(content[n] for n in silent)]

    def _amend_result(self, record: Record, message: dict[str, Any], block: Block) -> Record:
        old = result_block(message)
        wire = str(block.get("tool_use_id"))
        if old["tool_use_id"] != wire:
            path = ("message", "toolCallId")
            record = amend_record(self.data, record, path, self.ids.get(wire, wire))
        if old["content"] != block.get("content"):
            items = items_of(block.get("content"), self.ids)
            record = amend_record(self.data, record, ("message", "content"), items)
        if bool(message.get("isError")) != bool(block.get("is_error")):
            flag = bool(block.get("is_error"))
            record = amend_record(self.data, record, ("message", "isError"), flag)
        return record

    # New entries.

    def _new_entry(self, unit: PiUnit, near: dict[str, Any]) -> Record:
        if unit.role == RESULT:
            message = result_of(unit.blocks[0], self.ids, self.names)
        else:
            items = [item_of(block, self.ids) for block in unit.blocks]
            message = {"role": unit.role, "content": items}
        if unit.role == ASSISTANT:
            # the fields that a message of the model must have
            keys = ("api", "provider", "model")
            known = {key: message_of(near)[key] for key in keys if key in message_of(near)}
            cost = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0)
            counts = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 0)
            base = {"api": "anthropic-messages", "provider": "lockstitch", "model": "lockstitch"}
            message |= {**base, **known, "usage": {**counts, "cost": cost}, "stopReason": "stop"}
        time = message_of(near).get("timestamp")
        message |= {"timestamp": time} if time is not None else {}
        value: dict[str, Any] = {"type": "message"}
        if not self.session.is_linear:
            self.made += 1
            unit.id = new_id(self.session, near.get("id"), self.made)
            value |= {"id": unit.id, "parentId": None}
        return new_record("", {**value, "timestamp": near.get("timestamp"), "message": message})

    # The chain and the file.

    def _with_controls(self, units: Sequence[PiUnit]) -> list[PiUnit]:
        """Insert the unsent entries of the path again, after the entries that they followed."""
        session = self.session
        kept = {unit.number for unit in units}
        behind = group_unsent(session.path, kept | self._removed_entries(), kept)
        line = [PiUnit("", number) for number in behind.get(NEW, ())]
        for unit in self._in_path_order(units):
            line.append(unit)
            line += [PiUnit("", n) for n in behind.get(unit.number, ()) if not unit.is_new]
        for unit in line:
            if not unit.is_new:
                unit.record = unit.record or session.records[unit.number]
                unit.id = session.value(unit.number).get("id")
        return line

    def _removed_entries(self) -> set[int]:
        """Return the entries whose messages go; a compaction stays, since it hides too much."""
        spoken = {number for sources in self.session.history.sources for number in sources}
        gone = spoken - self.used
        return {n for n in gone if self.session.value(n).get("type") != COMPACTION}

    def _in_path_order(self, units: Sequence[PiUnit]) -> list[PiUnit]:
        """Move a compaction, which is sent first, back to after the entries that it keeps."""
        if self.session.cut < 0:
            return list(units)
        number = self.session.path[self.session.cut]
        before = set(self.session.path[: self.session.cut])
        lead = [unit for unit in units if unit.number == number]
        rest = [unit for unit in units if unit.number != number]
        old = [place for place, unit in enumerate(rest) if unit.number in before]
        split = old[-1] + 1 if old else 0
        while old and split < len(rest) and rest[split].is_new and rest[split].role == RESULT:
            split += 1
        return [*rest[:split], *lead, *rest[split:]]

    def _first_kept(self, line: Sequence[PiUnit], units: Sequence[PiUnit]) -> PiUnit | None:
        """Return the first entry that the compaction keeps, if that has changed."""
        if self.session.cut < 0 or not self.session.kept_before:
            return None
        number = self.session.path[self.session.cut]
        kept, spoken = set(self.session.kept_before), set(map(id, units))
        for unit in line:
            if unit.number == number:
                break
            if unit.number in kept or id(unit) in spoken:
                return unit if unit.number != self.session.kept_before[0] else None
        return None

    def _link(self, line: Sequence[PiUnit]) -> None:
        """Set the parent of each entry that follows another entry than before."""
        old = dict(zip(self.session.path, [NEW, *self.session.path], strict=False))
        last: PiUnit | None = None
        for unit in line:
            record = _record(unit)
            before = last.number if last is not None else NEW
            moved = unit.is_new or (last is not None and last.is_new)
            if moved or old.get(unit.number, NEW) != before:
                parent = last.id if last is not None else None
                if record.value.get("parentId") != parent:
                    unit.record = amend_record(self.data, record, ("parentId",), parent)
            last = unit

    def _file(self, line: Sequence[PiUnit], first: PiUnit | None) -> list[Record]:
        """Put the entries back into the file; the end of the conversation comes last."""
        session, gone = self.session, self._removed_entries()
        kept, behind = keep_in_order([unit.number for unit in line], line)
        moved = {unit.number for units in behind.values() for unit in units}
        lines = {
            number: [(unit.number, _record(unit)) for unit in units]
            for number, units in behind.items()
        }
        order = [number for number in session.path if number in kept]
        front = order[0] if order else len(session.records)
        earlier = Earlier(order, kept)

        def heir(number: int) -> str | None:
            before = earlier.than(number)
            return before.id if before else None

        records = {number: _record(unit) for number, unit in kept.items()}
        laid = lay_records(session.records, records, lines, gone | moved, front)
        pairs = [*adopt_orphans(self.data, laid, "parentId", session.last, gone, heir)]
        if session.is_linear:
            return self._recount(pairs, first)
        out = [record for _, record in pairs]
        end = line[-1] if line else None
        tail = next((record for record in reversed(out) if record.is_record), None)
        # pi continues from the last entry in the file, so that has to be the end of the
        # conversation
        if end is not None and tail is not None and tail.value is not _record(end).value:
            rest = (record for record in out if record.value is not _record(end).value)
            last = _record(end)
            out = [*rest, structs.replace(last, ending=last.ending or b"\n")]
        return out

    def _recount(self, laid: Sequence[tuple[int, Record]], first: PiUnit | None) -> list[Record]:
        """Correct the index of the first entry that compactions of the first version keep."""
        records = [record for _, record in laid]
        lines = [pair for pair in laid if pair[1].is_record]
        old = [n for n, record in enumerate(self.session.records) if record.is_record]
        new = {n: place for place, (n, _) in enumerate(lines)}
        last = self.session.path[self.session.cut] if self.session.cut >= 0 else NEW
        for place, (number, record) in enumerate(laid):
            index = record.value.get("firstKeptEntryIndex") if record.is_record else None
            if type(index) is not int or not 0 <= index < len(old):
                continue
            target = new.get(old[index], index)
            if number == last and first is not None:
                shown = [kept.value for _, kept in lines]
                target = next(n for n, v in enumerate(shown) if v is _record(first).value)
            if target != index:
                records[place] = amend_record(self.data, record, ("firstKeptEntryIndex",), target)
        return records


def _record(unit: PiUnit) -> Record:
    assert unit.record is not None  # noqa: S101 - set in _with_controls
    return unit.record
