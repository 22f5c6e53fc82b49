"""What a check says of one session."""

from __future__ import annotations

from msgspec import Struct, field

from lockstitch.rules.rule import Finding

# The format of sessions in stores of Lockstitch's own.
OWN = "lockstitch"


class Report(Struct):
    """What is known of one session after a check; ``error`` says why it could not be read.

    ``reachable`` and ``unreachable`` count turns, ``left`` the bytes of those that a resume leaves
    behind. ``notes`` says what was left on purpose, ``records`` counts those of a session in a
    store of Lockstitch's own.
    """

    target: str
    format: str | None = None
    session: str | None = None
    project: str | None = None
    messages: int = 0
    reachable: int = 0
    unreachable: int = 0
    left: int = 0
    size: int = 0
    updated: float = 0.0
    dialect: str | None = None
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    records: int = 0

    @property
    def status(self) -> str:
        """The word for it in reports."""
        if self.error is not None:
            return "unreadable"
        return "broken" if self.findings else "ok"
