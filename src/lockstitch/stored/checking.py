"""Verifying stores: every record, and the request that each session makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from msgspec import structs

from lockstitch.errors import Damaged, LockstitchError
from lockstitch.heal import check as check_list
from lockstitch.places import brief, public
from lockstitch.report import OWN, Report
from lockstitch.rules import Finding
from lockstitch.session.maintenance import read_salvage
from lockstitch.stored.journal import Journal, damage, journal_of, opened, require
from lockstitch.stored.salvaging import findings_of, summary_of
from lockstitch.stores.base import Backend, Listed, StoreFault


def check(
    target: str,
    session: str | None = None,
    *,
    dialect: str | None = None,
    model: str | None = None,
    advance: Callable[[int], object] = lambda _: None,
) -> Iterator[Report]:
    """Verify a store, or one session of it: every byte, and the request that each session makes.

    What is wrong with no session in particular is a report without a session. ``advance`` is told
    the number of records as they are done. Nothing is changed, and no writer is waited for.
    """
    backend, place = opened(target)
    name = public(target)
    with backend:
        wanted = session or place.session
        found = backend.verify() if wanted is None else _alone(backend, wanted)
        for listed, faults in _grouped(found):
            if listed is None:
                findings = [damage(fault.seq, fault.message) for fault in faults]
                yield _brief(Report(name, OWN, findings=findings), target)
                continue
            report = _judged(name, backend, listed, faults, dialect, model)
            yield _brief(report, target)
            advance(max(listed.seq, report.records))


def count(target: str, session: str | None = None) -> int:
    """Count the records that a check is going to read."""
    backend, place = opened(target)
    with backend:
        wanted = session or place.session
        if wanted is None:
            return sum(listed.seq for listed in backend.sessions())
        with suppress(Damaged):
            head = backend.head(wanted)
            return head.seq if head else 0
    return 0


def _alone(backend: Backend, session: str) -> Iterator[Listed]:
    require(backend, session)
    yield Listed(session, 0, 0, 0, 0)


def _brief(report: Report, target: str) -> Report:
    """Leave the names out of what is said that stand before it."""
    session = report.session or ""
    report.findings = [
        structs.replace(found, message=brief(found.message, target, session))
        for found in report.findings
    ]
    report.error = None if report.error is None else brief(report.error, target, session)
    return report


def _grouped(
    found: Iterable[StoreFault | Listed],
) -> Iterator[tuple[Listed | None, list[StoreFault]]]:
    """Return every session with the faults in it; those of the store itself come apart, last."""
    faults: dict[str, list[StoreFault]] = {}
    for one in found:
        if isinstance(one, StoreFault):
            faults.setdefault(one.session, []).append(one)
        else:
            yield one, faults.pop(one.session, [])
    left = [fault for group in faults.values() for fault in group]
    if left:
        yield None, left


def _judged(  # noqa: PLR0913, PLR0917 - one step of a check
    target: str,
    backend: Backend,
    listed: Listed,
    faults: list[StoreFault],
    dialect: str | None,
    model: str | None,
) -> Report:
    report = Report(target, OWN, listed.session, records=listed.seq)
    try:
        journal = journal_of(backend, listed.session)
        found = faults or journal.fault is not None
        report.findings = _damages(backend, listed.session, faults, report) if found else []
        _describe(report, journal)
        report.dialect = dialect or journal.dialect
        messages = journal.messages(dialect, model)
        report.messages = len(messages)
        judged = messages if journal.thread is None or dialect else journal.thread.settled
        report.findings += check_list(judged, report.dialect, model=model) if judged else []
    except LockstitchError as error:
        report.error = str(error)
    return report


def _damages(
    backend: Backend, session: str, faults: list[StoreFault], report: Report
) -> list[Finding]:
    """Say of a damaged session which records are not what was written, and how many are."""
    found = read_salvage(backend, session)
    if found.is_whole:
        return [damage(fault.seq, fault.message) for fault in faults]
    report.notes.append(f"{summary_of(found)}; `lockstitch repair` keeps all that can be read")
    return findings_of(found)


def _describe(report: Report, journal: Journal) -> None:
    report.records = len(journal.records)
    report.reachable = journal.turns
    report.size = sum(len(record.body) for record in journal.records)
    report.size += sum(map(len, journal.blobs.values()))
    report.updated = journal.records[-1].at / 1000 if journal.records else 0.0
