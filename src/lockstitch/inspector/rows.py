"""A conversation as rows of a page: each message with its parts, each call with its result.

Pure: messages, findings and journals in, plain values for JSON out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from lockstitch.conversation.pairing import ANSWER
from lockstitch.conversation.parts import ASSISTANT, CALL, RESULT, Message
from lockstitch.dialects.base import as_json
from lockstitch.formats.base import Transcript
from lockstitch.formats.doctor import place_in_store
from lockstitch.formats.history import History
from lockstitch.journal.state import Item, ModelReply, Spoken
from lockstitch.rules import Finding
from lockstitch.stored import Journal
from lockstitch.transcript.journals import Told
from lockstitch.transcript.messages import Show, starts_of
from lockstitch.transcript.pieces import Note

Row = dict[str, Any]
Part = dict[str, Any]
# Where a text ends that was not asked for in full.
LONGEST = 4000
_LONGEST_TIME = 40


class Parts:
    """A layout that gathers the parts of a row, each call with what closes it."""

    def __init__(self) -> None:
        self.is_stray = False

    def turn(self, number: int, place: str) -> Iterator[Part]:
        """Head a turn."""
        yield {"kind": "turn", "number": number, "place": place}

    def left_out(self, what: str) -> Iterator[Part]:
        """Say what is not shown."""
        yield {"kind": "note", "text": what}

    def said(self, text: str, role: str) -> Iterator[Part]:
        """Give words."""
        yield {"kind": "text", "text": text, "role": role}

    def note(self, note: Note) -> Iterator[Part]:
        """Return what stands beside the conversation."""
        yield {"kind": "note", "text": note.text, "is_warning": note.style == "yellow"}

    def call(self, name: str, arguments: dict[str, Any] | str, by: str = "") -> Iterator[Part]:
        """Give a call."""
        part: Part = {"kind": "call", "tool": name, "arguments": arguments, "state": "open"}
        yield {**part, "by": by.strip()} if by else part

    def result(
        self,
        title: str,
        text: str,
        pictures: Sequence[str] = (),
        where: str = "",
        *,
        failed: bool = False,
    ) -> Iterator[Part]:
        """Close a call, or give a result that stands alone."""
        state = "late" if where or title.startswith("late") else "answered"
        fields = {"title": title + where, "text": text, "pictures": [*pictures], "failed": failed}
        if self.is_stray:
            self.is_stray = False
            yield {"kind": "result", "state": _stray_state(title), **fields}
        else:
            yield {"kind": "answer", "state": state, **fields}

    def stray(self) -> Iterator[Part]:
        """Set the next result apart."""
        self.is_stray = True
        yield from ()

    def named(self, name: str) -> str:
        """Give a name as it is: the page shows it as text."""
        return name

    def broken(self, title: str, found: Sequence[Finding]) -> str:
        """Return the title; what was found is marked beside it."""
        return title

    def no_result(self, found: Sequence[Finding], call: str | None) -> Iterator[Part]:
        """Close a call that nothing came back for."""
        yield {"kind": "answer", "state": "open", "title": "no result", "text": ""}
        for one in found:
            yield from self.mark(one, "")

    def closed(self, word: str) -> Iterator[Part]:
        """Close a call with what is known instead of a result."""
        yield {"kind": "answer", "state": "closed", "title": word, "text": ""}

    def checkpoint(self, text: str) -> Iterator[Part]:
        """Mark a place to go back to."""
        yield {"kind": "checkpoint", "text": text}

    def mark(self, found: Finding, indent: str) -> Iterator[Part]:
        """Mark a broken place."""
        mark = {"code": found.code, "severity": found.severity, "message": found.message}
        yield {"kind": "mark", **mark}


def _stray_state(title: str) -> str:
    if "second result" in title or "another result" in title:
        return "duplicate"
    return "orphan" if "without a call" in title else "elsewhere"


def joined(parts: Iterable[Part]) -> list[Part]:
    """Put what closes a call into it, and marks to what they are of."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if part["kind"] == "answer" and last is not None and last["kind"] == "call":
            last["state"] = part.pop("state")
            del part["kind"]
            last["result"] = part
        elif part["kind"] == "mark":
            if last is None:
                found.append({"kind": "note", "text": "", "marks": [part]})
            else:
                last.setdefault("marks", []).append(part)
        else:
            found.append(part)
    return found


