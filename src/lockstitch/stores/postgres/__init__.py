"""The store for a fleet: many sessions, processes and machines on one PostgreSQL."""

from __future__ import annotations

from lockstitch.stores.postgres.backend import PostgresBackend
from lockstitch.stores.postgres.connections import TIMEOUT

__all__ = ["TIMEOUT", "PostgresBackend"]
