"""What the replies of a session cost, as far as their providers said so."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Raw, Struct, field

from lockstitch.dialects.usage import Tokens, tokens_in
from lockstitch.journal.events import Event, Forked, Partial, Replied, value_of
from lockstitch.journal.fold import Fact


class Spent(Struct, frozen=True):
    """Tokens of some replies; ``unknown`` of them say nothing of what they cost."""

    tokens: Tokens = Tokens()
    replies: int = 0
    unknown: int = 0

    @property
    def input(self) -> int:
        """All that was sent, what came from a cache included."""
        return self.tokens.input

    @property
    def output(self) -> int:
        """All that was generated, reasoning included."""
        return self.tokens.output

    @property
    def cached(self) -> int:
        """What of the input came from a cache."""
        return self.tokens.cached

    @property
    def cache_write(self) -> int:
        """What of the input was written to a cache."""
        return self.tokens.cache_write

    @property
    def reasoning(self) -> int:
        """What of the output was reasoning, as far as it was told."""
        return self.tokens.reasoning

    def __add__(self, other: Spent) -> Spent:
        """Add up."""
        return Spent(
            self.tokens + other.tokens, self.replies + other.replies, self.unknown + other.unknown
        )


class Usage(Spent, frozen=True):
    """What all replies of a session cost, and those of each model; "" is for no model's name.

    Replies that were rewound were paid for, and count. So do those that a fork was made with, and
    ``copied`` is what they cost: it was paid for in the session they were copied from.
    """

    models: dict[str, Spent] = field(default_factory=dict)
    copied: Spent = Spent()


def usage_of(facts: Iterable[Fact], payload: Callable[[Event], bytes]) -> Usage:
    """Add up what replies say they cost; ``payload`` gives what an event carries.

    What had come of a stream that broke off is a reply, too.
    """
    replies: dict[int | str, tuple[int, Replied | Partial]] = {}
    copied_upto = 0
    for fact in facts:
        event = fact.event
        if isinstance(event, Forked):
            copied_upto = max(copied_upto, event.at)
        elif isinstance(event, Replied) or (
            # a part counts until the whole of its stream is there
            isinstance(event, Partial) and not _is_whole(replies.get(event.stream or fact.seq))
        ):
            replies[event.stream or fact.seq] = (fact.seq, event)
    models: dict[str, Spent] = {}
    copied = Spent()
    for seq, event in replies.values():
        spent = _spent(payload(event))
        models[event.model] = models.get(event.model, Spent()) + spent
        copied += spent if seq <= copied_upto else Spent()
    total = sum(models.values(), Spent())
    return Usage(total.tokens, total.replies, total.unknown, models, copied)


def _is_whole(known: tuple[int, Replied | Partial] | None) -> bool:
    return known is not None and isinstance(known[1], Replied)


def _spent(payload: bytes) -> Spent:
    try:
        tokens = tokens_in(value_of(Raw(payload), inner=True))
    except (ValueError, RecursionError):
        tokens = None
    return Spent(tokens or Tokens(), 1, int(tokens is None))
