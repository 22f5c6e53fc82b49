"""Findings and changes for people: one line each in the manner of a linter, a count at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from lockstitch.cli.reading import STDIN
from lockstitch.cli.terminal import harmless, paint
from lockstitch.dialects.profiles import profile_named
from lockstitch.places import public
from lockstitch.report import OWN, is_many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lockstitch import Change, Finding, Quarantined
    from lockstitch.report import Report

# A store of many sessions: its place alone does not say which one is meant.
_MANY = (OWN, "langgraph")
# Written before changes that are only planned.
PLANNED = "planned, nothing is changed yet:"
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


class Label(str):
    """The name of a session behind that of its target, of which nothing is left to hide."""

    __slots__ = ()


def shown(target: str) -> str:
    """The name under which a target appears in text."""
    if isinstance(target, Label):
        return harmless(target)
    return "stdin" if target == STDIN else harmless(public(target))


def named(report: Report) -> str:
    """The name of a session in text: its target, and its id where a store holds many."""
    return labelled(report.target, report.format, report.session)


def labelled(target: str, form: str | None, session: str | None) -> str:
    """The name of a session in text, by what it is of."""
    is_one = session is not None and (form in _MANY or is_many(target))
    return Label(f"{public(target)}:{session}") if is_one else target


def finding(target: str, dialect: str, found: Finding, stream: TextIO) -> str:
    """One finding: place, severity, code and message, then the provider's words and the help."""
    code = paint(f"{found.severity} {found.code}", "bold", COLOURS[found.severity], stream=stream)
    mark = f" {paint('[*]', 'cyan', stream=stream)}" if found.fixable else ""
    lines = [f"{placed(target, found.place, stream)}: {code}{mark} {harmless(found.message)}"]
    if found.error:
        said = f"  = {profile_named(dialect).vendor}: {harmless(found.error)}"
        lines.append(paint(said, "dim", stream=stream))
    if found.help:
        lines.append(f"  = help: {harmless(found.help)}")
    return "\n".join(lines)


def count(findings: Sequence[Finding]) -> str:
    """How many findings there are, of which kind, and how many heal can mend."""
    return counted(_kinds(findings), sum(found.fixable for found in findings))


def counted(kinds: Mapping[str, int], fixable: int) -> str:
    """The same of findings that were counted by kind already."""
    return f"Found {_told(kinds)} ({fixable} fixable)."


def tally(findings: Sequence[Finding]) -> str:
    """The findings counted by kind: ``2 errors and 1 warning``."""
    return _told(_kinds(findings))


def _kinds(findings: Sequence[Finding]) -> dict[str, int]:
    return {kind: sum(found.severity == kind for found in findings) for kind in COLOURS}


def _told(kinds: Mapping[str, int]) -> str:
    counts = ((kinds.get(kind, 0), kind) for kind in COLOURS)
    named = [f"{n} {kind}{'s' * (n != 1)}" for n, kind in counts if n]
    return " and ".join([", ".join(named[:-1]), *named[-1:]] if named[1:] else named)


def change(target: str, made: Change, stream: TextIO) -> str:
    """One change that heal made, at the place where it was in the original."""
    code = paint(made.code, "bold", "green", stream=stream)
    place = placed(target, made.place, stream)
    return f"{place}: {code} {made.action}: {harmless(made.note)}"


def quarantined(
    target: str, kept: Quarantined, stream: TextIO, where: str = "shown by --json"
) -> str:
    """One value that had to leave the list."""
    code = paint(kept.code, "bold", "yellow", stream=stream)
    place = placed(target, kept.place, stream)
    return f"{place}: {code} quarantined: {kept.size} bytes, {where}"


def placed(target: str, place: str, stream: TextIO) -> str:
    """The name of a session with a place in it."""
    return f"{paint(shown(target), 'bold', stream=stream)}:{harmless(place)}"
