"""opencode: ``~/.local/share/opencode/opencode.db``, an SQLite database.

A session's messages and their parts are rows with JSON in them. The log of events in the same
database is read for results that survived there, but never written, since opencode resumes from the
rows.

``opencode export`` writes one JSON document with a session's messages and their parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstitch.conversation.parts import Path
from lockstitch.dialects import ANTHROPIC
from lockstitch.formats.interface import (
    DOCUMENT,
    Context,
    Fields,
    Format,
    Glimpse,
    SourcedMessage,
    Transcript,
    new_finding,
)
from lockstitch.formats.opencode.history import (
    ASSISTANT,
    FLAWED_MESSAGE,
    FLAWED_PART,
    USER,
    OpenCodeEntry,
    OpenCodePiece,
    OpenCodeThread,
    build_thread,
    find_evidence,
    message_flaw,
    part_flaw,
    repair_part,
    repair_time,
    without_keys,
)
from lockstitch.formats.opencode.write_back import OpenCodeWriteBack
from lockstitch.formats.records import Record, amend_record, as_dict, as_list, as_str, read_json
from lockstitch.formats.tables import (
    ProgramTable,
    Row,
    RowFormat,
    TableLayout,
    moment,
    new_row,
    put_value,
)
from lockstitch.formats.write_back import replace_list, value_at
from lockstitch.repair.draft import Ledger
from lockstitch.rules import ERROR, RULES, WARNING, Finding

_SESSION = ProgramTable("session", session="id")
_MESSAGE = ProgramTable("message", "data", order=("time_created", "id"))
_PART = ProgramTable("part", "data", order=("message_id", "id"))
_WANTED = """
(type LIKE 'message.part.updated%' AND EXISTS (SELECT 1 FROM json_each((
   SELECT json_group_array(id) FROM part WHERE session_id = CAST(?1 AS TEXT) AND (
     data LIKE '%"running"%' OR data LIKE '%"pending"%' OR data LIKE '%[lockstitch]%'
     OR data LIKE '%[Tool execution was interrupted]%' OR {part}))) AS wanted
   WHERE instr(event.data, wanted.value) > 0))
OR (type LIKE 'message.updated%' AND EXISTS (SELECT 1 FROM json_each((
   SELECT json_group_array(id) FROM message WHERE session_id = CAST(?1 AS TEXT)
     AND {message})) AS wanted
   WHERE instr(event.data, wanted.value) > 0))
