"""Checkpointers as applications wrap them: subclasses, forwarders, and such that change threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from lockstitch.integrations.langgraph import Guard, Saver


class OwnGuard(Guard):
    """A subclass that looks at what is loaded."""

    def get_tuple(self, config: Any) -> Any:
        return super().get_tuple(config)

    async def aget_tuple(self, config: Any) -> Any:
        return await super().aget_tuple(config)


class OwnSaver(Saver):
    """The same, of our own checkpointer."""

    def get_tuple(self, config: Any) -> Any:
        return super().get_tuple(config)

    async def aget_tuple(self, config: Any) -> Any:
        return await super().aget_tuple(config)


class Forwarding(BaseCheckpointSaver[Any]):
    """A checkpointer that hands everything on to another one."""

    def __init__(self, inner: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=inner.serde)
        self.inner = inner

    def call(self, method: Callable[..., Any], *words: Any, **options: Any) -> Any:
        """Call a method of the other one."""
        return method(*words, **options)

    async def acall(self, method: Callable[..., Any], *words: Any, **options: Any) -> Any:
        """Await a method of the other one."""
        return await method(*words, **options)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.inner.get_next_version(current, channel)

    def get_tuple(self, config: Any) -> Any:
        return self.call(self.inner.get_tuple, config)

    def list(self, config: Any, **options: Any) -> Iterator[Any]:
        yield from self.call(lambda: [*self.inner.list(config, **options)])

    def put(self, *words: Any) -> Any:
        return self.call(self.inner.put, *words)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.call(self.inner.put_writes, config, writes, task_id, task_path)

    async def aget_tuple(self, config: Any) -> Any:
        return await self.acall(self.inner.aget_tuple, config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        async for saved in self.inner.alist(config, **options):
            yield saved

    async def aput(self, *words: Any) -> Any:
        return await self.acall(self.inner.aput, *words)

    async def aput_writes(
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        await self.acall(self.inner.aput_writes, config, writes, task_id, task_path)


class Renaming(Forwarding):
    """One whose threads have other names behind it, as where tenants share a store."""

    def _inside(self, config: Any) -> Any:
        conf = config["configurable"]
        return {**config, "configurable": {**conf, "thread_id": f"tenant-{conf['thread_id']}"}}

    def _outside(self, config: Any) -> Any:
        if config is None:
            return None
        conf = config["configurable"]
        thread = str(conf["thread_id"]).removeprefix("tenant-")
        return {**config, "configurable": {**conf, "thread_id": thread}}

    def get_tuple(self, config: Any) -> Any:
        return self._shown(super().get_tuple(self._inside(config)))

    async def aget_tuple(self, config: Any) -> Any:
        return self._shown(await super().aget_tuple(self._inside(config)))

    def put(self, config: Any, *words: Any) -> Any:
        return self._outside(super().put(self._inside(config), *words))

    async def aput(self, config: Any, *words: Any) -> Any:
        return self._outside(await super().aput(self._inside(config), *words))

    def put_writes(self, config: Any, *words: Any) -> None:
        super().put_writes(self._inside(config), *words)

    async def aput_writes(self, config: Any, *words: Any) -> None:
        await super().aput_writes(self._inside(config), *words)

    def _shown(self, saved: Any) -> Any:
        if saved is None:
            return None
        above = self._outside(saved.parent_config)
        return saved._replace(config=self._outside(saved.config), parent_config=above)


class Elsewhere(Forwarding):
    """One that calls the other one in another thread, and takes the context along."""

    def call(self, method: Callable[..., Any], *words: Any, **options: Any) -> Any:
        context = copy_context()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(context.run, method, *words, **options).result()

    async def acall(self, method: Callable[..., Any], *words: Any, **options: Any) -> Any:
        return await asyncio.to_thread(lambda: asyncio.run(method(*words, **options)))


class Forgetful(Forwarding):
    """One that calls the other one in another thread, and leaves the context behind."""

    def call(self, method: Callable[..., Any], *words: Any, **options: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(method, *words, **options).result()

    async def acall(self, method: Callable[..., Any], *words: Any, **options: Any) -> Any:
        def called() -> Any:
            return asyncio.run(method(*words, **options))

        return await asyncio.get_running_loop().run_in_executor(None, called)


KINDS: dict[str, Callable[[], Any]] = {
    "Guard": lambda: Guard(InMemorySaver()),
    "Saver": lambda: Saver("memory:"),
    "Guard of Saver": lambda: Guard(Saver("memory:")),
}
# Around whatever it is, what an application may make of it.
SHAPES: dict[str, Callable[[str], Any]] = {
    "plain": lambda kind: KINDS[kind](),
    "subclass": lambda kind: (
        OwnSaver("memory:") if kind == "Saver" else OwnGuard(KINDS[kind]().saver)
    ),
    "forwarding": lambda kind: Forwarding(KINDS[kind]()),
    "forwarding twice": lambda kind: Forwarding(Forwarding(KINDS[kind]())),
    "renaming": lambda kind: Renaming(KINDS[kind]()),
    "elsewhere": lambda kind: Elsewhere(KINDS[kind]()),
}
