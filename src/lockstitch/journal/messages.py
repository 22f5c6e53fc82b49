"""Convert between a provider's messages and the events of a journal.

``import_events`` turns a message list into events: what was said, replied, and returned by tools.
``with_results`` appends the results of a reply's calls to it, in the dialect of that reply.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lockstitch.conversation.pairing import ANSWER, FLAT, GROUPED, pair_messages
from lockstitch.conversation.parts import ASSISTANT, CALL, RESULT, SYSTEM, USER, Message, Part
from lockstitch.dialects import script
from lockstitch.dialects.base import Dialect, as_text
from lockstitch.dialects.exchange import TextResult, call_parts, calls_in, exchange_of, provider_of
from lockstitch.dialects.placeholders import (
    CANCELLED,
    NOT_STARTED,
    RUNNING,
    TIMED_OUT,
    UNKNOWN_OUTCOME,
    WAITING,
)
from lockstitch.dialects.profiles import CLASSES, new_dialect, profile_named
from lockstitch.dialects.render import is_failed, read_turns
from lockstitch.dialects.script import Piece, TextPiece
from lockstitch.journal.events import (
    AskedCall,
    Denied,
    Event,
    Finished,
    Replied,
    Said,
    text_payload,
)
from lockstitch.journal.records import WIDEST, Large, text_ends
from lockstitch.journal.state import CallState
from lockstitch.repair.pairing import ORPHAN_LABEL

DENIED = "[lockstitch] This tool call was not allowed to run."
LEFT_OUT = "[lockstitch] {count} characters are left out here; record {seq} has all of it."
ABOUT = "[lockstitch] About {count} bytes are left out here; record {seq} has all of it."
LATE = "[lockstitch] A result of the tool call {label} came in later:"
_CONCLUDED = {
    "cancelled": CANCELLED,
    "timed-out": TIMED_OUT,
    "unknown": UNKNOWN_OUTCOME,
    "not-started": NOT_STARTED,
}
_UNANSWERED = {"waiting": WAITING, "started": RUNNING}


class ResultContent(Struct):
    """The answer to a call: a text, or ``content`` in the format of ``dialect``."""

    text: str
    failed: bool = False
    content: Any = None
    dialect: str = ""


def answer_to(call: CallState, payload: Any) -> ResultContent:
    """Return what to tell the model about a call; ``payload`` is its outcome's, decoded."""
    if call.is_late:
        return ResultContent(WAITING, failed=True)
    if call.outcome is None:
        return ResultContent(_UNANSWERED.get(call.status, NOT_STARTED), failed=True)
    if isinstance(call.outcome.fact, Denied):
        reason = f" The reason: {payload}" if isinstance(payload, str) and payload else ""
        return ResultContent(DENIED + reason, failed=True)
    assert isinstance(call.outcome.fact, Finished)  # noqa: S101 - the fold knows these two
    return answer_in(call.outcome.fact, payload)


def answer_in(fact: Finished, payload: Any) -> ResultContent:
    """Return the answer for an outcome; an outcome that no tool gave has a standard text."""
    failed = fact.outcome != "ok"
    if payload is None and fact.outcome in _CONCLUDED:
        return ResultContent(_CONCLUDED[fact.outcome], failed=failed)
    dialect = known(fact.dialect)
    if dialect and not isinstance(payload, str):
        return ResultContent("", failed=failed, content=payload, dialect=dialect)
    return ResultContent(as_text(payload), failed=failed)


def shorten_result(answer: ResultContent, limit: int, call: CallState) -> ResultContent:
    """Return an answer cut to ``limit`` characters, with a pointer to the whole.

    Media become notes. An answer that is short enough stays whole.
    """
    text = words_of(_pieces(answer))
    if len(text) <= limit or call.outcome is None:
        return ResultContent(text, failed=answer.failed) if answer.dialect else answer
    head, tail = _ends(limit)
    note = LEFT_OUT.format(count=len(text) - head - tail, seq=call.outcome.seq)
    parts = (text[:head], note, text[len(text) - tail :])
    return ResultContent("\n".join(part for part in parts if part), failed=answer.failed)


