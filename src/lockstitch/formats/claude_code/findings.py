"""What is wrong with the tree of a Claude Code file, as findings.

How bad a finding is for a resume with Claude Code.

Measured by resuming each kind of damage, with the pauses of a person between its lines, in 2.1.50,
2.1.112, 2.1.197 and 2.1.325: an error is what the newest client is refused for or loses something
by, a warning what only an older one stumbles over, a note what changes no request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lockstitch.conversation.json_text import is_index
from lockstitch.dialects.base import text_of_blocks
from lockstitch.dialects.placeholders import is_placeholder
from lockstitch.formats.claude_code.chain import (
    ASSISTANT,
    SPEAKERS,
    ClaudeChain,
    answered_in,
    call_ids_in,
    calls_in,
    ids_of,
    is_boundary,
    message_of,
    results_in,
    time_of,
)
from lockstitch.formats.claude_code.evidence import descendants, is_own_words, root_of, version_of
from lockstitch.formats.claude_code.unreachable import CUT, END, GAP, LATE, REPLY, WRITER, OffBranch
from lockstitch.formats.history import parts_of
from lockstitch.rules import ERROR, NOTE, WARNING, Finding
from lockstitch.sources.interface import Transcript, new_finding
from lockstitch.sources.records import SLIM, encode_record
from lockstitch.sources.write_back import GraphNode

CODES = {REPLY: "LS705", END: "LS705", WRITER: "LS706", CUT: "LS704", LATE: "LS805"}
_SAID = {
    REPLY: "a reply of the model is on a side branch",
    WRITER: "a second window wrote on a side branch",
    END: "the end of the conversation is on a side branch, after a note that was written late",
    CUT: "the conversation before this record is cut off",
    LATE: "the summary of the compaction does not cover this",
}


def graph_findings(
    chain: ClaudeChain, lost: Sequence[OffBranch], transcript: Transcript
) -> Iterator[Finding]:
    """Find everything that is wrong with the tree."""
    yield from _malformed(chain)
    yield from _repeats(chain)
    yield from _bad_links(chain, lost)
    yield from _takeover(chain)
    yield from _compactions(chain)
    for branch in lost:
        if branch.kind != GAP:
            yield _left_behind(chain, branch)
    yield from _misaddressed(chain)
    yield from _undated(chain)
    yield from _overtaken(chain)
    yield from _stranded(chain, transcript)


def _place(chain: ClaudeChain, number: int) -> str:
    return chain.records[number].place


def malformed(chain: ClaudeChain) -> list[int]:
    """Give the records of speakers that hold no message."""
    return [
        node.number
        for node in chain.graph.nodes
        if chain.value(node.number).get("type") in SPEAKERS
        and type(message_of(chain.value(node.number)).get("content")) not in (list, str)
    ]


def bare_replies(chain: ClaudeChain) -> list[int]:
    """Return the replies of the model whose content is a text and not a list of blocks."""
    return [
        node.number
        for node in chain.graph.nodes
        if chain.value(node.number).get("type") == ASSISTANT
        and type(message_of(chain.value(node.number)).get("content")) is str
    ]


def _malformed(chain: ClaudeChain) -> Iterator[Finding]:
    for number in malformed(chain):
        yield new_finding("LS610", _place(chain, number), "this message has no content")
    for number in bare_replies(chain):
        text = "the content of this reply is a text, on which clients up to 2.1.197 crash"
        yield new_finding("LS610", _place(chain, number), text)


def _repeats(chain: ClaudeChain) -> Iterator[Finding]:
    for node in chain.graph.repeats:
        first = chain.graph.by_id[node.id]
        where = _place(chain, first.number)
        if is_copy(chain, node):
            # The client takes the last copy, and with it the place where that one hangs.
            severity = WARNING if node.parent == first.parent else ERROR
            text = f"repeats the record of line {where}"
            yield new_finding("LS607", _place(chain, node.number), text, severity)
        else:
            spoken = [chain.value(one.number).get("type") in SPEAKERS for one in (first, node)]
            text = f"has the uuid of another record, on line {where}"
            yield new_finding(
                "LS703",
                _place(chain, node.number),
                text,
                WARNING if any(spoken) != all(spoken) else ERROR,
            )


def is_copy(chain: ClaudeChain, node: GraphNode) -> bool:
    """Whether a record says the same as the first one with its id, wherever and whenever it stands.

    The client writes a message again behind a line that it could not finish, with what has become
    of version and folder meanwhile. A copy may be damaged, if it is of the same moment otherwise.
    """
    first, second = chain.value(chain.graph.by_id[node.id].number), chain.value(node.number)
    if _said_in(first) == _said_in(second):
        return True
    marks = [(v.get("type"), v.get("timestamp"), message_of(v).get("id")) for v in (first, second)]
    return marks[0] == marks[1] and is_damaged(first) != is_damaged(second)


def is_damaged(value: dict[str, Any]) -> bool:
    """Tell whether characters of a record could not be read."""
    return "\ufffd".encode() in encode_record(value)


def _said_in(value: dict[str, Any]) -> dict[str, Any]:
    """Return what a record says: its message where it has one, else all but its time."""
    message = message_of(value)
    if message:
        said = {key: message.get(key) for key in ("id", "role", "content")}
        return {"type": value.get("type"), SLIM: value.get(SLIM), **said}
    return {key: value[key] for key in value if key != "timestamp"}


def dangling(chain: ClaudeChain) -> list[GraphNode]:
    """Give the records whose parent is not in the file."""
    known = chain.graph.by_id
    return [node for node in chain.graph.nodes if node.parent and node.parent not in known]


def circles(chain: ClaudeChain) -> list[GraphNode]:
    """Give one record of each circle of parents: the one that is first in the file."""
    state: dict[int, int] = {}
    found: list[GraphNode] = []
    for start in chain.graph.by_id.values():
        path: list[GraphNode] = []
        at: GraphNode | None = start
        while at is not None and at.number not in state:
            state[at.number] = 1
            path.append(at)
            at = chain.graph.by_id.get(at.parent) if at.parent else None
        if at is not None and state[at.number] == 1:
            circle = path[path.index(at) :]
            found.append(min(circle, key=lambda node: node.number))
        state.update(dict.fromkeys((node.number for node in path), 2))
    return found


def _bad_links(chain: ClaudeChain, lost: Sequence[OffBranch]) -> Iterator[Finding]:
    """Find the links that lead nowhere.

    The newest client goes on at the line before, if that was written at most seconds earlier;
    every other one, and older clients in any case, leave behind what the link should have led to.
    """
    first = next((node.number for node in chain.graph.nodes if not node.aside), -1)
    loose = {link.number for link in chain.walk.breaks if link.onward < 0 and link.number > first}
    loose |= {branch.top for branch in lost if branch.kind == GAP}
    if chain.overruled is not None:
        loose.add(root_of(chain, chain.overruled))
    bridged = {link.number for link in chain.walk.breaks if link.onward >= 0} - loose
    for code, nodes, text in (
        ("LS701", dangling(chain), "the parent of this record is missing"),
        ("LS702", circles(chain), "the parents of this record form a circle"),
    ):
        for node in nodes:
            around = circle_of(chain, node) if code == "LS702" else {node.number}
            if around & loose:
                said = f"{text}: resuming will not connect it to what came before"
                yield new_finding(code, _place(chain, node.number), said, ERROR)
            else:
                # Nothing stands before the first record: it is the file that begins there.
                severity = NOTE if node.number == first and not around & bridged else WARNING
                yield new_finding(code, _place(chain, node.number), text, severity)


def circle_of(chain: ClaudeChain, node: GraphNode) -> set[int]:
    """Return the records of the circle that a record is in."""
    found: set[int] = set()
    at: GraphNode | None = node
    while at is not None and at.number not in found:
        found.add(at.number)
        at = chain.graph.by_id.get(at.parent) if at.parent else None
    return found


def takeover(chain: ClaudeChain) -> int:
    """Return the record that continues the conversation from a side chain, -1 if none does.

    Side lines within the conversation are sent like all others. Only one that begins with them,
    although somebody spoke before, hangs on the wrong record.
    """
    path = chain.walk.path[chain.cut :]
    asides = [chain.graph.by_number[number].aside for number in path]
    if chain.whole_file or not path or not asides[0] or all(asides):
        return -1
    before = (
        node
        for node in chain.graph.nodes[: chain.graph.position(path[0])]
        if not node.aside and chain.value(node.number).get("type") in SPEAKERS
    )
    return path[asides.index(False)] if next(before, None) is not None else -1


def _takeover(chain: ClaudeChain) -> Iterator[Finding]:
    number = takeover(chain)
    if number >= 0:
        text = "the conversation continues from a side chain here"
        yield new_finding("LS707", _place(chain, number), text)


def boundaries(chain: ClaudeChain) -> list[int]:
    """Give the compaction boundaries of the conversation, in file order."""
    return [
        n.number for n in chain.graph.nodes if not n.aside and is_boundary(chain.value(n.number))
    ]


def torn_boundary(chain: ClaudeChain) -> int:
    """Give the last boundary if no summary follows it, else -1."""
    found = boundaries(chain)
    if not found:
        return -1
    summaries = (
        node.number
        for node in chain.graph.nodes
        if node.number > found[-1] and chain.value(node.number).get("isCompactSummary")
    )
    return -1 if next(summaries, None) is not None else found[-1]


def stale(chain: ClaudeChain) -> tuple[int, int]:
    """Give the record that goes round the last compaction, and the one it should hang on."""
    found = boundaries(chain)
    if not found or found[-1] in chain.walk.path or torn_boundary(chain) >= 0:
        return -1, -1
    path = chain.walk.path
    late = next((number for number in path if number > found[-1]), -1)
    if late < 0 or late == path[0] or not is_own_words(chain, late):
        return -1, -1
    inside = descendants(chain, found[-1])
    speakers = [n for n in inside if n < late and chain.value(n).get("type") in SPEAKERS]
    return (late, speakers[-1]) if speakers else (-1, -1)


def _compactions(chain: ClaudeChain) -> Iterator[Finding]:
    torn = torn_boundary(chain)
    if torn >= 0:
        yield new_finding(
            "LS801", _place(chain, torn), "no summary follows this compaction boundary"
        )
    late, _ = stale(chain)
    if late >= 0:
        text = "its parent is a record from before the compaction"
        yield new_finding("LS802", _place(chain, late), text)
    if chain.boundary >= 0 and torn < 0:
        yield from _lost_segment(chain)


def lost_segment(chain: ClaudeChain) -> list[str]:
    """Give the ids of records that the compaction in force keeps, but that are not there."""
    if chain.boundary < 0:
        return []
    metadata = chain.value(chain.boundary).get("compactMetadata")
    kept = metadata.get("preservedMessages") if type(metadata) is dict else None
    named = kept.get("uuids") if type(kept) is dict else None
    if type(named) is not list:
        return []
    return [str(name) for name in named if str(name) not in chain.graph.by_id]


def _lost_segment(chain: ClaudeChain) -> Iterator[Finding]:
    missing = lost_segment(chain)
    if missing:
        # The client keeps all of them or none, so those that are there are lost with the others.
        kept = chain.value(chain.boundary)["compactMetadata"]["preservedMessages"]["uuids"]
        text = f"{len(missing)} of the records that this compaction keeps are missing"
        severity = NOTE if len(missing) == len(kept) else ERROR
        yield new_finding("LS804", _place(chain, chain.boundary), text, severity)


def _left_behind(chain: ClaudeChain, branch: OffBranch) -> Finding:
    number = branch.onward if branch.kind == CUT and branch.onward >= 0 else branch.top
    turns = f"{branch.turns} turn{'s' * (branch.turns != 1)}"
    text = f"{_SAID[branch.kind]}: resuming will silently drop {turns} ({branch.size} bytes)"
    return new_finding(CODES[branch.kind], _place(chain, number), text)


def misaddressed(chain: ClaudeChain) -> list[tuple[int, int, str]]:
    """Give results that fit no call, but whose record names the record of an open call.

    Each as the number of the record, the index of the block and the id of the call.
    """
    calls = {name for n in chain.order for name in call_ids_in(chain.value(n))}
    answered = set(chain.result_homes(chain.order))
    found: list[tuple[int, int, str]] = []
    for number in chain.order:
        value = chain.value(number)
        source = chain.graph.by_id.get(str(value.get("sourceToolAssistantUUID")))
        results = results_in(value)
        if source is None or len(results) != 1 or answered_in(value) & calls:
            continue
        named = [call.get("id") for call in calls_in(chain.value(source.number))]
        if len(named) == 1 and type(named[0]) is str and named[0] not in answered:
            block = value["message"]["content"].index(results[0])
            found.append((number, block, named[0]))
    return found


def _misaddressed(chain: ClaudeChain) -> Iterator[Finding]:
    for number, block, call in misaddressed(chain):
        place = f"{_place(chain, number)}.message.content.{block}"
        yield new_finding("LS709", place, f"this result belongs to call {call}")


def undated(chain: ClaudeChain) -> int:
    """Give the leaf if it has no time that can be read while others have, else -1."""
    leaf = chain.leaf
    if leaf is None or time_of(chain.value(leaf.number)) is not None:
        return -1
    dated = (time_of(chain.value(node.number)) for node in chain.graph.nodes)
    return leaf.number if any(time is not None for time in dated) else -1


def _undated(chain: ClaudeChain) -> Iterator[Finding]:
    number = undated(chain)
    if number >= 0:
        yield new_finding("LS710", _place(chain, number), "the last message has no time")


def overtaken(chain: ClaudeChain) -> int:
    """Return the leaf if clients of its version go on at another line and miss words; else -1.

    Those before 2.1.112 go on at the newest line that a speaker wrote, of several the first.
    """
    if chain.leaf is None or not () < version_of(chain.value(chain.leaf.number)) < (2, 1, 112):
        return -1
    newest: GraphNode | None = None
    latest = None
    for node in chain.graph.nodes:
        value = chain.value(node.number)
        time = time_of(value) if value.get("type") in SPEAKERS and not node.aside else None
        if time is not None and (latest is None or time > latest):
            newest, latest = node, time
    if newest is None or newest is chain.leaf:
        return -1
    seen = set(chain.graph.walk(newest).path)
    missed = (number for number in chain.walk.path[chain.cut :] if number not in seen)
    return chain.leaf.number if any(is_own_words(chain, n) for n in missed) else -1


def _overtaken(chain: ClaudeChain) -> Iterator[Finding]:
    number = overtaken(chain)
    if number >= 0:
        text = "an earlier line is newer than the last one: this version continues there"
        yield new_finding("LS711", _place(chain, number), text)


def _stranded(chain: ClaudeChain, transcript: Transcript) -> Iterator[Finding]:
    """Find calls without a real answer whose result survived elsewhere."""
    if not transcript.evidence:
        return
    real = {
        name
        for number in chain.order
        for result in results_in(chain.value(number))
        if not is_placeholder(text_of_blocks(result.get("content")))
        for name in ids_of([result], "tool_use_id")
    }
    for number in chain.sent():
        for call in calls_in(chain.value(number)):
            for name in (ids_of([call], "id") & transcript.evidence.keys()) - real:
                text = f"the result of call {name} is stored outside the conversation"
                yield new_finding("LS708", _place(chain, number), text)


# What the newest client reads all the same, or skips without losing anything else. LS601 marks a
# record that is lost already: what hung on it is found where its link is missing.
_READ_ANYWAY = frozenset({"LS601", "LS603", "LS604", "LS605", "LS606", "LS612"})
_COPED_WITH = frozenset({"LS106", "LS302", "LS303", "LS404", "LS406", "LS505"})
# Tools whose answer comes from a person: an accepted plan may go on in a file of its own.
_QUESTIONS = ("AskUserQuestion", "ExitPlanMode")
_CHANGES_NOTHING = frozenset({"LS306", "LS506"})


def stored_severity(found: Finding, transcript: Transcript) -> str:
    """Say how bad a finding on the records is; a sub-agent's file is never resumed by itself."""
    chain: ClaudeChain = transcript.state[0]
    harmless = found.code == "LS602" and not _is_lost_in_weld(found.place, chain)
    if found.severity == ERROR and (harmless or chain.whole_file or found.code in _READ_ANYWAY):
        return WARNING
    return found.severity


