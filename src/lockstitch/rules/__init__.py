"""The rules: LS codes, each with the provider's own error text."""

from __future__ import annotations

from lockstitch.rules import (
    checkpoints,
    compaction,
    content,
    graph,
    identity,
    media,
    pairing,
    reasoning,
    storage,
    turns,
)
from lockstitch.rules.case import Case, Request
from lockstitch.rules.rule import (
    ERROR,
    FINDERS,
    NOTE,
    RULES,
    WARNING,
    Finding,
    Rule,
    is_broken,
    place_order,
)

__all__ = [
    "ERROR",
    "NOTE",
    "RULES",
    "WARNING",
    "Case",
    "Finding",
    "Request",
    "Rule",
    "checkpoints",
    "compaction",
    "content",
    "examine",
    "graph",
    "identity",
    "is_broken",
    "media",
    "pairing",
    "reasoning",
    "storage",
    "turns",
]

_IN_ORDER = sorted(RULES.items())
RULES.clear()
RULES.update(_IN_ORDER)


def examine(case: Case) -> list[Finding]:
    """Run every rule that applies to a case; findings in the order of their places."""
    dialect = case.profile.dialect
    findings = [
        finding
        for dialects, find in FINDERS
        if not dialects or dialect in dialects
        for finding in find(case)
    ]
    return sorted(findings, key=lambda finding: (place_order(finding.place), finding.code))