def shorten_large_text(
    fact: Finished, large: Large, limit: int, call: CallState
) -> ResultContent | None:
    """Return the ends of a text in a blob, or None if it is not much longer than ``limit``.

    The note counts what was left out in bytes, because the characters in the middle are never read.
    """
    size = large.sizes([fact.blob])[fact.blob]
    head, tail = _ends(limit)
    if call.outcome is None or size <= WIDEST * (limit + 200):
        return None
    found = text_ends(large, fact.blob, head, tail)
    if found is None:
        return None
    sent = sum(len(text.encode("utf-8", "replace")) for text in found)
    note = ABOUT.format(count=size - sent, seq=call.outcome.seq)
    text = "\n".join(part for part in (found[0], note, found[1]) if part)
    return ResultContent(text, failed=fact.outcome != "ok")


def _ends(limit: int) -> tuple[int, int]:
    """Return how many characters to keep at the beginning and at the end of a text."""
    head = max(limit * 2 // 3, 0)
    return head, max(limit - head, 0)


def late_pieces(call: CallState, answer: ResultContent) -> list[Piece]:
    """Return a result that arrived after its call was answered, with a label that says so."""
    label = " to ".join(part for part in (call.id, call.name) if part) or "without a name"
    return [TextPiece(LATE.format(label=label)), *_pieces(answer)]


def _pieces(answer: ResultContent) -> list[Piece]:
    """Return an answer as pieces that belong to no dialect."""
    if not answer.dialect:
        return [TextPiece(answer.text)]
    turns = read_turns([said_as(answer.dialect, answer.content)], answer.dialect)
    return [piece for turn in turns for piece in turn.pieces]


@lru_cache
def known(dialect: str) -> str:
    """Return the plain name of a dialect; "" for none, or for one that this version lacks."""
    name = dialect.partition(":")[0]
    return name if name in CLASSES else ""


def said_as(dialect: str, content: Any) -> Any:
    """Return a user message with this content in the format of a dialect."""
    name = known(dialect)
    if not name:
        return {"role": "user", "content": content}
    return exchange_of(name).user_message(content)


def with_results(
    name: str, messages: Sequence[Any], ids: Sequence[str], answers: Sequence[ResultContent]
) -> list[Any]:
    """Return a reply's messages followed by the results of its calls, in the order of the calls.

    A call that the dialect has no way to answer stays open; the check finds it later.
    """
    is_text = not any(answer.dialect for answer in answers)
    exchange = exchange_of(name)
    if is_text and all(ids) and exchange.results_by_id:
        # Calls that are known by their ids need not be looked at.
        if exchange.takes_blank:
            texts = (TextResult(n, "", a.text, a.failed) for n, a in zip(ids, answers, strict=True))
            return [*messages, *exchange.plain_results(texts)]
        writer = exchange.writer(profile_named(name))
        calls = (script.NeutralCall(call, "", None) for call in ids)
        writer.results(
            [
                script.NeutralResult(call, 0, [TextPiece(answer.text)], answer.failed)
                for call, answer in zip(calls, answers, strict=True)
            ]
        )
        return [*messages, *writer.messages]
    dialect = new_dialect(name)
    pairs = zip(call_parts(dialect.read(messages)), answers, strict=False)
    made = (_result(dialect, call, answer) for call, answer in pairs)
    results = [result for result in made if result is not None]
    if dialect.layout != GROUPED:
        added = [dialect.result_message(result) for result in results]
    else:
        added = [dialect.new_message(USER, results)] if results else []
    return [*messages, *map(dialect.rebuild, added)]


def _result(dialect: Dialect, call: Part, answer: ResultContent) -> Part | None:
    if answer.dialect != dialect.name:
        return dialect.answer(call, words_of(_pieces(answer)), failed=answer.failed)
    content = answer.content
    if isinstance(content, dict) and str(content.get("type")).endswith("_output"):
        return Part(RESULT, {**content, "call_id": call.id}, id=call.id, flavor=content["type"])
    made = dialect.answer(call, "", failed=answer.failed)
    if made is None:
        return None
    payload = content if dialect.is_payload(content) else dialect.as_payload(content)
    return dialect.with_payload(made, payload)


def words_of(pieces: Iterable[Piece]) -> str:
    """Return the text of all pieces; media are replaced by notes."""
    return "\n".join(one.text if isinstance(one, TextPiece) else one.note for one in pieces)


_ENCODE = msgspec.json.Encoder().encode


class Imported(Struct):
    """The events of a message list, each with the index of the first and last message it came from.

    ``system`` are the messages that are not part of the conversation. ``unpaired`` counts the
    results that answer no call of the list.
    """

    events: list[Event]
    homes: list[int]
    ends: list[int]
    system: list[Any]
    unpaired: int = 0


def import_events(raw: Sequence[Any], dialect: str, *, keep_unpaired: bool = False) -> Imported:
    """Convert a valid message list to events; their projection says the same as the list.

    Results that answer no call, which only an invalid list has, are left out. With
    ``keep_unpaired`` they are kept as labelled text of the user's.
    """
    view = new_dialect(profile_named(dialect).dialect)
    return _Import(view, raw, provider_of(dialect), keep_unpaired=keep_unpaired).run()


class _Import:
    def __init__(
        self, dialect: Dialect, raw: Sequence[Any], provider: str, *, keep_unpaired: bool
    ) -> None:
        self.dialect = dialect
        self.keep_unpaired = keep_unpaired
        self.provider = provider
        self.messages = dialect.read(raw)
        paired = pair_messages(self.messages, dialect.layout, dialect)
        self.answers = {id(one.part): one.answer for one in paired.calls}
        self.answering = {id(one.part) for one in paired.results if one.verdict == ANSWER}
        self.out = Imported([], [], [], [])

    def run(self) -> Imported:
        """Convert the list, one reply at a time."""
        for group in self._groups():
            first = group[0]
            if first.role == SYSTEM:
                self.out.system += [message.raw for message in group]
            elif first.role == ASSISTANT:
                self._replied(group)
            else:
                self._said(first)
        return self.out

    def _groups(self) -> Iterator[list[Message]]:
        """Yield each message in its own group, except that the items of one reply stay together."""
        is_flat = self.dialect.layout == FLAT
        for role, group in groupby(self.messages, key=lambda message: message.role):
            if is_flat and role == ASSISTANT:
                yield list(group)
            else:
                yield from ([message] for message in group)

    def _put(self, event: Event, home: int, end: int | None = None) -> None:
        self.out.events.append(event)
        self.out.homes.append(home)
        self.out.ends.append(home if end is None else end)

    def _said(self, message: Message) -> None:
        parts = [inner for part in message.parts for inner in self._spoken(part)]
        if not parts:
            return
        if len(parts) == 1 and isinstance(parts[0].raw, str):
            self._put(Said(payload=text_payload(parts[0].raw)), message.index)
            return
        note = self.dialect.note_block
        blocks = [
            p.raw if isinstance(p.raw, dict) else note(p.text or as_text(p.raw)) for p in parts
        ]
        self._put(Said(payload=_payload(blocks), dialect=self.dialect.name), message.index)

    def _spoken(self, part: Part) -> list[Part]:
        """Return the parts that are the user's words; a result is only if it answers no call."""
        if part.kind != RESULT:
            return [part]
        if id(part) in self.answering:
            return []
        self.out.unpaired += 1
        if not self.keep_unpaired:
            return []
        label = ORPHAN_LABEL.format(id=part.id or "without an id")
        text = f"{label}\n{self.dialect.result_text(part)}"
        return [self.dialect.text_part(text, USER), *self.dialect.result_media(part)]

    def _replied(self, group: list[Message]) -> None:
        raw = [message.raw for message in group]
        asked = tuple(AskedCall(*call) for call in calls_in(self.dialect.name, raw))
        payload = _payload(raw if len(raw) > 1 else raw[0])
        reply = Replied(
            dialect=self.dialect.name, provider=self.provider, calls=asked, payload=payload
        )
        self._put(reply, group[0].index, group[-1].index)
        seq = len(self.out.events)
        calls = [part for message in group for part in message.parts if part.kind == CALL]
        for index, call in enumerate(calls[: len(asked)]):
            self._finished(seq, index, call)

    def _finished(self, reply: int, index: int, call: Part) -> None:
        answer = self.answers[id(call)]
        if answer is None:
            return
        part = answer.part
        failed = is_failed(self.dialect, part)
        payload = self.dialect.payload(part)
        is_text = not isinstance(payload, list)
        fact = Finished(
            reply=reply,
            index=index,
            outcome="error" if failed else "ok",
            synthetic=self.dialect.is_placeholder(part),
            dialect="" if is_text else self.dialect.name,
            payload=text_payload(self.dialect.result_text(part)) if is_text else _payload(payload),
        )
        self._put(fact, part.home)


def _payload(value: Any) -> Raw:
    return Raw(_ENCODE(value))
