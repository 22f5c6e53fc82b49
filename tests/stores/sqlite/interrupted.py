"""A writer that is interrupted in the middle again and again: ``… FILE ROUNDS``.

It prints how often, and how often it had to open the session again because of it.
"""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path

from lockstitch.errors import Unsure
from lockstitch.stores.sqlite import SqliteBackend
from tests.stores.sqlite.conftest import entries


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main(path: Path, rounds: int) -> None:
    dice = random.Random(3)  # noqa: S311
    signal.signal(signal.SIGALRM, interrupt)
    store = SqliteBackend(path)
    lease = store.acquire("s")
    seq = caught = opened = 0
    while caught < rounds:
        try:
            signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.0001, 0.004))
            while True:
                seq = store.append(lease, entries(1, first=seq + 1), seq).seq
        except KeyboardInterrupt:
            caught += 1
        except Unsure:
            signal.setitimer(signal.ITIMER_REAL, 0)
            opened += 1
            lease = store.acquire("s")
            seq = lease.head.seq
    seq = store.append(lease, entries(1, first=seq + 1), seq).seq
    store.close()
    print(caught, opened, seq)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
