"""Codex: ``~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl``, one item or event per line.

After a week Codex packs a rollout (``.jsonl.zst``). It unpacks the file again to resume it, and
reads no packed rollout if the same one stands unpacked beside it.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from lockstitch.conversation.parts import RESULT
from lockstitch.dialects import OPENAI_RESPONSES
from lockstitch.dialects.profiles import new_dialect
from lockstitch.errors import LockstitchError
from lockstitch.files import read
from lockstitch.files.os_files import SessionUser, writers_of_file
from lockstitch.formats.codex.thread import (
    COMPACTED,
    EVENT,
    ITEM,
    META,
    TYPES,
    CodexThread,
    evidence_of,
    find_misspelled,
    find_opening,
    id_in,
    is_prompt,
    is_read,
    payload_of,
    rebuild_head,
    respell,
    setting_of,
    summary_in,
    texts_of,
)
from lockstitch.formats.interface import (
    NEW,
    Aside,
    Context,
    Format,
    Glimpse,
    History,
    Shortened,
    Sorting,
    SourcedMessage,
    Transcript,
    new_finding,
)
from lockstitch.formats.records import (
    Record,
    amend_record,
    as_dict,
    as_str,
    encode_record,
    new_record,
    read_json,
)
from lockstitch.formats.write_back import (
    MessageHome,
    TreeRepair,
    enter_message,
    place_messages,
    value_at,
)
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, NOTE, WARNING, Finding
from lockstitch.rules.rule import several

_HEAD_HELP = (
    "repair moves the header record to the start of the file, or rebuilds it from what is left "
    "of it, the name of the file and its lines"
)
_NAME = re.compile(r"rollout-.*?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})")
# The working directory in the first line of a rollout, which may be torn.
_CWD = re.compile(rb'"cwd":("(?:[^"\\\\]|\\\\.)*")')
_HEAD = 1 << 18
_FOLDERS = ("sessions", "archived_sessions")
# The program answers these with "aborted" in memory, each time it resumes.
_ANSWERED = frozenset({"LS101", "LS102"})

# How the program introduces a summary, and recognizes it later.
PREFIX = (
    "Another language model started to solve this problem and produced a summary of its thinking "
    "process. You also have access to the state of the tools that were used by that language "
    "model. Use this to build on the work that has already been done and avoid duplicating work. "
    "Here is the summary produced by the other language model, use the information in this "
    "summary to assist with your own analysis:"
)
# Summaries that only the provider can read, so they have to be sent as they are.
_SEALED = ("compaction", "compaction_summary", "context_compaction")


class Codex(Format):
    """A list of items, between events and notes, in the order of the file."""

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
    # The model itself wrote arguments that are not JSON; they are sent as they are, and answered.
    tolerated = frozenset({"LS207"})
    # The first line must be the head, and with a byte order mark it is not JSON.
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
        history = History(OPENAI_RESPONSES, model=as_str(next(turns, {}).get("model")))
        for item, home in zip(thread.items, thread.homes, strict=True):
            enter_message(history, item, home)
        notes = []
        if thread.dropped:
            notes.append(f"{several(thread.dropped, 'turn')} were taken back with a rollback")
        if meta.get("parent_thread_id"):
            notes.append("is a sub-agent's rollout: Codex resumes it only through its parent")
        if meta.get("history_base"):
            notes.append("is a fork: the earlier turns are in the rollout it was forked from")
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
        transcript.findings = [*store_findings(thread, transcript)]
        return transcript

    def asides(self, transcript: Transcript) -> list[Aside]:
        return [*_asides(transcript.state)]

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        """Repair one kind of fault in the lines; return the same records if there is none."""
        return _CodexRepair(transcript, ledger).run()

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        thread: CodexThread = transcript.state
        laid = [
            SourcedMessage(respell(sourced.message), sourced.origin, sourced.parts)
            for sourced in repaired
        ]
        records = place_messages(transcript, thread.homes, laid, _line)
        return renumber(CodexThread(records), transcript.context.data)

    def users(self, path: str, session: str | None, project: str | None) -> Iterable[SessionUser]:
        """Return the processes that have the rollout open, or the lock of the thread in it."""
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
        return found is not None and read_json(found[1])[0] == folder

    def sorting(self, transcript: Transcript) -> Sorting:
        """Return the summary in force, and what the program says about the surroundings."""
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

    def compacted(self, transcript: Transcript, left: Shortened) -> list[Record]:
        """Return the rollout with one more record, which lists all that is sent from then on."""
        records = list(transcript.records)
        text = f"{PREFIX}\n{left.summary}"
        blocks = [{"type": "input_text", "text": text}]
        front = [transcript.history.messages[number] for number in left.setup]
        summary = {"type": "message", "role": "user", "content": blocks}
        items = [*front, summary, *(message for _, message in left.kept)]
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
        return renumber(thread, transcript.context.data)

    def severity(self, found: Finding, transcript: Transcript) -> str:
        if found.code == "LS307":
            # Codex sends sealed reasoning even if its turn was interrupted after it, and gets an
            # answer.
            return NOTE
        if found.code not in _ANSWERED:
            return found.severity
        item = transcript.history.messages[found.at.message or 0]
        return ERROR if str(item.get("call_id")) in transcript.evidence else WARNING


def _is_of_first_versions(value: dict[str, Any]) -> bool:
    return "record_type" in value or ("instructions" in value and "timestamp" in value)


def _asides(thread: CodexThread) -> Iterator[Aside]:
    for kind, reason, numbers in thread.unsent():
        history = History(OPENAI_RESPONSES)
        for number in numbers:
            enter_message(
                history, payload_of(thread.records[number].value), MessageHome(number, ("payload",))
            )
        if numbers:
            behind = max((h.number for h in thread.homes if h.number < numbers[0]), default=-1)
            yield Aside(kind, numbers[0], behind, history, reason)


def _usage(thread: CodexThread) -> Iterator[tuple[int, int]]:
    """Yield how many of the items each request had, and the tokens it cost."""
    homes = [home.number for home in thread.homes]
    for number, record in enumerate(thread.records):
        event = payload_of(record.value) if record.is_record else {}
        if event.get("type") == "token_count" and record.value.get("type") == EVENT:
            usage = as_dict(as_dict(event.get("info")).get("last_token_usage"))
            tokens = usage.get("input_tokens")
            if type(tokens) is int and tokens:
                yield bisect_left(homes, number), tokens


# What is wrong with the lines, before their items are looked at.


def store_findings(thread: CodexThread, transcript: Transcript) -> Iterator[Finding]:
    """Yield everything that is wrong with the lines."""
    records = thread.records
    yield from _find_bad_head(thread, transcript)
    for number, first in find_repeats(records):
        text = f"repeats the record of line {records[first].place}"
        yield new_finding("LS607", records[number].place, text)
    for number in find_skipped(records):
        text = "has no time, or an ordinal that is not a number: Codex skips it"
        yield new_finding("LS610", records[number].place, text, ERROR)
    for number, record in enumerate(records):
        if number >= thread.start and record.is_record and find_misspelled(record.value):
            text = "Codex cannot read an item of this record, and skips the record"
            yield new_finding("LS610", record.place, text, ERROR)
    if thread.hidden:
        turns = several(transcript.left, "turn")
        text = (
            "a second session_meta hides everything before it: resuming will silently drop "
            f"{turns} ({transcript.left_size} bytes)"
        )
        place = records[thread.start].place
        yield new_finding("LS704", place, text, fixable=bool(find_spare_metas(thread)))
    yield from _find_misnumbered(thread)
    yield from _find_displaced_results(thread, transcript)


def _find_bad_head(thread: CodexThread, transcript: Transcript) -> Iterator[Finding]:
    """Yield a finding if a file does not start with a whole head; the first versions had none."""
    number = find_misplaced_head(thread)
    if number < 0:
        return
    record = thread.records[number]
    is_head = record.is_record and record.value.get("type") == META
    why = (
        "its session_meta lacks a required field"
        if is_head
        else "the file does not start with its session_meta"
    )
    context = transcript.context
    made = rebuild_head(thread.records, context.data, context.name)
    fixable = own_meta(thread, context.name) >= 0 or made is not None
    text = f"{why}: Codex refuses to resume it"
    if not fixable:
        text += ", and neither the name of the file nor its lines contain the id of the session"
    found = new_finding("LS610", record.place, text, ERROR, fixable=fixable)
    yield structs.replace(found, help=_HEAD_HELP) if fixable else found


def find_misplaced_head(thread: CodexThread) -> int:
    """Return the record that stands where the head must be, -1 if nothing is wrong there."""
    number = find_opening(thread.records)
    envelopes = any("payload" in r.value for r in thread.records if r.is_record)
    return number if envelopes and number not in thread.metas else -1


def own_meta(thread: CodexThread, name: str) -> int:
    """Return the record with the data of the session that the file is named after, or -1."""
    own = id_in(name)
    metas = thread.metas
    return next((n for n in metas if own in (None, thread.records[n].value["payload"]["id"])), -1)


def find_repeats(records: Sequence[Record]) -> list[tuple[int, int]]:
    """Return items that are stored twice, equal in everything, with the number of the first."""
    seen: dict[bytes, int] = {}
    found: list[tuple[int, int]] = []
    for number, record in enumerate(records):
        if not record.is_record or record.value.get("type") not in (ITEM, COMPACTED):
            continue
        if "timestamp" not in record.value:
            continue
        first = seen.setdefault(encode_record(record.value), number)
        if first != number:
            found.append((number, first))
    return found


def find_skipped(records: Sequence[Record]) -> list[int]:
    """Return the records that are whole but that the program skips."""
    return [
        number
        for number, record in enumerate(records)
        if record.is_record
        and record.value.get("type") in (META, ITEM, COMPACTED)
        and payload_of(record.value)
        and not is_read(record.value)
    ]


def find_spare_metas(thread: CodexThread) -> list[int]:
    """Return the session_meta lines that only repeat the session's own."""
    own = thread.meta.get("id")
    return [
        number
        for number in thread.metas[1:]
        if thread.hidden and payload_of(thread.records[number].value).get("id") == own
    ]


