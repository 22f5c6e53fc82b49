"""A session made shorter: beside it while a model is asked, and in one write when that is done."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lockstitch.compaction.counting import Counter, calibrated, checked_counter, size_of
from lockstitch.compaction.ladder import Compaction, Steps, Task, ladder
from lockstitch.compaction.plan import Budget, Cost, budget_of, unmet
from lockstitch.errors import Moved, Unmet
from lockstitch.journal.events import Compacted, Event, Noted, text_payload, value_of
from lockstitch.journal.fold import State
from lockstitch.journal.projection import project, wanted
from lockstitch.journal.state import View
from lockstitch.session import core
from lockstitch.session.writing import Writer

_DIALECT = "anthropic"


class Wish(Struct, frozen=True):
    """How short a session should get, and by what means."""

    tokens: int
    most_bytes: int | None = None
    dialect: str | None = None
    counter: Counter | None = None
    window: int = 0
    has_model: bool = False

    @property
    def budget(self) -> Budget:
        """What a request may cost."""
        return budget_of(self.tokens, self.most_bytes)


def least_of(error: Unmet) -> int:
    """Give the least budget that can be met; raises the error again if there is none."""
    if not error.least:
        raise error
    return error.least


class Compacting:
    """One compaction of a session that others go on using.

    It works on a view of its own. Answers of the model are kept as notes, so that another try,
    also after a crash, does not ask again.
    """

    def __init__(self, writer: Writer, wish: Wish) -> None:
        self._writer = writer
        self._base, self._view, known = writer.look(_taken)
        self._dialect = wish.dialect or _spoken(self._view)
        self._blobs = writer.fetched(wanted(self._view))
        self._budget = wish.budget
        self._counter = (
            checked_counter(wish.counter, self._dialect)
            if wish.counter
            else calibrated(self._view, self._dialect, self._blobs)
        )
        self.steps: Steps = ladder(
            Task(
                view=self._view,
                dialect=self._dialect,
                budget=wish.budget,
                blobs=self._blobs,
                has_model=wish.has_model,
                counter=self._counter,
                window=wish.window,
                known=known,
                random=random.random,
                weighs=True,
            )
        )

    def keep(self, key: str, text: str) -> None:
        """Keep an answer of the model."""
        self._writer.add(Noted(name=core.NOTES, label=key, payload=text_payload(text)))

    def finish(self, done: Compaction) -> Compaction:
        """Write a compaction down if it is one, and if the session is still what it was made of.

        Raises ``Moved`` if it is not, and ``Unmet`` if nothing is gained; nothing is written then.
        """
        event = done.event
        if event is None:
            return done
        before, after = self._weighed(), self._weighed(event)
        if not self._gains(before, after):
            raise Unmet(
                f"the compaction gains nothing: {before.tokens} tokens and"
                f" {before.bytes} bytes before, {after.tokens} and {after.bytes} after"
            )
        if done.is_tight and not self._budget.holds(after):
            raise unmet(before, after, self._budget)
        self._writer.decide(lambda state: self._decided(state, event))
        return Compaction(done.rung, before, after, event, done.asked, done.failures)

    def _decided(self, state: State, event: Compacted) -> list[Event]:
        """Give the fact, unless it would hide what its summary says nothing of.

        Records are kept for what they are at that moment, such as the last words of the user.
        """
        facts = core.compacted(state, event, self._base)
        if not self._view.unsettled(event.through) <= state.view.unsettled(event.through):
            raise Moved("the turn that was compacted went on meanwhile; nothing was written")
        return facts

    def _weighed(self, *events: Compacted) -> Cost:
        """Weigh the request that would be made now."""
        view = self._writer.look(lambda state: state.snapshot(*events))
        messages = project(view, self._dialect, blobs=self._writer.fetched(wanted(view)))
        return Cost(self._counter(messages, self._dialect), size_of(messages))

    def _gains(self, before: Cost, after: Cost) -> bool:
        if self._budget.bytes and before.bytes > self._budget.bytes:
            return after.bytes < before.bytes
        return after.tokens < before.tokens


def _taken(state: State) -> tuple[int, View, dict[str, str]]:
    return state.seq, state.snapshot(), _known(state)


def _known(state: State) -> dict[str, str]:
    """Give the answers that were kept."""
    found: dict[str, str] = {}
    for fact in state.facts.values():
        event = fact.event
        if isinstance(event, Noted) and event.name == core.NOTES and not event.blob:
            text = value_of(event.payload)
            if isinstance(text, str):
                found[event.label] = text
    return found


def _spoken(view: View) -> str:
    last = view.last_reply
    return last.event.dialect if last else _DIALECT


def is_over(
    budget: Budget,
    view: View,
    messages: list[Any],
    dialect: str,
    blobs: Mapping[str, bytes] | None = None,
) -> bool:
    """Tell whether a request is over a budget, and the moment is one for a compaction.

    In the middle of a batch it is not.
    """
    if any(call.is_running or call.status == "open" for call in view.batch):
        return False
    counter = calibrated(view, dialect, blobs)
    return not budget.holds(Cost(counter(messages, dialect), size_of(messages)))
