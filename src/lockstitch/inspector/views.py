"""What the page shows of one session, as plain values: its facts, its problems, its rows."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from lockstitch.inspector import actions
from lockstitch.inspector.actions import SessionReading, Subject
from lockstitch.inspector.timeline import Row, shorten_row
from lockstitch.journal.queries import SearchWords
from lockstitch.redaction import redact_value
from lockstitch.rules import RULES, Finding
from lockstitch.sources.listing import problems

_MOST_SHOWN = 500
_MOST_MATCHES = 500
_KEPT = 4


class SessionPage(Struct):
    """A session as it was read once: ``version`` tells it from an earlier or later look."""

    version: int
    reading: SessionReading
    masked: list[Row]

    def rows(self, *, reveal: bool) -> list[Row]:
        """Return the rows, with secrets masked unless they were asked for."""
        return self.reading.timeline.rows if reveal else self.masked


class Shelf:
    """The sessions that were looked at last, so that a page of rows is not read anew."""

    def __init__(self) -> None:
        self._views: OrderedDict[str, SessionPage] = OrderedDict()
        self._numbers = itertools.count(1)

    def read(self, subject: Subject) -> SessionPage:
        """Read a session now."""
        reading = actions.read_session(subject)
        masked, _ = redact_value(reading.timeline.rows)
        view = self._views[subject.id] = SessionPage(next(self._numbers), reading, masked)
        self._views.move_to_end(subject.id)
        while len(self._views) > _KEPT:
            self._views.popitem(last=False)
        return view

    def view(self, subject: Subject, version: int) -> SessionPage | None:
        """Return a session as it was read under a number; None if that is too long ago."""
        found = self._views.get(subject.id)
        return found if found is not None and found.version == version else None


def describe_page(view: SessionPage, row: dict[str, Any]) -> dict[str, Any]:
    """Return all of a session but its rows."""
    report, made = view.reading.report, view.reading.timeline
    marks = [[found.severity, made.row_of(found.place)] for found in report.findings[:_MOST_SHOWN]]
    return {
        "row": row,
        "version": view.version,
        "error": report.error or "",
        "dialect": report.dialect or "",
        "notes": report.notes,
        "count": len(made.rows),
        "turns": sum("turn" in one for one in made.rows),
        "asides": made.asides,
        "problems": [_problem(view, one) for one in problems(report.findings)],
        "marks": [mark for mark in marks if mark[1] is not None],
        "actions": view.reading.actions,
    }


def _problem(view: SessionPage, problem: Any) -> dict[str, Any]:
    rule = RULES[problem.findings[0].code]
    return {
        "severity": problem.severity,
        "words": problem.words,
        "meaning": problem.meaning,
        "refusal": problem.refusal,
        "cure": problem.cure,
        "is_fixable": problem.is_fixable,
        "code": rule.code,
        "name": rule.name,
        "what": rule.what,
        "cause": rule.cause,
        "repair": rule.repair,
        "findings": [_finding(view, one) for one in problem.findings[:_MOST_SHOWN]],
        "more": max(len(problem.findings) - _MOST_SHOWN, 0),
    }


def _finding(view: SessionPage, found: Finding) -> dict[str, Any]:
    row = view.reading.timeline.row_of(found.place)
    facts = {"code": found.code, "place": found.place, "message": found.message}
    return {**facts, "fixable": found.fixable, "row": row}


def slice_rows(rows: Sequence[Row], start: int, stop: int, *, full: bool) -> list[Row]:
    """Return some rows by their numbers, long texts cut unless they are wanted in full."""
    chosen = rows[max(start, 0) : stop]
    numbered = [{**row, "at": start + number} for number, row in enumerate(chosen)]
    return [shorten_row(row, full=full) for row in numbered]


def find_matches(rows: Sequence[Row], text: str) -> dict[str, Any]:
    """Return the numbers of the rows that hold all words of a text."""
    words = SearchWords(text)
    found = [number for number, row in enumerate(rows) if words.are_in(_said_in(row))]
    return {"rows": found[:_MOST_MATCHES], "count": len(found)}


def _said_in(row: Row) -> str:
    """Return all texts of a row."""
    texts: list[str] = []
    left: list[Any] = [row["parts"]]
    while left:
        value = left.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
    return "\n".join(texts)
