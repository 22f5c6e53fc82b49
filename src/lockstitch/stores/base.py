"""The interface of a store of journals.

``tests/stores`` runs one test suite against every store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from msgspec import Struct, structs

from lockstitch.conversation.parts import repr_without
from lockstitch.errors import Damaged, Held, Moved, UsageError, Where
from lockstitch.journal.events import about_in
from lockstitch.journal.records import NEW, Head, JournalEntry, JournalRecord, blob_name, check_key
from lockstitch.journal.salvage import Remains

LEASE_SECONDS = 30.0
VACUUM_SECONDS = 30.0
# A time later than any other, in milliseconds.
LATEST = 1 << 62


class Lease(Struct, frozen=True):
    """The right to write one session, until somebody takes the session over with a higher epoch.

    ``token`` distinguishes this holder from any other, also in the same process. ``head`` is the
    end of the session when the lease was taken.
    """

    session: str
    epoch: int
    token: str
    head: Head


class Listed(Struct, frozen=True):
    """A session in a listing; times are milliseconds since 1970, 0 for never.

    ``title``, ``tags`` and ``metadata`` are those of its last description.
    """

    session: str
    seq: int
    epoch: int
    created: int
    changed: int
    holder: str = ""
    title: str = ""
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}

    __repr__ = repr_without("title", "metadata")

    @property
    def cursor(self) -> str:
        """A text to pass as ``after``, so that a listing continues after this session."""
        return f"{self.changed}/{self.session}"


class Listing(Struct, frozen=True):
    """Which sessions to list, and in which order: by name, or ``newest`` first.

    The listing starts after a place: after the session ``name`` and, for ``newest``, the time
    ``changed``. Only sessions with the tag ``tag`` are listed, if it is not "", and only those that
    were changed after ``since``.
    """

    name: str = ""
    changed: int = LATEST
    newest: bool = False
    tag: str = ""
    since: int = -LATEST

    def behind(self, listed: Listed) -> Listing:
        """Return the same listing, starting after a session."""
        return structs.replace(self, name=listed.session, changed=listed.changed)


def arrange(found: Iterable[Listed], listing: Listing) -> list[Listed]:
    """Return the sessions that a listing asks for, in order.

    For stores that hold them in memory.
    """

    def place(one: Listed) -> tuple[int, str]:
        return -one.changed if listing.newest else 0, one.session

    behind = (-listing.changed if listing.newest else 0, listing.name)
    chosen = [
        one
        for one in found
        if one.changed > listing.since
        and (not listing.tag or listing.tag in one.tags)
        and place(one) > behind
    ]
    return sorted(chosen, key=place)


class IncomingSession(Struct, frozen=True):
    """A session copied unchanged from another store: its name, its end, and its last change.

    ``pieces`` yields its records in order, each with the large values that it names; it can be
    iterated only once.
    """

    session: str
    head: Head
    changed: int
    pieces: Iterable[tuple[JournalRecord, tuple[bytes, ...]]]

    def is_there(self, found: Head | None) -> bool:
        """Whether the session was copied before; raise ``Held`` if another session has its name."""
        if found is None:
            return False
        if (found.seq, found.digest) != (self.head.seq, self.head.digest):
            raise Held("it already exists, with other records").about(session=self.session)
        return True


class StoreFault(Struct, frozen=True):
    """Damage in a store; ``session`` is "" if it concerns the store itself.

    ``seq`` is the first record that cannot be trusted, 0 if the damage is not about a single
    record.
    """

    session: str
    seq: int
    message: str


class Backend(ABC):
    """A store of many sessions, used by many threads and, except for memory, by many processes.

    When ``append`` returns, the entries are durable: they survive kill -9 and a power failure. Any
    failure in the middle of a write raises ``Unsure``, and so does every later write under a lease
    that was taken before the failure: nothing is retried in place. A lease that is taken
    afterwards, over a newly opened connection or file, shows what was written.
    """

    url: str

    def __repr__(self) -> str:
        """Return the address of the store, without a password."""
        return f"<{type(self).__name__} {self.url}>"

    @abstractmethod
    def acquire(self, session: str, *, wait: float = 0.0, create: bool = True) -> Lease:
        """Take the right to write a session, with an epoch higher than any before.

        Waits up to ``wait`` seconds for a living holder, then raises ``Held``. A holder whose
        process is gone, or that has been silent for the length of its lease, is replaced at once;
        the time of day plays no part in this. A session that does not exist is created, or without
        ``create`` raises ``Unreadable``. Every append keeps the lease alive, and so does the store
        itself, until the lease is released or the process ends or is stopped.
        """

    @abstractmethod
    def release(self, lease: Lease) -> None:
        """Release a lease; do nothing if somebody has taken it over."""

    @abstractmethod
    def append(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        """Add entries after record ``after``, all or none; return the new head.

        Raises ``Fenced`` if the lease is not the last one of the session, and ``Moved`` if the
        session does not end at ``after``. If exactly these entries, recognized by their keys,
        already follow ``after`` under this lease's epoch, the append counts as done.
        """

    def add(
        self, session: str, entries: Sequence[JournalEntry], after: Head, *, wait: float = 0.0
    ) -> Head:
        """Add entries after ``after``, all or none, without holding a lease.

        For writers that come and go: it has the effect of taking a lease, using it once and
        releasing it, at a lower cost. A session that does not exist is created if ``after`` is
        ``NEW``. Raises ``Held`` if somebody holds the session for longer than ``wait`` seconds, and
        ``Moved`` if its records do not end at ``after``; in both cases nothing was written. After
        ``Unsure``, the keys of the stored records tell whether the entries were written.
        """
        lease = self.acquire(session, wait=wait)
        try:
            require_same(lease.head, after, session)
            return self.append(lease, entries, after.seq)
        finally:
            self.release(lease)

    @abstractmethod
    def replace(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        """Replace all records of a session by these entries, all or none; return the new head.

        The old records cannot be read any more, and large values that no record of any session
        names are deleted; the entries bring along the values that they name. Raises what ``append``
        raises, except that a repeated replacement is simply done again. A reader at the same time
        gets all of the old or all of the new records, or an error that says to read again.
        """

    @abstractmethod
    def delete(self, lease: Lease) -> None:
        """Delete a session, its records, and the large values that no other session names.

        The lease ends. Raises ``Fenced`` if it is not the last one of the session.
        """

    @abstractmethod
    def read(
        self, session: str, after: Head = NEW, upto: int | None = None
    ) -> Iterator[JournalRecord]:
        """Yield the verified records after ``after``, in order; this never waits for a writer.

        All of them are from one consistent state. Raises ``Damaged`` at a record that is not what
        was written, and ``Unreadable`` if the session does not exist.
        """

    @abstractmethod
    def head(self, session: str) -> Head | None:
        """Return the end of a session; None if the session does not exist."""

    @abstractmethod
    def blobs(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return large values by name, verified; raise ``Damaged`` if one is missing or changed."""

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """Return the lengths of large values; raise ``Damaged`` if one is missing."""
        return {name: len(self.blobs([name])[name]) for name in names}

    def ends(self, name: str, head: int, tail: int) -> tuple[bytes, bytes]:
        """Return the first and last bytes of a large value that is longer than both together.

        A store that can read them without the rest does so, and then does not verify the value.
        """
        value = self.blobs([name])[name]
        return value[:head], value[len(value) - tail :]

    @abstractmethod
    def listed(self, listing: Listing, limit: int | None = None) -> Iterator[Listed]:
        """Yield sessions, at most ``limit``; the cost of a page does not grow with the store.

        The exception is a listing by tag, newest first: its cost grows with the sessions that have
        the tag.
        """

    def sessions(self, *, after: str = "", limit: int | None = None) -> Iterator[Listed]:
        """Yield sessions in the order of their names, starting after ``after``."""
        return self.listed(Listing(name=after), limit)

    @abstractmethod
    def fork(self, source: str, upto: int, target: str) -> Head:
        """Copy the first records of a session unchanged into a new one, all or none.

        Raises ``Held`` if ``target`` exists with other records. Repeating a fork changes nothing.
        The new session has no holder, and its epoch is that of its last record.
        """

    @abstractmethod
    def receive(self, incoming: IncomingSession) -> Head:
        """Store an unchanged session of another store, all or none; its pieces have been verified.

        Raises ``Held`` if the name belongs to another session. Repeating it changes nothing. The
        session has no holder, and its epoch is that of its last record.
        """

    @abstractmethod
    def remains(self, session: str) -> Remains:
        """Return everything that the store holds of a session, valid or not, from one state.

        Never waits for a writer, and never raises on damage, only ``Unreadable`` if the session
        does not exist.
        """

    @abstractmethod
    def exchange(self, session: str, aside: str, successor: str, stamp: str = "") -> None:
        """Rename a session to ``aside``, and ``successor`` to the session's name; both or neither.

        Damage in them stays as it is. Raises ``Held`` if somebody holds one of them or ``aside``
        exists, ``Moved`` if the session has changed since its ``stamp`` was made, and
        ``Unreadable`` if one of them does not exist.
        """

    @abstractmethod
    def wait(self, session: str, after: int, timeout: float) -> bool:
        """Wait until a session has a record after ``after``.

        Return False if the time is up first.
        """

    @abstractmethod
    def verify(self) -> Iterator[StoreFault | Listed]:
        """Read the entire store.

        Yield each session when it has been read, and faults as they are found.

        Never raises on damage.
        """

    @abstractmethod
    def vacuum(self, *, wait: float = VACUUM_SECONDS) -> int:
        """Return the space of deleted records to the system; return the number of bytes.

        Afterwards no file of the store contains anything that was deleted. Others may use the store
        meanwhile. Raises ``Busy`` if they keep it busy for longer than ``wait`` seconds: deleted
        content may then still be in a file, and nothing else has changed.
        """

    @abstractmethod
    def close(self) -> None:
        """Release all leases, and close files and connections. May be called more than once."""

    def __enter__(self) -> Self:
        """Return the store itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close the store."""
        self.close()


