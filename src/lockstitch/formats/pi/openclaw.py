"""OpenClaw: ``~/.openclaw/agents/<id>/agent/openclaw-agent.sqlite``, an SQLite database.

An event is a row of ``transcript_events``, as JSON or packed with Zstandard. A session in cold
storage is one packed value. The database is only read: OpenClaw derives seven more tables from the
events (identities, the active branch, the words to search, sizes, generations) and trusts them, so
a changed event would contradict all of those.

The module also reads the tree of an OpenClaw transcript as OpenClaw itself does. Its entries are
pi's, with four additions. A ``leaf`` says where the conversation continues. An entry with
``appendMode`` "side" is not part of it. After a ``reset``, all entries whose parent came before it
become its children. An entry whose parent is missing follows the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lockstitch.dialects import ANTHROPIC
from lockstitch.errors import LockstitchError, Unreadable, UsageError
from lockstitch.files import read
from lockstitch.formats.interface import Aside, Context, SourcedMessage, Transcript, new_finding
from lockstitch.formats.pi.session import COMPACTION, PiSession
from lockstitch.formats.records import JSON, TORN, Record, read_json
from lockstitch.formats.sqlite import bind_values, tables_of
from lockstitch.formats.tables import ProgramTable, Row, RowFormat, TableLayout, sorting
from lockstitch.formats.write_back import TreeNode
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, NOTE, WARNING, Finding
from lockstitch.rules.rule import several

if TYPE_CHECKING:
    from lockstitch.formats.sqlite import GuardedConnection


RESET, LEAF = "reset", "leaf"
_TYPES = frozenset(
    {
        *("message", "thinking_level_change", "model_change", COMPACTION, RESET),
        *("branch_summary", "custom", "custom_message", "label", "session_info"),
    }
)


class ClawTree(PiSession):
    """The events of a session, and those that the next request is made of.

    ``stale`` has the numbers of the events whose parent is missing.
    """

    cuts = (COMPACTION, RESET)

    def __init__(self, records: Sequence[Record]) -> None:
        self.end: str | None = None
        self.stale: list[int] = []
        super().__init__(records)

    def leaf(self) -> TreeNode | None:
        return self.last.get(self.end) if self.end else None

    def nodes(self) -> Iterator[TreeNode]:
        reader = _ClawReader()
        for number in self.entries:
            node = reader.read(number, self.records[number].value)
            if node is not None:
                yield node
        self.end, self.stale = reader.leaf, reader.stale


class _ClawReader:
    """Reads one event after the other; ``under`` holds all descendants of the last reset."""

    def __init__(self) -> None:
        self.leaf: str | None = None
        self.known: set[str] = set()
        self.targets: dict[str, str | None] = {}
        self.reset: str | None = None
        self.under: set[str] = set()
        self.stale: list[int] = []

    def read(self, number: int, value: dict[str, Any]) -> TreeNode | None:
        own = value.get("id")
        if type(own) is not str or not own.strip():
            return None
        if value.get("type") == LEAF:
            return self._control(number, own, value)
        kind = value.get("type")
        if type(kind) is not str or kind not in _TYPES:
            # it is not part of the conversation, but may be a link in its chain
            self.known.add(own)
            return TreeNode(number, own, _text(value.get("parentId")))
        parent = self._parent(number, value)
        self.known.add(own)
        if value["type"] == RESET:
            self.reset, self.under = own, {own}
        elif parent in self.under:
            self.under.add(own)
        if not _is_aside(value):
            self.leaf = own
        return TreeNode(number, own, parent)

    def _control(self, number: int, own: str, value: dict[str, Any]) -> TreeNode | None:
        target = _text(value.get("targetId"))
        if target is not None and target not in self.known:
            return None
        if self.reset is not None and target not in self.under:
            target = self.leaf
        self.known.add(own)
        self.targets[own] = self.leaf = target
        return TreeNode(number, own, target)

    def _parent(self, number: int, value: dict[str, Any]) -> str | None:
        parent = _text(value.get("parentId")) if "parentId" in value else self.leaf
        if parent is not None and parent not in self.known and self.known:
            self.stale.append(number)
        if not _is_aside(value):
            is_before = self.reset is not None and parent not in self.under
            is_stale = parent is not None and parent not in self.known and self.leaf is not None
            parent = self.leaf if is_before or is_stale else parent
        seen: set[str] = set()
        while parent is not None and parent in self.targets and parent not in seen:
            seen.add(parent)
            parent = self.targets[parent]
        return parent


def _is_aside(value: dict[str, Any]) -> bool:
    return value.get("appendMode") == "side"


def _text(value: Any) -> str | None:
    return value if type(value) is str and value.strip() else None


_EVENTS = "transcript_events"
_COLD = "session_transcript_cold_archives"
_LISTED = f"""
    SELECT w.session_id, NULL, w.updated_at / 1000.0,
           coalesce(n.display_name, n.label, w.session_key)
    FROM session_windows AS w LEFT JOIN session_nodes AS n ON n.session_key = w.session_key
    WHERE EXISTS (SELECT 1 FROM {_EVENTS} AS e WHERE e.session_id = w.session_id)