def correct_ordinals(thread: CodexThread) -> dict[int, int]:
    """Return the ordinals that records of a paginated file should have but do not."""
    if not thread.is_paginated:
        return {}
    lines = [n for n, r in enumerate(thread.records) if r.is_record and "payload" in r.value]
    known = [
        (position, thread.records[number].value.get("ordinal"))
        for position, number in enumerate(lines)
    ]
    base = next((o - p for p, o in known if type(o) is int and o >= p), 0)
    return {lines[p]: base + p for p, ordinal in known if ordinal != base + p}


def _find_misnumbered(thread: CodexThread) -> Iterator[Finding]:
    wrong = correct_ordinals(thread)
    if not wrong:
        return
    last = max(n for n, r in enumerate(thread.records) if r.is_record)
    ends_bare = type(thread.records[last].value.get("ordinal")) is not int
    text = f"{len(wrong)} ordinals from here on are missing, repeated or skipped"
    if ends_bare:
        text += ", and Codex refuses a file whose last line has none"
    place = thread.records[min(wrong)].place
    yield new_finding("LS610", place, text, ERROR if ends_bare else "")


def _find_displaced_results(thread: CodexThread, transcript: Transcript) -> Iterator[Finding]:
    """Yield calls without a real output whose output is in an event."""
    if not transcript.evidence:
        return
    dialect = new_dialect(OPENAI_RESPONSES)
    real: set[Any] = {
        part.id
        for message in dialect.read(thread.items)
        for part in message.parts
        if part.kind == RESULT and not dialect.is_placeholder(part)
    }
    for item, home in zip(thread.items, thread.homes, strict=True):
        call = str(item.get("call_id"))
        if call in transcript.evidence and call not in real:
            real.add(call)
            text = f"the output of call {call} is only in an event"
            yield new_finding("LS708", thread.records[home.number].place, text)


