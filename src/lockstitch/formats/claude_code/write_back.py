"""What is written into a Claude Code file: a repaired history, a forked branch, a compaction.

Only what differs is written. If something is added to or moved into a batch of calls, the whole
batch is laid out in one line: all calls in a row, then all results, in file order and with times
that grow towards the leaf. This is the only layout that every version resumes without loss.

A compaction is a boundary, the summary, and what is kept, all appended. Kept records are copied
after the summary in one line, with ids and times of their own. Newer versions can name records and
keep them where they are, but older ones then leave them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby, pairwise
from typing import Any

from msgspec import Struct, structs

from lockstitch.dialects.base import text_of_blocks
from lockstitch.errors import UsageError
from lockstitch.formats import records
from lockstitch.formats.claude_code.chain import (
    ASSISTANT,
    ATTACHMENT,
    BOUNDARY,
    PROGRESS,
    SPEAKERS,
    TICK,
    ClaudeChain,
    call_ids_in,
    change_kept,
    derived_uuid,
    message_of,
    newest,
    queued_words,
    results_in,
    stamp,
    time_of,
)
from lockstitch.formats.claude_code.unreachable import OffBranch
from lockstitch.formats.interface import (
    NEW,
    Shortened,
    Sorting,
    SourcedMessage,
    Transcript,
    parts_of,
)
from lockstitch.formats.records import Record, amend_record, can_be_key, new_record
from lockstitch.formats.write_back import (
    Earlier,
    adopt_orphans,
    group_unsent,
    lay_records,
)

# The fields that a new record copies from its neighbour, in the order in which the program writes
# them.
_BEFORE = ("parentUuid", "isSidechain", "agentId")
_BEHIND = ("userType", "entrypoint", "cwd", "sessionId", "version", "gitBranch", "slug", "teamName")


class ClaudeUnit(Struct, eq=False):
    """A line of the new conversation: an old record (``number``), or a new one.

    A batch is a message of the model with everything that answers it; ``touched`` says that its
    lines are laid out anew.
    """

    record: Record
    number: int = NEW
    batch: int = 0
    touched: bool = False


class ClaudeWriteBack:
    """Lays a repaired history out over the records of a file."""

    def __init__(self, transcript: Transcript, chain: ClaudeChain) -> None:
        self.data = transcript.context.data
        self.chain = chain
        self.records = chain.records
        homes = transcript.history.sources
        numbers = dict.fromkeys(number for row in homes for number in row)
        self.sent = [n for n in numbers if chain.values[n].get("type") != ATTACHMENT]
        self.spoken = set(self.sent)
        # The uuid of the last line that holds a call, by the id of the call.
        values = [chain.values[number] for number in self.sent]
        self.call_homes = {name: v.get("uuid") for v in values for name in call_ids_in(v)}
        self.session = transcript.session or ""
        self.used: set[int] = set()
        self.minted = 0
        self.kept_behind: dict[str, str] = {}

    def lay_out(self, repaired: Sequence[SourcedMessage]) -> list[Record]:
        """Return the records of the file with the repaired conversation."""
        units: list[ClaudeUnit] = []
        batch = 0
        message_ids: set[str] = set()
        for sourced in repaired:
            is_model = sourced.message.get("role") == ASSISTANT
            batch += is_model
            made = list(self._units_of(sourced, units))
            name = made[0].record.value["message"].get("id") if is_model and made else None
            is_split = type(name) is str and name in message_ids
            if is_split:
                # the second half of a message that was split gets an id of its own
                self.minted += 1
                name = f"{name}_{self.minted}"
            for unit in made:
                unit.batch = batch
                if is_split:
                    unit.record = amend_record(self.data, unit.record, ("message", "id"), name)
                    unit.touched = True
            if type(name) is str:
                message_ids.add(name)
            units += made
        # If something was added to, moved in or removed from a batch, every line of it gets a new
        # parent.
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
            gone = kept.get(number, gone)
            if number not in kept and gone >= 0:
                touched.add(gone)
        for unit in units:
            unit.touched = unit.batch in touched
        has_controls = any(number not in self.spoken for number in self.chain.order)
        line = self._with_controls(units) if has_controls else units
        self._link(line)
        self._date(line)
        if self.kept_behind:
            self._list_kept(line)
        return self._file(line)

    def _units_of(
        self, sourced: SourcedMessage, before: Sequence[ClaudeUnit]
    ) -> Iterator[ClaudeUnit]:
        """Yield the lines of a message: its old ones, with what is left of them, or new ones.

        Words that were typed while the model was busy stay where they are.
        """
        role = sourced.message.get("role")
        for source, run in groupby(sourced.parts, key=lambda part: part[0]):
            parts = [part for _, part in run]
            kind = None if source == NEW else self.chain.values[source].get("type")
            if kind == ATTACHMENT:
                continue
            if source == NEW or kind != role or source in self.used:
                for part in parts:
                    yield self._new_unit(sourced, part, before)
                continue
            self.used.add(source)
            record = self.records[source]
            old = record.value["message"]["content"]
            new = sourced.message["content"] if parts == [sourced.message] else parts
            is_text = type(old) is str or type(new) is str
            if not (new == old if is_text else [*map(id, old)] == [*map(id, new)]):
                record = amend_record(self.data, record, ("message", "content"), new)
            yield ClaudeUnit(record, source)

    def _new_unit(
        self, sourced: SourcedMessage, part: Any, before: Sequence[ClaudeUnit]
    ) -> ClaudeUnit:
        """Return a record for a part, as the program would have written it.

        Its other fields come from the line before it, or else from the next one.
        """
        role = sourced.message.get("role")
        own = [self.chain.values[source] for source, _ in sourced.parts if source != NEW]
        near: dict[str, Any] = {}
        if before:
            near = before[-1].record.value
        elif own or self.sent:
            near = own[0] if own else self.chain.values[self.sent[0]]
        content = part["content"] if part is sourced.message else [part]
        value: dict[str, Any] = {key: near[key] for key in _BEFORE if key in near}
        value["type"] = role
        message: dict[str, Any] = {"role": role}
        if role == ASSISTANT and own:
            message = own[0]["message"]
        elif role == ASSISTANT:
            name = f"msg_lockstitch{self.minted + 1:04d}"
            message = {"id": name, "type": "message", "role": role, "model": "<synthetic>"}
            usage = {"input_tokens": 0, "output_tokens": 0}
            message |= {"content": content, "stop_reason": "end_turn", "usage": usage}
        value["message"] = {**message, "content": content}
        value["uuid"] = self._new_uuid(str(near.get("uuid")))
        value["timestamp"] = near.get("timestamp")
        if part.get("type") == "tool_result":
            text = part.get("content") if type(part.get("content")) is str else ""
            value["toolUseResult"] = f"Error: {text}" if part.get("is_error") else text
            call = part.get("tool_use_id")
            source = self.call_homes.get(call) if can_be_key(call) else None
            value |= {"sourceToolAssistantUUID": source} if source else {}
        value |= {key: near[key] for key in _BEHIND if key in near}
        return ClaudeUnit(new_record("", value), touched=True)

    def _new_uuid(self, near: str) -> str:
        """Make the uuid of a line, not that of a line that an earlier round of this repair made."""
        while True:
            self.minted += 1
            made = derived_uuid(self.session, near, str(self.minted))
            if made not in self.chain.graph.by_id:
                return made

    def _with_controls(self, units: Sequence[ClaudeUnit]) -> list[ClaudeUnit]:
        """Insert the control lines of the chain again, after the lines that they followed."""
        kept = {unit.number for unit in units}
        behind = group_unsent(self.chain.order, self.spoken, kept)
        line = [ClaudeUnit(self.records[number], number) for number in behind.get(NEW, ())]
        words: list[ClaudeUnit] = []
        for unit in units:
            if words and (unit.batch != words[0].batch or not results_in(unit.record.value)):
                line += words
                words = []
            line.append(unit)
            for number in behind.get(unit.number, ()) if unit.number != NEW else ():
                control = ClaudeUnit(self.records[number], number, unit.batch, unit.touched)
                # words that a person typed while a tool ran come after the results
                waits = unit.touched and queued_words(self.chain.values[number]) is not None
                (words if waits else line).append(control)
        return [*line, *words]

    def _link(self, line: Sequence[ClaudeUnit]) -> None:
        """Set the parent of each line that follows another line than before.

        Lines from before a compaction that stay by name, not by their parents, are only linked with
        each other. New lines among them are added to the list that the compaction keeps.
        """
        order = self.chain.order
        old = dict(zip(order, [NEW, *order], strict=False))
        path = set(self.chain.walk.path[self.chain.cut :])
        kept = {n for n in order if n < self.chain.boundary and n not in path}
        last: ClaudeUnit | None = None
        last_kept: ClaudeUnit | None = None
        for unit in line:
            is_new = unit.number == NEW
            if unit.number in kept or (is_new and last_kept is not None):
                if last_kept is not None and (is_new or last_kept.number == NEW):
                    self._set(unit, "parentUuid", last_kept.record.value["uuid"])
                if last_kept is not None and is_new:
                    name = last_kept.record.value["uuid"]
                    self.kept_behind[name] = unit.record.value["uuid"]
                last_kept = unit
                continue
            last_kept = None
            if last is None:
                node = self.chain.graph.by_number.get(unit.number)
                parent = self.chain.graph.by_id.get(node.parent or "") if node else None
                if is_new or (parent and parent.number in self.spoken - self.used):
                    self._set(unit, "parentUuid", None)
            elif (
                is_new
                or last.number == NEW
                or (
                    old[unit.number] not in kept
                    and (unit.touched or old[unit.number] != last.number)
                )
            ):
                self._set(unit, "parentUuid", last.record.value["uuid"])
            # the oldest versions do not know progress lines, so no new line may have one as its
            # parent
            if not (unit.touched and unit.record.value.get("type") == PROGRESS):
                last = unit

    def _set(self, unit: ClaudeUnit, key: str, value: Any) -> None:
        if unit.record.value.get(key) != value:
            data = self.data if unit.number != NEW else b""
            unit.record = amend_record(data, unit.record, (key,), value)

    def _list_kept(self, line: Sequence[ClaudeUnit]) -> None:
        """Add new lines to the list of those that the compaction keeps."""

        def with_new(names: list[str]) -> list[str]:
            grown: list[str] = []
            for name in names:
                at: str | None = name
                while at is not None:
                    grown.append(at)
                    at = self.kept_behind.get(at) if type(at) is str else None
            return grown

        boundary = next(unit for unit in line if unit.number == self.chain.boundary)
        metadata = boundary.record.value["compactMetadata"]
        if "preservedMessages" in metadata:
            metadata = change_kept(metadata, with_new)
        else:
            segment = metadata["preservedSegment"]
            segment = {**segment, "tailUuid": with_new([segment["tailUuid"]])[-1]}
            metadata = {**metadata, "preservedSegment": segment}
        self._set(boundary, "compactMetadata", metadata)

    def _date(self, line: Sequence[ClaudeUnit]) -> None:
        """Make the last line the newest, and no new or moved line newer than it."""
        speakers = [unit for unit in line if unit.record.value.get("type") in SPEAKERS]
        top = newest(unit.record.value for unit in speakers[:-1])
        if top is None:
            return
        last = speakers[-1]
        end = time_of(last.record.value)
        # If a line was moved to the end, it is the one to change, not all lines before it.
        before = {number: place for place, number in enumerate(self.sent)}
        places = [before.get(unit.number, NEW) for unit in speakers]
        is_moved = places[-1] < max(places[:-1])
        if last.number == NEW or (is_moved and (end is None or end <= top)):
            # 2.1.50 continues at the newest line of all, including notes of progress.
            every = (self.chain.values[node.number] for node in self.chain.graph.nodes)
            self._set(last, "timestamp", stamp((newest(every) or top) + TICK))
            return
        for unit in speakers[:-1]:
            time = time_of(unit.record.value) if unit.touched and end is not None else None
            if end is not None and time is not None and time >= end:
                self._set(unit, "timestamp", stamp(end - TICK))

    def _file(self, line: Sequence[ClaudeUnit]) -> list[Record]:
        """Put the lines back into the file, new and moved ones after the line they follow.

        Children of a removed line become children of the line before it.
        """
        gone = self.spoken - self.used
        kept = {unit.number: unit.record for unit in line if unit.number != NEW}
        earlier = Earlier(kept, dict(kept)) if gone else None
        behind: dict[int, list[tuple[int, Record]]] = {}
        moved: set[int] = set()
        anchor = NEW
        for unit, after in zip(line, [*line[1:], None], strict=False):
            # A line is out of order if its predecessor comes after it in the file, or its successor
            # before it. Lines that a compaction kept come before it anyway.
            if unit.number < anchor:
                is_moved = unit.number >= self.chain.boundary
            else:
                is_moved = after is not None and anchor < after.number < unit.number
            if unit.number == NEW or (unit.touched and anchor != NEW and is_moved):
                behind.setdefault(anchor, []).append((unit.number, unit.record))
                moved.add(unit.number)
                kept.pop(unit.number, None)
            else:
                anchor = unit.number

        def heir(number: int) -> str | None:
            before = earlier.than(number) if earlier else None
            return before.value["uuid"] if before else None

        laid = lay_records(self.records, kept, behind, moved | gone)
        if gone:
            by_id = self.chain.graph.by_id
            laid = adopt_orphans(self.data, laid, "parentUuid", by_id, gone, heir)
        return [record for _, record in laid]


def fork(
    transcript: Transcript, chain: ClaudeChain, branches: Sequence[OffBranch], line: str
) -> bytes:
    """Return a file in which the branch that starts at a line is the conversation.

    The turns that took the branch's place are left out, and the session gets an id of its own.
    """
    numbers = {number for number, record in enumerate(chain.records) if record.place == line}
    branch = next((one for one in branches if not numbers.isdisjoint(one.members)), None)
    if branch is None:
        raise UsageError(f"no branch that a resume leaves behind holds line {line}")
    path = chain.walk.path
    start = path.index(branch.onward) if branch.onward in path else len(path)
    rivals = set(path[start:])
    for group in chain.groups.values():
        if rivals & set(group.members):
            rivals.update(group.members, group.results)
    data, session = transcript.context.data, derived_uuid(str(transcript.session), line)
    kept = [record for number, record in enumerate(chain.records) if number not in rivals]
    return records.write_lines(
        data,
        [
            amend_record(data, record, ("sessionId",), session)
            if record.is_record and "sessionId" in record.value
            else record
            for record in kept
        ],
    )


def sorting(transcript: Transcript, chain: ClaudeChain) -> Sorting:
    """Return the summary in force, and what the program itself put into user messages."""
    from lockstitch.compaction.plan import usage_in  # noqa: PLC0415 - few commands need it

    homes = [chain.values[row[0]] if row else {} for row in transcript.history.sources]
    summaries = [n for n, value in enumerate(homes) if value.get("isCompactSummary")]
    usages = [(n, usage_in(message_of(value))) for n, value in enumerate(homes)]
    last = summaries[-1] if summaries else NEW
    content = message_of(homes[last]).get("content") if summaries else ""
    return Sorting(
        aside=frozenset(n for n, value in enumerate(homes) if value.get("isMeta")),
        summary=last,
        previous=content if type(content) is str else text_of_blocks(content),
        usage=tuple((n, tokens) for n, tokens in usages if tokens),
    )


class CompactionWriter:
    """Writes one compaction after the last record."""

    def __init__(self, transcript: Transcript, chain: ClaudeChain, out: Shortened) -> None:
        self.data = transcript.context.data
        self.history = transcript.history
        self.chain = chain
        self.out = out
        self.leaf = self.chain.values[self.chain.walk.path[-1]]
        values = (self.chain.values[node.number] for node in self.chain.graph.nodes)
        self.time = newest(values) or datetime.fromtimestamp(0, UTC)
        self.seed = (str(transcript.session), str(self.leaf.get("uuid")))
        self.tip: str | None = None
        self.minted = 0

    def records(self) -> Iterator[Record]:
        """Yield a boundary, the summary, and copies of what is kept."""
        done = self.out.done
        figures = {"preTokens": done.before.tokens, "postTokens": done.after.tokens}
        yield self._line(
            None,
            "system",
            subtype=BOUNDARY,
            content="Conversation compacted",
            isMeta=False,
            level="info",
            logicalParentUuid=self.leaf.get("uuid"),
            compactMetadata={"trigger": "manual", **figures},
        )
        message = {"role": "user", "content": self.out.summary}
        flags = {"isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        yield self._line(self.tip, "user", message=message, **flags)
        names: dict[str, str] = {}
        for number, message in self.out.kept:
            named = derived_uuid(*self.seed, "message", str(number)).replace("-", "")
            for source, parts in self._sources(number, message):
                yield self._copy(source, parts, names, f"msg_{named[:24]}")
                for behind in self._attachments_after(source):
                    yield self._copy(behind, None, names, "")

    def _next(self) -> dict[str, Any]:
        """Return the id and the time of the next record, which becomes the parent of later ones."""
        self.minted += 1
        self.time += TICK
        self.tip = derived_uuid(*self.seed, "compaction", str(self.minted))
        return {"uuid": self.tip, "timestamp": stamp(self.time)}

    def _line(self, parent: str | None, kind: str, **fields: Any) -> Record:
        head = {
            "isSidechain": False,
            **{k: self.leaf[k] for k in _BEFORE[1:] if k in self.leaf},
        }
        tail = {key: self.leaf[key] for key in _BEHIND if key in self.leaf}
        value = {"parentUuid": parent, **head, "type": kind, **fields, **self._next(), **tail}
        return new_record("", value)

    def _sources(self, number: int, message: Any) -> Iterator[tuple[int, list[Any] | None]]:
        """Yield the records of a message, with the blocks that are kept; None for all of them."""
        old = self.history.messages[number]
        sources = self.history.sources[number]
        kept = {id(part) for part in parts_of(message)}
        for source in dict.fromkeys(sources):
            pairs = zip(parts_of(old), sources, strict=True)
            parts = [part for part, home in pairs if home == source]
            left = parts if message is old else [part for part in parts if id(part) in kept]
            if left:
                yield source, None if len(left) == len(parts) else left

    def _attachments_after(self, source: int) -> Iterator[int]:
        """Yield what the program attached after a record, such as a file that was named."""
        order = self.chain.order
        for number in order[order.index(source) + 1 :] if source in order else ():
            value = self.chain.values[number]
            if value.get("type") != ATTACHMENT:
                return
            if queued_words(value) is None:
                yield number

    def _copy(
        self, source: int, parts: list[Any] | None, names: dict[str, str], message_id: str
    ) -> Record:
        """Copy a record; only its links, its time and removed blocks change its bytes."""
        record, parent = self.chain.records[source], self.tip
        value = record.value
        changes: dict[tuple[str, ...], Any] = {("parentUuid",): parent}
        changes |= {(key,): new for key, new in self._next().items()}
        names[str(value.get("uuid"))] = str(self.tip)
        if parts is not None:
            changes["message", "content"] = parts
        if value.get("type") == ASSISTANT and "id" in message_of(value):
            # records with one id are read as one message, even across a boundary
            changes["message", "id"] = message_id
        caller = names.get(str(value.get("sourceToolAssistantUUID")))
        if caller is not None:
            changes["sourceToolAssistantUUID",] = caller
        for path, new in changes.items():
            record = amend_record(self.data, record, path, new)
        return structs.replace(record, place="", start=-1, end=-1, ending=b"\n", codes=())