"""  # noqa: S608 - a name of our own
_ARCHIVED = f" OR EXISTS (SELECT 1 FROM {_COLD} AS c WHERE c.session_id = w.session_id)"  # noqa: S608
_BARE = f"SELECT session_id, NULL, max(created_at) / 1000.0, '' FROM {_EVENTS} GROUP BY session_id"  # noqa: S608
# Tables that are read in addition, to list the sessions and to find those in cold storage.
_BESIDE = (
    ProgramTable("session_windows", key="session_key", order=("updated_at",), optional=True),
    ProgramTable(
        "session_nodes", session="session_key", key="session_key", order=(), optional=True
    ),
    ProgramTable(_COLD, key="archive_name", order=("storage",), optional=True),
)
# OpenClaw packs no larger event.
_EVENT_LIMIT = 1 << 22
_COLD_DAMAGE = "it is in cold storage, in an archive that is damaged"
_HELP = (
    "OpenClaw's database is only read; `lockstitch export` gets the conversation out of it, healed"
)


class OpenClaw(RowFormat):
    """A tree of events: those of pi and a few more."""

    name = "openclaw"
    title = "OpenClaw"
    dialect = ANTHROPIC
    places = (".openclaw/agents/*/agent/openclaw-agent.sqlite",)
    variable = "OPENCLAW_STATE_DIR"
    layout = TableLayout((ProgramTable(_EVENTS, key="seq", order=("seq",)),), _BARE)

    @property
    def tables(self) -> tuple[ProgramTable, ...]:
        return (*self.layout.tables, *_BESIDE)

    def claims(self, name: str, head: Any) -> bool:
        tables = set(head)
        return _EVENTS in tables and not tables.isdisjoint({"session_windows", "session_nodes"})

    def listed(self, base: GuardedConnection) -> Iterable[tuple[Any, ...]]:
        tables = tables_of(base)
        if not {"session_windows", "session_nodes"} <= tables:
            return base.execute(_BARE)
        return base.execute(_LISTED + (_ARCHIVED if _COLD in tables else ""))

    def rows(self, base: GuardedConnection, session: str) -> list[Row]:
        found: list[Row] = []
        start = 0
        stored = sorted(_read_rows(base, session), key=lambda event: sorting(event[0]))
        for key, raw in (*stored, *_read_archive(base, session)):
            row = _row(key, raw, start)
            start = row.end + 1
            found.append(row)
        return found

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        tree = ClawTree(records)
        transcript = tree.transcript(context, context.name)
        left = transcript.left
        notes = [f"{several(left, 'turn')} are on other branches"] if left else []
        size = sum(record.size for record in records)
        found = [*_findings(tree)]
        return structs.replace(transcript, findings=found, notes=notes, size=size, sealed=True)

    def asides(self, transcript: Transcript) -> list[Aside]:
        return [one for one in transcript.state.asides() if one.history.messages]

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        raise UsageError(_HELP)

    def named(self, found: Finding, transcript: Transcript) -> Finding:
        return structs.replace(found, fixable=False, help=_HELP)

    def severity(self, found: Finding, transcript: Transcript) -> str:
        """Return a warning at most: OpenClaw repairs what it sends in memory, for each provider."""
        return NOTE if found.severity == NOTE else WARNING


def _findings(tree: ClawTree) -> Iterator[Finding]:
    for number, record in enumerate(tree.records):
        if record.kind == TORN:
            text = "the event cannot be decoded, so the session cannot be opened"
            yield _found("LS610", record, text, ERROR)
        elif number in tree.stale:
            text = "the parent of this event is missing; OpenClaw uses the one before it"
            yield _found("LS701", record, text, NOTE)


def _found(code: str, record: Record, text: str, severity: str) -> Finding:
    found = new_finding(code, record.place, text, severity, fixable=False)
    return structs.replace(found, help=_HELP)


# Rows as events


def _read_rows(base: GuardedConnection, session: str) -> Iterator[tuple[int, bytes | None]]:
    """Yield the events that are rows, in their order."""
    where = f"FROM {_EVENTS} WHERE session_id = CAST(? AS TEXT)"
    columns = {row[1] for row in base.execute(f"PRAGMA table_info({_EVENTS})")}
    if "event_zstd" not in columns:
        for key, text in base.execute(f"SELECT seq, event_json {where}", bind_values((session,))):
            yield key, _bytes(text)
        return
    query = f"SELECT seq, event_json, event_zstd {where}"
    for key, text, blob in base.execute(query, bind_values((session,))):
        yield key, _bytes(text) if blob is None else _unpack(base, blob, _EVENT_LIMIT)


def _read_archive(base: GuardedConnection, session: str) -> Iterator[tuple[int, bytes | None]]:
    """Yield the events of a session in cold storage, which has no rows any more."""
    if _COLD not in tables_of(base):
        return
    columns = "storage, archive_name, archive_blob"
    query = f"SELECT {columns} FROM {_COLD} WHERE session_id = CAST(? AS TEXT)"  # noqa: S608
    for storage, name, blob in base.execute(query, bind_values((session,))):
        raw = blob if storage == "sqlite" else _file(base, str(name))
        lines = _unpack(base, raw, read.unpacked_budget(len(raw or b"")))
        if lines is None:
            raise Unreadable(_COLD_DAMAGE)
        try:
            records = [read_json(line)[0] for line in lines.splitlines()]
            rows = [record["row"] for record in records if record.get("kind") == "event"]
            yield from [(row["seq"], _bytes(row["event_json"])) for row in rows]
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
            raise Unreadable(_COLD_DAMAGE) from None


def _file(base: GuardedConnection, name: str) -> bytes:
    """Return an archive from the folder beside the database's."""
    [(_, _, path), *_] = base.execute("PRAGMA database_list")
    folder = Path(path).parent
    place = folder.parent / "sessions" if folder.name == "agent" else folder
    try:
        return read.read_file(place / "cold" / Path(name).name)
    except LockstitchError:
        raise Unreadable(f"it is in cold storage, and its archive {name} is missing") from None


def _bytes(text: Any) -> bytes | None:
    return text.encode("utf-8", "surrogateescape") if type(text) is str else None


def _unpack(base: GuardedConnection, blob: Any, limit: int) -> bytes | None:
    """Return an unpacked value, None if that fails; all unpacked values share a budget."""
    if type(blob) is not bytes:
        return None
    found = read.unpack(blob, min(limit, base.budget.unpackable))
    base.budget.unpackable -= len(found.data)
    return found.data if found.whole else None


def _row(key: int, raw: bytes | None, start: int) -> Row:
    end = start + len(raw or b"")
    place = f"{_EVENTS}.{key}"
    try:
        value, _ = read_json(raw or b"")
    except (ValueError, RecursionError):
        value = None
    kind = JSON if type(value) is dict else TORN
    return Row(place, value, kind, start, end, table=_EVENTS, rowid=key, stored={"seq": key})
