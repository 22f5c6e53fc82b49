"""Running statements on a PostgreSQL, each a transaction, and knowing what became of it."""

from __future__ import annotations

import random
import time
from typing import Any, LiteralString

import psycopg

from lockstitch.errors import Unreadable, Unsure
from lockstitch.stores.postgres import errors
from lockstitch.stores.postgres.connections import Silent
from lockstitch.stores.postgres.pool import SLOW, Pool

TRIES = 8
_LOST = "the connection was lost"

Row = tuple[Any, ...]
Values = Row | dict[str, Any]


class Lost(Exception):
    """Nobody knows whether a statement was carried out; the text says why."""


class Unanswered(Lost):
    """The server is silent: asking once more at once would be waiting once more."""


class Server:
    """Runs statements over the connections of a pool; ``where`` says in errors what it was about.

    What the server reports as failed was rolled back, and raises an error of ours that says so.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def ask(
        self, statement: LiteralString, values: Values, where: str, *, is_slow: bool = False
    ) -> list[Row]:
        """Read; over a new connection once more if the first is lost."""
        patience = self._pool.timeout * SLOW if is_slow else None
        try:
            return self._twice(statement, values, where, patience)
        except Unanswered as error:
            raise Unreadable(f"{where}: {error}; read it again when the server answers") from None
        except Lost:
            raise Unreadable(f"{where}: the connection was lost while reading, twice") from None

    def settle(self, statement: LiteralString, values: Values, where: str) -> list[Row]:
        """Write what can be written twice without harm: once more if the outcome is unknown."""
        try:
            return self._twice(statement, values, where, None)
        except Unanswered as error:
            raise Unsure(f"{where}: {error}; do it again when the server answers") from None
        except Lost:
            raise Unsure(
                f"{where}: the connection was lost in the middle of a write, twice"
            ) from None

    def _twice(
        self, statement: LiteralString, values: Values, where: str, patience: float | None
    ) -> list[Row]:
        try:
            return self.tell(statement, values, where, patience)
        except Unanswered:
            raise
        except Lost:
            self._pool.drop_idle()
            return self.tell(statement, values, where, patience)

    def tell(
        self, statement: LiteralString, values: Values, where: str, patience: float | None = None
    ) -> list[Row]:
        """Run a statement; raises ``Lost`` if its outcome is unknown.

        It is run again only if the server said that it rolled it back for no fault of its own.
        """
        for tried in range(TRIES):
            try:
                return self.run(statement, values, patience)
            except psycopg.Error as error:
                problem = _problem(error, where, is_last=tried == TRIES - 1)
            if problem:
                raise problem
            time.sleep(random.uniform(0, 0.005 * 2**tried))  # noqa: S311
        raise Lost(_LOST)

    def vacuum(self, statement: LiteralString, where: str) -> None:
        """Run what gives no rows and may take long; it can be broken off and run again."""
        problem: Exception | None
        try:
            with self._pool.connection(self._pool.timeout * SLOW) as lent:
                lent.execute(statement)
        except psycopg.Error as error:
            problem = _problem(error, where, is_last=True)
        else:
            return
        if problem is None or isinstance(problem, Lost):
            raise Unreadable(f"{where}: the connection was lost; vacuum it again") from None
        raise problem

    def run(
        self, statement: LiteralString, values: Values, patience: float | None = None
    ) -> list[Row]:
        """Run a statement once; raises psycopg's errors."""
        with self._pool.connection(patience) as lent, lent.cursor(binary=True) as cursor:
            return cursor.execute(statement, values).fetchall()


def _problem(error: psycopg.Error, where: str, *, is_last: bool) -> Exception | None:
    """Say what a failed statement comes to; None if it may be run again."""
    if isinstance(error, Silent):
        return Unanswered(f"PostgreSQL gave {error}")
    if not errors.is_rolled_back(error):
        return Lost(_LOST)
    if errors.is_worth_another_try(error) and not is_last:
        return None
    return errors.translated(error, where)
