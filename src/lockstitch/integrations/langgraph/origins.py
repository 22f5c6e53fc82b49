"""Read databases of LangGraph's ``SqliteSaver`` and ``PostgresSaver``; they are never written.

Checkpoints are read by the same saver that wrote them, so that they are what LangGraph itself would
get. The index and the path of a write, which no saver returns, are read from the rows. Everything
that is read of a thread is from one moment, even if others write to it meanwhile.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, LiteralString, Self, TypeVar

from msgspec import Struct

from lockstitch.errors import Unreadable, UsageError
from lockstitch.formats.langgraph.sqlite import LangGraph
from lockstitch.formats.sqlite import bind_values, open_reading, require_known, tables_of
from lockstitch.integrations.langgraph.run_ids import ThreadPlace
from lockstitch.sources.own_stores import is_own_database, is_postgres, path_of
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from lockstitch.formats.langgraph.postgres.database import LangGraphSchema
    from lockstitch.stores.postgres.connections import Connection

T = TypeVar("T")
# Values that change whenever a thread does: the numbers of its rows, and the last row of each
# table.
Stamp = tuple[Any, ...]
# A namespace, and the id of a checkpoint in it.
Spot = tuple[str, str]
_TABLES = {"checkpoints", "writes"}
# Queries for both databases, in which ``{row}`` is a column that grows with every change.
_THREADS = "SELECT DISTINCT thread_id FROM {checkpoints} ORDER BY thread_id"
_COUNT = "SELECT count(*) FROM {checkpoints}"
_COUNT_OF_THREAD = "SELECT count(*) FROM {checkpoints} WHERE thread_id = {id}"
_SPOTS = "SELECT checkpoint_ns, checkpoint_id FROM {checkpoints} WHERE thread_id = {id}"
_WRITES = """
SELECT checkpoint_ns, checkpoint_id, task_id, {task_path}, idx, channel, type, {value}
FROM {checkpoint_writes} WHERE thread_id = {id}
ORDER BY checkpoint_ns, checkpoint_id, task_id, idx
"""
_STAMP = """
SELECT count(*), max({row}) FROM {checkpoints} WHERE thread_id = {id}
UNION ALL SELECT count(*), max({row}) FROM {checkpoint_writes} WHERE thread_id = {id}
"""
# Runs such a query for one thread, or for all of them.
Select = Callable[[LiteralString, str | None], Iterable[Any]]


class WriteRow(Struct, frozen=True):
    """A write of a task, with everything that says where it belongs."""

    spot: Spot
    task: str
    path: str
    index: int
    channel: str
    value: Any


class ThreadView:
    """One thread, as of one moment."""

    def __init__(
        self,
        thread: str,
        saver: BaseCheckpointSaver[Any],
        serde: SerializerProtocol,
        select: Select,
    ) -> None:
        self.thread = thread
        self.serde = serde
        self._saver = saver
        self._select = select
        # The saver may have wrapped the serializer that it was given.
        self._saver.serde = serde

    def tuple(self, spot: Spot) -> CheckpointTuple:
        """Return a checkpoint as LangGraph reads it.

        The last one of a namespace is read without its id.
        """
        try:
            found = self._saver.get_tuple(ThreadPlace(self.thread, *spot).config)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Unreadable(
                f"checkpoint {spot[1]} is damaged: LangGraph cannot read it"
                f" ({type(error).__name__})"
            ) from None
        if found is None:
            raise Unreadable(f"checkpoint {spot[1]} cannot be found")
        return found

    def spots(self) -> list[Spot]:
        """Return the places of all checkpoints, ordered by id."""
        found = self._select(_SPOTS, self.thread)
        # In the order of Python's strings, not of a database's collation.
        return sorted(((space, id_) for space, id_ in found), key=lambda spot: spot[1])

    def writes(self) -> Iterator[WriteRow]:
        """Yield all writes, including those whose checkpoint was never stored."""
        rows = self._select(_WRITES, self.thread)
        for space, checkpoint, task, path, index, channel, tag, raw in rows:
            value = self.serde.loads_typed((tag, raw))
            yield WriteRow((space, checkpoint), task, path, index, channel, value)

    def stamp(self) -> Stamp:
        """Return values that change whenever the thread does."""
        return tuple(self._select(_STAMP, self.thread))


class Origin(ABC):
    """A database of one of LangGraph's savers.

    After one of the errors in ``fatal`` it is useless to continue with other threads.
    """

    fatal: tuple[type[Exception], ...] = ()

    def __init__(self, name: str, identity: str) -> None:
        self.name = name
        hashed = blake2b(identity.encode("utf-8", "surrogateescape"), digest_size=5)
        self.run = f"migrate-{hashed.hexdigest()}"

    @abstractmethod
    def __enter__(self) -> Self:
        """Open the database."""

    @abstractmethod
    def __exit__(self, *error: object) -> None:
        """Close the database."""

    @abstractmethod
    def select(self, statement: LiteralString, thread: str | None) -> Iterable[Any]:
        """Run a query about a thread, or about all of them."""

    def threads(self) -> list[str]:
        """Return the ids of all threads."""
        return [thread for (thread,) in self.select(_THREADS, None) if type(thread) is str]

    def count(self, thread: str | None) -> int:
        """Return the number of checkpoints of a thread, or of all threads."""
        [(count,)] = self.select(_COUNT if thread is None else _COUNT_OF_THREAD, thread)
        return int(count)

    @abstractmethod
    def read(self, thread: str, serde: SerializerProtocol, work: Callable[[ThreadView], T]) -> T:
        """Return the result of ``work`` on one state of a thread; it may be run more than once."""


def origin_of(source: str) -> Origin | None:
    """Return LangGraph's database at an address or path; None if it is anything else."""
    if is_postgres(source):
        from lockstitch.formats.langgraph.postgres.database import find_schema, look_into  # noqa: PLC0415

        return PostgresOrigin(source, find_schema(source)) if look_into(source).homes else None
    path = file_of(source)
    return None if path is None else SqliteOrigin(path)


