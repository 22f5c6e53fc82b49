"""A summarizer that is down: asked again after a growing pause, and never by two threads."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, structs

import lockstitch
from lockstitch import sessions
from lockstitch.compaction import running
from lockstitch.compaction.ladder import ATTEMPTS, Compaction
from lockstitch.compaction.plan import Cost
from lockstitch.compaction.running import (
    PAUSES,
    SILENT,
    Pauses,
    Question,
    Summarizer,
    SummarizerPast,
    latest_past,
    name_of,
)
from lockstitch.session.store import Store
from tests.compaction import generated
from tests.compaction.generated import Schedule
from tests.compaction.talks import BUDGET, GOOD, bodies, compactions, grown
from tests.compaction.test_ladder import budget, judged, task_of
from tests.formats.claude_files import Book, joined
from tests.journal.sessions import Session
from tests.session.talk import faults
from tests.session.twins import Twin, check_everywhere

FEWER = settings(max_examples=max(1, settings().max_examples // 3))
NINE = 9
START = 1_800_000_000.0


@dataclass
class Time:
    """A time of day that nobody waits for."""

    now: float = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(running, "_now", made)
    monkeypatch.setattr("lockstitch.compaction.ladder._FIRST_PAUSE", 0.001)
    return made


@dataclass
class Down:
    """A model that does what it is told to, and counts."""

    answer: Callable[[str], Any] = lambda _: ""
    asked: list[float] = field(default_factory=list)
    time: Time = field(default_factory=Time)

    def summarize(self, prompt: str) -> Any:
        self.asked.append(self.time.now)
        return self.answer(prompt)


def raises(_prompt: str) -> str:
    raise ConnectionError


class Hanging:
    """A model that never returns until it is let go; as an async function or as a plain one."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.asked = 0
        self.inside = 0

    def __call__(self, _prompt: str) -> str:
        self.asked += 1
        self.inside += 1
        self.let_go.wait()
        self.inside -= 1
        return GOOD

    async def awaited(self, _prompt: str) -> str:
        self.asked += 1
        self.inside += 1
        try:
            await anyio.sleep_forever()
        finally:
            self.inside -= 1
        return GOOD


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.let_go.set()


class TestThePause:
    """What is decided, from figures alone."""

    def test_it_doubles_up_to_the_longest(self) -> None:
        minutes = [PAUSES.after(failures) / 60 for failures in range(10)]
        assert minutes == [0, 0.5, 1, 2, 4, 8, 16, 30, 30, 30]
        assert PAUSES.after(10**9) == 1800

    @given(
        failures=st.integers(0, 200),
        first=st.floats(0.001, 1e6),
        longest=st.floats(0.001, 1e6),
        gone=st.floats(-1e7, 1e7),
    )
    def test_it_is_over_when_it_is_over(
        self, failures: int, first: float, longest: float, gone: float
    ) -> None:
        pauses = Pauses(first, longest)
        assert pauses.after(failures) <= pauses.after(failures + 1) <= longest
        until = SummarizerPast(failures, START).paused_until(START + gone, pauses)
        if until is None:
            assert gone <= 0 or gone >= pauses.after(failures) - 0.001
        else:
            assert START <= START + gone < until <= START + pauses.after(failures)

    def test_what_is_yet_to_come_counts_for_nothing(self) -> None:
        """A clock was put back."""
        assert latest_past(
            [SummarizerPast(3, START + 1), SummarizerPast(1, START - 5)], START
        ) == SummarizerPast(1, START - 5)
        assert SummarizerPast(3, START + 1).paused_until(START) is None

    @given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), max_size=12))
    def test_failures_in_a_row_are_counted(self, life: list[tuple[int, int, bool]]) -> None:
        past, in_a_row = SummarizerPast(), 0
        for moment, (failed, answered, is_summary) in enumerate(life, start=1):
            done = Compaction(
                "summary" if is_summary and answered else "digest",
                Cost(),
                Cost(),
                asked=failed + answered,
                failures=("x",) * failed,
            )
            before, past = past, past.after(done, float(moment))
            if not done.asked:
                assert past is before
                continue
            if answered:
                in_a_row = 0
            in_a_row += done.rung == "digest"
            assert past == SummarizerPast(in_a_row, float(moment))


