"""What must be true of a session once it is compacted, whatever happened on the way."""

from __future__ import annotations

import json
from typing import Any

import lockstitch
from lockstitch.compaction.plan import TokenBudget, estimate, size_of
from lockstitch.journal.events import Compacted, Event, entry_of
from lockstitch.journal.projection import SUMMARY, wanted_blobs
from lockstitch.journal.records import JournalRecord, blob_name
from lockstitch.journal.requests import project
from lockstitch.journal.state import CallState, JournalView, ModelReply, Spoken, fold
from tests.compaction.generated import MARK
from tests.journal.sessions import Session
from tests.journal.shown import DIALECT_RECEIVERS, refused, text_of
from tests.kinds_of_break.pairs import pairs

# What stands around a summary on the wire, and between messages: no plan counts it.
AROUND = 60


def sent(view: JournalView, session: Session, dialect: str) -> list[Any]:
    """The request of a view, which every judge accepts."""
    blobs = {name: session.blobs[name] for name in wanted_blobs(view)}
    messages = project(view, dialect, blobs=blobs)
    assert lockstitch.check(messages, dialect) == [], dialect
    assert refused(dialect, messages) == [], dialect
    return messages


def everywhere(view: JournalView, session: Session) -> dict[str, list[Any]]:
    """The requests of a view to everybody."""
    return {name: sent(view, session, name) for name, _, _ in DIALECT_RECEIVERS}


def extended(session: Session, event: Event) -> Session:
    """A session with one more fact; what was there is what it was."""
    entry = entry_of(event, "", 0)
    made = Session([*session.records], {**session.blobs})
    for raw in entry.blobs:
        made.blobs[blob_name(raw)] = raw
    made.add(entry.body)
    assert made.records[:-1] == session.records
    return made


class After:
    """A session before and after the fact of a compaction."""

    def __init__(
        self, session: Session, event: Compacted, budget: TokenBudget, dialect: str
    ) -> None:
        self.before = fold(session.records).view
        self.session = extended(session, event)
        self.view = fold(self.session.records).view
        self.event = event
        self.budget = budget
        self.dialect = dialect
        self.last = max((i.seq for i in self.before.items if isinstance(i, Spoken)), default=0)

    def hides(self, seq: int) -> bool:
        """What the words of the contract say is not sent any more."""
        calls = [c for c in self.before.calls.values() if c.reply == seq]
        through = self.event.through
        unsettled = any(self._is_unsettled(call) for call in calls)
        return seq <= through and seq != self.last and not unsettled

    def _is_unsettled(self, call: CallState) -> bool:
        replies = [item for item in self.before.items if isinstance(item, ModelReply)]
        if call.status == "open":
            return call.reply == replies[-1].seq
        outcome = call.outcome
        return outcome is None or call.status == "started" or outcome.seq > self.event.through

    def _is_kept(self, item: Spoken | ModelReply) -> bool:
        """Whether it is sent: not if it is hidden, nor if it broke off and is asked for again."""
        broken = self.view.broken_reply
        return not self.hides(item.seq) and (broken is None or item.seq != broken.seq)

    def check(self) -> None:
        """Assert every claim."""
        shown = everywhere(self.view, self.session)
        for dialect, messages in shown.items():
            text = text_of(messages)
            self._check_summary(text)
            self._check_words(text)
            self._check_pairs(dialect, messages)
        self._check_cost(shown[self.dialect])
        self._check_undone()

    def _check_summary(self, text: str) -> None:
        label = json.dumps(SUMMARY)[1:-1]
        assert text.count(label) == (1 if self.event.through else 0)

    def _check_words(self, text: str) -> None:
        """What is kept is there, and the last words of the user are there whole."""
        for item in self.before.items:
            if isinstance(item, Spoken | ModelReply) and self._is_kept(item):
                marks = self._marks(item.event)
                assert [mark for mark in marks if f"{mark} " not in text] == [], "words are lost"
                ends = [f"/{mark[1:-1].lower()}/" for mark in marks]
                assert [end for end in ends if end not in text] == [], "words are cut"

    def _marks(self, event: Event) -> list[str]:
        raw = self.session.blobs[event.blob] if event.blob else bytes(event.payload)
        return list(dict.fromkeys(MARK.findall(raw.decode("utf-8", "replace"))))

    def _check_pairs(self, dialect: str, messages: list[Any]) -> None:
        replies = [i for i in self.before.items if isinstance(i, ModelReply) and self._is_kept(i)]
        calls = [call for reply in replies for call in reply.calls]
        found = pairs(dialect, messages)
        assert len(found) == len(calls), "a pair is split, or a call is lost"
        for reply in replies:
            asked = [mark for mark in self._marks(reply.event) if mark.startswith("<A")]
            for call, mark in zip(reply.calls, asked, strict=False):
                [result] = [result for made, result in found if f"{mark} " in made]
                expected = self._marks(call.outcome.fact) if call.outcome else []
                assert [one for one in expected if one not in result] == [], "another's result"

    def _check_cost(self, messages: list[Any]) -> None:
        assert self.gains(messages)
        assert estimate(messages) <= self.budget.tokens + AROUND
        if self.budget.bytes:
            assert size_of(messages) <= self.budget.bytes + 6 * AROUND

    def gains(self, messages: list[Any] | None = None) -> bool:
        """Whether less is sent than before; what gains nothing is never written."""
        after = messages or sent(self.view, self.session, self.dialect)
        before = sent(self.before, self.session, self.dialect)
        if self.budget.bytes and size_of(before) > self.budget.bytes:
            return size_of(after) < size_of(before)
        return estimate(after) < estimate(before)

    def _check_undone(self) -> None:
        """Taken back, it is as if it had never been."""
        undone = extended(self.session, Compacted())
        plain = extended(Session(self.session.records[:-1], self.session.blobs), Compacted())
        views = [fold(one.records).view for one in (undone, plain)]
        first, second = (sent(view, undone, self.dialect) for view in views)
        assert first == second


def same(one: list[JournalRecord], other: list[JournalRecord]) -> bool:
    """Whether records are the same bytes."""
    return [(r.seq, r.key, r.body, r.digest) for r in one] == [
        (r.seq, r.key, r.body, r.digest) for r in other
    ]
