"""A session that is deleted through a store is gone, and so is what was said in it."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from lockstitch.errors import Held, Unreadable, UsageError
from lockstitch.journal.events import INLINE
from lockstitch.session import maintenance
from lockstitch.session.listing import AUDIT
from lockstitch.session.store import Store
from lockstitch.stores.base import Backend
from tests.stores.contract import Place

MARKER = "SAID-IN-CONFIDENCE"
HEXED = MARKER.encode().hex()
LARGE = MARKER * (INLINE // len(MARKER) + 1)


@pytest.fixture
def store(backend: Backend) -> Store:
    return Store(backend)


def talk(store: Store, name: str, text: str) -> int:
    with store.session(name) as session:
        session.say(text)
        session.note("more", text)
        return session.seq


def test_it_is_gone_and_the_others_are_not(place: Place, store: Store) -> None:
    talk(store, "s", LARGE)
    talk(store, "t", LARGE)
    records = store.read("s").seq
    done = store.delete("s")
    assert (done.session, done.records, done.companions) == ("s", records, ())
    other = Store(place.open())
    assert [listed.session for listed in other.sessions()] == ["t"]
    with pytest.raises(Unreadable):
        other.read("s")
    assert other.read("t").request("anthropic")[0]["content"][0]["text"] == LARGE
    with other.session("s") as session:
        assert session.turn.state == "none"


def test_there_must_be_one(store: Store) -> None:
    with pytest.raises(Unreadable):
        store.delete("s")
    assert list(store.sessions()) == []
    with pytest.raises(UsageError):
        store.delete(AUDIT)


def test_nobody_may_write_it(store: Store) -> None:
    with store.session("s") as session:
        session.say("Hello")
        with pytest.raises(Held):
            store.delete("s")
        session.say("And on")
    store.delete("s", wait=1)


def test_what_belongs_to_it_goes_with_it_or_nothing_does(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("s", "s.1-0", "s.2-0"):
        talk(store, name, "Hello")
    monkeypatch.setattr(maintenance, "companions", lambda *_: ["s.1-0", "s.2-0", "s.3-0"])
    with store.session("s.2-0"), pytest.raises(Held):
        store.delete("s")
    assert [listed.session for listed in store.sessions()] == ["s", "s.1-0", "s.2-0"]
    done = store.delete("s")
    assert done.companions == ("s.1-0", "s.2-0")
    assert list(store.sessions()) == []


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_what_was_said_is_in_no_file(kind: str, tmp_path: Path) -> None:
    with Place(kind, tmp_path) as place:
        store = Store(place.open())
        for number in range(30):
            talk(store, f"s{number}", f"{LARGE} {number}")
            talk(store, f"t{number}", f"Harmless {number}")
        assert found(tmp_path)
        for number in range(30):
            store.delete(f"s{number}")
        assert store.vacuum() >= 0
        assert found(tmp_path) == []
        assert len(list(store.sessions())) == 30


def test_what_was_said_is_in_no_table(tmp_path: Path) -> None:
    with Place("postgres", tmp_path) as place:
        store = Store(place.open())
        talk(store, "s", LARGE)
        talk(store, "t", "Harmless")
        store.delete("s")
        assert store.vacuum() >= 0
        with psycopg.connect(place.url) as connection:
            for table in ("sessions", "records", "blobs", "uses", "labels"):
                asked = f"SELECT t::text FROM lockstitch.{table} t"  # noqa: S608
                dump = connection.execute(asked.encode())
                assert not [row for row in dump if MARKER in row[0] or HEXED in row[0]]
        assert [one.session for one in store.sessions()] == ["t"]


def found(folder: Path) -> list[Path]:
    marker = MARKER.encode()
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if marker in path.read_bytes()]
