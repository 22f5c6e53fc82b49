"""List the sessions of this machine: what each is about, in a few words, and what is wrong with it.

Only the two ends of each file are read. Titles and first words are content, so code that prints
them has to escape them. Sessions are also found by what was said in them, and the changes of a
repair are shown record by record.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from msgspec import Struct, structs

from lockstitch.conversation.parts import repr_without
from lockstitch.errors import LockstitchError, Unreadable
from lockstitch.files import read
from lockstitch.formats import records
from lockstitch.formats.interface import (
    SQLITE,
    Format,
    Glimpse,
    Transcript,
    format_named,
    owner_of,
    recognize,
)
from lockstitch.formats.records import Record, encode_record, record_bytes
from lockstitch.formats.repair import RepairPlan
from lockstitch.journal.queries import Match, SearchWords, said_in
from lockstitch.repair.edits import diff
from lockstitch.rules import ERROR, RULES, Finding
from lockstitch.rules.rule import grouped
from lockstitch.sources.own_stores import may_hold_many
from lockstitch.sources.source import OWN, Report, Source, resume_line, resuming

# The states of a session in words; a session that was not checked yet has none.
HEALTHY, WARNINGS, BROKEN, UNREADABLE = "healthy", "warning", "broken", "unreadable"
# Codes whose findings are summed up by the number of turns that a resume drops.
_DROPPING = frozenset(
    {"LS701", "LS702", "LS704", "LS705", "LS706", "LS707", "LS801", "LS802", "LS805"}
)
_MOST_WORDS = 3
_SHORT_ID = 8
_LONGEST = 200
_UNITS = (("year", 31_557_600), ("month", 2_629_800), ("week", 604_800), ("day", 86_400))
_SHORT_UNITS = (("hour", 3600), ("minute", 60))


Key = tuple[str, str | None]


class SessionSummary(Struct):
    """What a list says about one session.

    ``title`` is its title, or its first words on one line. ``level`` is one of the words above, or
    empty before a check, and ``state`` says what is wrong. ``words`` is the command that resumes
    it, in its own folder if it ``is_local``; empty if no program can.
    """

    target: str
    format: str | None = None
    program: str = ""
    session: str | None = None
    title: str = ""
    project: str | None = None
    updated: float = 0.0
    size: int = 0
    level: str = ""
    state: str = ""
    words: tuple[str, ...] = ()
    is_local: bool = False
    is_aside: bool = False

    __repr__ = repr_without("title")

    @property
    def key(self) -> Key:
        """The identity of the session in a list."""
        return key_of(self.target, self.session)

    def age(self, now: float) -> str:
        """Return how long ago the session was last used, in words."""
        return ago(now - self.updated) if self.updated else ""

    def resume_line(self, here: str = "") -> str:
        """Return the command that resumes the session from a folder; empty if there is none."""
        return resume_line(self.words, self.project if self.is_local else None, here)


class Problem(Struct):
    """Findings with the same text: how bad they are, how many, and what can be done."""

    severity: str
    words: str
    findings: list[Finding]

    @property
    def is_fixable(self) -> bool:
        """Whether a repair fixes all of them."""
        return all(finding.fixable for finding in self.findings)

    @property
    def meaning(self) -> str:
        """What it means, in whole sentences."""
        return RULES[self.findings[0].code].what

    @property
    def refusal(self) -> str:
        """What the provider would answer; empty if it would not refuse."""
        return (self.findings[0].error or "") if self.severity == ERROR else ""

    @property
    def cure(self) -> str:
        """What a repair does about it, as a sentence."""
        return sentence(self.findings[0].help)


def key_of(target: str, session: str | None) -> Key:
    """Return the identity of a session: its file, and its id if the file holds many."""
    return target, session if may_hold_many(target) else None


def problems(findings: Sequence[Finding]) -> list[Problem]:
    """Return what is wrong with a session, the worst first."""
    return [Problem(group[0].severity, words, group) for words, group in grouped(findings)]


def state_in_words(report: Report) -> tuple[str, str]:
    """Return the level of a checked session, and what is wrong with it in words."""
    if report.error is not None:
        return UNREADABLE, report.error
    if report.status in ("ok", "notes"):
        notes = ", ".join(words for words, _ in grouped(report.findings))
        return HEALTHY, f"{HEALTHY} (note: {notes})" if notes else HEALTHY
    bad = [finding for finding in report.findings if finding.severity != "note"]
    level = BROKEN if any(finding.severity == ERROR for finding in bad) else WARNINGS
    said: list[str] = []
    if report.unreachable and not _DROPPING.isdisjoint(finding.code for finding in bad):
        bad = [finding for finding in bad if finding.code not in _DROPPING]
        said = [f"{report.unreachable} turn{'s' * (report.unreachable != 1)} a resume would drop"]
    said += [words for words, _ in grouped(bad)]
    more = len(said) - _MOST_WORDS
    if more > 0:
        said[_MOST_WORDS:] = [f"{more} more problem{'s' * (more != 1)}"]
    return level, ", ".join(said)


def with_check(summary: SessionSummary, report: Report) -> SessionSummary:
    """Return a summary with the result of a check."""
    level, state = state_in_words(report)
    return structs.replace(
        summary,
        level=level,
        state=state,
        session=report.session or summary.session,
        project=report.project or summary.project,
    )


def summary_of_report(report: Report, title: str = "") -> SessionSummary:
    """Return a summary from a report alone; ``title`` is known from its file."""
    program, words, is_local = resuming(report.format, report.session, report.target)
    summary = SessionSummary(
        target=report.target,
        format=report.format,
        program=program,
        session=report.session,
        title=one_line(title),
        project=report.project,
        updated=report.updated,
        size=report.size,
        words=words,
        is_local=is_local,
    )
    return with_check(summary, report)


def one_line(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text[: 4 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def short_ids(found: Iterable[SessionSummary]) -> dict[Key, str]:
    """Return the shortest prefixes of ids that identify sessions of this machine.

    A session whose file is not named by its id is left out.
    """
    names = {one.key: one.session for one in found if one.session and _is_named(one)}
    ordered = sorted(set(names.values()))
    short: dict[str, str] = {}
    for place, name in enumerate(ordered):
        beside = (ordered[place - 1] if place else "", *ordered[place + 1 : place + 2])
        shared = max(_shared(name, other) for other in beside)
        short[name] = name if is_word(name) else name[: max(shared + 1, _SHORT_ID)]
    counts = Counter(names.values())
    return {key: short[name] for key, name in names.items() if counts[name] == 1}


def _shared(one: str, other: str) -> int:
    """Return the length of the common prefix of two names."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def is_word(name: str) -> bool:
    """Whether an id is a word that is not shortened, as in some databases."""
    return "-" not in name


