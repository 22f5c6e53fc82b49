"""A plugin for pytest that puts our checkpointers where LangGraph's tests make their own.

It runs within LangGraph's test folders, where this project's ``tests`` cannot be imported, so it
stands alone. ``LOCKSTITCH_SUITE`` says what is put in: ``own`` leaves LangGraph's savers and only
records, ``saver`` is ``Saver``, ``guard`` is ``Guard`` before LangGraph's own saver, and
``guarded-saver`` is ``Guard`` before ``Saver``. ``LOCKSTITCH_SUITE_OUTCOMES`` is the file that
gets one line of JSON for each test: its name, how it ended, and how many of ours it made.
``LOCKSTITCH_SUITE_POSTGRES`` is the address of a PostgreSQL to take in place of the one that the
tests expect on a port of theirs; then only the tests that want one are run.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from lockstitch.integrations.langgraph import Guard, Saver

WITH = os.environ.get("LOCKSTITCH_SUITE", "own")
_OUTCOMES = os.environ.get("LOCKSTITCH_SUITE_OUTCOMES")
_POSTGRES = os.environ.get("LOCKSTITCH_SUITE_POSTGRES")
_EXPECTED = re.compile("^postgres://postgres:postgres@localhost:544[12]/")
_made = 0


def _count() -> None:
    global _made  # noqa: PLW0603 - a plugin has no other place for what tests did
    _made += 1


# Tests make subclasses of LangGraph's classes and ask of which class a saver is. So what takes
# their place are classes, too, none of them a subclass of another.


class _Saver(Saver):
    """Takes the place of a saver of LangGraph's: whatever that is given, this is in memory."""

    def __init__(self, *_given: Any, serde: Any = None, url: str = "memory:", **_more: Any) -> None:
        _count()
        super().__init__(url, serde=serde)


class SaverForMemory(_Saver):
    """Takes the place of ``InMemorySaver``."""


class SaverForSqlite(_Saver):
    """Takes the place of ``SqliteSaver``, in a file of its own."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, _address: str) -> Iterator[Any]:
        with TemporaryDirectory() as folder, cls(url=f"sqlite:///{folder}/suite.db") as saver:
            yield saver


class SaverForAsyncSqlite(_Saver):
    """Takes the place of ``AsyncSqliteSaver``, in a file of its own."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, _address: str) -> AsyncIterator[Any]:
        with TemporaryDirectory() as folder:
            async with cls(url=f"sqlite:///{folder}/suite.db") as saver:
                yield saver


class _SaverOnServer(_Saver):
    """Takes the place of a saver that is given a connection, or a pool of them, of its own."""

    def __init__(self, conn: Any, *_given: Any, serde: Any = None, **_more: Any) -> None:
        self.conn = conn
        super().__init__(serde=serde, url=_address_of(conn))
        # The tests remove the database when they have closed their connections.
        close = conn.close

        def close_both() -> Any:
            self.close()
            return close()

        async def aclose_both() -> None:
            self.close()
            await close()

        conn.close = aclose_both if iscoroutinefunction(close) else close_both


def _address_of(conn: Any) -> str:
    """Return the address of the database of a connection, or of a pool."""
    if hasattr(conn, "conninfo"):
        return str(conn.conninfo)
    info = conn.info
    return f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"


class SaverForPostgres(_SaverOnServer):
    """Takes the place of ``PostgresSaver``, in the same database."""

    def setup(self) -> None:
        """Set up nothing: that is done when it is opened."""

    @classmethod
    @contextmanager
    def from_conn_string(cls, address: str) -> Iterator[Any]:
        with PostgresSaver.from_conn_string(address) as own:
            yield cls(own.conn)


class SaverForAsyncPostgres(_SaverOnServer):
    """Takes the place of ``AsyncPostgresSaver``, in the same database."""

    async def setup(self) -> None:
        """Set up nothing: that is done when it is opened."""

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, address: str) -> AsyncIterator[Any]:
        async with AsyncPostgresSaver.from_conn_string(address) as own:
            yield cls(own.conn)


class _Guard(Guard):
    """Takes the place of a saver of LangGraph's, and stores in one."""

    inner: ClassVar[Any]
    ours: ClassVar[Any] = _Saver

    def __init__(self, *given: Any, **more: Any) -> None:
        _count()
        made = self.ours if WITH == "guarded-saver" else self.inner
        super().__init__(made(*given, **more))


class GuardForMemory(_Guard):
    """Takes the place of ``InMemorySaver``."""

    inner = InMemorySaver


