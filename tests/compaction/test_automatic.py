"""A request with a budget: compacted in time, never in a batch, and never refused for it."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from lockstitch.compaction.plan import estimate
from lockstitch.compaction.running import CompactSettings
from lockstitch.errors import Busy, UsageError
from lockstitch.session.store import Store
from lockstitch.stores.base import Lease
from lockstitch.stores.memory import MemoryBackend
from tests.compaction.talks import BUDGET, GOOD, bodies, compactions, grown, requests
from tests.session.talk import asks, faults, says
from tests.session.twins import Twin, check_everywhere


def wish(tokens: int) -> CompactSettings:
    return CompactSettings(tokens=tokens, dialect="anthropic")


def test_it_compacts_when_it_must_and_not_again(twin: Twin, store: Store) -> None:
    """There is headroom then: the next turns go by without another one."""
    grown(store)
    asked: list[str] = []

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("<Q> next")
            roomy = await session.request("anthropic", budget=10**6)
            assert compactions(store) == 0
            messages = await session.request(
                "anthropic", budget=BUDGET, summarize=lambda p: asked.append(p) or GOOD
            )
            assert compactions(store) == 1
            count = len(asked)
            assert count >= 1
            assert estimate(messages) <= BUDGET * 0.65 < estimate(roomy)
            for number in range(4):
                again = await session.request("anthropic", budget=BUDGET, summarize=asked.append)
                assert faults("anthropic", again) == []
                await session.record(says("anthropic", "fine"))
                await session.say(f"<Q{number}> and then? " + "why " * 20)
            assert (compactions(store), len(asked)) == (1, count)
            with pytest.raises(UsageError):
                await session.request("anthropic", budget=0)

    twin.run(body)


def test_turn_by_turn_it_stays_within_the_budget(store: Store) -> None:
    """Over sixty turns every request fits, every one is valid, and few compactions do it."""
    with store.session("s") as session:
        for number in range(60):
            session.say(f"<U{number}> " + "word " * 150)
            messages = session.request("anthropic", budget=3000)
            assert estimate(messages) <= 3000
            assert f"<U{number}>" in str(messages)
            session.record(asks("anthropic", (f"c{number}", "read", {"path": f"p{number}"})))
            session.run_tools({"read": lambda path: f"{path} " + "line " * 300})
            messages = session.request("anthropic", budget=3000)
            assert estimate(messages) <= 3000
            session.record(says("anthropic", f"<A{number}> " + "so " * 100))
    assert 5 < compactions(store) < 40
    requests(store)


def test_never_in_the_middle_of_a_batch(twin: Twin, store: Store) -> None:
    grown(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("Look at two")
            await session.request("anthropic")
            calls = [("b1", "read", {"path": "1"}), ("b2", "read", {"path": "2"})]
            await session.record(asks("anthropic", *calls))
            seen: list[int] = []

            def look(path: str) -> str:
                inner = twin.inner(session)
                view = inner.state.view
                seen.append(len(inner.request("anthropic")))
                assert not inner._is_over(wish(BUDGET), inner.request("anthropic"))  # noqa: SLF001
                assert view.batch[0].is_running or view.batch[1].is_running
                return path

            await session.request("anthropic", budget=BUDGET)
            assert compactions(store) == 0, "the calls have not even begun"
            await session.run_tools({"read": look}, max_parallel=1)
            assert len(seen) == 2
            assert compactions(store) == 0
            messages = await session.request("anthropic", budget=BUDGET)
            assert compactions(store) == 1
            assert "b1" in str(messages)
            await check_everywhere(session)

    twin.run(body)


def test_what_cannot_be_met_gets_the_shortest_there_can_be(twin: Twin, store: Store) -> None:
    """Not even an impossible budget raises; and nobody is asked in vain, turn by turn."""
    grown(store)
    asked: list[str] = []
    big = "<BIG> " + "word " * 20_000

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say(big)
            whole = await session.request("anthropic")
            for _ in range(3):
                got = await session.request("anthropic", budget=500, summarize=asked.append)
                assert got == await session.request("anthropic")
                assert big in str(got)
                assert len(str(got)) < len(str(whole))
                assert len(str(got)) < len(big) + 1000

    old = len(bodies(store))
    twin.run(body)
    assert asked == []
    assert compactions(store) == 1
    assert len(bodies(store)) <= old + 3


def test_one_message_is_sent_whatever_the_budget(twin: Twin, store: Store) -> None:
    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("<ONLY> " + "word " * 2000)
            assert "<ONLY>" in str(await session.request("anthropic", budget=50))

    twin.run(body)
    assert compactions(store) == 0


@pytest.mark.parametrize("how", ["rewound", "compacted"])
def test_a_session_that_moved_meanwhile_is_sent_as_it_is_now(
    twin: Twin, store: Store, how: str
) -> None:
    grown(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("<Q>")
            inner = twin.inner(session)

            def summarize(_prompt: str) -> str:
                if how == "compacted":
                    inner.uncompact()
                elif inner.seq < 200:
                    inner.rewind(30)
                    inner.say("<ELSE>")
                return GOOD

            messages = await session.request("anthropic", budget=BUDGET, summarize=summarize)
            assert faults("anthropic", messages) == []
            assert GOOD not in str(messages)

    twin.run(body)


def test_large_results_do_not_fool_the_calibration(store: Store) -> None:
    """What is kept in a blob was asked, too: the figures of a provider are for all of it."""
    with store.session("s") as session:
        for number in range(3):
            session.say(f"<U{number}> read it all")
            session.request("anthropic")
            session.record(asks("anthropic", (f"c{number}", "read", {})))
            session.run_tools({"read": lambda: "line " * 20_000})
            guess = estimate(session.request("anthropic"))
            session.record({**says("anthropic"), "usage": {"input_tokens": guess}})
        session.say("<Q> next")
        inner: Any = session
        messages = session.request("anthropic")
        assert not inner._is_over(wish(estimate(messages) * 3 // 2), messages)  # noqa: SLF001
        assert inner._is_over(wish(estimate(messages) * 2 // 3), messages)  # noqa: SLF001


class Sometimes(MemoryBackend):
    """A store whose file another program has locked now and then."""

    is_locked = False

    def append(self, lease: Lease, entries: Any, after: int) -> Any:
        if self.is_locked:
            raise Busy("another program holds the file")
        return super().append(lease, entries, after)


def test_a_store_that_is_busy(twin: Twin) -> None:
    """What cannot be written down is no reason not to answer."""
    backend = Sometimes()
    store = Store(backend)
    grown(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("<Q> next")
            backend.is_locked = True
            got = await session.request("anthropic", budget=BUDGET, summarize=lambda _: GOOD)
            backend.is_locked = False
            assert faults("anthropic", got) == []
            assert "<Q> next" in str(got)
            await session.record(says("anthropic"))
            assert compactions(store) == 0
            await session.say("<R> again")
            await session.request("anthropic", budget=BUDGET, summarize=lambda _: GOOD)
            assert compactions(store) == 1

    twin.run(body)


@contextmanager
def stalling() -> Iterator[str]:
    """A provider that takes requests and never answers one; gives its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        taken: list[socket.socket] = []
        ended = threading.Event()

        def serve() -> None:
            listener.settimeout(0.05)
            while not ended.is_set():
                with suppress(TimeoutError, OSError):
                    taken.append(listener.accept()[0])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/messages"
        finally:
            ended.set()
            thread.join()
            for one in taken:
                one.close()


