"""Running statements on a PostgreSQL, each a transaction, and knowing what became of it."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import Any, LiteralString

import psycopg

from lockstitch.errors import Unreadable, Unsure
from lockstitch.stores.postgres import errors
from lockstitch.stores.postgres.pool import Pool

TRIES = 8

Row = tuple[Any, ...]


class Lost(Exception):
    """Nobody knows whether a statement was carried out."""


class Server:
    """Runs statements over the connections of a pool; ``where`` says in errors what it was about.

    What the server reports as failed was rolled back, and raises an error of ours that says so.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def ask(self, statement: LiteralString, values: Row, where: str) -> list[Row]:
        """Read; over a new connection once more if the first is lost."""
        for _ in range(2):
            with suppress(Lost):
                return self.tell(statement, values, where)
        raise Unreadable(f"{where}: the connection was lost while reading, twice")

    def settle(self, statement: LiteralString, values: Row, where: str) -> list[Row]:
        """Write what can be written twice without harm: once more if the outcome is unknown."""
        for _ in range(2):
            with suppress(Lost):
                return self.tell(statement, values, where)
        raise Unsure(f"{where}: the connection was lost in the middle of a write, twice")

    def tell(self, statement: LiteralString, values: Row, where: str) -> list[Row]:
        """Run a statement; raises ``Lost`` if its outcome is unknown.

        It is run again only if the server said that it rolled it back for no fault of its own.
        """
        for tried in range(TRIES):
            try:
                return self.run(statement, values)
            except psycopg.Error as error:
                problem = _problem(error, where, is_last=tried == TRIES - 1)
            if problem:
                raise problem
            time.sleep(random.uniform(0, 0.005 * 2**tried))  # noqa: S311
        raise Lost

    def run(self, statement: LiteralString, values: Row) -> list[Row]:
        """Run a statement once; raises psycopg's errors."""
        with self._pool.connection() as connection, connection.cursor(binary=True) as cursor:
            return cursor.execute(statement, values).fetchall()


def _problem(error: psycopg.Error, where: str, *, is_last: bool) -> Exception | None:
    """Say what a failed statement comes to; None if it may be run again."""
    if not errors.is_rolled_back(error):
        return Lost()
    if errors.is_worth_another_try(error) and not is_last:
        return None
    return errors.translated(error, where)