def _is_lost_in_weld(place: str, chain: ClaudeChain) -> bool:
    """Whether a line of several records holds words that the client did not write again."""
    return any(
        str(record.value.get("uuid")) not in chain.repeated for record in chain.lines.get(place, ())
    )


def sent_severity(found: Finding, transcript: Transcript) -> str:
    """Say how bad a finding on the history is, by its place among the messages."""
    chain: ClaudeChain = transcript.state[0]
    if chain.whole_file and found.code == "LS406":
        # A sub-agent is asked in its parent's file; older clients write only its replies here.
        return NOTE
    severity = _severity(found, transcript)
    return WARNING if severity == ERROR and chain.whole_file else severity


def _severity(found: Finding, transcript: Transcript) -> str:
    messages = transcript.history.messages
    steps = found.place.split(".")
    number = int(steps[1]) if len(steps) > 1 and is_index(steps[1]) else 0
    if found.code in _CHANGES_NOTHING:
        return NOTE
    if number >= len(messages):
        return found.severity
    if found.code in {"LS302", "LS303"} and not _is_claude(transcript.history.model):
        return NOTE
    if found.code in _COPED_WITH:
        return WARNING
    if found.code in {"LS101", "LS102"}:
        # The newest client answers what is open at the end by itself, and tells the model so.
        if number < len(messages) - (2 if found.code == "LS102" else 1):
            return ERROR
        return NOTE if _waits_for_person(steps, messages[number]) else WARNING
    if found.code == "LS104":
        return WARNING if _is_near_its_call(steps, transcript) else ERROR
    if found.code == "LS401":
        return _blank_severity(steps, messages[number])
    return ERROR if found.code in {"LS105", "LS803"} else found.severity


