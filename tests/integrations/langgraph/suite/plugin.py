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
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from lockstitch.integrations.langgraph import Guard, Saver

WITH = os.environ.get("LOCKSTITCH_SUITE", "own")
_OUTCOMES = os.environ.get("LOCKSTITCH_SUITE_OUTCOMES")
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


class _Guard(Guard):
    """Takes the place of a saver of LangGraph's, and stores in one."""

    inner: ClassVar[Any]

    def __init__(self, *given: Any, **more: Any) -> None:
        _count()
        made = _Saver if WITH == "guarded-saver" else self.inner
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


_SAVERS = (InMemorySaver, SqliteSaver, AsyncSqliteSaver)
_OURS: dict[str, tuple[type, type, type]] = {
    "saver": (SaverForMemory, SaverForSqlite, SaverForAsyncSqlite),
    "guard": (GuardForMemory, GuardForSqlite, GuardForAsyncSqlite),
    "guarded-saver": (GuardForMemory, GuardForSqlite, GuardForAsyncSqlite),
}


def pytest_collection_finish() -> None:
    """Exchange the classes in every module of tests, once all of them are imported."""
    if WITH == "own":
        return
    in_place_of: dict[type, type] = dict(zip(_SAVERS, _OURS[WITH], strict=True))
    for name, module in list(sys.modules.items()):
        if not name.startswith("tests."):
            continue
        for known, value in list(vars(module).items()):
            if isinstance(value, type) and value.__name__ == "MemorySaverAssertImmutable":
                setattr(module, known, in_place_of[InMemorySaver])
            elif isinstance(value, type) and value in in_place_of:
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
