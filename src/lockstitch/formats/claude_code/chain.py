"""The conversation in a Claude Code file: a tree of lines, read as the newest client reads it.

One API message stands on several lines that share ``message.id``. The results of parallel calls are
on side branches. A compaction cuts the chain and may name earlier lines that stay. So the chain is
more than a walk over ``parentUuid``: first the leaf is chosen, then the walk is made, and then the
lines that belong to the messages on the walk are gathered.

The behaviour of the client was measured with 2.1.325, and is described where the code follows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from msgspec import Struct

from lockstitch.formats.records import Record, can_be_key
from lockstitch.formats.write_back import RecordTree, TreeNode, TreeWalk

USER, ASSISTANT, SYSTEM, ATTACHMENT = "user", "assistant", "system", "attachment"
SPEAKERS = (USER, ASSISTANT)
LAST_PROMPT = "last-prompt"
PROGRESS = "progress"
BOUNDARY = "compact_boundary"
SYNTHETIC = "<synthetic>"
# The shortest time that the program can write.
TICK = timedelta(milliseconds=1)
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9})*(?=-|$)", re.ASCII)
# After a longer gap, the client does not use the line before in place of a missing parent (found by
# bisection).
_BRIDGED_SECONDS = 5.0


def time_of(value: dict[str, Any]) -> datetime | None:
    """Return the time of a record, None if it has none that can be read."""
    text = value.get("timestamp")
    try:
        found = datetime.fromisoformat(text) if type(text) is str else None
    except ValueError:
        return None
    if found is None or not MINYEAR < found.year < MAXYEAR:
        return None  # such a time has no moment after it, or is none in some zones
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def stamp(time: datetime) -> str:
    """Return a time as the program writes it."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def newest(values: Iterable[dict[str, Any]]) -> datetime | None:
    """Return the newest time among records."""
    return max((time for time in map(time_of, values) if time is not None), default=None)


def seconds_between(first: dict[str, Any], second: dict[str, Any]) -> float | None:
    """Return how much later the second record is than the first; None if one has no time."""
    start, end = time_of(first), time_of(second)
    return None if start is None or end is None else (end - start).total_seconds()


def derived_uuid(*parts: str) -> str:
    """Return an id that is the same in every run of one repair."""
    name = ":".join(("lockstitch", *parts))
    return str(uuid5(NAMESPACE_URL, name.encode("utf-8", "backslashreplace").decode()))


def version_of(value: dict[str, Any]) -> tuple[int, ...]:
    """Return the version of the client that wrote a line; empty if it does not say."""
    found = _VERSION.match(str(value.get("version") or ""))
    return tuple(map(int, found[0].split("."))) if found else ()


def message_of(value: dict[str, Any]) -> dict[str, Any]:
    """Return the message of a line; empty if it has none."""
    message = value.get("message")
    return message if type(message) is dict else {}


