"""``--record URL``: every conversation that goes through the proxy becomes a session in a store.

Everything that waits is done beside the proxy's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lockstitch.dialects.profiles import profile_named
from lockstitch.errors import Unreadable, UsageError
from lockstitch.proxy.recording.chains import Linking
from lockstitch.proxy.recording.facts import parse_request
from lockstitch.proxy.recording.keeping import Keeper
from lockstitch.proxy.recording.requests import (
    KeptRequest,
    keep_reply,
    keep_request,
    keep_unread,
    read_reply,
)
from lockstitch.stores.base import Backend
from lockstitch.stores.opening import open_given

T = TypeVar("T")
# So many requests and replies are written together.
_THREADS = 16
_STORES = ("sqlite", "postgresql", "postgres")


def open_recorder(url: str) -> StoreRecorder:
    """Open the store in which conversations are kept; raise ``UsageError`` for what is none."""
    scheme = url.partition(":")[0]
    if scheme not in _STORES:
        raise UsageError(
            "conversations are recorded in a store: write --record sqlite:///conversations.db or"
            " --record postgresql://…"
        )
    return StoreRecorder(open_given(url))


class StoreRecorder:
    """Keeps every conversation that goes through the proxy as a session in a store."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._keeper = Keeper(backend)
        self._linking = Linking()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="lockstitch recorder")

    async def begin(
        self, dialect: str, body: bytes, *, streamed: bool, model: str = "", client: str = ""
    ) -> StoreExchange:
        """Keep a request durably, as the client sent it, and return where its reply belongs.

        ``model`` is for dialects whose address names it, and ``client`` who asks.
        """
        name = profile_named(dialect).dialect
        kept = await self._beside(lambda: self._kept(name, body, model, client))
        return StoreExchange(self, kept)

    def _kept(self, dialect: str, body: bytes, model: str, client: str) -> KeptRequest:
        try:
            asking = parse_request(dialect, body, self._linking, model)
        except Unreadable:
            return keep_unread(self._keeper, body, dialect, client)
        return keep_request(self._keeper, asking, client)

    async def commit(self, kept: KeptRequest, data: bytes, status: int, *, complete: bool) -> str:
        """Keep a reply durably; return the name of its session."""

        def work() -> str:
            came = read_reply(kept.dialect, data, status, kept.model, complete=complete)
            return keep_reply(self._keeper, kept, came)

        return await self._beside(work)

    async def close(self) -> None:
        """Write what is left and release the store."""
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._backend.close)

    async def _beside(self, work: Callable[[], T]) -> T:
        """Do what may wait; who is cancelled meanwhile leaves it to come to its end."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._threads, work))


class StoreExchange:
    """One request and the reply to it, while it goes through the proxy."""

    def __init__(self, recorder: StoreRecorder, kept: KeptRequest) -> None:
        self.kept = kept
        self.session = kept.session
        self._recorder = recorder
        self._chunks: list[bytes] = []

    def feed(self, chunk: bytes) -> None:
        """Take a chunk of the reply's body, decoded, in the order in which it arrives."""
        self._chunks.append(chunk)

    async def commit(self, status: int, *, complete: bool) -> None:
        """Keep the reply durably: when this returns, it survives a crash."""
        data = b"".join(self._chunks)
        self._chunks = []
        self.session = await self._recorder.commit(self.kept, data, status, complete=complete)
