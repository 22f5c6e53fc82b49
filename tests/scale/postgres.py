"""100 000 sessions, and one of 20 000 messages, in one PostgreSQL.

python -m tests.scale.postgres
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from lockstitch.stores.postgres import PostgresBackend
from tests import postgres_server

from . import soak


def main() -> int:
    given = soak.options((__doc__ or "").splitlines()[0])
    with ExitStack() as stack:
        server = stack.enter_context(postgres_server.running())
        addresses = {size: server.fresh() for size in soak.steps(given.sessions)}
        backends = {
            size: stack.enter_context(PostgresBackend(dsn)) for size, dsn in addresses.items()
        }
        status = soak.run(backends, given)
        names = [dsn.rpartition("/")[2] for dsn in addresses.values()]
        soak.say("  database, MB              " + "".join(f"{_mb(server, n):12.1f}" for n in names))
    return status


def _mb(server: postgres_server.Server, database: str) -> float:
    found = server.execute(f"SELECT pg_database_size('{database}')")
    return int(str(found[0][0])) / 1e6


if __name__ == "__main__":
    sys.exit(main())