def test_a_provider_that_times_out_on_every_summary(twin: Twin, store: Store) -> None:
    """What people report: it freezes, for hours. Here the next message is answered in time."""
    grown(store)
    before, old = requests(store), bodies(store)
    asked: list[str] = []
    given_up: list[str] = []

    async def body(url: str) -> None:
        def summarize(prompt: str) -> str:
            asked.append(prompt)
            try:
                with urllib.request.urlopen(url, prompt.encode(), timeout=600) as answer:  # noqa: S310
                    return str(answer.read())
            finally:
                given_up.append(prompt)

        async with twin.opened(store) as session:
            await session.say("<NEXT> are you there?")
            # a machine that pauses may use up a short deadline before anybody is asked
            for deadline in (2, 20, 200):
                await session.uncompact()
                messages = await session.request(
                    "anthropic", budget=BUDGET, summarize=summarize, deadline=deadline
                )
                if asked:
                    break
            assert asked
            assert given_up == [], "the model was waited for"
            assert estimate(messages) <= BUDGET
            assert faults("anthropic", messages) == []
            assert "<NEXT> are you there?" in str(messages)
            assert "<U0>" in str(messages)
            await session.record(says("anthropic", "<HERE> I am"))
            await check_everywhere(session)
            await session.uncompact()

    with stalling() as url:
        twin.run(lambda: body(url))
    assert bodies(store)[: len(old)] == old
    after = requests(store)
    for dialect, messages in before.items():
        assert str(after[dialect]).startswith(str(messages)[:-2][:2000])
    text: Any = str(after["anthropic"])
    assert all(f"<U{n}>" in text and f"<A{n}>" in text for n in range(12))
