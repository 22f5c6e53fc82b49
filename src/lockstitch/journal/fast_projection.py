"""The everyday parts of a request, written at once: words, replies as they came, results of text.

A long conversation is made of little else. All of it could be written the long way round, by what
knows every case; what is written here is the same, and whatever is not everyday is left to that.

Everyday replies for another dialect than their own, read at once: words, calls and results.

All of it could be read by what knows every case; what is read here is the same. Reasoning is
sealed by its issuer and stays behind. Whatever is not everyday is left to the longer way.

What the facts of a view carry, decoded: many at once, since each has little of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from lockstitch.conversation.parts import ASSISTANT, USER
from lockstitch.dialects.fast import encoded_size
from lockstitch.dialects.fitting import Ids
from lockstitch.dialects.script import (
    NeutralCall,
    NeutralResult,
    NeutralTurn,
    Piece,
    TextPiece,
    is_blank_text,
)
from lockstitch.journal.events import Event, Partial, Replied, value_of
from lockstitch.journal.records import Large
from lockstitch.journal.state import Item, Late, ModelReply

Fields = dict[str, Any]
_CHAT = frozenset({"role", "content", "tool_calls"})
_CHAT_NULLS = ("refusal", "audio", "function_call")
_SEALED = "encrypted_content"
_PLAIN_ITEM = frozenset({"id", "type", "role", "content", "status"})
_PLAIN_CALL = frozenset({"id", "type", "call_id", "name", "arguments"})


class TextResult(NamedTuple):
    """The result of a call: the call's id and name, the text, and whether it failed."""

    id: str
    name: str
    text: str
    failed: bool


def _not_everyday(_: Any) -> None:
    return None


class Spelling(Struct, frozen=True):
    """How a dialect spells what is everyday.

    ``spoken`` writes a message of the user's with a text that is not blank. ``replied`` gives the
    messages in what a provider answered, None if a longer look is needed. ``results`` writes
    results of text for calls that have ids; where ``takes_blank`` is not set, none of blank text.
    ``asked`` gives the ids and names of the calls in messages where results go by those.
    """

    spoken: Callable[[str], Fields]
    replied: Callable[[Any], list[Fields] | None] = _not_everyday
    results: Callable[[Iterable[TextResult]], list[Fields]] | None = None
    asked: Callable[[list[Fields]], list[tuple[str, str]]] | None = None
    needs_ids: bool = True
    takes_blank: bool = True


def _anthropic_reply(value: Any) -> list[Fields] | None:
    if type(value) is not dict or value.get("role") != ASSISTANT or value.get("type") == "error":
        return None
    content = value.get("content")
    if type(content) is not list or not content or type(content[0]) is not dict:
        return None
    first = content[0]
    if first.get("type") != "tool_use" and not _is_text(first.get("text")):
        return None
    return [value if len(value) == 2 else {"role": ASSISTANT, "content": content}]  # noqa: PLR2004


def _chat_reply(value: Any) -> list[Fields] | None:
    """Take a message that holds words, calls or both, and nothing else but what says nothing."""
    message = value
    if type(value) is dict and "choices" in value:
        choices = value["choices"]
        found = choices[0] if type(choices) is list and choices else None
        message = found.get("message") if type(found) is dict else None
    if type(message) is not dict or message.get("role") != ASSISTANT:
        return None
    if not message.keys() <= _CHAT:
        if not all(map(_says_nothing, message.items())):
            return None
        message = {"role": ASSISTANT, **{k: v for k, v in message.items() if k in _CHAT}}
    content = message.get("content")
    if "tool_calls" not in message:
        return [message] if _is_text(content) else None
    calls = message["tool_calls"]
    if type(calls) is not list or not calls or not (content is None or _is_text(content)):
        return None
    return [message] if all(map(_is_plain_call, calls)) else None


def _says_nothing(field: tuple[str, Any]) -> bool:
    """Whether a field is one of a message's own, or one that is not handed back."""
    key, value = field
    return key in _CHAT or key == "annotations" or (key in _CHAT_NULLS and value is None)


def _is_plain_call(call: Any) -> bool:
    """Whether a call has nothing that is left behind: no place in a stream, no parsed form."""
    body = call.get("function") if type(call) is dict and "index" not in call else None
    return type(body) is dict and "parsed_arguments" not in body


def _is_text(value: Any) -> bool:
    return type(value) is str and value != ""


