"""Reading: never waits, one consistent view, verified; listing, blobs, waiting, verifying."""

from __future__ import annotations

from threading import Event, Thread

import pytest

from lockstitch.errors import Damaged, Unreadable, UsageError
from lockstitch.journal.records import NEW, Head, blob_name, chain_entries
from lockstitch.stores.base import Backend, Listed, StoreFault
from tests.stores.contract import Place, entries, entry, keys


def test_a_session_that_does_not_exist(backend: Backend) -> None:
    assert backend.head("s") is None
    with pytest.raises(Unreadable):
        list(backend.read("s"))
    with pytest.raises(Unreadable):
        backend.fork("s", 0, "t")
    assert backend.head("t") is None
    assert backend.wait("s", 0, 0.01) is False
    assert list(backend.sessions()) == list(backend.verify()) == []


def test_others_read_while_a_writer_holds_it(place: Place) -> None:
    one, other = place.open(), place.open()
    lease = one.acquire("s")
    for number in range(5):
        head = one.append(lease, entries(f"k{number}"), number)
        assert other.head("s") == head
        assert keys(other, "s") == [f"k{count}" for count in range(number + 1)]


def test_reading_a_part(backend: Backend) -> None:
    lease = backend.acquire("s")
    sent = range(6)
    heads = [NEW, *(backend.append(lease, entries(f"k{number}"), number) for number in sent)]
    whole = list(backend.read("s"))
    for after in range(7):
        assert list(backend.read("s", heads[after])) == whole[after:]
        for upto in range(8):
            assert list(backend.read("s", heads[after], upto)) == whole[after:upto]
    assert list(backend.read("s", Head(100, b"x" * 16, 1))) == []


def test_reading_inside_of_what_was_appended_at_once(backend: Backend) -> None:
    lease = backend.acquire("s")
    sent = entries("a", "b", "c", "d")
    backend.append(lease, sent, 0)
    expected = chain_entries(NEW, 1, sent)
    assert list(backend.read("s", Head(2, expected[1].digest, 1), 3)) == expected[2:3]
    assert list(backend.read("s", upto=2)) == expected[:2]


