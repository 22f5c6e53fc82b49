"""How many sessions one PostgreSQL holds: arithmetic on constants that were measured.

Nothing here measures. What grows with the number of sessions is written down once, so that the
table and the places where something runs out come from the same formulas.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

GB = 1e9
TB = 1e12


class Constants(Struct, frozen=True):
    """What one server was measured to do, in one run."""

    records_a_turn: float
    bytes_a_turn: float
    wal_a_turn: float
    bytes_a_session: float
    hot_a_session: float
    turns_a_second: float
    open_ms: float
    open_growth: float
    sessions_at_open: int
    copy_mb_a_second: float
    renewals_a_second: float


class Load(Struct, frozen=True):
    """How the sessions are used, and what the server is: to be set to your own figures.

    A share of all sessions is ``active`` at once, and each of those takes ``turns_a_minute``. A
    session has ``turns`` in all. ``busy`` is how much of what was measured a server is planned for.
    """

    turns: int = 20
    active: float = 0.001
    turns_a_minute: float = 1.0
    busy: float = 0.5
    memory_gb: float = 64.0
    disk_tb: float = 8.0
    partition_gb: float = 50.0
    backup_hours: float = 12.0
    lease: float = 30.0


class Row(Struct, frozen=True):
    """What so many sessions need."""

    sessions: int
    disk_gb: float
    partitions: int
    hot_gb: float
    turns_a_second: float
    servers_for_writes: float
    wal_gb_a_day: float
    renewals_a_second: float
    open_ms: float
    backup_hours: float
    broken: list[str]


def disk(n: float, found: Constants, load: Load) -> float:
    """Bytes of tables and indexes."""
    return n * (found.bytes_a_session + load.turns * found.bytes_a_turn)


def hot(n: float, found: Constants, load: Load) -> float:
    """Bytes that should stay in memory: rows and indexes of sessions, ends of active ones."""
    return n * found.hot_a_session + n * load.active * found.bytes_a_turn


def turns(n: float, load: Load) -> float:
    """Turns a second of all active sessions."""
    return n * load.active * load.turns_a_minute / 60


def renewals(n: float, load: Load) -> float:
    """Renewals of leases a second; a holder renews three times in the length of a lease."""
    return n * load.active * 3 / load.lease


def backup(n: float, found: Constants, load: Load) -> float:
    """Seconds that a copy of everything takes."""
    return disk(n, found, load) / (found.copy_mb_a_second * 1e6)


def limits(found: Constants, load: Load) -> dict[str, Callable[[float], float]]:
    """Each thing that runs out, as the share of it that so many sessions take."""
    return {
        "writes of one server": lambda n: turns(n, load) / (found.turns_a_second * load.busy),
        "memory for what is hot": lambda n: hot(n, found, load) / (load.memory_gb * GB),
        "disk": lambda n: disk(n, found, load) / (load.disk_tb * TB),
        "time for a backup": lambda n: backup(n, found, load) / (load.backup_hours * 3600),
        "renewals of leases": lambda n: renewals(n, load) / (found.renewals_a_second * load.busy),
    }


def breaks_at(share: Callable[[float], float]) -> float:
    """The number of sessions that takes all of something; every share grows in proportion."""
    return 1 / share(1.0)


def row(n: int, found: Constants, load: Load) -> Row:
    """Say what so many sessions need."""
    size = disk(n, found, load)
    decades = max(len(str(n)) - len(str(found.sessions_at_open)), 0)
    shares = {name: share(float(n)) for name, share in limits(found, load).items()}
    return Row(
        sessions=n,
        disk_gb=size / GB,
        partitions=max(1, -int(-size // (load.partition_gb * GB))),
        hot_gb=hot(n, found, load) / GB,
        turns_a_second=turns(n, load),
        servers_for_writes=shares["writes of one server"],
        wal_gb_a_day=turns(n, load) * 86_400 * found.wal_a_turn / GB,
        renewals_a_second=renewals(n, load),
        open_ms=found.open_ms * found.open_growth**decades,
        backup_hours=backup(n, found, load) / 3600,
        broken=[name for name, share in shares.items() if share > 1],
    )
