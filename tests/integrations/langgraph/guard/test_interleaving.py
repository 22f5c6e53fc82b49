"""Of runs that build on one checkpoint, in whatever order their calls come: never two succeed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from lockstitch.integrations.langgraph.saver_steps import perform
from tests.integrations.langgraph.guard.interleaving import (
    Game,
    Player,
    at_random,
    explored,
    first,
    followed_turn,
    going_on,
    going_on_at_once,
    long_turn,
    quick_turn,
    turn,
    turn_ahead,
)


def _two_beginners() -> Game:
    """Two turns on a thread that another run has begun."""
    saver, ids = InMemorySaver(), count(1)
    perform(saver, first("before", ids))
    return Game(saver, [Player(turn("one", ids)), Player(turn("two", ids))], ids)


def _taken_over() -> Game:
    """A run under way, and one that begins meanwhile."""
    saver, ids = InMemorySaver(), count(1)
    root = perform(saver, first("one", ids))
    return Game(saver, [Player(going_on("one", root, ids)), Player(turn("two", ids))], ids)


def _two_first() -> Game:
    """Two runs that both find the thread empty."""
    saver, ids = InMemorySaver(), count(1)
    return Game(saver, [Player(turn("one", ids)), Player(turn("two", ids))], ids)


def _two_ahead() -> Game:
    """Two turns that both know what was the head, and claim it before they read it."""
    saver, ids = InMemorySaver(), count(1)
    root = perform(saver, first("before", ids))
    players = [Player(turn_ahead(name, root, ids)) for name in ("one", "two")]
    return Game(saver, players, ids)


def _one_ahead() -> Game:
    """One that claims what was the head, and one that loads it first."""
    saver, ids = InMemorySaver(), count(1)
    root = perform(saver, first("before", ids))
    return Game(saver, [Player(turn_ahead("one", root, ids)), Player(quick_turn("two", ids))], ids)


def _taken_over_ahead() -> Game:
    """A run under way that does not look before it puts, and one that claims ahead meanwhile."""
    saver, ids = InMemorySaver(), count(1)
    root = perform(saver, first("one", ids))
    players = [Player(going_on_at_once("one", root, ids)), Player(turn_ahead("two", root, ids))]
    return Game(saver, players, ids)


def _two_quick() -> Game:
    """Two runs that both find the thread empty, and do not look again."""
    saver, ids = InMemorySaver(), count(1)
    return Game(saver, [Player(quick_turn("one", ids)), Player(quick_turn("two", ids))], ids)


def _two_followed() -> Game:
    """Two runs that both find the thread empty, and look only after their second checkpoint."""
    saver, ids = InMemorySaver(), count(1)
    players = [Player(followed_turn(name, ids)) for name in ("one", "two")]
    return Game(saver, players, ids)


def _one_followed() -> Game:
    """One that looks only after its second checkpoint, and one that looks at once."""
    saver, ids = InMemorySaver(), count(1)
    return Game(saver, [Player(followed_turn("one", ids)), Player(quick_turn("two", ids))], ids)


def _followed_crowd() -> Game:
    saver, ids = InMemorySaver(), count(1)
    players = [Player(followed_turn(name, ids)) for name in ("one", "two")]
    others = [Player(turn(name, ids)) for name in ("three", "four")]
    return Game(saver, [*players, *others], ids)


def _quick_crowd() -> Game:
    """A run under way, one that claims ahead, and two that load."""
    saver, ids = InMemorySaver(), count(1)
    root = perform(saver, first("one", ids))
    others = [Player(quick_turn(name, ids)) for name in ("three", "four")]
    under_way = Player(going_on_at_once("one", root, ids))
    return Game(saver, [under_way, Player(turn_ahead("two", root, ids)), *others], ids)


def _crowd() -> Game:
    """A run under way, and three that begin."""
    saver, ids = InMemorySaver(), count(1)
    root = perform(saver, first("one", ids))
    others = [Player(turn(name, ids)) for name in ("two", "three", "four")]
    return Game(saver, [Player(going_on("one", root, ids)), *others], ids)


def _first_crowd() -> Game:
    saver, ids = InMemorySaver(), count(1)
    return Game(saver, [Player(turn(name, ids)) for name in ("one", "two", "three")], ids)


def _long_turns() -> Game:
    """Four runs, each of three checkpoints, on a thread without any."""
    saver, ids = InMemorySaver(), count(1)
    names = ("one", "two", "three", "four")
    return Game(saver, [Player(long_turn(name, ids)) for name in names], ids)


GAMES = [
    _two_beginners,
    _taken_over,
    _two_first,
    _two_ahead,
    _one_ahead,
    _taken_over_ahead,
    _two_quick,
    _two_followed,
    _one_followed,
]
CROWDS = [_crowd, _first_crowd, _long_turns, _quick_crowd, _followed_crowd]


@pytest.mark.parametrize("make", GAMES)
def test_every_order_of_two_runs(make: Callable[[], Game]) -> None:
    ends: Counter[tuple[bool, ...]] = Counter()
    for game in explored(make):
        game.judge()
        ends[tuple(player.won is not None for player in game.players)] += 1
    # One after the other both succeed; when they meet, one of them does, or none.
    assert set(ends) == {(True, True), (True, False), (False, True), (False, False)}
    print(make.__name__, ends.total(), ends)  # noqa: T201 - figures of the report


@pytest.mark.parametrize("make", GAMES)
@pytest.mark.parametrize("dying", [0, 1])
def test_every_order_in_which_one_dies(make: Callable[[], Game], dying: int) -> None:
    games = 0
    for steps in range(9):
        for game in explored(make, [(dying, steps)]):
            game.judge()
            games += 1
    print(make.__name__, dying, games)  # noqa: T201 - figures of the report


@pytest.mark.parametrize("make", CROWDS)
def test_crowds_of_which_some_die(make: Callable[[], Game]) -> None:
    for seed in range(300):
        at_random(make, seed, deaths=seed % 3 / 50).judge()
