"""A healed conversation back into bytes, in which every untouched message keeps its own."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lockstitch.cli.reading import as_text
from lockstitch.splices import Spans, dump, member_spans

if TYPE_CHECKING:
    from lockstitch.cli.reading import Document

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
        woven = _weave(text, member_spans(text), document.value, healed)
    return woven.encode("utf-8", "surrogatepass")


def _weave_body(text: str, old: dict[str, Any], new: dict[str, Any]) -> str:
    spans = member_spans(text)
    if len(spans) != len(old) or new.keys() != old.keys():
        return dump(new, indent=2 if "\n" in text.strip() else None)
    for key, (start, end) in reversed(list(zip(old, spans, strict=True))):
        if new[key] is old[key]:
            continue
        part = text[start:end]
        both_lists = isinstance(new[key], list) and isinstance(old[key], list)
        part = (
            _weave(part, member_spans(part), old[key], new[key]) if both_lists else dump(new[key])
        )
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
