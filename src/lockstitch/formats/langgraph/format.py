"""Threads for the one doctor: a format whose store is a database of checkpoints.

A store of such a kind gives two functions: records to a snapshot, and the records with one more
checkpoint. All the rest is the same wherever the checkpoints are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from lockstitch.dialects import LANGCHAIN
from lockstitch.formats.history import SourcedMessage, trace_sources
from lockstitch.formats.langgraph.codec import Undecodable
from lockstitch.formats.langgraph.conversation import ThreadReading
from lockstitch.formats.langgraph.messages import make_distinct, repeated_ids
from lockstitch.formats.langgraph.repair import (
    DROPPED,
    HIDDEN,
    read_thread,
    repair_checkpoint,
    repair_other,
)
from lockstitch.formats.langgraph.snapshot import RepairedCheckpoint, ThreadSnapshot, session_name
from lockstitch.repair.draft import Ledger
from lockstitch.repair.origins import RepairedMessage
from lockstitch.rules import RULES
from lockstitch.sources.interface import Context, Format, Transcript
from lockstitch.sources.records import Record

DONE = "was put into the conversation"


class ThreadFormat(Format):
    """A store of LangGraph's threads."""

    dialect = LANGCHAIN
    survived = "LS901"

    @abstractmethod
    def snapshot(self, records: Sequence[Record], context: Context) -> ThreadSnapshot:
        """Make a snapshot of the records of one namespace; the greatest id is the head."""

    @abstractmethod
    def added(self, records: Sequence[Record], new: RepairedCheckpoint) -> list[Record]:
        """Return the records with one more checkpoint.

        A checkpoint of the same id that is not stored yet (``is_new``) is replaced by it.
        """

    def is_part_of(self, own: str | None, session: str) -> bool:
        """Whether it is that thread, or a subgraph of it with a memory of its own."""
        return own == session or (own or "").startswith(session_name(session, "-")[:-1])

    def is_record(self, value: dict[str, Any]) -> bool:
        return True

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        return read_thread(self.snapshot(records, context), records, context)

    def forced(self, transcript: Transcript) -> Transcript:
        reading: ThreadReading = transcript.state
        return read_thread(
            reading.snapshot, transcript.records, transcript.context, reading.channel, forced=True
        )

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        """Put what hangs on the head into its conversation, with an id for each message."""
        reading: ThreadReading = transcript.state
        views = [item.view for item in reading.items]
        beside = [other for other in reading.others if repair_other(other, transcript, ledger)]
        if not (reading.is_folded or repeated_ids(views) or transcript.forced or beside):
            return list(transcript.records)
        if transcript.forced:
            place = transcript.records[reading.snapshot.head.record].place
            ledger.note(RULES["LS101"], "closed", place, "nobody is asked any more")
        for found in transcript.findings:
            if HIDDEN in found.message or DROPPED in found.message:
                text = found.message.replace(HIDDEN, DONE).replace(DROPPED, DONE)
                ledger.note(RULES[found.code], "brought back", found.place, text)
            elif found.code == "LS906":
                ledger.note(RULES["LS906"], "renamed", found.place, "it has an id of its own now")
        kept = [RepairedMessage(view, number) for number, view in make_distinct(views)]
        return self.write_back(transcript, trace_sources(transcript.history, kept), ledger)

    def write_back(
        self, transcript: Transcript, strands: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        try:
            new = repair_checkpoint(transcript, strands, {change.code for change in ledger.changes})
        except Undecodable:
            return list(transcript.records)
        return list(transcript.records) if new is None else self.added(transcript.records, new)
