"""What commands print about sessions: names, findings, changes, differences, and JSON.

For people this is one line each, in the manner of a linter; plans are in the future tense, outcomes
in the past. For programs it is versioned JSON, always ASCII, so that no id or file name in it can
reach a terminal as a control sequence.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, TextIO

import msgspec

from lockstitch.cli import terminal
from lockstitch.cli.terminal import escape_controls, paint, text_width, wrap_rows
from lockstitch.dialects.profiles import profile_named
from lockstitch.rules.rule import several
from lockstitch.sources.own_stores import may_hold_many
from lockstitch.sources.source import OWN
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lockstitch import Change, Finding, Quarantined
    from lockstitch.formats.repair import RepairPlan
    from lockstitch.sources.source import Report

STDIN = "-"
JSON_VERSION = 1
# A store holds many sessions, so its name alone does not identify one.
_FORMATS_OF_MANY = (OWN, "langgraph")
# Printed before changes that are only planned.
PLANNED = "planned, nothing is changed yet:"
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


# Names.


class SessionName(str):
    """The name of a session after the name of its target, already safe to print."""

    __slots__ = ()


def target_name(target: str) -> str:
    """Return the name of a target in printed text."""
    if isinstance(target, SessionName):
        return escape_controls(target)
    return "stdin" if target == STDIN else escape_controls(public(target))


def session_name(target: str, form: str | None, session: str | None) -> SessionName:
    """Return the name of a session in text: its target, and its id if a store holds many."""
    is_one = session is not None and (form in _FORMATS_OF_MANY or may_hold_many(target))
    shown = "stdin" if target == STDIN else public(target)
    return SessionName(f"{shown}:{session}" if is_one else shown)


def report_name(report: Report) -> SessionName:
    """Return the name of the session that a report is about."""
    return session_name(report.target, report.format, report.session)


def home_folder() -> str:
    """Return the home directory."""
    return os.path.expanduser("~")  # noqa: PTH111 - start-up time


def current_folder() -> str:
    """Return the folder in which the command was started; "" if it is gone."""
    try:
        return os.getcwd()  # noqa: PTH109 - start-up time
    except OSError:
        return ""


def shorten_path(path: str, home: str) -> str:
    """Return a path with ``~`` for the home directory."""
    if home and path != home and path.startswith(f"{home.rstrip('/')}/"):
        return f"~{path[len(home.rstrip('/')) :]}"
    return "~" if path == home else path


# Findings.


def describe_finding(
    target: str, dialect: str, found: Finding, stream: TextIO | None = None
) -> str:
    """Return place, severity, code and message, then the provider's words and the help.

    It is formatted for stderr unless another ``stream`` is given.
    """
    stream = sys.stderr if stream is None else stream
    code = paint(f"{found.severity} {found.code}", "bold", COLOURS[found.severity], stream=stream)
    mark = f" {paint('[*]', 'cyan', stream=stream)}" if found.fixable else ""
    place = _place_name(target, found.place, stream)
    lines = [f"{place}: {code}{mark} {escape_controls(found.message)}"]
    if found.error:
        said = f"  = {profile_named(dialect).vendor}: {escape_controls(found.error)}"
        lines.append(paint(said, "dim", stream=stream))
    if found.help:
        lines.append(f"  = help: {escape_controls(found.help)}")
    return "\n".join(lines)


def _place_name(target: str, place: str, stream: TextIO | None) -> str:
    return f"{paint(target_name(target), 'bold', stream=stream)}:{escape_controls(place)}"


def count_findings(findings: Sequence[Finding]) -> str:
    """Return the number of findings of each kind: ``2 errors and 1 warning``."""
    return count_kinds({kind: sum(one.severity == kind for one in findings) for kind in COLOURS})


def count_kinds(kinds: Mapping[str, int]) -> str:
    """Return the numbers of findings of each kind in words."""
    named = [several(count, kind) for kind in COLOURS if (count := kinds.get(kind, 0))]
    return " and ".join([", ".join(named[:-1]), *named[-1:]] if named[1:] else named)


# Changes.

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
# The engine records changes in the past tense: the past form of each verb, and the future form.
_TENSES = {
    "was": "will be",
    "were": "will be",
    "became": "will become",
    "got": "will get",
    "took": "will take",
    "is now": "will be",
}
_PAST = re.compile(rf"\b({'|'.join(_TENSES)})\b")
# How many changes of one kind are shown, since a file may need thousands.
MOST_ALIKE_CHANGES = 8


def in_future_tense(note: str) -> str:
    """Return the description of a change that is not made yet."""
    return _PAST.sub(lambda match: _TENSES[match[1]], note)


def describe_change(name: str, made: Change, *, is_done: bool = True) -> str:
    """Return a line for stderr on one change, at its place in the original."""
    action = made.action if is_done else f"will {_VERBS.get(made.action, made.action)}"
    note = made.note if is_done else in_future_tense(made.note)
    code = paint(made.code, "bold", "green", stream=sys.stderr)
    return f"{_place_name(name, made.place, sys.stderr)}: {code} {action}: {escape_controls(note)}"


def describe_changes(name: str, made: Sequence[Change], *, is_done: bool) -> Iterator[str]:
    """Yield a line for each change.

    Of many of one kind, the first ones and the number of the others.
    """
    kinds: dict[tuple[str, str], int] = {}
    for one in made:
        kind = (one.code, one.action)
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] <= MOST_ALIKE_CHANGES:
            yield describe_change(name, one, is_done=is_done)
    for (code, action), count in kinds.items():
        if count > MOST_ALIKE_CHANGES:
            said = action if is_done else f"will {_VERBS.get(action, action)}"
            more = several(count - MOST_ALIKE_CHANGES, "more place")
            yield f"{target_name(name)}: {code} {said}: {more}"


def describe_steps(made: Iterable[Change]) -> list[str]:
    """Return what a repair will do, for people: without codes or repeats."""
    counts: dict[str, int] = {}
    for one in made:
        note = in_future_tense(one.note)
        words = note if "will " in note else f"{_VERBS.get(one.action, one.action)}: {note}"
        counts[words] = counts.get(words, 0) + 1
    return [f"{words} ({count} times)" if count > 1 else words for words, count in counts.items()]


def describe_quarantined(target: str, kept: Quarantined, where: str = "shown by --json") -> str:
    """Return a line for stderr on one value that had to be removed from the list."""
    code = paint(kept.code, "bold", "yellow", stream=sys.stderr)
    place = _place_name(target, kept.place, sys.stderr)
    return f"{place}: {code} quarantined: {kept.size} bytes, {where}"


# Differences.

# How much of a value is shown, and of the line on both sides of it.
_MOST_OF_A_VALUE = 400
_CONTEXT = 60
_MOST_PLACES = 3
# The characters at which a value in JSON begins or ends.
_EDGES = frozenset('":,{}[]')
_DIFFERENCE_STYLES = {"-": "red", "+": "green", "@": "cyan", "^": "yellow", "=": "bold"}


def difference_lines(plan: RepairPlan, name: str, width: int | None = None) -> Iterator[str]:
    """Yield the difference record by record: ``-`` as it is, ``+`` as it will be, ``^`` the value.

    Lines wider than ``width`` are wrapped.
    """
    context = _CONTEXT if width is None else max(min(_CONTEXT, width // 4), 4)
    for sign, line in _signed_lines(plan, name, context) if plan.changed else ():
        safe = escape_controls(line)
        for row in [safe] if width is None else wrap_rows(safe, width, None):
            yield paint(row, _DIFFERENCE_STYLES[sign])


def _signed_lines(plan: RepairPlan, name: str, context: int) -> Iterator[tuple[str, str]]:
    from lockstitch.sources.listing import differences

    yield "=", f"--- {target_name(name)}"
    yield "=", f"+++ {target_name(name)} (repaired)"
    for one in differences(plan):
        before, after = one.before, one.after
        if before is None or after is None:
            new = before is None
            yield "@", f"@@ new, after {one.place} @@" if new else f"@@ {one.place}, removed @@"
            yield ("+", f"+{_cut(str(after))}") if new else ("-", f"-{_cut(str(before))}")
            continue
        more = ", …" if len(one.inner) > _MOST_PLACES else ""
        inner = f": {', '.join(one.inner[:_MOST_PLACES])}{more}" if one.inner else ""
        yield "@", f"@@ {one.place}{inner} @@"
        start, end = _common_ends(before, after)
        left = f"{'…' * (start > context)}{before[max(start - context, 0) : start]}"
        left = escape_controls(left)
        right = after[len(after) - end :][:context] + "…" * (end > context)
        was, will = (_cut(text[start : len(text) - end]) for text in (before, after))
        yield "-", f"-{left}{was}{right}"
        yield "+", f"+{left}{will}{right}"
        marked = max(text_width(escape_controls(will)), 1)
        yield "^", f"{' ' * (1 + text_width(left))}{'^' * marked}"


def _common_ends(before: str, after: str) -> tuple[int, int]:
    """Return the length of the common beginning and of the common end of two lines."""
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    # the whole value, not only the characters that differ
    while start and before[start - 1] not in _EDGES:
        start -= 1
    while end and before[len(before) - end] not in _EDGES:
        end -= 1
    return start, end


def _cut(value: str) -> str:
    return value if len(value) <= _MOST_OF_A_VALUE else f"{value[:_MOST_OF_A_VALUE]}…"


# JSON.


def encode_json(**fields: object) -> bytes:
    """Return a versioned JSON document on one line of ASCII."""
    plain = msgspec.to_builtins({"version": JSON_VERSION, **fields})
    return json.dumps(plain).encode() + b"\n"


def emit_json_line(**fields: object) -> None:
    """Print a versioned JSON document at once, for a program that waits for it."""
    terminal.emit(encode_json(**fields))
    terminal.flush()


def stream_json(sessions: Iterable[dict[str, object]]) -> Iterator[bytes]:
    """Yield the same bytes for many sessions, one at a time, because there may be millions."""
    lead = b'{"version": %d, "sessions": [' % JSON_VERSION
    for fields in sessions:
        yield lead + json.dumps(msgspec.to_builtins(fields)).encode()
        lead = b", "
    yield b"]}\n" if lead == b", " else lead + b"]}\n"


def iso_time(at: int) -> str | None:
    """Return a time in milliseconds since 1970 in ISO format; None for never."""
    from datetime import UTC, datetime

    if not at:
        return None
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")


def report_fields(checked: Report) -> dict[str, object]:
    """Return the fields of one session in a report."""
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
