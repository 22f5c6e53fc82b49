"""What somebody may plant in a database who has the right to create things there, and no other.

The proof that planted code ran is a file, which only code with a superuser's rights can make: it
runs a program on the server's machine, also in a transaction that only reads.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path

import psycopg

from tests.postgres_server import shared

from . import stage

MALLORY = "mallory"
_NUMBERS = count(1)
_RUN = """
CREATE FUNCTION {schema}.shell() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    EXECUTE 'COPY (SELECT 1) TO PROGRAM ''cat > {proof}''';
    RETURN true;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN true;
END $$;
CREATE FUNCTION {schema}.quiet(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN RETURN {schema}.shell(); END $$;
CREATE FUNCTION {schema}.fired() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM {schema}.shell(); RETURN coalesce(NEW, OLD); END $$;
GRANT USAGE ON SCHEMA {schema} TO PUBLIC;
"""


class Planted:
    """A role with CREATE on a database, its schema ``evil``, and the proof that its code ran."""

    def __init__(self, dsn: str, schema: str = "evil") -> None:
        self.dsn = dsn
        self.schema = schema
        self.mallory = dsn.replace("postgres@", f"{MALLORY}@")
        self.proof = Path(shared().folder) / f"proof-{next(_NUMBERS)}"
        make_role(dsn, MALLORY)
        database = dsn.rpartition("/")[2]
        self.as_superuser(f"GRANT CREATE ON DATABASE {database} TO {MALLORY}")
        self.as_mallory(f"CREATE SCHEMA {schema}")
        self.as_mallory(_RUN.format(schema=schema, proof=self.proof))

    def as_mallory(self, statements: str) -> None:
        """Do something with the rights that Mallory has."""
        with psycopg.connect(self.mallory, autocommit=True) as connection:
            connection.execute(statements.encode())

    def as_superuser(self, statements: str) -> None:
        """Do something with all rights."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statements.encode())

    def copy_tables(self, *names: str) -> None:
        """Make tables like LangGraph's in Mallory's schema, with the same rows in them."""
        for table in names:
            self.as_superuser(f"GRANT SELECT ON public.{table} TO {MALLORY}")
            self.as_mallory(
                f"CREATE TABLE {self.schema}.{table} (LIKE public.{table} INCLUDING ALL)"
            )
            self.as_mallory(f"INSERT INTO {self.schema}.{table} TABLE public.{table}")

    @property
    def has_run(self) -> bool:
        """Whether planted code ran with the rights of a superuser."""
        return self.proof.exists()


def make_role(dsn: str, name: str) -> None:
    """Make a role that can log in, unless an earlier test has."""
    with suppress(psycopg.errors.DuplicateObject):
        stage.ask(dsn, f"CREATE ROLE {name} LOGIN")
