"""What ``opencode export`` writes: one JSON document with a session's messages and their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstitch.conversation.parts import Path
from lockstitch.formats.base import DOCUMENT, Context, Format, Glimpse, Transcript
from lockstitch.formats.blocks import Fields
from lockstitch.formats.history import SourcedMessage
from lockstitch.formats.opencode import severity, transcript_of
from lockstitch.formats.opencode_history import Entry, Piece, told
from lockstitch.formats.opencode_stitch import stitch
from lockstitch.formats.records import Record, amended
from lockstitch.formats.slots import relisted, value_at
from lockstitch.repair.draft import Ledger
from lockstitch.rules import Finding

_MESSAGES: Path = ("messages",)


class OpenCodeExport(Format):
    """The whole document is one record; messages and parts are places in it."""

    name = "opencode-export"
    title = "opencode export"
    dialect = "anthropic"
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
        info = _map(head[0].get("info")) if head else {}
        return Glimpse(
            title=_text(info.get("title")) or "",
            session=_text(info.get("id")),
            project=_text(info.get("directory")),
        )

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        number = next((n for n, r in enumerate(records) if r.is_record), -1)
        value = records[number].value if number >= 0 else {}
        info = _map(value.get("info"))
        telling = told(_entries(value, number), info.get("revert"))
        transcript = Transcript(
            context,
            records,
            telling.history,
            session=_text(info.get("id")) or context.name.removesuffix(".json"),
            project=_text(info.get("directory")),
            version=str(info.get("version") or ""),
            state=telling,
        )
        return transcript_of(transcript, {})

    def stitch(
        self, transcript: Transcript, strands: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        editor = _Editor(transcript)
        stitch(transcript.state, strands, editor)
        return editor.records

    def severity(self, found: Finding, transcript: Transcript) -> str:
        return severity(found, transcript)


def _entries(document: Fields, number: int) -> list[Entry]:
    entries: list[Entry] = []
    for place, message in enumerate(_list(document.get("messages"))):
        if type(message) is not dict:
            continue
        info, parts = _map(message.get("info")), _list(message.get("parts"))
        path = (*_MESSAGES, place)
        pieces = [
            Piece(str(part.get("id")), part, number, (*path, "parts", at))
            for at, part in enumerate(parts)
            if type(part) is dict
        ]
        entries.append(Entry(str(info.get("id")), info, number, (*path, "info"), pieces))
    return entries


def _map(value: Any) -> Fields:
    return value if type(value) is dict else {}


def _list(value: Any) -> list[Any]:
    return value if type(value) is list else []


def _text(value: Any) -> str | None:
    return value if type(value) is str else None


class _Editor:
    """Changes the document: values first, then what comes and goes, from the end to the front."""

    def __init__(self, transcript: Transcript) -> None:
        self.data = transcript.context.data
        self.source = transcript.records
        self.values: list[tuple[Entry | Piece, Path, Any]] = []
        self.gone: set[Path] = set()
        self.added: dict[Path, list[Fields]] = {}

    def put(self, what: Entry | Piece, path: Path, value: Any) -> None:
        if path or isinstance(what, Entry):
            self.values.append((what, path, value))
            return
        kept = {key: what.data[key] for key in ("id", "sessionID", "messageID") if key in what.data}
        self.values.append((what, (), {**value, **kept}))

    def drop(self, what: Entry | Piece) -> None:
        self.gone.add(what.path if isinstance(what, Piece) else what.path[:-1])

    def add_part(self, entry: Entry, after: Piece | None, data: Fields) -> None:
        path = after.path if after else (*entry.path[:-1], "parts", -1)
        fresh = self.added.setdefault(path, [])
        name = f"{after.id}{len(fresh) + 1:02d}" if after else f"prt_0{entry.id[4:]}{len(fresh)}"
        taken = {"id": name, "sessionID": entry.info.get("sessionID"), "messageID": entry.id}
        fresh.append({**data, **taken})

    def add_message(self, after: Entry | None, role: str, data: Fields) -> None:
        path = after.path[:-1] if after else (*_MESSAGES, -1)
        first = next(iter(_list(self.document.get("messages"))), None)
        near = after.info if after else _map(_map(first).get("info"))
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
        """The record with all changes in it."""
        return [self._changed(record) if record.is_record else record for record in self.source]

    def _changed(self, record: Record) -> Record:
        for what, path, value in self.values:
            record = amended(self.data, record, (*what.path, *path), value)
        lists = {path[:-1] for path in (*self.gone, *self.added)}
        for path in sorted(lists, key=len, reverse=True):
            record = relisted(self.data, record, path, self._list(record, path))
        return record

    def _list(self, record: Record, path: Path) -> list[Any]:
        new: list[Any] = [*self.added.get((*path, -1), ())]
        for place, element in enumerate(value_at(record.value, path)):
            if (*path, place) not in self.gone:
                new.append(element)
            new += self.added.get((*path, place), ())
        return new
