"""LangGraph's threads in a PostgreSQL, for the commands that take one: streams, not lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lockstitch.cli.options import count_cores
from lockstitch.cli.terminal import ProgressBar
from lockstitch.errors import UnknownFormat, UsageError
from lockstitch.formats.langgraph.postgres import Shard
from lockstitch.sources.source import psycopg_hint
from lockstitch.sources.targets import NEITHER
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lockstitch.formats.langgraph.postgres.database import DatabaseContent
    from lockstitch.formats.langgraph.postgres.work import SchemaTask, ThreadOutcome

# Below so many threads, starting other processes costs more than it saves.
_WORTH_WORKERS = 2_000


class ThreadScope(Struct, frozen=True):
    """Which threads of a database to read, and by how many processes."""

    workers: int | None = None
    session: str | None = None
    shard: Shard = Shard()


def look_into(url: str) -> DatabaseContent:
    """Return what a PostgreSQL holds; raise `UnknownFormat` if nothing that we know."""
    with psycopg_hint():
        from lockstitch.formats.langgraph.postgres import database

        known = database.look_into(url)
    if not known.homes and not known.is_own:
        raise UnknownFormat(f"{public(url)}: {NEITHER}")
    return known


def require_shard(
    part: tuple[int, int] | None, targets: Sequence[str], session: str | None, is_meant: bool
) -> Shard:
    """Return which part of the threads is asked for; all of them if nothing is said."""
    if part is None:
        return Shard()
    if session is not None or not targets or not is_meant:
        raise UsageError(
            "--shard divides the threads of a PostgreSQL with LangGraph's checkpoints: give its"
            " address, and no --session"
        )
    return Shard(*part)


def schema_tasks(url: str, **how: Any) -> list[SchemaTask]:
    """Return the work that a database means, one task for each schema."""
    with psycopg_hint():
        from lockstitch.formats.langgraph.postgres import work

        return work.schema_tasks(url, public, **how)


def go_through(url: str, scope: ThreadScope, title: str, **how: Any) -> Iterator[ThreadOutcome]:
    """Check or repair the threads of a database, schema by schema, with a progress bar."""
    for task in schema_tasks(url, shard=scope.shard, **how):
        from lockstitch.formats.langgraph.postgres import work
        from lockstitch.formats.langgraph.postgres.database import Database
        from lockstitch.formats.langgraph.postgres.reading import ThreadReader

        total, workers = 0, 1
        if scope.session is None:
            with Database(task.url, task.home.schema) as database:
                total = ThreadReader(database, task.home).estimate() // task.shard.count
            workers = (scope.workers or count_cores()) if total >= _WORTH_WORKERS else 1
        with ProgressBar(title, total, "threads") as advance:
            for page in work.work_through(task, workers, scope.session):
                advance(len(page))
                yield from page
