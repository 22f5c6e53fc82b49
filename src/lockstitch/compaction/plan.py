"""Compute what a conversation costs and where to cut it; nothing is changed.

Tokens are counted by the provider's own figures if there are any.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, product
from typing import Any

import msgspec
from msgspec import Struct, structs

from lockstitch.dialects.exchange import tokens_in
from lockstitch.dialects.media import head_of, pixels
from lockstitch.errors import Unmet, UsageError
from lockstitch.journal.events import Compacted, Replied, value_of
from lockstitch.journal.messages import said_as
from lockstitch.journal.projection import each_item
from lockstitch.journal.state import Item, JournalView, ModelReply, Spoken, SummaryInForce

Counter = Callable[[Sequence[Any], str], int]

CHARACTERS_A_TOKEN = 3.6
IMAGE_TOKENS = 1600
_PIXELS_A_TOKEN = 750
_MESSAGE_TOKENS = 4
_LEAST, _MOST = 0.25, 4.0
_EVERYTHING = 1 << 62
_ENCODE = msgspec.json.Encoder().encode
_ENCODED = re.compile(r"[A-Za-z0-9+/=_\s-]{64}")
_DATA_KEYS = frozenset({"data", "bytes", "base64", "image_url", "url", "file_data"})
_HEAD = 48 * 1024
_LONG = 256


class Cost(Struct, frozen=True):
    """Tokens and bytes."""

    tokens: int = 0
    bytes: int = 0

    def __add__(self, other: Cost) -> Cost:
        """Return the sum of both."""
        return Cost(self.tokens + other.tokens, self.bytes + other.bytes)

    def __sub__(self, other: Cost) -> Cost:
        """Return the difference of both."""
        return Cost(self.tokens - other.tokens, self.bytes - other.bytes)


class Weight(Struct, frozen=True):
    """The cost of an item when it is sent whole, and with its results shortened to each limit.

    ``now`` is what it costs as it is sent at present, which a compaction in force may have
    shortened.
    """

    item: Item
    whole: Cost
    short: Mapping[int, Cost]
    now: Cost

    @property
    def tokens(self) -> int:
        """The cost in tokens when the item is sent whole."""
        return self.whole.tokens


def estimate(messages: Sequence[Any], _dialect: str = "") -> int:
    """Estimate tokens: a text by its length, an image by its size in pixels, never by its bytes."""
    characters, images = 0, 0
    for text, is_data in _texts(messages, ""):
        if is_data:
            side = pixels(head_of(text.partition(",")[2] if text.startswith("data:") else text))
            tokens = max(side * side // _PIXELS_A_TOKEN, 1) if side else IMAGE_TOKENS
            images += min(tokens, IMAGE_TOKENS)
        else:
            characters += len(text)
    return round(characters / CHARACTERS_A_TOKEN) + images + _MESSAGE_TOKENS * len(messages)


def _texts(value: Any, key: str) -> Iterator[tuple[str, bool]]:
    """Yield every text in a value, and whether it is inline data."""
    if isinstance(value, str):
        may_be_data = len(value) >= _LONG and key in _DATA_KEYS
        is_encoded = may_be_data and (value.startswith("data:") or bool(_ENCODED.match(value)))
        yield value, is_encoded
    elif isinstance(value, bytes):
        yield b64encode(value[:_HEAD]).decode(), True
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield str(name), False
            yield from _texts(inner, str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, key)
    elif isinstance(value, int | float):
        yield str(value), False


def size_of(messages: Sequence[Any]) -> int:
    """Return the length of messages as JSON, base64 included."""
    try:
        return len(_ENCODE(messages))
    except (ValueError, OverflowError, TypeError):
        # half an emoji, or a number of very many digits: can be stored, but not sent
        return len(json.dumps(messages, default=str))


def weights(
    view: JournalView,
    dialect: str,
    limits: Sequence[int],
    *,
    counter: Counter | None = None,
    blobs: Mapping[str, bytes] | None = None,
) -> list[Weight]:
    """Return the weight of every item of a conversation, whole and shortened to some limits."""
    count = counter or calibrated(view, dialect, blobs)

    def weighed(seen: JournalView) -> list[Cost]:
        sent = (messages for _, messages in each_item(seen, dialect, blobs))
        return [Cost(count(messages, dialect), size_of(messages)) for messages in sent]

    whole = weighed(structs.replace(view, summary=None))
    short = {}
    for limit in limits:
        fact = Compacted(shortened=_EVERYTHING, limit=limit)
        summary = SummaryInForce(0, fact, 0, words=view.last_words)
        short[limit] = weighed(structs.replace(view, summary=summary))
    now = weighed(view) if view.summary and view.summary.event.shortened else whole
    return [
        Weight(item, whole[n], {limit: costs[n] for limit, costs in short.items()}, now[n])
        for n, item in enumerate(view.items)
    ]


def checked_counter(counter: Counter, dialect: str) -> Counter:
    """Try a caller's counter on a word; raise ``UsageError`` if it cannot count."""
    usage = "a counter is called as counter(messages, dialect) and must return a number of tokens"
    try:
        tokens: object = counter([said_as(dialect, "word")], dialect)
    except Exception as error:
        raise UsageError(f"{usage}; this one raised {type(error).__name__}") from error
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise UsageError(f"{usage}; this one returned something else")
    return counter


