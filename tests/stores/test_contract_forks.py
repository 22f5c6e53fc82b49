"""Forking: the first records as they are, all or none, once."""

from __future__ import annotations

import time

import pytest

from lockstitch.errors import Damaged, Held, UsageError
from lockstitch.journal.records import NEW, START, Head, blob_name
from lockstitch.stores.base import Backend, StoreFault
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


# A fork shares the records of its source.

MANY = 2000
SECRET = b"only-in-the-source"


def fill(backend: Backend, session: str, count: int, word: bytes = b"text ") -> None:
    """Write so many records of about a kilobyte, every hundredth with a large value."""
    lease = backend.acquire(session)
    for start in range(lease.head.seq, lease.head.seq + count, 100):
        made = [
            entry(f"{session}-{n}", b'{"n":%d,"text":"%s"}' % (n, word * (1000 // len(word))))
            for n in range(start, start + 100)
        ]
        made[0] = entry(made[0].key, made[0].body, b"%s %d " % (word, start) * 5000)
        backend.append(lease, made, start)
    backend.release(lease)


def is_whole(backend: Backend) -> bool:
    return not any(isinstance(one, StoreFault) for one in backend.verify())


def bodies(backend: Backend, session: str) -> list[bytes]:
    return [record.body for record in backend.read(session)]


def values_of(word: bytes, upto: int) -> list[str]:
    """The names of the large values of the first records that ``fill`` wrote."""
    return [blob_name(b"%s %d " % (word, start) * 5000) for start in range(0, upto, 100)]


def test_a_fork_does_not_copy_the_records(place: Place) -> None:
    with place.measured() as before:
        fill(place.open(), "s", MANY)
    with place.measured() as after:
        place.open().fork("s", MANY, "t")
    assert after.grown < before.grown / 10
    backend = place.open()
    assert bodies(backend, "t") == bodies(backend, "s")
    assert is_whole(backend)


def test_what_the_source_writes_later_is_not_in_the_fork(place: Place, source: Backend) -> None:
    source.fork("s", 3, "t")
    lease = source.acquire("s")
    source.append(lease, entries("f", "g"), 5)
    for backend in (source, place.open()):
        assert keys(backend, "t") == ["a", "b", "c"]
        assert keys(backend, "s") == [*"abcdefg"]
        assert is_whole(backend)


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4])
def test_a_fork_is_read_from_any_place(source: Backend, after: int) -> None:
    source.fork("s", 3, "t")
    source.append(source.acquire("t"), entries("x", "y"), 3)
    every = list(source.read("t"))
    heads = [Head(), *(Head(one.seq, one.digest, one.epoch) for one in every)]
    assert list(source.read("t", heads[after])) == every[after:]
    for upto in range(after, 6):
        assert list(source.read("t", heads[after], upto)) == every[after:upto]


def test_a_fork_outlives_its_source(place: Place) -> None:
    backend = place.open()
    fill(backend, "s", 300)
    expected = bodies(backend, "s")[:150]
    backend.fork("s", 150, "t")
    backend.delete(backend.acquire("s"))
    for one in (backend, place.open()):
        assert bodies(one, "t") == expected
        assert [listed.session for listed in one.sessions()] == ["t"]
        assert len(one.blobs(values_of(b"text ", 150))) == 2
        assert is_whole(one)
    lease = backend.acquire("t")
    backend.append(lease, entries("more"), 150)
    backend.release(lease)
    assert keys(place.open(), "t")[149:] == ["s-149", "more"]


def test_what_stood_behind_the_fork_goes_with_the_source(place: Place) -> None:
    backend = place.open()
    fill(backend, "s", 200)
    fill(backend, "s", 100, SECRET)
    backend.fork("s", 200, "t")
    backend.delete(backend.acquire("s"))
    with pytest.raises(Damaged):
        backend.blobs([blob_name(b"%s %d " % (SECRET, 200) * 5000)])
    assert len(bodies(backend, "t")) == 200
    assert is_whole(backend)
    backend.close()
    if place.folder is not None:
        for path in place.folder.rglob("*"):
            assert not path.is_file() or SECRET not in path.read_bytes(), path.name


def test_a_fork_outlives_what_takes_the_place_of_its_source(place: Place) -> None:
    backend = place.open()
    fill(backend, "s", 300)
    expected = bodies(backend, "s")
    backend.fork("s", 150, "t")
    backend.fork("s", 250, "u")
    lease = backend.acquire("s")
    backend.replace(lease, entries("x"), 300)
    backend.append(lease, entries("y"), 1)
    backend.release(lease)
    for one in (backend, place.open()):
        assert keys(one, "s") == ["x", "y"]
        assert bodies(one, "t") == expected[:150]
        assert bodies(one, "u") == expected[:250]
        assert is_whole(one)
    assert backend.fork("s", 2, "v").seq == 2
    assert keys(backend, "v") == ["x", "y"]


def test_other_records_take_the_place_of_a_fork(backend: Backend) -> None:
    fill(backend, "s", 200)
    backend.fork("s", 200, "t")
    lease = backend.acquire("t")
    backend.replace(lease, entries("x"), 200)
    assert keys(backend, "t") == ["x"]
    assert len(bodies(backend, "s")) == 200
    assert len(backend.blobs(values_of(b"text ", 200))) == 2
    backend.delete(lease)
    assert len(bodies(backend, "s")) == 200
    assert is_whole(backend)


def test_the_last_one_frees_everything(place: Place) -> None:
    backend = place.open()
    fill(backend, "s", 300, SECRET)
    backend.fork("s", 200, "t")
    backend.fork("t", 100, "u")
    backend.fork("t", 200, "v")
    for name in ("s", "t", "v", "u"):
        assert is_whole(backend)
        backend.delete(backend.acquire(name))
    assert list(backend.verify()) == []
    for name in values_of(SECRET, 300):
        with pytest.raises(Damaged):
            backend.blobs([name])
    backend.close()
    if place.folder is not None:
        for path in place.folder.rglob("*"):
            assert not path.is_file() or SECRET not in path.read_bytes(), path.name


def test_a_chain_of_fifty_forks(place: Place) -> None:
    backend = place.open()
    lease = backend.acquire("f0")
    backend.append(lease, entries(*(f"start-{n}" for n in range(20))), 0)
    backend.release(lease)
    expected = keys(backend, "f0")
    for number in range(1, 51):
        backend.fork(f"f{number - 1}", len(expected), f"f{number}")
        lease = backend.acquire(f"f{number}")
        backend.append(lease, entries(f"n{number}", f"m{number}"), len(expected))
        backend.release(lease)
        # The next one forks where only one of the two has been said.
        expected += [f"n{number}"]
    expected += ["m50"]
    assert keys(backend, "f50") == expected
    assert is_whole(backend)
    for number in range(0, 50, 2):
        backend.delete(backend.acquire(f"f{number}"))
    assert keys(place.open(), "f50") == expected
    for number in range(1, 50, 2):
        backend.delete(backend.acquire(f"f{number}"))
    other = place.open()
    assert keys(other, "f50") == expected
    assert is_whole(other)
    backend.delete(backend.acquire("f50"))
    assert list(backend.verify()) == []


def test_the_name_of_a_source_is_free_again(place: Place, source: Backend) -> None:
    source.fork("s", 3, "t")
    source.delete(source.acquire("s"))
    source.add("s", entries("x", "y", "z", "w"), NEW)
    other = place.open()
    assert keys(other, "t") == ["a", "b", "c"]
    assert keys(other, "s") == [*"xyzw"]
    with pytest.raises(Held):
        source.fork("s", 3, "t")
    assert is_whole(other)


@pytest.mark.parametrize("moment", [0.0, 0.002, 0.005, 0.01, 0.02, 0.05])
def test_killed_while_it_forks(shared_place: Place, moment: float) -> None:
    backend = shared_place.open()
    fill(backend, "s", 200)
    child = shared_place.child()
    child.ask("acquire other")
    child.tell("forks s 200 t")
    time.sleep(moment)
    child.kill()
    made = [one.session for one in backend.sessions() if one.session.startswith("t")]
    for name in made:
        assert bodies(backend, name) == bodies(backend, "s")
    assert is_whole(backend)
    for number in range(len(made) + 1):
        assert backend.fork("s", 200, f"t{number}").seq == 200
    backend.delete(backend.acquire("s"))
    assert len(bodies(shared_place.open(), f"t{len(made)}")) == 200
    assert is_whole(backend)


@pytest.mark.parametrize("moment", [0.0, 0.003, 0.01, 0.03, 0.1])
def test_killed_while_sources_are_removed(shared_place: Place, moment: float) -> None:
    backend = shared_place.open()
    for number in range(8):
        fill(backend, f"s{number}", 100)
        fill(backend, f"s{number}", 100, SECRET)
        backend.fork(f"s{number}", 100, f"t{number}")
    expected = bodies(backend, "t0")
    child = shared_place.child()
    child.ask("acquire other")
    child.tell("deletes s 8")
    time.sleep(moment)
    child.kill()
    assert is_whole(backend)
    for number in range(8):
        assert len(bodies(backend, f"t{number}")) == 100
        if backend.head(f"s{number}") is not None:
            backend.delete(backend.acquire(f"s{number}", wait=30))
    # Whoever removes something next ends what another one was killed in.
    backend.delete(backend.acquire("t7"))
    assert bodies(backend, "t0") == expected
    assert is_whole(backend)
    backend.close()
    if shared_place.folder is not None:
        for path in shared_place.folder.rglob("*"):
            assert not path.is_file() or SECRET not in path.read_bytes(), path.name