@dataclass
class Guarded(Schedule):
    """A schedule that asks only a model that may be asked."""

    model: Any = None

    def _taken(self, step: Any) -> Any:
        reason = self.model.unasked if isinstance(step, generated.Ask) else ""
        return generated.Unasked(reason) if reason else super()._taken(step)


@FEWER
@given(
    session=generated.sessions(),
    life=st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, 29.0, 31.0, 100.0, 2000.0]), generated.schedules()),
        min_size=1,
        max_size=9,
    ),
)
def test_over_any_life_it_is_asked_only_outside_its_pauses(
    session: Session, life: list[tuple[float, Schedule]]
) -> None:
    """On a virtual clock, with any failures: and each compaction is valid all the same."""
    limit = budget(session, "anthropic", 0.4)
    time, past, until = Time(), SummarizerPast(), 0.0
    before, running._now = running._now, time  # noqa: SLF001
    try:
        for gap, planned in life:
            time.now += gap
            # made anew each time, as for each request: what is known is what a session kept
            model = Summarizer(lambda _: GOOD, past=past)
            schedule = Guarded(
                planned.answers, planned.seconds, planned.deadline, planned.each, model=model
            )
            done = judged(session, task_of(session, limit, "anthropic"), schedule)
            if done is None:
                continue
            assert not schedule.prompts or time.now >= until, "asked in the pause"
            assert not (time.now < until and done.unasked == "") or done.rung != "digest"
            time.now += schedule.now
            learnt = model.learn(done)
            past = learnt or past
            if done.asked:
                until = past.since + PAUSES.after(past.failures) if past.failures else 0.0
                assert bool(past.failures) == (done.rung != "summary")
    finally:
        running._now = before  # noqa: SLF001


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("lockstitch")}


@pytest.mark.parametrize("how", ["request", "compact"])
def test_nine_in_a_row_wait_once_and_leave_one_thread(
    twin: Twin, store: Store, hanging: Hanging, how: str
) -> None:
    """What was reported: each waited for all of its deadline, and left a thread."""
    grown(store)
    old = threads()

    async def body() -> None:
        async with twin.opened(store) as session:
            for number in range(NINE):
                if how == "request":
                    options = {"summarize": hanging, "deadline": 2}
                    messages = await session.request("anthropic", budget=BUDGET, **options)
                    assert faults("anthropic", messages) == []
                else:
                    done = await session.compact(hanging, budget=BUDGET, deadline=2)
                    assert (done.rung, done.asked) == ("digest", int(number == 0))
                    assert ("paused until" in done.unasked) == (number > 0)
                assert compactions(store) == 2 * number + 1
                await session.uncompact()
            await check_everywhere(session)

    twin.run(body)
    assert hanging.asked == 1
    # whoever is just about to end gets a moment to
    for thread in threads() - old:
        thread.join(0.2)
    assert len(threads() - old) == 1


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
def test_an_async_one_is_cancelled(store: Store, hanging: Hanging, kind: str) -> None:
    grown(store)

    async def body() -> None:
        async with store.async_session("s") as session:
            for _ in range(NINE):
                await session.compact(hanging.awaited, budget=BUDGET, deadline=2)
                assert hanging.inside == 0
                await session.uncompact()

    anyio.run(body, backend=kind)
    assert hanging.asked == 1


def test_the_pause_grows_and_a_success_ends_it(twin: Twin, store: Store, time: Time) -> None:
    """A request a second, for two hours: then the model is there again, and then it is not."""
    grown(store)
    model = Down(raises, time=time)

    async def body() -> None:
        async with twin.opened(store) as session:

            async def asked(budget: int = BUDGET) -> Compaction:
                done = await session.compact(model.summarize, budget=budget)
                await session.uncompact()
                return done

            pauses = []
            for failures in range(1, 9):
                done = await asked()
                assert (done.rung, done.asked) == ("digest", ATTEMPTS)
                pauses.append(PAUSES.after(failures))
                time.now += pauses[-1] - 1
                done = await asked()
                assert (done.rung, done.asked, done.failures) == ("digest", 0, ())
                assert "paused until 20" in done.unasked
                assert (f"failed {failures} times" in done.unasked) == (failures > 1)
                time.now += 1
            assert pauses == [30, 60, 120, 240, 480, 960, 1800, 1800]
            assert len(model.asked) == 8 * ATTEMPTS
            model.answer = lambda _: GOOD
            done = await asked()
            assert (done.rung, done.unasked) == ("summary", "")
            model.answer = lambda _: "..."
            assert (await asked(BUDGET - 1500)).rung == "digest"
            time.now += 31
            assert (await asked(BUDGET - 1500)).asked

    twin.run(body)


