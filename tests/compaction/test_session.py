"""Sessions compacted while they are in use: old or new, never between, and nothing lost."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from lockstitch.compaction.plan import estimate
from lockstitch.errors import Moved, Unmet
from lockstitch.journal.projection import SUMMARY
from lockstitch.session.store import Store
from lockstitch.session.tool_run import Tool
from tests.compaction.talks import (
    BUDGET,
    GOOD,
    bodies,
    compactions,
    grow,
    grown,
    requests,
    shown,
    valid_everywhere,
)
from tests.session.talk import asks, says
from tests.session.twins import Twin, check_everywhere


def test_unmet_writes_nothing(twin: Twin, store: Store) -> None:
    with store.session("s") as session:
        session.say("word " * 5000)
        session.record(says("anthropic"))
        session.say("long " * 5000)
    before, old = requests(store), bodies(store)
    asked: list[str] = []

    async def body() -> None:
        async with twin.opened(store) as session:
            with pytest.raises(Unmet, match="tokens"):
                await session.compact(lambda p: asked.append(p) or GOOD, budget=3000)

    twin.run(body)
    assert asked == []
    assert requests(store) == before
    assert compactions(store) == 0
    assert bodies(store)[: len(old)] == old


def during(twin: Twin, session: Any, do: Any) -> Any:
    """A model during whose answer something else is done to the session, once."""
    inner = twin.inner(session)
    left = [do]

    def summarize(_prompt: str) -> str:
        while left:
            left.pop()(inner)
        return GOOD

    return summarize


def test_a_turn_that_comes_meanwhile_is_neither_lost_nor_moved(twin: Twin, store: Store) -> None:
    grown(store)

    def turn(inner: Any) -> None:
        inner.say("<NEW> what of this?")
        inner.request("anthropic")
        inner.record(
            asks("anthropic", ("new_1", "read", {"path": "new.py"}), text="<NR> Let me see")
        )

    async def body() -> None:
        async with twin.opened(store) as session:
            done = await session.compact(during(twin, session, turn), budget=BUDGET)
            assert done.rung == "summary"
            (call,) = await session.run_tools({"read": lambda path: f"<NO> {path}"})
            assert call.outcome == "ok"
            messages = await session.request("openai-chat")
            text = str(messages)
            places = [
                text.index(mark) for mark in (GOOD, "<U11>", "<A11>", "<NEW>", "<NR>", "<NO>")
            ]
            assert places == sorted(places)
            assert messages[-1]["role"] == "tool"
            await check_everywhere(session)

    twin.run(body)
    requests(store)


def test_a_large_turn_that_comes_meanwhile_does_not_spoil_it(twin: Twin, store: Store) -> None:
    """What was gained is gained, however much was said since; also in a blob of its own."""
    grown(store)

    def turn(inner: Any) -> None:
        inner.say("<NEW> " + "more " * 30_000)

    async def body() -> None:
        async with twin.opened(store) as session:
            done = await session.compact(during(twin, session, turn), budget=BUDGET)
            assert done.rung == "summary"
            assert done.after.tokens > 30_000
            text = str(await session.request("anthropic"))
            assert text.count("more ") == 30_000

    twin.run(body)


SUPERSEDED = {
    "rewound": lambda inner: inner.rewind(10),
    "compacted": lambda inner: inner.uncompact(),
    "rewound and back": lambda inner: (inner.rewind(10), inner.uncompact(), inner.undo_rewind()),
}


@pytest.mark.parametrize("how", ["rewound", "compacted"])
def test_a_superseded_compaction_is_refused(twin: Twin, store: Store, how: str) -> None:
    grown(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            with pytest.raises(Moved, match="nothing was written"):
                await session.compact(during(twin, session, SUPERSEDED[how]), budget=BUDGET)
            written = compactions(store)
            assert written == (0 if how == "rewound" else 1)
            await session.say("Still here")
            await check_everywhere(session)
            assert SUMMARY not in str(await session.request("anthropic"))
            if how == "compacted":
                assert (await session.compact(lambda _: GOOD, budget=BUDGET)).rung == "summary"

    twin.run(body)


def test_a_rewind_that_was_taken_back_supersedes_nothing(twin: Twin, store: Store) -> None:
    grown(store)

    async def body() -> None:
        async with twin.opened(store) as session:
            back = during(twin, session, lambda i: (i.rewind(10), i.undo_rewind()))
            assert (await session.compact(back, budget=BUDGET)).rung == "summary"
            await check_everywhere(session)

    twin.run(body)


def test_words_are_not_lost_when_the_turn_goes_on_meanwhile(twin: Twin, store: Store) -> None:
    """A cut inside the last turn keeps its words; more words must not take them away."""
    long_turn(store, 30)

    async def body() -> None:
        async with twin.opened(store) as session:
            more = during(twin, session, lambda inner: inner.say("<MORE> and quickly"))
            told: list[str] = []
            try:
                done = await session.compact(more, budget=BUDGET)
            except Moved:
                done = await session.compact(lambda p: told.append(p) or GOOD, budget=BUDGET)
            text = str(await session.request("anthropic"))
            assert done.event is not None
            assert "<MORE>" in text
            assert "<LONG> do all of it" in text + "".join(told), "nobody was told of it"

    twin.run(body)


def long_turn(store: Store, batches: int) -> None:
    """One turn with many batches, the last one open."""
    with store.session("s") as session:
        session.say("<LONG> do all of it")
        for number in range(batches):
            path = {"path": f"p{number}.py"}
            session.record(asks("anthropic", (f"c{number}", "read", path), text="so " * 200))
            session.run_tools({"read": lambda path: f"{path} " + "line " * 300})


def test_the_first_words_of_a_long_turn_stay(twin: Twin, store: Store) -> None:
    """A single turn above the budget is cut between its batches."""
    long_turn(store, 40)

    async def body() -> None:
        async with twin.opened(store) as session:
            done = await session.compact(lambda _: GOOD, budget=BUDGET)
            assert done.event is not None
            assert done.after.tokens <= BUDGET
            text = str(await session.request("anthropic"))
            assert "<LONG> do all of it" in text
            await check_everywhere(session)
            # later words are the last ones then, and another compaction must not lose the first
            await session.record(says("anthropic", "<END> all done"))
            for number in range(3):
                await session.say(f"<Q{number}> next " + "and " * 1500)
                await session.request("anthropic")
                await session.record(says("anthropic", f"<E{number}>" + "yes " * 1500))
                before = await session.request("anthropic")
                done = await session.compact(budget=BUDGET)
                text = str(await session.request("anthropic"))
                assert "<LONG>" in text, (number, done.rung, len(before))
                await check_everywhere(session)

    twin.run(body)


def test_words_kept_beside_a_summary_are_not_lost_by_shortening(store: Store) -> None:
    """The summary that stays says nothing of what was kept beside it."""
    long_turn(store, 40)
    with store.session("s") as session:
        first = session.compact(lambda _: GOOD, budget=4000)
        assert first.event
        assert first.event.through > 2
        session.record(says("anthropic", "<END> all done"))
        session.say("<LAST> go on")
        session.record(asks("anthropic", ("big", "read", {"path": "big.py"})))
        session.run_tools({"read": lambda path: path + "line " * 20_000})
        session.record(says("anthropic", "<READ> it is large"))
        session.say("<AND> so?")
        done = session.compact(budget=8000)
        assert done.event
        assert "<LONG>" in str(session.request("anthropic")), done.rung


def test_calls_that_wait_or_run_keep_their_pair(store: Store) -> None:
    release, began = threading.Event(), threading.Event()

    def slow() -> str:
        began.set()
        release.wait(600)
        return "<SLOW> done"

    with store.session("s") as session:
        session.say("begin")
        session.record(asks("anthropic", ("held", "danger", {"path": "x"}), text="<H> May I?"))
        session.run_tools({"danger": lambda path: path}, approve=True)
        for number in range(12):
            grow(session, number)
        session.say("Slowly, please")
        session.record(asks("anthropic", ("runs", "slow", {})))
        thread = threading.Thread(target=session.run_tools, args=({"slow": slow},), daemon=True)
        thread.start()
        assert began.wait(600)
        done = session.compact(lambda _: GOOD, budget=BUDGET)
        assert done.rung == "summary"
        found = str(session.request("openai-chat"))
        assert "held" in found
        assert "<H> May I?" in found
        assert "runs" in found
        assert "<U0>" not in found
        release.set()
        thread.join(600)
        assert "<SLOW> done" in str(session.request("openai-chat"))
        session.approve("held")
        (call,) = session.run_tools({"danger": lambda path: f"<D> {path}"})
        assert call.outcome == "ok"
        assert "<D> x" in str(session.request("openai-chat"))
    requests(store)


def test_a_large_summary_outlives_the_next_compaction(store: Store) -> None:
    """One that is kept in a blob is carried on with it."""
    grown(store, turns=40, size=16_000)
    words = "Notes: " + "ä" * 40_000

    def eighth(messages: Any, _dialect: str) -> int:
        return len(str(messages)) // 8

    with store.session("s") as session:
        done = session.compact(lambda _: words, budget=50_000, counter=eighth)
        assert done.rung == "summary"
        session.say("more")
        session.record(asks("anthropic", ("big", "read", {"path": "big.py"})))
        session.run_tools({"read": lambda path: path + "line " * 40_000})
        session.record(says("anthropic"))
        session.say("and?")
        done = session.compact(budget=50_000, counter=eighth)
        assert done.rung == "shortened"
        assert words in str(session.request("anthropic"))
    assert words in str(requests(store)["anthropic"])
    store.fork("s", "t")
    assert words in str(requests(store, "t")["anthropic"])


def test_a_summary_of_other_days_that_is_too_long_now(twin: Twin, store: Store) -> None:
    """A smaller model gets a shorter summary, and not none at all."""
    grown(store, turns=40, size=4000)
    long = "Notes: " + "fact " * 5000

    async def body() -> None:
        async with twin.opened(store) as session:
            first = await session.compact(lambda _: long, budget=40_000)
            assert first.rung == "summary"
            second = await session.compact(lambda _: GOOD, budget=3000)
            assert second.rung == "summary"
            assert second.after.tokens <= 3000
            with_none = await session.compact(budget=2000)
            assert with_none.after.tokens <= 2000
            await check_everywhere(session)

    twin.run(body)


def test_a_user_who_talks_into_every_reply(twin: Twin, store: Store) -> None:
    """No record number parts two turns then, and there is a way all the same."""

    async def body() -> None:
        async with twin.opened(store) as session:
            await session.say("<S0> begin")
            for number in range(20):
                await session.request("anthropic")
                await session.say(f"<S{number + 1}> and this? " + "why " * 400)
                await session.record(says("anthropic", f"<P{number}> " + "so " * 400))
            done = await session.compact(lambda _: GOOD, budget=BUDGET)
            assert done.rung == "summary"
            assert done.after.tokens <= BUDGET
            text = str(await session.request("anthropic"))
            assert "<S20>" in text
            assert text.count("<P19>") == 1
            await check_everywhere(session)

    twin.run(body)


def test_a_result_that_is_too_long_by_itself_is_sent_shortened(store: Store) -> None:
    """Of the last batch as well: whoever printed a whole log could never go on otherwise."""
    with store.session("s") as session:
        session.say("<U> Read the log")
        session.record(asks("anthropic", ("c1", "read", {}), ("c2", "read", {})))
        session.run_tools({"read": lambda: "<BEGIN> " + "line " * 50_000 + "<END>"})
        messages = session.request("anthropic", budget=5000)
        assert estimate(messages) <= 5000
        assert all(mark in str(messages) for mark in ("<U>", "<BEGIN>", "<END>"))
        valid_everywhere(session)
        assert all(len(session.output(call)) > 200_000 for call in session.calls)
        session.uncompact()
        assert estimate(session.request("anthropic")) > 100_000


def test_a_batch_of_which_a_call_waits_is_not_shortened(store: Store) -> None:
    tools = {"read": lambda: "line " * 50_000, "pay": Tool(lambda: "paid", approve=True)}
    with store.session("s") as session:
        session.say("<U> Read the log, and pay")
        session.record(asks("anthropic", ("c1", "read", {}), ("c2", "pay", {})))
        session.run_tools(tools)
        with pytest.raises(Unmet, match="nothing can be left out"):
            session.compact(budget=5000)


def test_a_batch_that_is_done_can_be_cut_off_within_the_last_turn(store: Store) -> None:
    with store.session("s") as session:
        session.say("<U> Look at everything")
        for number in range(3):
            session.record(asks("anthropic", (f"c{number}", "look", {"n": number})))
            session.run_tools({"look": lambda n: f"<O{n}> " + "so " * (9000 if n == 1 else 10)})
        done = session.compact(lambda _: GOOD, budget=1500)
        sent = shown(session)
        assert done.rung in {"shortened", "summary"}
        assert estimate(session.request("anthropic")) <= 1500
        assert "<U>" in sent
        assert "<O2>" in sent
        done = session.compact(lambda _: GOOD, budget=200)
        assert done.rung == "summary"
        assert "<O1>" not in shown(session)


@pytest.mark.parametrize("budget", range(100, 4000, 100))
def test_no_summary_is_made_that_stands_for_nothing(store: Store, budget: int) -> None:
    """And what a plan counts on is never less than what comes out."""
    with store.session("s") as session:
        session.say("<U> Look at everything " + "why " * 500)
        for number in range(3):
            session.record(asks("anthropic", (f"c{number}", "look", {"n": number})))
            session.run_tools({"look": lambda n: f"<O{n}> " + "so " * 1200})
        with suppress(Unmet):
            session.compact(lambda _: GOOD, budget=budget)
            assert estimate(session.request("anthropic")) <= budget
        if SUMMARY in shown(session):
            assert any(session.state.view.hides(item.seq) for item in session.items)


def test_thinking_that_goes_with_its_past_does_not_stand_against_a_budget(store: Store) -> None:
    """A plan counts it; what is written is weighed, so that no budget is refused for it."""
    thinking = {"type": "thinking", "thinking": "so " * 2000, "signature": "c2lnbmVk"}
    with store.session("s") as session:
        session.say("<U> Look at everything")
        for number in range(3):
            call = {"type": "tool_use", "id": f"c{number}", "name": "look", "input": {}}
            reply = {"role": "assistant", "model": "claude-fable-5-1", "content": [thinking, call]}
            session.record(reply, "anthropic")
            session.run_tools({"look": lambda: "seen " * 200})
        least = 0
        for budget in (3000, 2000, 1000, 600):
            with suppress(Unmet):
                done = session.compact(budget=budget)
                assert done.after.tokens <= budget
                assert estimate(session.request("anthropic")) <= budget
                least = budget
                session.uncompact()
        assert least == 600
        valid_everywhere(session)
