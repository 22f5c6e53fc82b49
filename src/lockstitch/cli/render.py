"""Findings and changes for people: one line each in the manner of a linter, a count at the end.

Reports for programs: versioned JSON, and SARIF 2.1.0 for code scanners.

Always ASCII, so that no id or file name in them can reach a terminal as a control sequence.

What a repair will do, or did, in words: a plan is in the future tense, its outcome in the past.

The engine writes its ledger as of things done; before they are done they are told here as what
will be.

The lines of a session that a repair changes, with the changed value marked.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, TextIO

import msgspec

from lockstitch.cli import terminal
from lockstitch.cli.documents import STDIN
from lockstitch.cli.terminal import escape_controls, paint, text_width, wrap_rows
from lockstitch.dialects.profiles import profile_named
from lockstitch.sources.listing import differences
from lockstitch.sources.source import OWN, may_hold_many
from lockstitch.sources.targets import public
from lockstitch.transcript import several

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lockstitch import Change, Finding, Quarantined
    from lockstitch.sources.repair import RepairPlan
    from lockstitch.sources.source import Report


# A store of many sessions: its place alone does not say which one is meant.
_FORMATS_OF_MANY = (OWN, "langgraph")
# Written before changes that are only planned.
PLANNED = "planned, nothing is changed yet:"
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


class SessionName(str):
    """The name of a session behind that of its target, of which nothing is left to hide."""

    __slots__ = ()


def target_name(target: str) -> str:
    """The name under which a target appears in text."""
    if isinstance(target, SessionName):
        return escape_controls(target)
    return "stdin" if target == STDIN else escape_controls(public(target))


def report_name(report: Report) -> str:
    """The name of a session in text: its target, and its id where a store holds many."""
    return session_name(report.target, report.format, report.session)


def session_name(target: str, form: str | None, session: str | None) -> str:
    """The name of a session in text, by what it is of."""
    is_one = session is not None and (form in _FORMATS_OF_MANY or may_hold_many(target))
    return SessionName(f"{public(target)}:{session}") if is_one else target


def describe_finding(target: str, dialect: str, found: Finding, stream: TextIO) -> str:
    """One finding: place, severity, code and message, then the provider's words and the help."""
    code = paint(f"{found.severity} {found.code}", "bold", COLOURS[found.severity], stream=stream)
    mark = f" {paint('[*]', 'cyan', stream=stream)}" if found.fixable else ""
    lines = [
        f"{place_name(target, found.place, stream)}: {code}{mark} {escape_controls(found.message)}"
    ]
    if found.error:
        said = f"  = {profile_named(dialect).vendor}: {escape_controls(found.error)}"
        lines.append(paint(said, "dim", stream=stream))
    if found.help:
        lines.append(f"  = help: {escape_controls(found.help)}")
    return "\n".join(lines)


def summarize_counts(kinds: Mapping[str, int], fixable: int) -> str:
    """The same of findings that were counted by kind already."""
    return f"Found {_join_counts(kinds)} ({fixable} fixable)."


def count_findings(findings: Sequence[Finding]) -> str:
    """The findings counted by kind: ``2 errors and 1 warning``."""
    return _join_counts(_count_kinds(findings))


def _count_kinds(findings: Sequence[Finding]) -> dict[str, int]:
    return {kind: sum(found.severity == kind for found in findings) for kind in COLOURS}


def _join_counts(kinds: Mapping[str, int]) -> str:
    counts = ((kinds.get(kind, 0), kind) for kind in COLOURS)
    named = [f"{n} {kind}{'s' * (n != 1)}" for n, kind in counts if n]
    return " and ".join([", ".join(named[:-1]), *named[-1:]] if named[1:] else named)


def describe_change(target: str, made: Change, stream: TextIO) -> str:
    """One change that heal made, at the place where it was in the original."""
    code = paint(made.code, "bold", "green", stream=stream)
    place = place_name(target, made.place, stream)
    return f"{place}: {code} {made.action}: {escape_controls(made.note)}"


