"""How ``check`` and ``scan`` print their findings: which of them, in which style, for whom.

Text for people, JSON for programs, SARIF 2.1.0 for code scanners, and the formats of services that
run checks: GitHub's annotations and JUnit's XML.
"""

from __future__ import annotations

import json
import re
import sys
from os import fsencode
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec import Struct, structs

import lockstitch
from lockstitch.cli import render, terminal
from lockstitch.cli.options import option
from lockstitch.cli.terminal import escape_controls
from lockstitch.errors import UsageError, suggestion
from lockstitch.rules import NOTE
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lockstitch.rules import Finding
    from lockstitch.sources.source import Report


TEXT, JSON = "text", "json"
STYLES = (TEXT, JSON, "sarif", "github", "junit")
REPORT_OPTIONS = (
    option(
        "--output-format STYLE",
        "Output format: text, json, sarif (for code scanners), github (annotations in a "
        "workflow) or junit.",
        name="output",
        choices=STYLES,
        default=TEXT,
    ),
    option(
        "--select CODES",
        "Report only these codes, separated by commas; LS1 means all that begin with it.",
    ),
    option("--ignore CODES", "Do not report these codes, written as for --select."),
    option("--statistics", "Count the findings by code instead of listing them."),
)
# How many findings of a session are listed that differ only in numbers and ids.
_MOST_ALIKE_FINDINGS = 10
_NUMBERED = re.compile(r"\S*\d\S*")


