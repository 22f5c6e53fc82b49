"""What a store of journals must be able to do; ``tests/stores`` holds every store to it."""

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
# Later than everything, in milliseconds.
LATEST = 1 << 62


class Lease(Struct, frozen=True):
    """The right to write one session, until another writer takes it over, which raises ``epoch``.

    ``token`` distinguishes this holder from every other, even in the same process. ``head`` is the
    head of the session when the lease was taken.
    """

    session: str
    epoch: int
    token: str
    head: Head


class Listed(Struct, frozen=True):
    """A session as a listing shows it; times are milliseconds since 1970, 0 for never.

    Title, tags and metadata are those that were set last.
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
        """A string to pass as ``after``: the listing continues there, in either order."""
        return f"{self.changed}/{self.session}"


class Listing(Struct, frozen=True):
    """Which sessions are listed: by name, or ``newest`` first, from behind a place.

    That place is a session's name, and for ``newest`` also when it was changed. ``tag`` is "" for
    all sessions, and only those are listed that were changed later than ``since``.
    """

    name: str = ""
    changed: int = LATEST
    newest: bool = False
    tag: str = ""
    since: int = -LATEST

    def behind(self, listed: Listed) -> Listing:
        """Go on behind a session."""
        return structs.replace(self, name=listed.session, changed=listed.changed)


def arrange(found: Iterable[Listed], listing: Listing) -> list[Listed]:
    """Choose sessions and put them in order, in memory."""

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
    """A session of another store that comes as it is: name, end, time of its last record.

    ``pieces`` gives its records in order, each with the large values that it names, once.
    """

    session: str
    head: Head
    changed: int
    pieces: Iterable[tuple[JournalRecord, tuple[bytes, ...]]]

    def is_there(self, found: Head | None) -> bool:
        """Whether it has come before; raises ``Held`` if the name is another session's."""
        if found is None:
            return False
        if (found.seq, found.digest) != (self.head.seq, self.head.digest):
            raise Held("it already exists, with other records").about(session=self.session)
        return True


class StoreFault(Struct, frozen=True):
    """Something in a store that is not as it was written; ``session`` is "" for the store itself.

    ``seq`` is the first record that cannot be trusted, 0 if it is not about a single record.
    """

    session: str
    seq: int
    message: str


