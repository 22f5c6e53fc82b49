"""The request to send: projected, checked by every rule, and healed or shortened if necessary.

An agent asks once a turn. What was said long ago does not change and was checked before, so each
request shares with the last one everything up to the first change, and continues from there.
Anything that changes an earlier place (a rewind, a compaction, a late result, another model) makes
the request start from scratch. Both ways lead to the same messages.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from lockstitch.conversation.parts import MEDIA, Message, MessageList, sort_parts
from lockstitch.dialects.base import QuickProof, as_text
from lockstitch.dialects.fast import Excerpt, encoded_size, find_excerpt
from lockstitch.dialects.media import Image, head_of, images_in, pixels
from lockstitch.dialects.profiles import VIEWS, Profile, new_dialect, profile_named, traits_of
from lockstitch.dialects.script import Ids
from lockstitch.errors import Unreadable
from lockstitch.heal import plan
from lockstitch.journal.events import Compacted, Partial, Replied
from lockstitch.journal.projection import (
    Mark,
    Projector,
    Receiver,
    is_large_text,
    last_reply_in,
    receiver_of,
)
from lockstitch.journal.records import Large
from lockstitch.journal.state import (
    CallOutcome,
    CallState,
    Item,
    JournalView,
    ModelReply,
    Spoken,
    SummaryInForce,
    leading,
    texts_in,
)
from lockstitch.repair.plan import Plan
from lockstitch.rules import Case, RequestContext, examine

# The code for a request that is larger than its provider accepts, and the limits on the length of
# each result, in characters, that are tried then.
_TOO_LONG = "LS504"
_LIMITS = (1_000_000, 100_000, 10_000, 1_000)
# Looking at this many replies is enough to see how a list ends.
_ENOUGH = 2
_MODELS = ("assistant", "model", "ai", "function_call", "reasoning")


def project(
    view: JournalView,
    dialect: str,
    *,
    model: str | None = None,
    provider: str | None = None,
    blobs: Mapping[str, bytes] | None = None,
) -> list[Any]:
    """Return the messages to send to a receiver; they satisfy every rule of its dialect.

    The receiver is the model that replied last in this dialect, unless ``provider`` and ``model``
    name another one. ``blobs`` holds the large values that :func:`wanted_blobs` names. Raises
    ``Unreadable`` if no valid request can be made.
    """
    receiver = receiver_of(view, dialect, provider, model)
    large = Large(blobs or {})
    limit = needed_limit(receiver, weights(view, large))
    projector = Projector(lighten(view, limit), receiver, large, limit)
    head = leading(texts_in(view, lambda event: as_text(projector.value.of(event))), dialect)
    messages = projector.native()
    judge = RequestJudge(dialect, receiver.model)
    if not judge.accepts(messages, projector.bound(messages)):
        messages = heal_request(projector, messages, dialect)
    return [*head, *messages]


def heal_request(projector: Projector, messages: list[Any], dialect: str) -> list[Any]:
    """Return a repaired request; raise ``Unreadable`` if no repair satisfies every rule."""
    receiver, large = projector.receiver, projector.large
    made = _repair(projector, messages, dialect)
    for limit in _LIMITS:
        if not isinstance(made, Plan) or _TOO_LONG not in _codes(made):
            break
        if not projector.limit or limit < projector.limit:
            projector = Projector(lighten(projector.view, limit), receiver, large, limit)
            made = _repair(projector, projector.native(), dialect)
    if isinstance(made, Plan):
        codes = ", ".join(sorted(_codes(made)))
        raise Unreadable(f"this session gives no valid {made.dialect} request ({codes})")
    return made


def _repair(projector: Projector, messages: list[Any], dialect: str) -> list[Any] | Plan:
    """Return the messages of a request after a repair, or the plan that failed to repair it."""
    model = projector.receiver.model or None
    made = plan(messages, dialect, model=model)
    if not made.healed:
        made = plan(projector.foreign(), dialect, model=model)
    return made.plain if made.healed else made


def _codes(made: Plan) -> set[str]:
    return {finding.code for finding in made.remaining}


def weights(view: JournalView, large: Large, start: int = 0, stop: int | None = None) -> list[int]:
    """Return lower bounds for the bytes of large results in a request, one for each length limit.

    The first bound is for results that are sent whole, the others are for ``_LIMITS`` in order.
    """
    totals, summary = [0] * (1 + len(_LIMITS)), view.summary
    if not view.has_large:
        return totals
    found: list[tuple[str, int | None]] = []
    for item in view.sent(start, stop):
        if type(item) is ModelReply:
            # The limit that a compaction has set for the results of this reply; None if there is
            # none.
            cap = summary.event.limit if summary and summary.shortens(item.seq) else None
            facts = [call.outcome.fact for call in item.calls if call.outcome is not None]
            found += [(fact.blob, cap) for fact in facts if is_large_text(fact)]
    sizes = large.sizes(list({name for name, _ in found}))
    caps = (max(sizes.values(), default=0), *_LIMITS)
    for name, cap in found:
        size = sizes[name] if cap is None else min(sizes[name], cap)
        totals = [total + min(size, most) for total, most in zip(totals, caps, strict=True)]
    return totals


def needed_limit(receiver: Receiver, totals: Sequence[int]) -> int:
    """Return the limit on each result's characters that makes a request fit, or 0 for no limit."""
    most = receiver.profile.max_bytes
    fitting = (limit for total, limit in zip(totals[1:], _LIMITS, strict=True) if total <= most)
    return 0 if not most or totals[0] <= most else next(fitting, _LIMITS[-1])


