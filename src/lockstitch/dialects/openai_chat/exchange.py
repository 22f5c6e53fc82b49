"""OpenAI Chat's side of an exchange: responses, streams, and requests made from other dialects."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from lockstitch.conversation.parts import ASSISTANT, CALL, OTHER, USER, Part
from lockstitch.dialects.base import keep_if_same
from lockstitch.dialects.exchange import (
    Accumulator,
    Exchange,
    Fields,
    Spoken,
    TextResult,
    add,
    apply_delta,
    arguments_in,
    fields_at,
    is_text,
    list_at,
    number_at,
    text_at,
    with_raw,
    without,
)
from lockstitch.dialects.profiles import Profile
from lockstitch.dialects.script import (
    Block,
    NeutralCall,
    NeutralResult,
    NeutralTurn,
    Piece,
    TextPiece,
    TurnWriter,
    address_of,
)

_REASONING = (
    "reasoning_content", "reasoning", "reasoning_details", "reasoning_text", "thinking_blocks",
    "reasoning_opaque", "thought_signature", "audio",
)  # fmt: skip
_REASONING_BLOCKS = ("thinking", "redacted_thinking", "reasoning")
_CALL_MARKS = (
    "extra_content", "provider_specific_fields", "thoughtSignature", "thought_signature",
)  # fmt: skip
_OWN = frozenset({"role", "content", "tool_calls"})
_NULLS = ("refusal", "audio", "function_call")
# Providers that check fields refuse these; those that wrote them do not need them back.
_WRITTEN = ("annotations", "parsed")
_NUL = "\\u0000"
_DECODE = msgspec.json.Decoder().decode
_OUTER = ("choices", "object", "obfuscation", "usage")
_APART = ("content", "tool_calls")
# A partial message takes these fields only as far as they may be kept; it takes all others, which
# are reasoning, as they are.
_SAID = ("role", "content", "tool_calls", "refusal", "function_call", "audio", "annotations")


class StreamedChoice:
    """One of the answers that a stream brings in parallel."""

    def __init__(self) -> None:
        self.fields: Fields = {}
        self.message: Fields = {}
        self.calls: list[Fields] = []

    def take(self, choice: Fields) -> None:
        """Add a chunk's part for this answer."""
        delta = fields_at(choice, "delta") or fields_at(choice, "message")
        add(self.message, {key: value for key, value in delta.items() if key not in _APART})
        if "content" in delta:
            self.message["content"] = _content(self.message.get("content"), delta["content"])
        for call in list_at(delta, "tool_calls"):
            if isinstance(call, dict):
                self._call(call)
        rest = {key: value for key, value in choice.items() if key not in ("delta", "message")}
        reason = self.fields.get("finish_reason")
        add(self.fields, rest)
        self.fields["finish_reason"] = choice.get("finish_reason") or reason

    def _call(self, delta: Fields) -> None:
        """Add to the call that a delta means.

        Some servers leave the index out, and some give the same one to every call.
        """
        index, ident = delta.get("index"), text_at(delta, "id")
        meant = [call for call in self.calls if index is None or call["index"] == index][-1:]
        if meant and (not ident or text_at(meant[0], "id") in ("", ident)):
            add(meant[0], {key: value for key, value in delta.items() if key != "index"})
            return
        call: Fields = {}
        add(call, delta)
        self.calls.append({**call, "index": index})

    @property
    def is_over(self) -> bool:
        """Whether the provider has said why this answer ends."""
        return bool(self.fields.get("finish_reason"))

    @property
    def ordered(self) -> list[Fields]:
        """The calls, ordered by their index."""
        return sorted(self.calls, key=lambda call: number_at(call, "index", 0))

    def whole(self) -> Fields:
        """Return this answer as it would have come in one piece."""
        message = {"role": "assistant", "content": None, **self.message}
        message["role"] = message["role"] or "assistant"
        if self.calls:
            message["tool_calls"] = list(map(_without_index, self.ordered))
        return {"index": 0, **self.fields, "message": message}


