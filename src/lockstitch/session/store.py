"""A store of sessions: what ``lockstitch.open`` gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lockstitch.errors import UsageError
from lockstitch.journal.records import Head
from lockstitch.journal.salvage import Salvage
from lockstitch.session.forking import forked
from lockstitch.session.reader import Reader
from lockstitch.session.salvaging import salvage
from lockstitch.session.sync import Session
from lockstitch.stores.base import Backend, Listed

if TYPE_CHECKING:
    from lockstitch.session.aio import Opening
    from lockstitch.session.aio_reader import AsyncReader


@contextmanager
def _anyio() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "anyio":
            raise
        raise UsageError("async sessions need anyio: pip install 'lockstitch[async]'") from None


class Store:
    """Sessions by name, for all threads of a program; one writer a session, any number of readers.

    Who cannot have a session because somebody else writes it can wait (``wait=seconds``), read it
    (:meth:`read`), or go on in a copy (:meth:`fork`).
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def url(self) -> str:
        """Where it is."""
        return self._backend.url

    def session(self, name: str, *, wait: float = 0.0, create: bool = True) -> Session:
        """Open a session for writing; what a crash left open is concluded.

        Raises ``Held`` if another writer has it for longer than ``wait`` seconds, and, without
        ``create``, ``Unreadable`` if there is none.
        """
        return Session(self._backend, name, wait=wait, create=create)

    def async_session(self, name: str, *, wait: float = 0.0, create: bool = True) -> Opening:
        """Open a session from asyncio or trio: ``async with store.async_session(…) as session``.

        Or ``session = await store.async_session(…)`` and ``await session.close()``. Needs the
        extra ``async``.
        """
        with _anyio():
            from lockstitch.session.aio import Opening  # noqa: PLC0415 - anyio is an extra
        return Opening(self._backend, name, wait=wait, create=create)

    def read(self, name: str) -> Reader:
        """Open a session for reading only, whoever writes it; raises ``Unreadable`` if none is."""
        return Reader(self._backend, name)

    async def async_read(self, name: str) -> AsyncReader:
        """Open a session for reading only, from asyncio or trio; needs the extra ``async``."""
        with _anyio():
            from lockstitch.session.aio_reader import opened  # noqa: PLC0415 - anyio is an extra
        return await opened(self._backend, name)

    def fork(self, name: str, new_name: str, at: Any = None) -> Head:
        """Copy a session up to a place into a new one, all of it or none; gives where that ends.

        ``at`` is a checkpoint, its label or a record's number, and by default the end. Nobody has
        to stop writing the old one. The same fork again is done already.
        """
        return forked(self._backend, name, new_name, at)

    def salvage(self, name: str) -> Salvage:
        """Read all that can be read of a damaged session, also behind the damage.

        It says of each record whether it is what was written. Nothing is changed: `lockstitch
        repair`, or :func:`lockstitch.stored.repair`, writes the session anew.
        """
        return salvage(self._backend, name)

    def sessions(self) -> Iterator[Listed]:
        """List the sessions in the order of their names."""
        return self._backend.sessions()

    def close(self) -> None:
        """Let go of every session and of the store; may be called twice."""
        self._backend.close()

    def __enter__(self) -> Self:
        """Go in."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        """Go out, whatever happened."""
        self.close()
