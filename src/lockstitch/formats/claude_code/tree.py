"""What is wrong with the tree of a Claude Code file, and one round of its repair.

Every version of the program can read a file whose chain is in file order and whose leaf is the last
and newest line. So records that change their place in the chain change it in the file, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

from msgspec import Struct, structs

from lockstitch.dialects.base import text_of_blocks
from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.formats.claude_code.chain import (
    ASSISTANT,
    SPEAKERS,
    TICK,
    ClaudeChain,
    Group,
    answered_in,
    call_ids_in,
    calls_in,
    change_kept,
    derived_uuid,
    is_boundary,
    is_sent,
    message_of,
    newest,
    results_in,
    stamp,
    time_of,
    version_of,
)
from lockstitch.formats.claude_code.evidence import is_own_words
from lockstitch.formats.claude_code.unreachable import (
    CUT,
    END,
    GAP,
    LATE,
    REPLY,
    WRITER,
    OffBranch,
)
from lockstitch.formats.interface import Transcript, new_finding
from lockstitch.formats.records import SLIM, encode_record, read_json, record_bytes
from lockstitch.formats.write_back import TreeNode, TreeRepair
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, NOTE, WARNING, Finding
from lockstitch.rules.rule import several

# Kinds of faults, in the order in which they are repaired.
COPY = "copy"
NO_CONTENT = "no content"
BARE_REPLY = "bare reply"
SAME_ID = "same id"
DANGLING = "dangling"
CIRCLE = "circle"
SIDE_CHAIN = "side chain"
TORN_COMPACTION = "torn compaction"
PASSED_COMPACTION = "passed compaction"
MISSING_KEPT = "missing kept"
BRANCH = "branch"
MISADDRESSED = "misaddressed"
UNDATED = "undated"
OVERTAKEN = "overtaken"
DISPLACED = "displaced"
_CODES = {REPLY: "LS705", END: "LS705", WRITER: "LS706", CUT: "LS704", LATE: "LS805"}
_SAID = {
    REPLY: "a reply of the model is on a side branch",
    WRITER: "a second window wrote on a side branch",
    END: "the end of the conversation is on a side branch, after a note that was written late",
    CUT: "the conversation before this record is cut off",
    LATE: "the summary of the compaction does not cover this",
}
# From this version on, the client continues at the last line, not at the newest.
_BY_LINE = (2, 1, 112)
# Up to this many lost branches are put back in rounds of their own, each judged anew.
_ONE_BY_ONE = 16


class Fault(Struct, eq=False):
    """One thing that is wrong with the tree: the record, the finding, and its repair.

    ``about`` holds what else the repair of its kind needs to know.
    """

    kind: str
    number: int
    finding: Finding
    about: Any = None


def find_faults(
    chain: ClaudeChain, lost: Sequence[OffBranch], evidence: dict[str, dict[str, Any]]
) -> list[Fault]:
    """Return everything that is wrong with the tree."""
    faults: list[Fault] = []
    graph = chain.graph
    for node in graph.nodes:
        number = node.number
        content = message_of(chain.values[number]).get("content")
        if number not in chain.spoken or type(content) is list:
            continue
        if type(content) is not str:
            text = "this message has no content"
            faults.append(_fault(chain, NO_CONTENT, "LS610", number, text))
        elif chain.values[number]["type"] == ASSISTANT:
            text = "the content of this reply is a string, on which clients up to 2.1.197 crash"
            faults.append(_fault(chain, BARE_REPLY, "LS610", number, text))
    if graph.repeats:
        faults += _repeat_faults(chain)
    if not graph.is_ordered:
        faults += _link_faults(chain, lost)
    path = chain.walk.path[chain.cut :]
    if path and graph.by_number[path[0]].aside:
        faults += _side_chain_faults(chain, path)
    if max(chain.last_boundary, chain.boundary) >= 0:
        faults += _compaction_faults(chain)
    for branch in lost:
        if branch.kind == GAP:
            continue
        at = branch.onward if branch.kind == CUT and branch.onward is not None else branch.top
        turns = several(branch.turns, "turn")
        text = f"{_SAID[branch.kind]}: resuming will silently drop {turns} ({branch.size} bytes)"
        faults.append(_fault(chain, BRANCH, _CODES[branch.kind], at, text, about=branch))
    addressed = [n for n in chain.order if "sourceToolAssistantUUID" in chain.values[n]]
    order = chain.order if addressed else ()
    calls = {name for n in order for name in call_ids_in(chain.values[n])}
    loose = [n for n in addressed if answered_in(chain.values[n]).isdisjoint(calls)]
    if loose:
        faults += _misaddressed_results(chain, loose)
    if evidence:
        faults += _displaced_results(chain, evidence)
    if chain.leaf is not None:
        leaf = chain.values[chain.leaf.number]
        if time_of(leaf) is None or () < version_of(leaf) < _BY_LINE:
            faults += _leaf_faults(chain, chain.leaf)
    return faults


def _fault(  # noqa: PLR0913, PLR0917 - a finding and what its repair has to know
    chain: ClaudeChain,
    kind: str,
    code: str,
    number: int,
    text: str,
    severity: str = "",
    about: Any = None,
) -> Fault:
    return Fault(
        kind, number, new_finding(code, chain.records[number].place, text, severity), about
    )


def _repeat_faults(chain: ClaudeChain) -> Iterator[Fault]:
    """Yield records that are in the file twice."""
    for node in chain.graph.repeats:
        first = chain.graph.by_id[node.id]
        where = chain.records[first.number].place
        if _is_copy(chain.values[first.number], chain.values[node.number]):
            # The client uses the last copy, and with it that copy's parent.
            severity = WARNING if node.parent == first.parent else ERROR
            text = f"repeats the record of line {where}"
            yield _fault(chain, COPY, "LS607", node.number, text, severity, first)
        else:
            spoken = [one.number in chain.spoken for one in (first, node)]
            text = f"has the uuid of another record, on line {where}"
            severity = WARNING if any(spoken) != all(spoken) else ERROR
            yield _fault(chain, SAME_ID, "LS703", node.number, text, severity, (first, node))


def _is_copy(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether a record says the same as the first one with its id, at any place and time.

    The client writes a message again after a line that it could not finish, with the version and
    the folder of that moment. A copy may be damaged if its time and ids are the same.
    """
    if _said_in(first) == _said_in(second):
        return True
    marks = [(v.get("type"), v.get("timestamp"), message_of(v).get("id")) for v in (first, second)]
    return marks[0] == marks[1] and _is_damaged(first) != _is_damaged(second)


