"""How ``check`` and ``scan`` print what they find: which findings, counted or listed, for whom."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from msgspec import Struct, structs

import lockstitch
from lockstitch.cli import terminal, text
from lockstitch.cli.declarations import Option
from lockstitch.errors import UsageError, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lockstitch.report import Report
    from lockstitch.rules import Finding

TEXT, JSON = "text", "json"
STYLES = (TEXT, JSON, "sarif", "github", "junit")
OPTIONS = (
    Option(
        "output",
        ("--output-format",),
        "How to print: text, json, sarif (for code scanners), github (annotations in a workflow) "
        "or junit.",
        metavar="STYLE",
        choices=STYLES,
        default=TEXT,
    ),
    Option(
        "select",
        ("--select",),
        "Only findings of these codes, with commas between; LS1 means all that begin so.",
        metavar="CODES",
    ),
    Option(
        "ignore",
        ("--ignore",),
        "No findings of these codes, written as for --select.",
        metavar="CODES",
    ),
    Option("statistics", ("--statistics",), "Count the findings by code instead of listing them."),
)
# So many findings are listed of a session that differ in nothing but numbers and ids.
_MOST_ALIKE = 10
_NUMBERED = re.compile(r"\S*\d\S*")


class Asked(Struct, frozen=True):
    """What a command line asks for: a style, and the findings by the beginnings of their codes."""

    style: str
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    statistics: bool

    @classmethod
    def of(
        cls,
        output: str,
        select: str | None,
        ignore: str | None,
        statistics: bool,
        *,
        as_json: bool,
    ) -> Asked:
        """Read the options; raise `UsageError` for a code that is not known, or a contradiction."""
        if as_json and output not in (TEXT, JSON):
            raise UsageError(f"--json and --output-format {output} exclude each other.")
        style = JSON if as_json else output
        if statistics and style not in (TEXT, JSON):
            raise UsageError(f"--statistics and --output-format {style} exclude each other.")
        return cls(style, _codes(select, "--select"), _codes(ignore, "--ignore"), statistics)

    def over(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Return reports with the findings that are asked for."""
        for report in reports:
            if self.select or self.ignore:
                wanted = [found for found in report.findings if self.wants(found.code)]
                yield structs.replace(report, findings=wanted)
            else:
                yield report

    def wants(self, code: str) -> bool:
        """Whether findings of this code are asked for."""
        is_selected = not self.select or code.startswith(self.select)
        return is_selected and not (self.ignore and code.startswith(self.ignore))

    def emit(self, reports: Iterable[Report], others: Sequence[Report] | None = None) -> bool:
        """Print reports for a program, or statistics; false if they are to be printed for people.

        ``others`` are files of programs that are not known, which ``scan --json`` lists as well.
        """
        if self.style == TEXT and not self.statistics:
            return False
        from lockstitch.cli import machine, services

        if self.statistics:
            _emit_statistics(reports, self.style)
        elif self.style == JSON and others is not None:
            terminal.emit(machine.scanned(list(reports), others))
        elif self.style == JSON:
            for piece in machine.streamed(reports):
                terminal.emit(piece)
        elif self.style == "sarif":
            terminal.emit(machine.sarif(list(reports)))
        elif self.style == "junit":
            terminal.emit(services.junit(list(reports)))
        elif self.style == "github":
            for line in (line for report in reports for line in services.github(report)):
                terminal.say(line)
        return True


def _codes(given: str | None, flag: str) -> tuple[str, ...]:
    if given is None:
        return ()
    names = {rule.name: rule.code for rule in lockstitch.RULES.values()}
    words = [word.strip() for word in given.split(",") if word.strip()]
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
            terminal.complain(f"{text.shown(text.named(report))}: {report.error}")
        for found in report.findings:
            counts.setdefault(found.code, [0, 0])[0] += 1
        for code in {found.code for found in report.findings}:
            counts[code][1] += 1
    order = sorted(counts, key=lambda code: (-counts[code][0], code))
    if wanted == JSON:
        from lockstitch.cli import machine

        rows = [
            {"code": code, "name": lockstitch.RULES[code].name, "findings": found, "sessions": of}
            for code in order
            for found, of in [counts[code]]
        ]
        terminal.emit(machine.encode(statistics=rows))
        return
    for code in order:
        rule = lockstitch.RULES[code]
        terminal.say(f"{counts[code][0]:>6}  {code}  {rule.name}: {rule.summary}")


def listed(report: Report) -> Iterator[str]:
    """Return the findings of a session for people; of many that are alike, the first ones."""
    name = text.named(report)
    counts: dict[tuple[str, str], int] = {}
    last: dict[tuple[str, str], Finding] = {}
    for found in report.findings:
        kind = (found.code, _NUMBERED.sub("#", found.message))
        counts[kind] = counts.get(kind, 0) + 1
        last[kind] = found
        if counts[kind] <= _MOST_ALIKE or terminal.is_verbose():
            yield text.finding(name, str(report.dialect), found, sys.stdout)
    for kind, count in counts.items():
        if count > _MOST_ALIKE and not terminal.is_verbose():
            more, found = count - _MOST_ALIKE, last[kind]
            yield (
                f"{text.shown(name)}: {more} more {found.code} like these, the last at "
                f"{terminal.harmless(found.place)}; -v lists them all"
            )