class ChatStream(Accumulator):
    """Gathers chunks, also from the events of the SDK's helper."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self._outer: Fields = {}
        self._usage: Any = UNSET
        self._choices: dict[int, StreamedChoice] = {}

    def feed(self, event: Any) -> None:
        kind = event.get("type") if isinstance(event, dict) else getattr(event, "type", None)
        if kind == "chunk":
            event = event.get("chunk") if isinstance(event, dict) else event.chunk
        elif kind is not None:
            return
        super().feed(event)

    def take(self, event: Fields) -> None:
        if not isinstance(event.get("choices"), list):
            return
        outer = {key: value for key, value in event.items() if key not in _OUTER}
        self._outer.update({k: v for k, v in outer.items() if v or k not in self._outer})
        if event.get("usage") is not None or ("usage" in event and self._usage is UNSET):
            self._usage = event["usage"]
        for choice in list_at(event, "choices"):
            if isinstance(choice, dict):
                index = number_at(choice, "index", 0)
                self._choices.setdefault(index, StreamedChoice()).take(choice)
        first = self._choices.get(0)
        self.complete = first is not None and first.is_over
        if first is not None:
            is_text_over = bool(first.message.get("content")) and bool(first.is_over or first.calls)
            self.blocks_closed = len(_closed_calls(first)) + is_text_over

    def response_so_far(self) -> Fields:
        usage = {} if self._usage is UNSET else {"usage": self._usage}
        choices = [self._choices[index].whole() for index in sorted(self._choices)]
        return {**self._outer, "object": "chat.completion", "choices": choices, **usage}

    def part_to_keep(self) -> Fields | None:
        first = self._choices.get(0)
        if first is None:
            return None
        calls = [_without_index(call) for call in _closed_calls(first) if _is_call(call)]
        said = first.message.get("content") or text_at(first.message.get("audio"), "transcript")
        refusal = text_at(first.message, "refusal")
        has_words = bool(said)
        if isinstance(said, list):
            has_words = any(isinstance(b, dict) and b.get("type") == "text" for b in said)
        if not (has_words or refusal or calls):
            return None
        message: Fields = {"role": "assistant", "content": said or None}
        message |= {key: value for key, value in first.message.items() if key not in _SAID}
        if refusal:
            message["refusal"] = refusal
        return message | ({"tool_calls": calls} if calls else {})


def _content(old: Any, new: Any) -> Any:
    """Add to content: text, or the blocks that some servers stream instead."""
    if isinstance(old, list) and isinstance(new, str):
        last = old[-1] if old else None
        if isinstance(last, dict) and last.get("type") == "text":
            return [*old[:-1], {**last, "text": text_at(last, "text") + new}]
        return [*old, {"type": "text", "text": new}] if new else old
    if isinstance(old, str) and isinstance(new, list):
        return [{"type": "text", "text": old}, *new] if old else new
    return apply_delta("content", old, new)


def _without_index(call: Fields) -> Fields:
    return {key: value for key, value in call.items() if key != "index"}


def _closed_calls(choice: StreamedChoice) -> list[Fields]:
    """Return the calls that will not change any more: all but the last, until the end."""
    if choice.is_over:
        return choice.ordered
    return [call for call in choice.ordered if call is not choice.calls[-1]]


def _is_call(call: Fields) -> bool:
    """Whether a call is whole: named, and with arguments that are an object."""
    kind = call.get("type") or "function"
    body = fields_at(call, kind) if isinstance(kind, str) else {}
    if not text_at(call, "id") or not text_at(body, "name"):
        return False
    return kind != "function" or arguments_in(text_at(body, "arguments")) is not UNSET


class ChatWriter(TurnWriter):
    """Writes ``tool_calls`` beside the content, and a message of role ``tool`` for each result."""

    picture_roles = (USER,)

    def speech(self, turn: NeutralTurn) -> None:
        message: Block = {"role": turn.role, "content": self.content(turn.pieces, turn.role)}
        if turn.calls:
            if not turn.pieces and self.profile.null_content != "never":
                message["content"] = None
            message["tool_calls"] = [self.call(call) for call in turn.calls]
            if self.profile.reasoning_required:
                message["reasoning_content"] = ""
        self.messages.append(message)

    def block(self, piece: Piece, role: str) -> Block:
        if isinstance(piece, TextPiece):
            return {"type": "text", "text": piece.text}
        return {"type": "image_url", "image_url": {"url": address_of(piece)}}

    def call(self, call: NeutralCall) -> Block:
        """Write a call."""
        function = {"name": call.name, "arguments": self.arguments(call)}
        return {"id": call.id, "type": "function", "function": function}

    def results(self, answers: list[NeutralResult]) -> None:
        self.messages += [
            {"role": "tool", "tool_call_id": answer.call.id, "content": answer.text}
            for answer in answers
        ]


class ChatExchange(Exchange):
    """Messages with calls beside the content."""

    provider = "openai"
    writer = ChatWriter
    stream = ChatStream
    results_by_id = True

    def messages_in(self, value: Any) -> list[Any]:
        if isinstance(value, list):
            return [
                m for inner in value if isinstance(inner, dict) for m in self.messages_in(inner)
            ]
        choices = value.get("choices") if isinstance(value, dict) else None
        found = choices[0] if isinstance(choices, list) and choices else value
        message = found.get("message", found) if isinstance(found, dict) else None
        if not isinstance(message, dict) or _OWN.isdisjoint(message):
            return []
        if message.get("role", "assistant") != "assistant":
            return [message]
        kept = {key: held for key, held in message.items() if key not in _WRITTEN}
        for key in (*_NULLS, "tool_calls", "name"):
            if key in kept and (kept[key] is None or (key == "tool_calls" and kept[key] == [])):
                del kept[key]
        calls, audio = kept.get("tool_calls"), kept.get("audio")
        if isinstance(calls, list):
            spelled = [_strip_call(call) if isinstance(call, dict) else call for call in calls]
            kept["tool_calls"] = calls if all(map(operator.is_, spelled, calls)) else spelled
        if isinstance(audio, dict) and "id" in audio:
            kept["audio"] = keep_if_same(audio, {"id": audio["id"]})
        return [keep_if_same(message, {"role": "assistant", **kept})]

    def text_message(self, text: str) -> Fields:
        return {"role": USER, "content": text}

    def plain_messages(self, value: Any) -> list[Fields] | None:
        """Return a message of words, calls or both, without fields that say nothing.

        Return None if it says anything else.
        """
        message = value
        if type(value) is dict and "choices" in value:
            choices = value["choices"]
            found = choices[0] if type(choices) is list and choices else None
            message = found.get("message") if type(found) is dict else None
        if type(message) is not dict or message.get("role") != ASSISTANT:
            return None
        if not message.keys() <= _OWN:
            if not all(map(_is_own_or_droppable, message.items())):
                return None
            message = {"role": ASSISTANT, **{k: v for k, v in message.items() if k in _OWN}}
        content = message.get("content")
        if "tool_calls" not in message:
            return [message] if is_text(content) else None
        calls = message["tool_calls"]
        if type(calls) is not list or not calls or not (content is None or is_text(content)):
            return None
        return [message] if all(map(_is_plain_call, calls)) else None

    def words_and_calls(self, messages: list[Any]) -> Spoken:
        message = messages[0]
        content = message.get("content")
        return [] if content is None else [content], [
            (call["id"], call["function"]["name"], decode_object(call["function"]["arguments"]))
            for call in message.get("tool_calls", ())
        ]

    def plain_results(self, results: Iterable[TextResult]) -> list[Fields]:
        # the format has no mark for a failed result
        return [{"role": "tool", "tool_call_id": r.id, "content": r.text} for r in results]

    def leading_messages(self, texts: Mapping[Any, str], *, is_own: bool) -> list[Fields]:
        # only OpenAI's own service knows the developer role
        return [
            {"role": role if is_own else "system", "content": text} for role, text in texts.items()
        ]

    def free_part(self, part: Part, parts: list[Part]) -> Part | None:
        if part.kind == CALL:
            return with_raw(part, without(part.raw, _CALL_MARKS))
        return None if part.kind == OTHER and part.flavor in _REASONING_BLOCKS else part

    def free_fields(self, raw: Fields) -> Fields:
        return without(raw, _REASONING)


def _strip_call(call: Fields) -> Fields:
    """Return a call without its index in a stream and what an SDK has parsed from it."""
    body: Any = call.get("function")
    is_parsed = isinstance(body, dict) and "parsed_arguments" in body
    if "index" not in call and not is_parsed:
        return call
    kept = {key: value for key, value in call.items() if key != "index"}
    if is_parsed:
        kept["function"] = {k: v for k, v in body.items() if k != "parsed_arguments"}
    return kept


def _is_own_or_droppable(field: tuple[str, Any]) -> bool:
    """Whether a field is one that a message is made of, or one that can be dropped."""
    key, value = field
    return key in _OWN or key == "annotations" or (key in _NULLS and value is None)


def _is_plain_call(call: Any) -> bool:
    """Whether a call has nothing to leave behind: no index in a stream, no parsed form."""
    body = call.get("function") if type(call) is dict and "index" not in call else None
    return type(body) is dict and "parsed_arguments" not in body


def decode_object(arguments: str) -> Any:
    """Decode the arguments of an everyday call; raise ValueError for any others."""
    if _NUL in arguments:
        raise ValueError("a NUL, which no object may hold")
    return _DECODE(arguments)


EXCHANGE = ChatExchange()
