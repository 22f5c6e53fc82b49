"""Facts added up, one by one: any prefix, any late or doubled fact, and never an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from lockstitch.journal.events import (
    Approved,
    Compacted,
    Denied,
    Described,
    Ended,
    Event,
    Finished,
    Instructed,
    Interrupted,
    Noted,
    Partial,
    Replied,
    Resumed,
    Rewound,
    Said,
    Started,
    Waiting,
    event_of,
)
from lockstitch.journal.records import Record
from lockstitch.journal.state import (
    Call,
    Checkpoint,
    Late,
    Reply,
    Settled,
    Spoken,
    Summary,
    View,
)

CHECKPOINT = "checkpoint"
# Stands for a record whose key was seen before.
REPEATED = Noted(name="repeated")
# Earlier versions wrote this when they found what a dead writer had left; it ends no turn.
CRASH = "crash"


class Fact(Struct, frozen=True, gc=False):
    """An event with where and when it was written, and the record that it follows on its line."""

    seq: int
    at: int
    event: Event
    parent: int


class State:
    """A journal as far as it was read: every fact, and the view along the line that counts.

    A record hangs on the one before it, but a rewind hangs on the record that it goes back to:
    what lies between is off the line, and still there. What a tool gave while its call was off
    the line (``strays``) counts wherever the call is seen again: it happened in the world. So does
    how often a call was started, and under which idempotency key (``starts``). How
    the session was last ``described`` holds whatever was rewound.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.keys: dict[str, int] = {}
        self.facts: dict[int, Fact] = {}
        self.view = View()
        self.strays: list[Fact] = []
        self.described: Described | None = None
        self.starts: dict[tuple[int, int], tuple[int, str]] = {}

    def apply(self, record: Record) -> None:
        """Add a record; one whose position or key was seen before adds nothing."""
        seq, before = record.seq, self.seq
        if seq <= before:
            return
        self.seq = seq
        event = event_of(record)
        if self.keys.setdefault(record.key, seq) != seq:
            event = REPEATED
        if type(event) is Described:
            self.described = event
        if type(event) is Rewound and self._is_there(event.to):
            self.facts[seq] = Fact(seq, record.at, event, event.to)
            self.view = self._seen()
            return
        fact = self.facts[seq] = Fact(seq, record.at, event, before)
        if type(event) is Finished and self._is_stray(event):
            self.strays.append(fact)
        elif type(event) is Started:
            self._count_start(event)
        _add(self.view, fact, event)

    def _count_start(self, event: Started) -> None:
        attempts, effect = self.starts.get((event.reply, event.index), (0, ""))
        attempts = max(attempts + 1, event.attempt)
        self.starts[event.reply, event.index] = (attempts, effect or event.effect)

    def _is_there(self, seq: int) -> bool:
        """Whether a rewind can lead to a place; one to nowhere changes nothing."""
        return seq == 0 or seq in self.facts

    def _is_stray(self, event: Finished) -> bool:
        """Whether a tool's own result is for a reply that is off the line."""
        if event.synthetic or event.reply not in self.facts:
            return False
        if self.view.call(event.reply, event.index) is not None:
            return False
        at = self.seq
        while at > event.reply:
            at = self.facts[at].parent
        return at != event.reply

    def _seen(self) -> View:
        """Return the view along the line."""
        line = self.line(self.seq)
        if self.strays:
            on_it = {fact.seq for fact in line}
            strays = (fact for fact in self.strays if fact.seq not in on_it)
            line = sorted([*line, *strays], key=lambda fact: fact.seq)
        return _seen(line)

    def snapshot(self, *events: Event) -> View:
        """Return the view by itself, as it would be with some more events."""
        view = self._seen()
        for seq, event in enumerate(events, start=self.seq + 1):
            _add(view, Fact(seq, 0, event, seq - 1), event)
        return view

    def line(self, seq: int) -> list[Fact]:
        """Return the facts that lead to a record, oldest first."""
        found: list[Fact] = []
        while seq in self.facts:
            found.append(self.facts[seq])
            seq = found[-1].parent
        return found[::-1]


def fold(records: Iterable[Record]) -> State:
    """Add up records."""
    state = State()
    for record in records:
        state.apply(record)
    return state


def _seen(line: Iterable[Fact]) -> View:
    view = View()
    for fact in line:
        _add(view, fact, fact.event)
    return view


def _add(view: View, fact: Fact, event: Event) -> None:
    if event.blob and not (type(event) is Finished and _is_unknown(view, event)):
        view.has_large = True
    step = _STEPS.get(type(event))
    if step is not None:
        step(view, fact, event)


def _is_unknown(view: View, event: Finished) -> bool:
    return view.call(event.reply, event.index) is None


def _said(view: View, fact: Fact, event: Said) -> None:
    view.items.append(Spoken(fact.seq, event))
    view.turn = view.turn or fact.seq
    view.interrupted = 0


def _instructed(view: View, _fact: Fact, event: Instructed) -> None:
    view.instructions[event.role] = event


def _replied(view: View, fact: Fact, event: Replied) -> None:
    _put_reply(view, fact, event)
    if event.calls:
        view.checkpoints.append(Checkpoint(fact.seq, fact.at, "batch"))


def _partial(view: View, fact: Fact, event: Partial) -> None:
    came_whole = event.stream in view.streams and view.streams[event.stream] is None
    if not came_whole:
        _put_reply(view, fact, event)


