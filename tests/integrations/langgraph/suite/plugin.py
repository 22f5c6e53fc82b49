"""A plugin for pytest that puts our checkpointers where LangGraph's tests make their own.

It runs within LangGraph's test folders, where this project's ``tests`` cannot be imported, so it
stands alone. ``LOCKSTITCH_SUITE`` says what is put in: ``own`` leaves LangGraph's savers and only
records, ``saver`` is ``Saver``, ``guard`` is ``Guard`` before LangGraph's own saver, and
``guarded-saver`` is ``Guard`` before ``Saver``. ``LOCKSTITCH_SUITE_OUTCOMES`` is the file that
gets one line of JSON for each test: its name, how it ended, and how many of ours it made.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from lockstitch.integrations.langgraph import Guard, Saver

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

WITH = os.environ.get("LOCKSTITCH_SUITE", "own")
_OUTCOMES = os.environ.get("LOCKSTITCH_SUITE_OUTCOMES")
_made = 0


def _plugged(own: Callable[[], BaseCheckpointSaver[Any]], url: str, serde: Any) -> Any:
    """Return what takes the place of a saver of LangGraph's, and count it."""
    global _made  # noqa: PLW0603 - a plugin has no other place for what tests did
    _made += 1
    if WITH == "guard":
        return Guard(own())
    ours = Saver(url, serde=serde)
    return Guard(ours) if WITH == "guarded-saver" else ours


class Memory:
    """Takes the place of the class ``InMemorySaver``."""

    def __new__(cls, *args: Any, serde: Any = None, **options: Any) -> Any:
        return _plugged(lambda: InMemorySaver(*args, serde=serde, **options), "memory:", serde)


class Sqlite:
    """Takes the place of the class ``SqliteSaver``."""

    def __new__(cls, connection: Any, *, serde: Any = None) -> Any:
        return _plugged(lambda: SqliteSaver(connection, serde=serde), "memory:", serde)

    @staticmethod
    @contextmanager
    def from_conn_string(address: str) -> Iterator[Any]:
        with TemporaryDirectory() as folder, SqliteSaver.from_conn_string(address) as own:
            yield _plugged(lambda: own, f"sqlite:///{folder}/suite.db", None)


class AsyncSqlite:
    """Takes the place of the class ``AsyncSqliteSaver``."""

    def __new__(cls, connection: Any, *, serde: Any = None) -> Any:
        return _plugged(lambda: AsyncSqliteSaver(connection, serde=serde), "memory:", serde)

    @staticmethod
    @asynccontextmanager
    async def from_conn_string(address: str) -> AsyncIterator[Any]:
        with TemporaryDirectory() as folder:
            async with AsyncSqliteSaver.from_conn_string(address) as own:
                yield _plugged(lambda: own, f"sqlite:///{folder}/suite.db", None)


_IN_PLACE_OF: dict[Any, Any] = {
    InMemorySaver: Memory,
    SqliteSaver: Sqlite,
    AsyncSqliteSaver: AsyncSqlite,
}


def pytest_collection_finish() -> None:
    """Exchange the classes in every module of tests, once all of them are imported."""
    if WITH == "own":
        return
    for name, module in list(sys.modules.items()):
        if not name.startswith("tests."):
            continue
        for known, value in list(vars(module).items()):
            if isinstance(value, type) and value.__name__ == "MemorySaverAssertImmutable":
                setattr(module, known, Memory)
            elif isinstance(value, type) and value in _IN_PLACE_OF:
                setattr(module, known, _IN_PLACE_OF[value])


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
