"""Findings as the services show them that run checks: GitHub's annotations, JUnit's XML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from lockstitch.cli import text
from lockstitch.cli.terminal import harmless
from lockstitch.places import public
from lockstitch.rules import NOTE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lockstitch.report import Report
    from lockstitch.rules import Finding

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}
# A place in a file of lines begins with the number of one.
_LINE = re.compile(r"(\d+)(?:\.|$)")


def github(report: Report) -> Iterator[str]:
    """Return the findings as workflow commands, which GitHub shows beside the file."""
    file = _property(public(report.target))
    if report.error is not None:
        yield f"::error file={file},title=lockstitch::{_data(report.error)}"
    for found in report.findings:
        at = _LINE.match(found.place) if report.target.endswith(".jsonl") else None
        line = f",line={at[1]}" if at else ""
        title = _property(f"{found.code} {found.name}")
        said = _data(f"{found.place}: {found.message}")
        yield f"::{_LEVELS[found.severity]} file={file}{line},title={title}::{said}"


def _data(value: str) -> str:
    # its own escape comes first; control characters are written out by then
    return harmless(value).replace("%", "%25")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def junit(reports: Sequence[Report]) -> bytes:
    """All sessions as test cases in JUnit's XML: broken ones fail, unreadable ones are errors."""
    broken = sum(report.status == "broken" for report in reports)
    failed = sum(report.error is not None for report in reports)
    counts = f'tests="{len(reports)}" failures="{broken}" errors="{failed}"'
    lines = ['<?xml version="1.0" encoding="utf-8"?>', f'<testsuites name="lockstitch" {counts}>']
    lines.append(f'  <testsuite name="lockstitch" {counts}>')
    lines += [line for report in reports for line in _case(report)]
    return "\n".join([*lines, "  </testsuite>", "</testsuites>", ""]).encode(
        "ascii", "xmlcharrefreplace"
    )


def _case(report: Report) -> Iterator[str]:
    name = quoteattr(text.shown(text.named(report)))
    case = f'    <testcase classname="lockstitch.{report.format or "unknown"}" name={name}'
    harmful = [found for found in report.findings if found.severity != NOTE]
    if report.error is not None:
        yield f"{case}>"
        yield f"      <error message={quoteattr(harmless(report.error))}/>"
    elif harmful:
        codes = ", ".join(sorted({found.code for found in harmful}))
        yield f"{case}>"
        yield f'      <failure type="{codes}" message={quoteattr(_first(harmful))}>'
        yield from (escape(f"{_told(found)}") for found in harmful)
        yield "      </failure>"
    else:
        yield f"{case}/>"
        return
    yield "    </testcase>"


def _first(findings: Sequence[Finding]) -> str:
    more = f", and {len(findings) - 1} more" if findings[1:] else ""
    return f"{harmless(findings[0].message)}{more}"


def _told(found: Finding) -> str:
    return f"{harmless(found.place)}: {found.severity} {found.code} {harmless(found.message)}"
