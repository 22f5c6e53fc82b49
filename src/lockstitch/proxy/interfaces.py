"""What the proxy asks of a recorder: where requests and replies are kept."""

from __future__ import annotations

from typing import Protocol


class Exchange(Protocol):
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
    ) -> Exchange:
        """Keep a request durably, as the client sent it, and return where its reply belongs.

        The proxy calls it before the first byte of the reply goes to the client. ``model`` is for
        APIs whose address names it, and ``client`` is what the client says that it is.
        """

    async def close(self) -> None:
        """Write what is left and release the store."""
