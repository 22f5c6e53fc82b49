"""The state that a journal adds up to: its facts one by one, and the conversation as it stands.

The fold accepts any prefix and any late or doubled fact, and never raises. No object here refers
back to the object that holds it, so the garbage collector need not track them (``gc=False``).

What a model reads before the conversation is a fact as well. The last one of a role counts, a
rewind takes it back, and a summary does not replace it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, get_args

from msgspec import Struct, field

from lockstitch.dialects.exchange import exchange_of
from lockstitch.dialects.profiles import profile_named
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
    Role,
    Said,
    Started,
    Waiting,
    event_of,
)
from lockstitch.journal.records import JournalRecord

Status = Literal["open", "waiting", "approved", "started", "closed"]


class CallOutcome(Struct, frozen=True, gc=False):
    """The outcome of a call: the fact that states it, and the number of that record."""

    seq: int
    fact: Event
    is_real: bool = True


class CallState(Struct, gc=False):
    """A tool call of the conversation, identified by its reply and its index in that reply.

    ``attempts`` counts how often the call was started, and ``effect`` is the idempotency key that
    all attempts share. ``changed`` is the last record that changed the call. ``is_outside`` says
    that somebody else will deliver its result. ``is_late`` says that the model went on while the
    call was waiting: its outcome is then sent at the end of the conversation, not next to the call.
    """

    reply: int
    index: int
    id: str
    name: str
    status: Status = "open"
    attempts: int = 0
    effect: str = ""
    outcome: CallOutcome | None = None
    changed: int = 0
    is_outside: bool = False
    is_late: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the call has no outcome yet."""
        return self.outcome is None

    @property
    def is_running(self) -> bool:
        """Whether the call was started and nothing has been recorded about it since."""
        return self.status == "started"


class Spoken(Struct, gc=False):
    """A message of the user."""

    seq: int
    event: Said


class ModelReply(Struct, gc=False):
    """A model's reply, whole or partial, with its calls."""

    seq: int
    event: Replied | Partial
    calls: list[CallState]

    @property
    def after(self) -> int:
        """The last record that the model may have seen when it replied."""
        known = self.event.after
        return known if 0 < known < self.seq else self.seq - 1


class Late(Struct, gc=False):
    """A real outcome of a call that has one already, or that the model or a summary has passed."""

    seq: int
    call: CallState
    fact: Finished


Item = Spoken | ModelReply | Late


class Checkpoint(Struct, frozen=True, gc=False):
    """A point to go back to: before a ``batch`` of calls, at a ``turn``'s end, or ``named``."""

    seq: int
    at: int
    kind: Literal["batch", "turn", "named"]
    label: str = ""


class SummaryInForce(Struct, frozen=True, gc=False):
    """The compaction in force: the summary in record ``seq`` replaces all records up to ``cut``.

    Records in ``kept`` are sent all the same: the last words of the user, and replies with a call
    that was not finished by then. ``words`` is the record of the user's last words, which are sent
    without being shortened.
    """

    seq: int
    event: Compacted
    cut: int
    kept: frozenset[int] = frozenset()
    words: int = 0

    def hides(self, seq: int) -> bool:
        """Whether the summary replaces a record."""
        return seq <= self.cut and seq not in self.kept

    def shortens(self, seq: int) -> bool:
        """Whether a record's results and media are sent in a shortened form."""
        return seq <= self.event.shortened and seq != self.words


