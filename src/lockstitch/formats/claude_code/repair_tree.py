"""Mending the tree of a Claude Code file: one round, the first kind of trouble that there is.

Every version of the program reads a file whose chain stands in file order and whose leaf is the
last and newest line, so records that change their place in the chain change it in the file, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from msgspec import structs

from lockstitch.formats.claude_code import findings
from lockstitch.formats.claude_code.chain import (
    SPEAKERS,
    ClaudeChain,
    Group,
    answered_in,
    call_ids_in,
    is_boundary,
    just_after,
    just_before,
    newest,
    stamp,
    time_of,
)
from lockstitch.formats.claude_code.evidence import descendants
from lockstitch.formats.claude_code.unreachable import (
    CUT,
    END,
    GAP,
    LATE,
    LOST,
    REPLY,
    WRITER,
    OffBranch,
)
from lockstitch.repair.draft import Ledger
from lockstitch.rules import RULES
from lockstitch.sources.interface import Transcript
from lockstitch.sources.records import Record, amend_record, decode_json, record_bytes
from lockstitch.sources.write_back import GraphNode

# So many lost branches are put back in rounds of their own, each judged anew.
_ONE_BY_ONE = 16
NOWHERE = -1


def derived_uuid(*parts: str) -> str:
    """Make an id that is the same in every run of the same repair."""
    name = ":".join(("lockstitch", *parts))
    return str(uuid5(NAMESPACE_URL, name.encode("utf-8", "backslashreplace").decode()))


def kept_names(
    metadata: dict[str, Any], change: Callable[[list[str]], list[str]]
) -> dict[str, Any]:
    """Give the metadata of a compaction that keeps other records."""
    messages = metadata["preservedMessages"]
    lists = {key: change(messages[key]) for key in ("uuids", "allUuids") if key in messages}
    metadata = {**metadata, "preservedMessages": {**messages, **lists}}
    segment = metadata.get("preservedSegment")
    names = lists["uuids"]
    if type(segment) is dict and names:
        ends = {"headUuid": names[0], "tailUuid": names[-1]}
        metadata["preservedSegment"] = {**segment, **ends}
    return metadata


def repair_tree(
    transcript: Transcript, chain: ClaudeChain, branches: Sequence[OffBranch], ledger: Ledger
) -> list[Record]:
    """Mend one kind of trouble; the same records if there is none."""
    round_ = _ClaudeTreeRepair(transcript, chain, ledger)
    for step in (
        round_.drop_repeats,
        round_.drop_malformed,
        round_.wrap_replies,
        round_.rename_repeats,
        round_.link_danglers,
        round_.open_circles,
        round_.leave_side_chain,
        round_.undo_torn_compaction,
        round_.follow_compaction,
        round_.shorten_segment,
        lambda: round_.bring_back(branches),
        round_.address_results,
        round_.date_leaf,
    ):
        step()
        if round_.changed:
            break
    return round_.records()


class _ClaudeTreeRepair:
    """One round of repairs on the tree: what changes, by the numbers of the records."""

    def __init__(self, transcript: Transcript, chain: ClaudeChain, ledger: Ledger) -> None:
        self.data = transcript.context.data
        self.chain = chain
        self.ledger = ledger
        self.values: dict[int, Record] = {}
        self.gone: set[int] = set()
        self.moves: dict[int, list[int]] = {}

    @property
    def changed(self) -> bool:
        return bool(self.values or self.gone or self.moves)

    def records(self) -> list[Record]:
        """Give the records as they are after this round."""
        moved = {number for numbers in self.moves.values() for number in numbers}
        order: list[int] = []
        for number in range(len(self.chain.records)):
            # what is moved may have others in front of it that move along
            todo = [] if number in moved else [(number, False)]
            while todo:
                at, is_reached = todo.pop()
                if not is_reached and at in self.moves:
                    todo.append((at, True))
                    todo += [(ahead, False) for ahead in reversed(self.moves[at])]
                elif at not in self.gone:
                    order.append(at)
        return [self.values.get(number, self.chain.records[number]) for number in order]

    def set(self, number: int, key: str, value: Any) -> None:
        record = self.values.get(number, self.chain.records[number])
        self.values[number] = amend_record(self.data, record, (key,), value)

    def note(self, code: str, action: str, number: int, text: str) -> None:
        self.ledger.note(RULES[code], action, self.chain.records[number].place, text)

    def remove(self, code: str, number: int, text: str) -> None:
        """Take a record out; what hung on it hangs on what it hung on."""
        self.gone.add(number)
        self.note(code, "removed", number, text)
        place = self.chain.records[number].place
        value = decode_json(record_bytes(self.data, self.chain.records[number]))
        self.ledger.set_aside(RULES[code], place, value)

    def relink(self, code: str, number: int, parent: int | None) -> None:
        """Hang a record on another one, or on none."""
        graph = self.chain.graph
        name = graph.by_number[parent].id if parent is not None else None
        where = f"line {self.chain.records[parent].place}" if parent is not None else "no record"
        self.set(number, "parentUuid", name)
        self.note(code, "linked", number, f"the parent of the record is now {where}")

    def _before(self, number: int) -> int | None:
        """Give the record before one in the file that it may hang on without a circle."""
        graph = self.chain.graph
        top = self._tops[number]
        # Below a record that hangs on nothing, or on itself, is all that climbs to the same top.
        is_below = self._tops if top == number or top in self._circled.get(number, ()) else None
        below = set() if is_below else set(descendants(self.chain, number))
        alike = self._alike[graph.by_number[number].aside]
        for at in range(bisect_left(alike, number) - 1, -1, -1):
            other = alike[at]
            hangs = is_below[other] == top if is_below else other in below
            if not hangs and other not in self.gone:
                return other
        return None

    @cached_property
    def _alike(self) -> tuple[list[int], list[int]]:
        """The records of the conversation, and those beside it, in file order."""
        nodes = self.chain.graph.nodes
        main = [node.number for node in nodes if not node.aside]
        return main, [node.number for node in nodes if node.aside]

    @cached_property
    def _circled(self) -> dict[int, frozenset[int]]:
        """The records of each circle that is all of the conversation, by each of them."""
        found: dict[int, frozenset[int]] = {}
        for first in findings.circles(self.chain):
            circle = frozenset(findings.circle_of(self.chain, first))
            if not any(self.chain.graph.by_number[number].aside for number in circle):
                found.update(dict.fromkeys(circle, circle))
        return found

    @cached_property
    def _tops(self) -> dict[int, int]:
        """Where the parents of each record lead: to the last one, up to a circle or a side line.

        For a file in which no id stands twice.
        """
        graph = self.chain.graph
        tops: dict[int, int] = {}
        for node in graph.nodes:
            climbed: dict[int, None] = {}
            at, top = node, node.number
            while at.number not in climbed:
                if at.number in tops:
                    top = tops[at.number]
                    break
                climbed[at.number] = None
                top = at.number
                above = graph.by_id.get(at.parent) if at.parent and not at.aside else None
                if above is None:
                    break
                at = above
            tops.update(dict.fromkeys(climbed, top))
        return tops

    def drop_repeats(self) -> None:
        """Keep the first of equal records."""
        for node in self.chain.graph.repeats:
            if findings.is_copy(self.chain, node):
                self._drop_copy(self.chain.graph.by_id[node.id].number, node.number)

    def _drop_copy(self, first: int, copy: int) -> None:
        """Keep the first of two copies, or the second in its place if the first is damaged."""
        damaged = findings.is_damaged(self.chain.value(first))
        if damaged and not findings.is_damaged(self.chain.value(copy)) and first not in self.gone:
            self.moves[first] = [copy]
            self.set(copy, "parentUuid", self.chain.value(first).get("parentUuid"))
            self.remove("LS607", first, "a whole copy of it took its place")
            return
        self.gone.add(copy)
        self.note("LS607", "removed", copy, "an equal record comes before it")

    def drop_malformed(self) -> None:
        """Take messages without content out of the file."""
        for number in findings.malformed(self.chain):
            node = self.chain.graph.by_number[number]
            self.remove("LS610", number, "a message without content was set aside")
            for child in self.chain.graph.children.get(node.id, ()):
                self.set(child.number, "parentUuid", node.parent)

    def wrap_replies(self) -> None:
        """Give replies that are a text the list of blocks that every client reads."""
        for number in findings.bare_replies(self.chain):
            text = self.chain.value(number)["message"]["content"]
            record = self.values.get(number, self.chain.records[number])
            blocks = [{"type": "text", "text": text}] if text else []
            self.values[number] = amend_record(self.data, record, ("message", "content"), blocks)
            self.note("LS610", "rewritten", number, "the text became a block")

    def rename_repeats(self) -> None:
        """Give the second of two different records an id of its own, and its children with it."""
        graph = self.chain.graph
        # By id: the records that children follow, each up to the next one.
        heads: dict[str, list[tuple[int, str]]] = {}
        for repeat in graph.repeats:
            first = graph.by_id[repeat.id]
            node = self._less_spoken(first, repeat)
            alike = self._speaks(first.number) == self._speaks(repeat.number)
            name = derived_uuid(node.id, str(node.number))
            self.set(node.number, "uuid", name)
            self.note("LS703", "renamed", node.number, "the record got a uuid of its own")
            if alike or self._speaks(node.number):
                known = heads.setdefault(node.id, [])
                if node is first:
                    known.clear()
                known.append((node.number, name))
        for name, known in heads.items():
            for child in graph.children.get(name, ()):
                at = bisect_left(known, (child.number,))
                if at:
                    self.set(child.number, "parentUuid", known[at - 1][1])

    def _less_spoken(self, first: GraphNode, second: GraphNode) -> GraphNode:
        """Give the one of two records that changes its id: the second, or what is no message."""
        return first if self._speaks(second.number) > self._speaks(first.number) else second

    def link_danglers(self) -> None:
        """Hang records whose parent is missing on the record before them."""
        for node in findings.dangling(self.chain):
            home = self._call_of(node.number)
            self.relink("LS701", node.number, self._before(node.number) if home is None else home)

    def _call_of(self, number: int) -> int | None:
        """Give the record of the last call that a record of results answers."""
        answered = answered_in(self.chain.value(number))
        return max((self._callers[name] for name in answered & self._callers.keys()), default=None)

    @cached_property
    def _callers(self) -> dict[Any, int]:
        """The last record that holds a call, by the id of the call."""
        numbers = [node.number for node in self.chain.graph.nodes]
        return {name: n for n in numbers for name in call_ids_in(self.chain.value(n))}

    def open_circles(self) -> None:
        """Take the first record of a circle out of it."""
        for node in findings.circles(self.chain):
            self.relink("LS702", node.number, self._before(node.number))

    def leave_side_chain(self) -> None:
        """Hang the record that follows a side chain on the conversation."""
        number = findings.takeover(self.chain)
        if number < 0:
            return
        nodes = self.chain.graph.nodes[: self.chain.graph.position(number)]
        main = [n for n in nodes if not n.aside and self._speaks(n.number)]
        self.relink("LS707", number, main[-1].number if main else None)

    def _speaks(self, number: int) -> bool:
        return self.chain.value(number).get("type") in SPEAKERS

    def undo_torn_compaction(self) -> None:
        """Take a boundary without its summary out, so that the conversation is whole again."""
        number = findings.torn_boundary(self.chain)
        if number < 0:
            return
        node = self.chain.graph.by_number[number]
        logical = self.chain.graph.by_id.get(str(self.chain.value(number).get("logicalParentUuid")))
        parent = logical.number if logical else self._before(number)
        name = None if parent is None else self.chain.graph.by_number[parent].id
        self.remove("LS801", number, "a compaction without its summary was taken back")
        for child in self.chain.graph.children.get(node.id, ()):
            self.set(child.number, "parentUuid", name)

    def follow_compaction(self) -> None:
        """Hang a prompt that went round a compaction on the turns behind it."""
        late, parent = findings.stale(self.chain)
        if late >= 0:
            self.relink("LS802", late, parent)

    def shorten_segment(self) -> None:
        """Take records that are missing off the list of those that a compaction keeps."""
        missing = set(findings.lost_segment(self.chain))
        if not missing:
            return
        number = self.chain.boundary
        metadata = self.chain.value(number)["compactMetadata"]
        kept = kept_names(metadata, lambda names: [n for n in names if str(n) not in missing])
        self.set(number, "compactMetadata", kept)
        self.note("LS804", "shortened", number, f"{len(missing)} missing records left its list")

    def bring_back(self, branches: Sequence[OffBranch]) -> None:
        """Put one lost branch back in front of what follows it on the chain.

        Of several beginnings that were cut off, the last one is next to what follows. Where there
        are many, all those are put back at once that are in nobody's way.
        """
        lost = [branch for branch in branches if branch.kind in LOST and branch.kind != GAP]
        # What has a neighbour neither before nor behind it can be put nowhere.
        lost = [b for b in lost if b.kind == END or b.onward >= 0 or b.attach >= 0]
        cut = [branch for branch in lost if branch.kind == CUT]
        many = self._side_by_side(lost, cut) if len(lost) > _ONE_BY_ONE else []
        for branch, all_late in many or [(branch, False) for branch in (*cut[-1:], *lost[:1])[:1]]:
            self._splice(branch, all_late=all_late)

    def _side_by_side(
        self, lost: list[OffBranch], cut: list[OffBranch]
    ) -> list[tuple[OffBranch, bool]]:
        """Return branches that can be put back in one round, and whether all their lines move.

        What is put back at the same place goes in front of what was put back there before, as it
        would in rounds of its own.
        """
        ready: list[tuple[OffBranch, bool]] = []
        # By place: what was put back there last, and the line in front of which the next one goes.
        ahead: dict[int, tuple[OffBranch, int]] = {}
        for branch in reversed(cut) if cut else lost:
            before, line = ahead.get(branch.onward, (None, NOWHERE))
            onward = before.top if before else branch.onward
            moves = False
            if cut:
                fits = max(branch.members) < onward
            elif before is None:
                fits = branch.kind in (REPLY, WRITER)
                line = self._line_ahead(branch)
            else:
                # lines of one message of the model stay together, which takes rounds of their own
                moves = NOWHERE < line < min(branch.members)
                fits = moves and branch.kind in (REPLY, WRITER)
                is_first = before.top == min(before.members)
                fits = fits and (is_first or not self.chain.message_id(before.top))
            if fits and branch.onward >= 0:
                ahead[branch.onward] = branch, line
                ready.append((structs.replace(branch, onward=onward), moves))
        return ready

    @staticmethod
    def _line_ahead(branch: OffBranch) -> int:
        """Return the line in front of which others go that are put back at the same place.

        That is the branch itself if none of it moves, and what it moves in front of if all does.
        """
        if max(branch.members) < branch.onward:
            return branch.top
        return branch.onward if min(branch.members) > branch.onward else NOWHERE

    def _splice(self, branch: OffBranch, *, all_late: bool = False) -> None:
        """Put a branch back; ``all_late`` moves all its lines to where it belongs."""
        code = findings.CODES[branch.kind]
        turns = f"{branch.turns} turn{'s' * (branch.turns != 1)}"
        self.note(code, "brought back", branch.top, f"{turns}, {branch.size} bytes")
        if branch.kind == END and self.chain.overruled is not None:
            named, tail = self.chain.named_leaf()[0], self.chain.graph.by_number[branch.tail]
            self.set(named, "leafUuid", tail.id)
            place = self.chain.records[branch.tail].place
            self.note(
                code,
                "linked",
                named,
                f"the last prompt is now line {place}, where a resume continues",
            )
            return
        if branch.kind == END:
            self.relink(code, self._first_note(), branch.tail)
            return
        rootless = self.chain.graph.by_number[branch.top].parent is None and branch.attach >= 0
        if branch.onward < 0 or branch.kind == LATE or rootless:
            self.relink(code, branch.top, branch.attach if branch.attach >= 0 else None)
        if branch.onward < 0:
            return
        self.relink(code, branch.onward, self._own_line_before(branch.onward, branch.tail))
        all_late = all_late or branch.kind == LATE
        late = [n for n in branch.members if n > branch.onward or all_late]
        if late:
            self.moves[branch.onward] = late
            self._date(late)

    def _first_note(self) -> int:
        """Return the first of the client's notes that a resume would go on behind."""
        chain, at = self.chain, self.chain.end
        while at is not None and at.parent is not None and chain.leaf is not None:
            if at.parent == chain.leaf.id:
                return at.number
            at = chain.graph.by_id.get(at.parent)
        raise AssertionError("the end of the conversation is attached to its leaf")

    def _own_line_before(self, number: int, tail: int) -> int:
        """Give the line before one of the same message that is off the walk, else the tail."""
        group = self._groups.get(number)
        if group is None:
            return tail
        path = self.chain.places
        earlier = [n for n in group.members if tail < n < number and n not in path]
        return earlier[-1] if earlier else tail

    @cached_property
    def _groups(self) -> dict[int, Group]:
        """The message of the model that a line belongs to."""
        found: dict[int, Group] = {}
        for group in self.chain.groups.values():
            for number in group.members:
                found.setdefault(number, group)
        return found

    def _date(self, numbers: Sequence[int]) -> None:
        """Make moved records older than the leaf, so that no version takes one for the leaf."""
        leaf = self.chain.leaf
        limit = time_of(self.chain.value(leaf.number)) if leaf else None
        for number in numbers:
            time = time_of(self.chain.value(number))
            if limit is not None and time is not None and time >= limit:
                self.set(number, "timestamp", stamp(just_before(limit)))

    def address_results(self) -> None:
        """Give a result the id of the call that its record names."""
        for number, block, call in findings.misaddressed(self.chain):
            record = self.values.get(number, self.chain.records[number])
            path = ("message", "content", block, "tool_use_id")
            self.values[number] = amend_record(self.data, record, path, call)
            self.note("LS709", "rewritten", number, f"the result was addressed to call {call}")

    def date_leaf(self) -> None:
        """Make the leaf the newest line: some versions need its time, others go on at that."""
        undated, overtaken = findings.undated(self.chain), findings.overtaken(self.chain)
        number, code = (undated, "LS710") if undated >= 0 else (overtaken, "LS711")
        time = newest(self._main_values())
        if number >= 0 and time is not None:
            self.set(number, "timestamp", stamp(just_after(time)))
            self.note(code, "dated", number, "got a time right after the newest one")

    def _main_values(self) -> Iterator[dict[str, Any]]:
        for node in self.chain.graph.nodes:
            value = self.chain.value(node.number)
            if value.get("type") in SPEAKERS or is_boundary(value):
                yield value
