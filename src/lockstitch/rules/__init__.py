"""The rules: LS codes, each with the provider's own error text."""

from __future__ import annotations

from lockstitch.rules import (
    checkpoints,
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
    FINDERS,
    NOTE,
    RULES,
    WARNING,
    Case,
    Finding,
    RequestContext,
    Rule,
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
    "checkpoints",
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


def examine(case: Case) -> list[Finding]:
    """Run every rule that applies to a case; findings in the order of their places."""
    dialect = case.profile.dialect
    holds = {message.role for message in case.messages}
    holds.update(part.kind for message in case.messages for part in message.parts)
    findings = [
        finding
        for one in FINDERS
        if (not one.dialects or dialect in one.dialects)
        and (not one.having or not one.having.isdisjoint(holds))
        and (one.when is None or one.when(case))
        for finding in one.find(case)
    ]
    return sorted(findings, key=lambda finding: (finding.at.order, finding.code))
