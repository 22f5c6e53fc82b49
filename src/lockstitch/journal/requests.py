"""Requests one after the other: each shares with the last one all that has not changed since.

An agent asks once a turn. What was said long ago stays as it is, and was judged before; so the
request is gone on with from a place behind which everything new stands. Whatever touches what is
before that place (a rewind, a compaction, a late result, another model) makes it start anew, and
both ways lead to the same messages.
"""

from __future__ import annotations

import operator
from typing import Any

from lockstitch.conversation.message_list import MessageList
from lockstitch.dialects.script import Ids
from lockstitch.journal.events import Partial, Replied
from lockstitch.journal.fast_projection import RequestJudge
from lockstitch.journal.projection import (
    Mark,
    Projector,
    Receiver,
    heal_request,
    last_reply_in,
    lighten,
    needed_limit,
    receiver_of,
    weights,
)
from lockstitch.journal.records import Large
from lockstitch.journal.state import CallOutcome, CallState, Item, JournalView, ModelReply, Spoken

Who = tuple[str, str | None, str | None]
# So many requests are kept, each for another receiver.
_MOST = 2
# The last replies of a request are made anew each time: callers like to mark its last messages.
_FRESH = 2
# So many replies before those are looked at for a place to go on from.
_TRIED = 6


class RequestCache:
    """Makes the requests of one session; ``kept`` is what stays of the last ones."""

    def __init__(self) -> None:
        self.kept: dict[Who, CachedRequest] = {}

    def make(
        self,
        view: JournalView,
        dialect: str,
        *,
        model: str | None = None,
        provider: str | None = None,
        large: Large,
    ) -> list[Any]:
        """Make a request; what it shares with others of these is copied when it is looked at."""
        who = (dialect, model, provider)
        kept = self.kept.pop(who, None)
        messages = kept.next(view, large) if kept is not None and kept.holds(view) else None
        if kept is None or messages is None:
            kept = CachedRequest(view, who)
            messages = kept.next(view, large)
        if messages is None:
            return kept.healed()
        self.kept[who] = kept
        while len(self.kept) > _MOST:
            del self.kept[next(iter(self.kept))]
        return messages


class CachedRequest:
    """What stays of a request: the messages of the first ``count`` items of a view.

    ``around`` are the last of those and the reply behind it: as long as they stand there, nothing
    was taken out before them, put between them, or joined with what is kept.
    """

    def __init__(self, view: JournalView, who: Who) -> None:
        dialect, model, provider = who
        self.who = who
        self.view = view
        self.summary = view.summary
        self.receiver: Receiver = receiver_of(view, dialect, provider, model)
        self.judge = RequestJudge(dialect, self.receiver.model)
        self.count = 0
        self.around: list[Item] = []
        self.limit = 0
        self.words = 0
        self.weights = [0] * len(weights(JournalView(), Large({})))
        self.mark = Mark(0, 0, 0, (0, 0, 0))
        self.messages: list[Any] = []
        self._reply: Replied | Partial | None = None
        self._ids = Ids(self.receiver.profile)
        self._loose: list[tuple[CallState, CallOutcome | None, int]] = []
        self._projector: Projector | None = None
        self._made: list[Any] = []

    def holds(self, view: JournalView) -> bool:
        """Whether nothing has happened to what is kept."""
        dialect, model, provider = self.who
        if view is not self.view or view.summary is not self.summary:
            return False
        items = view.items
        around = items[self.count - 1 : self.count + 1] if self.count else []
        if len(around) != len(self.around) or any(map(operator.is_not, around, self.around)):
            return False
        if any(call.outcome is not had or call.changed != at for call, had, at in self._loose):
            return False
        known = (self.count, self._reply)
        return self.receiver == receiver_of(view, dialect, provider, model, known)

    def next(self, view: JournalView, large: Large) -> list[Any] | None:
        """Return the request; None if it has to be made anew, or a rule finds something in it."""
        more = weights(view, large, self.count)
        limit = needed_limit(self.receiver, list(map(operator.add, self.weights, more)))
        words = _spelled_words(view) if limit else 0
        if self.count and (limit, words) != (self.limit, self.words):
            return None
        self.limit, self.words = limit, words
        projector = Projector(lighten(view, limit), self.receiver, large, limit)
        messages = self._begun(projector)
        # Return the numbers of two items: where places to go on from are looked for, and the last
        # one.
        # The last replies are not among them.
        found: list[int] = []
        at = len(view.items)
        while at > self.count and len(found) < _FRESH + _TRIED:
            at -= 1
            if type(view.items[at]) is ModelReply:
                found.append(at)
        last = found[_FRESH - 1] if len(found) >= _FRESH else -1
        tried, fresh = (found[-1] if found else self.count), last
        marks: list[Mark] = []
        projector.go_on(messages, self.count, tried)
        projector.go_on(messages, tried, None, marks)
        projector.close(messages)
        self._projector, self._made = projector, messages
        if not self.judge.accepts(messages, projector.bound(messages, self.judge.stable)):
            return None
        if self.judge.can_keep:
            places = [mark for mark in marks if mark.item <= fresh]
            self._keep_stable(projector, messages, places)
        self._projector, self._made = None, []
        if not self.judge.stable:
            return messages
        given = messages if isinstance(messages, MessageList) else MessageList(messages)
        given.share(self.judge.stable)
        return given

    def _begun(self, projector: Projector) -> list[Any]:
        """Return the messages that are kept, and let a projector go on behind them."""
        if not self.count:
            projector.open()
            return []
        projector.changed = self.mark.changed
        projector.ids = self._ids
        projector.ids.back_to(self.mark.ids)
        return MessageList(self.messages)

    def _keep_stable(self, projector: Projector, messages: list[Any], marks: list[Mark]) -> None:
        """Keep what comes before the last of some places."""
        places = [mark for mark in marks if mark.message > self.judge.stable]
        if not places or (not self.judge.stable and len(places) == 1):
            return
        mark = places[-1]
        context = self.judge.stable or places[-2].message
        self.judge.keep_stable(messages, mark.message, context)
        items = projector.view.items
        new = weights(self.view, projector.large, self.count, mark.item)
        self.weights = list(map(operator.add, self.weights, new))
        for item in items[self.count : mark.item]:
            if type(item) is ModelReply:
                self._loose += [
                    (call, call.outcome, call.changed)
                    for call in item.calls
                    if call.outcome is None or not call.outcome.is_real
                ]
        dialect = self.receiver.profile.dialect
        self._reply = last_reply_in(projector.view, dialect, self.count, self._reply, mark.item)
        self.messages += messages[len(self.messages) : mark.message]
        self.count, self.mark = mark.item, mark
        self.around = items[mark.item - 1 : mark.item + 1]
        self._ids = projector.ids

    def healed(self) -> list[Any]:
        """Return a request in which what a rule found is repaired."""
        assert self._projector is not None  # noqa: S101 - only after next() gave none
        return heal_request(self._projector, self._made, self.who[0])


def _spelled_words(view: JournalView) -> int:
    """Return where the user spoke last, if that may hold media, which go out whole as the last."""
    spoken = (item for item in view.items if type(item) is Spoken)
    last = max(spoken, key=lambda item: item.seq, default=None)
    return last.seq if last is not None and last.event.dialect else 0