class Placed(Struct):
    """A row with the numbers of the records that it is made of; none for what needs no row."""

    anchors: Sequence[int]
    row: Row | None


def messages_as_rows(
    history: History, transcript: Transcript, marks: Mapping[str, Sequence[Finding]]
) -> Iterator[Placed]:
    """Return the messages of a history; one that holds nothing but answers is with its calls."""
    show = Show(history.messages, history.dialect, marks, Parts())
    starts = {start: number for number, start in enumerate(starts_of(show.view), 1)}
    call = result = 0
    for position, message in enumerate(show.view):
        anchors = [number for number in history.sources[position] if number >= 0]
        if _is_folded(show, message, result):
            yield Placed(anchors, None)
        else:
            parts = joined(show.message(message, call, result))
            place = place_in_store(f"messages.{position}", history, transcript)
            row: Row = {"place": place, "role": _role(message), "parts": parts}
            if anchors:
                row |= _time(transcript.records[anchors[0]].value)
            yield Placed(anchors, row | _turn(starts.get(position)))
        call += sum(part.kind == CALL for part in message.parts)
        result += sum(part.kind == RESULT for part in message.parts)


def _turn(number: int | None) -> Row:
    return {} if number is None else {"turn": number}


def _time(value: Any) -> Row:
    """Give when a record was written, where it says so as most programs do."""
    found = value.get("timestamp") if isinstance(value, dict) else None
    return {"time": found} if isinstance(found, str) and len(found) < _LONGEST_TIME else {}


def _role(message: Message) -> str:
    return "tool" if message.role != ASSISTANT and message.has(RESULT) else message.role


def _is_folded(show: Show[Part], message: Message, result: int) -> bool:
    """Whether a message is nothing but answers, which stand with their calls."""
    if message.flaw or not message.parts:
        return False
    return all(
        part.kind == RESULT and show.threads.pairing.verdicts[result + number] == ANSWER
        for number, part in enumerate(message.parts)
    )


def journal_as_rows(journal: Journal, behind: int = 0) -> Iterator[Placed]:
    """Give a session of a store of our own, or what of it stands behind a record."""
    items, facts = journal.view.items, journal.state.facts
    for place, between, pieces in Told(journal, Parts()).pieces():
        item = items[place] if place < len(items) else None
        is_meant = item is None or item.seq > behind
        marks = joined(between)
        if marks and is_meant:
            yield Placed([], {"place": "", "role": "between", "parts": marks})
        if item is None:
            break
        parts = joined(pieces)
        turn = next((part["number"] for part in parts if part["kind"] == "turn"), None)
        parts = [part for part in parts if part["kind"] != "turn"]
        if parts and is_meant:
            row: Row = {"place": str(item.seq), "role": _spoken_by(item), "parts": parts}
            row |= {"time": facts[item.seq].at} if item.seq in facts else {}
            row |= {"is_summed_up": True} if journal.view.hides(item.seq) else {}
            yield Placed([item.seq], row | _turn(turn))


def _spoken_by(item: Item) -> str:
    if isinstance(item, Spoken):
        return "user"
    return "assistant" if isinstance(item, ModelReply) else "tool"


def shortened(row: Row, *, full: bool = False) -> Row:
    """Give a row with its long texts cut; ``more`` says how many characters are left out."""
    most = None if full else LONGEST
    return {**row, "parts": [_cut(part, most) for part in row["parts"]]}


def _cut(part: Part, most: int | None) -> Part:
    part = {**part, "text": part.get("text", "")}
    part["text"], more = _beginning(part["text"], most)
    if "result" in part:
        part["result"] = _cut(part["result"], most)
    arguments = part.get("arguments")
    if arguments is not None:
        fields = arguments.items() if isinstance(arguments, dict) else [("", arguments)]
        pairs = [(str(key), *_beginning(_as_text(value), most)) for key, value in fields]
        part["arguments"] = [[key, text] for key, text, _ in pairs]
        more += sum(left for _, _, left in pairs)
    return {**part, "more": more} if more else part


def _beginning(text: str, most: int | None) -> tuple[str, int]:
    return text[:most], max(len(text) - most, 0) if most else 0


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)