class JournalView(Struct):
    """The conversation on the visible line of a journal: without what was rewound.

    ``instructions`` holds what the model reads before the conversation, by role. ``turn`` is the
    record at which the open turn began, 0 if no turn is open. ``interrupted`` is the record at
    which the last turn began if it was interrupted and nothing has been said since, else 0.
    ``replied`` is the last record with a reply. ``streams`` holds the partial reply of each stream,
    or None once the whole reply is there; ``renamed`` maps a call of a partial reply to the same
    call of the whole one. ``has_large`` says whether any payload is kept in a blob.
    """

    items: list[Item] = field(default_factory=list)
    calls: dict[tuple[int, int], CallState] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    streams: dict[str, ModelReply | None] = field(default_factory=dict)
    renamed: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    instructions: dict[str, Event] = field(default_factory=dict)
    summary: SummaryInForce | None = None
    turn: int = 0
    interrupted: int = 0
    replied: int = 0
    reason: str = ""
    has_large: bool = False

    def call(self, reply: int, index: int) -> CallState | None:
        """Return the call at an index of a reply, or None if there is no such call."""
        key = (reply, index)
        if self.renamed:
            while key in self.renamed:
                key = self.renamed[key]
        return self.calls.get(key)

    @property
    def batch(self) -> list[CallState]:
        """The calls of the last reply."""
        return self.last_reply.calls if self.last_reply else []

    @property
    def last_reply(self) -> ModelReply | None:
        """The last reply, if there is one."""
        return next((item for item in reversed(self.items) if isinstance(item, ModelReply)), None)

    def hides(self, seq: int) -> bool:
        """Whether a summary replaces a record."""
        return self.summary is not None and self.summary.hides(seq)

    def unfinished(self, through: int) -> set[int]:
        """Return the records up to ``through`` that no summary may replace.

        These are the last words of the user, and each reply with a call that is waiting or running,
        that never started and belongs to the last reply, or whose result comes after ``through``.
        """
        last = self.last_reply.seq if self.last_reply else 0
        found: set[int] = set()
        for call in self.calls.values():
            is_left = call.outcome is None or call.is_running or call.outcome.seq > through
            if call.status == "open":
                is_left = call.reply == last
            if call.reply <= through and is_left:
                found.add(call.reply)
        return found | {self.last_words} if 0 < self.last_words <= through else found

    @property
    def last_words(self) -> int:
        """The record in which the user spoke last, 0 for none."""
        return max((item.seq for item in self.items if isinstance(item, Spoken)), default=0)

    @property
    def broken_reply(self) -> ModelReply | None:
        """The partial reply whose stream broke off, if its turn is open and nothing has come since.

        The model is asked again, and its new reply replaces this one.
        """
        end = self.items[-1] if self.items else None
        if type(end) is Spoken or (type(end) is ModelReply and type(end.event) is Replied):
            return None  # the usual case
        last = next((i for i in reversed(self.items) if not self._goes_with_call(i)), None)
        if not self.turn or not isinstance(last, ModelReply) or not isinstance(last.event, Partial):
            return None
        return last

    def sent(self, start: int = 0, stop: int | None = None) -> list[Item]:
        """Return the items ``start:stop`` that are sent after the summary, in order."""
        items, broken = self.items[start:stop], self.broken_reply
        if broken is not None:
            items = [item for item in items if item is not broken]
        if self.summary is None:
            return [i for i in items if type(i) is not Late or not self._goes_with_call(i)]
        return [i for i in items if not self.hides(i.seq) and not self._goes_with_call(i)]

    def _goes_with_call(self, item: Item) -> bool:
        """Whether a late outcome is already sent next to its call."""
        if not isinstance(item, Late):
            return False
        outcome = item.call.outcome
        is_last = outcome is not None and outcome.seq == item.seq
        return is_last and not item.call.is_late and not self.hides(item.call.reply)

    def facts(self, start: int = 0) -> Iterator[Event]:
        """Yield the facts whose payloads a request is made of, from item number ``start`` on."""
        yield from self.instructions.values()
        if self.summary and self.summary.cut:
            yield self.summary.event
        yield from facts_in(self.sent(start))


def facts_in(items: Iterable[Item]) -> Iterator[Event]:
    """Yield the facts of items, and the facts of the outcomes of their calls."""
    for item in items:
        yield item.fact if isinstance(item, Late) else item.event
        if isinstance(item, ModelReply):
            yield from (call.outcome.fact for call in item.calls if call.outcome)


