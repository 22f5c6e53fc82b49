"""The events of a journal and the tables of the stores as pages."""

from __future__ import annotations

import re
from typing import get_args

from lockstitch.journal import events
from lockstitch.stores.postgres import schema
from lockstitch.stores.sqlite import connections
from reference.api import fields_of
from reference.markdown import prose, table

EVENTS_INTRO = """# Events of the journal

A session in a store is a journal: a list of events, of which none is ever changed. `lockstitch
export URL --session NAME --raw` prints them, one a line, and `Session.state`, `Reader.refresh` and
`Reader.follow` give them in Python.

An event is kept as one line of JSON: `{"kind": "replied", "dialect": "anthropic", …}`. `kind` is
the name of the class in lower case, and a field that has its default is left out. The two fields of
the table below belong to every event.

A number called `reply` is the position of a model's reply in the journal, and `index` counts the
calls of that reply from 0: ids repeat with several providers, positions do not.

A record is an event in a store: `seq` (its number, from 1), `epoch` (the lease it was written
under), `key` (an idempotency key), `at` (milliseconds since 1970), `body` (the line of JSON) and
`digest` (a checksum over the record and the digest of the one before).

Readers keep and pass over what they do not know: a later version may add events and fields.
Generated from the code by `make docs`."""
SQL_INTRO = """# Tables of the stores

These are the tables that Lockstitch makes. You may read them with any tool; write to them only
through Lockstitch. A store of an earlier version is brought up to date when it is opened for
writing. Generated from the code by `make docs`.

The body of a record is [an event](events.md). `about` is the body of the last event that describes
the session, and `minute` the time of its last change in steps of 65 536 milliseconds."""


def events_page() -> str:
    """Write the page on events."""
    kinds = [*get_args(events.AnyEvent), events.Unknown]
    shared = {name for name, _, _ in fields_of(events.Event)}
    parts = [EVENTS_INTRO, _section(events.Event, set())]
    parts += [_section(kind, shared) for kind in kinds]
    parts.append("## Parts of events")
    parts.append(_section(events.AskedCall, set(), level=3))
    return "\n\n".join(parts) + "\n"


def _section(kind: type, without: set[str], level: int = 2) -> str:
    rows = [
        [f"`{name}`", f"`{of}`", default]
        for name, of, default in fields_of(kind)
        if name not in without
    ]
    head = f"{'#' * level} {kind.__name__}\n\n{prose(kind.__doc__)}"
    return f"{head}\n\n{table(['Field', 'Type', 'Default'], rows)}" if rows else head


def sql_page() -> str:
    """Write the page on tables."""
    parts = [SQL_INTRO, "## SQLite", _sqlite(), "## PostgreSQL", _postgres()]
    return "\n\n".join(parts) + "\n"


# A statement that makes a table or an index, or adds a column, with the comment before it.
_TABLE = re.compile(
    r"((?:^--.*\n)*)^(?:create table|create index|alter table)[\s\S]*?;$",
    re.MULTILINE | re.IGNORECASE,
)
_RUNS = re.compile(
    r"^create (?:or replace )?(function|trigger) (?:lockstitch\.)?(\w+)",
    re.MULTILINE | re.IGNORECASE,
)


def _sqlite() -> str:
    return _statements("SQLite", dict(connections.migrations()))


def _postgres() -> str:
    first = schema.VERSIONS_TABLE.strip()
    lead = (
        "Everything is in the schema `lockstitch`. `lockstitch.versions` says which versions were "
        f"applied, and when:\n\n```sql\n{first}\n```"
    )
    return "\n\n".join([lead, _statements("PostgreSQL", schema.migrations())])


def _statements(kind: str, versions: dict[int, str]) -> str:
    """The statements of every version that make tables, and the names of what runs."""
    parts = []
    for version, text in sorted(versions.items()):
        found = [match[0] for match in _TABLE.finditer(text)]
        runs = sorted({f"{what.lower()} `{name}`" for what, name in _RUNS.findall(text)})
        code = "\n\n".join(found)
        parts.append(f"### {kind}, version {version}")
        parts += [f"```sql\n{code}\n```"] if found else []
        parts += [f"Makes or replaces: {', '.join(runs)}."] if runs else []
    return "\n\n".join(parts)
