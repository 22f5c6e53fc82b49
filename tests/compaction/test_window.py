"""Histories that do not fit: ten times the window, and images that are all bytes and few tokens."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from lockstitch.compaction.ladder import ATTEMPTS, Ask, CompactionTask, Failure, ladder
from lockstitch.compaction.plan import TokenBudget, estimate, size_of
from lockstitch.session.store import Store
from tests.compaction.generated import image_in, png
from tests.compaction.talks import GOOD, bodies, grow, requests
from tests.session.talk import asks, says
from tests.session.twins import Twin, check_everywhere

WINDOW = 20_000


class Model:
    """A model with a window of its own, which refuses what does not fit in it."""

    def __init__(self, window: int, length: int = 0) -> None:
        self.window = window
        self.words = f"{GOOD} " + "fact " * length
        self.asked: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.asked.append(prompt)
        tokens = estimate([{"role": "user", "content": prompt}])
        assert tokens <= self.window, f"prompt is too long: {tokens} > {self.window}"
        return self.words


def tenfold(store: Store) -> None:
    """A history ten times larger than the window; with results that no shortening makes fit."""
    with store.session("s") as session:
        for number in range(100):
            grow(session, number, size=5000)
            if number == 50:
                session.say("<HUGE> " + "stuff " * 20_000)
                session.request("anthropic")
                session.record(says("anthropic", "<TOO> long"))
        session.say("<LAST> and now?")
        assert estimate(session.request("anthropic")) > 10 * WINDOW


@pytest.mark.parametrize("window", [0, WINDOW, 4000])
def test_ten_times_the_window(store: Store, window: int) -> None:
    """Every prompt fits the window of who sums up, also if that is smaller than the budget."""
    tenfold(store)
    old = bodies(store)
    model = Model(window or WINDOW)
    with store.session("s") as session:
        done = session.compact(model, budget=WINDOW, window=window)
        assert (done.rung, done.failures) == ("summary", ())
        assert done.asked == len(model.asked) > 5
        assert done.before.tokens > 10 * WINDOW
        messages = session.request("anthropic")
        assert estimate(messages) <= WINDOW * 0.65, "there is headroom"
        assert "<LAST> and now?" in str(messages)
    requests(store)
    assert bodies(store)[: len(old)] == old


@pytest.mark.parametrize("length", [200, 3000])
def test_a_model_that_talks_too_much(store: Store, length: int) -> None:
    """Notes longer than asked for are taken as long as all fits; else there is the digest."""
    tenfold(store)
    model = Model(WINDOW, length)
    with store.session("s") as session:
        done = session.compact(model, budget=WINDOW)
        assert done.rung in {"summary", "digest"}
        assert all("AssertionError" not in failure for failure in done.failures)
        assert estimate(session.request("anthropic")) <= WINDOW
    requests(store)


def test_ten_times_the_window_without_a_model(twin: Twin, store: Store) -> None:
    tenfold(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            done = await session.compact(budget=WINDOW)
            assert done.rung == "digest"
            assert done.after.tokens <= WINDOW
            await check_everywhere(session)

    twin.run(body)


def test_34_megabytes_of_images(store: Store) -> None:
    """At 15 % of the token window it is the bytes that are too many; they have their own limit."""
    data = png(400, 400, 1_710_000)
    with store.session("s") as session:
        for number in range(15):
            words = {"type": "text", "text": f"<U{number}> look"}
            session.say([words, image_in("anthropic", data)], dialect="anthropic")
            session.record(says("anthropic", f"<A{number}> I see."))
        session.say("<LAST> and?")
        messages, window = session.request("anthropic"), 200_000
        assert 15 * len(data) > 34_000_000
        # what no request may have is left out by itself; a gateway may take less than that
        assert size_of(messages) > 30_000_000
        assert estimate(messages) < window * 0.15
        assert session.compact(budget=window).rung == "nothing"
        done = session.compact(budget=window, most_bytes=20_000_000)
        assert done.rung == "shortened"
        assert done.before.bytes > 30_000_000
        text = json.dumps(session.request("anthropic"))
        assert len(text) <= 20_000_000 * 0.65
        assert all(f"<U{n}>" in text and f"<A{n}>" in text for n in range(15))
        assert text.count(data) >= 3, "no more is left out than needed"
        assert text.rindex(data) > text.index("<U13>"), "the newest are kept"
        session.uncompact()
        assert size_of(session.request("anthropic")) > 30_000_000


def test_the_last_words_keep_their_image(store: Store) -> None:
    """What the user asks about now is not left out, whatever stands behind it."""
    old, new = png(300, 300, 900_000), png(200, 200, 90_000)
    words: Any = {"type": "text", "text": "<LAST> what is this?"}
    with store.session("s") as session:
        for _ in range(5):
            session.say([image_in("anthropic", old)], dialect="anthropic")
            session.request("anthropic")
            session.record(says("anthropic"))
        session.say([words, image_in("anthropic", new)], dialect="anthropic")
        session.request("anthropic")
        session.record(asks("anthropic", ("c1", "zoom", {})))
        session.run_tools({"zoom": lambda: "line " * 40_000})
        session.request("anthropic")
        session.record(asks("anthropic", ("c2", "zoom", {})))
        session.run_tools({"zoom": lambda: "enlarged"})
        session.compact(budget=200_000, most_bytes=300_000)
        text = json.dumps(session.request("anthropic"))
        assert old not in text
        assert "<LAST> what is this?" in text
        assert new in text
    requests(store)


def test_a_model_that_fails_too_often_is_given_up(store: Store) -> None:
    """Two failures a question are borne with one of them, not with every one of many."""
    tenfold(store)
    tries: Counter[str] = Counter()
    answer: str | Failure | None = None
    total = 0
    with store.session("s") as session:
        budget = TokenBudget(WINDOW)
        view = session.state.snapshot()
        steps = ladder(CompactionTask(view, "anthropic", budget, {}, has_model=True, window=4000))
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as stop:
                done = stop.value
                break
            answer = None
            if isinstance(step, Ask):
                tries[step.key] += 1
                total = step.total
                answer = GOOD if tries[step.key] == ATTEMPTS else Failure("busy")
    assert total > ATTEMPTS
    assert (done.rung, len(done.failures)) == ("digest", ATTEMPTS + total)
