"""pi: ``~/.pi/agent/sessions/<project>/<time>_<id>.jsonl``; OpenClaw's older files are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstitch.formats import pi_repair, pi_stitch
from lockstitch.formats.base import Context, Format, Transcript
from lockstitch.formats.history import Strand
from lockstitch.formats.pi_blocks import message_of
from lockstitch.formats.pi_head import is_header
from lockstitch.formats.pi_session import Session, is_prompt
from lockstitch.formats.records import Record, as_str
from lockstitch.repair.ledger import Ledger
from lockstitch.rules import WARNING, Finding

# What pi answers with "No result provided" in memory, each time it resumes.
_ANSWERED = frozenset({"LS101", "LS102"})


class Pi(Format):
    """A tree of entries; the conversation is the way from the last one to the root."""

    name = "pi"
    title = "pi"
    dialect = "anthropic"
    # The first line must be its head, and with a byte order mark it is no JSON.
    refused = frozenset({"LS604"})
    places = (".pi/agent/sessions/*/*.jsonl", ".openclaw/agents/*/sessions/*.jsonl")

    def claims(self, name: str, head: Sequence[Any]) -> bool:
        values = [value for value in head if type(value) is dict]
        known = [value for value in values if self.is_record(value)]
        return any(map(is_header, values)) or (
            2 * len(known) > len(values) and any("parentId" in value for value in known)
        )

    def is_record(self, value: dict[str, Any]) -> bool:
        if type(value.get("type")) is not str:
            return False
        return is_header(value) or "parentId" in value or bool(message_of(value))

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        session = Session(records)
        path = set(session.path)
        away = [n for n in session.entries if n not in path and is_prompt(session.value(n))]
        transcript = Transcript(
            context,
            records,
            session.history,
            session=as_str(session.head.get("id")) or context.name.removesuffix(".jsonl"),
            project=as_str(session.head.get("cwd")),
            turns=sum(is_prompt(session.value(number)) for number in session.sent),
            left=len(away),
            left_size=sum(records[n].size for n in session.entries if n not in path),
            version=str(session.head.get("version", "")),
            state=session,
        )
        transcript.findings = [*pi_repair.findings(session, len(away), context)]
        if away and not transcript.findings:
            turns = f"{len(away)} turn{'s' * (len(away) != 1)}"
            transcript.notes.append(f"{turns} are on other branches of the tree")
        return transcript

    def straighten(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        return pi_repair.straighten(transcript, ledger)

    def stitch(
        self, transcript: Transcript, strands: Sequence[Strand], ledger: Ledger
    ) -> list[Record]:
        return pi_stitch.stitch(transcript, strands, ledger)

    def severity(self, found: Finding, transcript: Transcript) -> str:
        return WARNING if found.code in _ANSWERED else found.severity
