"""The sessions that a program would resume in a folder, the one that it takes first in front."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from lockstitch.errors import LockstitchError
from lockstitch.formats.base import SQLITE, Format
from lockstitch.formats.registry import format_named
from lockstitch.formats.sources import Source, places_of, sources_of
from lockstitch.launching.commands import NAMED, NEWEST, NOTHING, Client, Resume

# So many sessions are looked at where a person is to pick one.
_MOST = 20
_DATABASES = (".db", ".sqlite", ".sqlite3")


def targets(
    client: Client, resume: Resume, folder: str, home: Path, environ: Mapping[str, str]
) -> list[Source]:
    """Return the sessions that a command is about to resume; several if a person picks one."""
    if resume.kind == NOTHING:
        return []
    form = format_named(client.format)
    if resume.kind == NAMED:
        return [*islice(_named(form, resume.name, home, environ), 1)]
    place = os.path.realpath(os.path.join(folder, resume.folder))  # noqa: PTH118 - may be empty
    found = _found(form, "" if resume.everywhere else place, home, environ)
    return [*islice(found, 1 if resume.kind == NEWEST else _MOST)]


def _named(form: Format, name: str, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
    if os.path.isfile(name):  # noqa: PTH113 - a name may be no path at all
        yield from sources_of(name, form.name, environ)
        return
    for path in _newest(form, home, environ):
        if path.endswith(_DATABASES):
            yield from (one for one in _rows(path, environ) if one.session == name)
        elif name in Path(path).stem:
            yield from _read(path, environ)


def _found(form: Format, folder: str, home: Path, environ: Mapping[str, str]) -> Iterator[Source]:
    for path in _newest(form, home, environ):
        if path.endswith(_DATABASES):
            yield from _rows(path, environ, folder)
        elif not folder or form.belongs(path, folder):
            yield from _read(path, environ)


def _newest(form: Format, home: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the files of a program, the one that was written to last first."""
    dated = []
    for path in places_of(form, home, environ):
        try:
            dated.append((os.stat(path).st_mtime_ns, path))  # noqa: PTH116 - there may be many
        except OSError:
            continue
    return [path for _, path in sorted(dated, reverse=True)]


def _read(path: str, environ: Mapping[str, str]) -> Iterator[Source]:
    try:
        yield from sources_of(path, None, environ)
    except LockstitchError:
        return  # the program itself says what it thinks of such a file


def _rows(path: str, environ: Mapping[str, str], folder: str = "") -> Iterator[Source]:
    """Return the sessions of a database, the one that was changed last first."""
    from lockstitch.formats import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

    try:
        found = {one.session: one for one in sources_of(path, None, environ) if one.kind == SQLITE}
        if not found:
            return
        listed = rows.sessions(path, next(iter(found.values())).form)
    except LockstitchError:
        return
    for row in listed:
        project = os.path.realpath(row.project) if row.project else ""
        if row.id in found and (not folder or project == folder):
            yield found[row.id]
