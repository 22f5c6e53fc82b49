"""What a check says of one session."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from lockstitch.rules.rule import Finding, is_broken

# The format of sessions in stores of Lockstitch's own.
OWN = "lockstitch"
# The states of a session that its program resumes with all that was said.
HEALTHY = ("ok", "notes")


# Files that hold many sessions.
DATABASES = (".db", ".sqlite", ".sqlite3")


class Report(Struct):
    """What is known of one session after a check; ``error`` says why it could not be read.

    ``reachable`` and ``unreachable`` count turns, ``left`` the bytes of those that a resume leaves
    behind. ``notes`` says what was left on purpose, ``records`` counts those of a session in a
    store of Lockstitch's own. ``is_unknown`` says of a file that no program is known that writes
    such ones, so that there may be no session in it at all.
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
    is_unknown: bool = False

    @property
    def status(self) -> str:
        """The word for it in reports: ok, notes, broken or unreadable."""
        return "unreadable" if self.error is not None else state_of(self.findings)


def is_many(target: str) -> bool:
    """Whether a file may hold many sessions, so that its path alone names none of them."""
    return target.endswith(DATABASES)


def state_of(findings: Sequence[Finding]) -> str:
    """Return the word for a session with these findings: ok, notes or broken."""
    if not findings:
        return "ok"
    return "broken" if is_broken(findings) else "notes"
