"""Changing one value inside a JSON text so that all the rest keeps its bytes."""

from __future__ import annotations

import json
import re
from typing import Any

Spans = list[tuple[int, int]]

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODE = json.JSONDecoder(strict=False).raw_decode


def splice(text: str, path: tuple[str | int, ...], value: Any) -> str:
    """Put a value at a path of a JSON text; a key that is not there yet goes last."""
    start, end = _seek(text, path[:-1])
    inner = text[start:end]
    found = _members(inner)
    if path[-1] in found:
        low, high = found[path[-1]]
        return f"{text[: start + low]}{_compact(value)}{text[start + high :]}"
    close = len(inner.rstrip()) - 1
    comma = "," if found else ""
    added = f"{comma}{dump(path[-1])}:{_compact(value)}"
    return f"{text[: start + close]}{added}{text[start + close :]}"


def dump(value: Any, **style: Any) -> str:
    """JSON text that can always be encoded: readable, or escaped where it has lone surrogates."""
    text = json.dumps(value, ensure_ascii=False, **style)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, **style)
    return text


def _compact(value: Any) -> str:
    return dump(value, separators=(",", ":"))


def member_spans(text: str) -> Spans:
    """Where the values directly inside an array or an object start and end."""
    return [span for _, span in _walk(text)]


def skip(text: str, at: int) -> int:
    """The next place that is not white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _seek(text: str, path: tuple[str | int, ...]) -> tuple[int, int]:
    start, end = 0, len(text)
    for step in path:
        low, high = _members(text[start:end])[step]
        start, end = start + low, start + high
    return start, end


def _members(text: str) -> dict[str | int, tuple[int, int]]:
    """Where each member stands; of a key that is there twice the last one counts, as in JSON."""
    return dict(_walk(text))


def _walk(text: str) -> list[tuple[str | int, tuple[int, int]]]:
    at = skip(text, 0)
    keyed = text[at] == "{"
    at = skip(text, at + 1)
    found: list[tuple[str | int, tuple[int, int]]] = []
    while text[at] not in "]}":
        key: str | int = len(found)
        if keyed:
            key, end = _DECODE(text, at)
            at = skip(text, skip(text, end) + 1)
        end = _DECODE(text, at)[1]
        found.append((key, (at, end)))
        at = skip(text, end)
        if text[at] == ",":
            at = skip(text, at + 1)
    return found
