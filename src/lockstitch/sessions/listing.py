"""The sessions of this machine as a list: of each file only its two ends are read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import structs

from lockstitch import inputs
from lockstitch.errors import LockstitchError
from lockstitch.formats import lines, packed
from lockstitch.formats.base import Format, Glimpse
from lockstitch.formats.registry import format_named, owner_of
from lockstitch.report import OWN, Report, is_many
from lockstitch.sessions.summary import Summary, described, one_line, resuming

_HEAD = 1 << 17
_TAIL = 1 << 16
_LINES = 40
# A document is one value: a part of it tells nothing.
_DOCUMENT = 1 << 22


def listed(paths: Iterable[str], *, environ: Mapping[str, str] | None = None) -> Iterator[Summary]:
    """Return the sessions in some files, not checked, the one that was used last first.

    Each file is read when its turn comes, so that the first ones are there at once.
    """
    where = os.environ if environ is None else environ
    known: list[tuple[float, str, Summary | None]] = []
    for path in paths:
        if is_many(path):
            known += [(one.updated, path, one) for one in listed_in(path, where)]
        else:
            known.append((_time(path), path, None))
    for _, path, row in sorted(known, key=lambda one: (-one[0], one[1])):
        yield from listed_in(path, where) if row is None else [row]


def _time(path: str) -> float:
    try:
        return os.stat(path).st_mtime  # noqa: PTH116 - there may be 100 000 of them
    except OSError:
        return 0.0


def listed_in(path: str, environ: Mapping[str, str] | None = None) -> Iterator[Summary]:
    """Return the sessions of one file; those of a program that is not known are left out."""
    where = os.environ if environ is None else environ
    try:
        if is_many(path):
            yield from _rows(path)
            return
        form = owner_of(path, where)
        if form is not None:
            yield _of_file(path, form)
    except (LockstitchError, OSError):
        # Whoever checks it says what is wrong with it.
        yield Summary(path)


class Summaries:
    """Summaries of sessions that were checked; a database of many is asked once for all titles."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str | None, Summary]] = {}

    def of(self, report: Report) -> Summary:
        """Return the summary of a session, with its title or first words."""
        if not report.format or report.format == OWN or not os.path.lexists(report.target):
            return described(report)
        try:
            if is_many(report.target):
                return self._row(report)
            told = _glimpse(report.target, format_named(report.format))
        except (LockstitchError, OSError):
            return described(report)
        known = described(report, told.title or told.prompt)
        return structs.replace(known, project=known.project or told.project)

    def _row(self, report: Report) -> Summary:
        if report.target not in self.rows:
            self.rows[report.target] = {one.session: one for one in _rows(report.target)}
        known = self.rows[report.target].get(report.session)
        if known is None:
            return described(report)
        made = described(report, known.title)
        project = made.project or known.project
        return structs.replace(made, updated=known.updated, project=project)


def summarized(report: Report) -> Summary:
    """Return the summary of one session that was checked, with its title or first words."""
    return Summaries().of(report)


def _of_file(path: str, form: Format) -> Summary:
    status = os.stat(path)  # noqa: PTH116 - there may be 100 000 of them
    told = _glimpse(path, form)
    program, words, is_local = resuming(form.name, told.session, path)
    return Summary(
        target=path,
        format=form.name,
        program=program,
        session=told.session,
        title=one_line(told.title or told.prompt),
        project=told.project,
        updated=status.st_mtime,
        size=status.st_size,
        words=words,
        is_local=is_local,
        is_aside=told.is_aside,
    )


def _rows(path: str) -> Iterator[Summary]:
    from lockstitch.formats import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only
    from lockstitch.formats.base import SQLITE  # noqa: PLC0415 - as above
    from lockstitch.formats.registry import format_of  # noqa: PLC0415 - as above

    form = format_of(SQLITE, path, sorted(rows.tables(path)))
    if form is None:
        return
    for row in rows.sessions(path, form):
        program, words, is_local = resuming(form.name, row.id, path)
        yield Summary(
            target=path,
            format=form.name,
            program=program,
            session=row.id,
            title=one_line(row.title),
            project=row.project,
            updated=row.updated,
            words=words,
            is_local=is_local,
        )


def _glimpse(path: str, form: Format) -> Glimpse:
    """Return what the two ends of a file tell."""
    head, tail = _ends(path)
    first = [*_values(head)]
    if not first and len(head) < _DOCUMENT and path.endswith(".json"):
        first = [*_document(path)]
    # the first line of a piece from the middle is a rest of one
    last = [*_values(tail.partition(b"\n")[2], most=None)]
    return form.glimpse(path, first, last)


def _ends(path: str) -> tuple[bytes, bytes]:
    if packed.is_packed(path):
        return packed.unpacked_head(path, _HEAD), b""
    with inputs.opened(path) as handle, inputs.told():
        size = os.fstat(handle).st_size
        head = os.read(handle, _HEAD) if size else b""
        start = max(len(head) - 1, size - _TAIL)
        if size <= len(head):
            return head, b""
        os.lseek(handle, start, os.SEEK_SET)
        return head, os.read(handle, _TAIL + 1)


def _values(data: bytes, most: int | None = _LINES) -> Iterator[dict[str, Any]]:
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")[:most]:
        try:
            value = lines.decode(line.strip(b"\0"))
        except (ValueError, RecursionError):
            continue
        if type(value) is dict:
            yield value


def _document(path: str) -> Iterator[dict[str, Any]]:
    data = inputs.head(path, _DOCUMENT)
    try:
        value = lines.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError):
        return
    if type(value) is dict:
        yield value
