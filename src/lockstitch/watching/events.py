"""What is told of a session that is followed, in words and as a value for programs."""

from __future__ import annotations

import shlex
from typing import Any

from msgspec import Struct

from lockstitch.formats.base import SQLITE
from lockstitch.formats.sources import Source
from lockstitch.report import Report
from lockstitch.rules import ERROR

BROKEN, REPAIRED, REFUSED, HEALTHY = "broken", "repaired", "refused", "healthy"


class Notice(Struct):
    """Something that is told: a session is broken, was repaired, was not, or is healthy again.

    ``command`` is what a person may paste next; the findings of ``report`` are those that are
    left. Neither holds anything of what was said in the session.
    """

    kind: str
    report: Report
    command: str
    backup: str | None = None
    reason: str = ""

    @property
    def codes(self) -> list[str]:
        """The codes of what is wrong, each once."""
        return sorted({found.code for found in self.report.findings})


def command_for(verb: str, report: Report, source: Source) -> str:
    """Return the command that repairs a session, or takes that back, for a shell."""
    words = ["lockstitch", verb, source.path]
    if source.kind == SQLITE and report.session is not None:
        words += ["--session", report.session]
    return shlex.join(words)


def in_words(event: Notice) -> str:
    """Say in a sentence what happened to a session; which one stands elsewhere."""
    if event.kind == HEALTHY:
        return "nothing is wrong with it any more."
    if event.kind == REPAIRED:
        left = f" Left: {', '.join(event.codes)}." if event.codes else ""
        return f"repaired; the original is kept in {event.backup}.{left}"
    if event.kind == REFUSED:
        return f"not repaired: {event.reason}"
    if event.report.error is not None:
        return f"cannot be read: it {event.report.error}"
    findings = sorted(event.report.findings, key=lambda found: found.severity != ERROR)
    first = findings[0]
    more = len(findings) - 1
    rest = f", and {more} more" if more else ""
    return f"broken: {first.message} ({first.code} at {first.place}{rest})"


def fields_of(event: Notice) -> dict[str, Any]:
    """Return what a program is told besides the session itself."""
    told: dict[str, Any] = {"event": event.kind, "said": in_words(event), "command": event.command}
    if event.backup is not None:
        told["backup"] = event.backup
    if event.reason:
        told["reason"] = event.reason
    return told
