"""The rules: LS codes, each with the provider's own error text."""

from __future__ import annotations

from lockstitch.rules import (
    content,
    identity,
    media,
    pairing,
    reasoning,
    stored,
    turns,
)
from lockstitch.rules.rule import (
    ERROR,
    NOTE,
    RULES,
    WARNING,
    Case,
    Finding,
    RequestContext,
    Rule,
    examine,
    is_broken,
)

__all__ = [
    "ERROR",
    "NOTE",
    "RULES",
    "WARNING",
    "Case",
    "Finding",
    "RequestContext",
    "Rule",
    "content",
    "examine",
    "identity",
    "is_broken",
    "media",
    "pairing",
    "reasoning",
    "stored",
    "turns",
]

_IN_ORDER = sorted(RULES.items())
RULES.clear()
RULES.update(_IN_ORDER)
