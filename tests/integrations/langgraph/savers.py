"""LangGraph's own checkpointers by name, without anything that takes long to import."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def memory(_: str) -> Iterator[Any]:
    from langgraph.checkpoint.memory import InMemorySaver

    yield InMemorySaver()


@contextmanager
def sqlite(address: str) -> Iterator[Any]:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(address) as saver:
        yield saver


@contextmanager
def postgres(address: str) -> Iterator[Any]:
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(address) as saver:
        saver.setup()
        yield saver


@asynccontextmanager
async def amemory(_: str) -> AsyncIterator[Any]:
    from langgraph.checkpoint.memory import InMemorySaver

    yield InMemorySaver()


@asynccontextmanager
async def asqlite(address: str) -> AsyncIterator[Any]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(address) as saver:
        yield saver


@asynccontextmanager
async def apostgres(address: str) -> AsyncIterator[Any]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    async with AsyncPostgresSaver.from_conn_string(address) as saver:
        await saver.setup()
        yield saver


SAVERS: dict[str, Callable[[str], Any]] = {
    "memory": memory,
    "sqlite": sqlite,
    "postgres": postgres,
}
ASYNC_SAVERS: dict[str, Callable[[str], Any]] = {
    "memory": amemory,
    "sqlite": asqlite,
    "postgres": apostgres,
}


@contextmanager
def checkpointer(name: str, folder: Path) -> Iterator[Any]:
    """One of LangGraph's own checkpointers, one of them guarded, or ours, by its name."""
    from lockstitch.integrations.langgraph import Guard, Saver

    kind, _, inner = name.partition(" ")
    if kind == "guarded":
        with checkpointer(inner, folder) as saver:
            yield Guard(saver)
    elif kind == "saver":
        with Saver(f"sqlite:///{folder}/own.db") as saver:
            yield saver
    else:
        with SAVERS[kind](address_of(kind, folder)) as saver:
            yield saver


@asynccontextmanager
async def acheckpointer(name: str, folder: Path) -> AsyncIterator[Any]:
    """The same for an event loop."""
    from lockstitch.integrations.langgraph import Guard, Saver

    kind, _, inner = name.partition(" ")
    if kind == "guarded":
        async with acheckpointer(inner, folder) as saver:
            yield Guard(saver)
    elif kind == "saver":
        with Saver(f"sqlite:///{folder}/own.db") as saver:
            yield saver
    else:
        async with ASYNC_SAVERS[kind](address_of(kind, folder)) as saver:
            yield saver


CHECKPOINTERS = ("memory", "sqlite", "guarded memory", "guarded sqlite", "saver", "guarded saver")
# Those that repair a thread by themselves before a new message.
REPAIRING = tuple(name for name in CHECKPOINTERS if name not in SAVERS)


def address_of(store: str, folder: Path) -> str:
    """A new database, ready for use."""
    if store != "postgres":
        return str(folder / "threads.db")
    from tests.postgres_server import shared

    address = shared().fresh()
    with postgres(address):
        return address


def on(thread: str, **place: Any) -> Any:
    """The config of a thread."""
    return {"configurable": {"thread_id": thread, **place}}