def _blank_severity(steps: list[str], message: dict[str, object]) -> str:
    """Say how bad a blank text is: in a result it is taken, as sessions show that went on."""
    part = _part_at(steps, message)
    if type(part) is dict and part.get("type") == "tool_result":
        return NOTE
    if message.get("role") != "assistant":
        return ERROR
    return NOTE if _is_white_space(steps, message) else WARNING


def _waits_for_person(steps: list[str], message: dict[str, object]) -> bool:
    """Whether a call at the end is a question to a person, who may answer it elsewhere."""
    part = _part_at(steps, message)
    return type(part) is dict and part.get("name") in _QUESTIONS


def _part_at(steps: list[str], message: dict[str, object]) -> object:
    parts = parts_of(message)
    place = int(steps[3]) if len(steps) > 3 and is_index(steps[3]) else 0  # noqa: PLR2004
    return parts[place] if place < len(parts) else {}


def _is_claude(model: str | None) -> bool:
    """Whether the provider behind the session is one that signs and checks thinking."""
    return model is None or model.startswith("claude")


def _is_white_space(steps: list[str], message: dict[str, object]) -> bool:
    """Whether a blank text holds characters at all; the client leaves those out by itself."""
    part = _part_at(steps, message)
    return bool(part.get("text")) if type(part) is dict else bool(text_of_blocks(part))


