"""What an action would change, side by side, for a person to agree to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from lockstitch.conversation.parts import Place
from lockstitch.redaction import redact_value
from lockstitch.repair.draft import Change, Quarantined
from lockstitch.rules import Finding
from lockstitch.sessions import Difference

# Of a plan that changes more, the rest is only counted.
MOST_RECORDS = 200
_MOST_LINES = 400
_LONGEST_LINE = 1000
_CONTEXT = 2

Line = tuple[str, str | None, str | None]


class Preview(Struct):
    """What an action is going to do; ``stamp`` tells this plan from any other.

    ``refusal`` says why it cannot be done now. ``records`` has what changes in the store, side by
    side, ``more`` how many records besides.
    """

    action: str
    title: str
    button: str
    stamp: str = ""
    says: list[str] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    remaining: list[Finding] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    more: int = 0
    refusal: str = ""


class Plan(Struct):
    """An action that was worked out: what a person is shown of it, and how it is done."""

    preview: Preview
    apply: Callable[[], list[str]]


def shown(path: str) -> str:
    """Return a path for people, with ``~`` for the home directory."""
    home = str(Path.home()).rstrip("/")
    return f"~{path[len(home) :]}" if home and path.startswith(f"{home}/") else path


def stamp_of(*parts: object) -> str:
    """Return a text that is another one for another plan."""
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def kept(quarantine: Iterable[Quarantined]) -> list[dict[str, Any]]:
    """Say of what has to go where it stood and how large it is."""
    return [{"code": one.code, "place": one.place, "size": one.size} for one in quarantine]


def compared(found: Sequence[Difference], *, reveal: bool) -> list[dict[str, Any]]:
    """Return the records that change, the first of them, line by line beside each other."""
    in_order = sorted(found, key=lambda one: (Place.parse(one.place).order, one.before is None))
    shown = in_order[:MOST_RECORDS]
    values = [[_decoded(one.before), _decoded(one.after)] for one in shown]
    clean = values if reveal else redact_value(values)[0]
    return [
        {
            "place": one.place,
            "kind": _kind(one),
            "lines": [*lines(_pretty(before), _pretty(after))],
        }
        for one, (before, after) in zip(shown, clean, strict=True)
    ]


def _kind(one: Difference) -> str:
    if one.before is None:
        return "new"
    return "gone" if one.after is None else "changed"


def _decoded(text: str | None) -> Any:
    """Return a record's value, or its text if it is no JSON; None if there is no record."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _pretty(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [line[:_LONGEST_LINE] for line in value.splitlines()] or [""]
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return [
        line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"
        for line in text.split("\n")
    ]


def lines(before: Sequence[str], after: Sequence[str]) -> Iterator[Line]:
    """Give lines beside each other; of those that are the same, only a few around the others."""
    if not before or not after:
        kind = "old" if before else "new"
        for line in (before or after)[:_MOST_LINES]:
            yield (kind, line, None) if before else (kind, None, line)
        return
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, start, stop, first, last in matcher.get_opcodes():
        if tag == "equal":
            yield from _same(before[start:stop], is_first=not start, is_last=stop == len(before))
            continue
        for old, new in zip_longest(before[start:stop], after[first:last]):
            yield ("changed" if old and new else "old" if new is None else "new"), old, new


def _same(run: Sequence[str], *, is_first: bool, is_last: bool) -> Iterator[Line]:
    head = 0 if is_first else _CONTEXT
    tail = 0 if is_last else _CONTEXT
    if len(run) <= head + tail + 1:
        yield from (("same", line, line) for line in run)
        return
    yield from (("same", line, line) for line in run[:head])
    yield "fold", str(len(run) - head - tail), None
    yield from (("same", line, line) for line in run[len(run) - tail :])