def _put_reply(view: View, fact: Fact, event: Replied | Partial) -> None:
    """Put a reply behind what its model knew, before what came while it was on its way."""
    seq = fact.seq
    broken = view.broken_reply
    if broken is not None and broken.event.stream != event.stream:
        _take_out(view, broken)
        view.streams.pop(broken.event.stream, None)
    calls = [Call(seq, n, a.id, a.name, changed=seq) for n, a in enumerate(event.calls)]
    reply = Reply(seq, event, calls)
    if event.stream:
        _replace_part(view, event, reply)
    items, after = view.items, reply.after
    at = len(items)
    while at and items[at - 1].seq > after and type(items[at - 1]) is not Reply:
        at -= 1
    items.insert(at, reply)
    for call in calls:
        view.calls[seq, call.index] = call
    view.replied = seq
    view.turn = view.turn or seq
    view.interrupted = 0


def _replace_part(view: View, event: Replied | Partial, reply: Reply) -> None:
    """Let a reply stand for what had come of its stream before."""
    part = view.streams.get(event.stream)
    if part is not None:
        _take_out(view, part)
        _carry_over(view, part.calls, reply.calls)
    view.streams[event.stream] = reply if isinstance(event, Partial) else None


def _carry_over(view: View, before: list[Call], calls: list[Call]) -> None:
    """Keep what became and will become of the calls of a part, where the whole has them, too."""
    for old, new in zip(before, calls, strict=False):
        if old.id == new.id and old.name == new.name:
            new.status, new.attempts, new.effect = old.status, old.attempts, old.effect
            new.outcome, new.changed = old.outcome, old.changed
            view.renamed[old.reply, old.index] = (new.reply, new.index)


def _take_out(view: View, part: Reply) -> None:
    """Take out what had come of a stream before; it stands near the end nearly always."""
    at = next(n for n in range(len(view.items) - 1, -1, -1) if view.items[n] is part)
    del view.items[at]
    for call in part.calls:
        view.calls.pop((call.reply, call.index), None)


def _started(view: View, fact: Fact, event: Started) -> None:
    call = view.call(event.reply, event.index)
    if call is None or (call.outcome and call.outcome.is_real):
        return
    call.status = "started"
    call.attempts = max(call.attempts + 1, event.attempt)
    call.effect = call.effect or event.effect
    call.changed = fact.seq


def _finished(view: View, fact: Fact, event: Finished) -> None:
    call = view.call(event.reply, event.index)
    if call is None:
        return
    had = call.outcome
    if had is None or (not event.synthetic and not had.is_real):
        call.outcome = Settled(fact.seq, event, is_real=not event.synthetic)
        call.changed = fact.seq
        call.status = "closed"
        if event.synthetic:
            return
        if call.is_outside:
            call.is_news = view.replied > call.reply
            # who broke the turn off is not overruled by a result
            view.turn = view.turn or (0 if view.interrupted else fact.seq)
        if call.is_news or view.hides(call.reply):
            view.items.append(Late(fact.seq, call, event))
    elif event.synthetic:
        call.status = "closed"
    elif had.fact != event:
        view.items.append(Late(fact.seq, call, event))


def _waiting(view: View, fact: Fact, event: Waiting) -> None:
    call = view.call(event.reply, event.index)
    if call is not None and call.status == ("started" if event.outside else "open"):
        call.status, call.changed = "waiting", fact.seq
        call.is_outside = event.outside


def _approved(view: View, fact: Fact, event: Approved) -> None:
    call = view.call(event.reply, event.index)
    if call is not None and call.status == "waiting" and not call.is_outside:
        call.status, call.changed = "approved", fact.seq
        call.is_news = view.replied > call.reply
        # after its turn was over, there is something to do again: the tool, then its model
        view.turn = view.turn or fact.seq
        view.interrupted = 0


def _denied(view: View, fact: Fact, event: Denied) -> None:
    call = view.call(event.reply, event.index)
    if call is not None and call.is_open and not call.is_running:
        call.status, call.changed = "closed", fact.seq
        call.outcome = Settled(fact.seq, event)


def _interrupted(view: View, _fact: Fact, event: Interrupted) -> None:
    if event.reason == CRASH:
        return
    if view.turn:
        view.interrupted, view.reason = view.turn, event.reason
    view.turn = 0


def _resumed(view: View, _fact: Fact, _event: Resumed) -> None:
    if view.interrupted:
        view.turn, view.interrupted = view.interrupted, 0


def _ended(view: View, fact: Fact, _event: Ended) -> None:
    view.checkpoints.append(Checkpoint(fact.seq, fact.at, "turn"))
    view.turn = _unanswered(view)
    view.interrupted = 0


def _unanswered(view: View) -> int:
    """Return where the user spoke first while the last reply was under way, 0 for nowhere."""
    said: list[int] = []
    for item in reversed(view.items):
        if isinstance(item, Reply):
            return min((seq for seq in said if seq < item.seq), default=0) if said else 0
        if isinstance(item, Spoken):
            said.append(item.seq)
    return 0


def _compacted(view: View, fact: Fact, event: Compacted) -> None:
    if not event.through and not event.shortened:
        view.summary = None
    elif 0 <= event.through < fact.seq:
        kept = frozenset(view.unsettled(event.through))
        view.summary = Summary(fact.seq, event, event.through, kept, view.last_words)


def _noted(view: View, fact: Fact, event: Noted) -> None:
    if event.name == CHECKPOINT:
        view.checkpoints.append(Checkpoint(fact.seq, fact.at, "named", event.label))


_STEPS: dict[type[Event], Callable[[View, Fact, Any], None]] = {
    Said: _said,
    Instructed: _instructed,
    Replied: _replied,
    Partial: _partial,
    Started: _started,
    Finished: _finished,
    Waiting: _waiting,
    Approved: _approved,
    Denied: _denied,
    Interrupted: _interrupted,
    Resumed: _resumed,
    Ended: _ended,
    Compacted: _compacted,
    Noted: _noted,
}