def describe_quarantined(
    target: str, kept: Quarantined, stream: TextIO, where: str = "shown by --json"
) -> str:
    """One value that had to leave the list."""
    code = paint(kept.code, "bold", "yellow", stream=stream)
    place = place_name(target, kept.place, stream)
    return f"{place}: {code} quarantined: {kept.size} bytes, {where}"


def place_name(target: str, place: str, stream: TextIO) -> str:
    """The name of a session with a place in it."""
    return f"{paint(target_name(target), 'bold', stream=stream)}:{escape_controls(place)}"


JSON_VERSION = 1


def encode_json(**fields: object) -> bytes:
    """One versioned JSON document, a line of ASCII."""
    plain = msgspec.to_builtins({"version": JSON_VERSION, **fields})
    return json.dumps(plain).encode() + b"\n"


def iso_time(at: int) -> str | None:
    """A time in milliseconds since 1970 as programs read it; None for never."""
    from datetime import UTC, datetime

    if not at:
        return None
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")


def encode_scan(sessions: Sequence[Report], others: Sequence[Report]) -> bytes:
    """The report of ``scan --json``: the sessions, and the files of programs that are not known."""
    unknown = [{"target": public(other.target), "error": other.error} for other in others]
    return encode_json(sessions=[report_fields(checked) for checked in sessions], unknown=unknown)


def stream_reports(sessions: Iterable[Report]) -> Iterator[bytes]:
    """The same report, byte for byte, one session at a time."""
    return stream_json(report_fields(checked) for checked in sessions)


def stream_json(sessions: Iterable[dict[str, object]]) -> Iterator[bytes]:
    """A document of sessions, one at a time."""
    lead = b'{"version": %d, "sessions": [' % JSON_VERSION
    for fields in sessions:
        yield lead + json.dumps(msgspec.to_builtins(fields)).encode()
        lead = b", "
    yield b"]}\n" if lead == b", " else lead + b"]}\n"


def report_fields(checked: Report) -> dict[str, object]:
    """One session of a report."""
    fields: dict[str, object] = {
        "target": public(checked.target),
        "format": checked.format,
        "dialect": checked.dialect,
        "session": checked.session,
        "status": checked.status,
        "messages": checked.messages,
        "reachable": checked.reachable,
        "unreachable": checked.unreachable,
        "findings": checked.findings,
    }
    if checked.format == OWN:
        fields["records"] = checked.records
    if checked.size:
        facts = {"project": checked.project, "size": checked.size, "updated": checked.updated}
        fields |= {**facts, "left": checked.left, "notes": checked.notes}
    return fields if checked.error is None else {**fields, "error": checked.error}


_VERBS = {
    "adjusted": "adjust",
    "brought back": "bring back",
    "closed": "close",
    "dated": "date",
    "inserted": "insert",
    "linked": "reattach",
    "merged": "merge",
    "moved": "move",
    "relabelled": "relabel",
    "removed": "remove",
    "renamed": "rename",
    "rewritten": "rewrite",
    "rolled back": "roll back",
    "separated": "separate",
    "shortened": "shorten",
    "split": "split",
}
# What was done, as what will be.
_TENSES = {
    "was": "will be",
    "were": "will be",
    "became": "will become",
    "got": "will get",
    "took": "will take",
    "is now": "will be",
}
_PAST = re.compile(rf"\b({'|'.join(_TENSES)})\b")
# Of changes of one kind, so many are shown; a file may need thousands.
MOST_ALIKE_CHANGES = 8


def infinitive(action: str) -> str:
    """Return the infinitive of what a change does."""
    return _VERBS.get(action, action)


def in_future_tense(note: str) -> str:
    """Return the words of a change as of one that is not made yet."""
    return _PAST.sub(lambda match: _TENSES[match[1]], note)


def describe_planned_change(name: str, made: Change, stream: TextIO, *, is_done: bool) -> str:
    """Return a line on one change: what was done at a place, or what will be."""
    if is_done:
        return describe_change(name, made, stream)
    code = terminal.paint(made.code, "bold", "green", stream=stream)
    place = place_name(name, made.place, stream)
    note = terminal.escape_controls(in_future_tense(made.note))
    return f"{place}: {code} will {infinitive(made.action)}: {note}"


