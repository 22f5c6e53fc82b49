"""Message lists as people and scripts keep them: one JSON document, or one message a line.

A document is a bare list, a request body, or an object that keeps its list under a known key, such
as the ``history`` of a SWE-agent trajectory. The dialect is told by the messages themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lockstitch.conversation.json_text import dump_like
from lockstitch.conversation.parts import RESULT, USER, Path
from lockstitch.dialects import OPENAI_CHAT
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.registry import ENOUGH, dialect_of, find_doubt, marks_of, new_dialect
from lockstitch.errors import AmbiguousDialect
from lockstitch.formats.history import History, SourcedMessage
from lockstitch.repair.draft import Ledger
from lockstitch.sources.interface import DOCUMENT, LINES, Context, Format, Transcript
from lockstitch.sources.records import BOM, Record, amend_record, record_bytes
from lockstitch.sources.write_back import MessageHome, enter_message, place_messages, value_at

if TYPE_CHECKING:
    from lockstitch.sources.compaction import Shortened, Sorting, Story

_BODY = ("messages", "input", "contents")
_KEYS = (*_BODY, "history", "conversation", "items")
# What a message has, in one dialect or another, besides its type.
_SIGNS = frozenset({"content", "data", "kwargs", "call_id", "summary", "encrypted_content"})
# What a request has besides its messages; without any of it, a document is only a list.
_REQUEST = frozenset(
    {
        *("model", "modelId", "tools", "toolConfig", "system", "systemInstruction", "instructions"),
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "thinking", "stream"),
        *("generationConfig", "inferenceConfig", "anthropic_version", "temperature"),
    }
)
# For a list that says nothing of its dialect, where that is asked for or left by a repair.
_USUAL = OPENAI_CHAT


class PlainList(Format):
    """The very messages of a dialect, nothing around them or a request body."""

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
        """Return the list, the document or the lines that may be messages; None if they are not."""
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
        """Understand messages of a dialect; None: that which they tell themselves."""
        stored, homes, around = _opened(records)
        dialect = named or _dialect(around if type(around) is dict else stored) or _USUAL
        model = around.get("model") if type(around) is dict else None
        history = History(dialect, [], [], [], model if type(model) is str else None)
        history.body = _body(around, dialect)
        messages = [*map(_spoken, stored)]
        for message, home in zip(messages, homes, strict=True):
            enter_message(history, message, home)
        return Transcript(
            context,
            records,
            history,
            turns=_turns(dialect, messages),
            state=(homes, stored),
        )

    def sorting(self, transcript: Transcript) -> Sorting:
        from lockstitch.formats import plain_compact  # noqa: PLC0415 - few commands need it

        return plain_compact.sorting(transcript)

    def compacted(self, transcript: Transcript, story: Story, out: Shortened) -> list[Record]:
        from lockstitch.formats import plain_compact  # noqa: PLC0415 - as above

        strands = plain_compact.strands(transcript, story, out)
        return self.write_back(transcript, strands, Ledger([], []))

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
        self, transcript: Transcript, strands: Sequence[SourcedMessage], ledger: Ledger
    ) -> list[Record]:
        data = transcript.context.data
        homes, stored = transcript.state
        spoken = transcript.history.messages
        raw = {id(message): stored[number] for number, message in enumerate(spoken)}
        listed = any(_names_calls(message) for message in stored)

        def written(strand: SourcedMessage) -> SourcedMessage:
            message = raw.get(id(strand.message), strand.message)
            message = _listed(message) if listed else message
            return SourcedMessage(message, strand.origin, strand.parts)

        def make(message: Any, near: Record) -> Record:
            sample = record_bytes(data, near).decode("utf-8", "surrogatepass")
            return Record("", message, fresh=dump_like(sample, message).encode())

        return place_messages(transcript, homes, [*map(written, strands)], make)


def doubt_of(value: Any) -> str:
    """Return what speaks against a list, a body or another document of messages; empty if nothing.

    A doubt is for a person who can name the dialect; what names none is not doubted, only unknown.
    """
    if _is_trajectory(value):
        return ""
    path = _list_path(value)
    if path is None:
        return ""
    messages = value_at(value, path)
    marks = marks_of(value if not path or path[0] in _BODY else messages)
    if len(marks) != 1:
        return f"has marks of {' and '.join(sorted(marks))}" if marks else ""
    [dialect] = marks
    why = find_doubt(messages[:ENOUGH], dialect)
    return why and f"looks like messages of {dialect}, but {why}"


def _is_trajectory(value: Any) -> bool:
    """Whether a document is a trajectory of SWE-agent, whose messages have fields of its own."""
    is_one = type(value) is dict and _list_path(value) == ("history",)
    return is_one and type(value.get("trajectory")) is list


def _body(around: Any, dialect: str) -> dict[str, Any] | None:
    """Return a document that is a request, which rules on whole requests look at."""
    key = profile_named(dialect).list_key
    is_body = type(around) is dict and type(around.get(key)) is list
    return around if is_body and not _REQUEST.isdisjoint(around) else None


def _names_calls(message: Any) -> bool:
    """Return a result as SWE-agent writes it, which lists the one call that it answers."""
    ids = message.get("tool_call_ids") if type(message) is dict else None
    return type(ids) is list and len(ids) == 1


def _spoken(message: Any) -> Any:
    """Return a message as it is sent: the same object, but for results as SWE-agent writes them."""
    if not _names_calls(message) or "tool_call_id" in message:
        return message
    return {**message, "tool_call_id": message["tool_call_ids"][0]}


def _listed(message: Any) -> Any:
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
    """Return the dialect of a list, a body or another document; None if nothing tells it."""
    path = _list_path(value)
    if _is_trajectory(value):
        return OPENAI_CHAT
    if type(value) is dict and path and path[0] not in _BODY:
        value = value_at(value, path)
    try:
        return dialect_of(value)
    except AmbiguousDialect:
        return None


def _opened(records: Sequence[Record]) -> tuple[list[Any], list[MessageHome], Any]:
    """Return the messages of a file, where each stands, and the document around them."""
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


def _turns(dialect: str, messages: Sequence[Any]) -> int:
    views = new_dialect(dialect).read(messages)
    return sum(
        view.role == USER and not any(part.kind == RESULT for part in view.parts) for view in views
    )
