"""goose: ``~/.local/share/goose/sessions/sessions.db``, and the files it kept before 1.10.

A message is a row, or a line, with a list of items; the order is that of the seconds in which they
were made. Old messages that a compaction has put aside are marked as not for the agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from lockstitch.conversation.json_text import is_index
from lockstitch.dialects.base import text_of_blocks
from lockstitch.formats import goose_stitch, schemas
from lockstitch.formats.base import LINES, SQLITE, Context, Glimpse, Transcript, find
from lockstitch.formats.goose_items import Talk, Turn, block_of, flaw
from lockstitch.formats.history import History, SourcedMessage
from lockstitch.formats.lines import decode
from lockstitch.formats.records import Record, amended, as_str, can_be_key, raw_of
from lockstitch.formats.salvage import substitute
from lockstitch.formats.tables import Layout, Row, RowFormat, Table, put
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, RULES, WARNING, Finding

if TYPE_CHECKING:
    from lockstitch.formats.untrusted import Connection

_SESSION = Table("sessions", session="id")
_MESSAGE = Table("messages", "content_json", order=("created_timestamp", "id"), counted=True)
_LISTED = "SELECT id, working_dir, CAST(strftime('%s', updated_at) AS INTEGER), {} FROM sessions"
_SESSIONS = _LISTED.format("description")
_NAMED_SESSIONS = _LISTED.format("coalesce(nullif(name, ''), description)")
# Those that keep the number of messages and the time of the last one in the row of a session.
_TRIGGERS = frozenset(
    {
        "e3ed2abe39ca7826daf45d89247eb3e5",
        "7765726471893901bcb54f5f63fd8691",
        "b3bbdf5946421a9bf0e6d9147c6dac8b",
    }
)
_ROLES = ("user", "assistant")
_HEADER = ("working_dir", "description", "message_count", "total_tokens")
# What goose mends in memory, mostly by leaving it out, each time it sends a session.
_MENDED = frozenset({"LS101", "LS102", "LS103", "LS105", "LS106", "LS401", "LS404", "LS405"})
_STARTS = frozenset({"LS406", "LS407"})


class Goose(RowFormat):
    """Rows, or lines, of one message each."""

    name = "goose"
    title = "goose"
    dialect = "anthropic"
    kinds = (SQLITE, LINES)
    places = (
        ".local/share/goose/sessions/sessions.db",
        ".local/share/goose/sessions/*.jsonl",
    )
    variable = "XDG_DATA_HOME"
    resume = ("goose", "session", "--resume", "--session-id", "{id}")
    layout = Layout((_SESSION, _MESSAGE), _SESSIONS)
    triggers = _TRIGGERS

    def claims(self, name: str, head: Any) -> bool:
        if all(type(value) is str for value in head):
            return {"schema_version", "sessions", "messages"} <= set(head)
        values = [value for value in head if type(value) is dict]
        first, rest = values[:1], values[1:]
        return any(map(_is_header, first)) and bool(rest) and all(map(_is_message, rest))

    def listed(self, base: Connection) -> Iterable[tuple[Any, ...]]:
        # the first versions have descriptions only
        has_names = "name" in schemas.names_of(base, _SESSION.name)
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

    def straighten(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        data = transcript.context.data
        return [
            _loadable(data, record, ledger) if any(_flaws(record)) else record
            for record in transcript.records
        ]

    def stitch(
        self, transcript: Transcript, strands: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        return goose_stitch.stitch(transcript, strands, _MESSAGE)

    def severity(self, found: Finding, transcript: Transcript) -> str:
        if found.code in _STARTS:
            return WARNING
        if found.code == "LS103" and _answers_error(found, transcript):
            return ERROR
        return WARNING if found.code in _MENDED else found.severity


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
    talk = Talk(History("anthropic", [], [], []), [])
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
            talk.history.messages[-1]["content"] += blocks
            talk.history.sources[-1] += [number] * len(blocks)
            talk.history.paths[-1] += paths
        else:
            message = {"role": turn.role, "content": blocks}
            talk.history.add(message, [number] * len(blocks), [*paths])
            last = turn.kind
    return talk


def _turn(number: int, record: Record) -> Turn | None:
    if isinstance(record, Row):
        if record.table != "messages" or record.value.get("role") not in _ROLES:
            return None
        items, path = record.json, ("content_json",)
        visible = _visible(record.value.get("metadata_json"))
    elif record.is_record and _is_message(record.value):
        items, path = record.value["content"], ("content",)
        visible = _visible(record.value.get("metadata"))
    else:
        return None
    items = items if type(items) is list else []
    blocks = [(at, block) for at, item in enumerate(items) for block in block_of(item)]
    return Turn(number, record.value["role"], items, path, blocks, visible)


def _visible(metadata: Any) -> bool:
    """Tell whether a message is for the agent; what cannot be read says nothing."""
    if type(metadata) is str:
        try:
            metadata = decode(metadata.encode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError):
            return True
    return type(metadata) is not dict or metadata.get("agentVisible") is not False


def _answers_error(found: Finding, transcript: Transcript) -> bool:
    """Tell whether a result belongs to a request that goose keeps but never sends."""
    steps = found.place.split(".")
    content = transcript.history.messages[int(steps[1])]["content"]
    at = int(steps[3]) if len(steps) > 3 and is_index(steps[3]) else 0  # noqa: PLR2004
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
    """Say what goose cannot load: the number of the item, -1 for the whole, and why."""
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
            outcome = "so that no message of the session can be loaded"
            if not isinstance(record, Row):
                outcome = "so that the message is passed over"
            yield find("LS610", place, f"{why}, {outcome}", ERROR)


def _loadable(data: bytes, record: Record, ledger: Ledger) -> Record:
    """Put a text in the place of what cannot be loaded, with what could be read of it."""
    raw = record.text if isinstance(record, Row) else _line(data, record)
    for at, _ in [*_flaws(record)]:
        ledger.note(
            RULES["LS610"], "rewritten", record.place, "became a text that says what was there"
        )
        if at < 0:
            ledger.set_aside(RULES["LS610"], record.place, raw)
            record = _put(data, record, (), [{"type": "text", "text": substitute(raw)}])
            continue
        item = record.json[at] if isinstance(record, Row) else record.value["content"][at]
        ledger.set_aside(RULES["LS610"], record.place, item)
        record = _put(data, record, (at,), {"type": "text", "text": substitute(str(item))})
    return record


def _line(data: bytes, record: Record) -> str:
    return raw_of(data, record).decode("utf-8", "replace")


def _put(data: bytes, record: Record, path: tuple[int, ...], value: Any) -> Record:
    if isinstance(record, Row):
        return put(record, path, value)
    return amended(data, record, ("content", *path), value)
