"""Appending: in order, all or none, once."""

from __future__ import annotations

from itertools import pairwise
from threading import Thread

import pytest

from lockstitch.errors import Fenced, LockstitchError, Moved, UsageError
from lockstitch.journal.records import NEW, START, Head, JournalEntry, chain_entries
from lockstitch.stores.base import Backend
from tests.stores.contract import Place, entries, entry, keys


def test_a_new_session_is_empty(backend: Backend) -> None:
    lease = backend.acquire("s")
    assert (lease.session, lease.epoch, lease.head) == ("s", 1, Head(0, START, 1))
    assert backend.head("s") == lease.head
    assert list(backend.read("s")) == []


def test_what_is_appended_is_read_in_order_byte_for_byte(backend: Backend) -> None:
    lease = backend.acquire("s")
    first, second = entries("a", "b"), [entry("c", b'{ "x" : 1e400,"x":"\\u0000" }')]
    assert backend.append(lease, first, 0).seq == 2
    head = backend.append(lease, second, 2)
    expected = chain_entries(NEW, 1, [*first, *second])
    assert list(backend.read("s")) == expected
    assert head == backend.head("s") == Head(3, expected[-1].digest, 1)


def test_a_lease_begins_where_the_session_stands(backend: Backend) -> None:
    lease = backend.acquire("s")
    head = backend.append(lease, entries("a"), 0)
    backend.release(lease)
    again = backend.acquire("s")
    assert again.head == Head(1, head.digest, 2)
    assert again.token != lease.token


def test_every_lease_has_a_higher_epoch_which_its_records_carry(backend: Backend) -> None:
    leases = []
    for number in range(4):
        leases.append(backend.acquire("s"))
        backend.append(leases[-1], entries(f"k{number}"), number)
        backend.release(leases[-1])
    assert all(one.epoch < other.epoch for one, other in pairwise(leases))
    assert [record.epoch for record in backend.read("s")] == [lease.epoch for lease in leases]


def test_nothing_can_be_appended(backend: Backend) -> None:
    lease = backend.acquire("s")
    head = backend.append(lease, entries("a"), 0)
    assert backend.append(lease, [], 1) == head
    with pytest.raises(Moved):
        backend.append(lease, [], 0)
    assert keys(backend, "s") == ["a"]


@pytest.mark.parametrize(
    "bad",
    [
        JournalEntry("", 0, b"{}"),
        JournalEntry("two words", 0, b"{}"),
        JournalEntry("k" * 129, 0, b"{}"),
        JournalEntry("é", 0, b"{}"),
        JournalEntry("k", 0, b"{\n}"),
    ],
    ids=["empty", "space", "long", "foreign", "newline"],
)
def test_one_entry_that_cannot_be_kept_keeps_all_out(backend: Backend, bad: JournalEntry) -> None:
    lease = backend.acquire("s")
    with pytest.raises(UsageError):
        backend.append(lease, [entry("a"), bad], 0)
    assert backend.head("s") == lease.head
    assert backend.append(lease, entries("a"), 0).seq == 1


@pytest.mark.parametrize("after", [-1, 0, 1, 3, 100])
def test_other_entries_behind_another_record_do_not_count(backend: Backend, after: int) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a", "b"), 0)
    with pytest.raises(Moved):
        backend.append(lease, entries("c"), after)
    assert keys(backend, "s") == ["a", "b"]