def describe_changes(name: str, made: Sequence[Change], *, is_done: bool) -> Iterator[str]:
    """Give a line a change; of many of one kind, the first and how many more there are."""
    kinds: dict[tuple[str, str], int] = {}
    for one in made:
        kind = (one.code, one.action)
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] <= MOST_ALIKE_CHANGES:
            yield describe_planned_change(name, one, sys.stderr, is_done=is_done)
    for (code, action), count in kinds.items():
        if count > MOST_ALIKE_CHANGES:
            said = action if is_done else f"will {infinitive(action)}"
            more = several(count - MOST_ALIKE_CHANGES, "more place")
            yield f"{target_name(name)}: {code} {said}: {more}"


def describe_steps(made: Iterable[Change]) -> list[str]:
    """Return what a repair will do, for a person: no codes, and what reads the same once."""
    counts: dict[str, int] = {}
    for one in made:
        note = in_future_tense(one.note)
        words = note if "will " in note else f"{infinitive(one.action)}: {note}"
        counts[words] = counts.get(words, 0) + 1
    return [f"{words} ({count} times)" if count > 1 else words for words, count in counts.items()]


# What is shown of a value, and of the line on both sides of it.
_MOST_OF_A_VALUE = 400
_CONTEXT = 60
_MOST_PLACES = 3
# Where a value in JSON begins or ends.
_EDGES = frozenset('":,{}[]')
_DIFFERENCE_STYLES = {"-": "red", "+": "green", "@": "cyan", "^": "yellow", "=": "bold"}


def difference_lines(mended: RepairPlan, name: str, width: int | None = None) -> Iterator[str]:
    """Give the difference record by record: ``-`` as it is, ``+`` as it will be, ``^`` the value.

    Lines that are wider than ``width`` go on in the next one.
    """
    context = _CONTEXT if width is None else max(min(_CONTEXT, width // 4), 4)
    for sign, line in _signed_lines(mended, name, context):
        safe = terminal.escape_controls(line)
        for row in [safe] if width is None else wrap_rows(safe, width, None):
            yield terminal.paint(row, _DIFFERENCE_STYLES[sign])


def _signed_lines(mended: RepairPlan, name: str, context: int) -> Iterator[tuple[str, str]]:
    if not mended.changed:
        return
    yield "=", f"--- {target_name(name)}"
    yield "=", f"+++ {target_name(name)} (repaired)"
    for one in differences(mended):
        if one.before is None:
            yield "@", f"@@ new, after {one.place} @@"
            yield "+", f"+{_cut_value(str(one.after))}"
        elif one.after is None:
            yield "@", f"@@ {one.place}, removed @@"
            yield "-", f"-{_cut_value(one.before)}"
        else:
            yield "@", f"@@ {one.place}{_inner_places(one.inner)} @@"
            yield from _changed_record(one.before, one.after, context)


def _changed_record(before: str, after: str, context: int) -> Iterator[tuple[str, str]]:
    start, end = _common_ends(before, after)
    left = terminal.escape_controls(
        f"{'…' * (start > context)}{before[max(start - context, 0) : start]}"
    )
    right = after[len(after) - end :][:context] + "…" * (end > context)
    was, will = (_cut_value(one[start : len(one) - end]) for one in (before, after))
    yield "-", f"-{left}{was}{right}"
    yield "+", f"+{left}{will}{right}"
    marked = max(text_width(terminal.escape_controls(will)), 1)
    yield "^", f"{' ' * (1 + text_width(left))}{'^' * marked}"


def _inner_places(inner: tuple[str, ...]) -> str:
    """Return where in a record the values that change are."""
    more = ", …" if len(inner) > _MOST_PLACES else ""
    return f": {', '.join(inner[:_MOST_PLACES])}{more}" if inner else ""


def _common_ends(before: str, after: str) -> tuple[int, int]:
    """Return how many characters two lines have in common at their beginning and at their end."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    # the whole value, not only the characters of it that differ
    while start and before[start - 1] not in _EDGES:
        start -= 1
    while end and before[len(before) - end] not in _EDGES:
        end -= 1
    return start, end


def _cut_value(value: str) -> str:
    return value if len(value) <= _MOST_OF_A_VALUE else f"{value[:_MOST_OF_A_VALUE]}…"
