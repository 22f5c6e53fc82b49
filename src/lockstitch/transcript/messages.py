"""A history for a person to read: turn by turn, every call joined with its result.

A layout says what each piece looks like; what the parts of a message say is made plain text here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Struct

from lockstitch.conversation.json_text import is_index
from lockstitch.conversation.pairing import ANSWER, NOWHERE, ORPHAN, PairedCalls, pair_messages
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
from lockstitch.dialects.media import images_in
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.registry import new_dialect
from lockstitch.errors import UsageError
from lockstitch.rules import Finding
from lockstitch.rules.pairing import ORPHAN_CALL, PARTIAL_BATCH, unlisted_twins
from lockstitch.transcript import size

# Where reasoning is kept in words, and where it is kept for the provider only.
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


class MarginNote(Struct, frozen=True):
    """Something said beside the conversation proper."""

    text: str
    style: str


def describe_call(dialect: Dialect, part: Part) -> tuple[str, dict[str, Any] | str]:
    """Return the name of a call and its arguments: by name, or as the text they are."""
    arguments = dialect.arguments(part)
    if arguments is UNSET or arguments in (None, ""):
        arguments = _own_fields(part)
    if isinstance(arguments, str):
        arguments = _decode(arguments)
    name = part.name or part.flavor or "call"
    return name, arguments if isinstance(arguments, (dict, str)) else as_json(arguments)


def _own_fields(part: Part) -> Any:
    """Return what a call of a kind without arguments was asked to do."""
    raw = part.raw if isinstance(part.raw, dict) else {}
    inner = raw.get(part.flavor)
    fields = inner if isinstance(inner, dict) else raw
    kept = {key: value for key, value in fields.items() if key not in _NOT_ARGUMENTS}
    return next(iter(kept.values())) if len(kept) == 1 else kept


def _decode(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError, ArithmeticError):
        return text
    return value if isinstance(value, dict) else text


def describe_reasoning(raw: Any) -> MarginNote:
    """Return reasoning as its words, or as its size where only the provider can read it."""
    words = "\n\n".join(_readable_words(raw, _DEEPEST))
    if words.strip():
        return MarginNote(words, "dim")
    sealed = sum(len(as_text(found)) for found in _values_of(raw, _SEALED, _DEEPEST))
    return MarginNote(
        f"[reasoning, sealed, {size(sealed)}]" if sealed else "[reasoning, empty]", "dim"
    )


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
    """Yield the values of these keys that are no containers, outermost first."""
    if isinstance(value, dict) and depth:
        for key in keys:
            if isinstance(value.get(key), (str, bytes)):
                yield value[key]
        for inner in value.values():
            yield from _values_of(inner, keys, depth - 1)


def describe_media(part: Part) -> str:
    """Name a picture, a sound or a file: ``[image/png, 12.3 kB]``."""
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
    """Return a block of no special kind: its words if it has some, else what it is and its size."""
    raw = part.raw
    for key in ("refusal", "text", "content", "summary"):
        if isinstance(raw, dict) and isinstance(raw.get(key), str) and raw[key]:
            return f"[{part.flavor}] {raw[key]}"
    return f"[{part.flavor or 'block'}, {size(len(as_json(raw)))}]"


def margin_notes(message: Message) -> Iterator[MarginNote]:
    """Yield what a message says outside of its content: reasoning, a refusal, an older call."""
    raw = message.raw if isinstance(message.raw, dict) else {}
    for envelope in ("data", "kwargs"):
        if isinstance(raw.get(envelope), dict):
            raw = raw[envelope]
    more = raw.get("additional_kwargs")
    for fields in (raw, more if isinstance(more, dict) else {}):
        for key in ("reasoning_content", "reasoning"):
            if isinstance(fields.get(key), str) and fields[key]:
                yield MarginNote(fields[key], "dim")
        if isinstance(fields.get("refusal"), str) and fields["refusal"]:
            yield MarginNote(f"[refusal] {fields['refusal']}", "yellow")
        if isinstance(fields.get("function_call"), dict):
            yield MarginNote(f"[function_call] {as_json(fields['function_call'])}", "dim")


T_co = TypeVar("T_co", covariant=True)


class TranscriptLayout(Protocol[T_co]):
    """The pieces of a conversation, each as whatever it is shown with: a row, an element.

    What closes a call (``result``, ``no_result``, ``closed``) comes right behind it, unless
    ``set_apart`` said that a result stands under no call; a ``mark`` is for what came before it.
    """

    def turn(self, number: int, place: str) -> Iterator[T_co]:
        """Head a turn."""

    def left_out(self, what: str) -> Iterator[T_co]:
        """Return what of the history is not shown."""

    def said(self, text: str, role: str) -> Iterator[T_co]:
        """Return words, and who said them."""

    def note(self, note: MarginNote) -> Iterator[T_co]:
        """Return what stands beside the conversation."""

    def call(self, name: str, arguments: dict[str, Any] | str, by: str = "") -> Iterator[T_co]:
        """Return a call."""

    def result(
        self,
        title: str,
        text: str,
        pictures: Sequence[str] = (),
        where: str = "",
        *,
        failed: bool = False,
    ) -> Iterator[T_co]:
        """Close a call with what came back, or give a result that stands alone."""

    def set_apart(self) -> Iterator[T_co]:
        """Set a result apart that stands under no call."""

    def named(self, name: str) -> str:
        """Return a name from the conversation, fit to stand in a title."""

    def broken(self, title: str, found: Sequence[Finding]) -> str:
        """Return a title with the mark of something broken, and the code if one was found."""

    def no_result(self, found: Sequence[Finding], call: str | None) -> Iterator[T_co]:
        """Close a call that nothing came back for."""

    def closed(self, word: str) -> Iterator[T_co]:
        """Close a call with what is known instead of a result."""

    def checkpoint(self, text: str) -> Iterator[T_co]:
        """Mark a place to go back to."""

    def mark(self, found: Finding, indent: str) -> Iterator[T_co]:
        """Mark a broken place."""


T = TypeVar("T")
Marks = Mapping[str, Sequence[Finding]]
_NO_RESULT = (ORPHAN_CALL.code, PARTIAL_BATCH.code)
_TWINS = ("twin", "raw-twin")


def last_turns(messages: Sequence[Any], dialect: str, count: int) -> range:
    """Choose the messages of the last turns."""
    if count < 0:
        raise UsageError("the number of turns cannot be negative")
    starts = turn_starts(new_dialect(profile_named(dialect).dialect).read(messages))
    start = len(messages) if count == 0 else starts[max(0, len(starts) - count)]
    return range(start, len(messages))


def turns_around(messages: Sequence[Any], dialect: str, place: str | int, turns: int = 1) -> range:
    """Choose the turn at a place (or message number), and some turns on both sides of it."""
    at = _number(place)
    if not 0 <= at < len(messages):
        raise UsageError(f"no message {at}: there are {len(messages)}, counted from 0")
    starts = turn_starts(new_dialect(profile_named(dialect).dialect).read(messages))
    turn = bisect_right(starts, at) - 1
    behind = turn + turns + 1
    stop = starts[behind] if behind < len(starts) else len(messages)
    return range(starts[max(0, turn - turns)], stop)


def _number(place: str | int) -> int:
    steps = str(place).split(".")
    number = next((step for step in steps[:2] if is_index(step)), None)
    if number is None:
        raise UsageError("a place starts with the number of a message: messages.29.content.1")
    return int(number)


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


class MessageTranscript(Generic[T]):
    """One list being shown: its view, its pairing, and what was found in it."""

    def __init__(
        self, messages: Sequence[Any], dialect: str, marks: Marks, page: TranscriptLayout[T]
    ) -> None:
        profile = profile_named(dialect)
        self.dialect: Dialect = new_dialect(profile.dialect)
        self.view = self.dialect.read(messages)
        self.key = profile.list_key
        self.page = page
        self.paired: PairedCalls = pair_messages(
            self.view,
            profile.layout,
            self.dialect.keys,
            self.dialect.is_placeholder,
            self.dialect.same_result,
        )
        self.by_message, self.elsewhere = _sort_marks(marks, len(self.view))
        self.chosen = range(len(self.view))

    def lines(self, chosen: range | None) -> Iterator[T]:
        """Return the chosen messages, turn by turn, with what lies before and behind them."""
        self.chosen = self.chosen if chosen is None else chosen
        for found in self.elsewhere:
            yield from self.page.mark(found, "")
        starts = turn_starts(self.view)
        yield from self._left_out(starts, range(self.chosen.start), "earlier")
        turns = {start: number for number, start in enumerate(starts, 1)}
        yield from self.body(turns)
        yield from self._left_out(starts, range(self.chosen.stop, len(self.view)), "later")

    def body(self, turns: Mapping[int, int] | None = None) -> Iterator[T]:
        """Return the chosen messages; ``turns`` numbers those before which a turn is headed."""
        call = result = 0
        for position, message in enumerate(self.view):
            if position in self.chosen:
                if turns and position in turns:
                    place = str(Place.in_list(self.key, position))
                    yield from self.page.turn(turns[position], place)
                yield from self.message(message, call, result)
            call += sum(part.kind == CALL for part in message.parts)
            result += sum(part.kind == RESULT for part in message.parts)

    def _left_out(self, starts: list[int], left: range, word: str) -> Iterator[T]:
        if left:
            turns = max(1, sum(start in left for start in starts))
            yield from self.page.left_out(f"{turns} {word} turn{'s' * (turns != 1)}")

    def message(self, message: Message, call: int, result: int) -> Iterator[T]:
        """Yield one message; ``call`` and ``result`` number its first ones in the whole list."""
        marks = self._marks(message)
        page = self.page
        notes = list(margin_notes(message))
        if message.flaw:
            notes.append(MarginNote(f"[malformed message: {message.flaw}]", "yellow"))
        elif not message.parts and not notes:
            notes.append(MarginNote("[empty message]", "dim"))
        for note in notes:
            yield from page.note(note)
        for part in message.parts:
            found = marks.pop(part.at, [])
            if part.kind == CALL:
                yield from self._call(part, call, found)
                call += 1
            elif part.kind == RESULT:
                yield from self._result(part, result, found)
                result += 1
            else:
                yield from self._part(message, part, is_marked=bool(found))
                yield from self._found(found, "")
        for left in marks.values():
            yield from self._found(left, "")

    def _marks(self, message: Message) -> dict[tuple[Any, ...], list[Finding]]:
        """Return what was found in a message by the part it belongs to, the deepest that fits."""
        marks: dict[tuple[Any, ...], list[Finding]] = {}
        known = {part.at for part in message.parts}
        for at, findings in self.by_message.get(message.index, ()):
            home = next((at[:n] for n in range(len(at), -1, -1) if at[:n] in known), None)
            marks.setdefault((None,) if home is None else home, []).extend(findings)
        return marks

    def _found(self, found: Sequence[Finding], indent: str) -> Iterator[T]:
        for finding in found:
            yield from self.page.mark(finding, indent)

    def _part(self, message: Message, part: Part, *, is_marked: bool) -> Iterator[T]:
        page = self.page
        if part.kind == TEXT and part.text.strip():
            yield from page.said(part.text, message.role)
        elif part.kind == TEXT:
            yield from page.note(MarginNote("[empty text]", "dim")) if is_marked else ()
        elif part.kind == REASONING:
            yield from page.note(describe_reasoning(part.raw))
        elif part.kind == MEDIA:
            yield from page.said(describe_media(part), message.role)
        elif part.kind == SERVER_CALL:
            yield from page.call(*describe_call(self.dialect, part), by=" by the provider")
        elif part.kind == SERVER_RESULT:
            inner = part.raw.get("toolResult", part.raw)
            text = as_text(inner.get("content") if isinstance(inner, dict) else inner)
            yield from page.result("result by the provider", text)
        elif part.kind == BROKEN:
            yield from page.note(MarginNote(f"[unreadable: {part.flavor}]", "yellow"))
        elif part.flavor not in _TWINS:
            yield from page.said(describe_other(part), message.role)
        elif any(part is twin for twin in unlisted_twins(message)):
            yield from page.call(*describe_call(self.dialect, part))

    def _call(self, part: Part, number: int, found: Sequence[Finding]) -> Iterator[T]:
        yield from self.page.call(*describe_call(self.dialect, part))
        answer = self.paired.pairing.answers[number]
        if answer == NOWHERE:
            codes = [finding for finding in found if finding.code in _NO_RESULT]
            yield from self.page.no_result(codes, part.id)
            yield from self._found([one for one in found if one not in codes], "   ")
            return
        result = self.paired.results[answer]
        where = ""
        if answer in self.paired.pairing.displaced:
            where = f", from {Place.in_list(self.key, result.home, result.at)}"
        home = self._marks(self.view[result.home]).get(result.at, [])
        yield from self._answer(result, "result", where)
        yield from self._found([*found, *home], "   ")

    def _result(self, part: Part, number: int, found: Sequence[Finding]) -> Iterator[T]:
        """Yield a result that stands under no call shown here."""
        pairing = self.paired.pairing
        verdict, owner = pairing.verdicts[number], pairing.owners[number]
        call = self.paired.calls[owner] if owner != NOWHERE else None
        if verdict == ANSWER and call is not None and call.home in self.chosen:
            return
        name = self.page.named(call.name if call and call.name else "a call")
        if verdict == ANSWER:
            title = f"result of {name}, called elsewhere"
        elif verdict == ORPHAN:
            title = "result without a call"
            title = self.page.broken(title, found) if found else title
        else:
            title = self.page.broken(f"second result of {name}", found)
        yield from self.page.set_apart()
        yield from self._answer(part, title, "")
        yield from self._found(found, "   ")

    def _answer(self, part: Part, title: str, where: str) -> Iterator[T]:
        text = self.dialect.result_text(part)
        pictures = [describe_media(piece) for piece in self.dialect.result_media(part)]
        yield from self.page.result(title, text, pictures, where, failed=_has_failed(part.raw))


def _has_failed(raw: Any) -> bool:
    """Whether a result says of itself that it is an error."""
    layers = [raw, *(raw.get(key) for key in ("toolResult", "data", "kwargs"))]
    return any(
        isinstance(layer, dict)
        and (layer.get("is_error") is True or layer.get("status") in ("error", "failed"))
        for layer in layers
    )


def _sort_marks(
    marks: Marks, total: int
) -> tuple[dict[int, list[tuple[tuple[Any, ...], Sequence[Finding]]]], list[Finding]]:
    """Sort marks by the message they are in; what is in none comes apart."""
    by_message: dict[int, list[tuple[tuple[Any, ...], Sequence[Finding]]]] = {}
    elsewhere: list[Finding] = []
    for place, found in marks.items():
        at = Place.parse(place)
        if at.message is not None and at.message < total:
            by_message.setdefault(at.message, []).append((at.path, found))
        else:
            elsewhere.extend(found)
    return by_message, elsewhere


ShownPart = dict[str, Any]


class PartsLayout:
    """A layout that gathers parts as plain values, each call with what closes it."""

    def __init__(self) -> None:
        self.stands_alone = False

    def turn(self, number: int, place: str) -> Iterator[ShownPart]:
        """Head a turn."""
        yield {"kind": "turn", "number": number, "place": place}

    def left_out(self, what: str) -> Iterator[ShownPart]:
        """Return what is not shown."""
        yield {"kind": "note", "text": what}

    def said(self, text: str, role: str) -> Iterator[ShownPart]:
        """Return words, and who said them."""
        yield {"kind": "text", "text": text, "role": role}

    def note(self, note: MarginNote) -> Iterator[ShownPart]:
        """Return what stands beside the conversation."""
        yield {"kind": "note", "text": note.text, "is_warning": note.style == "yellow"}

    def call(self, name: str, arguments: dict[str, Any] | str, by: str = "") -> Iterator[ShownPart]:
        """Return a call."""
        part: ShownPart = {"kind": "call", "tool": name, "arguments": arguments, "state": "open"}
        yield {**part, "by": by.strip()} if by else part

    def result(
        self,
        title: str,
        text: str,
        pictures: Sequence[str] = (),
        where: str = "",
        *,
        failed: bool = False,
    ) -> Iterator[ShownPart]:
        """Close a call, or return a result that stands alone."""
        state = "late" if where or title.startswith("late") else "answered"
        fields = {"title": title + where, "text": text, "pictures": [*pictures], "failed": failed}
        if self.stands_alone:
            self.stands_alone = False
            yield {"kind": "result", "state": _state_alone(title), **fields}
        else:
            yield {"kind": "answer", "state": state, **fields}

    def set_apart(self) -> Iterator[ShownPart]:
        """Set the next result apart."""
        self.stands_alone = True
        yield from ()

    def named(self, name: str) -> str:
        """Return a name as it is: whoever shows it makes it safe."""
        return name

    def broken(self, title: str, found: Sequence[Finding]) -> str:
        """Return the title; what was found is marked beside it."""
        return title

    def no_result(self, found: Sequence[Finding], call: str | None) -> Iterator[ShownPart]:
        """Close a call that nothing came back for."""
        yield {"kind": "answer", "state": "open", "title": "no result", "text": ""}
        for one in found:
            yield from self.mark(one, "")

    def closed(self, word: str) -> Iterator[ShownPart]:
        """Close a call with what is known instead of a result."""
        yield {"kind": "answer", "state": "closed", "title": word, "text": ""}

    def checkpoint(self, text: str) -> Iterator[ShownPart]:
        """Mark a place to go back to."""
        yield {"kind": "checkpoint", "text": text}

    def mark(self, found: Finding, indent: str) -> Iterator[ShownPart]:
        """Mark a broken place."""
        mark = {"code": found.code, "severity": found.severity, "message": found.message}
        yield {"kind": "mark", **mark}


def _state_alone(title: str) -> str:
    if "second result" in title or "another result" in title:
        return "duplicate"
    return "orphan" if "without a call" in title else "elsewhere"


def join_results(parts: Iterable[ShownPart]) -> list[ShownPart]:
    """Put what closes a call into it, and marks to what they are of."""
    found: list[ShownPart] = []
    for part in parts:
        last = found[-1] if found else None
        if part["kind"] == "answer" and last is not None and last["kind"] == "call":
            last["state"] = part.pop("state")
            del part["kind"]
            last["result"] = part
        elif part["kind"] == "mark":
            if last is None:
                found.append({"kind": "note", "text": "", "marks": [part]})
            else:
                last.setdefault("marks", []).append(part)
        else:
            found.append(part)
    return found