ROLES: tuple[Role, ...] = get_args(Role)
Read = Callable[[Event], str]


def texts_in(view: JournalView, read: Read) -> dict[Role, str]:
    """Return the instructions in force, by role; ``read`` returns the text of an event."""
    found = {role: read(view.instructions[role]) for role in ROLES if role in view.instructions}
    return {role: text for role, text in found.items() if text}


def leading(texts: dict[Role, str], dialect: str) -> list[Any]:
    """Return the messages that hold instructions in a dialect; none if a parameter holds them."""
    profile = profile_named(dialect)
    if profile.system_first and len(texts) > 1:
        # a chat template accepts one system message, at the start
        texts = {ROLES[0]: _joined(texts)}
    exchange = exchange_of(profile.dialect)
    return list(exchange.leading_messages(texts, is_own=":" not in dialect))


def beside(texts: dict[Role, str], dialect: str) -> Any:
    """Return the value of the parameter that holds the instructions; None if messages hold them.

    It is a text for Anthropic (``system``) and Gemini (``system_instruction``), and blocks for
    Bedrock (``system``).
    """
    if not texts:
        return None
    exchange = exchange_of(profile_named(dialect).dialect)
    return exchange.system_parameter(_joined(texts))


def _joined(texts: dict[Role, str]) -> str:
    return "\n\n".join(texts.values())


CHECKPOINT = "checkpoint"
# Replaces the event of a record whose key was seen before.
REPEATED = Noted(name="repeated")
# Earlier versions wrote this when they cleaned up after a crashed writer; it does not end a turn.
CRASH = "crash"


class Fact(Struct, frozen=True, gc=False):
    """An event with its record number, its time, and the record that it follows on its line."""

    seq: int
    at: int
    event: Event
    parent: int


class JournalState:
    """The state of a journal up to the last record read: every fact, and the current line's view.

    The parent of a record is the record before it, but the parent of a rewind is the record that it
    goes back to. The records in between are then off the line, but still in the journal. A tool's
    result that was recorded off its call's line (``off_line``) counts wherever the call is visible
    again, because it happened in the world. So do the number of starts of a call and its
    idempotency key (``starts``). A rewind does not change how the session was last ``described``.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.keys: dict[str, int] = {}
        self.facts: dict[int, Fact] = {}
        self.view = JournalView()
        self.off_line: list[Fact] = []
        self.described: Described | None = None
        self.starts: dict[tuple[int, int], tuple[int, str]] = {}

    def __repr__(self) -> str:
        """Return the number of records, but nothing of what was said."""
        return f"<{type(self).__name__}: {self.seq} records>"

    def apply(self, record: JournalRecord) -> None:
        """Add a record; a record whose number or key was seen before changes nothing."""
        seq, before = record.seq, self.seq
        if seq <= before:
            return
        self.seq = seq
        event = event_of(record)
        if self.keys.setdefault(record.key, seq) != seq:
            event = REPEATED
        if type(event) is Described:
            self.described = event
        # A rewind to a record that does not exist changes nothing.
        if type(event) is Rewound and (event.to == 0 or event.to in self.facts):
            self.facts[seq] = Fact(seq, record.at, event, event.to)
            self.view = self._view_along_line()
            return
        fact = self.facts[seq] = Fact(seq, record.at, event, before)
        if type(event) is Finished:
            if self.view.call(event.reply, event.index) is None and self._is_off_line(event):
                self.off_line.append(fact)
        elif type(event) is Started:
            attempts, effect = self.starts.get((event.reply, event.index), (0, ""))
            attempts = max(attempts + 1, event.attempt)
            self.starts[event.reply, event.index] = (attempts, effect or event.effect)
        _add(self.view, fact, event)

    def _is_off_line(self, event: Finished) -> bool:
        """Whether a tool's own result belongs to a reply that is no longer on the line."""
        if event.synthetic or event.reply not in self.facts:
            return False
        at = self.seq
        while at > event.reply:
            at = self.facts[at].parent
        return at != event.reply

    def _view_along_line(self) -> JournalView:
        """Compute the view of the current line."""
        line = self.line(self.seq)
        if self.off_line:
            on_it = {fact.seq for fact in line}
            others = (fact for fact in self.off_line if fact.seq not in on_it)
            line = sorted([*line, *others], key=lambda fact: fact.seq)
        view = JournalView()
        for fact in line:
            _add(view, fact, fact.event)
        return view

    def snapshot(self, *events: Event) -> JournalView:
        """Return an independent view, as it would be after some more events."""
        view = self._view_along_line()
        for seq, event in enumerate(events, start=self.seq + 1):
            _add(view, Fact(seq, 0, event, seq - 1), event)
        return view

    def line(self, seq: int) -> list[Fact]:
        """Return the facts from the first one to a record, along that record's line."""
        found: list[Fact] = []
        while seq in self.facts:
            found.append(self.facts[seq])
            seq = found[-1].parent
        return found[::-1]


