"""A store in memory, for tests and for sessions that need not outlive their process."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import structs

from lockstitch.errors import Closed, Damaged, Fenced, Held, Unreadable, Where
from lockstitch.journal.events import about_in, about_of
from lockstitch.journal.records import (
    NEW,
    START,
    Head,
    JournalEntry,
    JournalRecord,
    blob_name,
    chain_entries,
    check_session_name,
    verify_chain,
)
from lockstitch.journal.salvage import Remains, Remnant
from lockstitch.stores.base import (
    LEASE_SECONDS,
    VACUUM_SECONDS,
    Backend,
    IncomingSession,
    Lease,
    Listed,
    Listing,
    StoreFault,
    are_there,
    arrange,
    check_blob,
    check_lease_seconds,
    find_fork_point,
    moved,
    require_lines,
    require_stamp,
)
from lockstitch.stores.leases import now

URL = "memory:"


class _MemorySession:
    """One session; ``token`` is "" while nobody holds it."""

    def __init__(self, name: str, epoch: int = 0) -> None:
        self.name = name
        self.records: list[JournalRecord] = []
        # The large values that records name, each with the number of the first record that does.
        self.names: dict[str, int] = {}
        self.epoch = epoch
        self.created = now()
        self.token = ""
        self.deadline = 0.0
        self.about: bytes | None = None

    def head(self) -> Head:
        last = self.records[-1].digest if self.records else START
        return Head(len(self.records), last, self.epoch)

    def listed(self) -> Listed:
        changed = self.records[-1].at if self.records else 0
        holder = f"process {os.getpid()}" if self.token else ""
        head = (self.name, len(self.records), self.epoch, self.created, changed, holder)
        return Listed(*head, *structs.astuple(about_of(self.about)))

    def describe(self, bodies: Iterable[bytes]) -> None:
        self.about = about_in(bodies) or self.about


class MemoryBackend(Backend):
    """Sessions in dictionaries, for all threads of one process.

    A holder in this process is alive, so its lease does not expire. With a ``clock`` it does: a
    lease then ends ``lease_seconds`` after its last use by that clock, as if its holder had been
    stopped.
    """

    def __init__(
        self,
        *,
        lease_seconds: float = LEASE_SECONDS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.url = URL
        self._lease_seconds = check_lease_seconds(lease_seconds)
        self._clock = clock
        self._pid = os.getpid()
        self._is_closed = False
        self._changed = threading.Condition()
        self._sessions: dict[str, _MemorySession] = {}
        self._blobs: dict[str, bytes] = {}

    def acquire(self, session: str, *, wait: float = 0.0, create: bool = True) -> Lease:
        self._require_open()
        check_session_name(session)
        deadline = time.monotonic() + wait
        with self._changed:
            kept = self._kept(session, create=create)
            while self._is_held(kept):
                # Wait for any change; a clock of the caller's has to be checked now and then.
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Held("another writer of this process holds it").about(session=kept.name)
                self._changed.wait(left if self._clock is None else min(left, 0.01))
                self._require_open()
            kept.epoch += 1
            kept.token = secrets.token_hex(8)
            self._keep_alive(kept)
            return Lease(session, kept.epoch, kept.token, kept.head())

    def _kept(self, name: str, *, create: bool) -> _MemorySession:
        if name not in self._sessions:
            if not create:
                raise Unreadable("it does not exist in this store").about(session=name)
            self._sessions[name] = _MemorySession(name)
        return self._sessions[name]

    def _is_held(self, kept: _MemorySession) -> bool:
        if not kept.token:
            return False
        return self._clock is None or self._clock() < kept.deadline

    def _keep_alive(self, kept: _MemorySession) -> None:
        if self._clock is not None:
            kept.deadline = self._clock() + self._lease_seconds

    def release(self, lease: Lease) -> None:
        if self._is_closed or os.getpid() != self._pid:
            return
        with self._changed:
            kept = self._sessions.get(lease.session)
            if kept is not None and _holds(kept, lease):
                kept.token = ""
                self._changed.notify_all()

    def append(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        self._require_open()
        require_lines(entries)
        with self._changed:
            kept = self._held(lease)
            self._keep_alive(kept)
            if after == len(kept.records):
                self._add(kept, lease, entries)
            elif after < 0 or not are_there(kept.records[after:], entries, lease.epoch):
                raise moved(Where(session=kept.name), len(kept.records), after)
            return kept.head()

    def _add(self, kept: _MemorySession, lease: Lease, entries: Sequence[JournalEntry]) -> None:
        values = {blob_name(value): value for entry in entries for value in entry.blobs}
        self._blobs |= values
        for seq, entry in enumerate(entries, len(kept.records) + 1):
            for value in entry.blobs:
                kept.names.setdefault(blob_name(value), seq)
        kept.records += chain_entries(kept.head(), lease.epoch, entries)
        kept.describe(entry.body for entry in entries)
        self._changed.notify_all()

    def replace(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        self._require_open()
        require_lines(entries)
        with self._changed:
            kept = self._held(lease)
            if after != len(kept.records):
                raise moved(Where(session=kept.name), len(kept.records), after)
            self._keep_alive(kept)
            kept.records, kept.names, kept.about = [], {}, None
            self._add(kept, lease, entries)
            self._forget_blobs()
            return kept.head()

    def delete(self, lease: Lease) -> None:
        self._require_open()
        with self._changed:
            del self._sessions[self._held(lease).name]
            self._forget_blobs()
            self._changed.notify_all()

    def _held(self, lease: Lease) -> _MemorySession:
        self._require_open()
        kept = self._sessions.get(lease.session)
        if kept is None or not _holds(kept, lease):
            raise Fenced("another writer took it over").about(session=lease.session)
        return kept

    def _forget_blobs(self) -> None:
        """Forget the large values that no session names."""
        named: set[str] = set().union(*(kept.names for kept in self._sessions.values()))
        self._blobs = {name: self._blobs[name] for name in self._blobs if name in named}

    def read(
        self, session: str, after: Head = NEW, upto: int | None = None
    ) -> Iterator[JournalRecord]:
        self._require_open()
        with self._changed:
            records = self._kept(session, create=False).records[after.seq : upto]
        return verify_chain(records, after, Where(session=session))

    def head(self, session: str) -> Head | None:
        self._require_open()
        with self._changed:
            kept = self._sessions.get(session)
            return None if kept is None else kept.head()

    def blobs(self, names: Iterable[str]) -> dict[str, bytes]:
        self._require_open()
        with self._changed:
            return {name: check_blob(name, self._blobs.get(name), Where(URL)) for name in names}

    def listed(self, listing: Listing, limit: int | None = None) -> Iterator[Listed]:
        self._require_open()
        with self._changed:
            found = [kept.listed() for kept in self._sessions.values()]
        return iter(arrange(found, listing)[:limit])

    def fork(self, source: str, upto: int, target: str) -> Head:
        self._require_open()
        check_session_name(target)
        with self._changed:
            records = self._kept(source, create=False).records[:upto]
            point = find_fork_point(records, upto, source)
            if target not in self._sessions:
                self._copy(records, self._sessions[source].names, target)
            return point.require_same(self._sessions[target].head(), target)

    def _copy(self, records: list[JournalRecord], names: dict[str, int], target: str) -> None:
        made = _MemorySession(target, epoch=records[-1].epoch if records else 0)
        made.records = records
        made.names = {name: seq for name, seq in names.items() if seq <= len(records)}
        made.describe(record.body for record in records)
        self._sessions[target] = made
        self._changed.notify_all()

    def receive(self, incoming: IncomingSession) -> Head:
        self._require_open()
        name = check_session_name(incoming.session)
        pieces = [] if name in self._sessions else list(incoming.pieces)
        with self._changed:
            kept = self._sessions.get(name)
            if not incoming.is_there(kept.head() if kept else None):
                values = {blob_name(value): value for _, blobs in pieces for value in blobs}
                self._blobs |= values
                names = {
                    blob_name(one): n for n, (_, blobs) in enumerate(pieces, 1) for one in blobs
                }
                self._copy([record for record, _ in pieces], names, name)
            return self._sessions[name].head()

    def remains(self, session: str) -> Remains:
        self._require_open()
        with self._changed:
            kept = self._kept(session, create=False)
            found = [Remnant(record.seq, record) for record in kept.records]
            return Remains(kept.head(), found, stamp=_stamp(kept))

    def exchange(self, session: str, aside: str, successor: str, stamp: str = "") -> None:
        self._require_open()
        check_session_name(aside)
        with self._changed:
            old = self._kept(session, create=False)
            new = self._kept(successor, create=False)
            if aside in self._sessions or self._is_held(old) or self._is_held(new):
                raise Held(f"it is held by a writer, or {aside} already exists").about(
                    session=session
                )
            require_stamp(stamp, _stamp(old), session)
            del self._sessions[successor]
            old.name, new.name = aside, session
            old.token, new.epoch = "", max(old.epoch, new.epoch)
            old.epoch += 1
            self._sessions |= {aside: old, session: new}
            self._changed.notify_all()

    def wait(self, session: str, after: int, timeout: float) -> bool:
        def is_over() -> bool:
            kept = self._sessions.get(session)
            return self._is_closed or (kept is not None and len(kept.records) > after)

        self._require_open()
        with self._changed:
            found = self._changed.wait_for(is_over, timeout)
            self._require_open()
            return found

    def verify(self) -> Iterator[StoreFault | Listed]:
        for listed in list(self.sessions()):
            seq = 0
            try:
                for record in self.read(listed.session):
                    seq = record.seq
            except Damaged as error:
                yield StoreFault(listed.session, seq + 1, error.message)
            yield listed
        for name, value in list(self._blobs.items()):
            if blob_name(value) != name:
                yield StoreFault("", 0, f"the large value {name} is not what was written")

    def vacuum(self, *, wait: float = VACUUM_SECONDS) -> int:
        self._require_open()
        return 0

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _require_open(self) -> None:
        if self._is_closed:
            raise Closed("the store in memory was closed")
        if os.getpid() != self._pid:
            raise Closed("the store in memory belongs to the process that this one was forked from")


def _stamp(kept: _MemorySession) -> str:
    return f"{len(kept.records)} {kept.head().digest.hex()}"


def _holds(kept: _MemorySession, lease: Lease) -> bool:
    return (kept.epoch, kept.token) == (lease.epoch, lease.token)