def file_of(source: str) -> str | None:
    """Return the path of a ``SqliteSaver`` file; None for any other source."""
    path = path_of(source) if source.startswith("sqlite:") else source
    if not os.path.isfile(path) or is_own_database(path):  # noqa: PTH113
        return None
    try:
        with open_reading(path, follow=True) as base:
            return path if tables_of(base) >= _TABLES else None
    except Unreadable:
        return None


class SqliteOrigin(Origin):
    """A file of ``SqliteSaver`` or ``AsyncSqliteSaver``."""

    def __init__(self, path: str) -> None:
        super().__init__(path, os.path.realpath(path))
        self._path = path
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Open the file for reading."""
        self._base = self._stack.enter_context(open_reading(self._path, follow=True))
        require_known(self._base, LangGraph())
        columns = self._base.execute("PRAGMA table_info(writes)")
        self._has_paths = any(row[1] == "task_path" for row in columns)
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self._stack.close()

    def select(self, statement: LiteralString, thread: str | None) -> Iterable[Any]:
        query = statement.format(
            checkpoints="checkpoints",
            checkpoint_writes="writes",
            task_path="task_path" if self._has_paths else "''",
            value="value",
            row="rowid",
            id="CAST(? AS TEXT)",
        )
        return self._base.execute(query, bind_values([thread] * query.count("?")))

    def read(self, thread: str, serde: SerializerProtocol, work: Callable[[ThreadView], T]) -> T:
        with _name_missing("langgraph-checkpoint-sqlite"):
            from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415
        saver = SqliteSaver(self._base)
        # The tables exist already, and setting them up would write to the file.
        saver.is_setup = True
        saver._has_task_path = self._has_paths  # noqa: SLF001 - it is part of its setup
        self._base.budget.renew()
        self._base.execute("BEGIN")
        try:
            return work(ThreadView(thread, saver, serde, self.select))
        finally:
            self._base.execute("ROLLBACK")


class PostgresOrigin(Origin):
    """A schema of ``PostgresSaver`` or ``AsyncPostgresSaver`` in a PostgreSQL database."""

    def __init__(self, url: str, home: LangGraphSchema) -> None:
        from lockstitch.formats.langgraph.postgres.database import Database, ServerGone  # noqa: PLC0415

        self.fatal = (ServerGone,)
        self._database = Database(url, home.schema)
        self._home = home
        place = public(url).partition("?")[0]
        super().__init__(place, f"{place}#{home.schema}")

    def __enter__(self) -> Self:
        """Return the origin itself; a connection is opened when it is needed."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the connection."""
        self._database.close()

    def select(self, statement: LiteralString, thread: str | None) -> Iterable[Any]:
        return self._database.read(lambda base: self._select(base, statement, thread).fetchall())

    def _select(self, base: Connection, statement: LiteralString, thread: str | None) -> Any:
        query = statement.replace("{value}", "blob").replace("{row}", "xmin::text::bigint")
        return base.execute(self._home.sql(query.replace("{id}", "%(id)s")), {"id": thread})

    def read(self, thread: str, serde: SerializerProtocol, work: Callable[[ThreadView], T]) -> T:
        with _name_missing("langgraph-checkpoint-postgres"):
            from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415
        from lockstitch.formats.langgraph.postgres.database import qualifying_cursor  # noqa: PLC0415

        def once(base: Connection) -> T:
            before = base.cursor_factory
            base.cursor_factory = qualifying_cursor(self._home.schema)
            try:
                saver = PostgresSaver(base)  # type: ignore[arg-type]
                return work(ThreadView(thread, saver, serde, partial(self._select, base)))
            finally:
                base.cursor_factory = before

        return self._database.read(once)


@contextmanager
def _name_missing(package: str) -> Iterator[None]:
    """Turn an ``ImportError`` into one that names the package to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"its checkpoints are read by {package}: pip install {package}") from error