def _said_in(value: dict[str, Any]) -> dict[str, Any]:
    """Return what a record says: its message if it has one, else everything but its time."""
    message = message_of(value)
    if message:
        said = {key: message.get(key) for key in ("id", "role", "content")}
        return {"type": value.get("type"), SLIM: value.get(SLIM), **said}
    return {key: value[key] for key in value if key != "timestamp"}


def _is_damaged(value: dict[str, Any]) -> bool:
    """Whether some characters of a record could not be read."""
    return "\ufffd".encode() in encode_record(value)


def _link_faults(chain: ClaudeChain, lost: Sequence[OffBranch]) -> Iterator[Fault]:
    """Yield links that lead nowhere.

    The newest client continues at the line before if that was written at most a few seconds
    earlier. For every other such link, and always in older clients, whatever the link should have
    led to is left behind.
    """
    graph, breaks = chain.graph, chain.walk.breaks
    first = next((node.number for node in graph.nodes if not node.aside), -1)
    loose = {link.number for link in breaks if link.onward is None and link.number > first}
    loose |= {branch.top for branch in lost if branch.kind == GAP}
    if chain.overruled is not None:
        loose.add(graph.top_of(chain.overruled))
    bridged = {link.number for link in breaks if link.onward is not None} - loose
    faults: list[tuple[str, str, str, list[TreeNode]]] = [
        (DANGLING, "LS701", "the parent of this record is missing", [node])
        for node in graph.dangling()
    ]
    text = "the parents of this record form a circle"
    faults += [(CIRCLE, "LS702", text, circle) for circle in graph.circles()]
    for kind, code, text, nodes in faults:
        around = {node.number for node in nodes}
        said, severity = text, WARNING
        if around & loose:
            said = f"{text}: resuming will not connect it to what came before"
            severity = ERROR
        elif min(around) == first and not around & bridged:
            # Nothing comes before the first record: the file begins there.
            severity = NOTE
        yield _fault(chain, kind, code, min(around), said, severity, frozenset(around))


