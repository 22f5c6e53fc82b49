"""OpenAI Agents SDK: the tables of ``SQLiteSession``, in a file that the program names.

A row is one item of the Responses API, and the rows are in the order of their keys. Sessions with
branches (``AdvancedSQLiteSession``) keep the keys of these rows in other tables and are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstitch.dialects import OPENAI_RESPONSES
from lockstitch.formats.interface import (
    NEW,
    Context,
    History,
    SourcedMessage,
    Transcript,
    new_finding,
)
from lockstitch.formats.records import Record
from lockstitch.formats.tables import ProgramTable, Row, RowFormat, TableLayout, new_row, put_fields
from lockstitch.formats.write_back import (
    MessageHome,
    enter_message,
    keep_in_order,
    lay_records,
)
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, RULES, WARNING, Finding

_SESSION = ProgramTable(
    "agent_sessions", session="session_id", key="session_id", order=("session_id",)
)
_MESSAGE = ProgramTable("agent_messages", "message_data", counted=True)
_SESSIONS = (
    "SELECT session_id, NULL, CAST(strftime('%s', updated_at) AS INTEGER), '' FROM agent_sessions"
)
_ITEM = "message_data"


class OpenAIAgents(RowFormat):
    """One item per row."""

    name = "openai-agents"
    title = "OpenAI Agents SDK"
    dialect = OPENAI_RESPONSES
    layout = TableLayout((_SESSION, _MESSAGE), _SESSIONS)

    def claims(self, name: str, head: Any) -> bool:
        tables = {value for value in head if type(value) is str}
        return {"agent_sessions", "agent_messages"} <= tables and "message_structure" not in tables

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        history = History(OPENAI_RESPONSES)
        homes: list[int] = []
        findings: list[Finding] = []
        for number, row in enumerate(records):
            if not isinstance(row, Row) or row.table != "agent_messages":
                continue
            if not _is_lost(row):
                homes.append(number)
                enter_message(history, row.value[_ITEM], MessageHome(number, (_ITEM,)))
            elif row.readable:
                text = "the row holds no item, but is sent as one"
                findings.append(new_finding("LS610", row.place, text, ERROR))
            else:
                text = "the row cannot be decoded, so it is silently skipped"
                findings.append(new_finding("LS610", row.place, text, WARNING))
        return Transcript(
            context,
            records,
            history,
            findings=findings,
            session=context.name,
            turns=sum(item.get("role") == "user" for item in history.messages),
            state=homes,
        )

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        """Remove rows without an item: the SDK skips them, and a request cannot hold them."""
        for row in transcript.records:
            if isinstance(row, Row) and _is_lost(row):
                ledger.note(RULES["LS610"], "removed", row.place, "the row holds no item")
                ledger.set_aside(RULES["LS610"], row.place, row.text)
        return [row for row in transcript.records if not _is_lost(row)]

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        records, homes = transcript.records, transcript.state
        numbers = [NEW if one.origin == NEW else homes[one.origin] for one in repaired]
        kept, behind = keep_in_order(numbers, repaired)
        rows: dict[int, Record] = {}
        for number, sourced in kept.items():
            rows[number] = row = records[number]
            if isinstance(row, Row) and sourced.message is not row.json:
                rows[number] = put_fields(row, sourced.message)
        first = homes[0] if homes else 0
        fresh: dict[int, list[tuple[int, Record]]] = {}
        for anchor, added in behind.items():
            near = records[max(anchor, first)].value
            time = {"created_at": near["created_at"]} if "created_at" in near else {}
            taken = {"session_id": near.get("session_id", transcript.session)}
            values = [{**taken, _ITEM: sourced.message, **time} for sourced in added]
            fresh[anchor] = [(NEW, new_row(_MESSAGE, value)) for value in values]
        front = homes[0] if homes else len(records)
        return [record for _, record in lay_records(records, rows, fresh, homes, front)]

    def severity(self, found: Finding, transcript: Transcript) -> str:
        return WARNING if found.code == "LS101" else found.severity


def _is_lost(record: Record) -> bool:
    is_message = isinstance(record, Row) and record.table == "agent_messages"
    return is_message and type(record.value[_ITEM]) is not dict
