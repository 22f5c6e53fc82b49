"""Compaction of a live session: the model is asked beside it, and one write applies the outcome."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
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


class Compacting:
    """One compaction of a session that others keep using.

    It works on a snapshot. The answers of the model are stored as notes, so that another attempt,
    also after a crash, does not ask for them again.
    """

    def __init__(
        self,
        writer: SessionWriter,
        settings: CompactSettings,
        summarize: Callable[[str], str | Awaitable[str]] | None = None,
    ) -> None:
        self._writer = writer
        self._base, self._view, notes = writer.look(
            lambda state: (state.seq, state.snapshot(), _notes(state))
        )
        self.summarizer: Summarizer | None = None
        if summarize is not None:
            try:
                past = msgspec.convert(notes.get(_label(name_of(summarize))), SummarizerPast)
            except msgspec.ValidationError:
                past = SummarizerPast()
            scope, ignores = f"{writer.backend.url} {writer.session}", settings.ignore_pause
            self.summarizer = Summarizer(summarize, scope=scope, past=past, ignore_pause=ignores)
        self._dialect = settings.dialect or _dialect_of(self._view)
        self._blobs = writer.fetched(wanted_blobs(self._view))
        self._budget = settings.budget
        self._counter = _counter(settings, self._view, self._dialect, self._blobs)
        self.steps: Steps = ladder(
            CompactionTask(
                view=self._view,
                dialect=self._dialect,
                budget=settings.budget,
                blobs=self._blobs,
                has_model=summarize is not None,
                counter=self._counter,
                window=settings.window,
                known={key: text for key, text in notes.items() if isinstance(text, str)},
                random=random.random,
                weighs=True,
            )
        )

    def keep(self, key: str, text: str) -> None:
        """Store an answer of the model."""
        self._writer.add(Noted(name=decisions.NOTES, label=key, payload=text_payload(text)))

    def finish(self, done: Compaction) -> Compaction:
        """Write a compaction, if it is one and the session has not changed in a way that spoils it.

        Raises ``Moved`` if it has, and ``Unmet`` if nothing is gained; then no compaction is
        written. How the summarizer did is recorded in any case.
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
        if self._budget.bytes and before.bytes > self._budget.bytes:
            gains = after.bytes < before.bytes
        else:
            gains = after.tokens < before.tokens
        if not gains:
            raise Unmet(
                f"the compaction gains nothing: {before.tokens} tokens and"
                f" {before.bytes} bytes before, {after.tokens} and {after.bytes} after"
            )
        if done.is_tight and not self._budget.holds(after):
            raise unmet(before, after, self._budget)

        def decide(state: JournalState) -> list[Event]:
            facts = decisions.commit_compaction(state, event, self._base)
            # The session may have grown: the summary must not hide anything that it does not cover.
            # What is kept beside it depends on the moment, such as the last words of the user.
            if not self._view.unfinished(event.through) <= state.view.unfinished(event.through):
                raise Moved(
                    "the turn that was compacted was continued meanwhile; nothing was written"
                )
            return facts

        self._writer.decide(decide)
        return structs.replace(done, before=before, after=after, is_tight=False)

    def _weighed(self, *events: Compacted) -> Cost:
        """Return the size of a request with these compactions."""
        view = self._writer.look(lambda state: state.snapshot(*events))
        messages = project(view, self._dialect, blobs=self._writer.fetched(wanted_blobs(view)))
        return Cost(self._counter(messages, self._dialect), size_of(messages))


def compacting_actions(
    writer: SessionWriter,
    settings: CompactSettings,
    summarize: Callable[[str], str | Awaitable[str]] | None,
) -> Actions[Compaction]:
    """Compact one session, as a generator of steps; see :class:`Compacting`."""
    work: Compacting = yield Apart(partial(Compacting, writer, settings, summarize), must_end=True)
    done = yield from compaction_actions(
        work.steps, work.summarizer, settings.clock, keep=work.keep, on_progress=settings.show
    )
    finished: Compaction = yield Apart(partial(work.finish, done), must_end=True)
    return finished


def _notes(state: JournalState) -> dict[str, Any]:
    """Return the notes of earlier compactions by label: answers, and how summarizers did."""
    return {
        fact.event.label: value_of(fact.event.payload)
        for fact in state.facts.values()
        if isinstance(fact.event, Noted)
        and fact.event.name == decisions.NOTES
        and not fact.event.blob
    }


def _label(summarizer: str) -> str:
    return f"summarizer {summarizer}"


def _dialect_of(view: JournalView) -> str:
    last = view.last_reply
    return last.event.dialect if last else ANTHROPIC


def is_over(
    settings: CompactSettings, view: JournalView, messages: list[Any], blobs: Mapping[str, bytes]
) -> bool:
    """Whether a request exceeds the budget and no calls of the last reply are still to be run."""
    if any(call.is_running or call.status == "open" for call in view.batch):
        return False
    dialect = settings.dialect or _dialect_of(view)
    counter = _counter(settings, view, dialect, blobs)
    return not settings.budget.holds(Cost(counter(messages, dialect), size_of(messages)))


def _counter(
    settings: CompactSettings, view: JournalView, dialect: str, blobs: Mapping[str, bytes]
) -> Counter:
    if settings.counter is not None:
        return checked_counter(settings.counter, dialect)
    return calibrated(view, dialect, blobs)
