"""Findings and changes for people: one line each in the manner of a linter, a count at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from lockstitch.cli.reading import STDIN
from lockstitch.cli.terminal import harmless, paint
from lockstitch.dialects.profiles import profile_named
from lockstitch.report import OWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockstitch import Change, Finding, Quarantined
    from lockstitch.report import Report

COLOURS = {"error": "red", "warning": "yellow"}


def shown(target: str) -> str:
    """The name under which a target appears in text."""
    return "stdin" if target == STDIN else harmless(target)


def named(report: Report) -> str:
    """The name of a session in text: its target, and its id where a store holds many."""
    own = report.format == OWN and report.session is not None
    return f"{report.target}:{report.session}" if own else report.target


def finding(target: str, dialect: str, found: Finding, stream: TextIO) -> str:
    """One finding: place, code and message, then the provider's words and what heal would do."""
    code = paint(found.code, "bold", COLOURS[found.severity], stream=stream)
    mark = f" {paint('[*]', 'cyan', stream=stream)}" if found.fixable else ""
    lines = [f"{_place(target, found.place, stream)}: {code}{mark} {harmless(found.message)}"]
    if found.error:
        said = f"  = {profile_named(dialect).vendor}: {harmless(found.error)}"
        lines.append(paint(said, "dim", stream=stream))
    if found.help:
        lines.append(f"  = help: {harmless(found.help)}")
    return "\n".join(lines)


def count(findings: Sequence[Finding]) -> str:
    """How many findings there are, of which kind, and how many heal can mend."""
    return f"Found {tally(findings)} ({sum(found.fixable for found in findings)} fixable)."


def tally(findings: Sequence[Finding]) -> str:
    """The findings counted by kind: ``2 errors and 1 warning``."""
    kinds = {kind: sum(found.severity == kind for found in findings) for kind in COLOURS}
    return " and ".join(f"{n} {kind}{'s' * (n != 1)}" for kind, n in kinds.items() if n)


def change(target: str, made: Change, stream: TextIO) -> str:
    """One change that heal made, at the place where it was in the original."""
    code = paint(made.code, "bold", "green", stream=stream)
    place = _place(target, made.place, stream)
    return f"{place}: {code} {made.action}: {harmless(made.note)}"


def quarantined(
    target: str, kept: Quarantined, stream: TextIO, where: str = "shown by --json"
) -> str:
    """One value that had to leave the list."""
    code = paint(kept.code, "bold", "yellow", stream=stream)
    place = _place(target, kept.place, stream)
    return f"{place}: {code} quarantined: {kept.size} bytes, {where}"


def _place(target: str, place: str, stream: TextIO) -> str:
    return f"{paint(shown(target), 'bold', stream=stream)}:{harmless(place)}"
