"""Where a campaign's sessions are kept, and how connections to there are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tests.postgres_server import PATIENT, running, shared

CUT = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
    ORDER BY state = 'active' DESC, random() LIMIT 2
"""

Cut = Callable[[], Any] | None


@contextmanager
def place(store: str, folder: Path, *, own: bool = False) -> Iterator[tuple[str, Cut]]:
    """Give an address, and for a server what cuts one of the connections to it.

    A server of its ``own`` waits for the disk; the one that tests share does not.
    """
    if store == "sqlite":
        yield f"sqlite:///{folder}/journal.db", None
    elif store == "jsonl":
        yield f"jsonl:///{folder}/journal", None
    else:
        with running() if own else nullcontext(shared()) as server:
            url = server.fresh()
            database = url.rpartition("/")[2]
            yield f"{url}?{PATIENT}", lambda: server.execute(CUT, database)
