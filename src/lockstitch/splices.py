"""Changing one value inside a JSON text so that all the rest keeps its bytes."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any
from uuid import uuid4

from msgspec import Raw

from lockstitch.unread import raw_decode

Spans = list[tuple[int, int]]

_SPACE = re.compile(r"[ \t\r\n]*")


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


def dump(value: Any, *, ascii_only: bool = False, **style: Any) -> str:
    """JSON text that can always be encoded: readable, or escaped where it has lone surrogates.

    What was left as text when it was read is written as it was.
    """
    left: dict[str, str] = {}

    def mark(piece: Any) -> str:
        if type(piece) is not Raw:
            raise TypeError(f"a {type(piece).__name__} is no value of JSON")
        name = f"left as text {uuid4().hex}"
        left[json.dumps(name)] = bytes(piece).decode("utf-8", "surrogatepass")
        return name

    text = json.dumps(value, ensure_ascii=ascii_only, default=mark, **style)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, default=mark, **style)
    if not left:
        return text
    return re.sub("|".join(left), lambda found: left[found[0]], text)


def _compact(value: Any) -> str:
    return dump(value, separators=(",", ":"))


def member_spans(text: str) -> Spans:
    """Where the values directly inside an array or an object start and end."""
    return [span for _, span in _walk(text)]


def skip(text: str, at: int) -> int:
    """The next place that is not white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def weave(text: str, spans: Spans, old: list[Any], new: list[Any]) -> str:
    """The text of ``old``, whose elements stand at ``spans``, turned into a text of ``new``.

    An element that is the very same object in both keeps its text and the gap before it.
    """
    if not spans:
        return dump(new)
    numbers = {id(value): number for number, value in enumerate(old)}
    gaps = [text[a[1] : b[0]] for a, b in pairwise(spans)]
    opening = text[: spans[0][0]]
    usual = gaps[0] if gaps else opening.replace("[", ",", 1) or "\n"
    style = _style(text, spans, opening)
    out = [opening]
    for place, value in enumerate(new):
        number = numbers.get(id(value))
        if place:
            out.append(gaps[number - 1] if number else usual)
        out.append(_fresh(value, **style) if number is None else text[slice(*spans[number])])
    return "".join([*out, text[spans[-1][1] :]])


def _style(text: str, spans: Spans, opening: str) -> dict[str, Any]:
    """How the document writes a message, as options of ``_fresh``."""
    sample = text[slice(*spans[0])]
    if "\n" not in sample:
        return {"separators": (", ", ": ") if '": ' in sample else (",", ":")}
    base = opening.rpartition("\n")[2]
    step = sample.split("\n", 2)[1]
    step = step[len(base) : len(step) - len(step.lstrip())]
    return {"indent": step or 2, "base": base}


def alike(sample: str, value: Any) -> str:
    """Write a value on one line, spaced as a sample is."""
    return _fresh(value, **_style(sample, [(0, len(sample))], ""))


def _fresh(value: Any, base: str = "", **style: Any) -> str:
    return dump(value, **style).replace("\n", f"\n{base}")


def reweave(text: str, path: tuple[str | int, ...], old: list[Any], new: list[Any]) -> str:
    """Turn the list at a path of a JSON text into another one, which shares elements with it."""
    start, end = _seek(text, path)
    inner = text[start:end]
    return text[:start] + weave(inner, member_spans(inner), old, new) + text[end:]


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
            key, end = raw_decode(text, at, strict=False)
            at = skip(text, skip(text, end) + 1)
        end = raw_decode(text, at, strict=False)[1]
        found.append((key, (at, end)))
        at = skip(text, end)
        if text[at] == ",":
            at = skip(text, at + 1)
    return found
