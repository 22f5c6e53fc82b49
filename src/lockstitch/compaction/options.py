"""The options of a compaction, by name: one list of them for every call that compacts.

As callers write them (``Limits``, ``Options``) and, with what holds where nothing is said, as they
are read (``Bounds``, ``Wish``).
"""

from __future__ import annotations

from typing import TypedDict

from msgspec import Struct, structs

from lockstitch.compaction.counting import Counter
from lockstitch.compaction.plan import Budget, budget_of
from lockstitch.compaction.running import Clock, Progress
from lockstitch.errors import Unmet, UsageError


class Limits(TypedDict, total=False):
    """How far a compaction of anything may go.

    ``most_bytes`` is what a request may have beside its tokens, ``deadline`` the seconds that
    asking a model may take in all, ``call_timeout`` those for each question, and ``on_progress``
    is told how many questions are done, and of how many. ``ignore_pause`` asks a model also while
    it is left alone because it failed.
    """

    most_bytes: int | None
    deadline: float
    call_timeout: float | None
    on_progress: Progress | None
    ignore_pause: bool


class Options(Limits, total=False):
    """How a session of a store is compacted.

    ``counter`` counts the tokens of messages, and ``window`` is how many of them the model that
    sums up may be given at once.
    """

    counter: Counter | None
    window: int


class Bounds(Struct, frozen=True, kw_only=True):
    """``Limits`` with a budget of tokens; raises ``UsageError`` for what cannot be meant."""

    tokens: int
    most_bytes: int | None = None
    deadline: float = 60.0
    call_timeout: float | None = None
    on_progress: Progress | None = None
    ignore_pause: bool = False

    def __post_init__(self) -> None:
        """Read everything once: what is wrong is told also where nothing has to be done."""
        _ = self.budget, self.clock

    @property
    def budget(self) -> Budget:
        """What a request may cost."""
        return budget_of(self.tokens, self.most_bytes)

    @property
    def clock(self) -> Clock:
        """How long asking may take, from now on."""
        return Clock(self.deadline, self.call_timeout)

    def show(self, done: int, total: int) -> None:
        """Tell whoever wants to know how far it is."""
        if self.on_progress is not None:
            self.on_progress(done, total)


class Wish(Bounds, frozen=True, kw_only=True):
    """``Options`` with a budget of tokens, and the dialect of the request that has to meet it."""

    dialect: str | None = None
    counter: Counter | None = None
    window: int = 0

    def loosened(self, error: Unmet) -> Wish:
        """Return the least that can be met instead; raises the error again if there is none."""
        if not error.least:
            raise error
        return structs.replace(self, tokens=error.least, most_bytes=None)


def wished(budget: int | None, dialect: str, options: Options) -> Wish | None:
    """Return what a request has to keep to; None without a budget."""
    if budget is not None:
        return Wish(tokens=budget, dialect=dialect, **options)
    if Wish(tokens=1, **options).most_bytes is not None:
        raise UsageError("most_bytes= is for a compaction: give a budget= of tokens, too")
    return None
