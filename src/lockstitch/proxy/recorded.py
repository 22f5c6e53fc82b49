"""A reply on its way to the client, kept before its last bytes go there; what a recorder is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Protocol

from lockstitch.dialects.registry import VIEWS
from lockstitch.proxy.http import DecodedReply

if TYPE_CHECKING:
    from aiohttp import ClientResponse


class RecordedExchange(Protocol):
    """One request and the reply to it, while it goes through the proxy."""

    def feed(self, chunk: bytes) -> None:
        """Take a chunk of the reply's body, decoded, in the order in which it arrives."""

    async def commit(self, status: int, *, complete: bool) -> None:
        """Keep the reply durably: when this returns, it survives a crash.

        The proxy calls it once, before the last bytes of the reply go to the client. ``complete``
        is false when the provider or the client went away in the middle; what arrived is kept.
        """


class Recorder(Protocol):
    """Keeps every conversation that goes through the proxy as a session in a store."""

    async def begin(
        self, dialect: str, body: bytes, *, streamed: bool, model: str = "", client: str = ""
    ) -> RecordedExchange:
        """Keep a request durably, as the client sent it, and return where its reply belongs.

        The proxy calls it before the first byte of the reply goes to the client. ``model`` is for
        APIs whose address names it, and ``client`` is what the client says that it is.
        """

    async def close(self) -> None:
        """Write what is left and release the store."""


_LONGEST_MARK = 64
# What comes behind the end of a reply comes at once; who waits for more waits for nothing.
_SILENCE = 2.0
_STREAMS = ("text/event-stream", "application/vnd.amazon.eventstream")


class BodySource(Protocol):
    """Where the body of a reply is read from."""

    async def readany(self) -> bytes:
        """Return what has arrived; nothing at the end."""


class Replayed:
    """The body of a reply that was read already."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def readany(self) -> bytes:
        """Return all of it, once."""
        data, self.data = self.data, b""
        return data


async def chunks(source: BodySource) -> AsyncIterator[bytes]:
    """Return the chunks of a body as they arrive."""
    while chunk := await source.readany():
        yield chunk


class NotKept(Exception):
    """A reply could not be kept, and whoever records wants none that is not."""


class Passage:
    """The chunks of one reply: the recorder gets each, and keeps all before the last go on.

    A stream is held from the event on that ends it, anything else by one chunk. ``failed`` is
    called if the reply cannot be kept, and may raise NotKept.
    """

    def __init__(
        self,
        dialect: str,
        reply: ClientResponse,
        source: BodySource,
        exchange: RecordedExchange,
        failed: Callable[[Exception], None],
    ) -> None:
        self.status = reply.status
        self.source = source
        self.exchange = exchange
        self.failed = failed
        self.is_stream = reply.content_type in _STREAMS
        self.end = VIEWS[dialect].stream_end
        self.decoded = DecodedReply(reply.headers.get("Content-Encoding", ""))
        self.tail = b""
        self.held: list[bytes] = []
        self.is_kept = False

    async def chunks(self) -> AsyncIterator[bytes]:
        """Return the chunks as they may go to the client."""
        has_ended = False
        while True:
            try:
                async with asyncio.timeout(_SILENCE if has_ended and not self.is_kept else None):
                    chunk = await self.source.readany()
            except TimeoutError:
                if not has_ended or self.is_kept:
                    raise
                await self._commit(complete=True)
                yield self._released()
                continue
            if not chunk:
                break
            if self.is_kept:
                yield chunk
                continue
            has_ended = self._take(chunk) or has_ended
            ready = self._ready(chunk, has_ended=has_ended)
            if ready:
                yield ready
        if not self.is_kept:
            await self._commit(complete=True)
        left = self._released()
        if left:
            yield left

    def _take(self, chunk: bytes) -> bool:
        """Feed a chunk to the recorder; return whether the reply ends in it."""
        text = self.decoded.read(chunk)
        if text:
            self.exchange.feed(text)
        if not self.is_stream:
            return False
        seen = self.tail + text
        self.tail = seen[-_LONGEST_MARK:]
        return self.end is not None and self.end.search(seen) is not None

    def _ready(self, chunk: bytes, *, has_ended: bool) -> bytes:
        if self.is_stream and not has_ended:
            return chunk
        before = b"" if self.is_stream else self._released()
        self.held.append(chunk)
        return before

    def _released(self) -> bytes:
        held, self.held = b"".join(self.held), []
        return held

    async def broken(self) -> None:
        """Keep what arrived of a reply of which no more will come."""
        if not self.is_kept:
            await self._commit(complete=False)

    async def _commit(self, *, complete: bool) -> None:
        self.is_kept = True
        try:
            await self.exchange.commit(self.status, complete=complete)
        except Exception as error:  # noqa: BLE001 - whatever fails there
            self.failed(error)