def results_in(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool results on a line."""
    content = message_of(value).get("content") if value.get("type") == USER else None
    blocks = content if type(content) is list else ()
    return [block for block in blocks if type(block) is dict and block.get("type") == "tool_result"]


def calls_in(value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls on a line."""
    content = message_of(value).get("content") if value.get("type") == ASSISTANT else None
    blocks = content if type(content) is list else ()
    return [block for block in blocks if type(block) is dict and block.get("type") == "tool_use"]


def answered_in(value: dict[str, Any]) -> set[str]:
    """Return the ids of the calls that a line answers, without ids that are not strings."""
    names = (result.get("tool_use_id") for result in results_in(value))
    return {name for name in names if type(name) is str}


def call_ids_in(value: dict[str, Any]) -> list[Any]:
    """Return the ids of the tool calls on a line, without those that cannot be ids."""
    return [name for call in calls_in(value) if can_be_key(name := call.get("id"))]


def is_prompt(value: dict[str, Any]) -> bool:
    """Whether a person (or a script in their place) said this."""
    is_said = value.get("type") == USER and not value.get("isMeta")
    return is_said and not value.get("isCompactSummary") and not results_in(value)


def is_boundary(value: dict[str, Any]) -> bool:
    """Whether a compaction cut the conversation here."""
    return value.get("type") == SYSTEM and value.get("subtype") == BOUNDARY


def is_sent(value: dict[str, Any]) -> bool:
    """Whether a line is a message that goes to the provider."""
    message = message_of(value)
    if value.get("type") not in SPEAKERS or not message:
        return False
    return not (value.get("isApiErrorMessage") and message.get("model") == SYNTHETIC)


def queued_words(value: dict[str, Any]) -> str | None:
    """Return what a person typed while the model was busy, None if a line holds none of that."""
    attachment = value.get("attachment")
    if value.get("type") != ATTACHMENT or type(attachment) is not dict:
        return None
    words = attachment.get("prompt")
    return words if attachment.get("type") == "queued_command" and type(words) is str else None


def change_kept(metadata: dict[str, Any], change: Callable[[list[str]], list[str]]) -> Any:
    """Return the metadata of a compaction after a change of the records that it keeps."""
    messages = metadata["preservedMessages"]
    lists = {key: change(messages[key]) for key in ("uuids", "allUuids") if key in messages}
    metadata = {**metadata, "preservedMessages": {**messages, **lists}}
    segment = metadata.get("preservedSegment")
    names = lists["uuids"]
    if type(segment) is dict and names:
        ends = {"headUuid": names[0], "tailUuid": names[-1]}
        metadata["preservedSegment"] = {**segment, **ends}
    return metadata


class Group(Struct):
    """The lines of one API message of the model, and its results that are off the walk."""

    members: list[int]
    results: list[int]


class ClaudeChain:
    """What a resume of these records would read, in order.

    ``order`` has the numbers of the records from the start of what is sent to the leaf, including
    control records. ``walk`` is the plain path that leads there, and ``cut`` is the place on it
    from which it is sent. ``end`` is the line after which a resume continues, and ``leaf`` is the
    last line of a speaker up to there. ``overruled`` is the line after which it would continue if
    no ``last-prompt`` record named another. ``whole_file`` says that this is a sub-agent's file, in
    which every line is a side line. ``boundary`` is the compaction in force and ``last_boundary``
    the last one in the file, -1 if there is none. ``off`` has the records of the conversation that
    no resume reaches.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.values: list[Any] = [record.value for record in records]
        # The lines of speakers, and the id of the model's message that a line belongs to.
        self.spoken: set[int] = set()
        self.message_ids: dict[int, str] = {}
        nodes: list[TreeNode] = []
        has_main_line = False
        for number, record in enumerate(records):
            if not record.is_record:
                continue
            value = record.value
            kind, aside = value.get("type"), bool(value.get("isSidechain"))
            if kind in SPEAKERS:
                self.spoken.add(number)
                has_main_line = has_main_line or not aside
            if "parentUuid" not in value:
                continue
            name, parent = value.get("uuid"), value["parentUuid"]
            if type(name) is not str or not name:
                continue  # an empty id has no children
            nodes.append(TreeNode(number, name, parent if type(parent) is str else None, aside))
            message = value.get("message") if kind == ASSISTANT else None
            message_id = message.get("id") if type(message) is dict else None
            if type(message_id) is str and message_id:
                self.message_ids[number] = message_id
        self.whole_file = bool(self.spoken) and not has_main_line
        if self.whole_file:
            for node in nodes:
                node.aside = False
        values = self.values

        def bridges(node: TreeNode, before: TreeNode) -> bool:
            """Whether the client uses the line before in place of a parent that it cannot reach."""
            gap = seconds_between(values[before.number], values[node.number])
            return gap is not None and gap <= _BRIDGED_SECONDS

        # The tree must not refer back to the chain: such a circle would keep all of a large file in
        # memory.
        self.graph = RecordTree(nodes, bridges)
        # Descendants of the records that the last compaction kept lead through its summary.
        main = (node.number for node in reversed(nodes) if not node.aside)
        self.last_boundary = next((n for n in main if is_boundary(self.values[n])), -1)
        if self.last_boundary >= 0:
            anchor, kept = self._kept_by(self.values[self.last_boundary])
            if kept and kept[0] < self.last_boundary and anchor in self.graph.by_id:
                self.graph.detours[kept[0]] = anchor
        self.overruled: TreeNode | None = None
        self.named_leaf: tuple[int, TreeNode | None] = (-1, None)
        self.end, self.leaf = self._choose_end()
        self.walk = self.graph.walk(self.leaf) if self.leaf else TreeWalk([], [])
        path = self.walk.path
        # The position of each record on the walk.
        self.places = {number: place for place, number in enumerate(path)}
        places = (at for at in range(len(path) - 1, -1, -1) if is_boundary(self.values[path[at]]))
        cut = next(places, -1)
        self.cut = max(cut, 0)
        self.boundary = path[cut] if cut >= 0 else -1
        self.groups: dict[int, Group] = {}
        self.order: list[int] = []
        self._gather()
        reached = {*self.order, *path}
        self.off = [
            node
            for node in nodes
            if node.number not in reached and not node.aside and self.graph.by_id[node.id] is node
        ]

    def _choose_end(self) -> tuple[TreeNode | None, TreeNode | None]:
        """Return the line after which a resume continues, and the last line of a speaker up to it.

        That line has no children and is the latest such line in the file; the client skips its own
        notes of progress. The last ``last-prompt`` record overrules this choice, unless the file
        ends below the line that it names: then the client died before it could write another one. A
        compaction makes the client forget that record. After a rewind it names a line that cannot
        be there.
        """
        for number in range(len(self.records) - 1, -1, -1):
            value = self.values[number]
            if type(value) is not dict:
                continue
            if value.get("type") == LAST_PROMPT:
                self.named_leaf = number, self.graph.by_id.get(str(value.get("leafUuid")))
                break
            if is_boundary(value) and not value.get("isSidechain"):
                break
        nodes = [n for n in self.graph.nodes if self.values[n.number].get("type") != PROGRESS]
        named, overruled = self.named_leaf[1], None
        if named is not None and not named.aside:
            overruled = next((node for node in reversed(nodes) if not node.aside), None)
            at, seen = overruled, set[int]()
            while at is not None and at.number not in seen and at is not named:
                seen.add(at.number)
                at = self.graph.parent_of(at)
            if at is named:
                overruled = None
        parents = {node.parent for node in nodes}
        firsts = [node for node in nodes if self.graph.by_id[node.id] is node]
        # If the parents form a circle, every line has children, so any line may be the end.
        ends = [node for node in firsts if node.id not in parents] or firsts
        ends = [node for node in reversed(ends) if not node.aside]
        if named is not None and overruled is not None:
            ends.insert(0, named)
        # Lines that lead to no speaker of the conversation need not be climbed again.
        without_speaker: set[int] = set()
        for place, end in enumerate(ends):
            speaker: TreeNode | None = end
            while speaker is not None and speaker.number not in self.spoken:
                is_climbed = speaker.number in without_speaker
                without_speaker.add(speaker.number)
                speaker = None if is_climbed else self.graph.parent_of(speaker)
            is_named = overruled is not None and place == 0
            if speaker is not None and (is_named or not speaker.aside):
                self.overruled = overruled if is_named else None
                return end, speaker
        return None, None

    def _gather(self) -> None:
        """Gather the lines of the conversation as it is sent, by message and in order.

        Lines of one message of the model follow each other, with only results and notes in between.
        A client that copies a conversation within its file uses the same ids again.
        """
        groups = self.groups
        owners: dict[str, int] = {}
        first, message = -1, ""
        path = self.walk.path[self.cut :]
        for number in path:
            name = self.message_ids.get(number)
            if name and name != message:
                first, message = number, name
                groups[first] = Group([], [])
            if name:
                groups[first].members.append(number)
                owners[self.graph.by_number[number].id] = first
            elif number in self.spoken and not results_in(self.values[number]):
                message = ""
        on_walk = set(path)
        off_walk = [
            node
            for node in self.graph.nodes
            if node.number not in on_walk and self.graph.by_id[node.id] is node
        ]
        if off_walk and groups:
            self._add_lines(off_walk, owners)
            # Results on a side branch belong to the message, unless the walk has an answer.
            answered = {name for n in on_walk for name in answered_in(self.values[n])}
            for node in off_walk:
                owner = owners.get(node.parent or "")
                found = set[str]() if owner is None else answered_in(self.values[node.number])
                if owner is not None and found and not found & answered:
                    groups[owner].results.append(node.number)
                    answered |= found
        order: list[int] = []
        done: set[int] = set()
        for number in path:
            group = groups.get(number)
            wanted = [number] if group is None else [*group.members, *group.results]
            order += [n for n in wanted if n not in done]
            done.update(wanted)
        self.order = order
        if self.boundary >= 0:
            # Records that a compaction kept come after the line that it names.
            anchor, kept = self._kept_by(self.values[self.boundary])
            kept = [number for number in kept if number not in done]
            anchored = self.graph.by_id.get(anchor)
            is_known = anchored is not None and anchored.number in done
            at = order.index(anchored.number) + 1 if anchored is not None and is_known else 1
            self.order = [*order[:at], *kept, *order[at:]]

    def _add_lines(self, off_walk: Sequence[TreeNode], owners: dict[str, int]) -> None:
        """Add lines of a message that are beside the walk: below it, or below its parent."""
        groups = self.groups
        beside = {self.graph.by_number[first].parent: first for first in groups}
        names = {self.message_ids[first] for first in groups}
        for node in off_walk:
            name = self.message_ids.get(node.number)
            if name not in names or node.number in self.places or node.aside:
                continue
            # Climb to the message above, past results and notes of the client.
            at: TreeNode | None = node
            seen: set[int] = set()
            while at is not None and at.number not in seen:
                seen.add(at.number)
                first = owners.get(at.parent or "", beside.get(at.parent, -1))
                if first >= 0 and self.message_ids[first] == name:
                    groups[first].members.append(node.number)
                    owners[node.id] = first
                    break
                at = self.graph.parent_of(at)
                is_spoken = at is not None and at.number in self.spoken
                if at is not None and is_spoken and not results_in(self.values[at.number]):
                    break
        for group in groups.values():
            if any(number not in self.places for number in group.members):
                group.members.sort()

    def _kept_by(self, boundary: dict[str, Any]) -> tuple[str, list[int]]:
        """Return the anchor of a compaction, and the records that it kept."""
        metadata, by_id = boundary.get("compactMetadata"), self.graph.by_id
        if type(metadata) is not dict:
            return "", []
        messages, segment = metadata.get("preservedMessages"), metadata.get("preservedSegment")
        if type(messages) is dict and type(messages.get("uuids")) is list:
            found = [by_id.get(str(name)) for name in messages["uuids"]]
            # the program keeps all of them or none; a line that is named twice is one line
            kept = [*dict.fromkeys(node.number for node in found if node is not None)]
            return str(messages.get("anchorUuid")), [] if None in found else kept
        if type(segment) is not dict:
            return "", []
        head, tail = (by_id.get(str(segment.get(key))) for key in ("headUuid", "tailUuid"))
        path = self.graph.walk(tail).path if tail else []
        start = path.index(head.number) if head and head.number in path else len(path)
        return str(segment.get("anchorUuid")), path[start:]

    @cached_property
    def places_of_words(self) -> set[str]:
        """The places in the file with words of a speaker that the client did not write again."""
        again = {node.id for node in self.graph.repeats}
        spoken = (self.records[number] for number in self.spoken)
        return {record.place for record in spoken if str(record.value.get("uuid")) not in again}

    @cached_property
    def calls_cut_off(self) -> set[Any]:
        """The ids of the calls that come before the compaction in force."""
        before = self.records[: max(self.boundary, 0)]
        return {name for record in before if record.is_record for name in call_ids_in(record.value)}

    def results_on(self, numbers: Iterable[int]) -> set[str]:
        """Return the ids of the calls that are answered on some records."""
        found = (result for number in numbers for result in results_in(self.values[number]))
        return {str(result.get("tool_use_id")) for result in found}
