"""Message lists as people and scripts keep them: one JSON document, or one message per line.

A document is a bare list, a request body, or an object with its list under a known key, such as the
``history`` of a SWE-agent trajectory. The dialect is recognized by the messages themselves.

In another kind of file every line is a request, as in gateway logs and examples for fine-tuning.
Each request is checked and repaired on its own, and the others keep their bytes. All are of one
dialect, which some of them show; the others are read in the same dialect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from lockstitch.conversation.json_text import dump_like
from lockstitch.conversation.parts import RESULT, USER, Path
from lockstitch.dialects import OPENAI_CHAT
from lockstitch.dialects.profiles import new_dialect, profile_named
from lockstitch.dialects.recognize import ENOUGH, dialect_of, find_doubt, marks_of, messages_of
from lockstitch.errors import AmbiguousDialect, UsageError
from lockstitch.formats import repair
from lockstitch.formats.interface import (
    DOCUMENT,
    LINES,
    NEW,
    Context,
    Format,
    History,
    Shortened,
    Sorting,
    SourcedMessage,
    Transcript,
    trace_sources,
)
from lockstitch.formats.records import BOM, Record, amend_record, record_bytes
from lockstitch.formats.write_back import MessageHome, enter_message, place_messages, value_at
from lockstitch.repair.draft import Ledger, RepairedMessage
from lockstitch.repair.plan import plan_stored

_BODY = ("messages", "input", "contents")
_KEYS = (*_BODY, "history", "conversation", "items")
# Fields that messages have, in one dialect or another, besides their type.
_SIGNS = frozenset({"content", "data", "kwargs", "call_id", "summary", "encrypted_content"})
# Fields that a request has besides its messages; a document without any of them is only a list.
_REQUEST = frozenset(
    {
        *("model", "modelId", "tools", "toolConfig", "system", "systemInstruction", "instructions"),
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "thinking", "stream"),
        *("generationConfig", "inferenceConfig", "anthropic_version", "temperature"),
    }
)
_NO_MESSAGE = "nothing in it can be recognised as a message, so a repair changes nothing"
# The dialect of a list that shows none, if one is asked for or a repair leaves such a list.
_USUAL = OPENAI_CHAT


class PlainList(Format):
    """The messages of a dialect as they are, bare or in a request body."""

    name = "list"
    title = "a message list"
    dialect = ""
    kinds = (DOCUMENT, LINES)

    def claims(self, name: str, head: Sequence[Any]) -> bool:
        found = self._found(head)
        return found is not None and _dialect(found) is not None and not doubt_of(found)

    def doubt(self, head: Sequence[Any]) -> str:
        found = self._found(head)
        return "" if found is None else doubt_of(found)

    def _found(self, head: Sequence[Any]) -> Any:
        """Return the list, document or lines that may be messages; None if nothing may be."""
        if len(head) == 1 and _list_path(head[0]) is not None:
            return head[0]
        values = [value for value in head if type(value) is dict and value]
        return values if values and all(map(self.is_record, values)) else None

    def is_record(self, value: dict[str, Any]) -> bool:
        if "tool_use_id" in value:
            return False
        kind = value.get("type", value.get("lc"))
        return type(value.get("role")) is str or (bool(kind) and not _SIGNS.isdisjoint(value))

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        return self.read_as(None, records, context)

    def read_as(self, named: str | None, records: Sequence[Record], context: Context) -> Transcript:
        """Parse messages of the named dialect, or of the recognized one if that is None."""
        stored, homes, around = _open_records(records)
        dialect = named or _dialect(around if type(around) is dict else stored) or _USUAL
        model = around.get("model") if type(around) is dict else None
        history = History(dialect, model=model if type(model) is str else None)
        key = profile_named(dialect).list_key
        is_body = type(around) is dict and type(around.get(key)) is list
        if is_body and not _REQUEST.isdisjoint(around):
            # this is for rules on whole requests
            history.body = around
        messages = [*map(_as_sent, stored)]
        for message, home in zip(messages, homes, strict=True):
            enter_message(history, message, home)
        views = new_dialect(dialect).read(messages)
        turns = sum(
            view.role == USER and not any(part.kind == RESULT for part in view.parts)
            for view in views
        )
        transcript = Transcript(context, records, history, turns=turns, state=(homes, stored))
        values = [value for value in stored if type(value) is dict]
        if values and not any(self.is_record(value) or "parts" in value for value in values):
            # a person said that this is a list of messages, but nothing in it confirms that
            transcript.sealed, transcript.notes = True, [_NO_MESSAGE]
        return transcript

    def sorting(self, transcript: Transcript) -> Sorting:
        """Return the summary of an earlier compaction, recognized by its label."""
        from lockstitch.journal.projection import SUMMARY  # noqa: PLC0415 - few commands need it

        history = transcript.history
        views = new_dialect(profile_named(history.dialect).dialect).read(history.messages)
        for number, view in enumerate(views):
            texts = [part.text or str(part.raw) for part in view.parts]
            if view.role == USER and len(texts) == 1 and texts[0].startswith(SUMMARY):
                return Sorting(summary=number, previous=texts[0], shortens=True)
        return Sorting(summary=NEW, shortens=True)

    def compacted(self, transcript: Transcript, left: Shortened) -> list[Record]:
        """Return the shorter list, in which kept messages keep their bytes."""
        history = transcript.history
        summary = [] if left.summary is None else [None]
        numbers = [*left.setup, *summary, *(number for number, _ in left.kept)]
        made = plan_stored(left.messages, history.dialect, history.model, repair.LOSSY)
        kept = [
            RepairedMessage(one.message, None if one.origin is None else numbers[one.origin])
            for one in made.repaired
        ]
        return self.write_back(transcript, trace_sources(history, kept), Ledger([], []))

    def write_request(
        self, transcript: Transcript, records: list[Record], body: dict[str, Any]
    ) -> list[Record]:
        before = transcript.history.body or {}
        for key, value in body.items():
            if value is not before.get(key):
                place = next(n for n, record in enumerate(records) if record.is_record)
                records[place] = amend_record(
                    transcript.context.data, records[place], (key,), value
                )
        return records

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        data = transcript.context.data
        homes, stored = transcript.state
        spoken = transcript.history.messages
        raw = {id(message): stored[number] for number, message in enumerate(spoken)}
        listed = any(_names_calls(message) for message in stored)

        def written(sourced: SourcedMessage) -> SourcedMessage:
            message = raw.get(id(sourced.message), sourced.message)
            message = _as_stored(message) if listed else message
            return SourcedMessage(message, sourced.origin, sourced.parts)

        def make(message: Any, near: Record) -> Record:
            sample = record_bytes(data, near).decode("utf-8", "surrogatepass")
            return Record("", message, fresh=dump_like(sample, message).encode())

        return place_messages(transcript, homes, [*map(written, repaired)], make)


def doubt_of(value: Any) -> str:
    """Return why a list, body or other document may not be of a dialect; empty if nothing says so.

    A doubt is for a person who can name the dialect. A document that shows no dialect is not
    doubted, only unknown.
    """
    if _is_trajectory(value):
        return ""
    path = _list_path(value)
    if path is None:
        return ""
    messages = value_at(value, path)
    marks = marks_of(value if not path or path[0] in _BODY else messages)
    if len(marks) != 1:
        return f"has signs of {' and '.join(sorted(marks))}" if marks else ""
    [dialect] = marks
    why = find_doubt(messages[:ENOUGH], dialect)
    return why and f"looks like messages of {dialect}, but {why}"


def _is_trajectory(value: Any) -> bool:
    """Whether a document is a trajectory of SWE-agent, whose messages have extra fields."""
    is_one = type(value) is dict and _list_path(value) == ("history",)
    return is_one and type(value.get("trajectory")) is list


def _names_calls(message: Any) -> bool:
    """Whether a message is a result of SWE-agent's, which lists the one call it answers."""
    ids = message.get("tool_call_ids") if type(message) is dict else None
    return type(ids) is list and len(ids) == 1


