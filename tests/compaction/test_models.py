"""Models that fail in every way, and those that answer: what a session is like afterwards."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lockstitch.compaction.ladder import ATTEMPTS
from lockstitch.compaction.running import SILENT
from lockstitch.errors import Unmet, UsageError
from lockstitch.journal.projection import SUMMARY
from lockstitch.session.store import Store
from tests.compaction.talks import BUDGET, GOOD, bodies, compactions, grown, requests
from tests.session.twins import Twin, check_everywhere


class Overloaded(Exception):
    """What a provider's client raises."""

    status_code = 529


class Refused(Exception):
    """What a provider's client raises."""

    status_code = 400


def raising(error: BaseException) -> Any:
    def summarize(_prompt: str) -> str:
        raise error

    return summarize


BAD: dict[str, Any] = {
    "overloaded": raising(Overloaded("secret words of the user")),
    "refused": raising(Refused("secret words of the user")),
    "exit": raising(SystemExit(3)),
    "empty": lambda _: "",
    "blank": lambda _: " \n\t ",
    "dots": lambda _: "...",
    "error text": lambda _: "API Error: 529 overloaded_error, please try again in some minutes",
    "page": lambda _: "<html><head><title>502 Bad Gateway</title></head><body/></html>",
    "huge": lambda _: "summary " * 200_000,
    "none": lambda _: None,
    "bytes": lambda _: GOOD.encode(),
    "dict": lambda _: {"text": GOOD},
    "no arguments": lambda: GOOD,
}


