"""The databases of LangGraph.js: made, copied and read as rows, on both of its savers."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from tests.postgres_server import END, shared

Rows = dict[str, list[tuple[Any, ...]]]


class Database(ABC):
    """One database, by the address that both programs take."""

    tables: ClassVar[tuple[str, ...]]

    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    def copy(self) -> Database:
        """Another one with the same rows."""

    @abstractmethod
    def rows(self) -> Rows:
        """Every row of every table, in order; one that was written anew counts as another."""


class Sqlite(Database):
    """A file."""

    tables = ("checkpoints", "writes")
    _numbers = count(1)

    def copy(self) -> Sqlite:
        target = Path(self.address).parent / f"copy-{next(self._numbers)}" / "agent.db"
        target.parent.mkdir()
        with closing(sqlite3.connect(self.address)) as old, closing(sqlite3.connect(target)) as new:
            old.backup(new)
        return Sqlite(str(target))

    def rows(self) -> Rows:
        with closing(sqlite3.connect(self.address)) as connection:
            return {
                name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr)  # noqa: S608
                for name in self.tables
            }

    def data(self) -> dict[str, bytes]:
        """The bytes of the file and of those that SQLite keeps beside it."""
        path = Path(self.address)
        return {each.name: each.read_bytes() for each in sorted(path.parent.glob("*.db*"))}


class Postgres(Database):
    """A database of the test's own server."""

    tables = ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "checkpoint_migrations")

    _numbers = count(1)

    def copy(self) -> Postgres:
        name = self.address.rpartition("/")[2]
        copied = f"{name}_{next(self._numbers)}"
        # A program that was killed may leave a connection for a moment, and then none is copied.
        shared().execute(END, name)
        shared().execute(f"CREATE DATABASE {copied} TEMPLATE {name}")
        return Postgres(shared().address(copied))

    def rows(self) -> Rows:
        with psycopg.connect(self.address) as connection:
            return {
                name: sorted(connection.execute(f"SELECT *, xmin::text FROM {name}"), key=repr)  # noqa: S608
                for name in self.tables
            }


def fresh(kind: str, folder: Path) -> Database:
    """An empty one."""
    if kind == "postgres":
        return Postgres(shared().fresh())
    return Sqlite(str(folder / "agent.db"))
