"""The actions of the page; they make the same calls as the command line.

A session is named by a :class:`Subject`. For every action the page first asks what it would do
(:func:`plan_action`), and the action is done (:func:`perform`) only if it would still do exactly
that.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from lockstitch import stored
from lockstitch.errors import LockstitchError, Moved, Unreadable, UsageError
from lockstitch.formats import repair
from lockstitch.formats.langgraph.postgres import KIND as POSTGRES
from lockstitch.inspector import plans, timeline
from lockstitch.inspector.plans import ActionPlan
from lockstitch.inspector.timeline import Timeline
from lockstitch.sources import operations, own_stores
from lockstitch.sources.source import OWN, Opened, Report, Source
from lockstitch.sources.targets import resolve_sources, session_paths

_CHANGED = "the session is no longer what you were shown; nothing was changed: look again"
_NO_SUCH = "this session no longer exists: scan again"


class Subject(Struct, frozen=True):
    """One session that is shown: the file or address that holds it, and its name there."""

    target: str
    session: str | None
    is_own: bool

    @property
    def id(self) -> str:
        """An id for links that reveals nothing of the path and is the same in every run."""
        where = self.target if own_stores.is_postgres(self.target) else os.path.abspath(self.target)  # noqa: PTH100
        name = f"{where}\0{self.session}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(name).hexdigest()[:16]


class SessionReading(Struct):
    """A session that was read: the report of a check, and its rows."""

    report: Report
    timeline: Timeline
    actions: list[str]


def require_showable(target: str | None) -> None:
    """Raise an error if a target cannot be shown."""
    if target is None or Path(target).is_dir():
        return
    if own_stores.may_be(target) and own_stores.place_of(target):
        stored.opened(target)[0].close()
    elif not own_stores.is_postgres(target):
        resolve_sources(target)


def is_store(target: str | None) -> bool:
    """Whether a target is a Lockstitch store."""
    if target is None or not (own_stores.may_be(target) or Path(target).is_dir()):
        return False
    return own_stores.place_of(target) is not None


def scan(target: str | None) -> Iterator[tuple[Subject, Report]]:
    """Yield a report on every session of this machine, or of a target."""
    if target is not None and own_stores.is_postgres(target):
        for report in operations.scan_database(target):
            yield _found(target, report)
        return
    if target is not None and is_store(target):
        for report in stored.check(target):
            yield _found(target, report)
        return
    path = target and target.removeprefix("sqlite:///")
    if path and not os.path.lexists(path):
        for source in resolve_sources(path):
            yield Subject(source.path, source.session, is_own=False), operations.check(source)
        return
    for file in session_paths([path] if path else []):
        for report in operations.scan_file(file):
            if not report.is_unknown:
                yield _found(file, report)


def _found(target: str, report: Report) -> tuple[Subject, Report]:
    return Subject(target, _name(report), report.format == OWN), report


def _name(report: Report) -> str | None:
    """Return the name of a session among others in its file; None for the only one of a file."""
    is_many = report.format == OWN or report.target.endswith((".db", ".sqlite", ".sqlite3"))
    return report.session if is_many or own_stores.is_postgres(report.target) else None


def check_again(subject: Subject) -> Report:
    """Check one session again."""
    if subject.is_own:
        return next(iter(stored.check(subject.target, subject.session)))
    return source_of(subject).check()


def source_of(subject: Subject) -> Source:
    """Return the source of another program's session."""
    found = resolve_sources(subject.target, session=subject.session)
    found = [one for one in found if one.session == subject.session] or found
    if not found:
        raise Unreadable(_NO_SUCH)
    return found[0]


def read_session(subject: Subject) -> SessionReading:
    """Read an entire session; if that fails, the report has an error, and there are no rows."""
    if subject.is_own:
        journal = stored.read(subject.target, subject.session)
        report = check_again(subject)
        made = timeline.journal_timeline(journal)
        return SessionReading(report, made, plans.own_actions(subject.target, journal, report))
    source = source_of(subject)
    if source.error is not None:
        return SessionReading(operations.check(source), Timeline([]), [])
    try:
        found = source.open(follow_symlinks=True, search=True)
    except LockstitchError:
        return SessionReading(
            operations.check(source), Timeline([]), ["undo"] if _has_undo(source) else []
        )
    report = operations.describe(found)
    report.findings = repair.findings_in(source.form, found.transcript)
    made = timeline.transcript_timeline(source.form, found.transcript, report.findings)
    return SessionReading(
        report, made, plans.foreign_actions(found, report, has_undo=_has_undo(source))
    )


def _has_undo(source: Source) -> bool:
    try:
        if source.kind == POSTGRES:
            return True
        return bool(operations.find_undoable(source.path, session=source.session))
    except (LockstitchError, OSError):
        return False


def plan_action(subject: Subject, action: str, options: Mapping[str, Any]) -> ActionPlan:
    """Return the plan of an action; nothing is changed."""
    if subject.is_own:
        return plans.plan_own(subject.target, str(subject.session), action, options)
    return plans.plan_foreign(source_of(subject), action, options)


def perform(subject: Subject, action: str, options: Mapping[str, Any], stamp: str) -> list[str]:
    """Do what was shown.

    Return what was done. Raise ``Moved`` if it would be something else now.
    """
    plan = plan_action(subject, action, options)
    if plan.preview.refusal:
        raise UsageError(plan.preview.refusal)
    if plan.preview.stamp != stamp:
        raise Moved(_CHANGED)
    return plan.apply()


def export_session(
    subject: Subject, dialect: str | None, *, raw: bool = False, redact: str = ""
) -> tuple[bytes, str]:
    """Return a session as the messages of a request, and the name of the dialect."""
    if subject.is_own:
        journal = stored.read(subject.target, subject.session)
        messages, name = journal.messages(dialect), dialect or journal.dialect
    else:
        found = source_of(subject).open(follow_symlinks=True)
        messages, name, _ = operations.export(found, dialect, raw=raw)
    if redact:
        messages, _ = operations.remove_secrets(messages, name, personal=redact == "all")
    return operations.encode_messages(messages), name


def export_branch(subject: Subject, place: str) -> tuple[bytes, str]:
    """Return a branch that a resume would drop, as a session file of its own, and its name."""
    found: Opened = source_of(subject).open(follow_symlinks=True)
    data = found.source.form.fork(found.transcript, place)
    stem = Path(found.source.path).name.partition(".")[0]
    return data, f"{stem}-branch-{place}.jsonl"