def _as_sent(message: Any) -> Any:
    """Return a message as it is sent: the same object, except for SWE-agent's results."""
    if not _names_calls(message) or "tool_call_id" in message:
        return message
    return {**message, "tool_call_id": message["tool_call_ids"][0]}


def _as_stored(message: Any) -> Any:
    """Return a message as SWE-agent writes it."""
    if type(message) is not dict or "tool_call_id" not in message:
        return message
    rest = {key: value for key, value in message.items() if key != "tool_call_id"}
    return {**rest, "tool_call_ids": [message["tool_call_id"]]}


def _list_path(value: Any) -> Path | None:
    """Return the path to the list of messages in a document, None if there is none."""
    if type(value) is list:
        return ()
    if type(value) is not dict:
        return None
    return next(((key,) for key in _KEYS if type(value.get(key)) is list), None)


def _dialect(value: Any) -> str | None:
    """Return the dialect of a list, a body or another document; None if it is not clear."""
    path = _list_path(value)
    if _is_trajectory(value):
        return OPENAI_CHAT
    if type(value) is dict and path and path[0] not in _BODY:
        value = value_at(value, path)
    try:
        return dialect_of(value)
    except AmbiguousDialect:
        return None


def _open_records(records: Sequence[Record]) -> tuple[list[Any], list[MessageHome], Any]:
    """Return the messages of a file, the place of each, and the document around them."""
    whole = [n for n, record in enumerate(records) if record.value is not None]
    value: Any = records[whole[0]].value if len(whole) == 1 else None
    path = _list_path(value)
    if path is not None and not (type(value) is dict and "role" in value):
        messages = value_at(value, path)
        steps = range(len(messages))
        return (
            messages,
            [MessageHome(whole[0], (*path, step), listed=True) for step in steps],
            value,
        )
    lines = [n for n in whole if records[n].is_record and records[n].kind != BOM]
    return [records[n].value for n in lines], [MessageHome(n) for n in lines], None


