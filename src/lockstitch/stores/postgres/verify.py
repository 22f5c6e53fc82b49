"""Reading everything a PostgreSQL store holds, a page of sessions at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, starmap
from operator import itemgetter

from msgspec import Struct

from lockstitch.errors import Damaged
from lockstitch.journal.rebuilding import large_names
from lockstitch.journal.records import NEW, START, Record, blob_name, verified
from lockstitch.stores.base import Fault, Listed
from lockstitch.stores.postgres import statements as sql
from lockstitch.stores.postgres.reading import Ask, shared
from lockstitch.stores.postgres.server import Row

PAGE = 100
CHUNK = 1000
CHUNK_BYTES = 4 << 20


class _Session(Struct, frozen=True):
    """A session's row, and whether there are records after its end."""

    id: int
    digest: bytes
    listed: Listed
    has_more: bool
    base: int


def everything(ask: Ask, listed: Callable[[Row], Listed]) -> Iterator[Fault | Listed]:
    """Check every session, then what belongs to none, then every large value."""
    last = 0
    ((end,),) = ask(sql.CHECK_END, ())
    while page := ask(sql.CHECK_HEADS, (last, end, PAGE)):
        sessions = [_session(row, listed) for row in page]
        yield from _page(ask, sessions, last)
        last = sessions[-1].id
    yield from _guarded(lambda: _strays(ask))
    yield from _blobs(ask)


def _session(row: Row, listed: Callable[[Row], Listed]) -> _Session:
    number, name, seq, digest, epoch, created, changed, holder, has_more, base = row
    return _Session(
        number, digest, listed((name, seq, epoch, created, changed, holder)), has_more, base
    )


def _guarded(check: Callable[[], Iterable[Fault | Listed]]) -> list[Fault | Listed]:
    """Do a check; what the server itself cannot read is a fault."""
    try:
        return list(check())
    except Damaged as error:
        return [Fault("", 0, str(error))]


def _page(ask: Ask, sessions: list[_Session], after: int) -> Iterator[Fault | Listed]:
    try:
        yield from list(_sessions(ask, sessions, after))
    except Damaged as error:
        if len(sessions) == 1:
            yield Fault(sessions[0].listed.session, 0, str(error))
            yield sessions[0].listed
            return
        # One that the server cannot read must not hide the others.
        for session in sessions:
            yield from _page(ask, [session], session.id - 1)


def _sessions(ask: Ask, sessions: list[_Session], after: int) -> Iterator[Fault | Listed]:
    groups = groupby(_records(ask, after, sessions[-1].id), key=itemgetter(0))
    number, group = next(groups, (None, iter(())))
    wanted: dict[str, tuple[str, int]] = {}
    faults: list[Fault] = []
    for session in sessions:
        while number is not None and number < session.id:
            number, group = next(groups, (None, iter(())))
        records = (Record(*row[1:]) for row in group) if number == session.id else iter(())
        if session.base:
            records = _shared(ask, session)
        faults += _checked(session, records, wanted)
    for (name,) in ask(sql.CHECK_NAMES, (sorted(wanted),)) if wanted else ():
        faults.append(Fault(*wanted[name], f"the large value {name} is missing"))
    # What was removed or replaced meanwhile is not damaged.
    there = (
        {row[0] for row in ask(sql.CHECK_IDS, ([one.id for one in sessions],))} if faults else ()
    )
    for session in sessions:
        yield from (
            one for one in faults if one.session == session.listed.session and session.id in there
        )
        yield session.listed


def _shared(ask: Ask, session: _Session) -> Iterator[Record]:
    """Give the records of a fork, whoever wrote them."""
    after, upto = 0, session.listed.seq
    while after < upto and (rows := shared(ask, session.id, after, upto)):
        yield from starmap(Record, rows)
        after = rows[-1][0]


def _records(ask: Ask, after: int, upto: int) -> Iterator[Row]:
    place = (after, 2**62)
    while rows := ask(sql.CHECK_RECORDS, (*place, upto, CHUNK, CHUNK_BYTES)):
        yield from rows
        place = rows[-1][:2]


def _checked(
    session: _Session, records: Iterator[Record], wanted: dict[str, tuple[str, int]]
) -> Iterator[Fault]:
    name, seq = session.listed.session, session.listed.seq
    last = Record(0, 0, "", 0, b"", START)
    # What was written since the session's row was read is not looked at.
    until = (record for record in records if record.seq <= seq)
    try:
        for record in verified(until, NEW, f"session {name}"):
            last = record
            for blob in large_names(record):
                wanted.setdefault(blob, (name, record.seq))
    except Damaged as error:
        yield Fault(name, last.seq + 1, str(error))
        return
    if problem := _problem(session, last):
        yield Fault(name, last.seq + 1, f"session {name}: {problem}")


def _problem(session: _Session, last: Record) -> str:
    """Say how a session's row and its records differ; "" if they do not."""
    if last.seq != session.listed.seq:
        return f"record {last.seq + 1} is missing, and the session ends at {session.listed.seq}"
    if last.digest != session.digest:
        return "its last record is not the one that was written last (checksum)"
    if last.epoch > session.listed.epoch:
        return "its last record was written under a lease that was never given"
    return "there are records after its end" if session.has_more else ""


def _strays(ask: Ask) -> Iterator[Fault]:
    for number, amount in ask(sql.CHECK_STRAYS, ()):
        yield Fault("", 0, f"{amount} records belong to no session (number {number})")


def _blobs(ask: Ask) -> Iterator[Fault | Listed]:
    place = ""
    while names := [row[0] for row in ask(sql.CHECK_BLOB_NAMES, (place, PAGE, CHUNK_BYTES))]:
        place = names[-1]
        try:
            yield from list(_page_of_blobs(ask, names))
        except Damaged:
            for name in names:
                yield from _guarded(lambda name=name: _page_of_blobs(ask, [name]))  # type: ignore[misc]


def _page_of_blobs(ask: Ask, names: list[str]) -> Iterator[Fault]:
    for name, body in ask(sql.BLOBS, (names,)):
        if blob_name(body) != name:
            yield Fault("", 0, f"the large value {name} is not what was written (checksum)")
