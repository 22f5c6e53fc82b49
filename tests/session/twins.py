"""One test for both twins: an awaitable face on the sync session, and ways to run a test."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from lockstitch.session.store import Store

from .talk import DIALECTS, faults

Body = Callable[[], Awaitable[Any]]
KINDS = ("sync", "asyncio", "trio")


class Face:
    """A sync session whose methods can be awaited; they never really wait for an event loop."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not inspect.ismethod(value) or name == "stream":
            return value

        async def call(*args: Any, **options: Any) -> Any:
            return value(*args, **options)

        return call


class Twin:
    """One of the twins, on one of the event loops."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def run(self, body: Body) -> Any:
        """Run a test that was written as a coroutine function."""
        if self.kind != "sync":
            return anyio.run(body, backend=self.kind)
        coroutine = body()
        try:
            coroutine.send(None)  # type: ignore[attr-defined]
        except StopIteration as done:
            return done.value
        raise AssertionError("the sync twin waited for an event loop")

    @asynccontextmanager
    async def opened(self, store: Store, name: str = "s", **options: Any) -> AsyncIterator[Any]:
        """Open a session of either kind."""
        if self.kind == "sync":
            with store.session(name, **options) as session:
                yield Face(session)
        else:
            async with store.async_session(name, **options) as session:
                yield session

    def inner(self, session: Any) -> Any:
        """What both twins are made of, for a test's tool that talks to its own session."""
        return session.inner if self.kind == "sync" else session._inner  # noqa: SLF001

    def tool(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A tool as this twin likes it best: async where that is possible."""
        if self.kind == "sync":
            return function

        async def tool(**arguments: Any) -> Any:
            await anyio.lowlevel.checkpoint()
            return function(**arguments)

        return tool


async def check_everywhere(session: Any) -> None:
    """The next request is valid in every dialect."""
    for dialect in DIALECTS:
        assert faults(dialect, await session.request(dialect)) == []