"""
# Only events of open or damaged rows; the lists of those rows are made once, not for every event.
_EVENT = ProgramTable(
    "event",
    "data",
    session="aggregate_id",
    order=("seq",),
    where=f"({_WANTED.format(part=FLAWED_PART, message=FLAWED_MESSAGE)})",
    optional=True,
)
_SESSIONS = "SELECT id, directory, time_updated / 1000.0, title FROM session"
_DATA: Path = ("data",)
# Fields of a model's message besides its parts; a lost one takes them from its neighbour.
_TAKEN = ("parentID", "modelID", "providerID", "mode", "agent", "path", "model")
# Rules about what providers other than Anthropic may see differently.
_OWN_RULES = ("LS2", "LS4", "LS5")


class OpenCode(RowFormat):
    """Messages and parts in rows of their own."""

    name = "opencode"
    title = "opencode"
    dialect = ANTHROPIC
    places = (".local/share/opencode/opencode*.db",)
    variable = "XDG_DATA_HOME"
    resume = ("opencode", "--session", "{id}")
    is_local = True
    layout = TableLayout((_SESSION, _MESSAGE, _PART, _EVENT), _SESSIONS)

    def claims(self, name: str, head: Any) -> bool:
        return {"session", "message", "part"} <= set(head)

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        rows = [row for row in records if isinstance(row, Row)]
        session: Fields = next((row.value for row in rows if row.table == "session"), {})
        try:
            text = session.get("revert")
            revert = read_json(text.encode())[0] if text else None
        except (AttributeError, ValueError):
            revert = None
        thread = build_thread(_entries(records), revert)
        # the last state of each part in the log
        logged = _last_logged(records, "part").items()
        states = {own: part["state"] for own, part in logged if type(part.get("state")) is dict}
        return complete_transcript(
            Transcript(
                context,
                records,
                thread.history,
                findings=[
                    new_finding("LS610", row.place, f"the {row.table} {_flaw(row)}", ERROR)
                    for row in _find_broken(records)
                ],
                session=session.get("id") or context.name,
                project=as_str(session.get("directory")),
                version=str(session.get("version") or ""),
                state=thread,
            ),
            states,
        )

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        rebuilt = {
            id(row): _rebuild_row(row, transcript.records, ledger)
            for row in _find_broken(transcript.records)
        }
        return [rebuilt.get(id(record), record) for record in transcript.records]

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        editor = _RowEditor(transcript.records)
        OpenCodeWriteBack(transcript.state, repaired, editor).write_back()
        return editor.records

    def severity(self, found: Finding, transcript: Transcript) -> str:
        return severity(found, transcript)


def complete_transcript(transcript: Transcript, events: dict[str, Fields]) -> Transcript:
    """Add to a transcript what is the same for a database and for an export."""
    thread: OpenCodeThread = transcript.state
    transcript.turns = thread.turns
    transcript.evidence = find_evidence(thread, events)
    for own in transcript.evidence:
        piece = thread.calls[own]
        place = ".".join(map(str, (transcript.records[piece.number].place, *piece.path, "state")))
        transcript.findings.append(
            new_finding("LS708", place, "the output of an open call was stored")
        )
    return transcript


def severity(found: Finding, transcript: Transcript) -> str:
    """Return how bad a finding is: opencode answers open calls in memory, each time it resumes."""
    if found.code == "LS101":
        return WARNING
    if transcript.history.model is None and found.code.startswith(_OWN_RULES):
        return WARNING
    return found.severity


# Rows as messages and parts


def _entries(records: Sequence[Record]) -> list[OpenCodeEntry]:
    entries: dict[str, OpenCodeEntry] = {}
    for number, row in enumerate(records):
        if isinstance(row, Row) and row.table == "message":
            info = row.json if type(row.json) is dict else {}
            entries[row.value["id"]] = OpenCodeEntry(row.value["id"], info, number, _DATA, [])
    for number, row in enumerate(records):
        if isinstance(row, Row) and row.table == "part" and row.value["message_id"] in entries:
            data = row.json if type(row.json) is dict else {}
            seen = row.value.get("time_updated")
            piece = OpenCodePiece(
                row.value["id"], data, number, _DATA, seen if type(seen) is int else 0
            )
            entries[row.value["message_id"]].pieces.append(piece)
    return [*entries.values()]


def _last_logged(records: Sequence[Record], key: str) -> dict[str, Fields]:
    """Return the last version of each part ("part") or message ("info") in the log, by id."""
    found: dict[str, Fields] = {}
    for row in records:
        if isinstance(row, Row) and row.table == "event" and type(row.json) is dict:
            value = row.json.get(key)
            if type(value) is dict:
                found[str(value.get("id"))] = value
    return found


# Rows that cannot be read


def _find_broken(records: Sequence[Record]) -> list[Row]:
    """Return the rows at which opencode fails, or that it silently skips."""
    return [row for row in records if isinstance(row, Row) and _flaw(row)]


def _flaw(row: Row) -> str:
    if row.table not in ("message", "part"):
        return ""
    if not row.readable:
        return "cannot be decoded, so the session cannot be opened at all"
    return message_flaw(row.json) if row.table == "message" else part_flaw(row.json)


def _rebuild_row(row: Row, records: Sequence[Record], ledger: Ledger) -> Row:
    """Replace a lost value by one that keeps the session whole."""
    ledger.set_aside(RULES["LS610"], row.place, row.text)
    is_part = row.table == "part"
    logged = without_keys(_last_logged(records, "part" if is_part else "info").get(row.value["id"]))
    if logged and not (part_flaw(logged) if is_part else message_flaw(logged)):
        ledger.note(RULES["LS610"], "rewritten", row.place, "was taken from the log of events")
        return put_value(row, (), logged)
    if is_part:
        time = _time(row, "time_updated") or _time(row, "time_created")
        made = repair_part(row.json, row.text, row.value["id"], time)
        kept = made.get("type") == "tool"
        text = "got what it lacked" if kept else "became a text that says what was there"
        ledger.note(RULES["LS610"], "rewritten", row.place, text)
        return put_value(row, (), made)
    if message_flaw(row.json).startswith("lacks its time"):
        ledger.note(RULES["LS610"], "rewritten", row.place, "got the time of its row")
        return put_value(row, (), repair_time(row.json, _time(row, "time_created")))
    ledger.note(RULES["LS610"], "rewritten", row.place, "its role was taken from its parts")
    return put_value(row, (), _rebuild_info(row, records))


def _time(row: Row, column: str) -> int:
    """Return the time in a column of a row, 0 if there is none."""
    found = row.value.get(column)
    return found if type(found) is int else 0


def _rebuild_info(row: Row, records: Sequence[Record]) -> Fields:
    own = row.value["id"]
    parts = [r.json for r in records if isinstance(r, Row) and r.value.get("message_id") == own]
    kinds = {str(part.get("type")) for part in parts if type(part) is dict}
    is_model = not kinds.isdisjoint({"tool", "step-start", "step-finish", "reasoning", "patch"})
    role = ASSISTANT if is_model else USER
    created = _time(row, "time_created")
    near = [r.json for r in records if isinstance(r, Row) and r.table == "message" and r.readable]
    like = [info for info in near if type(info) is dict and info.get("role") == role]
    taken = {key: like[-1][key] for key in _TAKEN if like and key in like[-1]}
    info: Fields = {"role": role, "time": {"created": created}, **taken}
    if is_model:
        cache = {"read": 0, "write": 0}
        info["time"]["completed"] = created
        info |= {"cost": 0, "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": cache}}
    return info


# Changed rows


class _RowEditor:
    """Changes rows; all others stay the same objects."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.source = records
        self.now: dict[int, Row] = {}
        self.gone: set[int] = set()
        self.added: dict[int, list[Row]] = {}

    def put(self, what: OpenCodeEntry | OpenCodePiece, path: Path, value: Any) -> None:
        row = self.now.get(what.number, self.source[what.number])
        assert isinstance(row, Row)  # noqa: S101 - all records of this format are
        self.now[what.number] = put_value(row, path, value)

    def drop(self, what: OpenCodeEntry | OpenCodePiece) -> None:
        self.gone.add(what.number)
        if isinstance(what, OpenCodeEntry):
            self.gone |= {piece.number for piece in what.pieces}

    def add_part(self, entry: OpenCodeEntry, after: OpenCodePiece | None, data: Fields) -> None:
        row = self.source[entry.number].value
        number = after.number if after else entry.number
        fresh = self.added.setdefault(number, [])
        first = f"prt_0{str(row['id'])[4:]}{len(fresh)}"
        name = f"{after.id}{len(fresh) + 1:02d}" if after else first
        fresh.append(_row(_PART, name, row, {"message_id": row["id"], "data": data}))

    def add_message(self, after: OpenCodeEntry | None, role: str, data: Fields) -> None:
        rows = [r.value for r in self.source if isinstance(r, Row) and r.table == "message"]
        near = self.source[after.number].value if after else rows[0]
        fresh = self.added.setdefault(after.number if after else -1, [])
        name = f"{near['id']}{len(fresh) + 1:02d}" if after else f"msg_0{len(fresh):02d}"
        created = near.get("time_created")
        time = moment(created, before=after is None)
        infos = (r["data"] for r in rows if type(r["data"]) is dict)
        like: Fields = next((info for info in infos if info.get("role") == role), {})
        times = {"created": time} | ({"completed": time} if role == ASSISTANT else {})
        taken = {key: like[key] for key in _TAKEN if key in like}
        info: Fields = {"role": role, "time": times, **taken}
        # A new row takes the invalid time of its neighbour, too, so that the two are sorted by id.
        sorted_by = time if type(created) in (int, float) else created
        message = {**near, "time_created": sorted_by, "time_updated": time}
        fresh.append(_row(_MESSAGE, name, message, {"data": info}))
        part = {"message_id": name, "data": data}
        fresh.append(_row(_PART, f"prt_{name[4:]}", message, part))

    @property
    def records(self) -> list[Record]:
        """The rows with all changes."""
        out: list[Record] = [*self.added.get(-1, ())]
        for number, record in enumerate(self.source):
            if number not in self.gone:
                out.append(self.now.get(number, record))
            out += self.added.get(number, ())
        return out


