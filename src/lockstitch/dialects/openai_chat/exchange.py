"""OpenAI Chat's stream: chunks whose deltas add up to a message, calls told apart by index."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from lockstitch.dialects.profiles import Profile
from lockstitch.dialects.streams import (
    Accumulator,
    Fields,
    add,
    added,
    arguments_in,
    fields_at,
    list_at,
    number_at,
    text_at,
)

_OUTER = ("choices", "object", "obfuscation", "usage")
_APART = ("content", "tool_calls")
# What a partial message may say besides its reasoning, which is kept once it is over.
_SAID = ("role", "content", "tool_calls", "refusal", "function_call", "audio", "annotations")


class StreamedChoice:
    """One of the answers that a stream brings side by side."""

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
        """Add to the call that is meant: servers leave the index out, or give all the same one."""
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
        """The calls in the order of their index."""
        return sorted(self.calls, key=lambda call: number_at(call, "index", 0))

    def whole(self) -> Fields:
        """Return this answer as it would have come in one piece."""
        message = {"role": "assistant", "content": None, **self.message}
        message["role"] = message["role"] or "assistant"
        if self.calls:
            message["tool_calls"] = list(map(_without_index, self.ordered))
        return {"index": 0, **self.fields, "message": message}


class ChatStream(Accumulator):
    """Gathers chunks, also out of the events of the SDK's helper."""

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
        self.blocks_closed = 0 if first is None else _closed_in(first)

    def gathered(self) -> Fields:
        usage = {} if self._usage is UNSET else {"usage": self._usage}
        choices = [self._choices[index].whole() for index in sorted(self._choices)]
        return {**self._outer, "object": "chat.completion", "choices": choices, **usage}

    def standing(self) -> Fields | None:
        first = self._choices.get(0)
        if first is None:
            return None
        calls = [_without_index(call) for call in _closed_calls(first) if _is_call(call)]
        said = first.message.get("content") or text_at(first.message.get("audio"), "transcript")
        refusal = text_at(first.message, "refusal")
        if not (_has_words(said) or refusal or calls):
            return None
        message: Fields = {"role": "assistant", "content": said or None}
        message |= {key: value for key, value in first.message.items() if key not in _SAID}
        if refusal:
            message["refusal"] = refusal
        return message | ({"tool_calls": calls} if calls else {})


def _content(old: Any, new: Any) -> Any:
    """Add to content: text, or the blocks that some servers stream in its place."""
    if isinstance(old, list) and isinstance(new, str):
        last = old[-1] if old else None
        if isinstance(last, dict) and last.get("type") == "text":
            return [*old[:-1], {**last, "text": text_at(last, "text") + new}]
        return [*old, {"type": "text", "text": new}] if new else old
    if isinstance(old, str) and isinstance(new, list):
        return [{"type": "text", "text": old}, *new] if old else new
    return added("content", old, new)


def _without_index(call: Fields) -> Fields:
    return {key: value for key, value in call.items() if key != "index"}


def _has_words(content: Any) -> bool:
    if isinstance(content, list):
        return any(isinstance(block, dict) and block.get("type") == "text" for block in content)
    return bool(content)


def _closed_calls(choice: StreamedChoice) -> list[Fields]:
    """Return the calls that will not change any more: all but the last, until the end."""
    if choice.is_over:
        return choice.ordered
    return [call for call in choice.ordered if call is not choice.calls[-1]]


def _closed_in(choice: StreamedChoice) -> int:
    is_text_over = bool(choice.message.get("content")) and (choice.is_over or bool(choice.calls))
    return len(_closed_calls(choice)) + is_text_over


def _is_call(call: Fields) -> bool:
    """Whether a call is whole: named, and with arguments that are an object."""
    kind = call.get("type") or "function"
    body = fields_at(call, kind) if isinstance(kind, str) else {}
    if not text_at(call, "id") or not text_at(body, "name"):
        return False
    return kind != "function" or arguments_in(text_at(body, "arguments")) is not UNSET