def _responses_reply(value: Any) -> list[Fields] | None:
    """Take the items of a response in which only calls have lost their status."""
    items = value.get("output") if type(value) is dict and "type" not in value else None
    if type(items) is not list:
        return None
    found: list[Fields] = []
    for item in items:
        kind = item.get("type") if type(item) is dict else None
        if kind == "message" and item.keys() <= _PLAIN_ITEM:
            blocks = item.get("content")
            if type(blocks) is not list or not blocks or not _is_worded(blocks[0]):
                return None
            found.append(item)
        elif kind == "function_call":
            kept = {key: inner for key, inner in item.items() if key != "status"}
            if not kept.keys() <= _PLAIN_CALL:
                return None
            found.append(kept)
        elif kind == "reasoning":
            kept = {key: inner for key, inner in item.items() if key != "status"}
            if "created_by" in kept or None in (kept.get("content", 0), kept.get(_SEALED, 0)):
                return None
            found.append(kept)
        else:
            return None
    return found or None


def _gemini_reply(value: Any) -> list[Fields] | None:
    candidates = value.get("candidates") if type(value) is dict else None
    found = candidates[0] if type(candidates) is list and candidates else None
    content = found.get("content") if type(found) is dict and "parts" not in found else None
    if type(content) is not dict or content.get("role") != "model" or len(content) != 2:  # noqa: PLR2004
        return None
    parts = content.get("parts")
    if type(parts) is not list or not parts:
        return None
    plain = all(_is_worded(part) or type(part.get("functionCall")) is dict for part in parts)
    return [content] if plain else None


def _bedrock_reply(value: Any) -> list[Fields] | None:
    output = value.get("output") if type(value) is dict else None
    message = output.get("message") if type(output) is dict else None
    if type(message) is not dict or message.get("role") != ASSISTANT or len(message) != 2:  # noqa: PLR2004
        return None
    content = message.get("content")
    if type(content) is not list or not content:
        return None
    return [message] if all(_is_worded(b) or "toolUse" in b for b in content) else None


def _is_worded(block: Any) -> bool:
    """Whether a block has a text; raises nothing for what is no object."""
    return type(block) is dict and _is_text(block.get("text"))


def _asked_in_items(items: list[Fields]) -> list[tuple[str, str]]:
    calls = (item for item in items if item["type"] == "function_call")
    return [(item.get("call_id", ""), item.get("name", "")) for item in calls]


def _asked_in_parts(messages: list[Fields]) -> list[tuple[str, str]]:
    calls = (part["functionCall"] for part in messages[0]["parts"] if "functionCall" in part)
    return [(call.get("id", ""), call.get("name", "")) for call in calls]


def _anthropic_results(results: Iterable[TextResult]) -> list[Fields]:
    return [{"role": USER, "content": [_anthropic_result(result) for result in results]}]


def _anthropic_result(result: TextResult) -> Fields:
    block: Fields = {"type": "tool_result", "tool_use_id": result.id, "content": result.text}
    if result.failed:
        block["is_error"] = True
    return block


def _chat_results(results: Iterable[TextResult]) -> list[Fields]:
    """Write results for OpenAI Chat, which has no mark for a failed one."""
    return [{"role": "tool", "tool_call_id": r.id, "content": r.text} for r in results]


def _responses_results(results: Iterable[TextResult]) -> list[Fields]:
    kind = "function_call_output"
    return [{"type": kind, "call_id": result.id, "output": result.text} for result in results]


def _gemini_results(results: Iterable[TextResult]) -> list[Fields]:
    return [{"role": USER, "parts": [_gemini_result(result) for result in results]}]


def _gemini_result(result: TextResult) -> Fields:
    said = {"error" if result.failed else "output": result.text}
    response: Fields = {"name": result.name, "response": said}
    return {"functionResponse": {"id": result.id, **response} if result.id else response}


def _bedrock_results(results: Iterable[TextResult]) -> list[Fields]:
    return [{"role": USER, "content": [_bedrock_result(result) for result in results]}]


def _bedrock_result(result: TextResult) -> Fields:
    block: Fields = {"toolUseId": result.id, "content": [{"text": result.text}]}
    if result.failed:
        block["status"] = "error"
    return {"toolResult": block}