def _side_chain_faults(chain: ClaudeChain, path: Sequence[int]) -> Iterator[Fault]:
    """Yield the record at which a conversation, given by its records, leaves a side chain.

    Side lines within a conversation are sent like all others. Only if it begins with them, although
    someone spoke before, does it have the wrong parent.
    """
    graph = chain.graph
    asides = [graph.by_number[number].aside for number in path]
    if all(asides):
        return
    before = graph.nodes[: graph.position(path[0])]
    if any(not node.aside and node.number in chain.spoken for node in before):
        text = "the conversation continues from a side chain here"
        yield _fault(chain, SIDE_CHAIN, "LS707", path[asides.index(False)], text)


def _compaction_faults(chain: ClaudeChain) -> Iterator[Fault]:
    """Yield compactions that are not whole, or that the conversation bypasses."""
    last = chain.last_boundary
    later = (node.number for node in chain.graph.nodes if node.number > last)
    is_torn = last >= 0 and not any(chain.values[n].get("isCompactSummary") for n in later)
    if is_torn:
        text = "no summary follows this compaction boundary"
        yield _fault(chain, TORN_COMPACTION, "LS801", last, text)
    elif last >= 0 and last not in chain.places:
        path = chain.walk.path
        late = next((number for number in path if number > last), None)
        if late is not None and late != path[0] and is_own_words(chain, late):
            below = chain.graph.descendants(last)
            spoken = [n for n in below if n < late and n in chain.spoken]
            if spoken:
                text = "its parent is a record from before the compaction"
                yield _fault(chain, PASSED_COMPACTION, "LS802", late, text, about=spoken[-1])
    if chain.boundary < 0 or is_torn:
        return
    metadata = chain.values[chain.boundary].get("compactMetadata")
    kept = metadata.get("preservedMessages") if type(metadata) is dict else None
    named = kept.get("uuids") if type(kept) is dict else None
    names = named if type(named) is list else []
    missing = [str(name) for name in names if str(name) not in chain.graph.by_id]
    if missing:
        # The client keeps all of them or none, so existing ones are lost along with the missing.
        text = f"{len(missing)} of the records that this compaction keeps are missing"
        severity = NOTE if len(missing) == len(names) else ERROR
        yield _fault(chain, MISSING_KEPT, "LS804", chain.boundary, text, severity, missing)


def _misaddressed_results(chain: ClaudeChain, numbers: Sequence[int]) -> Iterator[Fault]:
    """Yield results that fit no call although their record names that of an open one.

    Only the records in ``numbers`` are looked at.
    """
    answered = chain.results_on(chain.order)
    for number in numbers:
        value = chain.values[number]
        source = chain.graph.by_id.get(str(value["sourceToolAssistantUUID"]))
        results = results_in(value)
        if source is None or len(results) != 1:
            continue
        named = [call.get("id") for call in calls_in(chain.values[source.number])]
        if len(named) == 1 and type(named[0]) is str and named[0] not in answered:
            block = value["message"]["content"].index(results[0])
            place = f"{chain.records[number].place}.message.content.{block}"
            found = new_finding("LS709", place, f"this result belongs to call {named[0]}")
            yield Fault(MISADDRESSED, number, found, (block, named[0]))


