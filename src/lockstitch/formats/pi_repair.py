"""What is wrong with the entries of a pi session and how they hang together, and mending it."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from lockstitch.formats.base import Transcript, find
from lockstitch.formats.graph import Node
from lockstitch.formats.pi_blocks import ASSISTANT, RESULT, USER, message_of
from lockstitch.formats.pi_session import Session
from lockstitch.formats.records import Record, amended
from lockstitch.repair.ledger import Ledger
from lockstitch.rules import ERROR, RULES, WARNING, Finding

_SPEAKERS = (USER, ASSISTANT, RESULT)


def findings(session: Session, left: int) -> Iterator[Finding]:
    """Find everything that is wrong with the entries."""
    records = session.records
    yield from _heading(session)
    for node, first in _repeats(session):
        same = _is_same(session, node, first)
        text = f"has the id of the record on line {records[first.number].place}"
        yield find("LS607" if same else "LS703", records[node.number].place, text)
    for number in _malformed(session):
        yield find("LS610", records[number].place, "this message has no content")
    for number in _unnamed(session):
        ends = number == session.entries[-1]
        text = "has no id" + ", so that a resume finds nothing before it" * ends
        yield find("LS610", records[number].place, text, ERROR if ends else "")
    cuts = session.broken.number if session.broken else -1
    turns = f": a resume leaves {left} turn{'s' * (left != 1)} behind"
    for node in _dangling(session):
        on_path = node.number == cuts
        text = "the parent of this record is missing" + (turns if on_path else "")
        severity = ERROR if on_path else WARNING
        yield find("LS701", records[node.number].place, text, severity)
    for node in _circles(session):
        severity = ERROR if node.number in session.path else WARNING
        text = "the parents of this record are a circle"
        yield find("LS702", records[node.number].place, text, severity)
    number = _cut_off(session)
    if number >= 0:
        text = "the conversation before this record is cut off" + turns
        yield find("LS704", records[number].place, text)


def _heading(session: Session) -> Iterator[Finding]:
    number = next((n for n, record in enumerate(session.records) if record.is_record), -1)
    if number >= 0 and number not in session.headers:
        text = "the file does not start with the head of a session: pi does not read it"
        place = session.records[number].place
        yield find("LS610", place, text, ERROR, fixable=len(session.headers) == 1)


def _repeats(session: Session) -> list[tuple[Node, Node]]:
    return [(node, session.graph.by_id[node.id]) for node in session.graph.repeats]


def _is_same(session: Session, node: Node, first: Node) -> bool:
    """Tell whether two entries are the same one, of which one may be damaged."""
    one, other = session.value(node.number), session.value(first.number)
    keys = ("type", "timestamp")
    dated = type(one.get("timestamp")) is str
    return one == other or (dated and all(one.get(key) == other.get(key) for key in keys))


def _unnamed(session: Session) -> list[int]:
    """Give the entries of a tree that nothing can hang on."""
    if session.is_linear:
        return []
    return [n for n in session.entries if type(session.value(n).get("id")) is not str]


def _malformed(session: Session) -> list[int]:
    """Give the messages that hold nothing that pi could send, and at which it stumbles."""
    return [number for number in session.entries if _is_malformed(session.value(number))]


def _is_malformed(value: dict[str, Any]) -> bool:
    if value.get("type") != "message":
        return False
    message = message_of(value)
    if message.get("role") not in _SPEAKERS:
        return not message
    kinds = (list,) if message["role"] == ASSISTANT else (list, str)
    return type(message.get("content")) not in kinds


def _dangling(session: Session) -> list[Node]:
    known = session.graph.by_id
    return [node for node in session.graph.nodes if node.parent and node.parent not in known]


def _circles(session: Session) -> list[Node]:
    """Give one entry of each circle of parents: the first one in the file."""
    done: set[int] = set()
    found: list[Node] = []
    for start in session.last.values():
        trail: dict[int, Node] = {}
        at: Node | None = start
        while at is not None and at.number not in done and at.number not in trail:
            trail[at.number] = at
            at = session.last.get(at.parent) if at.parent else None
        if at is not None and at.number in trail:
            numbers = list(trail)
            found.append(session.graph.by_number[min(numbers[numbers.index(at.number) :])])
        done |= trail.keys()
    return found


def _cut_off(session: Session) -> int:
    """Give the entry without a parent that starts in the middle of a turn, -1 if none does."""
    if session.is_linear or session.broken or session.cut >= 0 or not session.path:
        return -1
    root, first = session.path[0], next(iter(session.sent), -1)
    if root == session.entries[0] or first < 0:
        return -1
    role = message_of(session.value(first)).get("role")
    before = any(message_of(session.value(n)) for n in session.entries if n < root)
    return root if before and role in (ASSISTANT, RESULT) else -1


def straighten(transcript: Transcript, ledger: Ledger) -> list[Record]:
    """Mend one kind of trouble with the entries; the same records if there is none."""
    round_ = _Round(transcript, ledger)
    for step in (
        round_.put_head_first,
        round_.drop_repeats,
        round_.rename_repeats,
        round_.mend_malformed,
        round_.name_entries,
        round_.link_danglers,
        round_.open_circles,
        round_.link_cut_off,
    ):
        step()
        if round_.changed:
            break
    return round_.records()


class _Round:
    """One round of repairs: what changes, by the numbers of the records."""

    def __init__(self, transcript: Transcript, ledger: Ledger) -> None:
        self.data = transcript.context.data
        self.session: Session = transcript.state
        self.ledger = ledger
        self.values: dict[int, Record] = {}
        self.gone: set[int] = set()
        self.first: list[int] = []

    @property
    def changed(self) -> bool:
        return bool(self.values or self.gone or self.first)

    def records(self) -> list[Record]:
        source = self.session.records
        rest = [n for n in range(len(source)) if n not in self.gone and n not in self.first]
        return [self.values.get(number, source[number]) for number in [*self.first, *rest]]

    def set(self, number: int, path: tuple[str | int, ...], value: Any) -> None:
        record = self.values.get(number, self.session.records[number])
        self.values[number] = amended(self.data, record, path, value)

    def note(self, code: str, action: str, number: int, text: str) -> None:
        self.ledger.note(RULES[code], action, self.session.records[number].place, text)

    def link(self, code: str, number: int) -> None:
        """Hang an entry on the one before it in the file."""
        node = self.session.graph.before(number, lambda other: other.number not in self.gone)
        self.set(number, ("parentId",), node.id if node else None)
        place = f"line {self.session.records[node.number].place}" if node else "no record"
        self.note(code, "linked", number, f"hangs on {place} now")

    def put_head_first(self) -> None:
        headers = self.session.headers
        first = next((n for n, r in enumerate(self.session.records) if r.is_record), -1)
        if len(headers) == 1 and headers[0] != first:
            self.first = headers
            text = "the head of the session was moved to the start of the file"
            self.note("LS610", "moved", headers[0], text)

    def drop_repeats(self) -> None:
        for node, first in _repeats(self.session):
            if _is_same(self.session, node, first):
                self.gone.add(node.number)
                text = "the same record stands before it in the file"
                self.note("LS607", "removed", node.number, text)
                value = self.session.value(node.number)
                if value != self.session.value(first.number):
                    place = self.session.records[node.number].place
                    self.ledger.set_aside(RULES["LS607"], place, value)

    def rename_repeats(self) -> None:
        """Give a second entry with an id its own, and hang on it what was written behind it."""
        for node, _ in _repeats(self.session)[:1]:
            name = new_id(self.session, node.id, node.number)
            self.set(node.number, ("id",), name)
            for child in self.session.graph.children.get(node.id, ()):
                if child.number > node.number:
                    self.set(child.number, ("parentId",), name)
            self.note("LS703", "rewritten", node.number, "got an id of its own")

    def mend_malformed(self) -> None:
        for number in _malformed(self.session):
            message = message_of(self.session.value(number))
            content = message.get("content")
            if message.get("role") == ASSISTANT and type(content) is str:
                item = {"type": "text", "text": content}
                self.set(number, ("message", "content"), [item])
                self.note("LS610", "rewritten", number, "the text became a block")
            else:
                self._remove(number)

    def name_entries(self) -> None:
        """Give messages without an id one, behind the entry before; take out what is no entry."""
        for number in _unnamed(self.session):
            value = self.session.value(number)
            if not message_of(value):
                self._remove(number)
                continue
            self.set(number, ("id",), new_id(self.session, "unnamed", number))
            self.link("LS610", number)

    def _remove(self, number: int) -> None:
        """Take an entry out; what hung on it hangs on what it hung on."""
        place, value = self.session.records[number].place, self.session.value(number)
        self.gone.add(number)
        self.note("LS610", "removed", number, "holds no message")
        self.ledger.set_aside(RULES["LS610"], place, value)
        name = value.get("id")
        children = self.session.graph.children.get(name, ()) if type(name) is str else ()
        for child in children:
            self.set(child.number, ("parentId",), value.get("parentId"))
            self._keep_from(name, child)

    def _keep_from(self, name: Any, node: Node) -> None:
        """Let a compaction keep from here on what it kept from an entry that is gone."""
        for number in self.session.entries:
            if name is not None and self.session.value(number).get("firstKeptEntryId") == name:
                self.set(number, ("firstKeptEntryId",), node.id)

    def link_danglers(self) -> None:
        for node in _dangling(self.session):
            self.link("LS701", node.number)
            self._keep_from(node.parent, node)

    def open_circles(self) -> None:
        for node in _circles(self.session):
            self.link("LS702", node.number)

    def link_cut_off(self) -> None:
        number = _cut_off(self.session)
        if number >= 0:
            self.link("LS704", number)


def new_id(session: Session, *names: object) -> str:
    """Make an id as pi does, the same in every run of the same repair, that no entry has."""
    known = {node.id for node in session.graph.nodes}
    for count in range(len(known) + 1):
        text = ":".join(map(str, ("lockstitch", session.head.get("id"), *names, count)))
        name = sha256(text.encode()).hexdigest()[:8]
        if name not in known:
            return name
    raise AssertionError("more ids than entries were tried")
