"""pi: ``~/.pi/agent/sessions/<project>/<time>_<id>.jsonl``; OpenClaw's older files are the same."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lockstitch.dialects import ANTHROPIC
from lockstitch.dialects.base import text_of_blocks
from lockstitch.formats.pi import repair_tree, write_back
from lockstitch.formats.pi.session import PiSession, id_in, is_header, is_prompt, message_of
from lockstitch.repair.draft import Ledger
from lockstitch.rules import WARNING, Finding
from lockstitch.sources.interface import Aside, Context, Format, Glimpse, SourcedMessage, Transcript
from lockstitch.sources.records import Record, as_str

_HEAD = frozenset({"version", "timestamp", "cwd"})
# The entry with the name that a person gave the session.
_NAMED = "session_info"
# How Anthropic and others write calls and results; pi has its own words for them.
_FOREIGN = ("tool_use", "tool_result", "function_call", "tool-call", "tool-result")
# What pi answers with "No result provided" in memory, each time it resumes.
_ANSWERED = frozenset({"LS101", "LS102"})


class Pi(Format):
    """A tree of entries; the conversation is the way from the last one to the root."""

    name = "pi"
    title = "pi"
    dialect = ANTHROPIC
    # The first line must be its head, and with a byte order mark it is no JSON.
    refused = frozenset({"LS604"})
    places = (".pi/agent/sessions/*/*.jsonl", ".openclaw/agents/*/sessions/*.jsonl")
    programs = ("pi", "pi-rpc")
    resume = ("pi", "--session", "{path}")
    is_local = True

    def claims(self, name: str, head: Sequence[Any]) -> bool:
        values = [value for value in head if type(value) is dict]
        known = [value for value in values if _is_entry(value)]
        is_known = any(is_header(value) and not _HEAD.isdisjoint(value) for value in values)
        return (is_known or (bool(known) and 2 * len(known) > len(values))) and not self.doubt(head)

    def doubt(self, head: Sequence[Any]) -> str:
        """Return that calls are kept in another shape, as by programs whose entries look alike."""
        values = [value for value in head if type(value) is dict]
        kinds = [kind for value in values for kind in _kinds_in(value)]
        foreign = sum(kind in _FOREIGN for kind in kinds)
        if foreign and foreign >= sum(kind == "toolCall" for kind in kinds):
            return "looks like a session of pi, but its calls are written in another way"
        return ""

    def is_record(self, value: dict[str, Any]) -> bool:
        if type(value.get("type")) is not str:
            return False
        return is_header(value) or "parentId" in value or bool(message_of(value))

    def glimpse(
        self, path: str, head: Sequence[dict[str, Any]], tail: Sequence[dict[str, Any]]
    ) -> Glimpse:
        lines = [*head, *tail]
        start = next(filter(is_header, lines), {})
        names = [as_str(value.get("name")) for value in lines if value.get("type") == _NAMED]
        prompts = (message_of(value).get("content") for value in lines if is_prompt(value))
        name = os.path.basename(path)  # noqa: PTH119 - there may be 100 000 of them
        return Glimpse(
            title=next(filter(None, reversed(names)), ""),
            prompt=text_of_blocks(next(prompts, "")),
            session=as_str(start.get("id")) or id_in(name),
            project=as_str(start.get("cwd")),
        )

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        session = PiSession(records)
        path = set(session.path)
        away = [n for n in session.entries if n not in path and is_prompt(session.value(n))]
        transcript = Transcript(
            context,
            records,
            session.history,
            session=as_str(session.head.get("id")) or id_in(context.name),
            project=as_str(session.head.get("cwd")),
            turns=sum(is_prompt(session.value(number)) for number in session.sent),
            left=len(away),
            left_size=sum(records[n].size for n in session.entries if n not in path),
            version=str(session.head.get("version", "")),
            state=session,
        )
        transcript.findings = [*repair_tree.findings(session, len(away), context)]
        if away and not transcript.findings:
            turns = f"{len(away)} turn{'s' * (len(away) != 1)}"
            transcript.notes.append(f"{turns} are on other branches of the tree")
        return transcript

    def belongs(self, path: str, folder: str) -> bool:
        name = re.sub(r"[/\\:]", "-", folder.lstrip("/\\"))
        return Path(path).parent.name == f"--{name}--"

    def asides(self, transcript: Transcript) -> list[Aside]:
        return [one for one in transcript.state.asides() if one.history.messages]

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        return repair_tree.repair_tree(transcript, ledger)

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        return write_back.write_back(transcript, repaired, ledger)

    def severity(self, found: Finding, transcript: Transcript) -> str:
        return WARNING if found.code in _ANSWERED else found.severity


def _is_entry(value: dict[str, Any]) -> bool:
    """Whether a record is an entry of a tree as pi writes it."""
    is_linked = type(value.get("id")) is str and "parentId" in value and "timestamp" in value
    return is_linked and type(value.get("type")) is str


def _kinds_in(value: dict[str, Any]) -> Iterator[Any]:
    """Return the types of the blocks in the message of a record."""
    content = message_of(value).get("content")
    for block in content if type(content) is list else ():
        if type(block) is dict:
            yield block.get("type")