def check_lease_seconds(seconds: float) -> float:
    """Return the length of a lease in seconds; raise ``UsageError`` if it is not valid."""
    if not seconds > 0:
        raise UsageError("a lease must last longer than 0 seconds")
    return seconds


def require_same(found: Head, expected: Head, session: str) -> None:
    """Raise ``Moved`` if the records of a session do not end where expected."""
    if (found.seq, found.digest) != (expected.seq, expected.digest):
        raise moved(Where(session=session), found.seq, expected.seq)


def moved(where: Where, end: int | None, expected: int) -> Moved:
    """Return the error for a session that does not end where a writer expected."""
    return Moved(
        f"it ends at record {end}, not at {expected}, so nothing was written: read it again"
    ).about(*where)


def are_there(behind: Iterable[JournalRecord], entries: Sequence[JournalEntry], epoch: int) -> bool:
    """Whether an append was done before: exactly its entries follow, recognized by their keys.

    ``behind`` are the records at the place of the append.
    """
    sent = [(epoch, entry.key) for entry in entries]
    return bool(sent) and [(record.epoch, record.key) for record in behind] == sent


class ForkPoint(Struct, frozen=True):
    """The point at which a fork begins: the last shared record, its time, and the description.

    ``head`` is ``NEW`` for a fork before the first record.
    """

    head: Head = NEW
    changed: int = 0
    about: bytes | None = None

    def require_same(self, found: Head, target: str) -> Head:
        """Return the head of an existing session; raise ``Held`` if it is not this fork."""
        if (found.seq, found.digest) != (self.head.seq, self.head.digest):
            raise Held("it already exists, with other records than the fork's").about(
                session=target
            )
        return found


