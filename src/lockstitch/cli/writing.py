"""A healed conversation back into bytes, in which every untouched message keeps its own."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lockstitch.cli.reading import as_text

if TYPE_CHECKING:
    from lockstitch.cli.reading import Document

Spans = list[tuple[int, int]]

_SPACE = re.compile(r"[ \t\r\n]*")
_LINE = re.compile(r"^[^\n]*[^\s][^\n]*$", re.MULTILINE)


def encode(document: Document, healed: Any) -> bytes:
    """The bytes of the healed value: the document's own wherever nothing was changed."""
    if healed is document.value:
        return document.data
    text = as_text(document.data)
    if document.lines:
        spans = [match.span() for match in _LINE.finditer(text)]
        woven = _weave(text, spans, document.value, healed)
    elif isinstance(healed, dict):
        woven = _weave_body(text, document.value, healed)
    else:
        woven = _weave(text, _spans(text), document.value, healed)
    return woven.encode("utf-8", "surrogatepass")


def dump(value: Any, **style: Any) -> str:
    """JSON text that can always be encoded: readable, or escaped where it has lone surrogates."""
    text = json.dumps(value, ensure_ascii=False, **style)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, **style)
    return text


def _weave_body(text: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    spans = _spans(text)
    if len(spans) != len(old) or new.keys() != old.keys():
        return dump(new, indent=2 if "\n" in text.strip() else None)
    for key, (start, end) in reversed(list(zip(old, spans, strict=True))):
        if new[key] is old[key]:
            continue
        part = text[start:end]
        both_lists = isinstance(new[key], list) and isinstance(old[key], list)
        part = _weave(part, _spans(part), old[key], new[key]) if both_lists else dump(new[key])
        text = text[:start] + part + text[end:]
    return text


def _weave(text: str, spans: Spans, old: list[Any], new: list[Any]) -> str:
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


def _fresh(value: Any, base: str = "", **style: Any) -> str:
    return dump(value, **style).replace("\n", f"\n{base}")


def _spans(text: str) -> Spans:
    """Where the values directly inside an array or an object start and end."""
    decode = json.JSONDecoder().raw_decode
    at = _skip(text, 0)
    keyed = text[at] == "{"
    at = _skip(text, at + 1)
    spans: Spans = []
    while text[at] not in "]}":
        if keyed:
            colon = _skip(text, decode(text, at)[1])
            at = _skip(text, colon + 1)
        end = decode(text, at)[1]
        spans.append((at, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return spans


def _skip(text: str, at: int) -> int:
    """The next place that is not white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at
