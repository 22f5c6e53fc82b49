"""A healed history put into the lines of a Claude Code file.

Only what differs is written. Where something is added to or moved into a batch of calls, the
whole batch is laid out in one line: all calls in a row, then all results, in file order and with
times that grow towards the leaf. It is the one layout that every version resumes without loss.

A branch of a Claude Code file, written as a session of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from typing import Any

from msgspec import Struct, structs

from lockstitch.errors import UsageError
from lockstitch.formats.claude_code.chain import (
    ASSISTANT,
    ATTACHMENT,
    SPEAKERS,
    ClaudeChain,
    call_ids_in,
    just_after,
    just_before,
    newest,
    queued_words,
    results_in,
    stamp,
    time_of,
)
from lockstitch.formats.claude_code.repair_tree import derived_uuid, kept_names
from lockstitch.formats.claude_code.unreachable import OffBranch
from lockstitch.formats.history import NEW, SourcedMessage
from lockstitch.sources import records
from lockstitch.sources.interface import Transcript
from lockstitch.sources.records import Record, amend_record, can_be_key, new_record
from lockstitch.sources.write_back import Earlier

PROGRESS = "progress"
# What a new record takes over from its neighbour, in the order in which the program writes it.
_BEFORE = ("parentUuid", "isSidechain", "agentId")
_BEHIND = ("userType", "entrypoint", "cwd", "sessionId", "version", "gitBranch", "slug", "teamName")


class ClaudeUnit(Struct, eq=False):
    """A line of the new conversation: an old record (``number``), or a new one."""

    record: Record
    number: int = NEW
    batch: int = 0
    touched: bool = False

    @property
    def uuid(self) -> str:
        """Give the id of the line."""
        found: str = self.record.value.get("uuid")
        return found


def write_back(
    transcript: Transcript, chain: ClaudeChain, strands: Sequence[SourcedMessage]
) -> list[Record]:
    """Give the records of the file in which the conversation is the healed one."""
    return _ClaudeWriteBack(transcript, chain).write_back(strands)


class _ClaudeWriteBack:
    """Lays a healed history out over the records of a file."""

    def __init__(self, transcript: Transcript, chain: ClaudeChain) -> None:
        self.data = transcript.context.data
        self.chain = chain
        self.records = chain.records
        homes = transcript.history.sources
        numbers = dict.fromkeys(number for row in homes for number in row)
        self.sent = [n for n in numbers if chain.value(n).get("type") != ATTACHMENT]
        self.spoken = set(self.sent)
        self.session = transcript.session or ""
        self.used: set[int] = set()
        self.message_ids: set[str] = set()
        self.minted = 0
        self.kept_behind: dict[str, str] = {}

    def write_back(self, strands: Sequence[SourcedMessage]) -> list[Record]:
        units = self._units(strands)
        self._touch_batches(units)
        line = self._with_controls(units)
        self._link(line)
        self._date(line)
        self._list_kept(line)
        return self._file(line)

    # One unit a line, in the order of the healed history.

    def _units(self, strands: Sequence[SourcedMessage]) -> list[ClaudeUnit]:
        units: list[ClaudeUnit] = []
        batch = 0
        for strand in strands:
            is_model = strand.message.get("role") == ASSISTANT
            batch += is_model
            made = list(self._of_strand(strand, units))
            for unit in made:
                unit.batch = batch
            if is_model:
                self._rename_message(made)
            units += made
        return units

    def _of_strand(
        self, strand: SourcedMessage, before: Sequence[ClaudeUnit]
    ) -> Iterator[ClaudeUnit]:
        role = strand.message.get("role")
        for source, run in groupby(strand.parts, key=lambda part: part[0]):
            parts = [part for _, part in run]
            if source != NEW and self.chain.value(source).get("type") == ATTACHMENT:
                # what was typed while the model was busy stays where it is
                continue
            fits = source != NEW and self.chain.value(source).get("type") == role
            if fits and source not in self.used:
                self.used.add(source)
                yield self._kept(source, strand, parts)
            else:
                for part in parts:
                    yield self._fresh(strand, part, before)

    def _kept(self, source: int, strand: SourcedMessage, parts: list[Any]) -> ClaudeUnit:
        """Keep a record, with the parts that are left of it."""
        record = self.records[source]
        content = record.value["message"]["content"]
        new = strand.message["content"] if parts == [strand.message] else parts
        same = (
            new == content
            if type(content) is str or type(new) is str
            else len(new) == len(content) and all(a is b for a, b in zip(new, content, strict=True))
        )
        if same:
            return ClaudeUnit(record, source)
        return ClaudeUnit(amend_record(self.data, record, ("message", "content"), new), source)

    def _fresh(self, strand: SourcedMessage, part: Any, before: Sequence[ClaudeUnit]) -> ClaudeUnit:
        """Make a record that the program would have written for this part."""
        near = self._neighbour(strand, before)
        role = strand.message.get("role")
        content = part["content"] if part is strand.message else [part]
        value: dict[str, Any] = {key: near[key] for key in _BEFORE if key in near}
        value["type"] = role
        value["message"] = self._message(strand, role, content)
        self.minted += 1
        value["uuid"] = derived_uuid(self.session, str(near.get("uuid")), str(self.minted))
        value["timestamp"] = near.get("timestamp")
        value |= self._result_fields(part)
        value |= {key: near[key] for key in _BEHIND if key in near}
        return ClaudeUnit(new_record("", value), touched=True)

    def _neighbour(self, strand: SourcedMessage, before: Sequence[ClaudeUnit]) -> dict[str, Any]:
        """Give the line whose surroundings a new one shares: the one before, or else the next."""
        if before:
            near: dict[str, Any] = before[-1].record.value
            return near
        known = [source for source, _ in strand.parts if source != NEW] or self.sent[:1]
        return self.chain.value(known[0]) if known else {}

    def _message(self, strand: SourcedMessage, role: Any, content: Any) -> dict[str, Any]:
        if role != ASSISTANT:
            return {"role": role, "content": content}
        known = [source for source, _ in strand.parts if source != NEW]
        if known:
            return {**self.chain.value(known[0])["message"], "content": content}
        name = f"msg_lockstitch{self.minted + 1:04d}"
        base = {"id": name, "type": "message", "role": role, "model": "<synthetic>"}
        usage = {"input_tokens": 0, "output_tokens": 0}
        return {**base, "content": content, "stop_reason": "end_turn", "usage": usage}

    def _result_fields(self, part: Any) -> dict[str, Any]:
        if part.get("type") != "tool_result":
            return {}
        content = part.get("content")
        text = content if type(content) is str else ""
        fields: dict[str, Any] = {
            "toolUseResult": f"Error: {text}" if part.get("is_error") else text
        }
        call = part.get("tool_use_id")
        source = self._call_homes.get(call) if can_be_key(call) else None
        return {**fields, "sourceToolAssistantUUID": source} if source else fields

    @cached_property
    def _call_homes(self) -> dict[Any, str | None]:
        """Return the uuid of the last line that holds a call, by the id of the call."""
        values = [self.chain.value(number) for number in self.sent]
        return {name: value.get("uuid") for value in values for name in call_ids_in(value)}

    def _rename_message(self, units: Sequence[ClaudeUnit]) -> None:
        """Give the second half of a message that was split an id of its own."""
        name = next((u.record.value["message"].get("id") for u in units), None)
        if type(name) is not str:
            return
        if name not in self.message_ids:
            self.message_ids.add(name)
            return
        self.minted += 1
        new = f"{name}_{self.minted}"
        self.message_ids.add(new)
        for unit in units:
            unit.record = amend_record(self.data, unit.record, ("message", "id"), new)
            unit.touched = True

    # Which lines get a new parent.

    def _touch_batches(self, units: Sequence[ClaudeUnit]) -> None:
        """Mark every line of a batch in which something was added, moved or taken out."""
        before = {number: place for place, number in enumerate(self.sent)}
        last = -1
        touched = {unit.batch for unit in units if unit.touched}
        for unit in units:
            if unit.number == NEW:
                continue
            if before[unit.number] < last:
                touched.add(unit.batch)
            last = max(last, before[unit.number])
        touched |= {b.batch for a, b in pairwise(units) if a.number == NEW}
        kept = {unit.number: unit.batch for unit in units}
        gone = -1
        for number in self.sent:
            gone = kept.get(number, gone) if number in kept else gone
            if number not in kept and gone >= 0:
                touched.add(gone)
        for unit in units:
            unit.touched = unit.batch in touched

    def _with_controls(self, units: Sequence[ClaudeUnit]) -> list[ClaudeUnit]:
        """Put the control lines of the chain back behind the lines they follow."""
        kept = {unit.number for unit in units}
        behind: dict[int, list[int]] = {}
        anchor = NEW
        for number in self.chain.order:
            if number in self.spoken:
                anchor = number if number in kept else anchor
            else:
                behind.setdefault(anchor, []).append(number)
        line = [ClaudeUnit(self.records[number], number) for number in behind.get(NEW, ())]
        words: list[ClaudeUnit] = []
        for unit in units:
            if words and (unit.batch != words[0].batch or not results_in(unit.record.value)):
                line += words
                words = []
            line.append(unit)
            found = behind.get(unit.number, ()) if unit.number != NEW else ()
            for number in found:
                control = ClaudeUnit(self.records[number], number, unit.batch, unit.touched)
                # what a person typed while a tool ran comes behind the results
                waits = unit.touched and queued_words(self.chain.value(number)) is not None
                (words if waits else line).append(control)
        return [*line, *words]

    def _link(self, line: Sequence[ClaudeUnit]) -> None:
        """Write parents where the line before is another one than it was."""
        order = self.chain.order
        old = dict(zip(order, [NEW, *order], strict=False))
        kept = self._preserved()
        last: ClaudeUnit | None = None
        last_kept: ClaudeUnit | None = None
        for unit in line:
            if unit.number in kept or (unit.number == NEW and last_kept is not None):
                self._link_kept(unit, last_kept)
                last_kept = unit
                continue
            last_kept = None
            if last is not None and self._needs_link(unit, last, old, kept):
                self._set(unit, "parentUuid", last.uuid)
            elif last is None and (unit.number == NEW or self._hangs_on_lost(unit)):
                self._set(unit, "parentUuid", None)
            # the oldest versions do not know progress lines: nothing new may hang on one
            if not (unit.touched and unit.record.value.get("type") == PROGRESS):
                last = unit

    def _link_kept(self, unit: ClaudeUnit, last: ClaudeUnit | None) -> None:
        """Link a line among those that a compaction keeps, and put a new one on its list."""
        if last is not None and NEW in (unit.number, last.number):
            self._set(unit, "parentUuid", last.uuid)
        if last is not None and unit.number == NEW:
            self.kept_behind[last.uuid] = unit.uuid

    def _needs_link(
        self, unit: ClaudeUnit, last: ClaudeUnit, old: dict[int, int], apart: set[int]
    ) -> bool:
        if NEW in (unit.number, last.number):
            return True
        if old[unit.number] in apart:
            return False
        return unit.touched or old[unit.number] != last.number

    def _hangs_on_lost(self, unit: ClaudeUnit) -> bool:
        node = self.chain.graph.by_number[unit.number]
        parent = self.chain.graph.by_id.get(node.parent or "")
        return parent is not None and parent.number in self._lost()

    def _lost(self) -> set[int]:
        return self.spoken - self.used

    def _preserved(self) -> set[int]:
        """Give the lines from before a compaction that stay by name, not by their parents."""
        path = set(self.chain.walk.path[self.chain.cut :])
        return {n for n in self.chain.order if n < self.chain.boundary and n not in path}

    def _list_kept(self, line: Sequence[ClaudeUnit]) -> None:
        """Add new lines to the list of those that the compaction keeps."""
        if not self.kept_behind:
            return
        boundary = next(unit for unit in line if unit.number == self.chain.boundary)
        metadata = boundary.record.value["compactMetadata"]
        if "preservedMessages" in metadata:
            self._set(boundary, "compactMetadata", kept_names(metadata, self._with_new))
            return
        segment = metadata["preservedSegment"]
        last = self._with_new([segment["tailUuid"]])[-1]
        segment = {**segment, "tailUuid": last}
        self._set(boundary, "compactMetadata", {**metadata, "preservedSegment": segment})

    def _with_new(self, names: list[str]) -> list[str]:
        grown: list[str] = []
        for name in names:
            at: str | None = name
            while at is not None:
                grown.append(at)
                at = self.kept_behind.get(at) if type(at) is str else None
        return grown

    def _set(self, unit: ClaudeUnit, key: str, value: Any) -> None:
        if unit.record.value.get(key) != value:
            data = self.data if unit.number != NEW else b""
            unit.record = amend_record(data, unit.record, (key,), value)

    def _date(self, line: Sequence[ClaudeUnit]) -> None:
        """Make the last line the newest, and no new or moved line newer than it."""
        speakers = [unit for unit in line if unit.record.value.get("type") in SPEAKERS]
        if not speakers:
            return
        last = speakers[-1]
        rest = [unit.record.value for unit in speakers[:-1]]
        top = newest(rest)
        end = time_of(last.record.value)
        if top is None:
            return
        if last.number == NEW:
            # 2.1.50 goes on at the newest line of all, notes of progress included.
            every = (self.chain.value(node.number) for node in self.chain.graph.nodes)
            self._set(last, "timestamp", stamp(just_after(newest(every) or top)))
            return
        for unit in speakers[:-1]:
            time = time_of(unit.record.value)
            if unit.touched and end is not None and time is not None and time >= end:
                self._set(unit, "timestamp", stamp(just_before(end)))

    # The file.

    def _file(self, line: Sequence[ClaudeUnit]) -> list[Record]:
        """Put the lines back into the file, new and moved ones behind the one they follow."""
        lost = self._lost()
        earlier = Earlier(
            (unit.number for unit in line if unit.number > NEW),
            {unit.number: unit for unit in line},
        )
        spots = {unit.number: unit.record for unit in line if unit.number != NEW}
        follow: dict[int, list[Record]] = {}
        moved: set[int] = set()
        anchor = NEW
        for unit, after in zip(line, [*line[1:], None], strict=False):
            if unit.number == NEW or self._is_out_of_order(unit, anchor, after):
                record = unit.record
                record = structs.replace(record, ending=record.ending or b"\n")
                follow.setdefault(anchor, []).append(record)
                moved.add(unit.number)
            else:
                anchor = unit.number
        out = list(follow.get(NEW, ()))
        for number, record in enumerate(self.records):
            if number not in moved and number not in lost:
                out.append(self._rehung(spots.get(number, record), lost, earlier))
            out += follow.get(number, ())
        return out

    def _is_out_of_order(self, unit: ClaudeUnit, anchor: int, after: ClaudeUnit | None) -> bool:
        if not unit.touched or anchor == NEW:
            return False
        if unit.number < anchor:
            return unit.number >= self.chain.boundary
        return after is not None and NEW < after.number < unit.number and after.number > anchor

    def _rehung(self, record: Record, lost: set[int], earlier: Earlier[ClaudeUnit]) -> Record:
        """Hang what hung on a line that is gone on the line before that one."""
        if not record.is_record or not lost:
            return record
        parent = self.chain.graph.by_id.get(str(record.value.get("parentUuid")))
        if parent is None or parent.number not in lost:
            return record
        before = earlier.than(parent.number)
        return amend_record(self.data, record, ("parentUuid",), before.uuid if before else None)


def fork(transcript: Transcript, line: str) -> bytes:
    """Give a file in which the branch that starts at a line is the conversation.

    The turns that took the branch's place are left out, and the session gets an id of its own.
    """
    chain: ClaudeChain
    branches: list[OffBranch]
    chain, branches = transcript.state
    branch = next((one for one in branches if _holds(chain, one, line)), None)
    if branch is None:
        raise UsageError(f"no branch that a resume leaves behind holds line {line}")
    rivals = _rivals(chain, branch)
    session = derived_uuid(str(transcript.session), line)
    kept = [
        _renamed(transcript.context.data, record, session)
        for number, record in enumerate(chain.records)
        if number not in rivals
    ]
    return records.write_lines(transcript.context.data, kept)


def _holds(chain: ClaudeChain, branch: OffBranch, line: str) -> bool:
    return any(chain.records[number].place == line for number in branch.members)


def _rivals(chain: ClaudeChain, branch: OffBranch) -> set[int]:
    """Give the records of the conversation that are not on the branch."""
    path = chain.walk.path
    start = path.index(branch.onward) if branch.onward in path else len(path)
    rivals = set(path[start:])
    for group in chain.groups.values():
        if rivals & set(group.members):
            rivals.update(group.members, group.results)
    return rivals


def _renamed(data: bytes, record: Record, session: str) -> Record:
    if not record.is_record or "sessionId" not in record.value:
        return record
    return amend_record(data, record, ("sessionId",), session)
