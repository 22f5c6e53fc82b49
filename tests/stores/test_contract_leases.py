"""Leases: one writer at a time, and whoever was taken over writes nothing more."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Thread

import pytest

from lockstitch.errors import Fenced, Held, Unreadable, UsageError
from lockstitch.stores.base import Backend
from lockstitch.stores.memory import MemoryBackend
from tests.stores.contract import Place, entries, keys

LONG = 120.0
SHORT = 1.0


def test_one_writer_at_a_time(place: Place) -> None:
    one, other = place.open(), place.open()
    lease = one.acquire("s")
    for backend in (one, other):
        with pytest.raises(Held):
            backend.acquire("s")
    assert other.acquire("t").epoch == 1
    one.append(lease, entries("a"), 0)


def test_a_session_that_is_free_can_be_taken_at_once(place: Place) -> None:
    one, other = place.open(), place.open()
    for epoch in range(1, 6):
        lease = (one, other)[epoch % 2].acquire("s")
        assert lease.epoch == epoch
        (one, other)[epoch % 2].release(lease)


def test_waiting_ends_with_the_release(place: Place) -> None:
    one, other = place.open(), place.open()
    lease = one.acquire("s")
    got = []
    thread = Thread(target=lambda: got.append(other.acquire("s", wait=30)))
    thread.start()
    one.append(lease, entries("a"), 0)
    one.release(lease)
    thread.join()
    assert got[0].epoch > lease.epoch
    assert got[0].head.seq == 1


def test_waiting_ends_with_the_time(place: Place) -> None:
    one, other = place.open(), place.open()
    lease = one.acquire("s")
    start = time.monotonic()
    with pytest.raises(Held):
        other.acquire("s", wait=0.3)
    assert time.monotonic() - start >= 0.29
    one.append(lease, entries("a"), 0)


def test_giving_back_twice_or_late_does_nothing(place: Place) -> None:
    one, other = place.open(), place.open()
    first = one.acquire("s")
    one.release(first)
    one.release(first)
    second = other.acquire("s")
    one.release(first)
    with pytest.raises(Held):
        one.acquire("s")
    with pytest.raises(Fenced):
        one.append(first, entries("a"), 0)
    other.append(second, entries("b"), 0)
    assert keys(one, "s") == ["b"]


def test_closing_gives_all_leases_back(shared_place: Place) -> None:
    one, other = shared_place.open(), shared_place.open()
    one.acquire("s")
    one.acquire("t")
    one.close()
    assert other.acquire("s").epoch == 2
    assert other.acquire("t").epoch == 2


def test_only_what_exists_is_taken_without_create(backend: Backend) -> None:
    with pytest.raises(Unreadable):
        backend.acquire("s", create=False)
    assert backend.head("s") is None
    assert list(backend.sessions()) == []
    backend.release(backend.acquire("s"))
    assert backend.acquire("s", create=False).epoch == 2


@pytest.mark.parametrize(
    "name", ["", ".hidden", "../up", "a/b", "a b", "a\n", "ä", "a\0", "x" * 129, "a:b", "~"]
)
def test_names_that_could_do_harm_are_refused(backend: Backend, name: str) -> None:
    with pytest.raises(UsageError):
        backend.acquire(name)
    backend.release(backend.acquire("s"))
    with pytest.raises(UsageError):
        backend.fork("s", 0, name)
    assert [listed.session for listed in backend.sessions()] == ["s"]


def test_names_that_look_odd_are_not(backend: Backend) -> None:
    names = ["-", "_", "a..b", "A", "a", "x" * 128, "blobs", "s.jsonl", "s.lock", "CON", "0"]
    for name in names:
        lease = backend.acquire(name)
        backend.append(lease, entries(f"in-{name[:9]}"), 0)
    for name in names:
        assert keys(backend, name) == [f"in-{name[:9]}"]
    assert [listed.session for listed in backend.sessions()] == sorted(names)


def test_a_silent_holder_is_kept_alive(shared_place: Place) -> None:
    # A machine that stood still for longer than a lease has cost it: then a longer one holds.
    for seconds in (SHORT, 20 * SHORT, 90 * SHORT):
        one, other = shared_place.open(seconds), shared_place.open(seconds)
        session = f"s{seconds:.0f}"
        lease = one.acquire(session)
        with suppress(Held):
            other.acquire(session, wait=3 * seconds)
            continue
        one.append(lease, entries("a"), 0)
        return
    raise AssertionError("no holder was kept alive")


def test_what_a_killed_process_held_is_taken_at_once(shared_place: Place) -> None:
    child = shared_place.child(LONG)
    assert child.ask("acquire s") == "epoch 1"
    assert child.ask("append s 0 a b") == "seq 2"
    backend = shared_place.open(LONG)
    with pytest.raises(Held):
        backend.acquire("s")
    child.kill()
    # PostgreSQL hears of a lost connection a moment later; far from the lease's two minutes.
    lease = backend.acquire("s", wait=20)
    assert (lease.epoch, lease.head.seq) == (2, 2)
    assert backend.append(lease, entries("c"), 2).seq == 3


def test_a_process_that_was_stopped_is_taken_over_and_fenced(shared_place: Place) -> None:
    child = shared_place.child(SHORT)
    assert child.ask("acquire s") == "epoch 1"
    assert child.ask("append s 0 a") == "seq 1"
    child.stop()
    backend = shared_place.open(SHORT)
    lease = backend.acquire("s", wait=30)
    assert (lease.epoch, lease.head.seq) == (2, 1)
    backend.append(lease, entries("b"), 1)
    child.resume()
    assert child.ask("append s 1 c") == "Fenced"
    assert child.ask("append s 2 c") == "Fenced"
    assert child.ask("append s 0 a") == "Fenced"
    assert child.ask("release s") == "released"
    assert child.ask("acquire s") == "Held"
    backend.append(lease, entries("d"), 2)
    assert child.ask("keys s") == "a b d"


def test_a_stopped_process_keeps_what_nobody_else_wants(shared_place: Place) -> None:
    child = shared_place.child(SHORT)
    assert child.ask("acquire s") == "epoch 1"
    child.stop()
    time.sleep(SHORT * 1.2)
    child.resume()
    assert child.ask("append s 0 a") == "seq 1"


def test_two_processes_wait_for_each_other(shared_place: Place) -> None:
    child = shared_place.child()
    backend = shared_place.open()
    for number in range(0, 6, 2):
        lease = backend.acquire("s", wait=30)
        child.tell("acquire s 30")
        backend.append(lease, entries(f"k{number}"), number)
        backend.release(lease)
        assert child.answer() == f"epoch {number + 2}"
        assert child.ask(f"append s {number + 1} k{number + 1}") == f"seq {number + 2}"
        child.ask("release s")
    assert keys(backend, "s") == [f"k{number}" for number in range(6)]


def test_memory_forgets_a_holder_by_its_own_clock() -> None:
    now = 0.0
    with MemoryBackend(lease_seconds=10, clock=lambda: now) as backend:
        first = backend.acquire("s")
        now = 9.0
        backend.append(first, entries("a"), 0)
        now = 18.0
        with pytest.raises(Held):
            backend.acquire("s")
        now = 19.0
        second = backend.acquire("s")
        assert second.epoch == 2
        with pytest.raises(Fenced):
            backend.append(first, entries("b"), 1)
        backend.release(first)
        backend.append(second, entries("c"), 1)
        assert keys(backend, "s") == ["a", "c"]
