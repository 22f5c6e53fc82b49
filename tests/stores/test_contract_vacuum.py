"""Room that removed records had is given back, and no word of them stays in a file."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lockstitch.errors import Busy, Closed
from lockstitch.journal.records import NEW
from lockstitch.stores.base import Backend, StoreFault
from lockstitch.stores.opening import open_backend
from tests.stores.contract import Place, entries, entry, keys

SECRET = b"do-not-tell-anybody"
FILES = ("jsonl", "sqlite", "sqlite?compress=1")


def is_whole(backend: Backend) -> bool:
    return not any(isinstance(one, StoreFault) for one in backend.verify())


def test_what_is_there_stays(place: Place, backend: Backend) -> None:
    assert backend.vacuum() >= 0
    lease = backend.acquire("s")
    backend.append(lease, [entry("a", b"{}", b"value" * 1000), *entries("b", "c")], 0)
    backend.fork("s", 2, "t")
    before = [list(backend.read(name)) for name in ("s", "t")]
    assert backend.vacuum() >= 0
    assert backend.append(lease, entries("d"), 3).seq == 4
    assert place.open().vacuum() >= 0
    assert backend.append(lease, entries("e"), 4).seq == 5
    backend.delete(lease)
    assert backend.vacuum() >= 0
    assert list(place.open().read("t")) == before[1] == before[0][:2]
    assert is_whole(backend)


def test_a_closed_store_is_not_touched(backend: Backend) -> None:
    backend.close()
    with pytest.raises(Closed):
        backend.vacuum()


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def grow(backend: Backend, names: list[str], rounds: int, word: bytes) -> None:
    """Have sessions grow side by side, with large values now and then."""
    leases = {name: backend.acquire(name) for name in names}
    heads = {name: lease.head.seq for name, lease in leases.items()}
    for number in range(rounds):
        for name, lease in leases.items():
            body = b'{"text":"%s %d"}' % (word * (number % 7 * 30), number)
            values = (word * 5000 + name.encode(),) if number % 20 == 0 else ()
            made = [entry(f"{word.decode()}-{name}-{number}", body, *values)]
            heads[name] = backend.append(lease, made, heads[name]).seq
    for lease in leases.values():
        backend.release(lease)


@pytest.mark.parametrize("kind", FILES)
def test_no_word_of_a_removed_session_is_in_a_file(kind: str, tmp_path: Path) -> None:
    name, _, options = kind.partition("?")
    url = f"{Place(name, tmp_path).url}{'?' * bool(options)}{options}"
    with open_backend(url) as backend, open_backend(url) as other:
        grow(backend, ["a", "b", "c"], 60, b"plain")
        kept = [list(backend.read(one)) for one in "abc"]
        grow(backend, ["x", "y", "z"], 60, SECRET)
        grow(backend, ["d", "e"], 60, b"plain")
        backend.fork("x", 5, "f")
        for one in ("y", "x", "z", "f"):
            backend.delete(backend.acquire(one))
        lease = backend.acquire("a")
        assert backend.vacuum() >= 0
        found = [path.name for path in files(tmp_path) if SECRET in path.read_bytes()]
        assert found == []
        assert [list(other.read(one)) for one in "abc"] == kept
        assert backend.append(lease, entries("more"), 60).seq == 61
        assert is_whole(other)


@pytest.mark.parametrize("kind", FILES[1:])
def test_the_room_is_given_back(kind: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/sessions.db?{kind.partition('?')[2]}".rstrip("?")
    with open_backend(url) as backend:
        grow(backend, ["a"], 10, b"plain")
        grow(backend, ["x", "y"], 400, SECRET)
        for one in "xy":
            backend.delete(backend.acquire(one))
        before = sum(path.stat().st_size for path in files(tmp_path))
        freed = backend.vacuum()
        after = sum(path.stat().st_size for path in files(tmp_path))
        assert freed > before // 3
        assert after < before - freed + 10_000
        assert backend.vacuum() == 0


def test_what_a_crash_left_of_large_values_is_removed(tmp_path: Path) -> None:
    with Place("jsonl", tmp_path) as place:
        backend = place.open()
        backend.add("s", [entry("a", b"{}", b"value" * 1000)], NEW)
        [kept] = (tmp_path / "sessions" / "blobs").glob("??/*")
        stray = kept.with_name(kept.name[:2] + "0" * 30)
        stray.write_bytes(b"x" * 5000)
        assert backend.vacuum() == 5000
        assert kept.exists()
        assert not stray.exists()
        assert is_whole(backend)


def test_a_reader_is_waited_for_no_longer_than_asked(tmp_path: Path) -> None:
    with Place("sqlite", tmp_path) as place:
        backend, other = place.open(), place.open()
        grow(backend, ["a", "x"], 30, SECRET)
        reading = other.read("a")
        next(reading)
        backend.delete(backend.acquire("x"))
        with pytest.raises(Busy, match="try again"):
            backend.vacuum(wait=0.1)
        assert len(list(reading)) == 29
        assert backend.vacuum(wait=0.1) >= 0
        assert len(keys(other, "a")) == 30


def test_others_write_meanwhile(shared_place: Place) -> None:
    backend = shared_place.open()
    backend.add("kept", entries("a"), NEW)
    child = shared_place.child()
    child.ask("acquire s")
    for number in range(20):
        child.tell(f"append s {number} k{number}")
        backend.add(f"gone{number}", [entry("a", b'"%s"' % SECRET, SECRET * 9000)], NEW)
        backend.delete(backend.acquire(f"gone{number}"))
        assert backend.vacuum() >= 0
        assert child.answer() == f"seq {number + 1}"
    assert keys(backend, "s") == [f"k{number}" for number in range(20)]
    assert is_whole(backend)


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.03, 0.1])
def test_killed_in_the_middle(shared_place: Place, moment: float) -> None:
    backend = shared_place.open()
    grow(backend, ["a", "x"], 100, b"plain")
    kept = list(backend.read("a"))
    backend.delete(backend.acquire("x"))
    child = shared_place.child()
    child.ask("acquire other")
    child.tell("vacuums")
    time.sleep(moment)
    child.kill()
    assert list(backend.read("a")) == kept
    assert backend.add("a", entries("more"), backend.head("a") or NEW, wait=30).seq == 101
    assert backend.vacuum() >= 0
    assert is_whole(shared_place.open())
