"""A session made shorter: beside it while a model is asked, and in one write when that is done."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import structs

from lockstitch.compaction.ladder import Compaction, CompactionTask, Steps, ladder
from lockstitch.compaction.plan import Cost, Counter, calibrated, checked_counter, size_of, unmet
from lockstitch.compaction.running import (
    Actions,
    Apart,
    CompactSettings,
    Summarizer,
    SummarizerPast,
    compaction_actions,
    name_of,
)
from lockstitch.dialects import ANTHROPIC
from lockstitch.errors import Moved, Unmet
from lockstitch.journal.events import Compacted, Event, Noted, text_payload, value_of
from lockstitch.journal.projection import wanted_blobs
from lockstitch.journal.requests import project
from lockstitch.journal.state import JournalState, JournalView
from lockstitch.session import decisions
from lockstitch.session.writing import SessionWriter

_DIALECT = ANTHROPIC


class Compacting:
    """One compaction of a session that others go on using.

    It works on a view of its own. Answers of the model are kept as notes, so that another try,
    also after a crash, does not ask again.
    """

    def __init__(
        self,
        writer: SessionWriter,
        wish: CompactSettings,
        summarize: Callable[[str], Any] | None = None,
    ) -> None:
        self._writer = writer
        self._base, self._view, notes = writer.look(_taken)
        self.summarizer = (
            None if summarize is None else _summarizer(writer, summarize, notes, wish.ignore_pause)
        )
        self._dialect = wish.dialect or _spoken(self._view)
        self._blobs = writer.fetched(wanted_blobs(self._view))
        self._budget = wish.budget
        self._counter = _counter(wish, self._view, self._dialect, self._blobs)
        self.steps: Steps = ladder(
            CompactionTask(
                view=self._view,
                dialect=self._dialect,
                budget=wish.budget,
                blobs=self._blobs,
                has_model=summarize is not None,
                counter=self._counter,
                window=wish.window,
                known={key: text for key, text in notes.items() if isinstance(text, str)},
                random=random.random,
                weighs=True,
            )
        )

    def keep(self, key: str, text: str) -> None:
        """Keep an answer of the model."""
        self._writer.add(Noted(name=decisions.NOTES, label=key, payload=text_payload(text)))

    def finish(self, done: Compaction) -> Compaction:
        """Write a compaction down if it is one, and if the session is still what it was made of.

        Raises ``Moved`` if it is not, and ``Unmet`` if nothing is gained; of the compaction nothing
        is written then. What became of the summarizer is kept in any case.
        """
        past = self.summarizer.learn(done) if self.summarizer else None
        if self.summarizer and past:
            label = _label(self.summarizer.name)
            payload = msgspec.Raw(msgspec.json.encode(past))
            self._writer.add(Noted(name=decisions.NOTES, label=label, payload=payload))
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
        return structs.replace(done, before=before, after=after, is_tight=False)

    def _decided(self, state: JournalState, event: Compacted) -> list[Event]:
        """Return the fact, unless it would hide what its summary says nothing of.

        Records are kept for what they are at that moment, such as the last words of the user.
        """
        facts = decisions.commit_compaction(state, event, self._base)
        if not self._view.unfinished(event.through) <= state.view.unfinished(event.through):
            raise Moved("the turn that was compacted went on meanwhile; nothing was written")
        return facts

    def _weighed(self, *events: Compacted) -> Cost:
        """Weigh the request that would be made now."""
        view = self._writer.look(lambda state: state.snapshot(*events))
        messages = project(view, self._dialect, blobs=self._writer.fetched(wanted_blobs(view)))
        return Cost(self._counter(messages, self._dialect), size_of(messages))

    def _gains(self, before: Cost, after: Cost) -> bool:
        if self._budget.bytes and before.bytes > self._budget.bytes:
            return after.bytes < before.bytes
        return after.tokens < before.tokens


def compacting_actions(
    writer: SessionWriter, settings: CompactSettings, summarize: Callable[[str], Any] | None
) -> Actions[Compaction]:
    """Compact one session; see :class:`Compacting`."""
    work: Compacting = yield Apart(partial(Compacting, writer, settings, summarize), must_end=True)
    done = yield from compaction_actions(
        work.steps, work.summarizer, settings.clock, keep=work.keep, on_progress=settings.show
    )
    finished: Compaction = yield Apart(partial(work.finish, done), must_end=True)
    return finished


def _taken(state: JournalState) -> tuple[int, JournalView, dict[str, Any]]:
    return state.seq, state.snapshot(), _notes(state)


def _notes(state: JournalState) -> dict[str, Any]:
    """Return what was kept, by label: the model's answers, texts, how summarizers fared."""
    return {
        fact.event.label: value_of(fact.event.payload)
        for fact in state.facts.values()
        if isinstance(fact.event, Noted)
        and fact.event.name == decisions.NOTES
        and not fact.event.blob
    }


def _label(summarizer: str) -> str:
    return f"summarizer {summarizer}"


def _summarizer(
    writer: SessionWriter,
    summarize: Callable[[str], Any],
    notes: dict[str, Any],
    ignore_pause: bool,
) -> Summarizer:
    try:
        past = msgspec.convert(notes.get(_label(name_of(summarize))), SummarizerPast)
    except msgspec.ValidationError:
        past = SummarizerPast()
    scope = f"{writer.backend.url} {writer.session}"
    return Summarizer(summarize, scope=scope, past=past, ignore_pause=ignore_pause)


def _spoken(view: JournalView) -> str:
    last = view.last_reply
    return last.event.dialect if last else _DIALECT


def is_over(
    wish: CompactSettings, view: JournalView, messages: list[Any], blobs: Mapping[str, bytes]
) -> bool:
    """Whether a request is over a budget, and the moment is one for a compaction.

    In the middle of a batch it is not.
    """
    if any(call.is_running or call.status == "open" for call in view.batch):
        return False
    dialect = wish.dialect or _spoken(view)
    counter = _counter(wish, view, dialect, blobs)
    return not wish.budget.holds(Cost(counter(messages, dialect), size_of(messages)))


def _counter(
    wish: CompactSettings, view: JournalView, dialect: str, blobs: Mapping[str, bytes]
) -> Counter:
    if wish.counter is not None:
        return checked_counter(wish.counter, dialect)
    return calibrated(view, dialect, blobs)
