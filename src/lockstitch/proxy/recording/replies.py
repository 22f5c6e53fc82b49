"""What a provider answered, whole or streamed, as the fact of a journal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct, structs

from lockstitch.dialects.bedrock.event_stream import EventDecoder
from lockstitch.dialects.replies import calls_in, messages_in, provider_of
from lockstitch.dialects.streaming_registry import accumulator_for
from lockstitch.errors import Unreadable, UsageError
from lockstitch.journal.events import (
    NOTHING,
    Asked,
    Noted,
    Partial,
    Replied,
    text_payload,
    value_of,
)
from lockstitch.session.content import json_payload
from lockstitch.session.received import received

# The note that holds what came and is no reply.
UNREAD = "reply"
_DONE = "[DONE]"
_REFUSED = 400
_DECODE = msgspec.json.Decoder().decode


class Came(Struct, frozen=True):
    """A reply, or a note of what came instead; ``messages`` are those that a client hands back."""

    event: Replied | Partial | Noted
    messages: list[Any]
    response: str = ""

    @property
    def is_refusal(self) -> bool:
        """Whether nothing came that anybody said."""
        return isinstance(self.event, Noted) and self.event.payload == NOTHING


def came_of(dialect: str, data: bytes, status: int, model: str, *, complete: bool) -> Came:
    """Make what came into the fact to keep; of a refusal only that it was one is kept."""
    if status >= _REFUSED:
        return Came(Noted(name=UNREAD, label=f"status {status}"), [])
    events = list(_events(dialect, data))
    if events:
        return _streamed(dialect, events, model)
    try:
        return _came(received(data, dialect), model)
    except UsageError:
        how = f"status {status}" if complete else f"status {status}, cut off"
        text = text_payload(data.decode("utf-8", "replace"))
        return Came(Noted(name=UNREAD, label=how, payload=text), [])


def _streamed(dialect: str, events: list[Any], model: str) -> Came:
    gathered = accumulator_for(dialect)
    for event in events:
        gathered.feed(event)
    if gathered.complete:
        return _came(received(gathered.whole(), dialect), model)
    message = gathered.closed()
    if message is None:
        return Came(Noted(name=UNREAD, label="cut off before anything came"), [])
    asked = calls_in(dialect, messages_in(dialect, message))
    part = Partial(
        payload=json_payload(message),
        dialect=dialect,
        provider=provider_of(dialect),
        model=_text(gathered.whole(), "model") or model,
        calls=tuple(Asked(*call) for call in asked),
    )
    return _came(part, model)


def _came(event: Replied | Partial, model: str) -> Came:
    named = event if event.model or not model else structs.replace(event, model=model)
    value = value_of(event.payload, inner=True)
    response = _text(value, "id") if event.dialect == "openai-responses" else ""
    return Came(named, messages_in(event.dialect, value), response)


def _text(value: Any, key: str) -> str:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def _events(dialect: str, data: bytes) -> Iterator[Any]:
    """Return the events of a stream, as far as they came; nothing for what is no stream."""
    begin = data[:64].lstrip()
    if dialect == "bedrock" and begin[:1] != b"{":
        yield from _framed(data)
    elif begin[:1] == b"[":
        yield from _listed(data)
    elif begin[:1] != b"{":
        yield from _sent(data)


def _sent(data: bytes) -> Iterator[Any]:
    """Return the events of a stream of server-sent events."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    blocks = text.split("\n\n")
    for block in blocks:
        lines = (line[5:] for line in block.split("\n") if line.startswith("data:"))
        said = "\n".join(line.removeprefix(" ") for line in lines)
        if said and said.strip() != _DONE:
            value = _value(said)
            if value is not None:
                yield value


def _value(text: str) -> Any:
    """Return an event's value; None for one that was cut off."""
    try:
        return _DECODE(text)
    except ValueError:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None


def _listed(data: bytes) -> Iterator[Any]:
    """Return the elements of a list that may be cut off, as Gemini streams without ``alt=sse``."""
    text, decoder = data.decode("utf-8", "replace"), json.JSONDecoder()
    at = text.find("[") + 1
    while 0 < at < len(text):
        at += len(text[at:]) - len(text[at:].lstrip(", \r\n\t"))
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield value


def _framed(data: bytes) -> Iterator[Any]:
    """Return the events of Amazon's framing, as far as whole frames came."""
    try:
        for frame in EventDecoder().feed(data):
            yield {frame.event: _DECODE(frame.payload or b"{}")}
    except (Unreadable, ValueError):
        return
