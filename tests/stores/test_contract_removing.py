"""Adding without a lease, putting other records in the place of all, and removing a session."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lockstitch.errors import Conflict, Damaged, Fenced, Held, Moved, Unreadable
from lockstitch.journal.records import NEW, Head, blob_name
from lockstitch.stores.base import Backend, Listed, StoreFault
from tests.stores.contract import Place, entries, entry, keys

LARGE = b"a large value" * 1000
OTHER = b"another one" * 1000


def whole(backend: Backend) -> bool:
    return not any(isinstance(one, StoreFault) for one in backend.verify())


def is_there(backend: Backend, value: bytes) -> bool:
    try:
        return backend.blobs([blob_name(value)]) != {}
    except Damaged:
        return False


# Adding.


def test_what_is_added_stands_behind_what_was_read(place: Place, backend: Backend) -> None:
    head = backend.add("s", entries("a", "b"), NEW)
    assert head == backend.head("s")
    again = place.open().add("s", [entry("c", b"{}", LARGE)], head)
    assert again.seq == 3
    assert keys(backend, "s") == ["a", "b", "c"]
    assert is_there(backend, LARGE)
    assert [(one.session, one.seq, one.holder) for one in backend.sessions()] == [("s", 3, "")]
    assert whole(backend)


def test_who_comes_second_is_told(backend: Backend) -> None:
    head = backend.add("s", entries("a"), NEW)
    backend.add("s", entries("b"), head)
    for after in (NEW, head, Head(2, b"\1" * 16, 1), Head(9, head.digest, 1)):
        with pytest.raises(Moved):
            backend.add("s", entries("c"), after)
    assert keys(backend, "s") == ["a", "b"]


def test_nothing_is_added_to_a_session_that_is_not_there(backend: Backend) -> None:
    with pytest.raises(Moved):
        backend.add("s", entries("a"), Head(3, b"\1" * 16, 1))
    assert not list(backend.read("s")) if backend.head("s") else True


def test_a_holder_is_waited_for(place: Place, backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a"), 0)
    head = backend.head("s") or NEW
    with pytest.raises(Held):
        backend.add("s", entries("b"), head)
    timer = threading.Timer(0.2, lambda: backend.release(lease))
    timer.start()
    backend.add("s", entries("b"), head, wait=30)
    timer.join()
    assert keys(place.open(), "s") == ["a", "b"]


def test_a_dead_holder_is_taken_over_and_stays_out(shared_place: Place) -> None:
    child = shared_place.child()
    child.ask("acquire s")
    child.ask("append s 0 a")
    backend = shared_place.open()
    head = backend.head("s") or NEW
    child.kill()
    added = backend.add("s", entries("b"), head, wait=30)
    assert added.epoch > head.epoch
    assert keys(backend, "s") == ["a", "b"]
    assert backend.acquire("s").epoch > added.epoch


def test_of_many_who_add_at_once_one_succeeds_at_a_time(place: Place) -> None:
    done: list[int] = []

    def work(number: int) -> None:
        backend = place.open()
        for turn in range(5):
            while True:
                head = backend.head("s") or NEW
                try:
                    backend.add("s", entries(f"{number}-{turn}"), head, wait=30)
                except Moved:
                    continue
                done.append(number)
                break

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    backend = place.open()
    assert len(done) == 15
    assert len(set(keys(backend, "s"))) == 15
    assert whole(backend)


def test_adding_nothing_changes_nothing(backend: Backend) -> None:
    head = backend.add("s", entries("a"), NEW)
    assert backend.add("s", [], head).seq == 1
    assert keys(backend, "s") == ["a"]


# Replacing.


def test_other_records_take_the_place_of_all(place: Place, backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, [entry("a", b"{}", LARGE), entry("b", b"{}", OTHER)], 0)
    head = backend.replace(lease, [entry("x", b'{"x":1}', OTHER)], 2)
    assert (head.seq, head.epoch) == (1, lease.epoch)
    other = place.open()
    assert keys(other, "s") == ["x"]
    assert other.head("s") == head
    assert is_there(other, OTHER)
    assert not is_there(other, LARGE)
    assert whole(other)


def test_the_lease_goes_on_behind_them(backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a", "b", "c"), 0)
    backend.replace(lease, entries("x"), 3)
    assert backend.append(lease, entries("y"), 1).seq == 2
    assert backend.append(lease, entries("y"), 1).seq == 2
    assert backend.replace(lease, [], 2).seq == 0
    backend.append(lease, entries("z"), 0)
    backend.release(lease)
    assert keys(backend, "s") == ["z"]
    assert whole(backend)


def test_replacing_is_fenced_and_knows_where_the_session_stands(backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a", "b"), 0)
    with pytest.raises(Moved):
        backend.replace(lease, entries("x"), 1)
    backend.release(lease)
    newer = backend.acquire("s")
    with pytest.raises(Conflict):
        backend.replace(lease, entries("x"), 2)
    backend.release(newer)
    assert keys(backend, "s") == ["a", "b"]


def test_who_had_read_the_old_is_not_given_a_mixture(place: Place, backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a", "b"), 0)
    reader = place.open()
    old = reader.head("s") or NEW
    backend.replace(lease, entries("x", "y", "z"), 2)
    with pytest.raises(Unreadable):
        list(reader.read("s", old))
    assert keys(reader, "s") == ["x", "y", "z"]


# Removing.


def test_nothing_is_left_of_a_session(place: Place, backend: Backend) -> None:
    for name in ("s", "t"):
        lease = backend.acquire(name)
        values = (LARGE, OTHER) if name == "s" else (OTHER,)
        backend.append(lease, [entry(name, b"{}", *values)], 0)
        backend.release(lease)
    backend.delete(backend.acquire("s"))
    other = place.open()
    assert other.head("s") is None
    with pytest.raises(Unreadable):
        list(other.read("s"))
    assert [one.session for one in other.sessions()] == ["t"]
    assert is_there(other, OTHER)
    assert not is_there(other, LARGE)
    assert whole(other)


def test_the_name_is_free_again(backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a"), 0)
    backend.delete(lease)
    backend.add("s", entries("b"), NEW)
    assert keys(backend, "s") == ["b"]
    with pytest.raises(Conflict):
        backend.append(lease, entries("c"), 1)
    backend.release(lease)
    assert keys(backend, "s") == ["b"]


def test_what_a_fork_names_stays(backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, [entry("a", b"{}", LARGE)], 0)
    backend.fork("s", 1, "t")
    backend.delete(lease)
    assert is_there(backend, LARGE)
    backend.delete(backend.acquire("t"))
    assert not is_there(backend, LARGE)
    assert list(backend.verify()) == []


def test_a_value_that_was_removed_can_be_kept_again(backend: Backend) -> None:
    for _ in range(2):
        lease = backend.acquire("s")
        backend.append(lease, [entry("a", b"{}", LARGE)], 0)
        assert is_there(backend, LARGE)
        backend.delete(lease)
        assert not is_there(backend, LARGE)


def test_only_the_last_holder_may_remove(shared_place: Place) -> None:
    child = shared_place.child(lease=0.5)
    child.ask("acquire s")
    child.ask("append s 0 a")
    child.stop()
    backend = shared_place.open()
    lease = backend.acquire("s", wait=30)
    child.resume()
    assert child.ask("append s 1 b") == "Fenced"
    old = backend.acquire("t")
    backend.append(old, entries("x"), 0)
    backend.release(old)
    with pytest.raises(Fenced):
        backend.delete(old)
    backend.delete(lease)
    assert [one.session for one in backend.sessions() if isinstance(one, Listed)] == ["t"]


def test_a_writer_that_slept_writes_to_no_other_session(shared_place: Place) -> None:
    child = shared_place.child(lease=0.5)
    child.ask("acquire s")
    child.ask("append s 0 a")
    child.stop()
    backend = shared_place.open()
    backend.delete(backend.acquire("s", wait=30))
    for name in ("s", "u"):
        head = backend.add(name, entries("new"), NEW)
        assert head.seq == 1
    child.resume()
    assert child.ask("append s 1 b") in {"Fenced", "Damaged"}
    assert keys(backend, "s") == keys(backend, "u") == ["new"]


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_no_byte_of_it_is_in_the_files(kind: str, tmp_path: Path) -> None:
    secret = b"SECRET-" * 20
    with Place(kind, tmp_path) as place:
        backend = place.open()
        lease = backend.acquire("s")
        for number in range(20):
            body = b'{"text":"%s %d"}' % (secret, number)
            backend.append(lease, [entry(f"k{number}", body, secret * 500)], number)
        other = backend.add("t", entries("a"), NEW)
        assert any(secret in path.read_bytes() for path in files(tmp_path))
        backend.replace(lease, entries("harmless"), 20)
        assert not [path for path in files(tmp_path) if b"SECRET" in path.read_bytes()]
        backend.append(lease, [entry("z", b'{"text":"%s"}' % secret)], 1)
        backend.delete(lease)
        assert not [path for path in files(tmp_path) if b"SECRET" in path.read_bytes()]
        assert other == backend.head("t")
        assert whole(backend)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