def calibrated(
    view: JournalView, dialect: str, blobs: Mapping[str, bytes] | None = None
) -> Counter:
    """Return a counter that agrees with the known cost of the last request."""
    factor = _factor(view, dialect, blobs)
    return lambda messages, dialect: round(estimate(messages, dialect) * factor)


def _factor(view: JournalView, dialect: str, blobs: Mapping[str, bytes] | None) -> float:
    """Return the ratio of a provider's latest figure to the estimate for the same request."""
    last = next((r for r in reversed(view.items) if isinstance(r, ModelReply) and _usage(r)), None)
    if last is None:
        return 1.0
    summary = view.summary
    is_older = summary is not None and last.after < summary.seq
    seen = structs.replace(view, summary=None) if is_older else view
    shown = {id(item) for item in seen.sent() if item.seq <= last.after}
    asked = [m for item, sent in each_item(seen, dialect, blobs) if id(item) in shown for m in sent]
    guess = estimate(asked, dialect)
    if summary is not None and summary.cut and not is_older:
        raw = (
            (blobs or {}).get(summary.event.blob, b"")
            if summary.event.blob
            else bytes(summary.event.payload)
        )
        guess += estimate([raw.decode("utf-8", "replace")])
    factor = min(_usage(last) / guess, _MOST) if guess else 1.0
    if factor < _LEAST:
        return 1.0  # no provider counts so low: some proxies report nothing, or 1
    # it is unknown whether an earlier summary was part of that request
    return max(factor, 1.0) if is_older else factor


def _usage(reply: ModelReply) -> int:
    """Return the cost of a reply's request by the provider's count, 0 if it does not say."""
    if not isinstance(reply.event, Replied) or reply.event.blob:
        return 0
    try:
        value = value_of(reply.event.payload, inner=True)
    except (ValueError, RecursionError):
        return 0
    return usage_in(value)


def usage_in(response: Any) -> int:
    """Return the tokens of a request as reported in its response, 0 if they are not."""
    tokens = tokens_in(response)
    return tokens.input if tokens else 0


LIMITS = (2000, 400)
# A compaction that only just fits would be needed again after the next turn.
TARGET = 0.6
_ROOM_SHARE = 4
_ROOM_MOST = 8000
ROOM_LEAST = 64
BYTES_A_TOKEN = 6


