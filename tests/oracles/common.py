"""What all oracles share: opening a body, strict JSON, text that can not be sent."""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NoReturn

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def unwrap(value: Any, key: str) -> tuple[Any, dict[str, Any]]:
    """The list of messages in *value*, and the request body around it (empty for a bare list)."""
    if isinstance(value, dict):
        return value.get(key), value
    return value, {}


def unsendable(value: Any, place: str) -> Iterator[str]:
    """Every string below *value* that no provider can read: a lone surrogate or a NUL."""
    if isinstance(value, str):
        if any("\ud800" <= char <= "\udfff" for char in value):
            yield f"{place}: lone surrogate"
        if "\0" in value:
            yield f"{place}: NUL"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from unsendable(key, f"{place} (key)")
            yield from unsendable(item, f"{place}.{key!a}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from unsendable(item, f"{place}.{index}")


def is_json(text: Any) -> bool:
    """Whether *text* is a string of JSON, without Python's extensions to it."""
    if not isinstance(text, str):
        return False
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def is_object(text: Any) -> bool:
    """Whether *text* is a string of JSON that is an object, as arguments must be."""
    return is_json(text) and isinstance(json.loads(text), dict)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def repeated(values: Iterable[Hashable]) -> list[Hashable]:
    """The values that occur more than once, each once, in order of appearance."""
    return [value for value, count in Counter(values).items() if count > 1]


def marked(values: Any, key: str) -> int:
    """How many objects in a list have something under *key*."""
    listed = values if isinstance(values, list) else []
    return sum(bool(value.get(key)) for value in listed if isinstance(value, dict))


def blank(text: Any) -> bool:
    """Whether *text* is a string of nothing but white space."""
    return isinstance(text, str) and not text.strip()


def filled(text: Any) -> bool:
    """Whether *text* is a non-empty string."""
    return isinstance(text, str) and text != ""


def bad_base64_image(source: Any) -> str | None:
    """What is wrong with an image source of the Anthropic kind, if anything is."""
    if not isinstance(source, dict) or source.get("type") != "base64":
        return None
    if source.get("media_type") not in IMAGE_TYPES:
        return "media type is not an image type"
    try:
        base64.b64decode(source.get("data", ""), validate=True)
    except (binascii.Error, TypeError, ValueError):
        return "data is not base64"
    return None
