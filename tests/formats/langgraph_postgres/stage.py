"""What the tests of LangGraph's databases share: the command, the tables, and many threads."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import psycopg

from lockstitch import cli

from . import graphs

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
KEYS = {
    "checkpoints": "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata",
    "checkpoint_blobs": "checkpoint_ns, channel, version, type, blob",
    "checkpoint_writes": (
        "checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path"
    ),
}
HEALTHY = "a-healthy-one"
BROKEN = "a-broken-one"


class Said(NamedTuple):
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """The sessions of a report in JSON."""
        found: list[dict[str, Any]] = json.loads(self.out)["sessions"]
        return found


def environment() -> dict[str, str]:
    """The environment of the commands: that of the tests, and text in UTF-8."""
    return {**os.environ, "PYTHONUTF8": "1"}


def command(*words: str) -> list[str]:
    """The command line of ``lockstitch``."""
    return [sys.executable, "-m", "lockstitch", *words]


def run(*words: str) -> Said:
    """Run ``lockstitch`` in this process, which is much faster than starting another one."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        status = cli.run(words)
        out.flush()
    finally:
        sys.stdout, sys.stderr = before
    assert "internal error" not in err.getvalue(), err.getvalue()
    return Said(status, out.buffer.getvalue().decode(), err.getvalue())  # type: ignore[attr-defined]


def outside(*words: str) -> Said:
    """Run ``lockstitch`` as people do."""
    done = subprocess.run(
        command(*words), capture_output=True, text=True, check=False, env=environment()
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Said(done.returncode, done.stdout, done.stderr)


def start(*words: str) -> subprocess.Popen[str]:
    """Start ``lockstitch`` and leave it at work."""
    return subprocess.Popen(
        command(*words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def content(dsn: str) -> dict[str, list[Any]]:
    """All rows of LangGraph's tables."""
    with psycopg.connect(dsn) as connection:
        return {
            table: connection.execute(f"SELECT t::text FROM {table} t ORDER BY 1").fetchall()  # type: ignore[arg-type] # noqa: S608
            for table in TABLES
        }


def ask(dsn: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run one statement."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        done = connection.execute(statement, values)  # type: ignore[arg-type]
        return done.fetchall() if done.description else []


def copies(dsn: str, template: str, prefix: str, count: int) -> None:
    """Make so many threads that are like one, inside the server."""
    for table in TABLES:
        columns = KEYS[table]
        ask(
            dsn,
            f"INSERT INTO {table} (thread_id, {columns}) "  # noqa: S608 - our own
            f"SELECT %s || lpad(g::text, 8, '0'), {columns} FROM {table}, generate_series(1, %s) g "
            "WHERE thread_id = %s",
            prefix,
            count,
            template,
        )


def templates(dsn: str) -> None:
    """Make one healthy and one broken thread, with real LangGraph."""
    graphs.say(dsn, HEALTHY, "hello")
    graphs.say(dsn, BROKEN, "hello")
    graphs.broken_off(dsn, BROKEN)


def many(dsn: str, healthy: int, broken: int) -> None:
    """Fill a database with threads, as many as wanted, and no others."""
    templates(dsn)
    copies(dsn, HEALTHY, "healthy-", healthy)
    copies(dsn, BROKEN, "broken-", broken)
    for table in TABLES:
        ask(
            dsn,
            f"DELETE FROM {table} WHERE thread_id = ANY(%s)",  # noqa: S608 - our own
            [HEALTHY, BROKEN],
        )
        ask(dsn, f"ANALYZE {table}")