class TokenBudget(Struct, frozen=True):
    """The most that a request may cost; 0 bytes mean no limit."""

    tokens: int
    bytes: int = 0

    def __str__(self) -> str:
        """Return the budget in words."""
        return f"{self.tokens} tokens" + (f" and {self.bytes} bytes" if self.bytes else "")

    def holds(self, cost: Cost, share: float = 1.0) -> bool:
        """Whether a cost is within a share of the budget."""
        within = not self.bytes or cost.bytes <= self.bytes * share
        return within and cost.tokens <= self.tokens * share

    @property
    def room(self) -> int:
        """The number of tokens that a summary may have."""
        return max(min(self.tokens // _ROOM_SHARE, _ROOM_MOST), ROOM_LEAST)


def budget_of(tokens: object, most_bytes: object = None) -> TokenBudget:
    """Return a caller's budget; raise ``UsageError`` if it is not valid."""
    asked = [tokens] if most_bytes is None else [tokens, most_bytes]
    limits = [
        limit for limit in asked if isinstance(limit, int) and limit is not True and limit >= 1
    ]
    if len(limits) < len(asked):
        raise UsageError("a budget must be at least 1 token and 1 byte")
    return TokenBudget(*limits)


class CutPlan(Struct, frozen=True):
    """What to shorten: see ``Compacted``; ``hidden`` are the items that a summary has to cover.

    ``after`` includes the summary with all the ``room`` it may use. ``room`` is 0 if the existing
    summary stays.
    """

    through: int
    shortened: int
    limit: int
    before: Cost
    after: Cost
    hidden: list[Item]
    room: int = 0

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.room or self.shortened)


def _summed(costs: Iterable[Cost]) -> list[Cost]:
    return list(accumulate(costs, initial=Cost()))


class Planner:
    """Plans the compaction of one conversation for one budget.

    ``carried`` is its present summary.
    """

    def __init__(
        self,
        view: JournalView,
        weights: Sequence[Weight],
        budget: TokenBudget,
        carried: Cost | None = None,
    ) -> None:
        self.view = view
        self.budget = budget
        sent = {id(item) for item in view.sent()}
        self.weights = [weight for weight in weights if id(weight.item) in sent]
        self.items = [weight.item for weight in self.weights]
        # Running sums, so that the cost of a range of items is a difference.
        self.whole = _summed(weight.whole for weight in self.weights)
        self.short = {
            limit: _summed(weight.short[limit] for weight in self.weights) for limit in LIMITS
        }
        self.cut = view.summary.cut if view.summary else 0
        self.carried = carried or Cost()
        self.words = view.last_words
        self.lowest = list(accumulate((item.seq for item in reversed(self.items)), min))[::-1]
        self.allowed = self._allowed(boundaries(self.items))

    def _allowed(self, places: Sequence[int]) -> list[int]:
        """Return the places to cut before.

        They come after the present cut, so that it stays hidden.
        """
        found = [at for at in places if self.lowest[at] > self.cut]
        return [0, *found] if self.cut and self._stays else found

    @property
    def _stays(self) -> bool:
        """Whether the present summary can stay, since it does not cover what was kept beside it.

        A later compaction keeps other records: the user's last words of that time are not the last
        any more.
        """
        kept = self.view.unfinished(self.cut)
        return all(item.seq in kept for item in self.items if item.seq <= self.cut)

    def planned(self) -> CutPlan:
        """Return the smallest compaction that leaves headroom; raise ``Unmet`` if there is none."""
        before = sum((weight.now for weight in self.weights), self.carried)
        if self.budget.holds(before):
            return CutPlan(self.cut, 0, 0, before, before, [])
        for old in self._reaches():
            found = (
                self._by_shortening(before, old)
                or self._by_cutting(before, old)
                or self._by_shortening(before, old, share=1.0)
            )
            if found is not None:
                return found
        raise self._unmet(before)

    def _reaches(self) -> Iterator[int]:
        """Yield how many items count as old, so that their results may be shortened.

        First all items before the last reply, or before the last words if these are later. If that
        is not enough, the last reply as well, unless a call of it is waiting or about to run.
        """
        last = [n for n, item in enumerate(self.items) if isinstance(item, ModelReply | Spoken)]
        old = last[-1] if last else 0
        yield old
        item = self.items[old] if last else None
        if isinstance(item, ModelReply) and all(call.status == "closed" for call in item.calls):
            yield old + 1

    def _cost(self, begin: int, middle: int, limit: int) -> Cost:
        """Return the cost of the items from ``begin`` on; those before ``middle`` are shortened."""
        if not limit:
            return self.whole[-1] - self.whole[begin]
        middle = max(begin, middle)
        short = self.short[limit][middle] - self.short[limit][begin]
        return short + self.whole[-1] - self.whole[middle]

    def _by_shortening(self, before: Cost, old: int, share: float = TARGET) -> CutPlan | None:
        """Return a plan that shortens old results, oldest first, as far as needed.

        None if impossible.
        """
        if self.cut and not self._stays:
            return None
        for limit in LIMITS:
            costs = range(old + 1)
            at = bisect_left(
                costs,
                True,
                key=lambda n: self.budget.holds(self._cost(0, n, limit) + self.carried, share),
            )
            if 0 < at <= old:
                after = self._cost(0, at, limit) + self.carried
                return CutPlan(self.cut, self._reach(at), limit, before, after, [])
        return None

    def _reach(self, count: int) -> int:
        """Return the record up to which items are shortened."""
        return max(item.seq for item in self.items[:count])

    def _by_cutting(self, before: Cost, old: int) -> CutPlan | None:
        """Return a plan that replaces the beginning by a summary, as little of it as needed.

        Or None.

        It cuts between turns if that is enough, else in the last turn, else anywhere.
        """
        anywhere = self._allowed(boundaries(self.items, anywhere=True))
        turns = [at for at in self.allowed if not at or isinstance(self.items[at], Spoken)]
        ways = (turns, self.allowed, anywhere)
        for room, allowed in product((self.budget.room, ROOM_LEAST), ways):
            places = self._candidates(allowed, room, old)
            plans = [self._cut_at(at, before, room, old) for at in places]
            plans = [plan for plan in plans if plan.hidden or self.cut]
            good = next((plan for plan in plans if self.budget.holds(plan.after, TARGET)), None)
            enough = [plan for plan in plans if self.budget.holds(plan.after)]
            found = good or min(enough, key=lambda plan: plan.after.tokens, default=None)
            if found is not None:
                return found
        return None

    def _candidates(self, allowed: Sequence[int], room: int, old: int) -> list[int]:
        """Return a few cuts in order, from the first that may be enough to the largest."""
        least, summary = LIMITS[-1], _summary_cost(room)
        at = bisect_left(
            allowed,
            True,
            key=lambda n: self.budget.holds(self._cost(n, old, least) + summary, TARGET),
        )
        return [*allowed[max(at - 1, 0) : at + 4], *allowed[-1:]]

    def _cut_at(self, at: int, before: Cost, room: int, old: int) -> CutPlan:
        # up to the record before the first that stays, so that the results of hidden calls are
        # included
        through = max(self.lowest[at] - 1 if at else 0, self.cut)
        kept = self.view.unfinished(through)
        beside = [weight for weight in self.weights[:at] if weight.item.seq in kept]
        hidden = [item for item in self.items[:at] if item.seq not in kept]
        whole = self._cost(at, 0, 0) + self._beside(beside, 0) + _summary_cost(room)
        if self.budget.holds(whole, TARGET) or old <= at:
            return CutPlan(through, 0, 0, before, whole, hidden, room)
        rest = {
            limit: self._cost(at, old, limit) + self._beside(beside, limit) + _summary_cost(room)
            for limit in LIMITS
        }
        limit = next((one for one in LIMITS if self.budget.holds(rest[one], TARGET)), LIMITS[-1])
        return CutPlan(through, self._reach(old), limit, before, rest[limit], hidden, room)

    def _beside(self, weights: Sequence[Weight], limit: int) -> Cost:
        """Return the cost of what is kept beside a summary.

        The user's last words are sent whole.
        """
        costs = (
            weight.short[limit] if limit and weight.item.seq != self.words else weight.whole
            for weight in weights
        )
        return sum(costs, Cost())

    def _unmet(self, before: Cost) -> Unmet:
        last = self._allowed(boundaries(self.items, anywhere=True))[-1:]
        *_, old = self._reaches()
        cuts = [self._cut_at(at, before, ROOM_LEAST, old).after for at in last]
        least = min([*cuts, self._cost(0, old, LIMITS[-1]), before], key=lambda cost: cost.tokens)
        return unmet(before, least, self.budget)


def unmet(before: Cost, least: Cost, budget: TokenBudget) -> Unmet:
    """Return the error for a budget that cannot be met, with the figures that can be."""
    figures = f"a request of this session has {before.tokens} tokens and {before.bytes} bytes"
    if least.tokens >= before.tokens:
        return Unmet(f"{figures}, of which nothing can be left out; the budget is {budget}")
    figures += (
        f"; with everything left out that can be, it has {least.tokens} tokens and {least.bytes} "
        "bytes"
    )
    return Unmet(f"{figures}, and the budget is {budget}", least.tokens)


def _summary_cost(room: int) -> Cost:
    return Cost(room, room * BYTES_A_TOKEN)


def boundaries(items: Sequence[Item], *, anywhere: bool = False) -> list[int]:
    """Return the places to cut before: the beginning of each turn, and each reply of the last one.

    All records before a cut must have lower numbers than those after it, so that one number divides
    them. The last turn is cut only between its replies, and its first words stay. With
    ``anywhere``, every turn is treated like that: if the user talks into every reply, no number
    divides two turns.
    """
    last = max((n for n, item in enumerate(items) if isinstance(item, Spoken)), default=0)
    last = 0 if anywhere else last
    highest = list(accumulate((item.seq for item in items), max))
    lowest = list(accumulate((item.seq for item in reversed(items)), min))[::-1]
    return [
        at
        for at in range(1, len(items))
        if highest[at - 1] < lowest[at]
        and isinstance(items[at], Spoken if at <= last else ModelReply | Spoken)
    ]