class _CodexRepair(TreeRepair):
    """One round of repairs on the lines of a rollout."""

    def __init__(self, transcript: Transcript, ledger: Ledger) -> None:
        super().__init__(transcript, ledger)
        self.thread: CodexThread = transcript.state
        self.name = transcript.context.name

    def drop_repeats(self) -> None:
        """Keep the first of equal records."""
        for number, _ in find_repeats(self.records):
            self.gone.add(number)
            self.note("LS607", "removed", number, "the same record comes before it in the file")

    def give_times(self) -> None:
        """Give records that the program skips the time of a neighbour, and drop odd ordinals."""
        wrong = set(find_skipped(self.records))
        times = [as_str(r.value.get("timestamp")) if r.is_record else None for r in self.records]
        last = next(filter(None, times), None)
        if last is None:
            return
        for number, time in enumerate(times):
            last = time or last
            if number not in wrong:
                continue
            if not time:
                self.set(number, ("timestamp",), last)
            if type(self.records[number].value.get("ordinal", 0)) is not int:
                self.set(number, ("ordinal",), None)
            self.note("LS610", "rewritten", number, "got the time of its neighbour")

    def spell(self) -> None:
        """Spell items so that the program reads them."""
        for number, record in enumerate(self.records):
            for path in find_misspelled(record.value) if record.is_record else ():
                self.set(number, path, respell(value_at(record.value, path)))
                self.note(
                    "LS610",
                    "rewritten",
                    number,
                    "an item was rewritten in the form that Codex reads",
                )

    def drop_spare_metas(self) -> None:
        """Remove repeats of the session's own data, which hide everything before them."""
        for number in find_spare_metas(self.thread):
            text = "a second session_meta was removed, so that everything before it is read again"
            self.remove("LS704", number, text, self.records[number].value)

    def put_meta_first(self) -> None:
        """Put the session's own data at the start: moved there, or rebuilt."""
        number = find_misplaced_head(self.thread)
        if number >= 0:
            rebuild = partial(rebuild_head, self.records, self.data, self.name)
            own = own_meta(self.thread, self.name)
            self.put_head_first(number, own, rebuild, META, META)

    def number_anew(self) -> None:
        """Renumber the records of a paginated file so that their ordinals count up."""
        wrong = correct_ordinals(self.thread)
        if wrong:
            text = f"{len(wrong)} ordinals were renumbered"
            self.note("LS610", "rewritten", min(wrong), text)
        for number, ordinal in wrong.items():
            self.set(number, ("ordinal",), ordinal)

    steps = (
        drop_repeats,
        give_times,
        spell,
        drop_spare_metas,
        put_meta_first,
        number_anew,
    )


def renumber(thread: CodexThread, data: bytes) -> list[Record]:
    """Return the records of a thread with ordinals that count up."""
    wrong = correct_ordinals(thread)
    return [
        amend_record(data, record, ("ordinal",), wrong[number]) if number in wrong else record
        for number, record in enumerate(thread.records)
    ]


def _line(item: Any, near: Record) -> Record:
    """Return the line for a new item, with the time of its neighbour."""
    value = near.value
    if "payload" not in value:
        return new_record("", item)
    ordinal = {"ordinal": value["ordinal"]} if "ordinal" in value else {}
    time = {"timestamp": value.get("timestamp")}
    return new_record("", {**time, **ordinal, "type": ITEM, "payload": item})
