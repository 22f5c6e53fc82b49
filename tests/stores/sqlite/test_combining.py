"""Group commit: each job fails or succeeds for itself, nobody waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from lockstitch.errors import Busy, Held, Moved, Unsure
from lockstitch.stores.group_commit import CommitJob, GroupCommit, own_copy

PATIENCE = 60


class Gate:
    """A committer that notes its batches and can be held up in the middle of one."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.is_open = threading.Event()
        self.is_open.set()
        self.is_reached = threading.Event()
        self.error: BaseException | None = None
        self.combiner = GroupCommit(self)

    def __call__(self, jobs: list[CommitJob]) -> None:
        self.combiner.gather(jobs)
        self.batches.append(len(jobs))
        self.is_reached.set()
        assert self.is_open.wait(PATIENCE)
        error, self.error = self.error, None
        if error is not None:
            raise error
        for job in jobs:
            try:
                job.result = job.run(None)
            except Moved as moved:
                job.end(moved)
            else:
                job.end()


class Crowd:
    """Threads that each have one job done."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.combiner = self.gate.combiner
        self.outcomes: dict[int, Any] = {}
        self.threads: list[threading.Thread] = []

    def add(self, number: int, run: Callable[[Any], Any]) -> None:
        def work() -> None:
            try:
                self.outcomes[number] = self.combiner.do(run)
            except BaseException as error:  # noqa: BLE001
                self.outcomes[number] = type(error)

        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()

    def queue(self, count: int) -> None:
        """Let a first job get stuck, and queue others behind it."""
        self.gate.is_open.clear()
        self.add(0, lambda _: 0)
        assert self.gate.is_reached.wait(PATIENCE)
        for number in range(1, count + 1):
            self.add(number, lambda _, number=number: number)
        while len(self.combiner._queue) < count:  # noqa: SLF001
            threading.Event().wait(0.001)

    def end(self) -> dict[int, Any]:
        self.gate.is_open.set()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        return self.outcomes


def test_a_thread_alone_does_its_own_work_without_a_hand_over() -> None:
    crowd = Crowd()
    assert [crowd.combiner.do(lambda _, n=n: n) for n in range(3)] == [0, 1, 2]
    assert crowd.gate.batches == [1, 1, 1]
    assert threading.active_count() == 1


def test_all_who_wait_are_done_at_once() -> None:
    crowd = Crowd()
    crowd.queue(20)
    assert crowd.end() == {n: n for n in range(21)}
    assert crowd.gate.batches == [1, 20]


def fail(_: Any) -> None:
    raise Moved("moved")


def test_one_that_fails_does_not_spoil_the_others() -> None:
    crowd = Crowd()
    crowd.queue(3)
    crowd.add(4, fail)
    while len(crowd.combiner._queue) < 4:  # noqa: SLF001
        threading.Event().wait(0.001)
    outcomes = crowd.end()
    assert outcomes.pop(4) is Moved
    assert outcomes == {n: n for n in range(4)}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_leader_that_breaks_off_leaves_nobody_waiting(error: type[BaseException]) -> None:
    crowd = Crowd()
    crowd.queue(3)
    crowd.gate.error = error()
    outcomes = crowd.end()
    assert outcomes[0] is error
    assert {outcomes[n] for n in (1, 2, 3)} == {1, 2, 3}


def test_those_in_a_batch_that_broke_off_are_unsure() -> None:
    crowd = Crowd()
    crowd.queue(3)
    failures = iter([KeyboardInterrupt()])
    original = crowd.gate.__call__

    def commit(jobs: list[CommitJob]) -> None:
        crowd.gate.error = next(failures, None)
        original(jobs)

    crowd.combiner._commit = commit  # noqa: SLF001
    outcomes = crowd.end()
    assert sorted(str(outcomes[n]) for n in (1, 2, 3)) == sorted(
        [str(KeyboardInterrupt), str(Unsure), str(Unsure)]
    )


def test_what_a_leader_puts_back_is_done_by_the_next() -> None:
    crowd = Crowd()
    crowd.queue(4)
    original = crowd.gate.__call__
    calls = iter([True])

    def commit(jobs: list[CommitJob]) -> None:
        if next(calls, False):
            crowd.combiner.gather(jobs)
            crowd.combiner.put_back(jobs)
            raise KeyboardInterrupt
        original(jobs)

    crowd.combiner._commit = commit  # noqa: SLF001
    outcomes = crowd.end()
    assert sorted(map(str, outcomes.values())) == sorted(
        [
            str(KeyboardInterrupt),
            *(str(n) for n in outcomes if outcomes[n] is not KeyboardInterrupt),
        ]
    )
    assert crowd.gate.batches == [1, 3]


def test_who_stops_waiting_leaves_the_queue() -> None:
    crowd = Crowd()
    crowd.queue(1)
    job = CommitJob(lambda _: "never")
    crowd.combiner._queue.append(job)  # noqa: SLF001
    crowd.combiner._leave(job)  # noqa: SLF001
    assert crowd.end() == {0: 0, 1: 1}
    assert crowd.combiner.do(lambda _: "next") == "next"


def test_who_was_to_lead_and_stops_waiting_passes_the_lead_on() -> None:
    crowd = Crowd()
    crowd.queue(0)
    job = CommitJob(lambda _: "never")
    crowd.combiner._queue.append(job)  # noqa: SLF001
    crowd.end()
    assert job.leads
    crowd.combiner._leave(job)  # noqa: SLF001
    assert crowd.combiner.do(lambda _: "next") == "next"


def test_who_would_not_wait_any_longer_goes_away_and_nothing_is_done() -> None:
    crowd = Crowd()
    crowd.queue(1)
    with pytest.raises(Busy, match="nothing was written"):
        crowd.combiner.do(lambda _: pytest.fail("it was given up"), time.monotonic() + 0.05)
    assert crowd.end() == {0: 0, 1: 1}


def test_what_was_begun_is_waited_for() -> None:
    crowd = Crowd()
    crowd.queue(0)
    done: list[str] = []
    begun = threading.Event()
    until = time.monotonic() + 1

    def run(_: Any) -> None:
        begun.set()
        while time.monotonic() < until + 0.1:
            threading.Event().wait(0.01)

    crowd.add(1, run)
    thread = threading.Thread(
        target=lambda: done.append(crowd.combiner.do(lambda _: "done", until))
    )
    while len(crowd.combiner._queue) < 1:  # noqa: SLF001
        threading.Event().wait(0.001)
    thread.start()
    while len(crowd.combiner._queue) < 2:  # noqa: SLF001
        threading.Event().wait(0.001)
    crowd.gate.is_open.set()
    assert begun.wait(PATIENCE)
    thread.join(PATIENCE)
    assert done == ["done"]
    crowd.end()


def test_a_copy_of_an_error_is_about_the_same() -> None:
    error = Held("another writer holds it").about("agent.db", "s", place="3", code="LS101")
    copy = own_copy(error)
    assert copy is not error
    assert str(copy) == str(error) == "agent.db: session s: another writer holds it"
    assert (copy.message, copy.place, copy.code) == ("another writer holds it", "3", "LS101")