def notes(store: Store, name: str = "s") -> list[bytes]:
    return [body for body in bodies(store, name) if b'"label":"summarizer ' in body]


def test_a_model_that_answers_leaves_no_note(store: Store, time: Time) -> None:
    grown(store)
    model = Down(lambda _: GOOD, time=time)
    with store.session("s") as session:
        for _ in range(3):
            session.compact(model.summarize, budget=BUDGET)
            session.uncompact()
    assert notes(store) == []


CHILD = """
import sys, lockstitch
from lockstitch.compaction import ladder
ladder._FIRST_PAUSE = 0.001

def broken(prompt):
    raise ConnectionError

def other(prompt):
    raise ConnectionError

with lockstitch.open(sys.argv[1]).session("s") as session:
    done = session.compact(globals()[sys.argv[2]], budget=6000)
    session.uncompact()
    print(done.rung, done.asked, "paused" in done.unasked)
"""


def test_another_process_does_not_pay_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agent.db"
    with lockstitch.open(url) as store:
        grown(store)

    def child(function: str) -> str:
        command = [sys.executable, "-c", CHILD, url, function]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert child("broken") == f"digest {ATTEMPTS} False"
    assert child("broken") == "digest 0 True"
    assert child("other") == f"digest {ATTEMPTS} False"
    assert child("broken") == "digest 0 True"


def test_what_is_kept_goes_by_the_time_of_day(store: Store, time: Time) -> None:
    """Rewinding does not end a pause, forks have it, and a clock that was put back ends it."""
    grown(store)
    down = partial(raises)
    with store.session("s") as session:
        seq = session.seq
        session.compact(down, budget=BUDGET)
        session.rewind(seq)
    store.fork("s", "copy")
    running.forget()
    for name in ("s", "copy"):
        with store.session(name) as session:
            assert "paused" in session.compact(down, budget=BUDGET).unasked
            session.uncompact()
    running.forget()
    time.now -= 86400
    with store.session("s") as session:
        assert session.compact(down, budget=BUDGET).asked
        session.uncompact()
        assert "paused" in session.compact(down, budget=BUDGET).unasked


@pytest.mark.usefixtures("time")
def test_a_note_that_says_nothing_is_none(store: Store) -> None:
    grown(store)
    with store.session("s") as session:
        session.compact(raises, budget=BUDGET)
        session.uncompact()
        facts = session.state.facts.values()
        [fact] = [fact for fact in facts if "label='summarizer " in str(fact.event)]
        writer = session._writer  # noqa: SLF001
        for payload in (b"null", b'"x"', b'{"failures":"x"}', b"[]", b'{"failures":-4}'):
            writer.add(structs.replace(fact.event, payload=Raw(payload)))
            running.forget()
            assert session.compact(raises, budget=BUDGET).asked
            session.uncompact()


