"""Journals as plain files of lines, one a session."""

from lockstitch.stores.jsonl.backend import JsonlBackend

__all__ = ["JsonlBackend"]