def _displaced_results(chain: ClaudeChain, evidence: dict[str, dict[str, Any]]) -> Iterator[Fault]:
    """Yield calls whose results are stored outside the conversation."""
    real = {
        name
        for number in chain.order
        for result in results_in(chain.values[number])
        if type(name := result.get("tool_use_id")) is str
        and not is_placeholder(text_of_blocks(result.get("content")))
    }
    for number in chain.order:
        for name in call_ids_in(chain.values[number]) if is_sent(chain.values[number]) else ():
            if name in evidence and name not in real:
                text = f"the result of call {name} is stored outside the conversation"
                yield _fault(chain, DISPLACED, "LS708", number, text)


def _leaf_faults(chain: ClaudeChain, leaf: TreeNode) -> Iterator[Fault]:
    """Yield a leaf at which older clients, which go by time, would not continue."""
    graph = chain.graph
    if time_of(chain.values[leaf.number]) is None:
        dated = (time_of(chain.values[node.number]) for node in graph.nodes)
        if any(time is not None for time in dated):
            yield _fault(chain, UNDATED, "LS710", leaf.number, "the last message has no time")
    if not () < version_of(chain.values[leaf.number]) < _BY_LINE:
        return
    # Those versions continue at the newest line of a speaker, and at the first if there are
    # several.
    latest: TreeNode | None = None
    limit = None
    for node in graph.nodes:
        is_main = node.number in chain.spoken and not node.aside
        time = time_of(chain.values[node.number]) if is_main else None
        if time is not None and (limit is None or time > limit):
            latest, limit = node, time
    if latest is None or latest is leaf:
        return
    seen = set(graph.walk(latest).path)
    missed = (number for number in chain.walk.path[chain.cut :] if number not in seen)
    if any(is_own_words(chain, number) for number in missed):
        text = "an earlier line is newer than the last one: this version continues there"
        yield _fault(chain, OVERTAKEN, "LS711", leaf.number, text)


def _without(missing: set[str], names: list[str]) -> list[str]:
    return [name for name in names if str(name) not in missing]