class TestWho:
    """Whose failures count: the function's, in every session; by its name, in one session."""

    def test_another_session_does_not_wait_for_the_same_function(
        self, twin: Twin, store: Store, time: Time
    ) -> None:
        model = Down(raises, time=time)
        for name in ("s", "other"):
            grown(store, name=name)

        async def body() -> None:
            for name, asked in (("s", ATTEMPTS), ("other", 0)):
                async with twin.opened(store, name) as session:
                    # a method is another object each time, and the same function
                    done = await session.compact(model.summarize, budget=BUDGET)
                    assert (done.rung, done.asked) == ("digest", asked)

        twin.run(body)
        assert len(notes(store)) == 1
        assert notes(store, "other") == [], "what it was not asked, it did not fail"

    def test_another_model_is_asked(self, store: Store, time: Time) -> None:
        """Also one that has the same name: two of a class, or of a factory."""
        grown(store)
        grown(store, name="other")
        down, up = Down(raises, time=time), Down(lambda _: GOOD, time=time)
        with store.session("s") as session:
            assert session.compact(down.summarize, budget=BUDGET).rung == "digest"
            session.uncompact()
            assert session.compact(lambda _: GOOD, budget=BUDGET).rung == "summary"
        with store.session("other") as session:
            assert session.compact(up.summarize, budget=BUDGET).rung == "summary"

    def test_in_one_session_it_goes_by_the_name(self, store: Store, time: Time) -> None:
        """For those that are made anew for each request."""
        grown(store)
        asked: list[str] = []
        with store.session("s") as session:
            for _ in range(NINE):
                session.compact(lambda p: asked.append(p) or "", budget=BUDGET)
                session.uncompact()
        assert len(asked) == ATTEMPTS

    def test_a_success_anywhere_ends_the_pause(self, store: Store, time: Time) -> None:
        model = Down(raises, time=time)
        for name in ("s", "other"):
            grown(store, name=name)
        with store.session("s") as session:
            session.compact(model.summarize, budget=BUDGET)
            session.uncompact()
        model.answer = lambda _: GOOD
        time.now += 1
        with store.session("other") as session:
            done = session.compact(model.summarize, budget=BUDGET, ignore_pause=True)
            assert done.rung == "summary"
        with store.session("s") as session:
            assert session.compact(model.summarize, budget=BUDGET).rung == "summary"
            session.uncompact()
        # also for the processes to come
        running.forget()
        with store.session("s") as session:
            assert session.compact(model.summarize, budget=BUDGET - 1500).asked

    def test_names(self) -> None:
        here = "tests.compaction.test_pausing"
        assert name_of(raises) == name_of(partial(partial(raises))) == f"{here}.raises"
        assert name_of(Down().summarize) == f"{here}.Down.summarize"
        assert name_of(str.upper) == "builtins.str.upper"
        assert name_of(Hanging()) == f"{here}.Hanging"
        one = lambda _: GOOD  # noqa: E731
        two = lambda _: GOOD  # noqa: E731
        assert name_of(one) != name_of(two)
        assert name_of(one).startswith(f"{here}.TestWho.test_names.<locals>.<lambda>:")
        assert name_of(print) == "builtins.print"

    def test_nothing_keeps_a_function_alive(self, store: Store, time: Time) -> None:
        grown(store)
        with store.session("s") as session:
            for _ in range(NINE):
                session.compact(Down(raises, time=time).summarize, budget=BUDGET)
                session.uncompact()
                time.now += 3600
        gc.collect()
        assert [ref for ref, _ in running._PASTS if ref() is not None] == []  # noqa: SLF001
        assert len(running._PASTS) <= 1  # noqa: SLF001

    def test_one_that_cannot_be_remembered_is_asked(self, store: Store, time: Time) -> None:
        class Odd(list[int]):
            __slots__ = ()

            def __call__(self, _prompt: str) -> str:
                raise ConnectionError

        grown(store)
        with store.session("s") as session:
            assert session.compact(Odd(), budget=BUDGET).asked
            session.uncompact()
            assert "paused" in session.compact(Odd(), budget=BUDGET).unasked


