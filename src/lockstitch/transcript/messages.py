"""A history for people to read, as parts: turn by turn, with every call next to its result.

A part is a plain value with a ``kind``: ``turn``, ``left out``, ``text`` (what somebody said),
``note`` (what stands beside the conversation), ``call``, ``checkpoint``, ``mark`` (what is wrong
with the part before it). A call is followed by the ``answer`` that closes it; a ``result`` belongs
to no call shown. Names and texts are as they were written, so code that shows a part has to escape
it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from lockstitch.conversation.json_text import is_index
from lockstitch.conversation.pairing import ANSWER, ORPHAN, pair_messages
from lockstitch.conversation.parts import (
    ASSISTANT,
    BROKEN,
    CALL,
    MEDIA,
    REASONING,
    RESULT,
    SERVER_CALL,
    SERVER_RESULT,
    TEXT,
    TOOL,
    USER,
    Message,
    Part,
    Place,
)
from lockstitch.dialects.base import Dialect, as_json, as_text
from lockstitch.dialects.exchange import messages_in
from lockstitch.dialects.media import images_in
from lockstitch.dialects.profiles import new_dialect, profile_named
from lockstitch.dialects.script import TextPiece
from lockstitch.errors import UsageError
from lockstitch.journal.events import (
    Compacted,
    Denied,
    Ended,
    Event,
    Finished,
    Forked,
    Interrupted,
    Noted,
    Partial,
    Rewound,
)
from lockstitch.journal.messages import (
    answer_in,
    answer_to,
    known,
    late_pieces,
    said_as,
    with_results,
)
from lockstitch.journal.salvage import DAMAGED, MISSING
from lockstitch.journal.state import (
    CHECKPOINT,
    CallState,
    Checkpoint,
    Fact,
    Item,
    Late,
    ModelReply,
    Spoken,
)
from lockstitch.rules import Finding
from lockstitch.rules.pairing import ORPHAN_CALL, PARTIAL_BATCH, unlisted_twins
from lockstitch.rules.rule import several
from lockstitch.transcript import size, utc_time

if TYPE_CHECKING:
    from lockstitch.stored import Journal

# Fields with reasoning in words, and fields with reasoning that only the provider can read.
_WORDS = (
    *("thinking", "text", "reasoning", "reasoning_content", "summary", "content"),
    *("reasoningContent", "reasoningText"),
)
_SEALED = ("data", "encrypted_content", "redactedContent", "signature", "thoughtSignature")
_LABELS = ("media_type", "mimeType", "mime_type", "format", "filename", "title")
_DATA = ("data", "bytes", "base64", "file_data", "url", "image_url")
_LINKS = ("url", "image_url", "file_url", "fileUri", "file_uri", "file_id", "fileId", "uri")
_NOT_ARGUMENTS = frozenset(
    {"type", "id", "call_id", "name", "status", "execution", "toolUseId", "cache_control"}
)
_DEEPEST = 4
# The fields that only a terminal uses: where a result came from, the code of a finding in a title,
# the id of a call, a finding, the indentation, and whether it was said before.
_HINTS = frozenset({"where", "broken", "call", "found", "indent", "is_in_title", "served"})

EMPTY_MESSAGE = "[empty message]"

ShownPart = dict[str, Any]


def note_part(text: str, *, is_warning: bool = False) -> ShownPart:
    """Return a part for something beside the conversation."""
    return {"kind": "note", "text": text, "is_warning": is_warning}


def text_part(text: str, role: str) -> ShownPart:
    """Return a part for words, and who said them."""
    return {"kind": "text", "text": text, "role": role}


def call_part(dialect: Dialect, part: Part, by: str = "") -> ShownPart:
    """Return a part for a call: its name, and its arguments by name or as a text."""
    arguments = dialect.arguments(part)
    if arguments is UNSET or arguments in (None, ""):
        # a kind of call without arguments: what it was asked to do
        raw = part.raw if isinstance(part.raw, dict) else {}
        inner = raw.get(part.flavor)
        fields = inner if isinstance(inner, dict) else raw
        kept = {key: value for key, value in fields.items() if key not in _NOT_ARGUMENTS}
        arguments = next(iter(kept.values())) if len(kept) == 1 else kept
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError, ArithmeticError):
            decoded = msgspec.json.decode(arguments)
            arguments = decoded if isinstance(decoded, dict) else arguments
    arguments = arguments if isinstance(arguments, (dict, str)) else as_json(arguments)
    call: ShownPart = {"kind": "call", "tool": part.name or part.flavor or "call"}
    call |= {"arguments": arguments, "state": "open"}
    return {**call, "by": by} if by else call


def answer_part(
    title: str, text: str, pictures: Sequence[str] = (), where: str = "", *, failed: bool = False
) -> ShownPart:
    """Return a part for the result of the call before it."""
    state = "late" if where or title.startswith("late") else "answered"
    answer: ShownPart = {"kind": "answer", "state": state, "title": title, "where": where}
    return {**answer, "text": text, "pictures": [*pictures], "failed": failed}


def mark_part(found: Finding, indent: str = "", *, is_in_title: bool = False) -> ShownPart:
    """Return a part that marks a broken place; ``is_in_title`` says that the title has the code."""
    mark = {"code": found.code, "severity": found.severity, "message": found.message}
    return {"kind": "mark", **mark, "found": found, "indent": indent, "is_in_title": is_in_title}


def describe_reasoning(raw: Any) -> str:
    """Return reasoning in words, or its size if only the provider can read it."""
    words = "\n\n".join(_readable_words(raw, _DEEPEST))
    if words.strip():
        return words
    sealed = sum(len(as_text(found)) for found in _values_of(raw, _SEALED, _DEEPEST))
    return f"[reasoning, sealed, {size(sealed)}]" if sealed else "[reasoning, empty]"


def _readable_words(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth:
        for item in value:
            yield from _readable_words(item, depth - 1)
    elif isinstance(value, dict) and depth:
        for key in _WORDS:
            if key in value:
                yield from _readable_words(value[key], depth - 1)


def _values_of(value: Any, keys: tuple[str, ...], depth: int) -> Iterator[Any]:
    """Yield the values of these keys that are not containers, outermost first."""
    if isinstance(value, dict) and depth:
        for key in keys:
            if isinstance(value.get(key), (str, bytes)):
                yield value[key]
        for inner in value.values():
            yield from _values_of(inner, keys, depth - 1)


def describe_media(part: Part) -> str:
    """Return a name for an image, a sound or a file: ``[image/png, 12.3 kB]``."""
    for image in images_in(part):
        return f"[{image.label}, {size(_payload_size(image.data))}]"
    label = next(_values_of(part.raw, _LABELS, _DEEPEST), part.flavor)
    for link in _values_of(part.raw, _LINKS, _DEEPEST):
        if isinstance(link, str) and not link.startswith("data:"):
            return f"[{label}, {link}]"
    data = max(_values_of(part.raw, _DATA, _DEEPEST), key=len, default="")
    return f"[{label}, {size(_payload_size(data))}]" if data else f"[{label}]"


def _payload_size(data: str | bytes) -> int:
    if isinstance(data, bytes):
        return len(data)
    start = data.find(";base64,", 0, 200)
    length = len(data) - (start + 8 if start >= 0 else 0)
    return length * 3 // 4 - data.count("=", len(data) - 2)


def describe_other(part: Part) -> str:
    """Return a text for any other block: its words if it has any, else its type and size."""
    raw = part.raw
    for key in ("refusal", "text", "content", "summary"):
        if isinstance(raw, dict) and isinstance(raw.get(key), str) and raw[key]:
            return f"[{part.flavor}] {raw[key]}"
    return f"[{part.flavor or 'block'}, {size(len(as_json(raw)))}]"


def margin_notes(message: Message) -> Iterator[ShownPart]:
    """Yield what a message says outside its content: reasoning, a refusal, an old-style call."""
    raw = message.raw if isinstance(message.raw, dict) else {}
    for envelope in ("data", "kwargs"):
        if isinstance(raw.get(envelope), dict):
            raw = raw[envelope]
    more = raw.get("additional_kwargs")
    for fields in (raw, more if isinstance(more, dict) else {}):
        for key in ("reasoning_content", "reasoning"):
            if isinstance(fields.get(key), str) and fields[key]:
                yield note_part(fields[key])
        if isinstance(fields.get("refusal"), str) and fields["refusal"]:
            yield note_part(f"[refusal] {fields['refusal']}", is_warning=True)
        if isinstance(fields.get("function_call"), dict):
            yield note_part(f"[function_call] {as_json(fields['function_call'])}")


Marks = Mapping[str, Sequence[Finding]]
_NO_RESULT = (ORPHAN_CALL.code, PARTIAL_BATCH.code)
_TWINS = ("twin", "raw-twin")


def last_turns(messages: Sequence[Any], dialect: str, count: int) -> range:
    """Return the range of messages in the last turns."""
    if count < 0:
        raise UsageError("the number of turns cannot be negative")
    return _last(_starts_in(messages, dialect), len(messages), count)


def turns_around(messages: Sequence[Any], dialect: str, place: str | int, turns: int = 1) -> range:
    """Return the range of messages in the turn at a place, with some turns on both sides."""
    number = next((step for step in str(place).split(".")[:2] if is_index(step)), None)
    if number is None:
        raise UsageError("a place starts with the number of a message: messages.29.content.1")
    at = int(number)
    if not 0 <= at < len(messages):
        raise UsageError(f"no message {at}: there are {len(messages)}, counted from 0")
    return _around(_starts_in(messages, dialect), len(messages), at, turns)


def _starts_in(messages: Sequence[Any], dialect: str) -> list[int]:
    return turn_starts(new_dialect(profile_named(dialect).dialect).read(messages))


def _last(starts: Sequence[int], total: int, count: int) -> range:
    return range(starts[max(0, len(starts) - count)] if count and starts else total, total)


def _around(starts: Sequence[int], total: int, at: int, turns: int) -> range:
    turn = max(bisect_right(starts, at) - 1, 0)
    behind = turn + turns + 1
    stop = starts[behind] if behind < len(starts) else total
    return range(starts[max(0, turn - turns)], stop)


def _left_out(starts: Sequence[int], left: range, word: str, least: int = 0) -> list[ShownPart]:
    turns = max(least, sum(start in left for start in starts))
    return [{"kind": "left out", "text": several(turns, f"{word} turn")}] if turns else []


def turn_starts(view: Sequence[Message]) -> list[int]:
    """Return where the turns start: at a prompt, once the turn before it has an answer."""
    starts = [0]
    answered = False
    for position, message in enumerate(view):
        if message.role in (ASSISTANT, TOOL) or message.has(RESULT):
            answered = True
        elif answered and message.role == USER:
            starts.append(position)
            answered = False
    return starts


class MessageTranscript:
    """One list being shown: its view, its pairing, and its findings."""

    def __init__(self, messages: Sequence[Any], dialect: str, marks: Marks) -> None:
        profile = profile_named(dialect)
        self.dialect: Dialect = new_dialect(profile.dialect)
        self.view = self.dialect.read(messages)
        self.key = profile.list_key
        paired = pair_messages(self.view, profile.layout, self.dialect)
        self.answers = {id(one.part): one.answer for one in paired.calls}
        self.results = {id(one.part): one for one in paired.results}
        self.by_message: dict[int, list[tuple[tuple[Any, ...], Sequence[Finding]]]] = {}
        # findings that belong to no message
        self.elsewhere: list[Finding] = []
        for where, found in marks.items():
            at = Place.parse(where)
            if at.message is not None and at.message < len(self.view):
                self.by_message.setdefault(at.message, []).append((at.path, found))
            else:
                self.elsewhere.extend(found)
        self.chosen = range(len(self.view))

    def lines(self, chosen: range | None) -> Iterator[ShownPart]:
        """Yield the chosen messages, turn by turn, with notes on what was left out around them."""
        self.chosen = self.chosen if chosen is None else chosen
        for found in self.elsewhere:
            yield mark_part(found)
        starts = turn_starts(self.view)
        before, behind = range(self.chosen.start), range(self.chosen.stop, len(self.view))
        yield from _left_out(starts, before, "earlier", bool(before))
        turns = {start: number for number, start in enumerate(starts, 1)}
        yield from self.body(turns)
        yield from _left_out(starts, behind, "later", bool(behind))

    def body(self, turns: Mapping[int, int] | None = None) -> Iterator[ShownPart]:
        """Yield the chosen messages; ``turns`` numbers the messages that get a heading."""
        for position, message in enumerate(self.view):
            if position in self.chosen:
                if turns and position in turns:
                    place = str(Place.in_list(self.key, position))
                    yield {"kind": "turn", "number": turns[position], "place": place}
                yield from self.message(message)

    def message(self, message: Message) -> Iterator[ShownPart]:
        """Yield the parts of one message."""
        marks = self._marks(message)
        notes = list(margin_notes(message))
        yield from notes
        if message.flaw:
            yield note_part(f"[malformed message: {message.flaw}]", is_warning=True)
        elif not message.parts and not notes:
            yield note_part(EMPTY_MESSAGE)
        for part in message.parts:
            found = marks.pop(part.at, [])
            if part.kind == CALL:
                yield from self._call(part, found)
            elif part.kind == RESULT:
                yield from self._result(part, found)
            else:
                yield from self._part(message, part, is_marked=bool(found))
                yield from map(mark_part, found)
        for left in marks.values():
            yield from map(mark_part, left)

    def _marks(self, message: Message) -> dict[tuple[Any, ...], list[Finding]]:
        """Return the findings in a message by the deepest part that contains each of them."""
        marks: dict[tuple[Any, ...], list[Finding]] = {}
        known = {part.at for part in message.parts}
        for at, findings in self.by_message.get(message.index, ()):
            home = next((at[:n] for n in range(len(at), -1, -1) if at[:n] in known), None)
            marks.setdefault((None,) if home is None else home, []).extend(findings)
        return marks

    def _part(self, message: Message, part: Part, *, is_marked: bool) -> Iterator[ShownPart]:
        if part.kind == TEXT and part.text.strip():
            yield text_part(part.text, message.role)
        elif part.kind == TEXT:
            yield from [note_part("[empty text]")] if is_marked else ()
        elif part.kind == REASONING:
            yield note_part(describe_reasoning(part.raw))
        elif part.kind == MEDIA:
            yield text_part(describe_media(part), message.role)
        elif part.kind == SERVER_CALL:
            yield {**call_part(self.dialect, part, "by the provider"), "served": part.id}
        elif part.kind == SERVER_RESULT:
            inner = part.raw.get("toolResult", part.raw)
            text = as_text(inner.get("content") if isinstance(inner, dict) else inner)
            yield {**answer_part("result by the provider", text), "served": part.id}
        elif part.kind == BROKEN:
            yield note_part(f"[unreadable: {part.flavor}]", is_warning=True)
        elif part.flavor not in _TWINS:
            yield text_part(describe_other(part), message.role)
        elif any(part is twin for twin in unlisted_twins(message)):
            yield call_part(self.dialect, part)

    def _call(self, part: Part, found: Sequence[Finding]) -> Iterator[ShownPart]:
        yield call_part(self.dialect, part)
        answer = self.answers[id(part)]
        if answer is None:
            codes = [finding for finding in found if finding.code in _NO_RESULT]
            broken = codes[0].code if codes else None
            more = {"broken": broken, "call": part.id}
            yield {"kind": "answer", "state": "open", "title": "no result", "text": "", **more}
            yield from (mark_part(one, is_in_title=True) for one in codes)
            yield from (mark_part(one, "   ") for one in found if one not in codes)
            return
        result, where = answer.part, ""
        if answer.is_displaced:
            where = f", from {Place.in_list(self.key, result.home, result.at)}"
        home = self._marks(self.view[result.home]).get(result.at, [])
        yield self._answer(result, "result", where)
        yield from (mark_part(one, "   ") for one in (*found, *home))

    def _result(self, part: Part, found: Sequence[Finding]) -> Iterator[ShownPart]:
        """Yield a result that belongs to no call shown here."""
        paired = self.results[id(part)]
        verdict, call = paired.verdict, paired.call
        if verdict == ANSWER and call is not None and call.home in self.chosen:
            return
        name = call.name if call and call.name else "a call"
        broken = found[0].code if found else None
        if verdict == ANSWER:
            state, title, broken = "elsewhere", f"result of {name}, called elsewhere", None
        elif verdict == ORPHAN:
            state, title = "orphan", "result without a call"
        else:
            state, title, broken = "duplicate", f"second result of {name}", broken or ""
        alone = {"kind": "result", "state": state, "broken": broken}
        yield {**self._answer(part, title, ""), **alone}
        yield from (mark_part(one, "   ") for one in found)

    def _answer(self, part: Part, title: str, where: str) -> ShownPart:
        pictures = [describe_media(piece) for piece in self.dialect.result_media(part)]
        # whether a result says that it is an error
        layers = [part.raw, *(part.raw.get(key) for key in ("toolResult", "data", "kwargs"))]
        failed = any(
            isinstance(layer, dict)
            and (layer.get("is_error") is True or layer.get("status") in ("error", "failed"))
            for layer in layers
        )
        text = self.dialect.result_text(part)
        return answer_part(title, text, pictures, where, failed=failed)


def join_results(parts: Iterable[ShownPart]) -> list[ShownPart]:
    """Move the answer of each call into the call, and each mark into what it marks."""
    found: list[ShownPart] = []
    served = None
    for part in parts:
        last = found[-1] if found else None
        # the result of a call that the provider runs itself may come after another call
        is_its_own = part.get("served") == served
        served = served if part["kind"] == "mark" else part.get("served")
        is_answer = part["kind"] == "answer" and is_its_own
        if is_answer and last is not None and last["kind"] == "call" and "result" not in last:
            last["state"] = part.pop("state")
            del part["kind"]
            last["result"] = _without_hints(part)
        elif part["kind"] == "mark":
            if last is None:
                last = {"kind": "note", "text": ""}
                found.append(last)
            last.setdefault("marks", []).append(_without_hints(part))
        else:
            found.append(_without_hints(part))
    return found


def _without_hints(part: ShownPart) -> ShownPart:
    """Return a part without the fields that only a terminal uses."""
    if part.get("where"):
        part["title"] += part["where"]
    return {key: value for key, value in part.items() if key not in _HINTS}


# Sessions of a Lockstitch store.

_OPEN = {
    "waiting": "waits for approval",
    "approved": "approved, not started yet",
    "started": "running",
    "open": "not started",
}
_CONCLUDED = {
    "cancelled": "cancelled",
    "timed-out": "timed out",
    "unknown": "outcome unknown: it was running when its process ended",
    "not-started": "never started",
}
_HOLES = {
    DAMAGED: "is damaged: it is left out here, and kept in the store",
    MISSING: "is missing",
}
_CHECKPOINTS = {"batch": "before these calls", "turn": "end of the turn"}


def describe_checkpoint(checkpoint: Checkpoint) -> str:
    """Return the kind of a checkpoint, and its label if it has one."""
    return checkpoint.label or _CHECKPOINTS.get(checkpoint.kind, "")


def last_journal_turns(journal: Journal, count: int) -> range:
    """Return the range of items in the last turns."""
    items = journal.view.items
    return _last(_journal_starts(items), len(items), count)


def journal_turns_around(journal: Journal, seq: int) -> range:
    """Return the range of items in the turn of a record, with one turn on each side."""
    items = journal.view.items
    if not 0 < seq <= journal.state.seq or not items:
        raise UsageError(f"no record {seq}: there are {journal.state.seq}, counted from 1")
    at = max((n for n, item in enumerate(items) if item.seq <= seq), default=0)
    return _around(_journal_starts(items), len(items), at, 1)


def _journal_starts(items: Sequence[Item]) -> list[int]:
    """Return where the turns start: at a prompt, once the turn before it has a reply."""
    starts: list[int] = []
    is_answered = True
    for number, item in enumerate(items):
        if isinstance(item, Spoken) and is_answered:
            starts.append(number)
            is_answered = False
        is_answered = is_answered or isinstance(item, ModelReply)
    return starts or [0] * bool(items)


class JournalTranscript:
    """One journal being shown, item by item, with the events in between."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        line = journal.line()
        # events about calls and the program's own notes are shown elsewhere or not at all
        self.marks = deque(
            fact
            for fact in line
            if (isinstance(fact.event, Noted) and fact.event.name in {CHECKPOINT, *_HOLES})
            or _describe_event(fact.event)
        )
        self.checkpoints = {one.seq: one for one in journal.view.checkpoints}
        self.replaced = {
            (fact.event.reply, fact.event.index)
            for fact in line
            if isinstance(fact.event, Finished) and fact.event.synthetic
        }

    def lines(self, chosen: range | None) -> Iterator[ShownPart]:
        """Yield the chosen items with the events in between, and notes on what was left out."""
        items = self.journal.view.items
        chosen = range(len(items)) if chosen is None else chosen
        starts = _journal_starts(items)
        yield from _left_out(starts, range(chosen.start), "earlier")
        for place, between, pieces in self.pieces():
            if place in chosen or place == len(items) <= chosen.stop:
                yield from between
                yield from pieces
        yield from _left_out(starts, range(chosen.stop, len(items)), "later")

    def pieces(self) -> Iterator[tuple[int, Iterator[ShownPart], Iterator[ShownPart]]]:
        """Yield each item by its place with the events before it, then the events after all."""
        items = self.journal.view.items
        turns = {start: number for number, start in enumerate(_journal_starts(items), 1)}
        # A reply comes before what was said while it was generated, so numbers may go back.
        firsts = list(accumulate((item.seq for item in reversed(items)), min))[::-1]
        for place, first in enumerate(firsts):
            due: list[Fact] = []
            while self.marks and self.marks[0].seq < first:
                due.append(self.marks.popleft())
            yield place, self._show_between(due), self._show_item(items[place], turns.get(place))
        yield len(items), self._show_between(self.marks), iter(())

    def _show_item(self, item: Item, turn: int | None) -> Iterator[ShownPart]:
        if turn is not None:
            yield {"kind": "turn", "number": turn, "place": f"record {item.seq}"}
        if isinstance(item, Spoken):
            content, name = self.journal.value(item.event), known(item.event.dialect)
            if not name or content is None or isinstance(content, str):
                yield text_part(as_text(content), USER)
            else:
                yield from MessageTranscript([said_as(name, content)], name, {}).body()
        elif isinstance(item, ModelReply):
            yield from self._show_reply(item)
        else:
            yield from self._show_late(item)

    def _show_reply(self, item: ModelReply) -> Iterator[ShownPart]:
        checkpoint = self.checkpoints.get(item.seq)
        if checkpoint is not None:
            yield _checkpoint_part(checkpoint)
        if isinstance(item.event, Partial):
            yield note_part("[the reply broke off here]", is_warning=True)
        name = known(item.event.dialect)
        if not name:
            yield note_part("[a reply that this version cannot read]", is_warning=True)
            return
        value = self.journal.value(item.event)
        messages = messages_in(name, value) if value is not None else []
        outcomes = [call.outcome.fact if call.outcome else None for call in item.calls]
        payloads = [self.journal.value(fact) if fact else None for fact in outcomes]
        answers = [answer_to(*pair) for pair in zip(item.calls, payloads, strict=True)]
        said = (
            with_results(name, messages, [call.id for call in item.calls], answers)
            if answers
            else messages
        )
        yield from _ReplyTranscript(said, name, item.calls, self.replaced).body()

    def _show_late(self, item: Late) -> Iterator[ShownPart]:
        outcome = item.call.outcome
        if outcome is not None and outcome.seq == item.seq:
            return
        answer = answer_in(item.fact, self.journal.value(item.fact))
        said = late_pieces(item.call, answer)[1:]
        words = [piece.text if isinstance(piece, TextPiece) else piece.note for piece in said]
        title = f"another result of {item.call.name or 'a call'}, record {item.seq}"
        part = answer_part(title, "\n".join(words), failed=answer.failed)
        yield {**part, "kind": "result", "state": "duplicate"}

    def _show_between(self, marks: Iterable[Fact]) -> Iterator[ShownPart]:
        for fact in marks:
            checkpoint = self.checkpoints.get(fact.seq)
            if checkpoint is not None:
                yield _checkpoint_part(checkpoint)
            else:
                yield note_part(f"[{_describe_event(fact.event)}]", is_warning=True)


