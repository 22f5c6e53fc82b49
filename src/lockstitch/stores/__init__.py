"""Stores that keep journals: SQLite, PostgreSQL, JSON lines and memory, with one interface."""