SPELLINGS: dict[str, Spelling] = {
    "anthropic": Spelling(
        lambda text: {"role": USER, "content": [{"type": "text", "text": text}]},
        _anthropic_reply,
        _anthropic_results,
    ),
    "openai-chat": Spelling(
        lambda text: {"role": USER, "content": text}, _chat_reply, _chat_results
    ),
    "openai-responses": Spelling(
        lambda text: {
            "type": "message",
            "role": USER,
            "content": [{"type": "input_text", "text": text}],
        },
        _responses_reply,
        _responses_results,
        _asked_in_items,
    ),
    "gemini": Spelling(
        lambda text: {"role": USER, "parts": [{"text": text}]},
        _gemini_reply,
        _gemini_results,
        _asked_in_parts,
        needs_ids=False,
    ),
    "bedrock": Spelling(
        lambda text: {"role": USER, "content": [{"text": text}]},
        _bedrock_reply,
        _bedrock_results,
        takes_blank=False,
    ),
    "langchain": Spelling(lambda text: {"type": "human", "content": text}),
}


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


# So many items are decoded at once, in memory that is at hand.
_CHUNK = 64
_REPLIES = (Replied, Partial)
_MISSING = object()
_decode = msgspec.json.Decoder(list[Any]).decode


class Values:
    """Decoded payloads; ``large`` gives those that are kept apart, one by one when asked for.

    What is given out is nobody else's, and the same until the next items come. ``is_clean`` tells
    whether all of it is text that UTF-8 can say, without a NUL. Written anew as JSON it has
    ``size`` bytes at most, and what is decoded at once ``largest``.
    """

    def __init__(self, large: Large) -> None:
        self.is_clean = True
        self.size = 0
        self.largest = 0
        self._large = large
        self._ready: dict[int, Any] = {}

    def ahead(self, items: Sequence[Item]) -> Iterator[Item]:
        """Pass items on, with what they carry decoded some items ahead."""
        for start in range(0, len(items), _CHUNK):
            chunk = items[start : start + _CHUNK]
            before = self.size
            self._ready = self._read(list(_facts(chunk)))
            self.largest = max(self.largest, self.size - before)
            yield from chunk
        self._ready = {}

    def of(self, event: Event) -> Any:
        """Decode what an event carries; None for nothing, and for what cannot be read."""
        value = self._ready.get(id(event), _MISSING)
        if value is _MISSING and event.blob:
            before = self.size
            value = self._decoded([event]).get(id(event), _MISSING)
            self.largest = max(self.largest, self.size - before)
        if value is _MISSING or (type(value) is str and isinstance(event, _REPLIES)):
            return self._alone(event)
        return value

    def _alone(self, event: Event) -> Any:
        """Decode one payload in whatever way it can be read."""
        self.is_clean = False
        try:
            return value_of(self._payload(event), inner=isinstance(event, _REPLIES))
        except (ValueError, RecursionError):
            return None

    def _payload(self, event: Event) -> msgspec.Raw:
        return msgspec.Raw(self._large.whole(event.blob)) if event.blob else event.payload

    def _read(self, events: list[Event]) -> dict[int, Any]:
        """Decode what events carry, small payloads together; large ones wait to be asked for."""
        return self._decoded([event for event in events if not event.blob])

    def _decoded(self, events: list[Event]) -> dict[int, Any]:
        """Decode payloads as one list; none if one of them is not to be read like that."""
        joined = b"[%b]" % b",".join(map(self._payload, events))
        try:
            values = _decode(joined)
        except (ValueError, RecursionError):
            return {}
        if len(values) != len(events):
            return {}
        self._weigh(values, len(joined))
        return dict(zip(map(id, events), values, strict=True))

    def _weigh(self, values: list[Any], length: int) -> None:
        """Add what is known of decoded values: a text is never longer than it was.

        Anything else can be, a number for one, and stands here twice, since a result names its
        call once more.
        """
        others = encoded_size([value for value in values if type(value) is not str])
        texts = (value for value in values if type(value) is str)
        self.is_clean = self.is_clean and others >= 0 and not any("\0" in text for text in texts)
        self.size += length + 2 * others


def _facts(items: Iterable[Item]) -> Iterator[Event]:
    for item in items:
        if isinstance(item, Late):
            yield item.fact
            continue
        yield item.event
        if isinstance(item, ModelReply):
            for call in item.calls:
                if call.outcome is not None:
                    yield call.outcome.fact
