"""What gathering a streamed reply takes in every dialect."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from enum import Enum
from typing import Any

import msgspec
from msgspec import UNSET

from lockstitch.conversation.sdk_objects import is_google, to_plain
from lockstitch.dialects.base import scrub
from lockstitch.dialects.profiles import Profile

Fields = dict[str, Any]

# The wrapping that Anthropic documents for arguments that are no JSON: a model understands it,
# and no tool takes it for its own.
UNREADABLE = "INVALID_JSON"
# Said once, and by some servers again in every chunk; anything else a chunk adds to.
_GAP = re.compile(r"[, \r\n\t]*")
_SAID_ONCE = frozenset({"role", "type", "id", "name", "format", "index", "object"})

# What google-genai hangs on a response of its own accord.
_NOT_RECEIVED = frozenset({"sdk_http_response", "parsed", "automatic_function_calling_history"})


def plain_of(value: Any) -> Any:
    """Return an SDK's object as the plain data that its provider sent; plain data as it is."""
    kinds: list[type] = [type(item) for item in (value if type(value) is list else [value])]
    if any(map(is_google, kinds)):
        return _plain_google(value)
    return to_plain(value)[0]


def _plain_google(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain_google(item) for item in value]
    if isinstance(value, (bytes, Enum, date)):
        return msgspec.to_builtins(value)
    kind: type = type(value)
    if not is_google(kind) or not hasattr(value, "model_fields_set"):
        return value
    fields: Fields = type(value).model_fields
    return {
        fields[name].alias or name: _plain_google(inner)
        for name, inner in vars(value).items()
        if inner is not None and name not in _NOT_RECEIVED
    }


def events_in(data: bytes) -> Iterator[Any]:
    """Return the events of a stream, as far as they came; nothing for what is no stream."""
    begin, text = data[:64].lstrip()[:1], data.decode("utf-8", "replace")
    if begin == b"[":
        # as Gemini streams without ``alt=sse``: a list that may be cut off
        decoder, at = json.JSONDecoder(), text.find("[") + 1
        while 0 < at < len(text):
            gap = _GAP.match(text, at)
            try:
                value, at = decoder.raw_decode(text, gap.end() if gap else at)
            except (ValueError, RecursionError):
                return
            yield value
    elif begin != b"{":
        for block in text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
            lines = (line[5:] for line in block.split("\n") if line.startswith("data:"))
            said = "\n".join(line.removeprefix(" ") for line in lines)
            value = _event_value(said) if said and said.strip() != "[DONE]" else None
            if value is not None:
                yield value


def _event_value(text: str) -> Any:
    """Return an event's value; None for one that was cut off."""
    try:
        return msgspec.json.decode(text)
    except ValueError:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None


class Accumulator(ABC):
    """A streamed reply, gathered event by event; an event that is not known changes nothing.

    ``complete`` tells whether the provider has said that the reply is over. It stays false when a
    stream breaks off, however it does. ``blocks_closed`` counts the blocks that will not change
    any more.
    """

    # The kinds of event that matter, None for all; helpers of SDKs mix in others with snapshots.
    kinds: frozenset[str] | None = None

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.complete = False
        self.blocks_closed = 0

    def feed(self, event: Any) -> None:
        """Take the next event, an SDK's object or plain data."""
        kind = event.get("type") if isinstance(event, dict) else getattr(event, "type", None)
        if self.kinds is not None and not (isinstance(kind, str) and kind in self.kinds):
            return
        plain = plain_of(event)
        if isinstance(plain, dict):
            self.take(plain)

    @abstractmethod
    def take(self, event: Fields) -> None:
        """Take the next event as plain data."""

    def whole(self) -> Fields:
        """Return the response as it would have come in one piece; of use once it is complete."""
        whole: Fields = _paired(self.gathered())
        return whole

    def closed(self) -> Any:
        """Return what of the reply can be kept as it stands, or None.

        That is a message (in OpenAI Responses a list of items) with the text so far and the blocks
        that are closed: never half a call, never a thought without its end or its signature.
        """
        return scrub(_paired(self.standing()))

    @abstractmethod
    def gathered(self) -> Fields:
        """Return the response so far."""

    @abstractmethod
    def standing(self) -> Any:
        """Return what may be kept, or None."""


def _paired(value: Any) -> Any:
    """Put the halves of a character together that came in two pieces; a lone half stays."""
    try:
        msgspec.json.encode(value, enc_hook=str)
    except UnicodeError:
        return _joined(value)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return value
    return value


def _joined(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if isinstance(value, dict):
        return {_joined(key): _joined(inner) for key, inner in value.items()}
    return [_joined(item) for item in value] if isinstance(value, list) else value


def arguments_in(text: str, *, lenient: bool = False) -> Any:
    """Decode a call's arguments; ``UNSET`` if they are not a whole JSON object.

    A lenient reading takes half a character in them, as the SDKs do.
    """
    text = _paired(text)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        value = UNSET
        if lenient:
            with suppress(ValueError, RecursionError):
                value = json.loads(text)
    return value if isinstance(value, dict) else UNSET


def fields_at(value: Any, key: str) -> Fields:
    """Return the object under a key, an empty one where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def text_at(value: Any, key: str) -> str:
    """Return the text under a key, "" where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def list_at(value: Any, key: str) -> list[Any]:
    """Return the list under a key, an empty one where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def number_at(value: Any, key: str, otherwise: int) -> int:
    """Return the whole number under a key."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if type(found) is int else otherwise


def add(fields: Fields, delta: Fields) -> None:
    """Add a delta to fields: texts grow, lists grow, objects are added to, the rest is replaced."""
    for key, value in delta.items():
        fields[key] = added(key, fields.get(key), value)


def added(key: str, old: Any, new: Any) -> Any:
    """Return a field's value after a delta."""
    if new is None:
        return old
    if isinstance(new, dict):
        grown = dict(old) if isinstance(old, dict) else {}
        add(grown, new)
        return grown
    if isinstance(new, list):
        return _grown(old if isinstance(old, list) else [], new)
    if isinstance(old, str) and isinstance(new, str):
        return old or new if key in _SAID_ONCE else old + new
    return new


def _grown(old: list[Any], new: list[Any]) -> list[Any]:
    """Put items behind a list; one that carries the index of an earlier one adds to that."""
    grown = list(old)
    for item in new:
        index = item.get("index") if isinstance(item, dict) else None
        places = range(len(grown)) if type(index) is int else ()
        at = next(
            (n for n in places if isinstance(grown[n], dict) and grown[n].get("index") == index),
            None,
        )
        if at is None:
            grown.append(item)
        else:
            grown[at] = added("", grown[at], item)
    return grown
