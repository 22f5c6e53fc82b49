"""A store that an earlier version wrote opens, reads and lists as before."""

from __future__ import annotations

from pathlib import Path

from lockstitch.journal.events import Said, entry_of, text_payload
from lockstitch.session.store import Store
from lockstitch.stores.base import Listing
from lockstitch.stores.sqlite import SqliteBackend
from tests.stores.sqlite import older


def made(path: Path) -> None:
    """Write a store as version 2 made it, with two sessions."""
    said = {name: Said(payload=text_payload(f"Hello {name}")) for name in ("a", "b")}
    older.make(
        path,
        {name: [entry_of(one, "k", at)] for at, (name, one) in enumerate(said.items(), 1)},
    )


def test_one_without_titles_is_listed_for_reading(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    made(path)
    before = path.read_bytes()
    with SqliteBackend(path, readonly=True) as backend:
        assert [one.session for one in backend.sessions()] == ["a", "b"]
        newest = [one.session for one in backend.listed(Listing(newest=True))]
        assert newest == ["b", "a"]
        assert list(backend.listed(Listing(tag="x"))) == []
    assert path.read_bytes() == before


def test_one_without_titles_is_brought_up(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    made(path)
    with Store(SqliteBackend(path)) as store:
        assert [one.session for one in store.sessions(order="changed")] == ["b", "a"]
        with store.session("a") as session:
            session.describe("The first", ["x"])
        assert [one.title for one in store.sessions(order="changed")] == ["The first", ""]
        assert [one.session for one in store.sessions(tag="x")] == ["a"]