def _checkpoint_part(checkpoint: Checkpoint) -> ShownPart:
    text = f"checkpoint {checkpoint.seq}  {describe_checkpoint(checkpoint)}"
    return {"kind": "checkpoint", "text": f"{text}  {utc_time(checkpoint.at)}"}


class _ReplyTranscript(MessageTranscript):
    """One reply with its calls, each followed by its outcome."""

    def __init__(
        self,
        messages: Sequence[Any],
        dialect: str,
        calls: Sequence[CallState],
        replaced: set[tuple[int, int]],
    ) -> None:
        super().__init__(messages, dialect, {})
        # the outcome of each call, in the order of the reply
        self.ends = dict(zip(self.answers, calls, strict=False))
        self.replaced = replaced

    def _call(self, part: Part, found: Sequence[Finding]) -> Iterator[ShownPart]:
        call = self.ends.get(id(part))
        if call is None:
            yield from super()._call(part, found)
            return
        attempts = f"attempt {call.attempts}" if call.attempts > 1 else ""
        yield call_part(self.dialect, part, attempts)
        word = describe_end(call)
        answer = self.answers[id(part)]
        if word or answer is None:
            closed = {"title": word or "no result", "text": ""}
            yield {"kind": "answer", "state": "closed", **closed}
            return
        late = (call.reply, call.index) in self.replaced
        title = "late result" if late else "result"
        yield self._answer(answer.part, title, "")


def describe_end(call: CallState) -> str:
    """Return the outcome of a call in words; "" if it has a result of its own."""
    if call.outcome is None:
        return _OPEN.get(call.status, "not started")
    fact = call.outcome.fact
    if isinstance(fact, Denied):
        return "denied"
    if isinstance(fact, Finished) and not fact.blob and bytes(fact.payload) == b"null":
        word = _CONCLUDED.get(fact.outcome, "")
        return f"{word}; it runs again" if word and call.is_running else word
    return ""


def _describe_event(event: Event) -> str:
    """Return what an event says that is neither speech nor a call."""
    match event:
        case Interrupted():
            return f"interrupted: {event.reason}" if event.reason else "interrupted"
        case Compacted():
            return f"a summary replaces everything up to record {event.through}"
        case Rewound():
            return f"went back to record {event.to}"
        case Ended():
            return "end of the turn"
        case Noted() if event.name in _HOLES:
            return f"{event.label} {_HOLES[event.name]}"
        case Forked():
            return f"forked from {event.source} at record {event.at}"
        case _:
            return ""
