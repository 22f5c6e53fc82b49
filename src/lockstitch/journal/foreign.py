"""Everyday replies for another dialect than their own, read at once: words, calls and results.

All of it could be read by what knows every case; what is read here is the same. Reasoning is
sealed by its issuer and stays behind. Whatever is not everyday is left to the longer way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from lockstitch.conversation.parts import ASSISTANT
from lockstitch.dialects.fitting import Ids
from lockstitch.dialects.script import (
    NeutralCall,
    NeutralResult,
    NeutralTurn,
    Piece,
    TextPiece,
    is_blank_text,
)
from lockstitch.journal.everyday import SPELLINGS

_DECODE = msgspec.json.Decoder().decode
# Ids and names that every receiver takes as they are.
_PLAIN = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_NUL = "\\u0000"
# Who says in a result that its call failed.
MARKS_FAILURES = ("anthropic", "gemini", "bedrock")
Asked = tuple[Any, Any, Any]
Said = tuple[list[Any], list[Asked]]


class PlainTurn(NeutralTurn):
    """A turn that every receiver takes as it is, but for ids that were used before."""


def turn_of(
    issuer: str, value: Any, results: Sequence[tuple[str, str, str, bool]]
) -> NeutralTurn | None:
    """Read a reply; None if it takes a longer look.

    ``results`` are the id and name of each call as they were noted, the text of its result, and
    whether it failed.
    """
    read = _READERS.get(issuer)
    messages = SPELLINGS[issuer].replied(value) if read is not None else None
    if read is None or messages is None:
        return None
    try:
        words, asked = read(messages)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None
    if len(asked) != len(results) or not (words or asked) or not all(map(_is_said, words)):
        return None
    pieces: list[Piece] = [TextPiece(text) for text in words]
    calls: list[NeutralCall] = []
    answers: list[NeutralResult] = []
    for (number, name, arguments), (known, called, text, failed) in zip(
        asked, results, strict=True
    ):
        if number != known or name != called or type(arguments) is not dict or is_blank_text(text):
            return None
        if not _PLAIN(number) or not _PLAIN(name):
            return None
        call = NeutralCall(number, name, arguments)
        calls.append(call)
        is_told = failed and issuer in MARKS_FAILURES
        answers.append(NeutralResult(call, len(answers), [TextPiece(text)], is_told))
    return PlainTurn(ASSISTANT, pieces, calls, answers)


def may_stay(turns: Sequence[NeutralTurn | str], ids: Ids) -> bool:
    """Whether turns can be written as they are, and note the ids in them."""
    calls = [call.id for turn in turns if isinstance(turn, NeutralTurn) for call in turn.calls]
    if len(set(calls)) != len(calls):
        return False
    if ids.profile.ids_unique and any(call in ids.seen for call in calls):
        return False
    noted = dict.fromkeys(calls)
    ids.taken.update(noted)
    if ids.profile.ids_unique:
        ids.seen.update(noted)
    return True


def _is_said(text: Any) -> bool:
    return type(text) is str and not is_blank_text(text)


def _anthropic(messages: list[Any]) -> Said:
    words: list[Any] = []
    asked: list[Asked] = []
    for block in messages[0]["content"]:
        kind = block["type"]
        if kind == "text":
            words.append(block["text"])
        elif kind == "tool_use":
            asked.append((block["id"], block["name"], block["input"]))
        else:
            raise ValueError(kind)
    return words, asked


def _chat(messages: list[Any]) -> Said:
    message = messages[0]
    content = message.get("content")
    return [] if content is None else [content], [
        (call["id"], call["function"]["name"], _object(call["function"]["arguments"]))
        for call in message.get("tool_calls", ())
    ]


def _object(arguments: str) -> Any:
    if _NUL in arguments:
        raise ValueError("a NUL, which no object may hold")
    return _DECODE(arguments)


def _responses(messages: list[Any]) -> Said:
    words: list[Any] = []
    asked: list[Asked] = []
    said = 0
    for item in messages:
        kind = item["type"]
        if kind == "message" and not asked and not said:
            said += 1
            words += [_output(block) for block in item["content"]]
        elif kind == "function_call":
            asked.append((item["call_id"], item["name"], _object(item["arguments"])))
        else:
            raise ValueError(kind)
    return words, asked


def _output(block: Any) -> Any:
    if block["type"] != "output_text":
        raise ValueError("not an output_text")
    return block["text"]


def _gemini(messages: list[Any]) -> Said:
    words: list[Any] = []
    asked: list[Asked] = []
    for part in messages[0]["parts"]:
        if part.keys() == {"text"}:
            words.append(part["text"])
        elif part.keys() == {"functionCall"}:
            call = part["functionCall"]
            asked.append((call["id"], call["name"], call["args"]))
        else:
            raise ValueError("another part")
    return words, asked


def _bedrock(messages: list[Any]) -> Said:
    words: list[Any] = []
    asked: list[Asked] = []
    for block in messages[0]["content"]:
        if block.keys() == {"text"}:
            words.append(block["text"])
        elif block.keys() == {"toolUse"} and "type" not in block["toolUse"]:
            call = block["toolUse"]
            asked.append((call["toolUseId"], call["name"], call["input"]))
        else:
            raise ValueError("another block")
    return words, asked


_READERS: dict[str, Callable[[list[Any]], Said]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
    "bedrock": _bedrock,
}
