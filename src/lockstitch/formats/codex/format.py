"""Codex: ``~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl``, one item or event a line.

After a week Codex packs a rollout (``.jsonl.zst``); it unpacks it again when it is resumed, and
reads no packed one beside which the same one stands unpacked.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstitch.dialects import OPENAI_RESPONSES
from lockstitch.errors import LockstitchError
from lockstitch.files import read
from lockstitch.files.os_files import SessionUser, writers_of_file
from lockstitch.formats.codex import repair
from lockstitch.formats.codex.thread import (
    COMPACTED,
    EVENT,
    META,
    TYPES,
    CodexThread,
    evidence_of,
    id_in,
    is_prompt,
    payload_of,
    setting_of,
    summary_in,
    texts_of,
)
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, NOTE, WARNING, Finding
from lockstitch.sources.interface import (
    NEW,
    Aside,
    Context,
    Format,
    Glimpse,
    History,
    Sorting,
    SourcedMessage,
    Transcript,
)
from lockstitch.sources.records import Record, as_str, decode_json, new_record
from lockstitch.sources.write_back import MessageHome, enter_message

if TYPE_CHECKING:
    from lockstitch.sources.compaction import Shortened, Story

_NAME = re.compile(r"rollout-.*?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
# Where a rollout says what it works on: in its first line, which may be torn.
_CWD = re.compile(rb'"cwd":("(?:[^"\\\\]|\\\\.)*")')
_HEAD = 1 << 18
_FOLDERS = ("sessions", "archived_sessions")
# What the program answers with "aborted" in memory, each time it resumes.
_ANSWERED = frozenset({"LS101", "LS102"})

# How the program introduces a summary, and knows it again.
PREFIX = (
    "Another language model started to solve this problem and produced a summary of its thinking "
    "process. You also have access to the state of the tools that were used by that language "
    "model. Use this to build on the work that has already been done and avoid duplicating work. "
    "Here is the summary produced by the other language model, use the information in this "
    "summary to assist with your own analysis:"
)
# A summary that only the provider can read; it stands for what it stands for.
_SEALED = ("compaction", "compaction_summary", "context_compaction")


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
        hidden, meta = thread.hidden, thread.meta
        values = (record.value for record in reversed(records) if record.is_record)
        turns = (payload_of(value) for value in values if value.get("type") == "turn_context")
        history = History(OPENAI_RESPONSES, [], [], [], as_str(next(turns, {}).get("model")))
        for item, home in zip(thread.items, thread.homes, strict=True):
            enter_message(history, item, home)
        notes = []
        if thread.dropped:
            count = f"{thread.dropped} turn{'s' * (thread.dropped != 1)}"
            notes.append(f"{count} were taken back with a rollback")
        if meta.get("parent_thread_id"):
            notes.append("is a sub-agent's rollout: Codex resumes it only through its parent")
        if meta.get("history_base"):
            notes.append("is a fork: what came before is in the rollout it was forked from")
        transcript = Transcript(
            context,
            records,
            history,
            session=as_str(meta.get("id")) or id_in(context.name),
            project=as_str(meta.get("cwd")),
            turns=sum(map(is_prompt, thread.items)),
            left=sum(is_prompt(payload_of(records[n].value)) for n in hidden),
            left_size=sum(records[n].size for n in hidden),
            notes=notes,
            version=as_str(meta.get("cli_version")) or "",
            state=thread,
        )
        transcript.evidence = evidence_of(records, thread.items)
        transcript.findings = [*repair.store_findings(thread, transcript)]
        return transcript

    def asides(self, transcript: Transcript) -> list[Aside]:
        return [*_asides(transcript.state)]

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        return repair.repair_tree(transcript, ledger)

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        return repair.write_back(transcript, repaired)

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
        """Return the summary in force, and what the program says of the surroundings."""
        thread: CodexThread = transcript.state
        items = thread.items
        latest = {setting_of(item): n for n, item in enumerate(items) if setting_of(item)}
        sealed = {n for n, item in enumerate(items) if item.get("type") in _SEALED}
        summaries = [n for n, item in enumerate(items) if thread.homes[n].bound or summary_in(item)]
        words = "\n".join(texts_of(items[summaries[-1]])) if summaries else ""
        return Sorting(
            setup=frozenset({*latest.values(), *sealed}),
            aside=frozenset(
                n
                for n, item in enumerate(items)
                if n in summaries[:-1] or (setting_of(item) and n not in latest.values())
            ),
            summary=summaries[-1] if summaries else NEW,
            previous=words.removeprefix(PREFIX).strip(),
            usage=tuple(_usage(thread)),
        )

    def compacted(self, transcript: Transcript, story: Story, out: Shortened) -> list[Record]:
        """Return the rollout with one more record, which lists all that is sent from then on."""
        records = list(transcript.records)
        text = f"{PREFIX}\n{out.summary}"
        blocks = [{"type": "input_text", "text": text}]
        front = [transcript.history.messages[number] for number in out.setup]
        summary = {"type": "message", "role": "user", "content": blocks}
        items = [*front, summary, *(message for _, message in out.kept)]
        payload = {"message": text, "replacement_history": items}
        # the last record that has a time
        values = (record.value for record in reversed(records) if record.is_record)
        near: dict[str, Any] = next(
            (value for value in values if type(value.get("timestamp")) is str), {}
        )
        ordinal = {"ordinal": near["ordinal"]} if "ordinal" in near else {}
        time = {"timestamp": near.get("timestamp")}
        value = {**time, **ordinal, "type": COMPACTED, "payload": payload}
        thread = CodexThread([*records, new_record("", value)])
        return repair.renumbered(thread, transcript.context.data)

    def severity(self, found: Finding, transcript: Transcript) -> str:
        if found.code == "LS307":
            # Sealed reasoning whose turn was interrupted behind it is sent, and answered.
            return NOTE
        if found.code not in _ANSWERED:
            return found.severity
        item = transcript.history.messages[found.at.message or 0]
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


def _usage(thread: CodexThread) -> Iterator[tuple[int, int]]:
    """Return what requests cost, and how many of the items they had."""
    homes = [home.number for home in thread.homes]
    for number, record in enumerate(thread.records):
        event = payload_of(record.value) if record.is_record else {}
        if event.get("type") == "token_count" and record.value.get("type") == EVENT:
            info = event.get("info")
            last = info.get("last_token_usage") if type(info) is dict else None
            tokens = last.get("input_tokens") if type(last) is dict else None
            if type(tokens) is int and tokens:
                yield bisect_left(homes, number), tokens
