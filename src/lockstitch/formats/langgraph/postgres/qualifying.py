"""Statements of LangGraph's own saver, run without its schema in the search path.

With the schema there, as the saver itself would have it, whoever may create functions in it could
have them called in the place of the server's own.
"""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg.sql import Identifier

_TABLE = re.compile(r"(\b(?:from|join)\s+)(checkpoint(?:s|_blobs|_writes))\b", re.IGNORECASE)


def qualifying(schema: str) -> Any:
    """Return a class of cursors that put the schema before the names of the saver's tables."""
    name = Identifier(schema).as_string()

    class Qualifying(psycopg.Cursor[Any]):
        """Runs statements in which tables have no schema."""

        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            if isinstance(query, str):
                place = name if params is None else name.replace("%", "%%")
                query = _TABLE.sub(lambda found: f"{found[1]}{place}.{found[2]}", query)
            return super().execute(query, params, **options)

    return Qualifying