class ClaudeTreeRepair(TreeRepair):
    """One round of repairs on the tree of a file."""

    link = "parentUuid"

    def __init__(
        self,
        transcript: Transcript,
        chain: ClaudeChain,
        faults: Sequence[Fault],
        ledger: Ledger,
    ) -> None:
        super().__init__(transcript, ledger, chain.graph)
        self.chain = chain
        self.graph = chain.graph
        self.faults = faults

    def of(self, kind: str) -> list[Fault]:
        return [fault for fault in self.faults if fault.kind == kind]

    def take_out(self, code: str, number: int, text: str) -> None:
        """Remove a record, and keep everything that it held."""
        value, _ = read_json(record_bytes(self.data, self.records[number]))
        self.remove(code, number, text, value)

    def drop_copies(self) -> None:
        """Keep the first of equal records, or the second in its place if the first is damaged."""
        for fault in self.of(COPY):
            first, copy = fault.about.number, fault.number
            value, other = self.chain.values[first], self.chain.values[copy]
            if first not in self.gone and _is_damaged(value) and not _is_damaged(other):
                self.moves[first] = [copy]
                self.set(copy, ("parentUuid",), value.get("parentUuid"))
                self.take_out("LS607", first, "a full copy of it took its place")
            else:
                self.gone.add(copy)
                self.note("LS607", "removed", copy, "an equal record comes before it")

    def drop_malformed(self) -> None:
        """Remove messages without content from the file; their children move up."""
        for fault in self.of(NO_CONTENT):
            node = self.graph.by_number[fault.number]
            self.take_out("LS610", fault.number, "a message without content was set aside")
            self.move_children(node.id, node.parent)

    def wrap_replies(self) -> None:
        """Turn replies that are a text into a list of blocks, which every client reads."""
        for fault in self.of(BARE_REPLY):
            text = self.chain.values[fault.number]["message"]["content"]
            blocks = [{"type": "text", "text": text}] if text else []
            self.set(fault.number, ("message", "content"), blocks)
            self.note("LS610", "rewritten", fault.number, "the text became a block")

    def rename_repeats(self) -> None:
        """Give one of two different records with one id a new id, and its children with it."""
        spoken = self.chain.spoken
        # By id: the records with the children after each, up to the next one.
        heads: dict[str, list[tuple[int, str]]] = {}
        for fault in self.of(SAME_ID):
            first, second = fault.about
            is_first, is_second = first.number in spoken, second.number in spoken
            # A record that is not a message gets the new id, rather than one that is.
            node = first if is_second > is_first else second
            name = derived_uuid(node.id, str(node.number))
            self.set(node.number, ("uuid",), name)
            self.note("LS703", "renamed", node.number, "the record got a new uuid")
            if is_first == is_second or node.number in spoken:
                known = heads.setdefault(node.id, [])
                if node is first:
                    known.clear()
                known.append((node.number, name))
        for name, known in heads.items():
            for child in self.graph.children.get(name, ()):
                at = bisect_left(known, (child.number,))
                if at:
                    self.set(child.number, ("parentUuid",), known[at - 1][1])

    def link_orphans(self) -> None:
        """Link records whose parent is missing to their call, or to the record before them."""
        answers = {f.number: answered_in(self.chain.values[f.number]) for f in self.of(DANGLING)}
        # The last record that holds a call, by the id of the call.
        numbers = [node.number for node in self.graph.nodes] if any(answers.values()) else []
        callers = {name: n for n in numbers for name in call_ids_in(self.chain.values[n])}
        for number, answered in answers.items():
            home = max((callers[name] for name in answered & callers.keys()), default=None)
            self.relink("LS701", number, self._before(number) if home is None else home)

    def open_circles(self) -> None:
        """Take the first record of a circle out of it."""
        for fault in self.of(CIRCLE):
            self.relink("LS702", fault.number, self._before(fault.number))

    def _before(self, number: int) -> int | None:
        """Return the nearest earlier record that a record may have as a parent without a circle."""
        top = self._tops[number]
        # If a record has no parent, or is its own ancestor, its descendants are all that lead to
        # the same top.
        is_below = self._tops if top == number or top in self._circle_of.get(number, ()) else None
        below = set() if is_below else set(self.graph.descendants(number))
        alike = self._alike[self.graph.by_number[number].aside]
        for at in range(bisect_left(alike, number) - 1, -1, -1):
            other = alike[at]
            hangs = is_below[other] == top if is_below else other in below
            if not hangs and other not in self.gone:
                return other
        return None

    @cached_property
    def _alike(self) -> tuple[list[int], list[int]]:
        """The records of the conversation, and those outside of it, in file order."""
        nodes = self.graph.nodes
        main = [node.number for node in nodes if not node.aside]
        return main, [node.number for node in nodes if node.aside]

    @cached_property
    def _circle_of(self) -> dict[int, frozenset[int]]:
        """The records of each circle that lies wholly in the conversation, by each of them."""
        circles: list[frozenset[int]] = [fault.about for fault in self.of(CIRCLE)]
        nodes = self.graph.by_number
        whole = [one for one in circles if not any(nodes[number].aside for number in one)]
        return {number: circle for circle in whole for number in circle}

    @cached_property
    def _tops(self) -> dict[int, int]:
        """The top of each record's parents: the last one before a circle or a side line.

        This is for a file without repeated ids.
        """
        tops: dict[int, int] = {}
        for node in self.graph.nodes:
            climbed: dict[int, None] = {}
            at, top = node, node.number
            while at.number not in climbed:
                if at.number in tops:
                    top = tops[at.number]
                    break
                climbed[at.number] = None
                top = at.number
                above = self.graph.parent_of(at) if not at.aside else None
                if above is None:
                    break
                at = above
            tops.update(dict.fromkeys(climbed, top))
        return tops

    def leave_side_chain(self) -> None:
        """Link the record that follows a side chain to the conversation."""
        for fault in self.of(SIDE_CHAIN):
            nodes = self.graph.nodes[: self.graph.position(fault.number)]
            main = [n.number for n in nodes if not n.aside and n.number in self.chain.spoken]
            self.relink("LS707", fault.number, main[-1] if main else None)

    def undo_torn_compaction(self) -> None:
        """Remove a boundary without its summary, so that the conversation is whole again."""
        for fault in self.of(TORN_COMPACTION):
            value = self.chain.values[fault.number]
            logical = self.graph.by_id.get(str(value.get("logicalParentUuid")))
            parent = logical.number if logical else self._before(fault.number)
            name = None if parent is None else self.graph.by_number[parent].id
            text = "a compaction without its summary was taken back"
            self.take_out("LS801", fault.number, text)
            self.move_children(self.graph.by_number[fault.number].id, name)

    def follow_compaction(self) -> None:
        """Link a prompt that bypassed a compaction to the turns after it."""
        for fault in self.of(PASSED_COMPACTION):
            self.relink("LS802", fault.number, fault.about)

    def drop_missing_kept(self) -> None:
        """Remove missing records from the list of those that a compaction keeps."""
        for fault in self.of(MISSING_KEPT):
            missing = set(fault.about)
            metadata = self.chain.values[fault.number]["compactMetadata"]
            kept = change_kept(metadata, partial(_without, missing))
            self.set(fault.number, ("compactMetadata",), kept)
            text = f"{len(missing)} missing records were removed from its list"
            self.note("LS804", "shortened", fault.number, text)

    def restore_branches(self) -> None:
        """Put one lost branch back before the record that follows it on the chain.

        If several beginnings were cut off, the last one is next to what follows. If there are many
        branches, all that do not interfere with each other are put back at once.
        """
        branches: list[OffBranch] = [fault.about for fault in self.of(BRANCH)]
        # A branch that nothing continues, or whose parent is right already, cannot be put anywhere.
        above = [self.graph.parent_of(self.graph.by_number[branch.top]) for branch in branches]
        lost = [
            branch
            for branch, parent in zip(branches, above, strict=True)
            if branch.kind == END
            or branch.onward is not None
            or (branch.attach is not None and (parent is None or parent.number != branch.attach))
        ]
        cut = [branch for branch in lost if branch.kind == CUT]
        many = self._choose_independent(lost, cut) if len(lost) > _ONE_BY_ONE else []
        for branch, all_late in many or [(branch, False) for branch in (*cut[-1:], *lost[:1])[:1]]:
            self._splice(branch, all_late=all_late)

    def _choose_independent(
        self, lost: list[OffBranch], cut: list[OffBranch]
    ) -> list[tuple[OffBranch, bool]]:
        """Return branches that can be put back in one round, and whether all their lines move.

        A branch that is put back at the same place as an earlier one goes before that one, as it
        would in a round of its own.
        """
        ready: list[tuple[OffBranch, bool]] = []
        # By place: the last branch that was put back there, and the line before which the next one
        # goes.
        ahead: dict[int | None, tuple[OffBranch, int | None]] = {}
        for branch in reversed(cut) if cut else lost:
            if branch.onward is None:
                continue
            before, line = ahead.get(branch.onward, (None, None))
            onward = before.top if before else branch.onward
            moves = False
            if cut:
                fits = max(branch.members) < onward
            elif before is None:
                fits = branch.kind in (REPLY, WRITER)
                # the branch itself if none of it moves, else the line before which all of it moves
                if max(branch.members) < onward:
                    line = branch.top
                elif min(branch.members) > onward:
                    line = onward
            else:
                # lines of one message of the model stay together, which takes a round of its own
                moves = line is not None and line < min(branch.members)
                is_first = before.top == min(before.members)
                is_whole = is_first or not self.chain.message_ids.get(before.top)
                fits = moves and branch.kind in (REPLY, WRITER) and is_whole
            if fits:
                ahead[branch.onward] = branch, line
                ready.append((structs.replace(branch, onward=onward), moves))
        return ready

    def _splice(self, branch: OffBranch, *, all_late: bool) -> None:
        """Put a branch back; ``all_late`` moves all its lines to where it belongs."""
        chain, code = self.chain, _CODES[branch.kind]
        turns = several(branch.turns, "turn")
        self.note(code, "brought back", branch.top, f"{turns}, {branch.size} bytes")
        if branch.kind == END and chain.overruled is not None:
            named = chain.named_leaf[0]
            self.set(named, ("leafUuid",), self.graph.by_number[branch.tail].id)
            place = self.records[branch.tail].place
            text = f"the last prompt is now line {place}, where a resume continues"
            self.note(code, "linked", named, text)
            return
        if branch.kind == END:
            # find the first of the client's notes after which a resume would continue
            note, leaf = chain.end, chain.leaf
            while note is not None and leaf is not None and note.parent != leaf.id:
                note = self.graph.parent_of(note)
            assert note is not None  # noqa: S101 - the end of the conversation descends from its leaf
            self.relink(code, note.number, branch.tail)
            return
        is_root = self.graph.by_number[branch.top].parent is None and branch.attach is not None
        if branch.onward is None or branch.kind == LATE or is_root:
            self.relink(code, branch.top, branch.attach)
        if branch.onward is None:
            return
        # A line of the same message that is off the walk comes between the branch and the rest.
        group = self._groups.get(branch.onward, Group([], []))
        inner = [n for n in group.members if branch.tail < n < branch.onward]
        inner = [n for n in inner if n not in chain.places]
        self.relink(code, branch.onward, inner[-1] if inner else branch.tail)
        all_late = all_late or branch.kind == LATE
        late = [n for n in branch.members if n > branch.onward or all_late]
        if late:
            self.moves[branch.onward] = late
        # Moved lines get a time before the leaf, so that no version takes one of them for the leaf.
        limit = time_of(chain.values[chain.leaf.number]) if chain.leaf else None
        for number in late:
            time = time_of(chain.values[number])
            if limit is not None and time is not None and time >= limit:
                self.set(number, ("timestamp",), stamp(limit - TICK))

    @cached_property
    def _groups(self) -> dict[int, Group]:
        """The message of the model that each line belongs to."""
        found: dict[int, Group] = {}
        for group in self.chain.groups.values():
            for number in group.members:
                found.setdefault(number, group)
        return found

    def address_results(self) -> None:
        """Set the id of a result to that of the call that its record names."""
        for fault in self.of(MISADDRESSED):
            block, call = fault.about
            self.set(fault.number, ("message", "content", block, "tool_use_id"), call)
            self.note("LS709", "rewritten", fault.number, f"the result now names call {call}")

    def date_leaf(self) -> None:
        """Make the leaf the newest line: some versions need its time, others continue at that."""
        for fault in (self.of(UNDATED) or self.of(OVERTAKEN))[:1]:
            values = (self.chain.values[node.number] for node in self.graph.nodes)
            time = newest(v for v in values if v.get("type") in SPEAKERS or is_boundary(v))
            if time is not None:
                self.set(fault.number, ("timestamp",), stamp(time + TICK))
                text = "got a time right after the newest one"
                self.note(fault.finding.code, "dated", fault.number, text)

    steps = (
        drop_copies,
        drop_malformed,
        wrap_replies,
        rename_repeats,
        link_orphans,
        open_circles,
        leave_side_chain,
        undo_torn_compaction,
        follow_compaction,
        drop_missing_kept,
        restore_branches,
        address_results,
        date_leaf,
    )