def _row(table: ProgramTable, name: str, like: Fields, fields: Fields) -> Row:
    kept = ("session_id", "time_created", "time_updated")
    taken = {key: like[key] for key in kept if key in like}
    return new_row(table, {"id": name, **taken, **fields})


_MESSAGES: Path = ("messages",)


class OpenCodeExport(Format):
    """The whole document is one record; messages and parts are places in it."""

    name = "opencode-export"
    title = "opencode export"
    dialect = ANTHROPIC
    kinds = (DOCUMENT,)
    lists = (("messages",), ("messages", None, "parts"))

    def claims(self, name: str, head: Any) -> bool:
        return any(type(value) is dict and self.is_record(value) for value in head)

    def is_record(self, value: dict[str, Any]) -> bool:
        info, messages = value.get("info"), value.get("messages")
        if type(info) is not dict or type(messages) is not list:
            return False
        whole = all(type(m) is dict and {"info", "parts"} <= m.keys() for m in messages)
        return whole and (bool(messages) or str(info.get("id")).startswith("ses_"))

    def glimpse(
        self, path: str, head: Sequence[dict[str, Any]], tail: Sequence[dict[str, Any]]
    ) -> Glimpse:
        info = as_dict(head[0].get("info")) if head else {}
        return Glimpse(
            title=as_str(info.get("title")) or "",
            session=as_str(info.get("id")),
            project=as_str(info.get("directory")),
        )

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        number = next((n for n, r in enumerate(records) if r.is_record), -1)
        value = records[number].value if number >= 0 else {}
        info = as_dict(value.get("info"))
        thread = build_thread(_document_entries(value, number), info.get("revert"))
        transcript = Transcript(
            context,
            records,
            thread.history,
            session=as_str(info.get("id")) or context.name.removesuffix(".json"),
            project=as_str(info.get("directory")),
            version=str(info.get("version") or ""),
            state=thread,
        )
        return complete_transcript(transcript, {})

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        editor = _DocumentEditor(transcript)
        OpenCodeWriteBack(transcript.state, repaired, editor).write_back()
        return editor.records

    def severity(self, found: Finding, transcript: Transcript) -> str:
        return severity(found, transcript)