class GuardForSqlite(_Guard):
    """Takes the place of ``SqliteSaver``."""

    inner = SqliteSaver

    @classmethod
    @contextmanager
    def from_conn_string(cls, address: str) -> Iterator[Any]:
        with SqliteSaver.from_conn_string(address) as own:
            yield cls(own.conn)


class GuardForAsyncSqlite(_Guard):
    """Takes the place of ``AsyncSqliteSaver``."""

    inner = AsyncSqliteSaver

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, address: str) -> AsyncIterator[Any]:
        async with AsyncSqliteSaver.from_conn_string(address) as own:
            yield cls(own.conn)


class _GuardOnServer(_Guard):
    """Takes the place of a saver that the tests tell to work in a pipeline."""

    @property
    def pipe(self) -> Any:
        """What the saver behind sends its statements by."""
        return self.saver.pipe  # type: ignore[attr-defined]

    @pipe.setter
    def pipe(self, pipe: Any) -> None:
        self.saver.pipe = pipe  # type: ignore[attr-defined]


class GuardForPostgres(_GuardOnServer):
    """Takes the place of ``PostgresSaver``."""

    inner = PostgresSaver
    ours = SaverForPostgres

    @classmethod
    @contextmanager
    def from_conn_string(cls, address: str) -> Iterator[Any]:
        with PostgresSaver.from_conn_string(address) as own:
            yield cls(own.conn)


class GuardForAsyncPostgres(_GuardOnServer):
    """Takes the place of ``AsyncPostgresSaver``."""

    inner = AsyncPostgresSaver
    ours = SaverForAsyncPostgres

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, address: str) -> AsyncIterator[Any]:
        async with AsyncPostgresSaver.from_conn_string(address) as own:
            yield cls(own.conn)


_SAVERS = {
    InMemorySaver: (SaverForMemory, GuardForMemory),
    SqliteSaver: (SaverForSqlite, GuardForSqlite),
    AsyncSqliteSaver: (SaverForAsyncSqlite, GuardForAsyncSqlite),
    PostgresSaver: (SaverForPostgres, GuardForPostgres),
    AsyncPostgresSaver: (SaverForAsyncPostgres, GuardForAsyncPostgres),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Choose the tests that want a PostgreSQL, if there is one for them."""
    if _POSTGRES is not None:
        items[:] = [item for item in items if _is_on_server(item)]


def _is_on_server(item: pytest.Item) -> bool:
    """Whether the threads of a test are in PostgreSQL, and nothing else of it is in a server."""
    if item.path.parts[-3] == "checkpoint-postgres":
        return True
    given = getattr(getattr(item, "callspec", None), "params", {})
    savers = [str(given.get(name)) for name in ("sync_checkpointer", "async_checkpointer")]
    # Those that want threads of an earlier version are left out with the ones on a server.
    is_chosen = any("postgres" in name or "migrate" in name for name in savers)
    others = [str(given.get(name)) for name in ("sync_store", "async_store", "cache")]
    return is_chosen and not any("postgres" in name or name == "redis" for name in others)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exchange classes and addresses in every module of tests, once all of them are imported."""
    in_place_of: dict[Any, type] = {}
    if WITH != "own":
        in_place_of = {one: ours[WITH != "saver"] for one, ours in _SAVERS.items()}
    modules = {name: one for name, one in sys.modules.items() if name.startswith("tests.")}
    # Some folders of tests are no packages.
    modules |= {item.module.__name__: item.module for item in session.items}  # type: ignore[attr-defined]
    for module in modules.values():
        for known, value in list(vars(module).items()):
            if isinstance(value, str) and _POSTGRES is not None:
                setattr(module, known, _EXPECTED.sub(_POSTGRES, value))
            elif not isinstance(value, type) or not in_place_of:
                continue
            elif value.__name__ == "MemorySaverAssertImmutable":
                setattr(module, known, in_place_of[InMemorySaver])
            elif value in in_place_of:
                setattr(module, known, in_place_of[value])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Count from nothing for each test."""
    global _made  # noqa: PLW0603
    _made = 0
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Let the count travel with the report, also from a worker."""
    item.user_properties[:] = [("lockstitch made", _made)]
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down how a test ended; only the process that all reports reach does."""
    if _OUTCOMES is None or os.environ.get("PYTEST_XDIST_WORKER"):
        return
    if report.when != "call" and report.passed:
        return
    made = dict(report.user_properties).get("lockstitch made", 0)
    crash = getattr(report.longrepr, "reprcrash", None)
    why = "" if crash is None else crash.message.strip().partition("\n")[0]
    line = {"test": report.nodeid, "outcome": report.outcome, "made": made, "why": why}
    with Path(_OUTCOMES).open("a") as file:
        file.write(json.dumps(line) + "\n")
