"""What a store of journals must be able to do; ``tests/stores`` holds every store to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from msgspec import Struct

from lockstitch.errors import Damaged, Moved
from lockstitch.journal.records import NEW, Entry, Head, Record, blob_name

LEASE_SECONDS = 30.0
VACUUM_SECONDS = 30.0


class Lease(Struct, frozen=True):
    """The right to write one session, until somebody takes it over: then ``epoch`` has moved on.

    ``token`` tells this holder from every other one, also in the same process. ``head`` is where
    the session stood when the lease was taken.
    """

    session: str
    epoch: int
    token: str
    head: Head


class Listed(Struct, frozen=True):
    """A session as a listing shows it; times are milliseconds since 1970, 0 for never."""

    session: str
    seq: int
    epoch: int
    created: int
    changed: int
    holder: str = ""


class Fault(Struct, frozen=True):
    """Something in a store that is not as it was written; ``session`` is "" for the store itself.

    ``seq`` is the first record that cannot be trusted, 0 where no single one is meant.
    """

    session: str
    seq: int
    message: str


class Backend(ABC):
    """A store of many sessions, used by many threads and, but for memory, many processes.

    Durable means durable: when ``append`` returns, the entries survive kill -9 and power loss.
    Any failure in the middle of a write raises ``Unsure``, and from then on every write under a
    lease taken before it raises ``Unsure``, too: nothing is retried in place. A lease taken
    afterwards, on a connection or descriptor opened anew, tells what is there.
    """

    url: str

    @abstractmethod
    def acquire(self, session: str, *, wait: float = 0.0, create: bool = True) -> Lease:
        """Take the right to write a session, and with it a higher epoch than any before.

        A holder that is alive is waited for up to ``wait`` seconds, then ``Held`` is raised. A
        holder whose process is gone, or that has not been heard of for the lease's length, is
        taken over at once. The time of day plays no part in it. A session that does not exist is
        made, or, without ``create``, raises ``Unreadable``. A lease is kept alive by every append
        and by the store itself until it is released or the process ends or stops.
        """

    @abstractmethod
    def release(self, lease: Lease) -> None:
        """Give a lease back; does nothing if somebody has taken it over."""

    @abstractmethod
    def append(self, lease: Lease, entries: Sequence[Entry], after: int) -> Head:
        """Add entries behind record ``after``, all or none, and give the new head.

        Raises ``Fenced`` if the lease is not the session's last one, and ``Moved`` if the session
        does not end at ``after``; but if exactly these entries, told by their keys, stand behind
        ``after`` already under this lease's epoch, that counts as done.
        """

    def add(
        self, session: str, entries: Sequence[Entry], after: Head, *, wait: float = 0.0
    ) -> Head:
        """Add entries behind ``after`` as a holder of a moment would, all or none.

        For many writers that come and go: it is a lease taken, used once and given back, without
        what that costs. A session that does not exist is made, if ``after`` is ``NEW``. Raises
        ``Held`` if somebody holds the session for longer than ``wait`` seconds, and ``Moved`` if
        its records do not end with ``after``: then nothing was written. After ``Unsure`` the
        keys of the records that are there tell whether it was.
        """
        lease = self.acquire(session, wait=wait)
        try:
            require_same(lease.head, after, session)
            return self.append(lease, entries, after.seq)
        finally:
            self.release(lease)

    @abstractmethod
    def replace(self, lease: Lease, entries: Sequence[Entry], after: int) -> Head:
        """Put entries in the place of all records of a session, all or none; gives the new head.

        Nothing of what was there before can be read any more, and large values that no record of
        any session names are gone, too: those that the entries name are sent along. Raises as
        ``append`` does, but a second time is not told from the first. Whoever reads the session
        meanwhile reads all of the old or all of the new, or is told to read again.
        """

    @abstractmethod
    def delete(self, lease: Lease) -> None:
        """Remove a session, all its records, and large values that no other session names.

        The lease is over. Raises ``Fenced`` if it is not the session's last one.
        """

    @abstractmethod
    def read(self, session: str, after: Head = NEW, upto: int | None = None) -> Iterator[Record]:
        """Read the records behind ``after``, verified, in order; never waits for a writer.

        It is one consistent view. Raises ``Damaged`` where a record is not what was written, and
        ``Unreadable`` for a session that does not exist.
        """

    @abstractmethod
    def head(self, session: str) -> Head | None:
        """Tell where a session stands; None if it does not exist."""

    @abstractmethod
    def blobs(self, names: Iterable[str]) -> dict[str, bytes]:
        """Give large values by name, verified; raises ``Damaged`` for one that is gone."""

    @abstractmethod
    def sessions(self, *, after: str = "", limit: int | None = None) -> Iterator[Listed]:
        """List sessions in the order of their names, those behind ``after``."""

    @abstractmethod
    def fork(self, source: str, upto: int, target: str) -> Head:
        """Copy the first records of a session, as they are, into a new one, all or none.

        Raises ``Held`` if ``target`` exists with other records than those; the same fork again
        is done already. The new session has no holder, and its epoch is that of its last record.
        """

    @abstractmethod
    def wait(self, session: str, after: int, timeout: float) -> bool:
        """Wait until a session has a record behind ``after``; False if the time is up first."""

    @abstractmethod
    def verify(self) -> Iterator[Fault | Listed]:
        """Read everything there is: each session as it is done, faults as they are found.

        Never raises on damage.
        """

    @abstractmethod
    def vacuum(self, *, wait: float = VACUUM_SECONDS) -> int:
        """Give the room that removed records had back to the system; returns how many bytes.

        Nothing of what was removed is in any file of the store afterwards. Others may go on
        using it meanwhile. Raises ``Busy`` if they have it in hand for longer than ``wait``
        seconds: then what was removed may still be in a file, and nothing else has changed.
        """

    @abstractmethod
    def close(self) -> None:
        """Release every lease and let go of files and connections; may be called twice."""

    def __enter__(self) -> Self:
        """Give the store itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close the store."""
        self.close()


def require_same(found: Head, expected: Head, session: str) -> None:
    """Raise ``Moved`` if a session's records end elsewhere than expected."""
    if (found.seq, found.digest) != (expected.seq, expected.digest):
        raise Moved(
            f"session {session}: it ends at record {found.seq}, not at {expected.seq} as it was"
            " read: read it again"
        )


def checked_blob(name: str, value: bytes | None, where: str) -> bytes:
    """Give a stored value back if it is the one that was named."""
    if value is None:
        raise Damaged(f"{where}: the large value {name} is missing")
    if blob_name(value) != name:
        raise Damaged(f"{where}: the large value {name} is not what was written (checksum)")
    return value
