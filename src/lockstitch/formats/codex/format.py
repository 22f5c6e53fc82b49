"""Codex: ``~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl``, one item or event a line.

After a week Codex packs a rollout (``.jsonl.zst``); it unpacks it again when it is resumed, and
reads no packed one beside which the same one stands unpacked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstitch.dialects import OPENAI_RESPONSES
from lockstitch.errors import LockstitchError
from lockstitch.files import read
from lockstitch.files.processes import SessionUser, writers_of_file
from lockstitch.formats.codex import repair
from lockstitch.formats.codex.repair import store_findings
from lockstitch.formats.codex.thread import (
    META,
    TYPES,
    CodexThread,
    evidence_of,
    id_in,
    is_prompt,
    payload_of,
    texts_of,
)
from lockstitch.formats.history import Aside, History, SourcedMessage
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, NOTE, WARNING, Finding
from lockstitch.sources.interface import Context, Format, Glimpse, Transcript
from lockstitch.sources.records import Record, as_str, decode_json
from lockstitch.sources.write_back import MessageHome, enter_message

if TYPE_CHECKING:
    from lockstitch.sources.compaction import Shortened, Sorting, Story

_NAME = re.compile(r"rollout-.*?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
# Where a rollout says what it works on: in its first line, which may be torn.
_CWD = re.compile(rb'"cwd":("(?:[^"\\\\]|\\\\.)*")')
_HEAD = 1 << 18
_FOLDERS = ("sessions", "archived_sessions")
# What the program answers with "aborted" in memory, each time it resumes.
_ANSWERED = frozenset({"LS101", "LS102"})


class Codex(Format):
    """A list of items between events and notes; the order of the file is the only order."""

    name = "codex"
    title = "Codex"
    dialect = OPENAI_RESPONSES
    places = (
        ".codex/sessions/*/*/*/rollout-*.jsonl",
        ".codex/sessions/*/*/*/rollout-*.jsonl.zst",
        ".codex/archived_sessions/*.jsonl",
        ".codex/archived_sessions/*.jsonl.zst",
    )
    variable = "CODEX_HOME"
    resume = ("codex", "resume", "{id}")
    # Arguments that are no JSON are the model's own; they are sent as they are, and answered.
    tolerated = frozenset({"LS207"})
    # The first line must be its head, and with a byte order mark it is no JSON.
    refused = frozenset({"LS604"})

    def claims(self, name: str, head: Sequence[Any]) -> bool:
        values = [value for value in head if type(value) is dict]
        if any(self.is_record(value) and value["type"] in TYPES for value in values):
            return True
        return name.startswith("rollout-") and any(_is_of_first_versions(v) for v in values)

    def is_record(self, value: dict[str, Any]) -> bool:
        return type(value.get("type")) is str and type(value.get("payload")) is dict

    def glimpse(
        self, path: str, head: Sequence[dict[str, Any]], tail: Sequence[dict[str, Any]]
    ) -> Glimpse:
        meta = next((payload_of(value) for value in head if value.get("type") == META), {})
        items = (payload_of(value) or value for value in (*head, *tail))
        prompts = (item for item in items if is_prompt(item))
        name = os.path.basename(path)  # noqa: PTH119 - there may be 100 000 of them
        return Glimpse(
            prompt="\n".join(texts_of(next(prompts, {}))),
            session=as_str(meta.get("id")) or id_in(name),
            project=as_str(meta.get("cwd")),
            is_aside=bool(meta.get("parent_thread_id")),
        )

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        thread = CodexThread(records)
        hidden = thread.hidden
        transcript = Transcript(
            context,
            records,
            _history(thread),
            session=_session(thread, context.name),
            project=as_str(thread.meta.get("cwd")),
            turns=sum(map(is_prompt, thread.items)),
            left=sum(is_prompt(payload_of(records[n].value)) for n in hidden),
            left_size=sum(records[n].size for n in hidden),
            notes=_notes(thread),
            version=as_str(thread.meta.get("cli_version")) or "",
            state=thread,
        )
        transcript.evidence = evidence_of(records, thread.items)
        transcript.findings = [*store_findings(thread, transcript)]
        return transcript

    def asides(self, transcript: Transcript) -> list[Aside]:
        return [*_asides(transcript.state)]

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        return repair.repair_tree(transcript, ledger)

    def write_back(
        self, transcript: Transcript, strands: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        return repair.write_back(transcript, strands)

    def users(self, path: str, session: str | None, project: str | None) -> Iterable[SessionUser]:
        """Return those that have the rollout open, or the lock of the thread that is in it."""
        file = Path(os.path.realpath(path))
        match = _NAME.match(file.name)
        names = {f"{name}.lock" for name in (session, match and match[1]) if name}
        homes = (one.parent for one in file.parents if one.name in _FOLDERS)
        locks = [home / "thread-writer-locks" / name for home in homes for name in sorted(names)]
        return [user for one in (*locks, file) for user in writers_of_file(one)]

    def belongs(self, path: str, folder: str) -> bool:
        if _FOLDERS[0] not in Path(path).parts:
            return False  # in the archive
        try:
            is_packed = read.is_packed(path)
            head = read.unpacked_head(path, _HEAD) if is_packed else read.read_head(path, _HEAD)
        except LockstitchError:
            return False
        found = _CWD.search(head)
        return found is not None and decode_json(found[1]) == folder

    def sorting(self, transcript: Transcript) -> Sorting:
        from lockstitch.formats.codex import compact  # noqa: PLC0415 - few commands need it

        return compact.sorting(transcript)

    def compacted(self, transcript: Transcript, story: Story, out: Shortened) -> list[Record]:
        from lockstitch.formats.codex import compact as codex_compact  # noqa: PLC0415 - as above

        return codex_compact.compacted(transcript, out)

    def severity(self, found: Finding, transcript: Transcript) -> str:
        if found.code == "LS307":
            # Sealed reasoning whose turn was interrupted behind it is sent, and answered.
            return NOTE
        if found.code not in _ANSWERED:
            return found.severity
        item = transcript.history.messages[int(found.place.split(".")[1])]
        return ERROR if str(item.get("call_id")) in transcript.evidence else WARNING


def _is_of_first_versions(value: dict[str, Any]) -> bool:
    return "record_type" in value or ("instructions" in value and "timestamp" in value)


def _asides(thread: CodexThread) -> Iterator[Aside]:
    for kind, reason, numbers in thread.unsent():
        history = History(OPENAI_RESPONSES, [], [], [])
        for number in numbers:
            enter_message(
                history, payload_of(thread.records[number].value), MessageHome(number, ("payload",))
            )
        if numbers:
            behind = max((h.number for h in thread.homes if h.number < numbers[0]), default=-1)
            yield Aside(kind, numbers[0], behind, history, reason)


def _history(thread: CodexThread) -> History:
    history = History(OPENAI_RESPONSES, [], [], [], _model(thread.records))
    for item, home in zip(thread.items, thread.homes, strict=True):
        enter_message(history, item, home)
    return history


def _model(records: Sequence[Record]) -> str | None:
    for record in reversed(records):
        if record.is_record and record.value.get("type") == "turn_context":
            return as_str(payload_of(record.value).get("model"))
    return None


def _session(thread: CodexThread, name: str) -> str | None:
    return as_str(thread.meta.get("id")) or id_in(name)


def _notes(thread: CodexThread) -> list[str]:
    notes = []
    if thread.dropped:
        turns = f"{thread.dropped} turn{'s' * (thread.dropped != 1)}"
        notes.append(f"{turns} were taken back with a rollback")
    if thread.meta.get("parent_thread_id"):
        notes.append("is a sub-agent's rollout: Codex resumes it only through its parent")
    if thread.meta.get("history_base"):
        notes.append("is a fork: what came before is in the rollout it was forked from")
    return notes
