"""goose: ``~/.local/share/goose/sessions/sessions.db``, and the files it kept before 1.10.

A message is a row, or a line, with a list of items, each of which becomes a block for the provider.
Messages are in the order of the second in which they were made. Old messages that a compaction
stands for are marked as not for the agent.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lockstitch.conversation.parts import Path
from lockstitch.dialects import ANTHROPIC
from lockstitch.dialects.base import text_of_blocks
from lockstitch.formats import sqlite
from lockstitch.formats.interface import (
    LINES,
    NEW,
    SQLITE,
    Context,
    Fields,
    Glimpse,
    History,
    SourcedMessage,
    Transcript,
    medium,
    new_finding,
    words,
    words_block,
)
from lockstitch.formats.records import (
    Record,
    amend_record,
    as_list,
    as_str,
    can_be_key,
    new_record,
    read_json,
    record_bytes,
    substitute_text,
)
from lockstitch.formats.tables import (
    ProgramTable,
    Row,
    RowFormat,
    TableLayout,
    moment,
    new_row,
    put_list,
    put_value,
)
from lockstitch.formats.write_back import keep_in_order, lay_records, replace_list
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, RULES, WARNING, Finding

if TYPE_CHECKING:
    from lockstitch.formats.sqlite import GuardedConnection


_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
# What an item of a known type must have to be loaded; nothing is known of other types.
_NEEDED = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "toolRequest": ("id",),
    "toolResponse": ("id",),
    "thinking": ("thinking", "signature"),
    "redactedThinking": ("data",),
}


class GooseTurn(Struct, eq=False):
    """A stored message: the number of its record, its items, and the blocks made from them."""

    number: int
    role: str
    items: list[Any]
    path: Path
    blocks: list[tuple[int, Fields]]
    is_sent: bool = True

    @property
    def has_results(self) -> bool:
        """Whether the message answers calls."""
        return any(block["type"] == "tool_result" for _, block in self.blocks)

    @property
    def kind(self) -> str:
        """The kind of neighbour that goose joins it with: results are kept apart from prompts."""
        return "tool" if self.role == "user" and self.has_results else self.role

    @property
    def is_prompt(self) -> bool:
        """Whether the message is a prompt that is sent."""
        return self.is_sent and bool(self.blocks) and self.kind == "user"


class Talk(Struct):
    """A session as it is sent, and all its messages; ``requests`` has the ids of tool requests."""

    history: History
    turns: list[GooseTurn]
    requests: set[Any] | None = None


def spell_name(name: Any) -> str:
    """Return an id or a tool name in a spelling that all providers accept."""
    return _NO_NAME.sub("_", str(name)) or "_"


def flaw(item: Any) -> str:
    """Return why goose cannot load an item, "" if it can."""
    if type(item) is not dict or type(item.get("type")) is not str:
        return "an item has no type"
    if any(type(item.get(key)) is not str for key in _NEEDED.get(item["type"], ())):
        return "an item lacks something that its type requires"
    held = {"toolRequest": "toolCall", "toolResponse": "toolResult"}.get(item["type"])
    if held and not _is_outcome(item.get(held), held):
        return "an item has neither a value nor an error"
    return ""


def _is_outcome(held: Any, kind: str) -> bool:
    if type(held) is not dict:
        return False
    if held.get("status") == "error":
        return type(held.get("error")) is str
    value = held.get("value")
    if kind == "toolCall":
        is_call = type(value) is dict and type(value.get("name")) is str
        return held.get("status") == "success" and is_call
    return held.get("status") == "success" and type(value) in (dict, list)


def block_of(item: Any) -> Iterator[Fields]:
    """Yield the block that is sent for an item; none for an item that is only for the screen."""
    if flaw(item) or not _is_for_model(item):
        return
    kind = item["type"]
    if kind == "text" and item["text"].strip():
        yield words_block(item["text"])
    elif kind == "image":
        yield _image(item)
    elif kind == "toolRequest" and item["toolCall"]["status"] == "success":
        call = item["toolCall"]["value"]
        given = call.get("arguments")
        given = {} if given is None else given if type(given) is dict else {"value": given}
        name = spell_name(call["name"])
        yield {"type": "tool_use", "id": spell_name(item["id"]), "name": name, "input": given}
    elif kind == "toolResponse":
        yield _result(item)
    elif kind == "thinking" and item["signature"]:
        thought = {"thinking": item["thinking"], "signature": item["signature"]}
        yield {"type": "thinking", **thought}
    elif kind == "redactedThinking":
        yield {"type": "redacted_thinking", "data": item["data"]}


def _is_for_model(item: Fields) -> bool:
    notes = item.get("annotations")
    audience = notes.get("audience") if type(notes) is dict else None
    return type(audience) is not list or "assistant" in audience


def _image(item: Fields) -> Fields:
    mime = str(item.get("mimeType"))
    return medium(mime, str(item.get("data"))) or words_block(f"[Attached {mime}]")


def _result(item: Fields) -> Fields:
    held = item["toolResult"]
    block = {"type": "tool_result", "tool_use_id": spell_name(item["id"])}
    if held["status"] == "error":
        return {**block, "content": held["error"], "is_error": True}
    value = held["value"]
    content = value.get("content") if type(value) is dict else value
    parts = [part for part in as_list(content) if type(part) is dict and _is_for_model(part)]
    failed = {"is_error": True} if type(value) is dict and value.get("isError") else {}
    pictures = [_image(part) for part in parts if part.get("type") == "image"]
    text = "\n".join(filter(None, map(_text, parts)))
    if not pictures:
        return {**block, "content": text, **failed}
    said = [words_block(text)] if text.strip() else []
    return {**block, "content": [*said, *pictures], **failed}


def _text(part: Fields) -> str:
    inner = part.get("resource") if part.get("type") == "resource" else part
    text = inner.get("text") if type(inner) is dict else None
    return text if type(text) is str else ""


def item_of(block: Fields, old: Fields | None, names: dict[str, str]) -> Fields:
    """Return the item that goose would store for a block; ``old`` is the item it replaces.

    ``names`` maps spelled ids of calls to goose's own.
    """
    kind = block.get("type")
    if kind == "tool_result":
        own = names.get(block["tool_use_id"], block["tool_use_id"])
        said = [words_block(words(block))]
        value = {"content": said, "isError": bool(block.get("is_error"))}
        result = {"status": "success", "value": value}
        return {"type": "toolResponse", "id": own, "toolResult": result}
    if kind == "tool_use":
        call = {"name": block["name"], "arguments": block["input"]}
        own = names.get(block["id"], block["id"])
        held = {"status": "success", "value": call}
        return {**(old or {}), "type": "toolRequest", "id": own, "toolCall": held}
    if kind == "image" and block["source"].get("type") == "base64":
        source = block["source"]
        return {"type": "image", "data": source["data"], "mimeType": source["media_type"]}
    return words_block(words(block))


_SEEN = {"userVisible": True, "agentVisible": True}


class GooseLine(Struct, eq=False):
    """One message to be stored: the record it stays in (or NEW), its role and its blocks."""

    number: int
    role: str
    blocks: list[Any]


class _GooseWriteBack:
    """Lays a repaired history out over the rows or the lines of a session."""

    def __init__(self, transcript: Transcript, table: ProgramTable) -> None:
        talk: Talk = transcript.state
        self.data = transcript.context.data
        self.records = transcript.records
        self.session = transcript.session or ""
        self.table = table
        self.turns = {turn.number: turn for turn in talk.turns}
        self.homes = {id(block): turn.items[at] for turn in talk.turns for at, block in turn.blocks}
        self.sent = {turn.number for turn in talk.turns if turn.is_sent and turn.blocks}
        items = [item for turn in talk.turns for item in turn.items if type(item) is dict]
        ids = [own for item in items if type(own := item.get("id")) is str]
        self.names = {spell_name(own): own for own in ids}
        self.requests: dict[int, dict[str, Any]] = {}
        self.made = 0
        values = [record.value for record in self.records if type(record.value) is dict]
        names = (value.get(key) for value in values for key in ("message_id", "id"))
        self.taken = {name for name in names if type(name) is str}

    def write_back(self, repaired: Sequence[SourcedMessage]) -> list[Record]:
        lines: list[GooseLine] = []
        homes: list[int] = []
        seen: set[int] = set()
        for sourced in repaired:
            role = str(sourced.message.get("role"))
            for (source, _), run in groupby(sourced.parts, key=_group_key):
                # a message may stay in a record of its own role, and only once
                turn = self.turns.get(source)
                fits = turn is not None and turn.role == role and source not in seen
                homes.append(source if fits else NEW)
                seen.add(source)
                lines.append(GooseLine(source, role, [block for _, block in run]))
        kept, behind = keep_in_order(homes, lines)
        records: dict[int, Record] = {}
        for number in self.sent:
            turn, record = self.turns[number], self.records[number]
            if number in kept:
                old, new = [block for _, block in turn.blocks], kept[number].blocks
                is_same = [*map(id, old)] == [*map(id, new)]
                items = turn.items if is_same else self._items(turn, new)
            else:
                # items that were never sent stay, even if the message is gone
                sent_places = {at for at, _ in turn.blocks}
                items = [item for at, item in enumerate(turn.items) if at not in sent_places]
            if items is turn.items:
                records[number] = record
            elif items or number in kept:
                records[number] = self._with(record, items)
        fresh = {
            anchor: [(NEW, self._make_record(line, anchor)) for line in added]
            for anchor, added in behind.items()
        }
        first = min(self.sent, default=len(self.records))
        return [record for _, record in lay_records(self.records, records, fresh, self.sent, first)]

    def _items(self, turn: GooseTurn, blocks: Sequence[Fields]) -> list[Any]:
        """Return the items of a message: those that are sent, among those that are not."""
        places = {id(block): at for at, block in turn.blocks}
        sent_places = {at for at, _ in turn.blocks}
        rest = deque(at for at in range(len(turn.items)) if at not in sent_places)
        items: list[Any] = []
        for block in blocks:
            at = places.get(id(block))
            while at is not None and rest and rest[0] < at:
                items.append(turn.items[rest.popleft()])
            items.append(self._item(block, turn))
        return [*items, *(turn.items[at] for at in rest)]

    def _item(self, block: Fields, turn: GooseTurn | None) -> Any:
        if id(block) in self.homes:
            return self.homes[id(block)]
        own = self.names.get(str(block.get("id")))
        old = self._requests(turn).get(own) if turn and own else None
        return item_of(block, old, self.names)

    def _requests(self, turn: GooseTurn) -> dict[str, Any]:
        """Return the items of a message by their ids; the first one of each id."""
        if turn.number not in self.requests:
            items = [item for item in turn.items if type(item) is dict]
            named = [item for item in items if type(item.get("id")) is str]
            self.requests[turn.number] = {item["id"]: item for item in reversed(named)}
        return self.requests[turn.number]

    def _new_id(self) -> str:
        """Make the id of a message, not one that an earlier repair made."""
        while True:
            self.made += 1
            made = f"msg_{self.session}_lockstitch{self.made:03d}"
            if made not in self.taken:
                return made

    def _with(self, record: Record, items: list[Any]) -> Record:
        if isinstance(record, Row):
            return put_list(record, items)
        return replace_list(self.data, record, ("content",), items)

    def _make_record(self, line: GooseLine, anchor: int) -> Record:
        """Return the record that goose would have written, with the time of its neighbour."""
        items = [self._item(block, None) for block in line.blocks]
        near = self.records[anchor if anchor != NEW else min(self.sent, default=0)]
        first = anchor == NEW
        own = self._new_id()
        if not isinstance(near, Row):
            created = near.value.get("created", 0)
            times = {"id": own, "role": line.role, "created": created}
            return new_record("", {**times, "content": items, "metadata": _SEEN})
        taken = {key: near.value[key] for key in ("session_id", "timestamp") if key in near.value}
        value = {"message_id": own, **taken, "role": line.role, "content_json": items}
        value["created_timestamp"] = moment(near.value.get("created_timestamp"), before=first)
        value["metadata_json"] = json.dumps(_SEEN, separators=(",", ":"))
        return new_row(self.table, value)


def _group_key(part: tuple[int, Any]) -> tuple[int, bool]:
    """Return the grouping key of a part: its record, and whether it is a new result."""
    source, block = part
    is_result = type(block) is dict and block.get("type") == "tool_result"
    return source, is_result and source == NEW


_SESSION = ProgramTable("sessions", session="id")
_MESSAGE = ProgramTable("messages", "content_json", order=("created_timestamp", "id"), counted=True)
_LISTED = "SELECT id, working_dir, CAST(strftime('%s', updated_at) AS INTEGER), {} FROM sessions"
_SESSIONS = _LISTED.format("description")
_NAMED_SESSIONS = _LISTED.format("coalesce(nullif(name, ''), description)")
# The triggers that keep the number of messages, and the time of the last one, in a session's row.
_TRIGGERS = frozenset(
    {
        "e3ed2abe39ca7826daf45d89247eb3e5",
        "7765726471893901bcb54f5f63fd8691",
        "b3bbdf5946421a9bf0e6d9147c6dac8b",
    }
)
_ROLES = ("user", "assistant")
_HEADER = ("working_dir", "description", "message_count", "total_tokens")
# Goose repairs these in memory each time it sends a session, mostly by leaving something out.
_REPAIRED_BY_GOOSE = frozenset(
    {"LS101", "LS102", "LS103", "LS105", "LS106", "LS401", "LS404", "LS405"}
)
_STARTS = frozenset({"LS406", "LS407"})


class Goose(RowFormat):
    """One message per row, or per line."""

    name = "goose"
    title = "goose"
    dialect = ANTHROPIC
    kinds = (SQLITE, LINES)
    places = (
        ".local/share/goose/sessions/sessions.db",
        ".local/share/goose/sessions/*.jsonl",
    )
    variable = "XDG_DATA_HOME"
    resume = ("goose", "session", "--resume", "--session-id", "{id}")
    layout = TableLayout((_SESSION, _MESSAGE), _SESSIONS)
    triggers = _TRIGGERS

    def claims(self, name: str, head: Any) -> bool:
        if all(type(value) is str for value in head):
            return {"schema_version", "sessions", "messages"} <= set(head)
        values = [value for value in head if type(value) is dict]
        first, rest = values[:1], values[1:]
        return any(map(_is_header, first)) and bool(rest) and all(map(_is_message, rest))

    def listed(self, base: GuardedConnection) -> Iterable[tuple[Any, ...]]:
        # the first versions have only descriptions
        has_names = "name" in sqlite.names_of(base, _SESSION.name)
        return base.execute(_NAMED_SESSIONS if has_names else _SESSIONS)

    def is_record(self, value: dict[str, Any]) -> bool:
        return _is_message(value) or _is_header(value)

    def glimpse(
        self, path: str, head: Sequence[dict[str, Any]], tail: Sequence[dict[str, Any]]
    ) -> Glimpse:
        about: dict[str, Any] = next(filter(_is_header, head), {})
        prompts = (value["content"] for value in head if _is_prompt(value))
        return Glimpse(
            title=as_str(about.get("description")) or "",
            prompt=text_of_blocks(next(prompts, "")),
            session=as_str(about.get("id")) or PurePath(path).stem,
            project=as_str(about.get("working_dir")),
        )

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        talk = _talk(records)
        head: dict[str, Any] = next((r.value for r in records if _is_head(r)), {})
        name = head.get("id")
        return Transcript(
            context,
            records,
            talk.history,
            findings=[*_findings(records)],
            session=name if type(name) is str else context.name.removesuffix(".jsonl"),
            project=as_str(head.get("working_dir")),
            turns=sum(turn.is_prompt for turn in talk.turns),
            state=talk,
        )

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        data = transcript.context.data
        return [
            _make_loadable(data, record, ledger) if any(_flaws(record)) else record
            for record in transcript.records
        ]

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        return _GooseWriteBack(transcript, _MESSAGE).write_back(repaired)

    def severity(self, found: Finding, transcript: Transcript) -> str:
        if found.code in _STARTS:
            return WARNING
        if found.code == "LS103" and _answers_error(found, transcript):
            return ERROR
        return WARNING if found.code in _REPAIRED_BY_GOOSE else found.severity


def _is_header(value: dict[str, Any]) -> bool:
    return "role" not in value and any(key in value for key in _HEADER)


def _is_message(value: dict[str, Any]) -> bool:
    return value.get("role") in _ROLES and "created" in value and "content" in value


def _is_prompt(value: dict[str, Any]) -> bool:
    return _is_message(value) and value["role"] == "user"


def _is_head(record: Record) -> bool:
    if isinstance(record, Row):
        return record.table == "sessions"
    return record.is_record and _is_header(record.value)


# What is sent


def _talk(records: Sequence[Record]) -> Talk:
    talk = Talk(History(ANTHROPIC), [])
    last = ""
    for number, record in enumerate(records):
        turn = _turn(number, record)
        if turn is None:
            continue
        talk.turns.append(turn)
        if not turn.is_sent or not turn.blocks:
            continue
        blocks = [block for _, block in turn.blocks]
        paths = [(*turn.path, at) for at, _ in turn.blocks]
        if turn.kind == last:
            talk.history.extend(blocks, number, paths)
        else:
            message = {"role": turn.role, "content": blocks}
            talk.history.add(message, [number] * len(blocks), [*paths])
            last = turn.kind
    return talk


def _turn(number: int, record: Record) -> GooseTurn | None:
    if isinstance(record, Row):
        if record.table != "messages" or record.value.get("role") not in _ROLES:
            return None
        items, path = record.json, ("content_json",)
        visible = _is_visible(record.value.get("metadata_json"))
    elif record.is_record and _is_message(record.value):
        items, path = record.value["content"], ("content",)
        visible = _is_visible(record.value.get("metadata"))
    else:
        return None
    items = as_list(items)
    blocks = [(at, block) for at, item in enumerate(items) for block in block_of(item)]
    return GooseTurn(number, record.value["role"], items, path, blocks, visible)


def _is_visible(metadata: Any) -> bool:
    """Whether a message is for the agent; unreadable metadata counts as yes."""
    if type(metadata) is str:
        try:
            metadata, _ = read_json(metadata.encode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError):
            return True
    return type(metadata) is not dict or metadata.get("agentVisible") is not False


def _answers_error(found: Finding, transcript: Transcript) -> bool:
    """Whether a result belongs to a request that goose keeps but never sends."""
    content = transcript.history.messages[found.at.message or 0]["content"]
    step = found.at.path[1] if len(found.at.path) > 1 else 0
    at = step if type(step) is int else 0
    own = content[at].get("tool_use_id") if at < len(content) else None
    talk: Talk = transcript.state
    if talk.requests is None:
        items = (item for turn in talk.turns for item in turn.items)
        requests = (i for i in items if type(i) is dict and i.get("type") == "toolRequest")
        names = (item.get("id") for item in requests)
        talk.requests = {name for name in names if can_be_key(name)}
    return own in talk.requests


# What cannot be loaded


def _flaws(record: Record) -> Iterator[tuple[int, str]]:
    """Yield what goose cannot load: the number of the item (-1 for the whole list), and why."""
    if isinstance(record, Row):
        if record.table != "messages" or record.value.get("role") not in _ROLES:
            return
        items = record.json
    elif record.is_record and _is_message(record.value):
        items = record.value["content"]
    else:
        return
    if type(items) is not list:
        yield -1, "the content of the message cannot be decoded"
        return
    for at, item in enumerate(items):
        why = flaw(item)
        if why:
            yield at, why


def _findings(records: Sequence[Record]) -> Iterator[Finding]:
    for record in records:
        for at, why in _flaws(record):
            column = "content_json" if isinstance(record, Row) else "content"
            place = record.place if at < 0 else f"{record.place}.{column}.{at}"
            outcome = "so no message of the session can be loaded"
            if not isinstance(record, Row):
                outcome = "so the message is skipped"
            yield new_finding("LS610", place, f"{why}, {outcome}", ERROR)


def _make_loadable(data: bytes, record: Record, ledger: Ledger) -> Record:
    """Replace what cannot be loaded by a text, with what could be read of it."""
    raw = record.text if isinstance(record, Row) else _line(data, record)
    for at, _ in [*_flaws(record)]:
        ledger.note(
            RULES["LS610"], "rewritten", record.place, "became a text that says what was there"
        )
        if at < 0:
            ledger.set_aside(RULES["LS610"], record.place, raw)
            record = _put(data, record, (), [{"type": "text", "text": substitute_text(raw)}])
            continue
        item = record.json[at] if isinstance(record, Row) else record.value["content"][at]
        ledger.set_aside(RULES["LS610"], record.place, item)
        record = _put(data, record, (at,), {"type": "text", "text": substitute_text(str(item))})
    return record


def _line(data: bytes, record: Record) -> str:
    return record_bytes(data, record).decode("utf-8", "replace")


def _put(data: bytes, record: Record, path: tuple[int, ...], value: Any) -> Record:
    if isinstance(record, Row):
        return put_value(record, path, value)
    return amend_record(data, record, ("content", *path), value)
