"""A request under a budget takes every option that a compaction takes."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest

from lockstitch import sessions, stored
from lockstitch.compaction.ladder import ATTEMPTS
from lockstitch.compaction.plan import estimate, size_of
from lockstitch.compaction.running import (
    CompactBounds,
    CompactLimits,
    CompactOptions,
    CompactSettings,
)
from lockstitch.errors import UsageError
from lockstitch.session.async_session import AsyncSession
from lockstitch.session.session import Session
from lockstitch.session.store import Store
from tests.compaction.talks import BUDGET, GOOD, bodies, compactions, grown
from tests.session.talk import faults
from tests.session.twins import Twin


def test_there_is_one_list_of_them() -> None:
    assert {*get_type_hints(CompactLimits)} == {*CompactBounds.__struct_fields__} - {"tokens"}
    assert {*get_type_hints(CompactOptions)} == {*CompactSettings.__struct_fields__} - {
        "tokens",
        "dialect",
    }
    whose: dict[Any, Any] = {
        Session.request: CompactOptions,
        Session.compact: CompactOptions,
        AsyncSession.request: CompactOptions,
        AsyncSession.compact: CompactOptions,
        stored.compact: CompactOptions,
        sessions.compact: CompactLimits,
        sessions.condensed: CompactLimits,
    }
    for function, kind in whose.items():
        [last] = [
            one
            for one in inspect.signature(function).parameters.values()
            if one.kind is inspect.Parameter.VAR_KEYWORD
        ]
        assert last.annotation == f"Unpack[{kind.__name__}]", function


def test_bytes(twin: Twin, store: Store) -> None:
    """Images fill a request long before its tokens do."""
    grown(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            whole = await session.request("anthropic", budget=10**6)
            most = size_of(whole) // 2
            assert compactions(store) == 0
            got = await session.request("anthropic", budget=10**6, most_bytes=most)
            assert (compactions(store), faults("anthropic", got)) == (1, [])
            assert size_of(got) <= most

    twin.run(body)


def test_bytes_that_nothing_can_meet(twin: Twin, store: Store) -> None:
    grown(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("<LAST> " + "word " * 3000)
            whole = await session.request("anthropic")
            got = await session.request("anthropic", budget=10**6, most_bytes=5000)
            assert "<LAST>" in str(got)
            assert size_of(got) < size_of(whole) // 2

    twin.run(body)


def test_a_counter_decides_also_whether_it_is_too_much(twin: Twin, store: Store) -> None:
    grown(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            few: dict[str, Any] = {"counter": lambda messages, _: estimate(messages) // 100}
            await session.request("anthropic", budget=BUDGET, **few)
            assert compactions(store) == 0
            whole = estimate(await session.request("anthropic"))
            many: dict[str, Any] = {"counter": lambda messages, _: estimate(messages) * 10}
            got = await session.request("anthropic", budget=whole, **many)
            assert compactions(store) == 1
            assert estimate(got) * 10 <= whole

    twin.run(body)


def test_the_window_of_the_model(twin: Twin, store: Store) -> None:
    grown(store, turns=40)
    asked: list[str] = []

    def summarize(prompt: str) -> str:
        asked.append(prompt)
        return GOOD

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.request("anthropic", budget=BUDGET, summarize=summarize, window=2000)
            estimates = [estimate([{"role": "user", "content": text}]) for text in asked]
            assert max(estimates) <= 2000
            assert len(asked) > 5

    twin.run(body)


def test_the_time_for_each_question_and_how_far_it_is(
    twin: Twin, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstitch.compaction.ladder._FIRST_PAUSE", 0.001)
    grown(store)
    seen: list[tuple[int, int]] = []
    asked: list[str] = []

    def fails(prompt: str) -> str:
        asked.append(prompt)
        raise ConnectionError

    async def body() -> None:
        async with twin.opened(store) as session:
            options: dict[str, Any] = {
                "summarize": fails,
                "call_timeout": 30,
                "deadline": 90,
                "on_progress": lambda done, total: seen.append((done, total)),
            }
            got = await session.request("anthropic", budget=BUDGET, **options)
            assert estimate(got) <= BUDGET
            await session.uncompact()
            await session.request("anthropic", budget=BUDGET, **options, ignore_pause=True)

    twin.run(body)
    assert len(asked) == len(seen) == 2 * ATTEMPTS
    assert seen[0][0] == 0


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no such option": ({"budget": 10**6, "deadlin": 5}, TypeError, "deadlin"),
    "nor without a budget": ({"deadlin": 5}, TypeError, "deadlin"),
    "a deadline": ({"budget": 10**6, "deadline": -1}, UsageError, "deadline must be a number"),
    "a timeout": (
        {"budget": 10**6, "call_timeout": "5"},
        UsageError,
        "call_timeout must be a number",
    ),
    "a budget": ({"budget": 0}, UsageError, "at least 1 token"),
    "bytes": ({"budget": 10**6, "most_bytes": 0}, UsageError, "at least 1 token and 1 byte"),
    "bytes alone": ({"most_bytes": 10**6}, UsageError, "pass a budget= of tokens, too"),
}


@pytest.mark.parametrize("how", WRONG)
def test_what_is_wrong_is_told_also_where_nothing_has_to_be_done(
    twin: Twin, store: Store, how: str
) -> None:
    grown(store)
    old = bodies(store)
    options, kind, words = WRONG[how]

    async def body() -> None:
        async with twin.opened(store) as session:
            with pytest.raises(kind, match=words):
                await session.request("anthropic", **options)
            if "budget" in options:
                with pytest.raises(kind, match=words):
                    await session.compact(**options)
            # as a program does that has no budget set
            await session.request("anthropic", budget=None, summarize=None, deadline=5)

    twin.run(body)
    assert bodies(store)[: len(old)] == old
