"""What a conversation costs: tokens by the provider's own figures if there are any, and bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from lockstitch.dialects.media import head_of, pixels
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
_DATA_KEYS = frozenset({"data", "bytes", "image_url", "url", "file_data"})
_LONG = 256
# Where a response says what its request cost: the parts that add up to it.
_USAGES = (
    ("usage", ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")),
    ("usage", ("prompt_tokens",)),
    ("usage", ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")),
    ("usageMetadata", ("promptTokenCount",)),
    ("usage_metadata", ("prompt_token_count",)),
    ("usage_metadata", ("input_tokens",)),
)


class Weight(Struct, frozen=True):
    """What an item costs when it is sent whole, and with its results shortened to each limit."""

    item: Item
    tokens: int
    bytes: int
    short: Mapping[int, tuple[int, int]]


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
    return len(_ENCODE(messages))


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
    bare = structs.replace(view, summary=None)
    whole = list(each_item(bare, dialect, blobs))
    short = {limit: list(each_item(_short(view, limit), dialect, blobs)) for limit in limits}
    return [
        Weight(
            item,
            count(messages, dialect),
            size_of(messages),
            {
                limit: (count(sent[n][1], dialect), size_of(sent[n][1]))
                for limit, sent in short.items()
            },
        )
        for n, (item, messages) in enumerate(whole)
    ]


def _short(view: View, limit: int) -> View:
    fact = Compacted(shortened=_EVERYTHING, limit=limit)
    return structs.replace(view, summary=Summary(0, fact, 0))


def calibrated(view: View, dialect: str, blobs: Mapping[str, bytes] | None = None) -> Counter:
    """Give a counter that agrees with what the last request is known to have cost."""
    factor = _factor(view, dialect, blobs)
    return lambda messages, dialect: round(estimate(messages, dialect) * factor)


def _factor(view: View, dialect: str, blobs: Mapping[str, bytes] | None) -> float:
    """Compare the newest figure of a provider with the estimate for what it was asked."""
    bare = structs.replace(view, summary=None)
    if view.summary is not None:
        return 1.0
    known = [item for item in view.items if isinstance(item, Reply) and _usage(item)]
    if not known:
        return 1.0
    last = known[-1]
    asked = [
        m for item, sent in each_item(bare, dialect, blobs) if item.seq <= last.after for m in sent
    ]
    guess = estimate(asked, dialect)
    return min(max(_usage(last) / guess, _LEAST), _MOST) if guess else 1.0


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
    if not isinstance(response, dict):
        return 0
    for key, names in _USAGES:
        usage = response.get(key)
        if isinstance(usage, dict) and isinstance(usage.get(names[0]), int):
            counts = (usage.get(name) for name in names)
            return sum(count for count in counts if isinstance(count, int))
    return 0