_PLAIN = PlainList()


class Requests(Format):
    """One request per line, in any order; none is part of another."""

    name = "requests"
    title = "requests on lines of their own"
    dialect = ""
    kinds = (LINES,)

    def claims(self, name: str, head: Sequence[Any]) -> bool:
        values = [value for value in head if type(value) is dict]
        if not values or not all(map(self.is_record, values)) or self.doubt(head):
            return False
        return len({*_dialects(values)}) == 1

    def doubt(self, head: Sequence[Any]) -> str:
        values = [value for value in head if type(value) is dict and self.is_record(value)]
        found = sorted({*_dialects(values)})
        if len(found) > 1:
            return f"looks like requests, but in the form of {' and '.join(found)}"
        return next((why for value in values if found and (why := doubt_of(value))), "")

    def is_record(self, value: dict[str, Any]) -> bool:
        return "role" not in value and any(type(one) is dict for one in messages_of(value))

    def parse(self, records: Sequence[Record], context: Context) -> Transcript:
        values = [record.value for record in records if record.is_record]
        dialect = next(_dialects(values), _USUAL)
        lines = {
            number: _PLAIN.read_as(dialect, [structs.replace(record, codes=())], context)
            for number, record in enumerate(records)
            if record.is_record and self.is_record(record.value)
        }
        return Transcript(
            context,
            records,
            History(dialect),
            findings=[f for line in lines.values() for f in repair.findings_in(_PLAIN, line)],
            turns=sum(line.turns for line in lines.values()),
            messages=sum(len(line.history.messages) for line in lines.values()),
            state=lines,
        )

    def repair_tree(self, transcript: Transcript, ledger: Ledger) -> list[Record]:
        """Repair each line that needs it."""
        records = list(transcript.records)
        for number, line in transcript.state.items():
            done = repair.plan_repair(_PLAIN, line, repair.RepairOptions())
            if done.changed:
                [records[number]] = done.after.records
                ledger.changes += done.changes
                ledger.quarantine += done.quarantine
        return records

    def write_back(
        self, transcript: Transcript, repaired: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        raise UsageError("a file of requests has no conversation of its own")


def dialect_in(values: Sequence[Any]) -> str:
    """Return the dialect of requests that were read; raise AmbiguousDialect if it is unclear."""
    found = next(_dialects(values), None)
    return found or dialect_of(values[0])


def _dialects(values: Sequence[Any]) -> Iterator[str]:
    """Yield the dialect of every request whose dialect is clear."""
    for value in values:
        try:
            yield dialect_of(value)
        except AmbiguousDialect:
            continue
