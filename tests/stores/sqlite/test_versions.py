"""A store that an earlier version wrote opens, reads and lists as before."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from lockstitch.session.store import Store
from lockstitch.stores.base import Listing
from lockstitch.stores.sqlite import SqliteBackend, connections

if TYPE_CHECKING:
    import pytest


def older(path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store as that version made it, with two sessions."""
    newest = connections.migrations()
    with monkeypatch.context() as patch:
        patch.setattr(
            connections, "migrations", lambda: [one for one in newest if one[0] <= version]
        )
        with Store(SqliteBackend(path)) as store:
            for name in ("a", "b"):
                with store.session(name) as session:
                    session.say(f"Hello {name}")
    with sqlite3.connect(path) as connection:
        assert connection.execute("pragma user_version").fetchone() == (version,)


def test_one_without_titles_is_listed_for_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    older(path, 2, monkeypatch)
    before = path.read_bytes()
    with SqliteBackend(path, readonly=True) as backend:
        assert [one.session for one in backend.sessions()] == ["a", "b"]
        newest = [one.session for one in backend.listed(Listing(newest=True))]
        assert newest == ["b", "a"]
        assert list(backend.listed(Listing(tag="x"))) == []
    assert path.read_bytes() == before


def test_one_without_titles_is_brought_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.db"
    older(path, 2, monkeypatch)
    with Store(SqliteBackend(path)) as store:
        assert [one.session for one in store.sessions(order="changed")] == ["b", "a"]
        with store.session("a") as session:
            session.describe("The first", ["x"])
        assert [one.title for one in store.sessions(order="changed")] == ["The first", ""]
        assert [one.session for one in store.sessions(tag="x")] == ["a"]