def _is_named(one: SessionSummary) -> bool:
    stem = os.path.basename(one.target).partition(".")[0]  # noqa: PTH119 - many
    own = one.session or ""
    return may_hold_many(one.target) or stem.startswith(own) or f"-{own}" in stem


def ago(seconds: float) -> str:
    """Return a duration in words: ``3 hours ago``."""
    for unit, length in (*_UNITS, *_SHORT_UNITS):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' * (count != 1)} ago"
    return "just now"


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    text = text.strip()
    if not text:
        return ""
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"


_HEAD_BYTES = 1 << 17
_TAIL = 1 << 16
_LINES = 40
# A document is a single value, so a part of it says nothing.
_DOCUMENT = 1 << 22


def summarize_files(
    paths: Iterable[str], *, environ: Mapping[str, str] | None = None
) -> Iterator[SessionSummary]:
    """Yield the sessions in some files, unchecked, the last used first.

    Each file is read when its turn comes, so the first sessions appear at once.
    """
    where = os.environ if environ is None else environ
    known: list[tuple[float, str, SessionSummary | None]] = []
    for path in paths:
        if may_hold_many(path):
            known += [(one.updated, path, one) for one in summarize_file(path, where)]
        else:
            try:
                updated = os.stat(path).st_mtime  # noqa: PTH116 - there may be 100 000 of them
            except OSError:
                updated = 0.0
            known.append((updated, path, None))
    for _, path, row in sorted(known, key=lambda one: (-one[0], one[1])):
        yield from summarize_file(path, where) if row is None else [row]


def summarize_file(path: str, environ: Mapping[str, str] | None = None) -> Iterator[SessionSummary]:
    """Yield the sessions of one file, unless it belongs to no known program."""
    where = os.environ if environ is None else environ
    try:
        if may_hold_many(path):
            yield from _summaries_in_database(path)
            return
        form = owner_of(path, where)
        if form is None:
            return
        status = os.stat(path)  # noqa: PTH116 - there may be 100 000 of them
        seen = _glimpse(path, form)
        program, words, is_local = resuming(form.name, seen.session, path)
        yield SessionSummary(
            target=path,
            format=form.name,
            program=program,
            session=seen.session,
            title=one_line(seen.title or seen.prompt),
            project=seen.project,
            updated=status.st_mtime,
            size=status.st_size,
            words=words,
            is_local=is_local,
            is_aside=seen.is_aside,
        )
    except (LockstitchError, OSError):
        # A check of this file will say what is wrong with it.
        yield SessionSummary(path)


