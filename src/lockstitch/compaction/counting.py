"""What a conversation costs: tokens by the provider's own figures if there are any, and bytes."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from lockstitch.dialects.media import head_of, pixels
from lockstitch.dialects.usage import tokens_in
from lockstitch.errors import UsageError
from lockstitch.journal.answers import said_as
from lockstitch.journal.events import Compacted, Replied, value_of
from lockstitch.journal.projection import each_item
from lockstitch.journal.state import Item, Reply, Summary, View

Counter = Callable[[Sequence[Any], str], int]

CHARACTERS_A_TOKEN = 3.6
IMAGE_TOKENS = 1600
_PIXELS_A_TOKEN = 750
_MESSAGE_TOKENS = 4
_LEAST, _MOST = 0.25, 4.0
_EVERYTHING = 1 << 62
_ENCODE = msgspec.json.Encoder().encode
_ENCODED = re.compile(r"[A-Za-z0-9+/=_\s-]{64}")
_DATA_KEYS = frozenset({"data", "bytes", "base64", "image_url", "url", "file_data"})
_HEAD = 48 * 1024
_LONG = 256


class Weight(Struct, frozen=True):
    """What an item costs when it is sent whole, and with its results shortened to each limit.

    ``now`` is what it costs as it is sent at present; a compaction in force may shorten it.
    """

    item: Item
    tokens: int
    bytes: int
    short: Mapping[int, tuple[int, int]]
    now: tuple[int, int]


def estimate(messages: Sequence[Any], _dialect: str = "") -> int:
    """Estimate tokens: text by its length, an image by its size in pixels, never by its bytes."""
    characters, images = 0, 0
    for text, is_data in _texts(messages, ""):
        if is_data:
            images += _image_tokens(text)
        else:
            characters += len(text)
    return round(characters / CHARACTERS_A_TOKEN) + images + _MESSAGE_TOKENS * len(messages)


def _texts(value: Any, key: str) -> Iterator[tuple[str, bool]]:
    """Give every text in a value, and whether it is inline data."""
    if isinstance(value, str):
        yield value, _is_data(value, key)
    elif isinstance(value, bytes):
        yield b64encode(value[:_HEAD]).decode(), True
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield str(name), False
            yield from _texts(inner, str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, key)
    elif isinstance(value, int | float):
        yield str(value), False


def _is_data(text: str, key: str) -> bool:
    if len(text) < _LONG or key not in _DATA_KEYS:
        return False
    return text.startswith("data:") or _ENCODED.match(text) is not None


def _image_tokens(data: str) -> int:
    side = pixels(head_of(data.partition(",")[2] if data.startswith("data:") else data))
    return min(max(side * side // _PIXELS_A_TOKEN, 1), IMAGE_TOKENS) if side else IMAGE_TOKENS


def size_of(messages: Sequence[Any]) -> int:
    """Give the length of messages as JSON, base64 included."""
    try:
        return len(_ENCODE(messages))
    except (ValueError, OverflowError, TypeError):
        # half an emoji, or a number of very many digits: nothing that is sent, but stored
        return len(json.dumps(messages, default=str))


def weights(
    view: View,
    dialect: str,
    limits: Sequence[int],
    *,
    counter: Counter | None = None,
    blobs: Mapping[str, bytes] | None = None,
) -> list[Weight]:
    """Weigh every item of a conversation, whole and shortened to each of some limits."""
    count = counter or calibrated(view, dialect, blobs)

    def weighed(seen: View) -> list[tuple[int, int]]:
        sent = (messages for _, messages in each_item(seen, dialect, blobs))
        return [(count(messages, dialect), size_of(messages)) for messages in sent]

    whole = weighed(structs.replace(view, summary=None))
    short = {limit: weighed(_short(view, limit)) for limit in limits}
    now = weighed(view) if view.summary and view.summary.event.shortened else whole
    return [
        Weight(item, *whole[n], {limit: costs[n] for limit, costs in short.items()}, now[n])
        for n, item in enumerate(view.items)
    ]


def _short(view: View, limit: int) -> View:
    fact = Compacted(shortened=_EVERYTHING, limit=limit)
    return structs.replace(view, summary=Summary(0, fact, 0, words=view.last_words))


def checked_counter(counter: Counter, dialect: str) -> Counter:
    """Try a counter of the caller's on a word; raises ``UsageError`` if it cannot count."""
    told = "a counter is called as counter(messages, dialect) and gives a number of tokens"
    try:
        tokens: object = counter([said_as(dialect, "word")], dialect)
    except Exception as error:
        raise UsageError(f"{told}; this one raised {type(error).__name__}") from error
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise UsageError(f"{told}; this one gave something else")
    return counter


def calibrated(view: View, dialect: str, blobs: Mapping[str, bytes] | None = None) -> Counter:
    """Give a counter that agrees with what the last request is known to have cost."""
    factor = _factor(view, dialect, blobs)
    return lambda messages, dialect: round(estimate(messages, dialect) * factor)


def _factor(view: View, dialect: str, blobs: Mapping[str, bytes] | None) -> float:
    """Compare the newest figure of a provider with the estimate for what it was asked."""
    last = next((r for r in reversed(view.items) if isinstance(r, Reply) and _usage(r)), None)
    if last is None:
        return 1.0
    summary = view.summary
    is_older = summary is not None and last.after < summary.seq
    seen = structs.replace(view, summary=None) if is_older else view
    shown = {id(item) for item in seen.sent() if item.seq <= last.after}
    asked = [m for item, sent in each_item(seen, dialect, blobs) if id(item) in shown for m in sent]
    guess = estimate(asked, dialect)
    if summary is not None and summary.cut and not is_older:
        guess += estimate([_text(summary.event, blobs)])
    factor = min(_usage(last) / guess, _MOST) if guess else 1.0
    if factor < _LEAST:
        return 1.0  # no provider counts like that: some in between tell nothing, or 1
    # nobody knows whether it was asked with a summary that stood there before
    return max(factor, 1.0) if is_older else factor


def _text(event: Compacted, blobs: Mapping[str, bytes] | None) -> str:
    raw = (blobs or {}).get(event.blob, b"") if event.blob else bytes(event.payload)
    return raw.decode("utf-8", "replace")


def _usage(reply: Reply) -> int:
    """Give what a reply's request cost by the provider's own count, 0 if it does not say."""
    if not isinstance(reply.event, Replied) or reply.event.blob:
        return 0
    try:
        value = value_of(reply.event.payload, inner=True)
    except (ValueError, RecursionError):
        return 0
    return usage_in(value)


def usage_in(response: Any) -> int:
    """Give the tokens of a request as its response tells them, 0 if it does not."""
    tokens = tokens_in(response)
    return tokens.input if tokens else 0
