"""Runs whose calls of one saver are interleaved step by step, in every order or a random one.

What a run does is a protocol of ``claims``: a generator of steps. A schedule says who takes
the next step; ``explored`` tries all of them, except that two reads in a row are tried in one
order only, since they cannot tell. A run may die in front of any of its steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from lockstitch.errors import Conflict
from lockstitch.integrations.langgraph import optimistic_lock
from lockstitch.integrations.langgraph.run_ids import ThreadPlace
from lockstitch.integrations.langgraph.saver_steps import (
    ListHeaders,
    PutCheckpoint,
    ReadCheckpoint,
    ReadHeader,
    SaverStep,
    Steps,
    perform,
)

if TYPE_CHECKING:
    from langgraph.checkpoint.memory import InMemorySaver

THREAD = ThreadPlace("t", "", None)


def number(value: int) -> str:
    """An id of LangGraph's kind that sorts by a number."""
    return f"1f000000-0000-6000-8000-{value:012x}"


def put_of(place: ThreadPlace, checkpoint: str, run: str) -> PutCheckpoint:
    body: Any = {
        "v": 4,
        "id": checkpoint,
        "ts": "",
        "channel_values": {},
        "channel_versions": {},
        "versions_seen": {},
        "updated_channels": None,
    }
    metadata: Any = optimistic_lock.sign({"source": "loop", "step": 0, "parents": {}}, run)
    return PutCheckpoint(place.config, body, metadata, {})


def first(run: str, ids: Iterator[int]) -> Steps[str]:
    """Begin the thread."""
    mine = number(next(ids))
    yield from optimistic_lock.put_first(THREAD, put_of(THREAD, mine, run), run, lambda _: False)
    return mine


def going_on(run: str, parent: str, ids: Iterator[int]) -> Steps[str]:
    """Build on a checkpoint that the run itself has put."""
    place, mine = THREAD.at(parent), number(next(ids))
    yield from optimistic_lock.check_claim(place, run)
    yield from optimistic_lock.put(place, put_of(place, mine, run), run)
    return mine


def turn(run: str, ids: Iterator[int]) -> Steps[str]:
    """Load the head, whatever it is, and build on it."""
    found = yield from optimistic_lock.find_head(THREAD)
    if found is None:
        return (yield from first(run, ids))
    place, mine = THREAD.at(optimistic_lock.id_of(found.saved)), number(next(ids))
    yield from optimistic_lock.claim_head(
        place, run, lambda _: False, optimistic_lock.writes_on(found.saved)
    )
    yield from optimistic_lock.put(place, put_of(place, mine, run), run)
    return mine


def quick_turn(run: str, ids: Iterator[int]) -> Steps[str]:
    """Load the head and build on it at once, without another look in front of the claim."""
    found = yield from optimistic_lock.find_head(THREAD)
    if found is None:
        mine = number(next(ids))
        step = put_of(THREAD, mine, run)
        yield from optimistic_lock.put_first(THREAD, step, run, lambda _: False, is_fresh=True)
        return mine
    place, mine = THREAD.at(optimistic_lock.id_of(found.saved)), number(next(ids))
    seen = optimistic_lock.writes_on(found.saved)
    yield from optimistic_lock.claim_head(
        place, run, lambda _: False, seen, optimistic_lock.outline(found)
    )
    yield from optimistic_lock.put(place, put_of(place, mine, run), run)
    return mine


def followed_turn(run: str, ids: Iterator[int]) -> Steps[str]:
    """Begin the thread with a checkpoint that is looked after once another one stands on it."""
    found = yield from optimistic_lock.find_head(THREAD)
    if found is not None:
        return (yield from turn(run, ids))
    root = number(next(ids))
    yield from optimistic_lock.put_first(
        THREAD, put_of(THREAD, root, run), run, lambda _: False, is_fresh=True, is_followed=True
    )
    place, mine = THREAD.at(root), number(next(ids))
    yield from optimistic_lock.put(place, put_of(place, mine, run), run)
    return mine


def turn_ahead(run: str, last: str, ids: Iterator[int]) -> Steps[str]:
    """Claim what is known to have been the head, and only then load it."""
    place = THREAD.at(last)
    yield optimistic_lock.claim_ahead(place, run)
    saved = yield ReadHeader(THREAD.config)
    if saved is None or not optimistic_lock.is_claimed(place, saved, run):
        return (yield from quick_turn(run, ids))
    mine = number(next(ids))
    yield from optimistic_lock.put(place, put_of(place, mine, run), run)
    return mine


