"""A connection that does not wait for ever for a server that has fallen silent.

A server that was stopped, or a network that swallows what it is given, closes nothing: the one's
machine still acknowledges every packet, so no timeout of TCP's ends the wait, and no timeout of
the server's own, since it does not run.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

# No pause of this process itself, however long, counts for more than that as a server's silence.
_STEP = 1.0
_Result = TypeVar("_Result")


class Silent(psycopg.OperationalError):
    """The server has said nothing for as long as was waited for it."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """Raises ``Silent`` when nothing comes or goes for ``patience`` seconds; None is for ever.

    After that nobody knows what the server does with what was sent: only closing is of use.
    """

    patience: float | None = None

    def wait(self, gen: Generator[Any, Any, _Result], *args: Any, **options: Any) -> _Result:
        """Wait for the server, as psycopg does; it looks up from that several times a second."""
        if self.patience is not None:
            gen = _bounded(gen, self.patience)
        return super().wait(gen, *args, **options)


def _bounded(gen: Generator[Any, Any, _Result], patience: float) -> Generator[Any, Any, _Result]:
    silence, last = 0.0, time.monotonic()
    try:
        wanted = next(gen)
        while True:
            is_ready = yield wanted
            now = time.monotonic()
            silence = 0.0 if is_ready else silence + min(now - last, _STEP)
            last = now
            if silence >= patience:
                raise Silent(f"no answer for {patience:g} seconds")
            wanted = gen.send(is_ready)
    except StopIteration as ended:
        result: _Result = ended.value
        return result
    finally:
        gen.close()