def fold(records: Iterable[JournalRecord]) -> JournalState:
    """Return the state that records add up to."""
    state = JournalState()
    for record in records:
        state.apply(record)
    return state


def _add(view: JournalView, fact: Fact, event: Event) -> None:
    if event.blob and not (type(event) is Finished and view.call(event.reply, event.index) is None):
        view.has_large = True
    step = _STEPS.get(type(event))
    if step is not None:
        step(view, fact, event)


def _said(view: JournalView, fact: Fact, event: Said) -> None:
    view.items.append(Spoken(fact.seq, event))
    view.turn = view.turn or fact.seq
    view.interrupted = 0


def _instructed(view: JournalView, _fact: Fact, event: Instructed) -> None:
    view.instructions[event.role] = event


def _put_reply(view: JournalView, fact: Fact, event: Replied | Partial) -> None:
    """Insert a reply after what its model had seen, and before what came while it was generated."""
    is_part = isinstance(event, Partial)
    if is_part and event.stream in view.streams and view.streams[event.stream] is None:
        return  # the whole reply is already there
    seq = fact.seq
    broken = view.broken_reply
    if broken is not None and broken.event.stream != event.stream:
        _take_out(view, broken)
        view.streams.pop(broken.event.stream, None)
    calls = [CallState(seq, n, a.id, a.name, changed=seq) for n, a in enumerate(event.calls)]
    reply = ModelReply(seq, event, calls)
    if event.stream:
        # The whole reply replaces the partial one of the same stream.
        part = view.streams.get(event.stream)
        if part is not None:
            _take_out(view, part)
            # Calls of the partial reply may have run already: the whole reply takes over their
            # outcomes.
            for old, new in zip(part.calls, reply.calls, strict=False):
                if old.id == new.id and old.name == new.name:
                    new.status, new.attempts, new.effect = old.status, old.attempts, old.effect
                    new.outcome, new.changed = old.outcome, old.changed
                    view.renamed[old.reply, old.index] = (new.reply, new.index)
        view.streams[event.stream] = reply if is_part else None
    items, after = view.items, reply.after
    at = len(items)
    while at and items[at - 1].seq > after and type(items[at - 1]) is not ModelReply:
        at -= 1
    items.insert(at, reply)
    for call in calls:
        view.calls[seq, call.index] = call
    view.replied = seq
    view.turn = view.turn or seq
    view.interrupted = 0
    if calls and not is_part:
        view.checkpoints.append(Checkpoint(seq, fact.at, "batch"))


def _take_out(view: JournalView, part: ModelReply) -> None:
    """Remove a partial reply from the view; it is nearly always close to the end."""
    at = next(n for n in range(len(view.items) - 1, -1, -1) if view.items[n] is part)
    del view.items[at]
    for call in part.calls:
        view.calls.pop((call.reply, call.index), None)


