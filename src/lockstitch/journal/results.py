"""The results of a reply's calls, in the spelling of the dialect that the reply is in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from lockstitch.conversation.pairing import GROUPED
from lockstitch.conversation.parts import RESULT, USER, Message, Part
from lockstitch.dialects import script
from lockstitch.dialects.base import Dialect, as_text
from lockstitch.dialects.exchange import TextResult
from lockstitch.dialects.placeholders import (
    CANCELLED,
    NOT_STARTED,
    RUNNING,
    TIMED_OUT,
    UNKNOWN_OUTCOME,
    WAITING,
)
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.registry import CLASSES, exchange_of, new_dialect
from lockstitch.dialects.render import read_turns
from lockstitch.dialects.replies import call_parts
from lockstitch.dialects.script import Piece, TextPiece
from lockstitch.journal.events import Denied, Finished
from lockstitch.journal.records import WIDEST, Large, text_ends
from lockstitch.journal.state import CallState

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
    """What a call is answered with: a text, or ``content`` in the spelling of ``dialect``."""

    text: str
    failed: bool = False
    content: Any = None
    dialect: str = ""


def answer_to(call: CallState, payload: Any) -> ResultContent:
    """Return what became of a call; ``payload`` is what its outcome carries, decoded."""
    if call.is_news:
        return ResultContent(WAITING, failed=True)
    if call.outcome is None:
        return ResultContent(_UNANSWERED.get(call.status, NOT_STARTED), failed=True)
    if isinstance(call.outcome.fact, Denied):
        reason = f" The reason: {payload}" if isinstance(payload, str) and payload else ""
        return ResultContent(DENIED + reason, failed=True)
    assert isinstance(call.outcome.fact, Finished)  # noqa: S101 - the fold knows these two
    return answer_in(call.outcome.fact, payload)


def answer_in(fact: Finished, payload: Any) -> ResultContent:
    """Return what an outcome tells; what no tool said has a text of its own."""
    failed = fact.outcome != "ok"
    if payload is None and fact.outcome in _CONCLUDED:
        return ResultContent(_CONCLUDED[fact.outcome], failed=failed)
    dialect = known(fact.dialect)
    if dialect and not isinstance(payload, str):
        return ResultContent("", failed=failed, content=payload, dialect=dialect)
    return ResultContent(as_text(payload), failed=failed)


def shorten_result(answer: ResultContent, limit: int, call: CallState) -> ResultContent:
    """Return an answer of few characters, with a pointer to all of it; media become notes."""
    text = "\n".join(_words(piece) for piece in _pieces(answer))
    if len(text) <= limit or call.outcome is None:
        return ResultContent(text, failed=answer.failed) if answer.dialect else answer
    head, tail = _ends(limit)
    note = LEFT_OUT.format(count=len(text) - head - tail, seq=call.outcome.seq)
    parts = (text[:head], note, text[len(text) - tail :])
    return ResultContent("\n".join(part for part in parts if part), failed=answer.failed)


def shorten_large_text(
    fact: Finished, large: Large, limit: int, call: CallState
) -> ResultContent | None:
    """Return a few characters of a text that is kept apart, if it is much longer than that.

    How many are left out is told by its bytes: nobody counts what is not read.
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
    """Return how many characters of a text's beginning and of its end are sent."""
    head = max(limit * 2 // 3, 0)
    return head, max(limit - head, 0)


def late_pieces(call: CallState, answer: ResultContent) -> list[Piece]:
    """Return the words for a result that came when its call was answered already."""
    label = " to ".join(part for part in (call.id, call.name) if part) or "without a name"
    return [TextPiece(LATE.format(label=label)), *_pieces(answer)]


def _pieces(answer: ResultContent) -> list[Piece]:
    """Return an answer in no dialect's spelling."""
    if not answer.dialect:
        return [TextPiece(answer.text)]
    turns = read_turns([said_as(answer.dialect, answer.content)], answer.dialect)
    return [piece for turn in turns for piece in turn.pieces]


@lru_cache
def known(dialect: str) -> str:
    """Return the plain name of a dialect; "" for none, and for one that this version lacks."""
    name = dialect.partition(":")[0]
    return name if name in CLASSES else ""


def said_as(dialect: str, content: Any) -> Any:
    """Make a message of the user's around content in a dialect's spelling."""
    name = known(dialect)
    if not name:
        return {"role": "user", "content": content}
    return exchange_of(name).user_message(content)


def with_results(
    name: str, messages: Sequence[Any], ids: Sequence[str], answers: Sequence[ResultContent]
) -> list[Any]:
    """Return a reply's messages with the results of its calls behind them, by their order.

    A call that the dialect cannot answer with what there is stays open, for the check to find.
    """
    is_text = not any(answer.dialect for answer in answers)
    if is_text and all(ids) and exchange_of(name).results_by_id:
        return [*messages, *_written(name, ids, answers)]
    dialect = new_dialect(name)
    pairs = zip(call_parts(dialect.read(messages)), answers, strict=False)
    made = (_result(dialect, call, answer) for call, answer in pairs)
    results = [result for result in made if result is not None]
    made_messages = _result_messages(dialect, results)
    return [*messages, *map(dialect.rebuild, made_messages)]


def _written(name: str, ids: Sequence[str], answers: Sequence[ResultContent]) -> list[Any]:
    """Write results of text for calls that are known by their ids, without a look at the calls."""
    pairs = zip(ids, answers, strict=True)
    exchange = exchange_of(name)
    if exchange.takes_blank:
        return exchange.plain_results(
            TextResult(call, "", answer.text, answer.failed) for call, answer in pairs
        )
    writer = exchange.writer(profile_named(name))
    writer.results(
        [
            script.NeutralResult(
                script.NeutralCall(call, "", None), 0, [TextPiece(answer.text)], answer.failed
            )
            for call, answer in pairs
        ]
    )
    return writer.messages


def _result_messages(dialect: Dialect, results: list[Part]) -> list[Message]:
    if dialect.layout == GROUPED:
        return [dialect.new_message(USER, results)] if results else []
    return [dialect.result_message(result) for result in results]


def _result(dialect: Dialect, call: Part, answer: ResultContent) -> Part | None:
    if answer.dialect != dialect.name:
        text = "\n".join(_words(piece) for piece in _pieces(answer))
        return dialect.answer(call, text, failed=answer.failed)
    content = answer.content
    if isinstance(content, dict) and str(content.get("type")).endswith("_output"):
        return Part(RESULT, {**content, "call_id": call.id}, id=call.id, flavor=content["type"])
    made = dialect.answer(call, "", failed=answer.failed)
    if made is None:
        return None
    payload = content if dialect.is_payload(content) else dialect.as_payload(content)
    return dialect.with_payload(made, payload)


def _words(piece: Piece) -> str:
    return piece.text if isinstance(piece, TextPiece) else piece.note