class Summaries:
    """Summaries of checked sessions; a database is asked only once for all its titles."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str | None, SessionSummary]] = {}

    def __repr__(self) -> str:
        """Return how many databases were asked; shows no title."""
        return f"<{type(self).__name__}: {len(self.rows)} databases>"

    def of(self, report: Report) -> SessionSummary:
        """Return the summary of a session, with its title or first words."""
        if not report.format or report.format == OWN or not os.path.lexists(report.target):
            return summary_of_report(report)
        try:
            if may_hold_many(report.target):
                return self._row(report)
            seen = _glimpse(report.target, format_named(report.format))
        except (LockstitchError, OSError):
            return summary_of_report(report)
        known = summary_of_report(report, seen.title or seen.prompt)
        return structs.replace(known, project=known.project or seen.project)

    def _row(self, report: Report) -> SessionSummary:
        if report.target not in self.rows:
            self.rows[report.target] = {
                one.session: one for one in _summaries_in_database(report.target)
            }
        known = self.rows[report.target].get(report.session)
        if known is None:
            return summary_of_report(report)
        made = summary_of_report(report, known.title)
        project = made.project or known.project
        return structs.replace(made, updated=known.updated, project=project)


def summarize(report: Report) -> SessionSummary:
    """Return the summary of one checked session, with its title or first words."""
    return Summaries().of(report)


def _summaries_in_database(path: str) -> Iterator[SessionSummary]:
    from lockstitch.sources import rows  # noqa: PLC0415 - sqlite3 is loaded for databases only

    form, _ = recognize(SQLITE, path, sorted(rows.table_names(path)))
    if form is None:
        return
    for row in rows.list_sessions(path, form):
        program, words, is_local = resuming(form.name, row.id, path)
        yield SessionSummary(
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
    """Return what the two ends of a file say about its session."""
    head, tail = _ends(path)
    first = _objects_in(head.split(b"\n")[:_LINES])
    if not first and len(head) < _DOCUMENT and path.endswith(".json"):
        first = _objects_in([read.read_head(path, _DOCUMENT)])
    # a piece from the middle begins in the middle of a line
    last = _objects_in(tail.split(b"\n")[1:])
    return form.glimpse(path, first, last)


def _ends(path: str) -> tuple[bytes, bytes]:
    if read.is_packed(path):
        return read.unpacked_head(path, _HEAD_BYTES), b""
    with read.open_regular(path) as handle:
        size = os.fstat(handle).st_size
        head = os.read(handle, _HEAD_BYTES) if size else b""
        start = max(len(head) - 1, size - _TAIL)
        if size <= len(head):
            return head, b""
        os.lseek(handle, start, os.SEEK_SET)
        return head, os.read(handle, _TAIL + 1)


def _objects_in(texts: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the texts that are JSON objects, decoded."""
    found: list[dict[str, Any]] = []
    for text in texts:
        with suppress(ValueError, RecursionError):
            value = records.read_json(text.removeprefix(b"\xef\xbb\xbf").strip(b"\0"))[0]
            if type(value) is dict:
                found.append(value)
    return found


def search(source: Source, words: SearchWords) -> Iterator[Match]:
    """Yield matching messages of one session, as a resume would send it; numbers start at 0.

    Raises ``Unreadable`` if the session cannot be read.
    """
    if source.error is not None:
        raise Unreadable(source.error)
    session = source.open(follow_symlinks=True)
    history = session.transcript.history
    name = session.transcript.session or source.session or ""
    spoken = said_in(history.dialect.partition(":")[0], history.messages)
    for number, group in groupby(spoken, key=lambda one: one[0]):
        parts = [(who, text) for _, who, text in group]
        hit = next(((who, text) for who, text in parts if words.are_in(text)), None)
        whole = "\n".join(text for _, text in parts)
        if hit is None and words.are_in(whole):
            hit = (parts[0][0], whole)
        if hit is not None:
            yield Match(name, number, hit[0], words.excerpt(hit[1]))


class Difference(Struct, frozen=True):
    """A record that changes; ``before`` is None for a new one, ``after`` for a removed one.

    ``place`` is the place of the record, or for a new one the place of the record that it follows.
    ``inner`` are the places of the changed values in it.
    """

    place: str
    before: str | None
    after: str | None
    inner: tuple[str, ...] = ()

    __repr__ = repr_without("before", "after")


def differences(plan: RepairPlan) -> Iterator[Difference]:
    """Yield the records that a repair changes or removes, then those that it adds."""
    if not plan.changed:
        return
    after = {record.start: record for record in plan.after.records if not record.is_new}
    place = "0"
    for record in plan.before.records:
        new = after.get(record.start)
        if new is None or new.fresh is not record.fresh:
            changed = None if new is None else _record_text(plan.before, new)
            inner: tuple[str, ...] = ()
            if new is not None and type(record.value) is type(new.value) is dict:
                inner = tuple(edit.place for edit in diff(record.value, new.value))
            yield Difference(record.place, _record_text(plan.before, record), changed, inner)
    for record in plan.after.records:
        if record.is_new:
            yield Difference(place, None, _record_text(plan.after, record))
        else:
            place = record.place or place


def _record_text(transcript: Transcript, record: Record) -> str:
    stored = getattr(record, "text", None)
    if type(stored) is str:
        return stored
    data = transcript.context.data
    raw = record_bytes(data, record) if data or record.fresh else encode_record(record.value)
    return raw.decode("utf-8", "backslashreplace")
