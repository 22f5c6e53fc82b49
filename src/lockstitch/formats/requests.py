"""Lines of which each is a request: logs of a gateway, examples for fine-tuning.

Every line is checked and repaired as a request of its own, and the others keep their bytes. All
are of one dialect, which some of them tell; those that say nothing of it are read as the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from lockstitch.dialects import OPENAI_CHAT
from lockstitch.dialects.registry import dialect_of, messages_of
from lockstitch.errors import AmbiguousDialect, UsageError
from lockstitch.formats.history import History, SourcedMessage
from lockstitch.formats.plain import PlainList, doubt_of
from lockstitch.repair.draft import Ledger
from lockstitch.sources import repair
from lockstitch.sources.interface import LINES, Context, Format, Transcript
from lockstitch.sources.records import Record

_PLAIN = PlainList()
_USUAL = OPENAI_CHAT


class Requests(Format):
    """One request a line, in whatever order; nothing of one is part of another."""

    name = "requests"
    title = "requests on lines of their own"
    dialect = ""
    kinds = (LINES,)

    def claims(self, name: str, head: Sequence[Any]) -> bool:
        values = [value for value in head if type(value) is dict]
        if not values or not all(map(self.is_record, values)) or self.doubt(head):
            return False
        return len({*_dialects(values)}) == 1

    def doubt(self, head: Sequence[Any]) -> str:
        values = [value for value in head if type(value) is dict and self.is_record(value)]
        found = sorted({*_dialects(values)})
        if len(found) > 1:
            return f"looks like requests, but of {' and '.join(found)}"
        return next((why for value in values if found and (why := doubt_of(value))), "")

    def is_record(self, value: dict[str, Any]) -> bool:
        return "role" not in value and any(type(one) is dict for one in messages_of(value))

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        values = [record.value for record in records if record.is_record]
        dialect = next(_dialects(values), _USUAL)
        lines = {
            number: _PLAIN.read_as(dialect, [structs.replace(record, codes=())], context)
            for number, record in enumerate(records)
            if record.is_record and self.is_record(record.value)
        }
        return Transcript(
            context,
            records,
            History(dialect, [], [], []),
            findings=[f for line in lines.values() for f in repair.findings_in(_PLAIN, line)],
            turns=sum(line.turns for line in lines.values()),
            messages=sum(len(line.history.messages) for line in lines.values()),
            state=lines,
        )

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        """Repair each line that needs it."""
        records = list(transcript.records)
        for number, line in transcript.state.items():
            done = repair.plan_repair(_PLAIN, line, repair.RepairOptions())
            if done.changed:
                [records[number]] = done.after.records
                ledger.changes += done.changes
                ledger.quarantine += done.quarantine
        return records

    def write_back(
        self, transcript: Transcript, strands: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        raise UsageError("a file of requests has no conversation of its own")


def dialect_in(values: Sequence[Any]) -> str:
    """Return the dialect of requests that were read; raises AmbiguousDialect if none tells it."""
    found = next(_dialects(values), None)
    return found or dialect_of(values[0])


def _dialects(values: Sequence[Any]) -> Iterator[str]:
    """Return the dialect of every request that tells it."""
    for value in values:
        try:
            yield dialect_of(value)
        except AmbiguousDialect:
            continue
