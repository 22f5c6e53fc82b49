"""What a rule is, and what a finding is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lockstitch.model.parts import Part
from lockstitch.unread import is_index

if TYPE_CHECKING:
    from lockstitch.rules.case import Case

# error: the provider refuses it, or a resume of it loses something. warning: its own program copes
# with it, another version or another reader does not. note: nobody sends anything else for it.
ERROR = "error"
WARNING = "warning"
NOTE = "note"
_LONGEST_ID = 64


class Rule(Struct, frozen=True, kw_only=True):
    """One thing a request or a store must satisfy, with all a person may want to know of it.

    A rule on requests names ``dialects``, a rule on stored sessions ``formats``.
    ``errors`` pairs who says it with the provider's own text; ``known`` notes the versions.
    """

    code: str
    name: str
    severity: str = ERROR
    dialects: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    fixable: bool = True
    lossy: bool = False
    summary: str
    help: str
    what: str
    cause: str
    repair: str
    failures: tuple[str, ...] = ()
    known: str = ""


class Finding(Struct, frozen=True, kw_only=True):
    """One place where a rule is broken. Never holds message content."""

    code: str
    name: str
    severity: str
    place: str
    message: str
    error: str | None = None
    fixable: bool = True
    lossy: bool = False
    help: str = ""


def is_broken(findings: Iterable[Finding]) -> bool:
    """Whether any finding is more than a note."""
    return any(finding.severity != NOTE for finding in findings)


Find = Callable[["Case"], Iterator[Finding]]

RULES: dict[str, Rule] = {}
FINDERS: list[tuple[tuple[str, ...], Find]] = []


def rule(**fields: Any) -> Rule:
    """Register a rule in the catalogue."""
    entry = Rule(**fields)
    RULES[entry.code] = entry
    return entry


def finder(*dialects: str) -> Callable[[Find], Find]:
    """Register a function that finds breaches, for these dialects (none named: for all)."""

    def register(find: Find) -> Find:
        FINDERS.append((dialects, find))
        return find

    return register


_WORD = re.compile(r"[\w./+-]{1,32}")


def word(value: object) -> str:
    """Name a role, a label or a field: shown only if it is one short word, else by its type."""
    if isinstance(value, str) and _WORD.fullmatch(value):
        return value
    return f"<{type(value).__name__}>"


def place_order(place: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts places in the order of the list."""
    return [(0, int(step), "") if is_index(step) else (1, 0, step) for step in place.split(".")]


def label(part: Part) -> str:
    """Name a call or result: by its id, or by its tool where the format has no ids."""
    return shown(part.id if part.id is not None or part.name is None else part.name)


def shown(value: object) -> str:
    """Name an id in a message: printable, and never longer than an id should be."""
    text = value if isinstance(value, str) else repr(value)
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= _LONGEST_ID else f"{text[: _LONGEST_ID - 1]}…"