class TestASilentOne:
    """While a question has not come back after its time, no other is begun."""

    def test_it_is_asked_again_when_it_came_back(
        self, twin: Twin, store: Store, time: Time, hanging: Hanging
    ) -> None:
        grown(store)
        grown(store, name="other")

        async def body() -> None:
            async with twin.opened(store) as session, twin.opened(store, "other") as other:
                await session.compact(hanging, budget=BUDGET, deadline=1)
                await session.uncompact()
                for one in (session, other):
                    time.now += 86400
                    done = await one.compact(hanging, budget=BUDGET)
                    assert (done.rung, done.asked, done.unasked) == ("digest", 0, SILENT)
                    await one.uncompact()
                assert (hanging.asked, hanging.inside) == (1, 1)
                hanging.let_go.set()
                while running._OPEN:  # noqa: SLF001
                    threading.Event().wait(0.01)
                done = await session.compact(hanging, budget=BUDGET)
                assert (done.rung, done.unasked) == ("summary", "")

        twin.run(body)

    def test_one_made_anew_each_time(self, store: Store, time: Time, hanging: Hanging) -> None:
        grown(store)
        with store.session("s") as session:
            for _ in range(NINE):
                session.compact(lambda p: hanging(p).strip(), budget=BUDGET, deadline=1)
                session.uncompact()
                time.now += 86400
        assert hanging.asked == 1

    def test_within_one_compaction(self, twin: Twin, store: Store, hanging: Hanging) -> None:
        grown(store)

        async def body() -> None:
            async with twin.opened(store) as session:
                done = await session.compact(hanging, budget=BUDGET, call_timeout=0.1)
                assert (done.rung, done.asked, done.unasked) == ("digest", 1, SILENT)
                assert done.failures == ("no answer within 0.1 seconds",)

        twin.run(body)
        assert hanging.asked == 1

    def test_others_that_are_only_busy_do_not_count(self, store: Store, hanging: Hanging) -> None:
        """Two sessions may be summed up at a time."""
        first = Summarizer(hanging)
        with Question(first, 60):
            assert Summarizer(hanging).unasked == ""
        with Question(first, 0):
            assert Summarizer(hanging).unasked == SILENT
            assert Summarizer(raises).unasked == ""
        assert Summarizer(hanging).unasked == ""

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
    def test_a_child_has_no_threads_of_its_parent(self, hanging: Hanging) -> None:
        with Question(Summarizer(hanging), 0):
            child = os.fork()
            if not child:
                os._exit(1 if Summarizer(hanging).unasked else 0)
            assert os.waitpid(child, 0)[1] == 0


def test_a_person_can_insist(twin: Twin, store: Store, time: Time, hanging: Hanging) -> None:
    grown(store)
    grown(store, name="other")
    model = Down(raises, time=time)

    async def body() -> None:
        async with twin.opened(store) as session:
            for number in range(1, 4):
                done = await session.compact(model.summarize, budget=BUDGET, ignore_pause=True)
                assert (done.rung, len(model.asked)) == ("digest", number * ATTEMPTS)
                await session.uncompact()
            done = await session.compact(model.summarize, budget=BUDGET)
            assert "failed 3 times in a row" in done.unasked
            await session.uncompact()
            model.answer = lambda _: GOOD
            options = {"summarize": model.summarize, "ignore_pause": True}
            messages = await session.request("anthropic", budget=BUDGET, **options)
            assert GOOD in str(messages)
            await session.uncompact()

    async def hang() -> None:
        async with twin.opened(store, "other") as session:
            for asked, insists in enumerate((False, True), start=1):
                options = {"deadline": 1, "ignore_pause": insists}
                await session.compact(hanging, budget=BUDGET, **options)
                assert hanging.asked == asked
                await session.uncompact()

    twin.run(body)
    twin.run(hang)


def test_answers_from_before_are_used_in_a_pause(store: Store, time: Time) -> None:
    grown(store)
    model = Down(lambda _: GOOD, time=time)
    with store.session("s") as session:
        session.compact(model.summarize, budget=BUDGET)
        session.uncompact()
        model.answer = raises
        assert session.compact(model.summarize, budget=BUDGET - 1500).rung == "digest"
        session.uncompact()
        done = session.compact(model.summarize, budget=BUDGET)
        assert (done.rung, done.asked, done.unasked) == ("summary", 0, "")


@pytest.mark.usefixtures("time")
def test_who_presses_ctrl_c_says_nothing_of_the_model(store: Store) -> None:
    grown(store)

    def stopped(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with store.session("s") as session:
        with suppress(KeyboardInterrupt):
            session.compact(raises, budget=BUDGET, on_progress=stopped)
        assert session.compact(raises, budget=BUDGET).asked


@pytest.mark.usefixtures("time")
def test_files_of_other_programs(tmp_path: Path) -> None:
    """One after the other: a model that is down is waited for once."""
    asked: list[str] = []

    def summarize(prompt: str) -> str:
        asked.append(prompt)
        return ""

    for number in range(4):
        book = Book(f"long-{number}", "tree")
        for turn in range(40):
            book.work(f"Task {turn} " + "word " * 400, f"one-{turn}")
        path = tmp_path / f"{book.session}.jsonl"
        path.write_bytes(joined(book.lines()))
        done = sessions.compact(str(path), summarize, budget=3000).done
        assert (done.rung, done.asked) == ("digest", 0 if number else ATTEMPTS)
        assert done.after.tokens <= 3000
        assert done.before.tokens > 3000
    assert len(asked) == ATTEMPTS
