"""LangGraph's conversation with every checkpointer: ours and its own, sync and async."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from stores_rivals import LangGraph, Rival, Turn, size_of

from lockstitch.integrations.langgraph import Guard, Saver

Sizes = Callable[[], int]


class AsyncLangGraph(LangGraph):
    """The same graph, awaited in a loop of its own."""

    def __init__(
        self,
        opened: Callable[[], Awaitable[tuple[Any, Callable[[], Awaitable[None]]]]],
        size: Sizes,
        **options: Any,
    ) -> None:
        self.loop = asyncio.new_event_loop()
        saver, self._aclose = self.loop.run_until_complete(opened())
        super().__init__(saver, lambda: None, size, **options)

    def turn(self, turn: Turn) -> None:
        self.now = turn
        said = {"messages": [self.human(content=turn.prompt)]}
        self.loop.run_until_complete(
            self.graph.ainvoke(said, self.config, durability=self.durability)
        )

    def load(self) -> int:
        state = self.loop.run_until_complete(self.graph.aget_state(self.config))
        return len(state.values["messages"])

    def close(self) -> None:
        self.loop.run_until_complete(self._aclose())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class Ours(LangGraph):
    """The graph with our checkpointer; loading opens the store anew."""

    def __init__(self, url: str, size: Sizes, **options: Any) -> None:
        self.url = url
        saver = Saver(url)
        super().__init__(saver, saver.close, size, **options)

    def load(self) -> int:
        with Saver(self.url) as saver:
            graph = self._compiled(saver, delta=False)
            return len(graph.get_state(self.config).values["messages"])


class OursAwaited(AsyncLangGraph):
    """The graph with our checkpointer, awaited."""

    def __init__(self, url: str, size: Sizes, **options: Any) -> None:
        async def opened() -> tuple[Any, Callable[[], Awaitable[None]]]:
            saver = Saver(url)

            async def close() -> None:
                saver.close()

            return saver, close

        super().__init__(opened, size, **options)


class Bare(LangGraph):
    """The graph alone, without any checkpointer: it is handed its messages."""

    durable = "no: nothing is kept"

    def __init__(self) -> None:
        super().__init__(None, lambda: None, lambda: 0)
        self.messages: list[Any] = []

    def turn(self, turn: Turn) -> None:
        self.now = turn
        said = [*self.messages, self.human(content=turn.prompt)]
        self.messages = self.graph.invoke({"messages": said})["messages"]

    def load(self) -> int:
        return len(self.messages)


CALLS = ("get_tuple", "list", "put", "put_writes")


def counted(saver: Any, calls: list[str]) -> Any:
    """Have a saver note every call of it."""

    def noting(name: str, real: Any) -> Any:
        def call(*words: Any, **options: Any) -> Any:
            calls.append(name)
            return real(*words, **options)

        return call

    for name in CALLS:
        setattr(saver, name, noting(name, getattr(saver, name)))
    return saver


def guarded_sqlite(folder: Path, **options: Any) -> Rival:
    """A graph with a ``Guard`` around ``SqliteSaver``."""
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415

    path = Path(tempfile.mkdtemp(prefix="guarded-", dir=folder)) / "langgraph.db"
    connection = sqlite3.connect(path, check_same_thread=False)
    guard = Guard(SqliteSaver(connection))
    return LangGraph(guard, connection.close, lambda: size_of(path), **options)


def sqlite_awaited(folder: Path, **options: Any) -> Rival:
    """A graph with ``AsyncSqliteSaver``."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # noqa: PLC0415

    path = Path(tempfile.mkdtemp(prefix="awaited-", dir=folder)) / "langgraph.db"

    async def opened() -> tuple[Any, Callable[[], Awaitable[None]]]:
        context = AsyncSqliteSaver.from_conn_string(str(path))
        saver = await context.__aenter__()
        return saver, lambda: context.__aexit__(None, None, None)

    return AsyncLangGraph(opened, lambda: size_of(path), **options)


def postgres_awaited(dsn: str, size: Sizes, **options: Any) -> Rival:
    """A graph with ``AsyncPostgresSaver``."""
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver  # noqa: PLC0415

    async def opened() -> tuple[Any, Callable[[], Awaitable[None]]]:
        context = AsyncPostgresSaver.from_conn_string(dsn)
        saver = await context.__aenter__()
        await saver.setup()
        return saver, lambda: context.__aexit__(None, None, None)

    return AsyncLangGraph(opened, size, **options)
