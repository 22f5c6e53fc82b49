"""A store in which somebody planted what runs is not used, neither for reading nor for writing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lockstitch.errors import Unreadable
from lockstitch.stores.sqlite import SqliteBackend
from tests.stores.sqlite.conftest import entries

PLANTED = {
    "trigger": ["create trigger planted after update on sessions begin delete from pieces; end"],
    "view": [
        "alter table blobs rename to kept",
        "create view blobs as select * from kept",
    ],
    "computed column": [
        "alter table pieces add column made text as (hex(zeroblob(100000000))) virtual"
    ],
    "table": ["create virtual table words using fts5(said)"],
}


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("readonly", [True, False])
def test_what_was_planted_does_not_run(path: Path, kind: str, readonly: bool) -> None:
    with SqliteBackend(path) as store:
        store.append(store.acquire("s"), entries(3), 0)
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        for statement in PLANTED[kind]:
            base.execute(statement)
        before = base.execute("select count(*), sum(length(body)) from pieces").fetchall()
    with pytest.raises(Unreadable, match=f"has a {kind} .*nothing was read or changed"):
        SqliteBackend(path, readonly=readonly)
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("select count(*), sum(length(body)) from pieces").fetchall() == before