def lighten(view: JournalView, limit: int) -> JournalView:
    """Return a view that sends at most ``limit`` characters of each result, as after a compaction.

    A request must not exceed the size that its provider accepts.
    """
    if not limit:
        return view
    summary = view.summary or SummaryInForce(0, Compacted(), 0)
    last = max((item.seq for item in view.items), default=0)
    least = min(limit, summary.event.limit or limit)
    event = structs.replace(summary.event, shortened=last, limit=least)
    short = structs.replace(summary, event=event, words=view.last_words)
    return structs.replace(view, summary=short)


Who = tuple[str, str | None, str | None]
# How many requests are kept, each for another receiver.
_MOST = 2
# The last replies are made anew for each request, because callers like to mark its last messages.
_FRESH = 2
# How many replies before those are searched for a place to continue from.
_TRIED = 6


class RequestCache:
    """Makes the requests of one session; ``kept`` holds the reusable parts of the last ones."""

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
        """Return a request; messages that it shares with others are copied on first access."""
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
    """The reusable part of a request: the messages for the first ``count`` items of a view.

    ``around`` holds the last of these items and the reply after it. While both are still in their
    places, nothing was removed or inserted before them, or joined with the kept messages.
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
        """Whether the kept messages are still right for this view."""
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
        """Return the request, or None if it must be made from scratch or if it breaks a rule."""
        more = weights(view, large, self.count)
        limit = needed_limit(self.receiver, list(map(operator.add, self.weights, more)))
        # The user's last words are sent whole. If they may contain media, a request can be
        # continued only while the same words are the last.
        words = 0
        if limit:
            spoken = (item for item in view.items if type(item) is Spoken)
            last_words = max(spoken, key=lambda item: item.seq, default=None)
            words = last_words.seq if last_words and last_words.event.dialect else 0
        if self.count and (limit, words) != (self.limit, self.words):
            return None
        self.limit, self.words = limit, words
        projector = Projector(lighten(view, limit), self.receiver, large, limit)
        messages: list[Any] = []
        if self.count:
            # Continue after the kept messages.
            projector.changed = self.mark.changed
            projector.ids = self._ids
            projector.ids.back_to(self.mark.ids)
            messages = MessageList(self.messages)
        else:
            projector.open()
        # The next request can continue from a place between ``tried`` and ``fresh``. The last
        # replies are not among these places.
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
        # A valid start of a list stays valid, unless the template of the model counts turns from
        # it.
        if not self.judge.profile.template:
            places = [mark for mark in marks if mark.item <= fresh]
            self._keep_stable(projector, messages, places)
        self._projector, self._made = None, []
        if not self.judge.stable:
            return messages
        shared = messages if isinstance(messages, MessageList) else MessageList(messages)
        shared.share(self.judge.stable)
        return shared

    def _keep_stable(self, projector: Projector, messages: list[Any], marks: list[Mark]) -> None:
        """Keep the messages before the last of these places for the next request."""
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
        """Return a repaired request after :meth:`next` has found that a rule is broken."""
        assert self._projector is not None  # noqa: S101 - only after next() gave none
        return heal_request(self._projector, self._made, self.who[0])


class RequestJudge:
    """Checks the requests of one receiver, each of which extends the last.

    After :meth:`keep_stable` has said how many messages will not change, only the messages from
    ``context`` on are checked. Of the stable ones it keeps what some rules ask of a whole list:
    their ids, the number of images and cache markers, and their size in bytes.
    """

    def __init__(self, name: str, model: str | None) -> None:
        self.profile = profile_named(name)
        self.name = name
        self.model = model or None
        self.stable = 0
        self.context = 0
        self.ids: set[str] = set()
        self.images = 0
        self.markers = 0
        self.size = 0
        self._is_exact = True
        self._bound: int | None = None
        self._proof: QuickProof | None = None
        self._odd: list[Message] = []

    def accepts(self, messages: list[Any], bound: int | None) -> bool:
        """Whether no rule finds anything in a list.

        ``bound`` is an upper limit for the size of the list in bytes. It is given if everything
        after the stable messages consists of everyday parts.
        """
        self._bound, self._proof, self._odd = bound, None, []
        if self.stable:
            size, limit = encoded_size(messages[self.stable :]), self.profile.max_bytes
            if limit and not self._is_exact and self.size + size > limit:
                self.size, self._is_exact = encoded_size(messages[: self.stable]), True
            if size < 0 or (limit and self.size + size > limit):
                return False
            if bound is not None and self.model is None and self._is_proven(messages, self.stable):
                return True
            return self._is_fine(messages)
        if bound is not None:
            if self._is_proven(messages, 0) and self._ends_well(messages):
                return True
            if self.has_sound_excerpt(messages):
                return True
        return not Plan(messages, self.name, model=self.model).findings

    def has_sound_excerpt(self, messages: list[Any]) -> bool:
        """Whether no rule finds anything in the few places of a list that need a look.

        The caller knows that the list is small and that its text is clean. False may also mean that
        the list needs a longer look.
        """
        profile = self.profile
        kind = new_dialect(profile.dialect).walker
        walker = kind() if kind and not profile.name else None
        if walker is None or not messages:
            return False
        found = find_excerpt(messages, walker, with_ends=self.model is not None)
        if found is None:
            return False
        if found.numbers:
            case = _case(profile, self.model, [messages[number] for number in found.numbers], found)
            if examine(case):
                return False
            self._odd = case.messages
        self._proof = walker
        return True

    def _is_proven(self, messages: list[Any], start: int) -> bool:
        """Whether the fast check proves the new messages valid, wherever the list ends."""
        if self.profile.name or not messages:
            return False
        proof = VIEWS[self.profile.dialect].proof()
        is_walked = proof.run(messages, start, []) == len(messages)
        if is_walked and proof.is_sound() and self.ids.isdisjoint(proof.ids()):
            self._proof = proof
            return True
        return False

    def _ends_well(self, messages: list[Any]) -> bool:
        """Whether the end of an otherwise valid list is acceptable to this model."""
        if self.model is None:
            return True
        if traits_of(self.model).thought_signatures:
            return False
        start, replies = len(messages), 0
        while start > 1 and replies < _ENOUGH:
            start -= 1
            begins = _is_reply(messages[start]) and not _is_reply(messages[start - 1])
            replies += begins
        window = [messages[0], *messages[start:]] if start > 1 else messages
        return not examine(_case(self.profile, self.model, window))

    def _is_fine(self, messages: list[Any]) -> bool:
        """Whether no rule finds anything in the new messages, with the stable ones in mind."""
        start = self.context
        window = [messages[0], *messages[start:]] if start else messages
        case = _case(self.profile, self.model, window)
        if examine(case):
            return False
        first = self.stable - start + 1 if start else self.stable
        new = case.messages[first:]
        if not self.ids.isdisjoint(_ids_in(new)):
            return False
        # Images and markers add up over the whole list, and the receiver limits their number.
        profile = self.profile
        if profile.max_markers and self.markers + _markers_in(new) > profile.max_markers:
            return False
        images = list(_images_in(new)) if profile.many_images else []
        if self.images + len(images) <= profile.many_images:
            return True
        # larger images are accepted while there are few
        were_many = self.images > profile.many_images
        limit = profile.max_pixels_many
        return were_many and all(pixels(head_of(image.data)) <= limit for image in images)

    def keep_stable(self, messages: list[Any], count: int, context: int) -> None:
        """Treat the first ``count`` messages of the list that was accepted last as stable."""
        new = messages[self.stable : count]
        profile = self.profile
        needs_ids = profile.ids_unique or VIEWS[profile.dialect].ids_never_repeat
        if self._proof is not None:
            if needs_ids:
                self.ids.update(self._proof.ids())
                for message in messages[count:]:
                    self.ids.difference_update(self._proof.ids_in(message))
            view = self._odd
        else:
            view = new_dialect(profile.dialect).read(new)
            if needs_ids:
                self.ids.update(_ids_in(view))
        if profile.many_images:
            self.images += sum(1 for _ in _images_in(view))
        if profile.max_markers:
            self.markers += _markers_in(view)
        if not self.stable and self._bound is not None:
            self.size, self._is_exact = self._bound, False
        elif profile.max_bytes:
            self.size += encoded_size(new)
        self.stable, self.context = count, context


def _is_reply(message: Any) -> bool:
    """Whether a message or an item comes from a model."""
    return message.get("role") in _MODELS or message.get("type") in _MODELS


def _case(
    profile: Profile, model: str | None, messages: list[Any], found: Excerpt | None = None
) -> Case:
    dialect = new_dialect(profile.dialect)
    request = RequestContext(dialect, profile, traits_of(model), model=model)
    if found is not None:
        request = structs.replace(request, numbers=found.numbers, ids=found.ids)
    return Case(request, dialect.read(messages), encoded_size(messages))


def _ids_in(messages: list[Message]) -> Iterator[str]:
    """Yield the ids of calls, results and all other parts that have one."""
    for message in messages:
        raw = message.raw.get("id") if isinstance(message.raw, dict) else None
        if isinstance(raw, str):
            yield raw
        for part in message.parts:
            if part.id:
                yield part.id


def _images_in(messages: list[Message]) -> Iterator[Image]:
    parts = sort_parts(messages)
    media = [part for part in parts.rest if part.kind == MEDIA]
    media += [part for part in parts.results if type(part.raw.get("content")) is not str]
    for part in media:
        yield from images_in(part)


def _markers_in(messages: list[Message]) -> int:
    return sum(
        isinstance(part.raw, dict) and part.raw.get("cache_control") is not None
        for message in messages
        for part in message.parts
    )
