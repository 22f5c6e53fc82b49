"""OpenAI Agents SDK: the tables of ``SQLiteSession``, in a file that the program names.

A row is one item of the Responses API, and the order is that of the keys. Sessions with branches
(``AdvancedSQLiteSession``) keep the keys of these rows in other tables and are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstitch.dialects import OPENAI_RESPONSES
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, RULES, WARNING, Finding
from lockstitch.sources.history import History, SourcedMessage
from lockstitch.sources.interface import Context, Transcript, new_finding
from lockstitch.sources.records import Record
from lockstitch.sources.tables import ProgramTable, Row, RowFormat, TableLayout, new_row, put_fields
from lockstitch.sources.write_back import MessageHome, enter_message, longest_kept_run

_SESSION = ProgramTable(
    "agent_sessions", session="session_id", key="session_id", order=("session_id",)
)
_MESSAGE = ProgramTable("agent_messages", "message_data", counted=True)
_SESSIONS = (
    "SELECT session_id, NULL, CAST(strftime('%s', updated_at) AS INTEGER), '' FROM agent_sessions"
)
_ITEM = "message_data"
_FRONT = -1


class OpenAIAgents(RowFormat):
    """One item a row."""

    name = "openai-agents"
    title = "OpenAI Agents SDK"
    dialect = OPENAI_RESPONSES
    layout = TableLayout((_SESSION, _MESSAGE), _SESSIONS)

    def claims(self, name: str, head: Any) -> bool:
        tables = {value for value in head if type(value) is str}
        return {"agent_sessions", "agent_messages"} <= tables and "message_structure" not in tables

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        history = History(OPENAI_RESPONSES, [], [], [])
        homes: list[int] = []
        for number, row in enumerate(records):
            if _is_item(row):
                homes.append(number)
                enter_message(history, row.value[_ITEM], MessageHome(number, (_ITEM,)))
        return Transcript(
            context,
            records,
            history,
            findings=[_lost(row) for row in records if _is_lost(row)],
            session=context.name,
            turns=sum(item.get("role") == "user" for item in history.messages),
            state=homes,
        )

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        """Take out what no resume reads: the SDK passes over it, and a request cannot hold it."""
        for row in transcript.records:
            if isinstance(row, Row) and _is_lost(row):
                ledger.note(RULES["LS610"], "removed", row.place, "the row holds no item")
                ledger.set_aside(RULES["LS610"], row.place, row.text)
        return [row for row in transcript.records if not _is_lost(row)]

    def write_back(
        self, transcript: Transcript, strands: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        homes: list[int] = transcript.state
        stay = longest_kept_run([strand.origin for strand in strands])
        kept: dict[int, Record] = {}
        behind: dict[int, list[Record]] = {}
        anchor = _FRONT
        for place, strand in enumerate(strands):
            near = transcript.records[max(anchor, homes[0] if homes else 0)]
            if place in stay:
                anchor = homes[strand.origin]
                kept[anchor] = _kept(transcript.records[anchor], strand.message)
            else:
                behind.setdefault(anchor, []).append(_fresh(strand.message, near, transcript))
        return _laid(transcript.records, set(homes), kept, behind)

    def severity(self, found: Finding, transcript: Transcript) -> str:
        return WARNING if found.code == "LS101" else found.severity


def _is_message(record: Record) -> bool:
    return isinstance(record, Row) and record.table == "agent_messages"


def _is_item(record: Record) -> bool:
    return _is_message(record) and type(record.value[_ITEM]) is dict


def _is_lost(record: Record) -> bool:
    return _is_message(record) and not _is_item(record)


def _lost(record: Record) -> Finding:
    if isinstance(record, Row) and not record.readable:
        text = "the row cannot be decoded, so that it is passed over in silence"
        return new_finding("LS610", record.place, text, WARNING)
    return new_finding("LS610", record.place, "the row holds no item, but is sent as one", ERROR)


def _kept(record: Record, item: Any) -> Record:
    if isinstance(record, Row) and item is not record.json:
        return put_fields(record, item)
    return record


def _fresh(item: Any, near: Record, transcript: Transcript) -> Record:
    session = near.value.get("session_id", transcript.session)
    time = {"created_at": near.value["created_at"]} if "created_at" in near.value else {}
    return new_row(_MESSAGE, {"session_id": session, _ITEM: item, **time})


def _laid(
    records: Sequence[Record],
    items: set[int],
    kept: dict[int, Record],
    behind: dict[int, list[Record]],
) -> list[Record]:
    """Put rows in order: what is new or moved goes behind what it follows."""
    out: list[Record] = []
    first = min(items, default=len(records))
    for number, record in enumerate(records):
        if number == first:
            out += behind.get(_FRONT, ())
        if number in kept:
            out.append(kept[number])
        elif number not in items:
            out.append(record)
        out += behind.get(number, ())
    return out if items else [*out, *behind.get(_FRONT, ())]
