"""Many light threads in one PostgreSQL: how long a scan takes, what it holds in memory.

python -m tests.formats.langgraph_postgres.scale --threads 1000000
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from typing import Any

import psycopg

from tests import postgres_server

from . import stage

LIGHT = {
    "checkpoints": "checkpoint_id = (SELECT max(checkpoint_id) FROM checkpoints i "
    "WHERE i.thread_id = t.thread_id)",
    "checkpoint_blobs": "channel IN ('messages', 'notes') AND version = (SELECT c.checkpoint -> "
    "'channel_versions' ->> t.channel FROM checkpoints c WHERE c.thread_id = t.thread_id "
    "ORDER BY c.checkpoint_id DESC LIMIT 1)",
    "checkpoint_writes": "false",
}
CHUNK = 50_000
# What a process had before it became another program counts in its rusage, but not here.
CODE = """
import re, resource, sys
from pathlib import Path
from lockstitch import cli
status = cli.run(sys.argv[1:])
sys.stdout.flush()
own = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
most = max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.stderr.write(f"\\n{status} {most}")
"""
COMMANDS = (
    ["scan"],
    ["check", "--json"],
    ["repair", "--yes"],
    ["scan", "--shard", "1/4"],
)


def light(dsn: str, template: str, prefix: str, count: int) -> None:
    """Make threads of which only the last checkpoint is there, as a pruned database has them."""
    for first in range(1, count + 1, CHUNK):
        last = min(first + CHUNK - 1, count)
        for table, chosen in LIGHT.items():
            columns = stage.KEYS[table]
            stage.ask(
                dsn,
                f"INSERT INTO {table} (thread_id, {columns}) "  # noqa: S608 - our own
                f"SELECT %s || lpad(g::text, 8, '0'), {columns} FROM {table} t, "
                f"generate_series(%s::int, %s::int) g WHERE thread_id = %s AND {chosen}",
                prefix,
                first,
                last,
                template,
            )


def fill(dsn: str, threads: int, broken: int) -> None:
    """Make so many threads, of which some are broken."""
    stage.templates(dsn)
    light(dsn, stage.BROKEN, "broken-", broken)
    light(dsn, stage.HEALTHY, "healthy-", threads - broken)
    for table in stage.TABLES:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"VACUUM ANALYZE {table}")  # type: ignore[arg-type]


def measured(*words: str) -> dict[str, Any]:
    """Run the command and say how long it took and what its largest process held, in megabytes."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words], capture_output=True, text=True, check=False
    )
    status, memory = done.stderr.rsplit("\n", 1)[1].split()
    seconds = time.monotonic() - began
    words = ("sessions:", "Repaired")
    told = [line for line in done.stderr.splitlines() if any(word in line for word in words)]
    return {
        "status": int(status),
        "seconds": round(seconds, 1),
        "megabytes": round(int(memory) / 1024, 1),
        "out": done.stdout,
        "told": told[:1],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=100_000)
    parser.add_argument("--broken", type=int, default=1_000)
    parser.add_argument("--workers", default="2")
    parser.add_argument("--only", help="one of the commands: scan, check, repair")
    given = parser.parse_args()
    with postgres_server.running({"fsync": "off", "max_wal_size": "4GB"}) as server:
        dsn = server.fresh()
        began = time.monotonic()
        fill(dsn, given.threads, given.broken)
        say(f"{given.threads} threads made in {time.monotonic() - began:.0f} s")
        more = ["--workers", given.workers]
        for words in COMMANDS:
            if given.only in (None, words[0]):
                told = measured(words[0], dsn, *words[1:], *more)
                say(*words, {**told, "out": len(told["out"])})
    say(f"this process held {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    return 0


def say(*words: object) -> None:
    """Print at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
