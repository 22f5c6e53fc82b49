"""Times in a Claude Code file: older versions resume at the newest line, so they must be right.

The conversation in a Claude Code file: a tree of lines, read as the newest client reads it.

One API message stands on several lines that share ``message.id``; the results of parallel calls
hang on side branches; a compaction cuts the chain and may name lines before it that stay. So the
chain is not a plain walk over ``parentUuid``: the leaf is chosen, the walk is made, and then the
lines that belong to what was met are gathered.

What the client does was measured with 2.1.325, and is said at the place that follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from msgspec import Struct

from lockstitch.sources.records import Record, can_be_key
from lockstitch.sources.write_back import Graph, GraphNode, GraphWalk

_TICK = timedelta(milliseconds=1)


def time_of(value: dict[str, Any]) -> datetime | None:
    """Give the time of a record, None if it has none that can be read."""
    stamp = value.get("timestamp")
    try:
        found = datetime.fromisoformat(stamp) if type(stamp) is str else None
    except ValueError:
        return None
    if found is not None and not MINYEAR < found.year < MAXYEAR:
        return None  # no time has a moment after it, or is one in every zone
    if found is not None and found.tzinfo is None:
        return found.replace(tzinfo=UTC)
    return found


def stamp(time: datetime) -> str:
    """Write a time as the program does."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def newest(values: Iterable[dict[str, Any]]) -> datetime | None:
    """Give the newest time among records."""
    return max((time for time in map(time_of, values) if time is not None), default=None)


def just_after(time: datetime) -> datetime:
    """Give the next moment that the program can tell from this one."""
    return time + _TICK


def just_before(time: datetime) -> datetime:
    """Give the last moment that the program can tell from this one."""
    return time - _TICK


def seconds_between(first: dict[str, Any], second: dict[str, Any]) -> float | None:
    """Return how much later the second record is than the first; None if one has no time."""
    times = time_of(first), time_of(second)
    if times[0] is None or times[1] is None:
        return None
    return (times[1] - times[0]).total_seconds()


USER, ASSISTANT, SYSTEM, ATTACHMENT = "user", "assistant", "system", "attachment"
SPEAKERS = (USER, ASSISTANT)
LAST_PROMPT = "last-prompt"
BOUNDARY = "compact_boundary"
SYNTHETIC = "<synthetic>"
# Beyond this the client does not take the line before for a parent that is missing (bisected).
_BRIDGED_SECONDS = 5.0


def message_of(value: dict[str, Any]) -> dict[str, Any]:
    """Give the message of a line; empty if it has none."""
    message = value.get("message")
    return message if type(message) is dict else {}