class Backend(ABC):
    """A store of many sessions, used by many threads and, except for memory, many processes.

    Durable means durable: when ``append`` returns, the entries survive kill -9 and power loss. Any
    failure in the middle of a write raises ``Unsure``, and from then on every write under a lease
    taken before it raises ``Unsure``, too: nothing is retried in place. A lease taken afterwards,
    on a reopened connection or descriptor, shows what is there.
    """

    url: str

    def __repr__(self) -> str:
        """Name the store by its address, without a password."""
        return f"<{type(self).__name__} {self.url}>"

    @abstractmethod
    def acquire(self, session: str, *, wait: float = 0.0, create: bool = True) -> Lease:
        """Take the right to write a session, with a higher epoch than any before.

        Waits up to ``wait`` seconds for a live holder, then raises ``Held``. A holder whose process
        is gone, or that has given no sign of life for the length of the lease, is taken over at
        once. This does not depend on the time of day. A session that does not exist is created, or,
        without ``create``, raises ``Unreadable``. Every append and the store itself keep a lease
        alive, until it is released or the process ends or stops.
        """

    @abstractmethod
    def release(self, lease: Lease) -> None:
        """Release a lease; does nothing if another writer has taken it over."""

    @abstractmethod
    def append(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        """Add entries after record ``after``, all or none, and return the new head.

        Raises ``Fenced`` if the lease is not the session's last one, and ``Moved`` if the session
        does not end at ``after``; but if exactly these entries, identified by their keys, already
        follow ``after`` under this lease's epoch, that counts as done.
        """

    def add(
        self, session: str, entries: Sequence[JournalEntry], after: Head, *, wait: float = 0.0
    ) -> Head:
        """Add entries after ``after`` as a momentary holder would, all or none.

        This is for many short-lived writers: it is like taking a lease, using it once and releasing
        it, but cheaper. A session that does not exist is created if ``after`` is ``NEW``. Raises
        ``Held`` if a writer holds the session for longer than ``wait`` seconds, and ``Moved`` if
        its records do not end with ``after``; then nothing was written. After ``Unsure``, the keys
        of the stored records show whether it was.
        """
        lease = self.acquire(session, wait=wait)
        try:
            require_same(lease.head, after, session)
            return self.append(lease, entries, after.seq)
        finally:
            self.release(lease)

    @abstractmethod
    def replace(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        """Replace all records of a session by entries, all or none; returns the new head.

        Nothing of the old records can be read any longer, and large values that no record of any
        session names are gone, too; those that the entries name are passed along. Raises as
        ``append`` does, but repeating the same replacement does it again. A reader meanwhile gets
        all of the old or all of the new, or an error that says to read again.
        """

    @abstractmethod
    def delete(self, lease: Lease) -> None:
        """Delete a session, all its records, and large values that no other session names.

        The lease ends with it. Raises ``Fenced`` if it is not the session's last one.
        """

    @abstractmethod
    def read(
        self, session: str, after: Head = NEW, upto: int | None = None
    ) -> Iterator[JournalRecord]:
        """Read the records after ``after``, verified, in order; never waits for a writer.

        It is one consistent view. Raises ``Damaged`` if a record is not what was written, and
        ``Unreadable`` for a session that does not exist.
        """

    @abstractmethod
    def head(self, session: str) -> Head | None:
        """Return the head of a session; None if it does not exist."""

    @abstractmethod
    def blobs(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return large values by name, verified; raises ``Damaged`` for a missing one."""

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """Return the lengths of large values; raises ``Damaged`` for a missing one."""
        return {name: len(self.blobs([name])[name]) for name in names}

    def ends(self, name: str, head: int, tail: int) -> tuple[bytes, bytes]:
        """Return the first and the last bytes of a longer large value.

        A store that can read them separately does so, and does not verify the rest.
        """
        value = self.blobs([name])[name]
        return value[:head], value[len(value) - tail :]

    @abstractmethod
    def listed(self, listing: Listing, limit: int | None = None) -> Iterator[Listed]:
        """List sessions, up to a limit; the cost of a page does not grow with the store.

        With a tag, newest first, it grows with the number of sessions that have the tag.
        """

    def sessions(self, *, after: str = "", limit: int | None = None) -> Iterator[Listed]:
        """List sessions in the order of their names, starting after ``after``."""
        return self.listed(Listing(name=after), limit)

    @abstractmethod
    def fork(self, source: str, upto: int, target: str) -> Head:
        """Copy the first records of a session, unchanged, into a new one, all or none.

        Raises ``Held`` if ``target`` exists with other records than those; repeating the same fork
        changes nothing. The new session has no holder, and its epoch is that of its last record.
        """

    @abstractmethod
    def receive(self, incoming: IncomingSession) -> Head:
        """Store a session of another store, unchanged, all or none; it is already verified.

        Raises ``Held`` if a different session has the name; repeating the same call changes
        nothing. It has no holder, and its epoch is that of its last record.
        """

    @abstractmethod
    def remains(self, session: str) -> Remains:
        """Read everything there is of a session, damaged or not; never waits for a writer.

        Never raises on damage, only ``Unreadable`` for a session that does not exist.
        """

    @abstractmethod
    def exchange(self, session: str, aside: str, successor: str, stamp: str = "") -> None:
        """Rename a session to ``aside`` and give its name to another, both or neither.

        Whatever is damaged in them stays as it is. Raises ``Held`` if a writer holds one of them or
        ``aside`` exists, ``Moved`` if the session has changed since its ``stamp`` was taken, and
        ``Unreadable`` if one does not exist.
        """

    @abstractmethod
    def wait(self, session: str, after: int, timeout: float) -> bool:
        """Wait until a session has a record after ``after``; False if the time is up first."""

    @abstractmethod
    def verify(self) -> Iterator[StoreFault | Listed]:
        """Read everything there is; yields sessions as they are done, and faults as found.

        Never raises on damage.
        """

    @abstractmethod
    def vacuum(self, *, wait: float = VACUUM_SECONDS) -> int:
        """Free the space of removed records; returns how many bytes were freed.

        Afterwards, no file of the store contains anything that was removed. The store may be used
        meanwhile. Raises ``Busy`` if other programs keep it locked for longer than ``wait``
        seconds; then removed data may still be in a file, and nothing else has changed.
        """

    @abstractmethod
    def close(self) -> None:
        """Release every lease, and all files and connections; may be called twice."""

    def __enter__(self) -> Self:
        """Return the store itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close the store."""
        self.close()


def check_lease_seconds(seconds: float) -> float:
    """Return the length of a lease if it is one."""
    if not seconds > 0:
        raise UsageError("a lease must last longer than 0 seconds")
    return seconds


def require_same(found: Head, expected: Head, session: str) -> None:
    """Raise ``Moved`` if a session's records end elsewhere than expected."""
    if (found.seq, found.digest) != (expected.seq, expected.digest):
        raise moved(Where(session=session), found.seq, expected.seq)


def moved(where: Where, end: int | None, expected: int) -> Moved:
    """Return the error for a session that ends elsewhere than a writer expected."""
    return Moved(
        f"it ends at record {end}, not at {expected}, so nothing was written: read it again"
    ).about(*where)


def are_there(behind: Iterable[JournalRecord], entries: Sequence[JournalEntry], epoch: int) -> bool:
    """Whether an append was done before: its entries, known by their keys, and nothing else.

    ``behind`` are the records where they would be.
    """
    sent = [(epoch, entry.key) for entry in entries]
    return bool(sent) and [(record.epoch, record.key) for record in behind] == sent


class ForkPoint(Struct, frozen=True):
    """Where a fork begins: the last record it shares, its time, and how the session is described.

    ``head`` is ``NEW`` for a fork before the first record.
    """

    head: Head = NEW
    changed: int = 0
    about: bytes | None = None

    def require_same(self, found: Head, target: str) -> Head:
        """Return where a session stands that is there; raises ``Held`` if it is not this fork."""
        if (found.seq, found.digest) != (self.head.seq, self.head.digest):
            raise Held("it already exists, with other records than the fork's").about(
                session=target
            )
        return found


def find_fork_point(records: Iterable[JournalRecord], upto: int, source: str) -> ForkPoint:
    """Go through the first records of a session, which are verified, to where it is forked."""
    last = about = None
    for last in records:
        about = about_in([last.body]) or about
    if (last.seq if last else 0) != upto:
        raise UsageError(f"there is no record {upto} to fork at").about(session=source)
    return (
        ForkPoint(Head(last.seq, last.digest, last.epoch), last.at, about) if last else ForkPoint()
    )


def require_stamp(stamp: str, found: str, session: str) -> None:
    """Raise ``Moved`` if a session is no longer what a stamp was given for; "" is for any."""
    if stamp and stamp != found:
        raise Moved("it was continued since it was read: read it again").about(session=session)


def require_lines(entries: Sequence[JournalEntry]) -> None:
    """Raise ``UsageError`` for entries whose key or body no store keeps."""
    for entry in entries:
        check_key(entry.key)
        if b"\n" in entry.body:
            raise UsageError("the body of an event is one line of JSON, without a line break")


def check_blob(name: str, value: bytes | None, where: Where) -> bytes:
    """Return a stored value if it is the one that was named."""
    if value is None:
        raise Damaged(f"the large value {name} is missing").about(*where)
    if blob_name(value) != name:
        raise Damaged(f"the large value {name} is not what was written (checksum)").about(*where)
    return value