def _started(view: JournalView, fact: Fact, event: Started) -> None:
    call = view.call(event.reply, event.index)
    if call is None or (call.outcome and call.outcome.is_real):
        return
    call.status = "started"
    call.attempts = max(call.attempts + 1, event.attempt)
    call.effect = call.effect or event.effect
    call.changed = fact.seq


def _finished(view: JournalView, fact: Fact, event: Finished) -> None:
    call = view.call(event.reply, event.index)
    if call is None:
        return
    had = call.outcome
    if had is None or (not event.synthetic and not had.is_real):
        call.outcome = CallOutcome(fact.seq, event, is_real=not event.synthetic)
        call.changed = fact.seq
        call.status = "closed"
        if event.synthetic:
            return
        if call.is_outside:
            call.is_late = view.replied > call.reply
            # a result does not reopen a turn that somebody interrupted
            view.turn = view.turn or (0 if view.interrupted else fact.seq)
        if call.is_late or (view.summary is not None and view.hides(call.reply)):
            view.items.append(Late(fact.seq, call, event))
    elif event.synthetic:
        call.status = "closed"
    elif had.fact != event:
        view.items.append(Late(fact.seq, call, event))


def _waiting(view: JournalView, fact: Fact, event: Waiting) -> None:
    call = view.call(event.reply, event.index)
    if call is not None and call.status == ("started" if event.outside else "open"):
        call.status, call.changed = "waiting", fact.seq
        call.is_outside = event.outside


def _approved(view: JournalView, fact: Fact, event: Approved) -> None:
    call = view.call(event.reply, event.index)
    if call is not None and call.status == "waiting" and not call.is_outside:
        call.status, call.changed = "approved", fact.seq
        call.is_late = view.replied > call.reply
        # the turn opens again: the tool has to run, and then the model reads its result
        view.turn = view.turn or fact.seq
        view.interrupted = 0


def _denied(view: JournalView, fact: Fact, event: Denied) -> None:
    call = view.call(event.reply, event.index)
    if call is not None and call.is_open and not call.is_running:
        call.status, call.changed = "closed", fact.seq
        call.outcome = CallOutcome(fact.seq, event)


def _interrupted(view: JournalView, _fact: Fact, event: Interrupted) -> None:
    if event.reason == CRASH:
        return
    if view.turn:
        view.interrupted, view.reason = view.turn, event.reason
    view.turn = 0


def _resumed(view: JournalView, _fact: Fact, _event: Resumed) -> None:
    if view.interrupted:
        view.turn, view.interrupted = view.interrupted, 0


def _ended(view: JournalView, fact: Fact, _event: Ended) -> None:
    view.checkpoints.append(Checkpoint(fact.seq, fact.at, "turn"))
    view.turn = view.interrupted = 0
    # The turn stays open if the user spoke while the last reply was being generated.
    said: list[int] = []
    for item in reversed(view.items):
        if isinstance(item, ModelReply):
            if said:  # rare
                view.turn = min((seq for seq in said if seq < item.seq), default=0)
            return
        if isinstance(item, Spoken):
            said.append(item.seq)


def _compacted(view: JournalView, fact: Fact, event: Compacted) -> None:
    if not event.through and not event.shortened:
        view.summary = None
    elif 0 <= event.through < fact.seq:
        kept = frozenset(view.unfinished(event.through))
        view.summary = SummaryInForce(fact.seq, event, event.through, kept, view.last_words)


def _noted(view: JournalView, fact: Fact, event: Noted) -> None:
    if event.name == CHECKPOINT:
        view.checkpoints.append(Checkpoint(fact.seq, fact.at, "named", event.label))


_STEPS: dict[type[Event], Callable[[JournalView, Fact, Any], None]] = {
    Said: _said,
    Instructed: _instructed,
    Replied: _put_reply,
    Partial: _put_reply,
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