def _document_entries(document: Fields, number: int) -> list[OpenCodeEntry]:
    entries: list[OpenCodeEntry] = []
    for place, message in enumerate(as_list(document.get("messages"))):
        if type(message) is not dict:
            continue
        info, parts = as_dict(message.get("info")), as_list(message.get("parts"))
        path = (*_MESSAGES, place)
        pieces = [
            OpenCodePiece(str(part.get("id")), part, number, (*path, "parts", at))
            for at, part in enumerate(parts)
            if type(part) is dict
        ]
        entries.append(OpenCodeEntry(str(info.get("id")), info, number, (*path, "info"), pieces))
    return entries


class _DocumentEditor:
    """Changes the document: first values, then removed and added elements, from the inside out."""

    def __init__(self, transcript: Transcript) -> None:
        self.data = transcript.context.data
        self.source = transcript.records
        self.values: list[tuple[OpenCodeEntry | OpenCodePiece, Path, Any]] = []
        self.gone: set[Path] = set()
        self.added: dict[Path, list[Fields]] = {}

    def put(self, what: OpenCodeEntry | OpenCodePiece, path: Path, value: Any) -> None:
        if path or isinstance(what, OpenCodeEntry):
            self.values.append((what, path, value))
            return
        kept = {key: what.data[key] for key in ("id", "sessionID", "messageID") if key in what.data}
        self.values.append((what, (), {**value, **kept}))

    def drop(self, what: OpenCodeEntry | OpenCodePiece) -> None:
        self.gone.add(what.path if isinstance(what, OpenCodePiece) else what.path[:-1])

    def add_part(self, entry: OpenCodeEntry, after: OpenCodePiece | None, data: Fields) -> None:
        path = after.path if after else (*entry.path[:-1], "parts", -1)
        fresh = self.added.setdefault(path, [])
        name = f"{after.id}{len(fresh) + 1:02d}" if after else f"prt_0{entry.id[4:]}{len(fresh)}"
        taken = {"id": name, "sessionID": entry.info.get("sessionID"), "messageID": entry.id}
        fresh.append({**data, **taken})

    def add_message(self, after: OpenCodeEntry | None, role: str, data: Fields) -> None:
        path = after.path[:-1] if after else (*_MESSAGES, -1)
        first = next(iter(as_list(self.document.get("messages"))), None)
        near = after.info if after else as_dict(as_dict(first).get("info"))
        fresh = self.added.setdefault(path, [])
        name = f"{near.get('id')}{len(fresh) + 1:02d}" if after else f"msg_0{len(fresh):02d}"
        session = near.get("sessionID")
        info = {"id": name, "sessionID": session, "role": role, "time": near.get("time")}
        part = {"id": f"prt_{name[4:]}", "sessionID": session, "messageID": name, **data}
        fresh.append({"info": info, "parts": [part]})

    @property
    def document(self) -> Fields:
        """The document as it was read."""
        found: Fields = next(record.value for record in self.source if record.is_record)
        return found

    @property
    def records(self) -> list[Record]:
        """The records, with all changes in the document; the rest of the file stays."""
        first = next((record for record in self.source if record.is_record), None)
        return [
            self._apply_changes(record) if record is first else record for record in self.source
        ]

    def _apply_changes(self, record: Record) -> Record:
        for what, path, value in self.values:
            record = amend_record(self.data, record, (*what.path, *path), value)
        lists = {path[:-1] for path in (*self.gone, *self.added)}
        for path in sorted(lists, key=len, reverse=True):
            new: list[Any] = [*self.added.get((*path, -1), ())]
            for place, element in enumerate(value_at(record.value, path)):
                if (*path, place) not in self.gone:
                    new.append(element)
                new += self.added.get((*path, place), ())
            record = replace_list(self.data, record, path, new)
        return record
