"""The default store: all sessions in one SQLite database."""

from lockstitch.stores.sqlite.backend import SqliteBackend

__all__ = ["SqliteBackend"]