def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between questions are short here."""
    monkeypatch.setattr("lockstitch.compaction.ladder._FIRST_PAUSE", 0.001)


@pytest.mark.parametrize("how", BAD)
def test_whatever_a_model_does_the_session_is_shorter_and_nothing_is_lost(
    twin: Twin, store: Store, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast(monkeypatch)
    grown(store)
    before, old = requests(store), bodies(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            done = await session.compact(BAD[how], budget=BUDGET, deadline=20)
            assert (done.rung, done.asked) == ("digest", ATTEMPTS)
            assert len(done.failures) == ATTEMPTS
            assert "secret" not in str(done.failures)
            assert done.after.tokens <= BUDGET < done.before.tokens
            text = str(await session.request("anthropic"))
            assert "<U11>" in text
            assert "<U0>" in text, "the digest has the user's words"
            assert SUMMARY in text
            await check_everywhere(session)
            await session.uncompact()
            await check_everywhere(session)

    twin.run(body)
    assert requests(store) == before
    assert bodies(store)[: len(old)] == old
    assert b"secret" not in b"".join(bodies(store))
    notes = [body for body in bodies(store)[len(old) :] if b'"noted"' in body]
    kept = [body for body in notes if b'"compaction"' in body]
    assert [body for body in kept if b'"payload":{"failures":1,' not in body] == [], "no summary"
    assert len(kept) == 1, "that it failed is kept, and nothing else"


def test_garbage_that_was_kept_once_is_never_taken_for_a_summary(
    twin: Twin, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast(monkeypatch)
    grown(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            for _ in range(2):
                done = await session.compact(BAD["error text"], budget=BUDGET)
                assert done.rung == "digest"
                assert "API Error" not in str(await session.request("anthropic"))
                await session.uncompact()
            done = await session.compact(lambda _: GOOD, budget=BUDGET)
            assert done.rung == "summary"

    twin.run(body)


async def _answers(_prompt: str) -> str:
    await anyio.lowlevel.checkpoint()
    return GOOD


class Client:
    """An object whose call is async, as some clients are."""

    async def __call__(self, prompt: str) -> str:
        return await _answers(prompt)


@pytest.mark.parametrize("summary", ["S", "SUMMARY", "Alles repariert.", "全部修好了"])
def test_a_short_summary_is_one(twin: Twin, store: Store, summary: str) -> None:
    grown(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            done = await session.compact(lambda _: summary, budget=BUDGET)
            assert (done.rung, done.failures) == ("summary", ())
            assert summary in str(await session.request("anthropic"))

    twin.run(body)


COUNTERS: dict[str, Any] = {
    "one argument": lambda _messages: 5,
    "raises": lambda *_: 1 // 0,
    "none": lambda *_: None,
    "negative": lambda *_: -5,
    "a part": lambda *_: 1.5,
}


@pytest.mark.parametrize("how", COUNTERS)
def test_a_counter_that_cannot_count_is_refused(twin: Twin, store: Store, how: str) -> None:
    grown(store)
    old = bodies(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            with pytest.raises(UsageError, match=r"counter\(messages, dialect\)"):
                await session.compact(budget=BUDGET, counter=COUNTERS[how])

    twin.run(body)
    assert bodies(store)[: len(old)] == old
    assert compactions(store) == 0


@pytest.mark.parametrize("how", ["function", "async", "partial", "object"])
def test_any_callable_will_do(twin: Twin, store: Store, how: str) -> None:
    """Sync or async, for either twin."""

    async def slow(_prompt: str, answer: str) -> str:
        if twin.kind != "trio":
            await asyncio.sleep(0)
        return answer

    ways: dict[str, Any] = {
        "function": lambda _: GOOD,
        "async": lambda p: slow(p, GOOD),
        "partial": partial(slow, answer=GOOD),
        "object": Client() if twin.kind != "sync" else (lambda p: slow(p, GOOD)),
    }
    grown(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            seen: list[tuple[int, int]] = []
            progress = lambda done, total: seen.append((done, total))  # noqa: E731
            done = await session.compact(ways[how], budget=BUDGET, on_progress=progress)
            assert (done.rung, done.failures) == ("summary", ())
            assert GOOD in str(await session.request("anthropic"))
            assert seen[0][0] == 0
            assert len(seen) == done.asked == seen[0][1]

    twin.run(body)


def test_a_model_that_never_answers_costs_no_more_than_the_deadline(
    twin: Twin, store: Store
) -> None:
    grown(store)
    release = threading.Event()

    async def body() -> None:
        async with twin.opened(store) as session:
            never = lambda _: release.wait()  # noqa: E731
            done = await session.compact(never, budget=BUDGET, deadline=0.3)
            assert done.rung == "digest"
            await check_everywhere(session)

    twin.run(body)
    release.set()


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
def test_an_async_model_that_never_answers_neither(
    store: Store, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast(monkeypatch)
    grown(store)

    async def forever(_prompt: str) -> str:
        await anyio.sleep_forever()
        return GOOD

    async def body() -> None:
        async with store.async_session("s") as session:
            done = await session.compact(forever, budget=BUDGET, call_timeout=0.1)
            assert (done.rung, done.asked) == ("digest", ATTEMPTS)

    anyio.run(body, backend=kind)


def test_an_async_model_that_swallows_its_cancellation_is_left_to_itself(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast(monkeypatch)
    grown(store)
    held, struck = [True], []

    async def stubborn(_prompt: str) -> str:
        while held:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError as error:
                struck.append(error)
        return GOOD

    async def body() -> None:
        async with store.async_session("s") as session:
            try:
                done = await session.compact(stubborn, budget=BUDGET, call_timeout=0.1)
                assert (done.rung, done.asked, done.unasked) == ("digest", 1, SILENT)
            finally:
                held.clear()

    anyio.run(body)
    assert struck


def test_a_model_that_is_cancelled_by_others_has_failed_and_nothing_else(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast(monkeypatch)
    grown(store)

    async def cancelled(_prompt: str) -> str:
        raise asyncio.CancelledError

    async def body() -> None:
        async with store.async_session("s") as session:
            done = await session.compact(cancelled, budget=BUDGET)
            assert (done.rung, set(done.failures)) == ("digest", {"CancelledError"})

    anyio.run(body)


def test_no_model_at_all(twin: Twin, store: Store) -> None:
    grown(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            done = await session.compact(budget=BUDGET)
            assert (done.rung, done.asked, done.failures) == ("digest", 0, ())
            again = await session.compact(budget=BUDGET)
            assert (again.rung, again.event) == ("nothing", None)
            with pytest.raises(Unmet, match="budget is 10 tokens"):
                await session.compact(budget=10)
            for wrong in (0, -1):
                with pytest.raises(UsageError):
                    await session.compact(budget=wrong)
                with pytest.raises(UsageError):
                    await session.compact(budget=5, most_bytes=wrong)

    twin.run(body)
    assert compactions(store) == 1


def test_answers_survive_and_are_not_asked_for_again(
    twin: Twin, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast(monkeypatch)
    grown(store, turns=40, size=4000)
    asked: list[str] = []

    def fails_late(prompt: str) -> str:
        asked.append(prompt)
        if len(set(asked)) > 3:
            raise Overloaded
        return f"{GOOD} {len(set(asked))}"

    def answers(prompt: str) -> str:
        asked.append(prompt)
        return GOOD

    async def first() -> None:
        async with twin.opened(store) as session:
            done = await session.compact(fails_late, budget=BUDGET)
            assert done.rung == "digest"
            await session.uncompact()

    async def second() -> None:
        async with twin.opened(store) as session:
            known = set(asked[:3])
            asked.clear()
            done = await session.compact(answers, budget=BUDGET)
            assert done.rung == "summary"
            assert not known & set(asked)
            assert len(asked) == done.asked

    twin.run(first)
    assert len(set(asked)) == 4
    twin.run(second)


def test_the_event_loop_is_free_while_a_long_history_is_weighed(store: Store) -> None:
    """A caller's counter, and with it all the weighing, runs beside the loop."""
    grown(store)
    threads: set[int] = set()

    def counter(messages: Any, _dialect: str) -> int:
        threads.add(threading.get_ident())
        return len(str(messages)) // 4

    async def body() -> int:
        async with store.async_session("s") as session:
            await session.compact(budget=BUDGET, counter=counter)
        return threading.get_ident()

    assert anyio.run(body) not in threads
