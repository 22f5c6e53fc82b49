"""Closing: once is enough, twice does no harm, and nothing works afterwards or in a child."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from threading import Thread

import pytest

from lockstitch.errors import Closed
from lockstitch.stores.base import Backend, Lease
from tests.stores.contract import Place, entries, keys

USES: dict[str, Callable[[Backend, Lease], object]] = {
    "acquire": lambda backend, _: backend.acquire("t"),
    "append": lambda backend, lease: backend.append(lease, entries("b"), 1),
    "blobs": lambda backend, _: backend.blobs(["0" * 32]),
    "ends": lambda backend, _: backend.ends("0" * 32, 1, 1),
    "fork": lambda backend, _: backend.fork("s", 1, "t"),
    "head": lambda backend, _: backend.head("s"),
    "read": lambda backend, _: list(backend.read("s")),
    "sessions": lambda backend, _: list(backend.sessions()),
    "sizes": lambda backend, _: backend.sizes(["0" * 32]),
    "verify": lambda backend, _: list(backend.verify()),
    "wait": lambda backend, _: backend.wait("s", 0, 1),
}


@pytest.mark.parametrize("use", USES)
def test_after_closing(backend: Backend, use: str) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a"), 0)
    backend.close()
    backend.close()
    with pytest.raises(Closed):
        USES[use](backend, lease)
    backend.release(lease)


def test_a_store_closes_itself(place: Place) -> None:
    with place.open() as backend:
        backend.acquire("s")
    with pytest.raises(Closed):
        backend.head("s")


def test_what_was_written_is_there_afterwards(shared_place: Place) -> None:
    with shared_place.open() as backend:
        head = backend.append(backend.acquire("s"), entries("a", "b"), 0)
    again = shared_place.open()
    assert again.head("s") == head
    assert keys(again, "s") == ["a", "b"]


def test_in_a_forked_process(backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a"), 0)
    status = in_a_fork(lambda: all(is_closed(use, backend, lease) for use in USES.values()))
    assert status == 0
    backend.append(lease, entries("b"), 1)
    assert keys(backend, "s") == ["a", "b"]


def test_closing_in_a_forked_process_leaves_the_parent_alone(backend: Backend) -> None:
    lease = backend.acquire("s")

    def leave() -> bool:
        backend.release(lease)
        backend.close()
        return True

    assert in_a_fork(leave) == 0
    backend.append(lease, entries("a"), 0)
    assert keys(backend, "s") == ["a"]


def in_a_fork(check: Callable[[], bool]) -> int:
    with warnings.catch_warnings():
        # Python warns of threads, such as those of a store; they are what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        status = 1
        try:
            status = 0 if check() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_closed(use: Callable[[Backend, Lease], object], backend: Backend, lease: Lease) -> bool:
    try:
        use(backend, lease)
    except Closed:
        return True
    return False


def test_closing_ends_all_waiting(place: Place) -> None:
    backend = place.open()
    backend.acquire("s")
    ended: list[type[BaseException]] = []

    def wait(call: Callable[[], object]) -> None:
        try:
            call()
        except Closed as error:
            ended.append(type(error))

    threads = [
        Thread(target=wait, args=(lambda: backend.wait("s", 0, 600),)),
        Thread(target=wait, args=(lambda: backend.acquire("s", wait=600),)),
    ]
    for thread in threads:
        thread.start()
    backend.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert ended == [Closed, Closed]