def going_on_at_once(run: str, parent: str, ids: Iterator[int]) -> Steps[str]:
    """Build twice on what the run itself has put, without a look in front of it."""
    mine = parent
    for _ in range(2):
        place, mine = THREAD.at(mine), number(next(ids))
        yield from optimistic_lock.put(place, put_of(place, mine, run), run)
    return mine


def long_turn(run: str, ids: Iterator[int]) -> Steps[str]:
    """A turn of three checkpoints."""
    mine = yield from turn(run, ids)
    for _ in range(2):
        mine = yield from going_on(run, mine, ids)
    return mine


@dataclass
class Player:
    """One run, in front of its next step."""

    steps: Steps[str]
    step: SaverStep | None = None
    won: str | None = None
    lost: bool = False
    dead: bool = False

    def __post_init__(self) -> None:
        self._advanced(lambda: next(self.steps))

    @property
    def is_going(self) -> bool:
        return self.step is not None and not self.dead

    def take(self, saver: InMemorySaver) -> None:
        assert self.step
        result = self.step.done(saver)
        self._advanced(lambda: self.steps.send(result))

    def _advanced(self, go: Callable[[], SaverStep]) -> None:
        self.step = None
        try:
            self.step = go()
        except StopIteration as end:
            self.won = end.value
        except Conflict:
            self.lost = True


@dataclass
class Game:
    """One store and the runs on it."""

    saver: InMemorySaver
    players: list[Player]
    ids: Iterator[int] = field(default_factory=lambda: count(1000))

    def going(self) -> list[int]:
        return [index for index, player in enumerate(self.players) if player.is_going]

    def judge(self) -> None:
        """See that all that was reported as done is in one history, and that this can go on."""
        after = Player(turn("after", self.ids))
        while after.is_going:
            after.take(self.saver)
        assert after.won, "nobody can go on"
        line = self.line()
        for player in self.players:
            assert player.won is None or player.won in line, "a turn was lost without an error"
            assert not (player.lost and player.won)

    def line(self) -> list[str]:
        """The history of the head."""
        found = perform(self.saver, optimistic_lock.find_head(THREAD))
        ids: list[str] = []
        here = found.saved if found else None
        while here:
            ids.append(optimistic_lock.id_of(here))
            here = self.saver.get_tuple(here.parent_config) if here.parent_config else None
        return ids


def _choices(game: Game, last: tuple[int, bool]) -> list[int]:
    """Who may go next: of two reads one after the other, the player with the lower number first."""
    before, has_read = last
    return [
        index
        for index in game.going()
        if not (has_read and index < before and _is_read(game.players[index]))
    ]


def _is_read(player: Player) -> bool:
    return isinstance(player.step, ReadCheckpoint | ListHeaders)


def explored(make: Callable[[], Game], dying: Sequence[tuple[int, int]] = ()) -> Iterator[Game]:
    """Play a game in every order; ``dying`` names a player and the step it dies in front of."""
    stack: list[list[int]] = [[]]
    while stack:
        game, prefix = make(), stack.pop()
        if _played(game, prefix, stack, dying):
            yield game


def _played(
    game: Game, prefix: list[int], stack: list[list[int]], dying: Sequence[tuple[int, int]]
) -> bool:
    """Play one order, and note the others; False if it only repeats one of them."""
    taken, last = [0] * len(game.players), (-1, False)
    for number_of_turn in count():
        for player, steps in dying:
            game.players[player].dead |= taken[player] >= steps
        choices = _choices(game, last)
        if not choices:
            return not game.going()
        if number_of_turn == len(prefix):
            stack += [[*prefix, other] for other in choices[1:]]
            prefix = [*prefix, choices[0]]
        chosen = prefix[number_of_turn]
        last = chosen, _is_read(game.players[chosen])
        taken[chosen] += 1
        game.players[chosen].take(game.saver)
    raise AssertionError


def at_random(make: Callable[[], Game], seed: int, *, deaths: float = 0.0) -> Game:
    """Play a game in a random order, in which runs die now and then."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    game = make()
    while going := game.going():
        player = game.players[chance.choice(going)]
        if chance.random() < deaths:
            player.dead = True
        else:
            player.take(game.saver)
    return game
