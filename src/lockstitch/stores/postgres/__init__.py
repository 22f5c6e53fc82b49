"""The store for a fleet: many sessions, processes and machines on one PostgreSQL."""

from __future__ import annotations

from lockstitch.stores.postgres.backend import PostgresBackend

__all__ = ["PostgresBackend"]