def _is_near_its_call(steps: list[str], transcript: Transcript) -> bool:
    """Whether nothing that the model said stands between a displaced result and its call."""
    messages, chain = transcript.history.messages, transcript.state[0]
    number = int(steps[1])
    wanted = _ids(messages[number], "tool_use_id") or _ids(messages[number], "id")
    known: _Spans | None = chain.spans
    if known is None or known.messages is not messages:
        known = chain.spans = _Spans(messages)
    return known.is_near(wanted)


class _Spans:
    """Where each id stands first and last among the messages, and how often the model speaks."""

    def __init__(self, messages: list[dict[str, object]]) -> None:
        self.messages = messages
        self.ends: dict[object, tuple[int, int]] = {}
        self.spoken = [0]
        for place, message in enumerate(messages):
            self.spoken.append(self.spoken[-1] + (message.get("role") == "assistant"))
            for name in _ids(message, "id") | _ids(message, "tool_use_id"):
                self.ends[name] = (self.ends.get(name, (place, place))[0], place)

    def is_near(self, names: set[object]) -> bool:
        """Whether the model says nothing between the first and the last place of some ids."""
        ends = [self.ends[name] for name in names]
        if not ends:
            return False
        first, last = min(first for first, _ in ends), max(last for _, last in ends)
        return self.spoken[max(last, first + 1)] == self.spoken[first + 1]


def _ids(message: dict[str, object], key: str) -> set[object]:
    return {p[key] for p in parts_of(message) if type(p) is dict and type(p.get(key)) is str}
