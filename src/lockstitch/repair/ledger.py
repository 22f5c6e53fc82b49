"""The ledger of a repair: what was changed, moved, invented, and what had to go."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from lockstitch.dialects.base import as_json
from lockstitch.rules.rule import Rule


class Change(Struct, frozen=True, kw_only=True):
    """One thing a repair did. ``place`` is in the original list; no message content."""

    code: str
    action: str
    place: str
    note: str


class Quarantined(Struct, frozen=True, kw_only=True):
    """A value that could not stay, whole, with the place it came from."""

    code: str
    place: str
    value: Any
    size: int


class Ledger(Struct):
    """Collects what the passes of a repair do."""

    changes: list[Change]
    quarantine: list[Quarantined]

    def note(self, rule: Rule, action: str, place: str, note: str) -> None:
        """Write one change down."""
        self.changes.append(Change(code=rule.code, action=action, place=place, note=note))

    def set_aside(self, rule: Rule, place: str, value: Any, size: int = -1) -> None:
        """Keep a value that had to go; ``size`` is that of what it stands for, if it is no copy."""
        if size < 0:
            size = len(value) if isinstance(value, (str, bytes)) else len(as_json(value))
        self.quarantine.append(Quarantined(code=rule.code, place=place, value=value, size=size))