def test_reading_behind_another_history_is_damage(backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a", "b"), 0)
    with pytest.raises(Damaged):
        list(backend.read("s", Head(1, b"x" * 16, 1)))


def test_a_view_does_not_change_while_it_is_read(backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries(*(f"k{number}" for number in range(300))), 0)
    reading = backend.read("s")
    next(reading)
    backend.append(lease, entries("new"), 300)
    assert len(list(reading)) == 299
    assert len(list(backend.read("s"))) == 301


def test_a_view_that_is_left_holds_nothing_up(backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries(*(f"k{number}" for number in range(300))), 0)
    left = [backend.read("s") for _ in range(20)]
    for reading in left:
        next(reading)
    assert backend.append(lease, entries("a"), 300).seq == 301
    del left, reading
    assert backend.append(lease, entries("b"), 301).seq == 302


def test_every_view_is_made_of_whole_appends(place: Place) -> None:
    one, other = place.open(), place.open()
    lease = one.acquire("s")
    ended = Event()

    def write() -> None:
        for number in range(0, 240, 3):
            one.append(lease, entries(*(f"k{number + part}" for part in range(3))), number)
        ended.set()

    thread = Thread(target=write)
    thread.start()
    seen = [0]
    while not ended.is_set():
        found = keys(other, "s")
        assert found == [f"k{number}" for number in range(len(found))]
        seen.append(len(found))
    thread.join()
    assert all(count % 3 == 0 for count in seen)
    assert seen == sorted(seen)


def test_large_values(place: Place) -> None:
    backend = place.open()
    values = [b"", b"\0\xff" * 10, b"x" * 3_000_000]
    one, other = backend.acquire("s"), backend.acquire("t")
    backend.append(one, [entry("a", b"{}", *values), entry("b", b"{}", values[2])], 0)
    backend.append(other, [entry("a", b"{}", values[2])], 0)
    names = [blob_name(value) for value in values]
    assert place.open().blobs(names) == dict(zip(names, values, strict=True))
    assert backend.blobs([]) == {}
    assert backend.blobs(names[:1] * 2) == {names[0]: b""}
    assert [one for one in backend.verify() if isinstance(one, StoreFault)] == []


def test_both_ends_of_a_large_value_and_its_size(place: Place) -> None:
    backend = place.open()
    lease = backend.acquire("s")
    value = b"".join(b"%d " % number for number in range(30_000))
    backend.append(lease, [entry("a", b"{}", value)], 0)
    name = blob_name(value)
    assert backend.sizes([name]) == {name: len(value)}
    assert backend.sizes([]) == {}
    assert backend.ends(name, 10, 7) == (value[:10], value[-7:])
    assert backend.ends(name, 0, 0) == (b"", b"")
    missing = blob_name(b"never kept")
    with pytest.raises(Damaged):
        backend.sizes([missing])
    with pytest.raises(Damaged):
        backend.ends(missing, 1, 1)


def test_a_large_value_that_is_gone(backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, [entry("a", b"{}", b"value")], 0)
    with pytest.raises(Damaged):
        backend.blobs([blob_name(b"value"), blob_name(b"another")])


def test_what_was_not_appended_left_no_large_value(backend: Backend) -> None:
    lease = backend.acquire("s")
    with pytest.raises(UsageError):
        backend.append(lease, [entry("a", b"{}", b"value"), entry("two words")], 0)
    with pytest.raises(Damaged):
        backend.blobs([blob_name(b"value")])


def test_listing(place: Place) -> None:
    backend = place.open()
    lease = backend.acquire("b")
    backend.append(lease, entries("x", "y"), 0)
    backend.release(backend.acquire("a"))
    backend.release(backend.acquire("c"))
    backend.release(backend.acquire("c"))
    a, b, c = place.open().sessions()
    assert [(one.session, one.seq, one.epoch) for one in (a, b, c)] == [
        ("a", 0, 1),
        ("b", 2, 1),
        ("c", 0, 2),
    ]
    assert b.holder
    assert (a.holder, c.holder) == ("", "")
    assert (a.changed, c.changed) == (0, 0)
    assert b.changed > 0
    assert a.created > 0
    backend.release(lease)
    assert next(backend.sessions(after="a")).holder == ""


def test_listing_many_by_pages(backend: Backend) -> None:
    names = sorted(f"{'sSxX'[number % 4]}-{number}" for number in range(200))
    for name in names:
        lease = backend.acquire(name)
        backend.append(lease, entries("a"), 0)
        backend.release(lease)
    assert [listed.session for listed in backend.sessions()] == names
    found: list[str] = []
    while page := list(backend.sessions(after=found[-1] if found else "", limit=33)):
        assert len(page) <= 33
        found += [listed.session for listed in page]
    assert found == names
    assert list(backend.sessions(limit=0)) == []
    assert [one.session for one in backend.verify() if isinstance(one, Listed)] == names


def test_verifying_a_store_that_is_in_order(backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, [entry("a", b"{}", b"value")], 0)
    backend.fork("s", 1, "t")
    found = list(backend.verify())
    assert [(one.session, one.seq) for one in found if isinstance(one, Listed)] == [
        ("s", 1),
        ("t", 1),
    ]
    assert len(found) == 2


def test_waiting_for_a_record(place: Place) -> None:
    one, other = place.open(), place.open()
    lease = one.acquire("s")
    one.append(lease, entries("a"), 0)
    assert other.wait("s", 0, 0)
    assert not other.wait("s", 1, 0.05)
    got = []
    thread = Thread(target=lambda: got.append(other.wait("s", 1, 60)))
    thread.start()
    one.append(lease, entries("b"), 1)
    thread.join()
    assert got == [True]


def test_waiting_for_a_session_that_does_not_exist_yet(place: Place) -> None:
    one, other = place.open(), place.open()
    got = []
    thread = Thread(target=lambda: got.append(other.wait("s", 0, 60)))
    thread.start()
    one.append(one.acquire("s"), entries("a"), 0)
    thread.join()
    assert got == [True]


def test_waiting_for_what_another_process_writes(shared_place: Place) -> None:
    child = shared_place.child()
    backend = shared_place.open()
    assert child.ask("acquire s") == "epoch 1"
    for number in range(3):
        child.tell(f"append s {number} k{number}")
        assert backend.wait("s", number, 60)
        assert child.answer() == f"seq {number + 1}"
