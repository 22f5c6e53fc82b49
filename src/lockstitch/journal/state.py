"""What a journal adds up to: the conversation as it stands, every call with what became of it.

Nothing here points back at what holds it, so the garbage collector need not look (``gc=False``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct, field

from lockstitch.journal.events import Compacted, Event, Finished, Partial, Replied, Said

Status = Literal["open", "waiting", "approved", "started", "closed"]


class Settled(Struct, frozen=True, gc=False):
    """What became of a call: the fact that says so, and the record it stands in."""

    seq: int
    fact: Event
    is_real: bool = True


class Call(Struct, gc=False):
    """A tool call of the conversation, known by the reply it stands in and its number there.

    ``attempts`` counts how often it was started, ``effect`` is the idempotency key of all of
    them. ``changed`` is the last record that told anything new of it. ``is_outside`` tells that
    somebody else is going to deliver its result. ``is_news`` tells that the model went on while
    the call waited: what became of it is told at the end, not where the call stands.
    """

    reply: int
    index: int
    id: str
    name: str
    status: Status = "open"
    attempts: int = 0
    effect: str = ""
    outcome: Settled | None = None
    changed: int = 0
    is_outside: bool = False
    is_news: bool = False

    @property
    def is_open(self) -> bool:
        """Whether nothing is known of what became of it."""
        return self.outcome is None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and the last that was heard of it is that."""
        return self.status == "started"


class Spoken(Struct, gc=False):
    """What the user said."""

    seq: int
    event: Said


class Reply(Struct, gc=False):
    """What a model replied, in full or in part, with its calls."""

    seq: int
    event: Replied | Partial
    calls: list[Call]

    @property
    def after(self) -> int:
        """The last record that the model can have known of."""
        known = self.event.after
        return known if 0 < known < self.seq else self.seq - 1


class Late(Struct, gc=False):
    """A real outcome that came when its call had one, or when a summary stood in for the call."""

    seq: int
    call: Call
    fact: Finished


Item = Spoken | Reply | Late


class Checkpoint(Struct, frozen=True, gc=False):
    """A place to go back to: before a ``batch`` of calls, at a ``turn``'s end, or ``named``."""

    seq: int
    at: int
    kind: Literal["batch", "turn", "named"]
    label: str = ""


class Summary(Struct, frozen=True, gc=False):
    """A compaction in force: record ``seq`` holds what is sent in place of all up to ``cut``.

    Records in ``kept`` go out all the same: the last words of the user, and replies of which a
    call was not settled by then. ``words`` are the last words of the user, which go out whole.
    """

    seq: int
    event: Compacted
    cut: int
    kept: frozenset[int] = frozenset()
    words: int = 0

    def hides(self, seq: int) -> bool:
        """Whether the summary stands for a record."""
        return seq <= self.cut and seq not in self.kept

    def shortens(self, seq: int) -> bool:
        """Whether less is sent of a record's results and media."""
        return seq <= self.event.shortened and seq != self.words


class View(Struct):
    """The conversation along the visible line of a journal.

    ``instructions`` has what the model is told before it, by role. ``turn`` is where the turn
    that is open began, 0 if none is. ``interrupted`` is where the last turn began if it was
    broken off and nothing has been said since, else 0. ``replied`` is where a model replied
    last. ``streams`` has what came of each stream, None where the whole of it did; ``renamed``
    leads from a call of a part of a reply to the same call of the whole. ``has_large`` tells
    whether any fact's payload is kept apart.
    """

    items: list[Item] = field(default_factory=list)
    calls: dict[tuple[int, int], Call] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    streams: dict[str, Reply | None] = field(default_factory=dict)
    renamed: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    instructions: dict[str, Event] = field(default_factory=dict)
    summary: Summary | None = None
    turn: int = 0
    interrupted: int = 0
    replied: int = 0
    reason: str = ""
    has_large: bool = False

    def call(self, reply: int, index: int) -> Call | None:
        """Find a call."""
        key = (reply, index)
        if self.renamed:
            while key in self.renamed:
                key = self.renamed[key]
        return self.calls.get(key)

    @property
    def batch(self) -> list[Call]:
        """The calls of the last reply."""
        return self.last_reply.calls if self.last_reply else []

    @property
    def last_reply(self) -> Reply | None:
        """The last reply, if there is one."""
        return next((item for item in reversed(self.items) if isinstance(item, Reply)), None)

    def hides(self, seq: int) -> bool:
        """Whether a summary stands for a record."""
        return self.summary is not None and self.summary.hides(seq)

    def unsettled(self, through: int) -> set[int]:
        """Return the records up to one that no summary may stand for.

        Those are the last words of the user, and replies of which a call waits or runs, never
        started and is of the last reply, or has a result that is not among these records.
        """
        last = self.last_reply.seq if self.last_reply else 0
        calls = (call for call in self.calls.values() if call.reply <= through)
        found = {call.reply for call in calls if _is_unsettled(call, through, last)}
        return found | {self.last_words} if 0 < self.last_words <= through else found

    @property
    def last_words(self) -> int:
        """Where the user spoke last, 0 for nowhere."""
        return max((item.seq for item in self.items if isinstance(item, Spoken)), default=0)

    @property
    def broken_reply(self) -> Reply | None:
        """What came of a reply that broke off, if the turn is open and nothing came since.

        The model is asked again: its new reply takes the place of that.
        """
        end = self.items[-1] if self.items else None
        if type(end) is Spoken or (type(end) is Reply and type(end.event) is Replied):
            return None  # as nearly always
        last = next((i for i in reversed(self.items) if not self._is_told(i)), None)
        if not self.turn or not isinstance(last, Reply) or not isinstance(last.event, Partial):
            return None
        return last

    def sent(self, start: int = 0, stop: int | None = None) -> list[Item]:
        """Return what goes out behind the summary, in order; of some of the items if asked to."""
        items, broken = self.items[start:stop], self.broken_reply
        if broken is not None:
            items = [item for item in items if item is not broken]
        if self.summary is None:
            return [i for i in items if type(i) is not Late or not self._is_told(i)]
        return [i for i in items if not self.hides(i.seq) and not self._is_told(i)]

    def _is_told(self, item: Item) -> bool:
        """A late outcome is told by its call, where that goes out with it."""
        if not isinstance(item, Late):
            return False
        outcome = item.call.outcome
        is_last = outcome is not None and outcome.seq == item.seq
        return is_last and not item.call.is_news and not self.hides(item.call.reply)

    def facts(self, start: int = 0) -> Iterator[Event]:
        """Return the facts whose payloads a request is made of, from some item on."""
        yield from self.instructions.values()
        if self.summary and self.summary.cut:
            yield self.summary.event
        for item in self.sent(start):
            yield item.fact if isinstance(item, Late) else item.event
            if isinstance(item, Reply):
                yield from (call.outcome.fact for call in item.calls if call.outcome)


def _is_unsettled(call: Call, through: int, last: int) -> bool:
    if call.status == "open":
        return call.reply == last
    return call.outcome is None or call.is_running or call.outcome.seq > through
