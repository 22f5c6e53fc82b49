"""A session for reading only, as a program on asyncio or trio holds it."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, Self

from lockstitch.journal.fold import Fact
from lockstitch.journal.usage import Usage
from lockstitch.session.calls import Call
from lockstitch.session.reader import Reader, end_of
from lockstitch.session.reading import Readable
from lockstitch.session.telling import Note
from lockstitch.stores.base import Backend
from lockstitch.threads import through, unless_cancelled


class AsyncReader(Readable):
    """A session as it stood when it was last read; :meth:`refresh` reads on."""

    def __init__(self, inner: Reader) -> None:
        self.inner = inner
        self._seen = inner._seen  # noqa: SLF001 - its twin

    async def refresh(self) -> list[Fact]:
        """Read what was added since, and give it."""
        return await through(self.inner.refresh)

    async def request(
        self,
        dialect: str,
        *,
        profile: str | None = None,
        model: str | None = None,
        provider: str | None = None,
    ) -> list[Any]:
        """Return the messages that the writer would send now, as far as it was read."""
        request = partial(self.inner.request, dialect, profile=profile, model=model)
        return await through(lambda: request(provider=provider))

    async def output(self, call: Call) -> Any:
        """Return what a call gave, decoded; None while nothing is known of it."""
        return await through(lambda: self.inner.output(call))

    async def notes(self, name: str | None = None, *, rewound: bool = False) -> list[Note]:
        """Return the notes, or those of one name, oldest first; ``rewound`` ones only if asked."""
        return await through(lambda: self.inner.notes(name, rewound=rewound))

    async def usage(self) -> Usage:
        """Add up what the replies cost, by what their providers said; see :class:`Usage`."""
        return await through(self.inner.usage)

    def follow(self, timeout: float | None = None) -> Following:
        """Return facts as they are added; ends after ``timeout`` seconds without a new one."""
        return Following(self, timeout)


class Following:
    """Facts as they are added, for ``async for``.

    No generator: one that is left early has to be closed by hand on trio.
    """

    def __init__(self, reader: AsyncReader, timeout: float | None) -> None:
        self._reader = reader
        self._timeout = timeout
        self._facts: deque[Fact] = deque()

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Fact:
        """Wait for the next one."""
        while not self._facts:
            if not await self._is_news():
                raise StopAsyncIteration
            self._facts.extend(await self._reader.refresh())
        return self._facts.popleft()

    async def _is_news(self) -> bool:
        listen = partial(self._reader.inner.listen, end_of(self._timeout))
        while (news := await unless_cancelled(listen, _forget)) is None:
            pass
        return news


async def opened(backend: Backend, name: str) -> AsyncReader:
    """Read a session; raises ``Unreadable`` if there is none."""
    return AsyncReader(await unless_cancelled(partial(Reader, backend, name), _forget))


def _forget(_: object) -> None:
    """Reading leaves nothing to be undone."""
