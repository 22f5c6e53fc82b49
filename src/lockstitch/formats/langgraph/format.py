"""LangGraph: the checkpoints of ``SqliteSaver``, in a file that the program names.

Both of LangGraph for Python and of LangGraph.js. A repair adds one checkpoint behind the last one
of a thread; no row that LangGraph wrote is ever changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lockstitch.errors import Unreadable
from lockstitch.formats.base import Context
from lockstitch.formats.langgraph import loading
from lockstitch.formats.langgraph.coding import Coding
from lockstitch.formats.langgraph.loading import CHECKPOINTS, WRITES, coding_in, snapshot_of
from lockstitch.formats.langgraph.snapshot import (
    JSON,
    Coded,
    RepairedCheckpoint,
    ThreadSnapshot,
    session_name,
)
from lockstitch.formats.langgraph.texts import codings
from lockstitch.formats.langgraph.thread import ThreadFormat
from lockstitch.formats.records import Record
from lockstitch.formats.tables import Columns, Layout, Row, RowFormat, new_row
from lockstitch.formats.untrusted import text_of

if TYPE_CHECKING:
    from lockstitch.formats.untrusted import Connection


class LangGraph(ThreadFormat, RowFormat):
    """One session a thread, and one a subgraph of it that has a memory of its own."""

    name = "langgraph"
    title = "LangGraph"
    layout = Layout((CHECKPOINTS, WRITES), "")
    adds = True

    def claims(self, name: str, head: Any) -> bool:
        return {"checkpoints", "writes"} <= {value for value in head if type(value) is str}

    def listed(self, base: Connection) -> Iterable[tuple[Any, ...]]:
        return loading.listed(base)

    def rows(self, base: Connection, session: str) -> list[Row]:
        return loading.loaded(base, session)

    def search(self, base: Connection, rows: list[Row]) -> None:
        loading.search(base, rows)

    def session_of(self, row: Row) -> str:
        return session_name(row.stored["thread_id"], row.stored["checkpoint_ns"])

    def is_followed(self, base: Connection, table: str, columns: Columns) -> bool:
        return table == CHECKPOINTS.name and loading.is_followed(base, columns)

    def snapshot(self, records: Sequence[Record], context: Context) -> ThreadSnapshot:
        rows = [row for row in records if isinstance(row, Row)]
        if not rows:
            raise Unreadable("holds no such thread")
        return snapshot_of(rows)

    def added(self, records: Sequence[Record], new: RepairedCheckpoint) -> list[Record]:
        kept = [row for row in records if not row.is_new]
        head = kept[0]
        columns = _columns(head.value, new)
        made = new_row(CHECKPOINTS, {**columns, "checkpoint_id": new.id})
        return [*kept, structs.replace(made, fresh=_shown(new))]


def _columns(head: Columns, new: RepairedCheckpoint) -> Columns:
    """Give the columns of a new checkpoint, of the same kinds as those of the head."""
    coding = codings()[coding_in(head)]
    metadata = json.dumps(new.metadata, ensure_ascii=False, separators=_separators(head))
    return {
        **head,
        "checkpoint_id": new.id,
        "parent_checkpoint_id": new.parent,
        "checkpoint": _alike(head.get("checkpoint"), _blob(coding, new)),
        "metadata": _alike(head.get("metadata"), metadata.encode("utf-8", "replace")),
    }


def _blob(coding: Coding, new: RepairedCheckpoint) -> bytes:
    values = coding.mapped({name: value.data for name, value in new.values.items()})
    fields: dict[str, bytes] = {}
    for name, value in new.body.items():
        if name == "channel_versions":
            fields["channel_values"] = values
        fields[name] = value.data if isinstance(value, Coded) else coding.encoded(value)
    return coding.mapped({**fields, "channel_values": values})


def _alike(old: Any, new: bytes) -> Any:
    return text_of(new) if type(old) is str else new


def _separators(head: Columns) -> tuple[str, str]:
    return (",", ":") if coding_in(head) == JSON else (", ", ": ")


def _shown(new: RepairedCheckpoint) -> bytes:
    """Say what is new, for a person to look at: not the state, which is that of the head."""
    sizes = {name: len(new.values[name].data) for name in sorted(new.changed)}
    about = {"checkpoint": new.id, "behind": new.parent, "bytes": sizes}
    return json.dumps({**about, "metadata": new.metadata.get("lockstitch")}).encode()
