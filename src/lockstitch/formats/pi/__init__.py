"""pi: ``~/.pi/agent/sessions/<project>/<time>_<id>.jsonl``; OpenClaw's older files are the same."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from msgspec import structs

from lockstitch.dialects import ANTHROPIC
from lockstitch.dialects.base import text_of_blocks
from lockstitch.formats.interface import (
    Aside,
    Context,
    Format,
    Glimpse,
    SourcedMessage,
    Transcript,
    new_finding,
)
from lockstitch.formats.pi.session import (
    ASSISTANT,
    HEADER,
    RESULT,
    USER,
    PiSession,
    id_in,
    is_header,
    is_prompt,
    message_of,
    new_id,
    rebuild_head,
)
from lockstitch.formats.pi.write_back import PiWriteBack
from lockstitch.formats.records import JSON, Record, as_str
from lockstitch.formats.write_back import TreeNode, TreeRepair
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, RULES, WARNING, Finding
from lockstitch.rules.rule import several

_HEAD = frozenset({"version", "timestamp", "cwd"})
# The entry with the name that a person gave the session.
_NAMED = "session_info"
# How Anthropic and others write calls and results; pi has its own names for them.
_FOREIGN = ("tool_use", "tool_result", "function_call", "tool-call", "tool-result")
# pi answers these with "No result provided" in memory, each time it resumes.
_ANSWERED = frozenset({"LS101", "LS102"})
_SPEAKERS = (USER, ASSISTANT, RESULT)
_NONE: Mapping[int, str] = {}
_HEAD_HELP = (
    "repair moves the header record to the start of the file, or rebuilds it from what is left "
    "of it and the name of the file"
)
_ORDER_HELP = "repair puts every record after its parent again, and the newest one last"


class Pi(Format):
    """A tree of entries; the conversation is the path from the root to the last entry."""

    name = "pi"
    title = "pi"
    dialect = ANTHROPIC
    # The first line must be the head, and with a byte order mark it is not JSON.
    refused = frozenset({"LS604"})
    places = (".pi/agent/sessions/*/*.jsonl", ".openclaw/agents/*/sessions/*.jsonl")
    programs = ("pi", "pi-rpc")
    resume = ("pi", "--session", "{path}")
    is_local = True

    def claims(self, name: str, head: Sequence[Any]) -> bool:
        values = [value for value in head if type(value) is dict]
        known = [value for value in values if _is_entry(value)]
        is_known = any(is_header(value) and not _HEAD.isdisjoint(value) for value in values)
        return (is_known or (bool(known) and 2 * len(known) > len(values))) and not self.doubt(head)

    def doubt(self, head: Sequence[Any]) -> str:
        """Return a doubt if calls have another shape, as in other programs with similar entries."""
        values = [value for value in head if type(value) is dict]
        contents = (message_of(value).get("content") for value in values)
        blocks = (block for found in contents if type(found) is list for block in found)
        kinds = [block.get("type") for block in blocks if type(block) is dict]
        foreign = sum(kind in _FOREIGN for kind in kinds)
        if foreign and foreign >= sum(kind == "toolCall" for kind in kinds):
            return "looks like a session of pi, but its calls have a different form"
        return ""

    def is_record(self, value: dict[str, Any]) -> bool:
        if type(value.get("type")) is not str:
            return False
        return is_header(value) or "parentId" in value or bool(message_of(value))

    def glimpse(
        self, path: str, head: Sequence[dict[str, Any]], tail: Sequence[dict[str, Any]]
    ) -> Glimpse:
        lines = [*head, *tail]
        start = next(filter(is_header, lines), {})
        names = [as_str(value.get("name")) for value in lines if value.get("type") == _NAMED]
        prompts = (message_of(value).get("content") for value in lines if is_prompt(value))
        name = os.path.basename(path)  # noqa: PTH119 - there may be 100 000 of them
        return Glimpse(
            title=next(filter(None, reversed(names)), ""),
            prompt=text_of_blocks(next(prompts, "")),
            session=as_str(start.get("id")) or id_in(name),
            project=as_str(start.get("cwd")),
        )

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        session = PiSession(records)
        transcript = session.transcript(context, id_in(context.name))
        left = transcript.left
        transcript.findings = [*_findings(session, left, context)]
        if left and not transcript.findings:
            transcript.notes.append(f"{several(left, 'turn')} are on other branches of the tree")
        return transcript

    def belongs(self, path: str, folder: str) -> bool:
        name = re.sub(r"[/\\:]", "-", folder.lstrip("/\\"))
        return Path(path).parent.name == f"--{name}--"

    def asides(self, transcript: Transcript) -> list[Aside]:
        return [one for one in transcript.state.asides() if one.history.messages]

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        return _PiTreeRepair(transcript, ledger).run()

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        return PiWriteBack(transcript).write_back(repaired, ledger)

    def severity(self, found: Finding, transcript: Transcript) -> str:
        return WARNING if found.code in _ANSWERED else found.severity


def _is_entry(value: dict[str, Any]) -> bool:
    """Whether a record is an entry of a tree, as pi writes it."""
    is_linked = type(value.get("id")) is str and "parentId" in value and "timestamp" in value
    return is_linked and type(value.get("type")) is str


# What is wrong with the entries and their tree, and one round of its repair.


def _findings(session: PiSession, left: int, context: Context) -> Iterator[Finding]:
    """Yield everything that is wrong with the entries."""
    records = session.records
    yield from _find_bad_head(session, context)
    turns = f": resuming will silently drop {several(left, 'turn')}"
    for node in session.graph.repeats:
        first = session.graph.by_id[node.id]
        same = _is_same(session, node, first)
        text = f"has the id of the record on line {records[first.number].place}"
        ends = _is_last(session, node) and _has_earlier_children(session, node)
        severity = ERROR if ends else ""
        code = "LS607" if same else "LS703"
        yield new_finding(code, records[node.number].place, text + turns * ends, severity)
    for number in _find_malformed(session):
        yield new_finding("LS610", records[number].place, "this message has no content")
    for number in _find_unnamed(session):
        ends = number == session.entries[-1]
        text = "has no id" + ", so a resume finds nothing before it" * ends
        yield new_finding("LS610", records[number].place, text, ERROR if ends else "")
    cuts = session.broken.number if session.broken else -1
    for node in session.graph.dangling():
        is_cut = node.number == cuts
        text = "the parent of this record is missing" + (turns if is_cut else "")
        severity = ERROR if is_cut else WARNING
        yield new_finding("LS701", records[node.number].place, text, severity)
    on_path = set(session.path)
    for number in _circles(session):
        severity = ERROR if number in on_path else WARNING
        text = "the parents of this record form a circle"
        yield new_finding("LS702", records[number].place, text, severity)
    root = _cut_off(session)
    if root is not None:
        text = "the conversation before this record is cut off" + turns
        yield new_finding("LS704", records[root].place, text)
    if _is_out_of_order(session):
        text = "this record is the last one, but others refer to it" + turns
        place = records[session.entries[-1]].place
        yield structs.replace(new_finding("LS704", place, text), help=_ORDER_HELP)


def _find_bad_head(session: PiSession, context: Context) -> Iterator[Finding]:
    number = _first(session)
    if number >= 0 and number not in session.headers:
        text = "the file does not start with a session header: pi does not read it"
        made = rebuild_head(session.records, context.data, context.name)
        fixable = bool(session.headers) or made is not None
        found = new_finding("LS610", session.records[number].place, text, ERROR, fixable=fixable)
        yield structs.replace(found, help=_HEAD_HELP) if fixable else found


def _first(session: PiSession) -> int:
    """Return the first line that is JSON, which must be the head; pi skips all others."""
    return next((n for n, record in enumerate(session.records) if record.kind == JSON), -1)


def _is_last(session: PiSession, node: TreeNode) -> bool:
    return node.number == session.entries[-1]


def _has_earlier_children(session: PiSession, node: TreeNode) -> bool:
    """Whether the entry has children before it in the file, so that it is not the end."""
    children = session.graph.children.get(node.id, ())
    return any(child.number < node.number for child in children)


def _is_out_of_order(session: PiSession) -> bool:
    """Whether the last entry, from which pi would continue, is the parent of others.

    pi appends: a parent always comes before its children, and the last line is a leaf, even after
    the person went back to an earlier entry.
    """
    node = session.graph.nodes[-1] if session.graph.nodes else None
    if node is None or session.is_linear or node is not session.graph.by_id[node.id]:
        return False
    return _is_last(session, node) and _has_earlier_children(session, node)


def _is_same(session: PiSession, node: TreeNode, first: TreeNode) -> bool:
    """Whether two entries are the same one, although one of them may be damaged."""
    one, other = session.value(node.number), session.value(first.number)
    keys = ("type", "timestamp")
    dated = type(one.get("timestamp")) is str
    return one == other or (dated and all(one.get(key) == other.get(key) for key in keys))


def _find_unnamed(session: PiSession) -> list[int]:
    """Return the entries of a tree that have no id, so that they can have no children."""
    if session.is_linear:
        return []
    return [n for n in session.entries if type(session.value(n).get("id")) is not str]


def _find_malformed(session: PiSession) -> list[int]:
    """Return the messages that hold nothing that pi could send, and at which it fails."""
    return [number for number in session.entries if _is_malformed(session.value(number))]


def _is_malformed(value: dict[str, Any]) -> bool:
    if value.get("type") != "message":
        return False
    message = message_of(value)
    if message.get("role") not in _SPEAKERS:
        return not message
    kinds = (list,) if message["role"] == ASSISTANT else (list, str)
    return type(message.get("content")) not in kinds


def _circles(session: PiSession) -> list[int]:
    """Return one entry of each circle of parents: the first in the file."""
    circles = session.graph.circles(session.last)
    return [min(node.number for node in circle) for circle in circles]


def _cut_off(session: PiSession) -> int | None:
    """Return the entry without a parent that starts in the middle of a turn, if one does."""
    if session.is_linear or session.broken or session.cut >= 0 or not session.path:
        return None
    root, first = session.path[0], next(iter(session.sent), None)
    if root == session.entries[0] or first is None:
        return None
    role = message_of(session.value(first)).get("role")
    before = any(message_of(session.value(n)) for n in session.entries if n < root)
    return root if before and role in (ASSISTANT, RESULT) else None


class _PiTreeRepair(TreeRepair):
    """One round of repairs on the entries of a session."""

    link = "parentId"

    def __init__(self, transcript: Transcript, ledger: Ledger) -> None:
        self.session: PiSession = transcript.state
        super().__init__(transcript, ledger, self.session.graph)
        self.name = transcript.context.name

    def link_before(self, code: str, number: int, names: Mapping[int, str] = _NONE) -> None:
        """Link an entry to the one before it in the file, whose new id may be in ``names``."""
        node = self.session.graph.before(number, self.gone)
        if node is None:
            self.relink(code, number, None)
        else:
            self.relink(code, number, node.number, names.get(node.number))

    def restore_head(self) -> None:
        """Put the head of the session at the start: moved there, or rebuilt."""
        headers, first = self.session.headers, _first(self.session)
        if first >= 0 and first not in headers:
            rebuild = partial(rebuild_head, self.session.records, self.data, self.name)
            own = headers[0] if headers else -1
            self.put_head_first(first, own, rebuild, HEADER, "the session header")

    def drop_repeats(self) -> None:
        for node in self.session.graph.repeats:
            first = self.session.graph.by_id[node.id]
            if _is_same(self.session, node, first):
                self.gone.add(node.number)
                text = "the same record comes before it in the file"
                self.note("LS607", "removed", node.number, text)
                value = self.session.value(node.number)
                if value != self.session.value(first.number):
                    place = self.session.records[node.number].place
                    self.ledger.set_aside(RULES["LS607"], place, value)

    def rename_repeats(self) -> None:
        """Give a second entry of one id an id of its own, and link later children to it."""
        second: dict[str, int] = {}
        names: dict[int, str] = {}
        for node in self.session.graph.repeats:
            name = names[node.number] = new_id(self.session, node.id, node.number)
            self.set(node.number, ("id",), name)
            children = self.session.graph.children.get(node.id, ())
            if node.id not in second:
                second[node.id] = node.number
                for child in children:
                    if child.number > node.number:
                        self.set(child.number, ("parentId",), name)
            self.note("LS703", "rewritten", node.number, "got a new id")
            if _is_last(self.session, node) and any(c.number < second[node.id] for c in children):
                self.link_before("LS703", node.number, names)

    def repair_malformed(self) -> None:
        for number in _find_malformed(self.session):
            message = message_of(self.session.value(number))
            content = message.get("content")
            if message.get("role") == ASSISTANT and type(content) is str:
                item = {"type": "text", "text": content}
                self.set(number, ("message", "content"), [item])
                self.note("LS610", "rewritten", number, "the text became a block")
            else:
                self._remove(number)

    def name_entries(self) -> None:
        """Give messages without an id one, after the entry before; remove other such entries."""
        for number in _find_unnamed(self.session):
            value = self.session.value(number)
            if not message_of(value):
                self._remove(number)
                continue
            self.set(number, ("id",), new_id(self.session, "unnamed", number))
            self.link_before("LS610", number)

    def _remove(self, number: int) -> None:
        """Remove an entry; its children become children of its parent."""
        value = self.session.value(number)
        self.remove("LS610", number, "holds no message", value)
        name = value.get("id")
        children = self.session.graph.children.get(name, ()) if type(name) is str else ()
        for child in children:
            self.set(child.number, ("parentId",), value.get("parentId"))
            self._keep_from(name, child)

    def _keep_from(self, name: Any, node: TreeNode) -> None:
        """Let compactions that keep the conversation from a removed entry on keep it from here."""
        for number in self._keeping.get(name, ()) if name is not None else ():
            self.set(number, ("firstKeptEntryId",), node.id)

    @cached_property
    def _keeping(self) -> dict[str, list[int]]:
        """The compactions, by the first entry that they keep."""
        found: dict[str, list[int]] = {}
        for number in self.session.entries:
            name = self.session.value(number).get("firstKeptEntryId")
            if type(name) is str:
                found.setdefault(name, []).append(number)
        return found

    def link_orphans(self) -> None:
        for node in self.session.graph.dangling():
            self.link_before("LS701", node.number)
            self._keep_from(node.parent, node)

    def open_circles(self) -> None:
        for number in _circles(self.session):
            self.link_before("LS702", number)

    def link_cut_off(self) -> None:
        number = _cut_off(self.session)
        if number is not None:
            self.link_before("LS704", number)

    def put_in_order(self) -> None:
        """Sort entries by time, each after its parent, if the last entry is not a leaf."""
        if not _is_out_of_order(self.session):
            return
        entries = self.session.entries
        times = [self.session.value(number).get("timestamp") for number in entries]
        dated = all(type(time) is str for time in times)
        keys = dict(zip(entries, times, strict=True)) if dated else {}
        ordered: dict[int, None] = {}
        for number in sorted(entries, key=lambda n: (keys.get(n, ""), n)):
            # Its ancestors that are not placed yet come before it, starting with the root.
            node = self.session.graph.by_number.get(number)
            trail = {number: None} if node is None and number not in ordered else {}
            while node is not None and node.number not in ordered and node.number not in trail:
                trail[node.number] = None
                node = self.session.graph.by_id.get(node.parent) if node.parent else None
            ordered |= dict.fromkeys(list(trail)[::-1])
        others = [n for n in range(len(self.records)) if n not in ordered]
        self.order = [*others, *ordered]
        self.note(
            "LS704", "moved", entries[-1], "was moved back before the records that refer to it"
        )

    steps = (
        restore_head,
        drop_repeats,
        rename_repeats,
        repair_malformed,
        name_entries,
        link_orphans,
        open_circles,
        link_cut_off,
        put_in_order,
    )
