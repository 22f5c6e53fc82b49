"""Forking: the first records as they are, all or none, once."""

from __future__ import annotations

import pytest

from lockstitch.errors import Held, UsageError
from lockstitch.journal.records import START, Head, blob_name
from lockstitch.stores.base import Backend
from tests.stores.contract import Place, entries, entry, keys


@pytest.fixture
def source(backend: Backend) -> Backend:
    """A store with a session of five records and three epochs, the second append of three."""
    for after, names in ((0, "a"), (1, "bcd"), (4, "e")):
        lease = backend.acquire("s")
        backend.append(lease, [entry(name, b"{}", b"value") for name in names], after)
        backend.release(lease)
    backend.release(backend.acquire("s"))
    return backend


@pytest.mark.parametrize("upto", range(6))
def test_a_fork_has_the_same_records(source: Backend, upto: int) -> None:
    head = source.fork("s", upto, "t")
    copied = list(source.read("t"))
    assert copied == list(source.read("s", upto=upto))
    last = (copied[-1].digest, copied[-1].epoch) if copied else (START, 0)
    assert head == source.head("t") == Head(upto, *last)


@pytest.mark.parametrize("upto", [0, 2, 5])
def test_both_go_on_apart(place: Place, source: Backend, upto: int) -> None:
    head = source.fork("s", upto, "t")
    lease = source.acquire("t")
    assert lease.epoch == head.epoch + 1
    source.append(lease, entries("new"), upto)
    other = source.acquire("s")
    source.append(other, entries("f"), 5)
    assert keys(place.open(), "t") == [*"abcde"[:upto], "new"]
    assert keys(place.open(), "s") == [*"abcdef"]
    assert source.blobs([blob_name(b"value")])


def test_a_fork_has_no_holder(source: Backend) -> None:
    lease = source.acquire("s")
    source.fork("s", 5, "t")
    assert [listed.holder == "" for listed in source.sessions()] == [False, True]
    assert source.acquire("t").head.seq == 5
    source.append(lease, entries("f"), 5)


def test_the_same_fork_again_is_done_already(source: Backend) -> None:
    head = source.fork("s", 3, "t")
    assert source.fork("s", 3, "t") == head
    assert source.fork("t", 3, "s2") == head
    assert source.fork("s", 3, "s2") == head
    assert source.fork("s", 5, "s").seq == 5


@pytest.mark.parametrize("upto", [0, 2, 4, 5])
def test_another_fork_to_the_same_name_is_refused(source: Backend, upto: int) -> None:
    source.fork("s", 3, "t")
    with pytest.raises(Held):
        source.fork("s", upto, "t")
    assert keys(source, "t") == ["a", "b", "c"]


def test_a_fork_that_went_on_is_not_touched(source: Backend) -> None:
    source.fork("s", 3, "t")
    source.append(source.acquire("t"), entries("new"), 3)
    with pytest.raises(Held):
        source.fork("s", 3, "t")
    assert keys(source, "t") == ["a", "b", "c", "new"]


@pytest.mark.parametrize("upto", [-1, 6, 100])
def test_there_is_nothing_to_fork_there(source: Backend, upto: int) -> None:
    with pytest.raises(UsageError):
        source.fork("s", upto, "t")
    assert source.head("t") is None


def test_forks_of_forks(source: Backend) -> None:
    name = "s"
    for number in range(10):
        head = source.head(name)
        assert head
        source.fork(name, head.seq, f"f{number}")
        name = f"f{number}"
        lease = source.acquire(name)
        source.append(lease, entries(f"n{number}"), head.seq)
        source.release(lease)
    assert keys(source, "f9") == [*"abcde", *(f"n{number}" for number in range(10))]
    epochs = [record.epoch for record in source.read("f9")]
    assert epochs == sorted(epochs)