class ReportOptions(Struct, frozen=True):
    """The options on the command line: a style, and the findings by prefixes of their codes."""

    style: str
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    statistics: bool

    @classmethod
    def of(cls, asked: Any) -> ReportOptions:
        """Return the options; raise `UsageError` for an unknown code or a contradiction."""
        style = JSON if asked.as_json else asked.output
        if asked.as_json and asked.output not in (TEXT, JSON):
            raise UsageError(f"--json and --output-format {asked.output} cannot be combined.")
        if asked.statistics and style not in (TEXT, JSON):
            raise UsageError(f"--statistics and --output-format {style} cannot be combined.")
        codes = _parse_codes(asked.select, "--select"), _parse_codes(asked.ignore, "--ignore")
        return cls(style, *codes, asked.statistics)

    def select_findings(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Yield reports with only the selected findings."""
        for report in reports:
            if self.select or self.ignore:
                wanted = [
                    found
                    for found in report.findings
                    if (not self.select or found.code.startswith(self.select))
                    and not (self.ignore and found.code.startswith(self.ignore))
                ]
                yield structs.replace(report, findings=wanted)
            else:
                yield report

    def emit(self, reports: Iterable[Report], others: Sequence[Report] | None = None) -> bool:
        """Print reports for a program, or statistics; return False if people are to read them.

        ``others`` are files of unknown programs, which ``scan --json`` lists as well.
        """
        if self.statistics:
            _emit_statistics(reports, self.style)
        elif self.style == JSON and others is not None:
            unknown = [{"target": public(other.target), "error": other.error} for other in others]
            rows = [render.report_fields(report) for report in reports]
            terminal.emit(render.encode_json(sessions=rows, unknown=unknown))
        elif self.style == JSON:
            for piece in render.stream_json(map(render.report_fields, reports)):
                terminal.emit(piece)
        elif self.style == "sarif":
            terminal.emit(encode_sarif(list(reports)))
        elif self.style == "junit":
            terminal.emit(encode_junit(list(reports)))
        elif self.style == "github":
            for line in (line for report in reports for line in github_lines(report)):
                terminal.say(line)
        else:
            return False
        return True


def _parse_codes(text: str | None, flag: str) -> tuple[str, ...]:
    if text is None:
        return ()
    names = {rule.name: rule.code for rule in lockstitch.RULES.values()}
    words = [word.strip() for word in text.split(",") if word.strip()]
    codes = tuple(names.get(word, word.upper()) for word in words)
    for word, code in zip(words, codes, strict=True):
        if not any(known.startswith(code) for known in lockstitch.RULES):
            hint = suggestion(word, names) or " See: lockstitch explain."
            raise UsageError(f"{flag}: no code begins with {word!r}.{hint}")
    if not codes:
        raise UsageError(f"{flag} needs codes, such as LS101 or LS1.")
    return codes


def _emit_statistics(reports: Iterable[Report], wanted: str) -> None:
    """Print how often each code was found, the most frequent first."""
    counts: dict[str, list[int]] = {}
    for report in reports:
        if report.error is not None and wanted == TEXT:
            terminal.complain(f"{render.target_name(render.report_name(report))}: {report.error}")
        for found in report.findings:
            counts.setdefault(found.code, [0, 0])[0] += 1
        for code in {found.code for found in report.findings}:
            counts[code][1] += 1
    order = sorted(counts, key=lambda code: (-counts[code][0], code))
    if wanted == JSON:
        rows = [
            {"code": code, "name": lockstitch.RULES[code].name, "findings": found, "sessions": of}
            for code in order
            for found, of in [counts[code]]
        ]
        terminal.emit(render.encode_json(statistics=rows))
        return
    for code in order:
        rule = lockstitch.RULES[code]
        terminal.say(f"{counts[code][0]:>6}  {code}  {rule.name}: {rule.summary}")


def finding_lines(report: Report) -> Iterator[str]:
    """Yield the findings of a session for people; of many similar ones, only the first."""
    name = render.report_name(report)
    counts: dict[tuple[str, str], int] = {}
    last: dict[tuple[str, str], Finding] = {}
    for found in report.findings:
        kind = (found.code, _NUMBERED.sub("#", found.message))
        counts[kind] = counts.get(kind, 0) + 1
        last[kind] = found
        if counts[kind] <= _MOST_ALIKE_FINDINGS or terminal.is_verbose():
            yield render.describe_finding(name, str(report.dialect), found, sys.stdout)
    for kind, count in counts.items():
        if count > _MOST_ALIKE_FINDINGS and not terminal.is_verbose():
            more, found = count - _MOST_ALIKE_FINDINGS, last[kind]
            yield (
                f"{render.target_name(name)}: {more} more {found.code} like these, the last at "
                f"{terminal.escape_controls(found.place)}; -v lists them all"
            )


_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}
# A place in a file of lines begins with a line number.
_LINE = re.compile(r"(\d+)(?:\.|$)")


def github_lines(report: Report) -> Iterator[str]:
    """Yield the findings as workflow commands, which GitHub shows beside the file."""
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
    # the escape character comes first; control characters have been written out by then
    return escape_controls(value).replace("%", "%25")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def encode_junit(reports: Sequence[Report]) -> bytes:
    """Return sessions as test cases in JUnit's XML: broken ones fail, unreadable are errors."""
    broken = sum(report.status == "broken" for report in reports)
    failed = sum(report.error is not None for report in reports)
    counts = f'tests="{len(reports)}" failures="{broken}" errors="{failed}"'
    lines = ['<?xml version="1.0" encoding="utf-8"?>', f'<testsuites name="lockstitch" {counts}>']
    lines.append(f'  <testsuite name="lockstitch" {counts}>')
    lines += [line for report in reports for line in _junit_case(report)]
    return "\n".join([*lines, "  </testsuite>", "</testsuites>", ""]).encode(
        "ascii", "xmlcharrefreplace"
    )


def _junit_case(report: Report) -> Iterator[str]:
    # imported here because it loads urllib.request and ssl, which nothing else needs
    from xml.sax.saxutils import escape, quoteattr

    name = quoteattr(render.target_name(render.report_name(report)))
    case = f'    <testcase classname="lockstitch.{report.format or "unknown"}" name={name}'
    harmful = [found for found in report.findings if found.severity != NOTE]
    if report.error is None and not harmful:
        yield f"{case}/>"
        return
    yield f"{case}>"
    if report.error is not None:
        yield f"      <error message={quoteattr(escape_controls(report.error))}/>"
    else:
        codes = ", ".join(sorted({found.code for found in harmful}))
        more = f", and {len(harmful) - 1} more" if harmful[1:] else ""
        first = quoteattr(f"{escape_controls(harmful[0].message)}{more}")
        yield f'      <failure type="{codes}" message={first}>'
        for found in harmful:
            place, message = escape_controls(found.place), escape_controls(found.message)
            yield escape(f"{place}: {found.severity} {found.code} {message}")
        yield "      </failure>"
    yield "    </testcase>"


def encode_sarif(sessions: Sequence[Report]) -> bytes:
    """Return the findings as SARIF 2.1.0, with every rule described."""

    def file_of(checked: Report) -> dict[str, Any]:
        target = public(checked.target)
        uri = "stdin" if target == "-" else quote(fsencode(target))
        return {"physicalLocation": {"artifactLocation": {"uri": uri}}}

    rules = [lockstitch.RULES[code] for code in sorted(lockstitch.RULES)]
    index = {rule.code: number for number, rule in enumerate(rules)}
    described = [
        {
            "id": rule.code,
            "name": rule.name,
            "shortDescription": {"text": rule.summary},
            "fullDescription": {"text": rule.what},
            "help": {"text": f"{rule.cause}\n\n{rule.repair}"},
            "defaultConfiguration": {"level": rule.severity},
            "properties": {"fixable": rule.fixable, "lossy": rule.lossy, "tags": [*rule.dialects]},
        }
        for rule in rules
    ]
    results = [
        {
            "ruleId": found.code,
            "ruleIndex": index[found.code],
            "level": found.severity,
            "message": {"text": found.message},
            "locations": [
                {**file_of(checked), "logicalLocations": [{"fullyQualifiedName": found.place}]}
            ],
            "properties": {"fixable": found.fixable, "lossy": found.lossy},
        }
        for checked in sessions
        for found in checked.findings
    ]
    failures = [
        {"level": "error", "message": {"text": one.error}, "locations": [file_of(one)]}
        for one in sessions
        if one.error is not None
    ]
    driver = {"name": "lockstitch", "version": lockstitch.__version__, "rules": described}
    invocation = {"executionSuccessful": not failures, "toolExecutionNotifications": failures}
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": results}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}).encode() + b"\n"
