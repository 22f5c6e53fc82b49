"""A session for reading only: it never takes the lease and never waits for a writer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from lockstitch.journal.fold import Fact
from lockstitch.journal.usage import Usage
from lockstitch.session import telling
from lockstitch.session.calls import Call
from lockstitch.session.reading import Readable, Seen, advised
from lockstitch.session.telling import Note
from lockstitch.stores.base import Backend

LISTENING = 1.0


class Reader(Readable):
    """A session as it stood when it was last read; :meth:`refresh` reads on."""

    def __init__(self, backend: Backend, name: str) -> None:
        self._seen = Seen(backend, name)
        with advised(backend, name):
            self._seen.refresh()

    def refresh(self) -> list[Fact]:
        """Read what was added since, and give it."""
        return self._seen.refresh()

    def request(
        self,
        dialect: str,
        *,
        profile: str | None = None,
        model: str | None = None,
        provider: str | None = None,
    ) -> list[Any]:
        """Return the messages that the writer would send now, as far as it was read."""
        name = f"{dialect}:{profile}" if profile else dialect
        return self._seen.request(name, model=model, provider=provider)

    def output(self, call: Call) -> Any:
        """Return what a call gave, decoded; None while nothing is known of it."""
        return self._seen.output(call)

    def notes(self, name: str | None = None, *, rewound: bool = False) -> list[Note]:
        """Return the notes, or those of one name, oldest first; ``rewound`` ones only if asked."""
        return telling.notes(self._seen, name, rewound=rewound)

    def usage(self) -> Usage:
        """Add up what the replies cost, by what their providers said; see :class:`Usage`."""
        return telling.usage(self._seen)

    def follow(self, timeout: float | None = None) -> Iterator[Fact]:
        """Return facts as they are added; ends after ``timeout`` seconds without a new one."""
        while self._is_news(timeout):
            yield from self.refresh()

    def _is_news(self, timeout: float | None) -> bool:
        until = end_of(timeout)
        while (news := self.listen(until)) is None:
            pass
        return news

    def listen(self, until: float | None) -> bool | None:
        """Wait for a short stretch: True on news, False when the time is up, None if neither.

        Short, so that Ctrl-C is heard on every system, and a task that was cancelled leaves no
        thread behind for long.
        """
        seen = self._seen
        left = LISTENING if until is None else min(until - time.monotonic(), LISTENING)
        if seen.backend.wait(seen.session, seen.head.seq, max(left, 0.0)):
            return True
        return False if left <= 0 else None


def end_of(timeout: float | None) -> float | None:
    """Return the moment at which so many seconds are over."""
    return None if timeout is None else time.monotonic() + timeout