def test_the_same_entries_again_are_done_already(backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a"), 0)
    sent = entries("b", "c")
    head = backend.append(lease, sent, 1)
    assert backend.append(lease, sent, 1) == head
    assert backend.append(lease, entries("b", "c"), 1) == head
    assert backend.append(lease, entries("a", "b", "c"), 0) == head
    assert backend.append(lease, entries("d"), 3).seq == 4


@pytest.mark.parametrize("sent", ["b", "c", "bcd", "cb", "ab", ""])
def test_a_part_of_them_or_more_is_not(backend: Backend, sent: str) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a"), 0)
    backend.append(lease, entries("b", "c"), 1)
    with pytest.raises(Moved):
        backend.append(lease, entries(*sent), 1)
    assert keys(backend, "s") == ["a", "b", "c"]


def test_nor_are_those_of_an_earlier_lease(backend: Backend) -> None:
    first = backend.acquire("s")
    backend.append(first, entries("a"), 0)
    backend.release(first)
    second = backend.acquire("s")
    with pytest.raises(Moved):
        backend.append(second, entries("a"), 0)
    backend.append(second, entries("b"), 1)
    with pytest.raises(Moved):
        backend.append(second, entries("a", "b"), 0)


def test_a_lease_that_was_given_back_writes_nothing(backend: Backend) -> None:
    lease = backend.acquire("s")
    backend.append(lease, entries("a"), 0)
    backend.release(lease)
    with pytest.raises(Fenced):
        backend.append(lease, entries("b"), 1)
    with pytest.raises(Fenced):
        backend.append(lease, entries("a"), 0)
    assert keys(backend, "s") == ["a"]


BODIES = {
    "escaped NUL": b'{"text":"\\u0000"}',
    "lone surrogate": b'{"text":"\\ud83d","more":"\\udc00"}',
    "unicode": '{"text":"Grüße, 世界 \U0001f9f5 \u2028\u2029\u0085"}'.encode(),
    "repeated keys": b'{"a":1,"a":2,"a":{"a":null}}',
    "large numbers": b'{"n":123456789012345678901234567890,"f":1e-400,"g":1.0e+5}',
    "spaces": b' { "a" :\t1 } ',
    "carriage return": b'{"a":\r1}',
    "text that looks like ours": b'{"seq":1,"epoch":9,"body":{},"digest":"00","check":"0"}',
    "quotes": b'{"a":"\\"},{\\\\","$":"\'; --"}',
    "five megabytes": b'{"text":"' + b"0123456789abcdef" * 327_680 + b'"}',
    "a million braces": b"[" * 500_000 + b"]" * 500_000,
    "other JSON": b"null",
}


@pytest.mark.parametrize("name", BODIES)
def test_odd_bodies_stay_as_they_are(place: Place, name: str) -> None:
    backend = place.open()
    lease = backend.acquire("s")
    sent = [entry("a"), entry("b", BODIES[name]), entry("c")]
    head = backend.append(lease, sent, 0)
    assert list(place.open().read("s")) == chain_entries(NEW, 1, sent)
    assert place.open().head("s") == head


def test_odd_keys_and_times(backend: Backend) -> None:
    lease = backend.acquire("s")
    odd = ["".join(map(chr, range(0x21, 0x7F))), "%s", "'\"\\", "{}", "k" * 128, "NULL"]
    sent = [
        JournalEntry(key, at, b"{}") for key, at in zip(odd, [0, 1, -1, 2**53, 1, 1], strict=True)
    ]
    backend.append(lease, sent, 0)
    assert list(backend.read("s")) == chain_entries(NEW, 1, sent)
    assert backend.append(lease, sent, 0).seq == len(sent)


def test_many_entries_at_once(backend: Backend) -> None:
    lease = backend.acquire("s")
    sent = entries(*(f"k{number}" for number in range(3000)))
    assert backend.append(lease, sent, 0).seq == 3000
    assert list(backend.read("s")) == chain_entries(NEW, 1, sent)


def test_eight_threads_write_eight_sessions(backend: Backend) -> None:
    failures: list[BaseException] = []

    def write(session: str) -> None:
        try:
            lease = backend.acquire(session)
            for number in range(50):
                backend.append(lease, [entry(f"k{number}")], number)
            backend.release(lease)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    run([lambda number=number: write(f"s{number}") for number in range(8)])
    assert failures == []
    for number in range(8):
        assert keys(backend, f"s{number}") == [f"k{count}" for count in range(50)]


def test_eight_threads_share_one_lease(backend: Backend) -> None:
    lease = backend.acquire("s")
    refused: list[type[BaseException]] = []

    def write(name: str) -> None:
        done = 0
        while done < 50:
            head = backend.head("s")
            assert head
            try:
                backend.append(lease, [entry(f"{name}-{done}")], head.seq)
            except LockstitchError as error:
                refused.append(type(error))
            else:
                done += 1

    run([lambda number=number: write(f"t{number}") for number in range(8)])
    assert set(refused) <= {Moved}
    found = keys(backend, "s")
    assert len(found) == 400
    for number in range(8):
        mine = [key for key in found if key.startswith(f"t{number}-")]
        assert mine == [f"t{number}-{count}" for count in range(50)]


def run(jobs: list) -> None:
    threads = [Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
