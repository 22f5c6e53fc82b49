"""Sessions are listed with what they are called, in two orders, page by page."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lockstitch.errors import UsageError
from lockstitch.journal.events import About, describe, entry_of
from lockstitch.journal.records import NEW, JournalEntry
from lockstitch.session.listing import AUDIT
from lockstitch.session.store import Store
from lockstitch.stores.base import Backend, Listed
from tests.stores.contract import Place, entries

MINUTE = 65536
ODD = ['a"],{}', "b\\", "\N{SNOWMAN}", "],[", "tags"]


@pytest.fixture
def store(backend: Backend) -> Store:
    return Store(backend)


def made(backend: Backend, name: str, at: int, *tags: str, title: str = "") -> None:
    about = entry_of(describe(About(), title, tags), "about", at)
    backend.add(name, [about, JournalEntry("k", at, b'{"kind":"noted","name":"x"}')], NEW)


def names(found: object) -> list[str]:
    assert not isinstance(found, str)
    return [one.session for one in found]  # type: ignore[attr-defined]


def test_what_a_session_is_called_is_listed(place: Place, store: Store) -> None:
    with store.session("s") as session:
        assert (session.title, session.tags, session.metadata) == ("", (), {})
        session.say("Hello")
        session.describe(title="The \N{SNOWMAN} case", tags=["b", "a", "b"], metadata={"id": 7})
        session.describe(metadata={"id": [8], "nested": {"x": None}})
        before = session.seq
        session.describe(title="The \N{SNOWMAN} case")
        assert session.seq == before
    with store.session("t"):
        pass
    one, other = Store(place.open()).sessions()
    assert (one.title, one.tags) == ("The \N{SNOWMAN} case", ("a", "b"))
    assert one.metadata == {"id": [8], "nested": {"x": None}}
    assert (other.title, other.tags, other.metadata) == ("", (), {})
    reader = store.read("s")
    assert (reader.title, reader.tags, reader.metadata) == (one.title, one.tags, one.metadata)


def test_it_is_taken_away_but_not_by_a_rewind(store: Store) -> None:
    with store.session("s") as session:
        place = session.checkpoint("start")
        session.describe("One", ["a"])
        session.rewind(place)
        assert (session.title, session.tags) == ("One", ("a",))
        assert names(store.sessions(tag="a")) == ["s"]
        session.describe(tags=[])
    assert names(store.sessions(tag="a")) == []
    (listed,) = store.sessions()
    assert (listed.title, listed.tags) == ("One", ())


def test_a_fork_is_called_as_its_source_was_there(store: Store) -> None:
    with store.session("s") as session:
        session.describe("One", ["a"], {"n": 1})
        session.checkpoint("one")
        session.say("Hello")
        session.describe("Two", ["b"])
    store.fork("s", "early", at="one")
    store.fork("s", "late")
    found = {one.session: (one.title, one.tags, one.metadata) for one in store.sessions()}
    assert found["early"] == ("One", ("a",), {"n": 1})
    assert found["late"] == found["s"] == ("Two", ("b",), {"n": 1})
    assert names(store.sessions(tag="b")) == ["late", "s"]
    assert store.read("late").turn.state == "open"


def test_nothing_of_it_stays_when_the_records_go(store: Store, backend: Backend) -> None:
    for name in ("s", "t"):
        with store.session(name) as session:
            session.describe(name, ["a"])
    store.delete("s")
    lease = backend.acquire("t")
    backend.replace(lease, entries("x"), lease.head.seq)
    backend.release(lease)
    with store.session("s"):
        pass
    assert names(store.sessions(tag="a")) == []
    assert [(one.title, one.tags) for one in store.sessions()] == [("", ()), ("", ())]


def test_records_that_take_the_place_of_others_describe_anew(backend: Backend) -> None:
    made(backend, "s", 5, "a")
    lease = backend.acquire("s")
    about = entry_of(describe(About(), "New", ["b"]), "about", 9)
    backend.replace(lease, [about], 2)
    backend.release(lease)
    store = Store(backend)
    assert names(store.sessions(tag="a")) == []
    assert names(store.sessions(tag="b", title="NEW")) == ["s"]


def test_pages_of_both_orders_follow_each_other(place: Place, backend: Backend) -> None:
    times = [3, 1, 3, 900_000, 2, 4_000_000, 65_535, 65_536, -5]
    for number, at in enumerate(times):
        made(backend, f"s{number}", at, "odd" if number % 2 else "even", title=f"Number {number}")
    store = Store(place.open())
    newest = ["s5", "s3", "s7", "s6", "s0", "s2", "s4", "s1", "s8"]
    assert names(store.sessions(order="changed")) == newest
    for size in (1, 2, 4, 100):
        for order, expected in (("name", sorted(newest)), ("changed", newest)):
            found: list[Listed] = []
            while True:
                after = found[-1].cursor if found else ""
                page = list(store.sessions(order=order, after=after, limit=size))  # type: ignore[arg-type]
                found += page
                if len(page) < size:
                    break
            assert names(found) == expected
    last = list(store.sessions(order="changed", limit=3))[-1]
    assert names(store.sessions(order="changed", after=last, limit=2)) == ["s6", "s0"]
    assert names(store.sessions(after="s6")) == ["s7", "s8"]


def test_sessions_are_chosen(backend: Backend) -> None:
    for number in range(6):
        at = number * MINUTE
        made(backend, f"s{number}", at, "odd" if number % 2 else "even", title=f"Case {number}")
    store = Store(backend)
    assert names(store.sessions(tag="odd")) == ["s1", "s3", "s5"]
    assert names(store.sessions(tag="odd", after="s1", limit=1)) == ["s3"]
    assert names(store.sessions(tag="odd", order="changed", limit=2)) == ["s5", "s3"]
    assert names(store.sessions(tag="o")) == []
    assert names(store.sessions(title="cASE 4")) == ["s4"]
    assert names(store.sessions(title="case", limit=2)) == ["s0", "s1"]
    since = 3 * MINUTE
    assert names(store.sessions(changed_after=since)) == ["s4", "s5"]
    assert names(store.sessions(changed_after=since - 1, order="changed")) == ["s5", "s4", "s3"]
    moment = datetime.fromtimestamp(since / 1000, UTC)
    assert names(store.sessions(changed_after=moment, tag="odd")) == ["s5"]


def test_one_that_changed_moves_to_the_front(backend: Backend) -> None:
    for number in range(3):
        made(backend, f"s{number}", number)
    head = backend.head("s0")
    assert head
    backend.add("s0", [JournalEntry("later", 10 * MINUTE, b"{}")], head)
    assert names(Store(backend).sessions(order="changed")) == ["s0", "s2", "s1"]


def test_what_is_the_stores_own_is_not_listed(store: Store, backend: Backend) -> None:
    made(backend, AUDIT, 5)
    made(backend, "s", 4)
    made(backend, "z", 3)
    assert names(store.sessions()) == names(store.sessions(order="changed")) == ["s", "z"]
    assert names(store.sessions(limit=1)) == ["s"]
    assert names(store.sessions(limit=0)) == []


def test_what_cannot_be_meant_is_refused(store: Store) -> None:
    with pytest.raises(UsageError):
        store.sessions(order="size")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        store.sessions(order="changed", after="s")
    with pytest.raises(UsageError):
        store.sessions(after="x/s")
    with store.session("s") as session:
        for wrong in (
            {"title": "two\nlines"},
            {"title": "x" * 301},
            {"title": 5},
            {"tags": "abc"},
            {"tags": [""]},
            {"tags": ["x" * 101]},
            {"tags": [str(n) for n in range(65)]},
            {"metadata": [1]},
            {"metadata": {"x": object()}},
            {"metadata": {"x": "y" * 20_000}},
        ):
            with pytest.raises(UsageError):
                session.describe(**wrong)  # type: ignore[arg-type]
        assert session.seq == 0
        session.describe("x", ODD, metadata={"nul": "\0", "text": 'a"b\\', "tags": ["no"]})
        session.describe("x", metadata={"nul": "\0", "text": 'a"b\\'})
        assert session.metadata == {"nul": "\0", "text": 'a"b\\'}
    for tag in ODD:
        assert names(store.sessions(tag=tag)) == ["s"]
    assert names(store.sessions(tag="no")) == []
    (listed,) = store.sessions()
    assert listed.metadata == {"nul": "\0", "text": 'a"b\\'}


def test_metadata_is_not_taken_for_tags(store: Store) -> None:
    with store.session("s") as session:
        session.describe(metadata={"tags": ["no"]})
    assert names(store.sessions(tag="no")) == []


def test_names_that_are_exchanged_take_what_they_are_called_along(backend: Backend) -> None:
    made(backend, "s", 5, "old", title="Old")
    made(backend, "t", 6, "new", title="New")
    backend.exchange("s", "aside", "t")
    store = Store(backend)
    assert names(store.sessions(tag="old")) == ["aside"]
    assert names(store.sessions(tag="new")) == ["s"]
    assert [one.title for one in store.sessions()] == ["Old", "New"]
