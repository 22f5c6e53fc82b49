"""A session of Lockstitch's own for a person to read: every call with what became of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

from lockstitch.conversation.pairing import NOWHERE
from lockstitch.conversation.parts import USER, Part
from lockstitch.dialects.base import as_text
from lockstitch.dialects.exchange import messages_in
from lockstitch.dialects.script import Piece, TextPiece
from lockstitch.errors import UsageError
from lockstitch.journal.events import (
    Compacted,
    Denied,
    Ended,
    Event,
    Finished,
    Forked,
    Interrupted,
    Noted,
    Partial,
    Rewound,
)
from lockstitch.journal.messages import (
    answer_in,
    answer_to,
    known,
    late_pieces,
    said_as,
    with_results,
)
from lockstitch.journal.salvage import DAMAGED, MISSING
from lockstitch.journal.state import (
    CHECKPOINT,
    CallState,
    Checkpoint,
    Fact,
    Item,
    Late,
    ModelReply,
    Spoken,
)
from lockstitch.rules import Finding
from lockstitch.stored import Journal
from lockstitch.transcript import utc_time
from lockstitch.transcript.messages import (
    MarginNote,
    MessageTranscript,
    TranscriptLayout,
    describe_call,
)

T = TypeVar("T")

_OPEN = {
    "waiting": "waits for approval",
    "approved": "approved, not started yet",
    "started": "running",
    "open": "not started",
}
_CONCLUDED = {
    "cancelled": "cancelled",
    "timed-out": "timed out",
    "unknown": "outcome unknown: it ran when its process ended",
    "not-started": "never started",
}
_HOLES = {
    DAMAGED: "is damaged: it is left out here, and kept in the store",
    MISSING: "is missing",
}
_CHECKPOINTS = {"batch": "before these calls", "turn": "end of the turn"}


def describe_checkpoint(checkpoint: Checkpoint) -> str:
    """Return what a checkpoint is: its kind, and its label where it has one."""
    return checkpoint.label or _CHECKPOINTS.get(checkpoint.kind, "")


def last_journal_turns(journal: Journal, count: int) -> range:
    """Choose the items of the last turns."""
    items = journal.view.items
    starts = _starts(items)
    first = len(items) if count == 0 or not starts else starts[max(0, len(starts) - count)]
    return range(first, len(items))


def journal_turns_around(journal: Journal, seq: int) -> range:
    """Choose the turn of a record, and one on each side."""
    items = journal.view.items
    if not 0 < seq <= journal.state.seq or not items:
        raise UsageError(f"no record {seq}: there are {journal.state.seq}, counted from 1")
    starts = [*_starts(items), len(items)]
    at = max((n for n, item in enumerate(items) if item.seq <= seq), default=0)
    turn = max((n for n, start in enumerate(starts[:-1]) if start <= at), default=0)
    return range(starts[max(0, turn - 1)], starts[min(len(starts) - 1, turn + 2)])


def _starts(items: Sequence[Item]) -> list[int]:
    """Return where the turns start: at a prompt, once the turn before it has a reply."""
    starts: list[int] = []
    is_answered = True
    for number, item in enumerate(items):
        if isinstance(item, Spoken) and is_answered:
            starts.append(number)
            is_answered = False
        is_answered = is_answered or isinstance(item, ModelReply)
    return starts or [0] * bool(items)


class JournalTranscript(Generic[T]):
    """One journal being shown, item by item, with what lies between."""

    def __init__(self, journal: Journal, page: TranscriptLayout[T]) -> None:
        self.journal = journal
        self.page = page
        line = journal.line()
        self.marks = deque(fact for fact in line if _is_mark(fact.event))
        self.checkpoints = {one.seq: one for one in journal.view.checkpoints}
        self.replaced = {
            (fact.event.reply, fact.event.index)
            for fact in line
            if isinstance(fact.event, Finished) and fact.event.synthetic
        }

    def lines(self, chosen: range | None) -> Iterator[T]:
        """Yield the chosen items with what lies between, and say what is left out on both sides."""
        items = self.journal.view.items
        chosen = range(len(items)) if chosen is None else chosen
        starts = _starts(items)
        yield from self._left_out(range(chosen.start), starts, "earlier")
        for place, between, pieces in self.pieces():
            if place in chosen or place == len(items) <= chosen.stop:
                yield from between
                yield from pieces
        yield from self._left_out(range(chosen.stop, len(items)), starts, "later")

    def pieces(self) -> Iterator[tuple[int, Iterator[T], Iterator[T]]]:
        """Yield each item by its place, with what lies before it; at last what lies behind all."""
        items = self.journal.view.items
        turns = {start: number for number, start in enumerate(_starts(items), 1)}
        # A reply stands before what was said while it was under way, so numbers may go back.
        firsts = list(accumulate((item.seq for item in reversed(items)), min))[::-1]
        for place, first in enumerate(firsts):
            between = self._show_between(self._due(first))
            yield place, between, self._show_item(items[place], turns.get(place))
        yield len(items), self._show_between(self.marks), iter(())

    def _left_out(self, left: range, starts: Sequence[int], word: str) -> Iterator[T]:
        count = sum(start in left for start in starts)
        if count:
            yield from self.page.left_out(f"{count} {word} turn{'s' * (count != 1)}")

    def _due(self, seq: int) -> list[Fact]:
        """Take the marks that stand before a record."""
        due: list[Fact] = []
        while self.marks and self.marks[0].seq < seq:
            due.append(self.marks.popleft())
        return due

    def _show_item(self, item: Item, turn: int | None) -> Iterator[T]:
        if turn is not None:
            yield from self.page.turn(turn, f"record {item.seq}")
        if isinstance(item, Spoken):
            content, name = self.journal.value(item.event), known(item.event.dialect)
            if not name or content is None or isinstance(content, str):
                yield from self.page.said(as_text(content), USER)
            else:
                yield from MessageTranscript([said_as(name, content)], name, {}, self.page).body()
        elif isinstance(item, ModelReply):
            yield from self._show_reply(item)
        else:
            yield from self._show_late(item)

    def _show_reply(self, item: ModelReply) -> Iterator[T]:
        checkpoint = self.checkpoints.get(item.seq)
        if checkpoint is not None:
            yield from self._show_checkpoint(checkpoint)
        if isinstance(item.event, Partial):
            yield from self.page.note(MarginNote("[the reply broke off here]", "yellow"))
        name = known(item.event.dialect)
        if not name:
            yield from self.page.note(
                MarginNote("[a reply that this version cannot read]", "yellow")
            )
            return
        value = self.journal.value(item.event)
        messages = messages_in(name, value) if value is not None else []
        outcomes = [call.outcome.fact if call.outcome else None for call in item.calls]
        payloads = [self.journal.value(fact) if fact else None for fact in outcomes]
        answers = [answer_to(*pair) for pair in zip(item.calls, payloads, strict=True)]
        said = (
            with_results(name, messages, [call.id for call in item.calls], answers)
            if answers
            else messages
        )
        yield from _ReplyTranscript(said, name, self.page, item.calls, self.replaced).body()

    def _show_late(self, item: Late) -> Iterator[T]:
        outcome = item.call.outcome
        if outcome is not None and outcome.seq == item.seq:
            return
        answer = answer_in(item.fact, self.journal.value(item.fact))
        name = self.page.named(item.call.name or "a call")
        yield from self.page.set_apart()
        yield from self.page.result(
            f"another result of {name}, record {item.seq}",
            "\n".join(_words(piece) for piece in late_pieces(item.call, answer)[1:]),
            failed=answer.failed,
        )

    def _show_between(self, marks: Iterable[Fact]) -> Iterator[T]:
        for fact in marks:
            checkpoint = self.checkpoints.get(fact.seq)
            if checkpoint is not None:
                yield from self._show_checkpoint(checkpoint)
            else:
                yield from self.page.note(MarginNote(f"[{_describe_event(fact.event)}]", "yellow"))

    def _show_checkpoint(self, checkpoint: Checkpoint) -> Iterator[T]:
        text = f"checkpoint {checkpoint.seq}  {describe_checkpoint(checkpoint)}"
        yield from self.page.checkpoint(f"{text}  {utc_time(checkpoint.at)}")


class _ReplyTranscript(MessageTranscript[T]):
    """One reply with its calls, each closed by what became of it."""

    def __init__(
        self,
        messages: Sequence[Any],
        dialect: str,
        page: TranscriptLayout[T],
        calls: Sequence[CallState],
        replaced: set[tuple[int, int]],
    ) -> None:
        super().__init__(messages, dialect, {}, page)
        self.calls = calls
        self.replaced = replaced

    def _call(self, part: Part, number: int, found: Sequence[Finding]) -> Iterator[T]:
        call = self.calls[number] if number < len(self.calls) else None
        if call is None:
            yield from super()._call(part, number, found)
            return
        attempts = f"  attempt {call.attempts}" if call.attempts > 1 else ""
        yield from self.page.call(*describe_call(self.dialect, part), by=attempts)
        word = describe_end(call)
        answer = self.paired.pairing.answers[number]
        if word or answer == NOWHERE:
            yield from self.page.closed(word or "no result")
            return
        late = (call.reply, call.index) in self.replaced
        yield from self._answer(
            self.paired.results[answer], "late result" if late else "result", ""
        )


def describe_end(call: CallState) -> str:
    """Return what became of a call, in words; "" if it has a result of its own."""
    if call.outcome is None:
        return _OPEN.get(call.status, "not started")
    fact = call.outcome.fact
    if isinstance(fact, Denied):
        return "denied"
    if isinstance(fact, Finished) and not fact.blob and bytes(fact.payload) == b"null":
        word = _CONCLUDED.get(fact.outcome, "")
        return f"{word}; it runs again" if word and call.is_running else word
    return ""


def _words(piece: Piece) -> str:
    return piece.text if isinstance(piece, TextPiece) else piece.note


def _is_mark(event: Event) -> bool:
    if isinstance(event, Noted):
        return event.name in {CHECKPOINT, *_HOLES}
    return not isinstance(event, Finished) and bool(_describe_event(event))


def _describe_event(event: Event) -> str:
    """Return what a fact says that is neither speech nor a call."""
    match event:
        case Interrupted():
            return f"interrupted: {event.reason}" if event.reason else "interrupted"
        case Compacted():
            return f"a summary replaces everything up to record {event.through}"
        case Rewound():
            return f"went back to record {event.to}"
        case Ended():
            return "end of the turn"
        case Noted() if event.name in _HOLES:
            return f"{event.label} {_HOLES[event.name]}"
        case Forked():
            return f"forked from {event.source} at record {event.at}"
        case _:
            return ""
