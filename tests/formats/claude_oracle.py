"""What a resume of a Claude Code session file sends, and everything that is wrong with the file.

Written from the description of the format and from what the real program was seen to send;
nothing of the engine is used.
``naive`` reads like the clients up to 2.1.50: the record with the newest time is the leaf, and only
what stands on the way from it to the root is sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.oracles.anthropic import problems
from tests.oracles.common import repeated

from .claude_files import MARK

Json = dict[str, Any]

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
SPEAKERS = ("user", "assistant")
KNOWN_TO_OLD_CLIENTS = (*SPEAKERS, "system", "attachment", "progress")
SENT_ATTACHMENTS = ("queued_command", "edited_text_file", "hook_additional_context", "file")


@dataclass(frozen=True, slots=True)
class Entry:
    """A record and the number of its line, counted from 1."""

    line: int
    record: Json

    @property
    def uuid(self) -> str:
        """Its id; empty for a record that has no place in the graph."""
        uuid: str = self.record.get("uuid", "")
        return uuid

    @property
    def parent(self) -> str | None:
        parent: str | None = self.record.get("parentUuid")
        return parent

    @property
    def speaks(self) -> bool:
        return self.record.get("type") in SPEAKERS

    @property
    def role(self) -> str | None:
        """Whose words this record is sent as, if it is sent."""
        if self.speaks:
            role: str = self.record["type"]
            return None if _is_error_note(self.record) else role
        is_command = self.record.get("subtype") == "local_command"
        return "user" if is_command or self.is_attached else None

    @property
    def is_attached(self) -> bool:
        """Whether this is context that rides on what stands before it."""
        kind = (self.record.get("attachment") or {}).get("type")
        return self.record.get("type") == "attachment" and kind in SENT_ATTACHMENTS

    @property
    def message(self) -> Json:
        message = self.record.get("message")
        return message if isinstance(message, dict) else {}

    @property
    def blocks(self) -> list[Json]:
        content = self.message.get("content")
        if self.role == "user" and not self.speaks:
            content = self.record.get("content") or " ".join(_strings(self.record["attachment"]))
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return [block for block in content or [] if isinstance(block, dict)]

    @property
    def group(self) -> str | None:
        """The API message that this record is one block of."""
        return self.message.get("id") if self.record.get("type") == "assistant" else None

    @property
    def is_results(self) -> bool:
        """Whether this record holds results of tools and nothing else."""
        blocks = self.blocks
        kinds = {block.get("type") for block in blocks}
        return self.record.get("type") == "user" and kinds == {"tool_result"}

    @property
    def rides(self) -> bool:
        """Whether this record may stand between a call and another result of its message."""
        return self.is_results or self.is_attached

    @property
    def is_boundary(self) -> bool:
        return self.record.get("subtype") == "compact_boundary"


def violations(data: bytes, *, naive: bool = False) -> list[str]:
    """Everything that is wrong with a session file, in words that name lines."""
    found = list(_bytes(data))
    entries, unread = _entries(data)
    found += unread
    found += _graph(entries)
    found += _shapes(entries)
    found += _compaction(entries)
    found += _times(entries)
    spoken = _spoken(entries, naive=naive)
    found += _empty(spoken)
    messages = _merged(spoken)
    found += ["nothing would be sent"] if not messages else []
    found += ["starts with the assistant"] if messages[:1] and _starts_wrong(messages) else []
    found += problems(messages)
    found += _names(messages)
    return found


def history(data: bytes, *, naive: bool = False) -> list[Json]:
    """The messages that a resume sends; neighbours of one role are one message."""
    return _merged(_spoken(_entries(data)[0], naive=naive))


def marks(data: bytes, *, naive: bool = False) -> set[str]:
    """The marks in the messages that a resume sends."""
    sent = history(data, naive=naive)
    return {mark for text in _strings(sent) for mark in MARK.findall(text)}


def pairs(data: bytes) -> dict[str, str]:
    """Which mark in a result answers the call with which mark in its input."""
    calls: dict[str, list[str]] = {}
    found: dict[str, str] = {}
    for message in history(data):
        for block in message["content"]:
            if block.get("type") == "tool_use":
                calls[block["id"]] = _marks_in(block.get("input"))
            elif block.get("type") == "tool_result":
                call = calls.get(block.get("tool_use_id"), [])
                if call:
                    found |= dict.fromkeys(_marks_in(block.get("content")), call[0])
    return found


def leaf_lines(data: bytes) -> set[int]:
    """The lines where one or another version goes on; one line if the file is safe for all.

    The newest takes the last record that nobody hangs on, the oldest the one with the newest
    time (of several the first), and one in between the last that anybody says.
    """
    entries, _ = _entries(data)
    spoken = [entry for entry in entries if entry.speaks and not _off_stage(entry.record)]
    leaves = (_leaf(entries), _newest(entries), spoken[-1] if spoken else None)
    return {leaf.line for leaf in leaves if leaf is not None}


def _marks_in(value: Any) -> list[str]:
    return [mark for text in _strings(value) for mark in MARK.findall(text)]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _bytes(data: bytes) -> Iterator[str]:
    if data.startswith(b"\xef\xbb\xbf"):
        yield "byte order mark"
    if b"\0" in data:
        yield "NUL bytes"
    if not data.endswith(b"\n"):
        yield "no final newline"


def _entries(data: bytes) -> tuple[list[Entry], list[str]]:
    """The records that have a place in the graph, and the lines that can not be read."""
    entries, unread = [], []
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            record = json.loads(line.decode())
        except ValueError as error:
            unread.append(f"line {number}: {type(error).__name__}")
            continue
        if not isinstance(record, dict):
            unread.append(f"line {number}: not an object")
        elif isinstance(record.get("uuid"), str) or record.get("type") == "last-prompt":
            entries.append(Entry(number, record))
    return entries, unread


def _graph(entries: list[Entry]) -> Iterator[str]:
    entries = [entry for entry in entries if entry.uuid]
    by_uuid = {entry.uuid: entry for entry in entries}
    for twice in repeated(entry.uuid for entry in entries):
        yield f"uuid {twice} is not unique"
    for entry in entries:
        if entry.parent is not None and entry.parent not in by_uuid:
            yield f"line {entry.line}: parent is not in the file"
    for entry in entries:
        seen: set[str] = set()
        here: Entry | None = entry
        while here is not None and here.uuid not in seen:
            seen.add(here.uuid)
            here = by_uuid.get(here.parent or "")
        if here is not None:
            yield f"line {entry.line}: its parents go round in a circle"


def _shapes(entries: list[Entry]) -> Iterator[str]:
    for entry in entries:
        if not entry.speaks:
            continue
        if entry.message.get("role") != entry.record["type"]:
            yield f"line {entry.line}: no message of its role"
        elif not isinstance(entry.message.get("content"), str | list):
            yield f"line {entry.line}: message without content"
        elif entry.record["type"] == "assistant" and isinstance(entry.message["content"], str):
            yield f"line {entry.line}: a reply that is no list of blocks"


def _compaction(entries: list[Entry]) -> Iterator[str]:
    """A boundary without its summary makes the newest client forget all that stands before."""
    boundaries = [entry for entry in entries if entry.is_boundary]
    for boundary in boundaries[-1:]:
        summaries = [e for e in entries if e.record.get("isCompactSummary")]
        if boundary.uuid not in {summary.parent for summary in summaries}:
            yield f"line {boundary.line}: compaction without a summary"


def _times(entries: list[Entry]) -> Iterator[str]:
    """Without a time on the leaf the newer clients find no conversation at all."""
    leaf = _leaf(entries)
    if leaf is not None and not TIME.fullmatch(str(leaf.record.get("timestamp"))):
        yield f"line {leaf.line}: the leaf has no time"


def _empty(spoken: list[Entry]) -> Iterator[str]:
    """A message of nothing; one empty record of several that make up a message does no harm."""
    filled = {entry.group for entry in spoken if entry.blocks}
    for entry in spoken:
        if not entry.blocks and (entry.group is None or entry.group not in filled):
            yield f"line {entry.line}: nothing in it"


def _names(messages: list[Json]) -> Iterator[str]:
    for index, message in enumerate(messages):
        for block in message["content"]:
            if block.get("type") != "tool_use":
                continue
            if not TOOL_NAME.fullmatch(str(block.get("name"))):
                yield f"messages.{index}: name of a tool outside the alphabet"


def _starts_wrong(messages: list[Json]) -> bool:
    return bool(messages[0]["role"] != "user")


def _leaf(entries: list[Entry]) -> Entry | None:
    """Where a resume goes on: behind the latest line that nobody hangs on.

    Notes of progress do not count. The record that the last ``last-prompt`` names is taken instead,
    if the file does not end below it; a compaction makes the client forget it.
    """
    by_uuid = {entry.uuid: entry for entry in entries if entry.uuid}
    nodes = [entry for entry in entries if entry.uuid and entry.record["type"] != "progress"]
    parents = {entry.parent for entry in nodes}
    ends = [e for e in nodes if e.uuid not in parents and not _off_stage(e.record)]
    named = None
    for entry in entries:
        if entry.record.get("type") == "last-prompt":
            named = by_uuid.get(entry.record.get("leafUuid"))
        elif entry.is_boundary:
            named = None
    if named is not None and nodes:
        last = [entry for entry in nodes if not _off_stage(entry.record)][-1]
        if named not in _upwards(last, by_uuid):
            return next((up for up in _upwards(named, by_uuid) if up.speaks), None)
    for end in reversed(ends):
        spoken = next((up for up in _upwards(end, by_uuid) if up.speaks), None)
        if spoken is not None and not _off_stage(spoken.record):
            return spoken
    return None


def _newest(entries: list[Entry]) -> Entry | None:
    """Where an old client goes on: the newest record that says something, of several the first."""
    spoken = [entry for entry in entries if entry.speaks and not _off_stage(entry.record)]
    return max(spoken, key=lambda entry: str(entry.record.get("timestamp", "")), default=None)


def _off_stage(record: Json) -> bool:
    return bool(record.get("isSidechain"))


def _upwards(entry: Entry | None, by_uuid: dict[str, Entry]) -> Iterator[Entry]:
    seen: set[str] = set()
    while entry is not None and entry.uuid not in seen:
        seen.add(entry.uuid)
        yield entry
        entry = by_uuid.get(entry.parent or "")


def _spoken(entries: list[Entry], *, naive: bool) -> list[Entry]:
    """The records that a resume sends, in its order."""
    by_uuid = {entry.uuid: entry for entry in entries}
    leaf = _newest(entries) if naive else _leaf(entries)
    chain = list(_known(_upwards(leaf, by_uuid), naive=naive))[::-1]
    cut = max((i for i, entry in enumerate(chain) if entry.is_boundary), default=None)
    if cut is not None:
        chain = chain[cut:] if naive else _with_preserved(chain[cut], chain[cut + 1 :], by_uuid)
    spoken = [entry for entry in chain if entry.role is not None]
    return spoken if naive else _with_siblings(spoken, entries, by_uuid)


def _known(chain: Iterator[Entry], *, naive: bool) -> Iterator[Entry]:
    """The chain, for old clients up to the first record of a type that they do not know."""
    for entry in chain:
        if naive and entry.record.get("type") not in KNOWN_TO_OLD_CLIENTS:
            return
        yield entry


def _is_error_note(record: Json) -> bool:
    model = (record.get("message") or {}).get("model")
    return bool(record.get("isApiErrorMessage")) and model == "<synthetic>"


def _with_preserved(boundary: Entry, chain: list[Entry], by_uuid: dict[str, Entry]) -> list[Entry]:
    """The records that a compaction kept come right after its summary; all of them or none."""
    meta = boundary.record.get("compactMetadata") or {}
    messages, segment = meta.get("preservedMessages"), meta.get("preservedSegment")
    anchor = (messages or segment or {}).get("anchorUuid")
    if messages and not all(uuid in by_uuid for uuid in messages["uuids"]):
        kept = []
    elif messages:
        kept = [by_uuid[uuid] for uuid in messages["uuids"]]
    elif segment:
        kept = _segment(segment, by_uuid)
    else:
        kept = []
    standing = {entry.uuid for entry in chain}
    kept = [entry for entry in kept if entry.uuid not in standing]
    at = next((i for i, entry in enumerate(chain) if entry.uuid == anchor), -1)
    return [*chain[: at + 1], *kept, *chain[at + 1 :]]


def _segment(segment: Json, by_uuid: dict[str, Entry]) -> list[Entry]:
    found = []
    for entry in _upwards(by_uuid.get(segment["tailUuid"]), by_uuid):
        found.append(entry)
        if entry.uuid == segment["headUuid"]:
            return found[::-1]
    return []


def _with_siblings(
    spoken: list[Entry], entries: list[Entry], by_uuid: dict[str, Entry]
) -> list[Entry]:
    """The same list with the other blocks of its API messages, and the results on those."""
    standing = {entry.uuid for entry in spoken}
    ordered: list[Entry] = []
    placed: set[str] = set()
    for index, entry in enumerate(spoken):
        if entry.uuid in placed:
            continue
        if entry.group is None:
            ordered.append(entry)
            continue
        members = _members(entry, spoken[index:], entries, standing, by_uuid)
        results = _results(members, spoken[index:], entries, by_uuid, standing)
        ordered += [*members, *results]
        placed |= {one.uuid for one in (*members, *results)}
    return ordered


def _hangs_on(entry: Entry, first: Entry, by_uuid: dict[str, Entry]) -> bool:
    """Whether a block hangs on the message that has its id, not on a copy of it."""
    if entry.parent == first.parent:
        return True
    above = list(_upwards(entry, by_uuid))[1:]
    owner = next((up for up in above if up.speaks and not up.is_results), None)
    return (
        owner is not None
        and owner.group == first.group
        and (owner is first or _hangs_on(owner, first, by_uuid))
    )


def _members(
    first: Entry,
    rest: list[Entry],
    entries: list[Entry],
    standing: set[str],
    by_uuid: dict[str, Entry],
) -> list[Entry]:
    """All blocks of one API message: those up to the next words, and those that hang aside."""
    here = []
    for entry in rest:
        if entry.group == first.group:
            here.append(entry)
        elif not entry.rides:
            break
    aside = [
        entry
        for entry in entries
        if entry.group == first.group
        and entry.uuid not in standing
        and not _off_stage(entry.record)
        and _hangs_on(entry, first, by_uuid)
    ]
    return sorted([*here, *aside], key=lambda entry: entry.line) if aside else here


def _results(
    members: list[Entry],
    rest: list[Entry],
    entries: list[Entry],
    by_uuid: dict[str, Entry],
    standing: set[str],
) -> list[Entry]:
    """The results between the blocks of a message, and those that hang on them aside."""
    inside = {entry.uuid for entry in members}
    last = max((i for i, entry in enumerate(rest) if entry.uuid in inside), default=0)
    between = [entry for entry in rest[:last] if entry.rides]
    behind = []
    for entry in rest[last + 1 :]:
        if not entry.rides:
            break
        behind.append(entry)
    hanging = [
        entry
        for entry in entries
        if entry.is_results and entry.uuid not in standing and _owner(entry, by_uuid) in inside
    ]
    return [*between, *hanging, *behind]


def _owner(entry: Entry, by_uuid: dict[str, Entry]) -> str | None:
    """The nearest record above that says something."""
    above = list(_upwards(entry, by_uuid))[1:]
    return next((up.uuid for up in above if up.speaks), None)


def _merged(spoken: Iterable[Entry]) -> list[Json]:
    """Messages; what rides on a result becomes part of its text."""
    messages: list[Json] = []
    for entry in spoken:
        blocks = list(entry.blocks)
        if not messages or messages[-1]["role"] != entry.role:
            messages.append({"role": entry.role, "content": blocks})
            continue
        content = messages[-1]["content"]
        last = content[-1] if content else {}
        if entry.is_attached and isinstance(last.get("content"), str):
            text = " ".join(block["text"] for block in blocks)
            content[-1] = {**last, "content": f"{last['content']} {text}"}
        else:
            content += blocks
    return messages