def blocks_of(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the blocks of a line's message that are objects."""
    content = message_of(value).get("content")
    return [b for b in content if type(b) is dict] if type(content) is list else []


def results_in(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the tool results on a line."""
    if value.get("type") != USER:
        return []
    return [block for block in blocks_of(value) if block.get("type") == "tool_result"]


def answered_in(value: dict[str, Any]) -> set[str]:
    """Give the ids of the calls that a line answers."""
    return ids_of(results_in(value), "tool_use_id")


def ids_of(blocks: Iterable[dict[str, Any]], key: str) -> set[str]:
    """Give the ids that blocks have under a key; a value of another kind is none."""
    return {block[key] for block in blocks if type(block.get(key)) is str}


def calls_in(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the tool calls on a line."""
    if value.get("type") != ASSISTANT:
        return []
    return [block for block in blocks_of(value) if block.get("type") == "tool_use"]


def call_ids_in(value: dict[str, Any]) -> list[Any]:
    """Return the ids of the tool calls on a line, but for what can be no id."""
    names = [call.get("id") for call in calls_in(value)]
    return [name for name in names if can_be_key(name)]


def is_prompt(value: dict[str, Any]) -> bool:
    """Tell whether a person (or a script in their place) said this."""
    return (
        value.get("type") == USER
        and not value.get("isMeta")
        and not value.get("isCompactSummary")
        and not results_in(value)
    )


def is_boundary(value: dict[str, Any]) -> bool:
    """Tell whether a compaction cut the conversation here."""
    return value.get("type") == SYSTEM and value.get("subtype") == BOUNDARY


def is_sent(value: dict[str, Any]) -> bool:
    """Tell whether a line is a message that goes to the provider."""
    if value.get("type") not in SPEAKERS or not message_of(value):
        return False
    return not (value.get("isApiErrorMessage") and message_of(value).get("model") == SYNTHETIC)


def queued_words(value: dict[str, Any]) -> str | None:
    """Give what a person typed while the model was busy, if a line holds that."""
    attachment = value.get("attachment")
    if value.get("type") != ATTACHMENT or type(attachment) is not dict:
        return None
    words = attachment.get("prompt")
    return words if attachment.get("type") == "queued_command" and type(words) is str else None


def is_aside(value: dict[str, Any]) -> bool:
    """Whether a line says that it belongs to a sub-agent, not to the conversation."""
    return bool(value.get("isSidechain"))


def may_end(value: dict[str, Any]) -> bool:
    """Whether the client may resume behind a line: it reads past its own notes of progress."""
    return value.get("type") != "progress"


class Group(Struct):
    """The lines of one API message of the model, and of the results that are off the walk."""

    members: list[int]
    results: list[int]


class ClaudeChain:
    """What a resume of these records would read, in order.

    ``order`` numbers the records from the start of what is sent to the leaf, control records
    included; ``walk`` is the plain path behind it. ``end`` is the line that a resume goes on
    behind, ``leaf`` the last line of a speaker up to it, and ``overruled`` the line that it would
    go on behind if no ``last-prompt`` record named another. ``whole_file`` says that a file of a
    sub-agent is read, in which every line is a side line.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.whole_file = _is_sub_agent(records)
        self.graph = Graph(list(self._nodes()), self._bridges)
        self._keep_preserved()
        self.overruled: GraphNode | None = None
        # What claude_severity knows of the history of this chain, once it was asked.
        self.spans: Any = None
        self.end, self.leaf = self._end()
        self.walk = self.graph.walk(self.leaf) if self.leaf else GraphWalk([], [])
        self.cut = self._last_boundary()

    def value(self, number: int) -> dict[str, Any]:
        """Give the value of a record."""
        found: dict[str, Any] = self.records[number].value
        return found

    def _nodes(self) -> Iterator[GraphNode]:
        for number, record in enumerate(self.records):
            value = record.value
            if not record.is_record or "parentUuid" not in value:
                continue
            name, parent = value.get("uuid"), value.get("parentUuid")
            if type(name) is str and name:  # nothing can hang on an empty one
                aside = is_aside(value) and not self.whole_file
                yield GraphNode(number, name, parent if type(parent) is str else None, aside)

    def _keep_preserved(self) -> None:
        """Lead what hangs on the records that the last compaction kept through its summary."""
        for node in reversed(self.graph.nodes):
            if not node.aside and is_boundary(self.value(node.number)):
                anchor, kept = self._preserved(self.value(node.number))
                if kept and kept[0] < node.number and anchor in self.graph.by_id:
                    self.graph.detours[kept[0]] = anchor
                return

    def _bridges(self, node: GraphNode, before: GraphNode) -> bool:
        """Whether the client takes the line before for a parent that it cannot reach."""
        gap = seconds_between(self.value(before.number), self.value(node.number))
        return gap is not None and gap <= _BRIDGED_SECONDS

    def _end(self) -> tuple[GraphNode | None, GraphNode | None]:
        """Choose the line that a resume goes on behind, and the last line of a speaker up to it.

        That is the line that nobody hangs on and that is the latest in the file. The last
        ``last-prompt`` record overrules it, unless the file ends below what that record names.
        """
        ends = [node for node in self._terminals() if not node.aside]
        named = self.named_leaf()[1]
        if named is not None and not named.aside:
            speaker = self._speaker_at(named)
            last = next(self._lines_from_end(), None)
            if speaker is not None and last is not None and not self.hangs_below(last, named):
                self.overruled = last
                return named, speaker
        # What leads to no speaker of the conversation need not be climbed again.
        barren: set[int] = set()
        for end in sorted(ends, key=lambda node: node.number, reverse=True):
            speaker = self._speaker_at(end, barren)
            if speaker is not None and not speaker.aside:
                return end, speaker
        return None, None

    def _lines_from_end(self) -> Iterator[GraphNode]:
        """Iterate over the lines of the conversation that may be its end, the last first."""
        for node in reversed(self.graph.nodes):
            if not node.aside and may_end(self.value(node.number)):
                yield node

    def named_leaf(self) -> tuple[int, GraphNode | None]:
        """Return the last ``last-prompt`` record, and the record that it names; -1 and None.

        A compaction makes the client forget it. After a rewind it names what cannot be there.
        """
        return self._named_leaf

    @cached_property
    def _named_leaf(self) -> tuple[int, GraphNode | None]:
        for number in range(len(self.records) - 1, -1, -1):
            value = self.records[number].value
            if type(value) is not dict:
                continue
            if value.get("type") == LAST_PROMPT:
                return number, self.graph.by_id.get(str(value.get("leafUuid")))
            if is_boundary(value) and not is_aside(value):
                break
        return -1, None

    def hangs_below(self, node: GraphNode | None, top: GraphNode) -> bool:
        """Whether a record is another one or hangs below it."""
        seen: set[int] = set()
        while node is not None and node.number not in seen:
            if node.number == top.number:
                return True
            seen.add(node.number)
            node = self.graph.by_id.get(node.parent) if node.parent else None
        return False

    def _terminals(self) -> list[GraphNode]:
        """Return the records that nobody hangs on, but for notes of progress; all, in a circle."""
        parents = {node.parent for node in self.graph.nodes if may_end(self.value(node.number))}
        nodes = [node for node in self.graph.by_id.values() if may_end(self.value(node.number))]
        return [node for node in nodes if node.id not in parents] or nodes

    def _speaker_at(self, node: GraphNode, seen: set[int] | None = None) -> GraphNode | None:
        """Return the first speaker's line from a record upwards, past none that was seen."""
        seen = set() if seen is None else seen
        at: GraphNode | None = node
        while at is not None and at.number not in seen:
            if self.value(at.number).get("type") in SPEAKERS:
                return at
            seen.add(at.number)
            at = self.graph.by_id.get(at.parent) if at.parent else None
        return None

    def _last_boundary(self) -> int:
        """Give the position on the walk behind which the conversation is sent; 0 for all of it."""
        for position in range(len(self.walk.path) - 1, -1, -1):
            if is_boundary(self.value(self.walk.path[position])):
                return position
        return 0

    @property
    def boundary(self) -> int:
        """Give the number of the compaction boundary that is in force, -1 if there is none."""
        path = self.walk.path
        return path[self.cut] if path and is_boundary(self.value(path[self.cut])) else -1

    @cached_property
    def groups(self) -> dict[int, Group]:
        """Return the lines of every message of the model on the walk, by its first line there.

        Lines of one message follow each other, with nothing but results and notes in between; a
        client that copies a conversation within its file uses the same ids once more.
        """
        groups: dict[int, Group] = {}
        owners: dict[str, int] = {}
        first, message = -1, ""
        for number in self.walk.path[self.cut :]:
            name = self.message_id(number)
            if name and name != message:
                first, message = number, name
                groups[first] = Group([], [])
            if name:
                groups[first].members.append(number)
                owners[self.graph.by_number[number].id] = first
            elif self._ends_message(self.value(number)):
                message = ""
        self._add_lines(groups, owners)
        self._add_results(groups, owners)
        return groups

    @staticmethod
    def _ends_message(value: dict[str, Any]) -> bool:
        return value.get("type") in SPEAKERS and not results_in(value)

    def _add_lines(self, groups: dict[int, Group], owners: dict[str, int]) -> None:
        """Add the lines of a message that hang beside the walk: on it, or on what it hangs on."""
        on_walk = set(self.walk.path)
        beside = {self.graph.by_number[first].parent: first for first in groups}
        for node in self.graph.nodes:
            name = self.message_id(node.number)
            if not name or node.number in on_walk or node.aside or not self._is_first(node):
                continue
            first = self._owner(node, name, owners, beside)
            if first >= 0:
                groups[first].members.append(node.number)
                owners[node.id] = first
        for group in groups.values():
            if any(number not in on_walk for number in group.members):
                group.members.sort()

    def _owner(
        self, node: GraphNode, name: str, owners: dict[str, int], beside: dict[str | None, int]
    ) -> int:
        """Return the group that a line hangs on, past results and notes of the client; or -1."""
        at: GraphNode | None = node
        seen: set[int] = set()
        while at is not None and at.number not in seen:
            seen.add(at.number)
            first = owners.get(at.parent or "", beside.get(at.parent, -1))
            if first >= 0 and self.message_id(first) == name:
                return first
            at = self.graph.by_id.get(at.parent) if at.parent else None
            if at is not None and self._ends_message(self.value(at.number)):
                return -1
        return -1

    def _is_first(self, node: GraphNode) -> bool:
        return self.graph.by_id[node.id] is node

    def _add_results(self, groups: dict[int, Group], owners: dict[str, int]) -> None:
        """Add the results that hang on a side branch, unless the walk has an answer already."""
        on_walk = set(self.walk.path[self.cut :])
        answered = {name for n in on_walk for name in answered_in(self.value(n))}
        for node in self.graph.nodes:
            first = owners.get(node.parent or "")
            if first is None or node.number in on_walk or not self._is_first(node):
                continue
            found = answered_in(self.value(node.number))
            if found and not found & answered:
                groups[first].results.append(node.number)
                answered |= found

    def message_id(self, number: int) -> str:
        """Return the id of the model's message that a line belongs to; empty if to none."""
        value = self.value(number)
        name = message_of(value).get("id") if value.get("type") == ASSISTANT else None
        return name if type(name) is str else ""

    @cached_property
    def order(self) -> list[int]:
        """Give the numbers of all records of the conversation as it is sent, in order."""
        path = self.walk.path[self.cut :]
        order: list[int] = []
        done: set[int] = set()
        for number in path:
            group = self.groups.get(number)
            wanted = [number] if group is None else [*group.members, *group.results]
            order += [n for n in wanted if n not in done]
            done.update(wanted)
        return self._with_preserved(order)

    def _with_preserved(self, order: list[int]) -> list[int]:
        """Splice the lines that a compaction kept in behind the line it names."""
        if self.boundary < 0:
            return order
        anchor, kept = self._preserved(self.value(self.boundary))
        known = set(order)
        kept = [number for number in kept if number not in known]
        if not kept:
            return order
        node = self.graph.by_id.get(anchor)
        numbers = [] if node is None else [node.number]
        at = max((order.index(n) + 1 for n in numbers if n in order), default=1)
        return [*order[:at], *kept, *order[at:]]

    def _preserved(self, boundary: dict[str, Any]) -> tuple[str, list[int]]:
        """Give the anchor of what a compaction kept, and its records."""
        metadata = boundary.get("compactMetadata")
        if type(metadata) is not dict:
            return "", []
        messages, segment = metadata.get("preservedMessages"), metadata.get("preservedSegment")
        if type(messages) is dict and type(messages.get("uuids")) is list:
            found = [self.graph.by_id.get(str(name)) for name in messages["uuids"]]
            # the program keeps all of them or none; a line that is named twice is one line
            kept = [*dict.fromkeys(node.number for node in found if node is not None)]
            return str(messages.get("anchorUuid")), [] if None in found else kept
        if type(segment) is not dict:
            return "", []
        return str(segment.get("anchorUuid")), self._segment(segment)

    def _segment(self, segment: dict[str, Any]) -> list[int]:
        tail = self.graph.by_id.get(str(segment.get("tailUuid")))
        path = self.graph.walk(tail).path if tail else []
        head = self.graph.by_id.get(str(segment.get("headUuid")))
        start = path.index(head.number) if head and head.number in path else len(path)
        return path[start:]

    @cached_property
    def places(self) -> dict[int, int]:
        """Return where each record of the walk stands on it."""
        return {number: place for place, number in enumerate(self.walk.path)}

    @cached_property
    def lines(self) -> dict[str, list[Record]]:
        """Return the records of the speakers, by their place in the file."""
        found: dict[str, list[Record]] = {}
        for record in self.records:
            if record.is_record and record.value.get("type") in SPEAKERS:
                found.setdefault(record.place, []).append(record)
        return found

    @cached_property
    def repeated(self) -> set[str]:
        """Return the ids that several records have."""
        return {node.id for node in self.graph.repeats}

    @cached_property
    def calls_cut_off(self) -> set[Any]:
        """Return the ids of the calls that stand before the compaction in force."""
        before = self.records[: max(self.boundary, 0)]
        return {name for record in before if record.is_record for name in call_ids_in(record.value)}

    def sent(self) -> list[int]:
        """Give the numbers of the records that are messages to the provider, in order."""
        return [number for number in self.order if is_sent(self.value(number))]

    def result_homes(self, numbers: Iterable[int]) -> dict[str, list[int]]:
        """Give the records that hold a result, by the id of the call."""
        homes: dict[str, list[int]] = {}
        for number in numbers:
            for result in results_in(self.value(number)):
                homes.setdefault(str(result.get("tool_use_id")), []).append(number)
        return homes


def _is_sub_agent(records: Sequence[Record]) -> bool:
    """Tell whether every speaker's line is a side line: the file of a sub-agent."""
    sides = [
        bool(record.value.get("isSidechain"))
        for record in records
        if record.is_record and record.value.get("type") in SPEAKERS
    ]
    return bool(sides) and all(sides)