def find_fork_point(records: Iterable[JournalRecord], upto: int, source: str) -> ForkPoint:
    """Return the fork point after ``upto`` records of a session; the records are verified."""
    last = about = None
    for last in records:
        about = about_in([last.body]) or about
    if (last.seq if last else 0) != upto:
        raise UsageError(f"there is no record {upto} to fork at").about(session=source)
    return (
        ForkPoint(Head(last.seq, last.digest, last.epoch), last.at, about) if last else ForkPoint()
    )


def require_stamp(stamp: str, found: str, session: str) -> None:
    """Raise ``Moved`` if a session has changed since a stamp was made; "" matches any state."""
    if stamp and stamp != found:
        raise Moved("it was continued since it was read: read it again").about(session=session)


def require_lines(entries: Sequence[JournalEntry]) -> None:
    """Raise ``UsageError`` if an entry has a key or a body that a store must not keep."""
    for entry in entries:
        check_key(entry.key)
        if b"\n" in entry.body:
            raise UsageError("the body of an event is one line of JSON, without a line break")


def check_blob(name: str, value: bytes | None, where: Where) -> bytes:
    """Return a stored value; raise ``Damaged`` if it is missing or does not match its name."""
    if value is None:
        raise Damaged(f"the large value {name} is missing").about(*where)
    if blob_name(value) != name:
        raise Damaged(f"the large value {name} is not what was written (checksum)").about(*where)
    return value
