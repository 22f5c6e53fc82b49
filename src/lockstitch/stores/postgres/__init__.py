"""The store for a fleet: many sessions, processes and machines on one PostgreSQL server.

Every write is one statement in a transaction of its own. So it works through a pooler in
transaction mode, and the server decides within that transaction whether the writer still holds the
lease. If a connection is lost during a write, its outcome is unknown. That puts only this lease in
doubt, because the store holds many sessions over many connections.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, LiteralString

import msgspec
import psycopg
from msgspec import structs

from lockstitch.errors import (
    Closed,
    Damaged,
    Fenced,
    Held,
    LockstitchError,
    Moved,
    Unreadable,
    Unsure,
    UsageError,
    Where,
)
from lockstitch.journal.events import NO_ABOUT, about_of
from lockstitch.journal.records import (
    NEW,
    START,
    Head,
    JournalEntry,
    JournalRecord,
    blob_name,
    chain_entries,
    check_session_name,
)
from lockstitch.journal.salvage import Remains
from lockstitch.stores import leases
from lockstitch.stores.base import (
    LEASE_SECONDS,
    VACUUM_SECONDS,
    Backend,
    IncomingSession,
    Lease,
    Listed,
    Listing,
    StoreFault,
    check_blob,
    check_lease_seconds,
    moved,
    require_lines,
)
from lockstitch.stores.leases import Heartbeat, HolderSighting, HolderWatch, read_holder
from lockstitch.stores.postgres import reading, schema
from lockstitch.stores.postgres.connections import (
    LISTENING,
    LONGEST,
    SHORTEST,
    SIZE,
    TIMEOUT,
    TRIES,
    ConnectionLost,
    Notifications,
    Pool,
    Row,
    Server,
    ServerSilent,
    address_of,
)


class ServerLeases:
    """The leases taken through one backend; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By token; each with the head at which its session stands now.
        self._held: dict[str, Lease] = {}
        self._doubtful: set[str] = set()
        self._gone: dict[str, set[str]] = {}

    def add(self, lease: Lease) -> None:
        """Add a lease; the tokens given up before for its session no longer matter."""
        with self._lock:
            self._gone.pop(lease.session, None)
            self._held[lease.token] = lease

    def head(self, lease: Lease) -> Head | None:
        """Return the head of a lease's session.

        Raise ``Unsure`` if a write has an unknown outcome.
        """
        with self._lock:
            if lease.token in self._doubtful:
                raise Unsure(
                    "an earlier write under this lease failed and may or may not have been "
                    "stored; open the session again"
                ).about(session=lease.session)
            held = self._held.get(lease.token)
        return held.head if held else None

    def move(self, lease: Lease, head: Head) -> None:
        """Record the head of a session after an append."""
        with self._lock:
            held = self._held.get(lease.token)
            if held and head.seq > held.head.seq:
                self._held[lease.token] = structs.replace(lease, head=head)

    def doubt(self, lease: Lease) -> None:
        """Record that a write under a lease has an unknown outcome."""
        with self._lock:
            self._held.pop(lease.token, None)
            self._doubtful.add(lease.token)
            self._gone.setdefault(lease.session, set()).add(lease.token)

    def give_up(self, session: str, token: str) -> None:
        """Record a token that the store may hold although nobody uses it any more."""
        with self._lock:
            self._gone.setdefault(session, set()).add(token)

    def given_up(self, session: str) -> list[str]:
        """Return the tokens of a session that nobody uses any more."""
        with self._lock:
            return sorted(self._gone.get(session, ()))

    def drop(self, tokens: set[str]) -> None:
        """Forget leases that were released or taken over."""
        with self._lock:
            for token in tokens:
                self._held.pop(token, None)

    def leftover(self) -> list[tuple[str, str]]:
        """Return the tokens that the store may show as held by this backend, and their sessions."""
        with self._lock:
            held = [(token, lease.session) for token, lease in self._held.items()]
            lost = [(token, name) for name, tokens in self._gone.items() for token in tokens]
        return held + lost

    def live(self) -> list[Lease]:
        """Return the leases that are held and not in doubt."""
        with self._lock:
            return list(self._held.values())


LISTED = 1000
# How many leases one statement keeps alive; it locks their rows while it runs.
RENEWED = 200


class PostgresBackend(Backend):
    """Sessions in the schema ``lockstitch`` of a PostgreSQL database.

    ``dsn`` is a URL or libpq's ``name=value`` pairs; of several hosts the primary is used. The
    tables are created and migrated to this version, unless ``create`` is false: then nothing is
    created, and a database without them raises ``Unreadable``. At most ``connections`` are open at
    a time, and two more that keep leases alive and follow sessions. A server that says nothing for
    ``timeout`` seconds is given up: a write is then ``Unsure``, and the next call opens a new
    connection. The tables and functions must belong to us, to a superuser, or to a role in
    ``owners``, because their owner decides what code runs with our rights.
    """

    def __init__(  # noqa: PLR0913 - options by name
        self,
        dsn: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        create: bool = True,
        connections: int = SIZE,
        timeout: float = TIMEOUT,
        owners: Sequence[str] = (),
    ) -> None:
        check_lease_seconds(lease_seconds)
        if not timeout > 0:
            raise UsageError("the timeout of a server must be longer than 0 seconds")
        address = address_of(dsn)
        self.url = address.url
        self._lease_seconds = lease_seconds
        self._pid = os.getpid()
        self._closing = threading.Event()
        self._myself = leases.myself()
        self._counting = threading.Lock()
        self._leases = ServerLeases()
        self._watching = HolderWatch(lease_seconds)
        self._pool = Pool(address, connections, timeout)
        self._server = Server(self._pool)
        self._notifications = Notifications(address, timeout)
        self._heartbeat = Heartbeat(self._beat, lease_seconds / 3)
        weakref.finalize(self, _let_go, self._pid, self._pool, self._notifications)
        try:
            schema.prepare(self._pool, create=create, owners=tuple(owners))
        except BaseException:
            self._pool.close()
            raise

    def acquire(self, session: str, *, wait: float = 0.0, create: bool = True) -> Lease:
        check_session_name(session)
        deadline = time.monotonic() + wait
        pause = SHORTEST
        while True:
            self._require_open()
            (outcome, seq, digest, epoch, *held), mine = self._ask_for_lease(session, create=create)
            if outcome == "missing":
                raise Unreadable("it does not exist in this store").about(session=session)
            if outcome == "done":
                self._watching.forget(session)
                lease = Lease(session, epoch, mine, Head(seq, bytes(digest), epoch))
                with self._counting:
                    if not self._closing.is_set():
                        self._leases.add(lease)
                        self._heartbeat.start()
                        return lease
                # This store was being closed and released its own lease, which is why the lease was
                # free.
                self._give_back([(lease.token, lease.session)])
                raise Closed("the store was closed").about(self.url)
            pause = self._wait_for_holder(session, HolderSighting(*held), deadline, pause)

    def _wait_for_holder(
        self, session: str, seen: HolderSighting, deadline: float, pause: float
    ) -> float:
        """Wait a moment for a session's holder, unless it is gone.

        Return the length of the next pause.

        Raises ``Held`` when the time is up.
        """
        if self._knows_gone(session, seen):
            return pause
        remaining = self._watching.see(session, seen)
        if not remaining:
            return pause  # silent for long enough: the next attempt takes over
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._give_up(session, seen)
        self._closing.wait(min(left, pause, max(remaining, 0.001)))
        return min(pause * 1.5, LONGEST)

    def _give_up(self, session: str, seen: HolderSighting) -> Held:
        """Store what was seen of a holder for the next attempt; return the error to raise."""
        if note := self._watching.note(session, seen):
            # If this fails, the next process on this machine has to start watching from scratch.
            with suppress(LockstitchError, psycopg.Error):
                self._server.run(schema.WATCH, (session, seen.token, seen.beats, note))
        return Held(f"{_label(read_holder(seen.holder.encode()))} holds it").about(session=session)

    def release(self, lease: Lease) -> None:
        if self._closing.is_set() or os.getpid() != self._pid:
            return
        with self._counting:
            self._leases.drop({lease.token})
            if not self._leases.live():
                self._heartbeat.stop()
        # If the server cannot be reached, the lease expires by itself.
        try:
            self._server.ensure(
                schema.RELEASE, ([lease.token], [lease.session]), _named(lease.session)
            )
        except LockstitchError:
            self._leases.give_up(lease.session, lease.token)

    def append(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        self._require_open()
        require_lines(entries)
        for _ in range(TRIES):
            # The head as this backend knows it; another thread may have appended already.
            head = self._leases.head(lease)
            if head is None or head.seq < after:
                head = self.head(lease.session) or NEW
            # After any record but the last, this only checks whether the entries are already there.
            is_last = head.seq == after
            records = chain_entries(head, lease.epoch, entries) if is_last else []
            digest = head.digest if is_last else None
            place = (lease.session, lease.epoch, lease.token, after, digest)
            values = (*place, *_columns(entries, records), self._lease_seconds)
            with self._doubtful(lease):
                answer = self._server.tell(schema.APPEND, values, _named(lease.session))[0]
            outcome, seq, digest = answer
            if outcome in {"done", "already"}:
                head = Head(seq, bytes(digest), lease.epoch)
                self._leases.move(lease, head)
                return head
            if outcome != "again":
                raise _refused(outcome, lease, seq, after)
        raise Moved("other writers keep writing to it").about(session=lease.session)

    def add(
        self, session: str, entries: Sequence[JournalEntry], after: Head, *, wait: float = 0.0
    ) -> Head:
        self._require_open()
        check_session_name(session)
        require_lines(entries)
        deadline = time.monotonic() + wait
        pause, epoch = SHORTEST, max(after.epoch, 1)
        while True:
            records = chain_entries(after, epoch, entries)
            values = (
                session,
                self._leases.given_up(session),
                *self._watching.silent(session),
                after.seq,
                after.digest,
                epoch,
                *_columns(entries, records),
            )
            try:
                answer = self._server.tell(schema.ADD, values, _named(session))[0]
            except ConnectionLost as error:
                raise Unsure(
                    f"{error} in the middle of a write, which may or may not have been stored: "
                    "read the session again; what is there is not added twice"
                ).about(session=session) from None
            outcome, seq, digest, found, *held = answer
            if outcome == "done":
                return Head(seq, bytes(digest), found)
            if outcome == "moved":
                if found == epoch or (seq, bytes(digest or b"")) != (after.seq, after.digest):
                    raise moved(_named(session), seq, after.seq)
                epoch = found
                continue
            pause = self._wait_for_holder(session, HolderSighting(*held), deadline, pause)
            self._require_open()

    def replace(self, lease: Lease, entries: Sequence[JournalEntry], after: int) -> Head:
        self._require_open()
        require_lines(entries)
        self._leases.head(lease)
        records = chain_entries(NEW, lease.epoch, entries)
        place = (lease.session, lease.epoch, lease.token, after, START)
        columns = _columns(entries, records)
        with self._doubtful(lease):
            [(outcome, seq, digest)] = self._server.tell(
                schema.REPLACE, (*place, *columns, self._lease_seconds), _named(lease.session)
            )
        if outcome != "done":
            raise _refused(outcome, lease, seq, after)
        head = Head(seq, bytes(digest), lease.epoch)
        self._leases.add(structs.replace(lease, head=head))
        return head

    def delete(self, lease: Lease) -> None:
        self._require_open()
        self._leases.head(lease)
        with self._doubtful(lease):
            [(is_done,)] = self._server.tell(
                schema.DELETE, (lease.session, lease.epoch, lease.token), _named(lease.session)
            )
        if not is_done:
            raise _refused("fenced", lease, None, 0)
        self.release(lease)

    @contextmanager
    def _doubtful(self, lease: Lease) -> Iterator[None]:
        """Put the lease in doubt if the outcome of the block is unknown."""
        try:
            yield
        except LockstitchError:
            raise
        except BaseException as error:
            self._leases.doubt(lease)
            if not isinstance(error, ConnectionLost):
                raise
            raise Unsure(
                f"{error} in the middle of a write, which may or may not have been stored: open "
                "the session again, and write it again under the same key"
            ).about(session=lease.session) from None

    def read(
        self, session: str, after: Head = NEW, upto: int | None = None
    ) -> Iterator[JournalRecord]:
        self._require_open()
        found = self._server.ask(schema.HEAD, (session,), _named(session))
        if not found:
            raise Unreadable("it does not exist in this store").about(session=session)
        return self._records(session, found[0], after, upto)

    def _records(
        self, session: str, found: Row, after: Head, upto: int | None
    ) -> Iterator[JournalRecord]:
        try:
            yield from reading.records(self._server, found, after, upto, _named(session))
        except Damaged:
            now = self._server.ask(schema.HEAD, (session,), _named(session))
            if now and now[0][3] == found[3]:
                raise
            raise Unreadable(
                "it was removed or replaced while it was being read: read it again"
            ).about(session=session) from None

    def head(self, session: str) -> Head | None:
        self._require_open()
        for seq, digest, epoch, *_ in self._server.ask(schema.HEAD, (session,), _named(session)):
            return Head(seq, bytes(digest), epoch)
        return None

    def blobs(self, names: Iterable[str]) -> dict[str, bytes]:
        self._require_open()
        wanted = list(dict.fromkeys(names))
        found = reading.blobs(self._server, wanted, Where(self.url))
        return {name: check_blob(name, found.get(name), Where(self.url)) for name in wanted}

    def listed(self, listing: Listing, limit: int | None = None) -> Iterator[Listed]:
        self._require_open()
        return islice(self._listed(listing, limit), limit)

    def _listed(self, listing: Listing, limit: int | None) -> Iterator[Listed]:
        size = LISTED if limit is None else max(min(LISTED, limit), 1)
        while rows := self._server.ask(*reading.listing(listing, size), Where(self.url)):
            found = list(map(self._described, rows))
            yield from found
            listing = listing.behind(found[-1])

    def _described(self, row: Row) -> Listed:
        """Return the listing of a session, without its holder if that is certainly dead."""
        name, seq, epoch, created, changed, text, *body = row
        holder = read_holder(text.encode())
        is_gone = not text or (holder is not None and self._is_gone(holder))
        about = about_of(bytes(body[0])) if body and body[0] is not None else NO_ABOUT
        head = (name, seq, epoch, created, changed, "" if is_gone else _label(holder))
        return Listed(*head, *structs.astuple(about))

    def fork(self, source: str, upto: int, target: str) -> Head:
        self._require_open()
        check_session_name(target)
        values = (source, upto, target, START)
        ((outcome, seq, digest, epoch),) = self._server.ensure(schema.FORK, values, _named(source))
        if outcome == "missing":
            raise Unreadable("it does not exist in this store").about(session=source)
        if outcome == "short":
            raise UsageError(f"there is no record {upto} to fork at").about(session=source)
        if outcome == "held":
            raise Held("it already exists, with other records than the fork's").about(
                session=target
            )
        return Head(seq, bytes(digest), epoch)

    def receive(self, incoming: IncomingSession) -> Head:
        self._require_open()
        name = check_session_name(incoming.session)
        # The pieces can be read only once, so check before beginning.
        if not incoming.is_there(self.head(name)):
            reading.receive_session(self._pool, incoming)
        return self.head(name) or NEW

    def remains(self, session: str) -> Remains:
        self._require_open()
        return reading.remains(self._server, session, _named(session))

    def exchange(self, session: str, aside: str, successor: str, stamp: str = "") -> None:
        self._require_open()
        check_session_name(aside)
        place = reading.stamp_of(stamp)
        while True:
            gone = [*self._leases.given_up(session), *self._leases.given_up(successor)]
            silent = self._watching.silent(session)
            values = (session, aside, successor, *place, gone, *silent)
            outcome, *held = self._server.ensure(schema.EXCHANGE, values, _named(session))[0]
            if outcome != "held":
                break
            seen = HolderSighting(*held)
            if not self._knows_gone(session, seen) and self._watching.see(session, seen):
                raise self._give_up(session, seen)
        if outcome == "missing":
            raise Unreadable(f"session {session} or {successor}: it does not exist in this store")
        if outcome == "taken":
            raise Held("it already exists").about(session=aside)
        if outcome == "moved":
            raise Moved("it was continued since it was read: read it again").about(session=session)

    def wait(self, session: str, after: int, timeout: float) -> bool:
        if self._is_behind(session, after):
            return True
        deadline = time.monotonic() + timeout
        pause = SHORTEST
        with self._notifications.waiting(session) as changed:
            while (left := deadline - time.monotonic()) > 0:
                changed.clear()
                is_notified = self._notifications.subscribe(session, self._follow, left)
                # Check after subscribing, so that no record is missed in between.
                if self._is_behind(session, after):
                    return True
                changed.wait(min(left, LISTENING if is_notified else pause))
                pause = min(pause * 1.5, LONGEST)
        return self._is_behind(session, after)

    def _is_behind(self, session: str, after: int) -> bool:
        head = self.head(session)
        return head is not None and head.seq > after

    def _follow(self, session: str, seconds: float) -> bool:
        try:
            return bool(self._server.run(schema.FOLLOW, (session, seconds))[0][0])
        except psycopg.Error:
            return False

    def verify(self) -> Iterator[StoreFault | Listed]:
        self._require_open()

        def ask(statement: LiteralString, values: tuple[Any, ...]) -> list[Row]:
            self._require_open()
            return self._server.ask(statement, values, Where(self.url), is_slow=True)

        return reading.verify_all(ask, self._described)

    def vacuum(self, *, wait: float = VACUUM_SECONDS) -> int:
        """Have the server clear what was deleted; it returns only the space at the end of files.

        The space in between is used for new records. Readers and writers continue meanwhile.
        Deleted content may remain in the server's log and backups for as long as it keeps those.
        """
        self._require_open()
        before = self._server.ask(schema.TABLE_SIZES, (), Where(self.url))
        if not all(may for _name, _size, may in before):
            raise UsageError(
                "only the owner of the tables in the schema lockstitch can vacuum them; the "
                "server's own autovacuum does it, too, a little later"
            ).about(self.url)
        self._server.vacuum(schema.VACUUM, Where(self.url))
        after = self._server.ask(schema.TABLE_SIZES, (), Where(self.url))
        was, now = (sum(int(row[1]) for row in rows) for rows in (before, after))
        return max(was - now, 0)

    def close(self) -> None:
        if os.getpid() != self._pid or self._closing.is_set():
            return
        with self._counting:
            self._closing.set()
        self._heartbeat.stop(wait=True)
        self._give_back(self._leases.leftover())
        self._notifications.close()
        self._pool.close()

    def _give_back(self, held: list[tuple[str, str]]) -> None:
        """Release leases if the server can be reached; otherwise they expire."""
        with suppress(LockstitchError, ConnectionLost):
            for start in range(0, len(held), RENEWED):
                tokens, sessions = zip(*held[start : start + RENEWED], strict=True)
                self._server.tell(schema.RELEASE, (list(tokens), list(sessions)), Where(self.url))

    def _knows_gone(self, session: str, seen: HolderSighting) -> bool:
        """Whether a holder is certainly dead, so that the next attempt takes the session over."""
        other = read_holder(seen.holder.encode())
        if other is None or not self._is_gone(other):
            return False
        self._leases.give_up(session, seen.token)
        return True

    def _ask_for_lease(self, session: str, *, create: bool) -> tuple[Row, str]:
        """Ask for a lease, with a new token for each attempt.

        If the connection is lost, the lease may have been given all the same, or be given later.
        The next attempt takes it from the token given up, and a late one finds the session held.
        """
        for _ in range(2):
            holder = structs.replace(self._myself, token=secrets.token_hex(8))
            text = msgspec.json.encode(holder).decode()
            gone = self._leases.given_up(session)
            silent = self._watching.silent(session)
            mine = (session, holder.token, text, self._lease_seconds)
            values = (*mine, gone, *silent, create, START)
            try:
                return self._server.tell(schema.ACQUIRE, values, _named(session))[0], holder.token
            except LockstitchError:
                raise
            except BaseException as error:
                self._leases.give_up(session, holder.token)
                if isinstance(error, ServerSilent):
                    raise Unsure(f"{error} while its lease was being taken; take it again").about(
                        session=session
                    ) from None
                if not isinstance(error, ConnectionLost):
                    raise
                self._pool.drop_idle()
        raise Unsure("the connection was lost twice while its lease was being taken").about(
            session=session
        )

    def _is_gone(self, holder: leases.Holder) -> bool:
        """Whether a holder is certainly dead.

        Another boot may be another machine of the same name.
        """
        return holder.boot == self._myself.boot and leases.is_gone(holder)

    def _beat(self) -> None:
        """Keep all leases alive; a failure is ignored, since the next beat may succeed."""
        live = self._leases.live()
        for start in range(0, len(live), RENEWED):
            part = live[start : start + RENEWED]
            tokens, sessions = [one.token for one in part], [one.session for one in part]
            patience = min(self._pool.timeout, self._lease_seconds / 3)
            with (
                suppress(LockstitchError, psycopg.Error),
                self._pool.beyond(patience) as connection,
            ):
                lost = connection.execute(schema.RENEW, (tokens, sessions, self._lease_seconds))
                self._leases.drop({token for (token,) in lost})

    def _require_open(self) -> None:
        if self._closing.is_set():
            raise Closed("the store was closed").about(self.url)
        if os.getpid() != self._pid:
            raise Closed("it belongs to the process that this one was forked from").about(self.url)


def _columns(
    entries: Sequence[JournalEntry], records: Sequence[JournalRecord]
) -> tuple[list[Any], ...]:
    """Return entries as columns; without records, only to ask whether the entries are there."""
    sent = entries if records else ()
    blobs = sorted({blob_name(value): value for one in sent for value in one.blobs}.items())
    return (
        [entry.key for entry in entries],
        [entry.at for entry in entries],
        [record.body for record in records],
        [record.digest for record in records],
        [name for name, _value in blobs],
        [value for _name, value in blobs],
    )


def _named(session: str) -> Where:
    return Where(session=session)


def _let_go(pid: int, pool: Pool, notifications: Notifications) -> None:
    """Close what a backend left open, but not in a forked process, which shares its sockets."""
    if os.getpid() == pid:
        notifications.close()
        pool.close()


def _refused(outcome: str, lease: Lease, seq: int | None, after: int) -> LockstitchError:
    where = _named(lease.session)
    if outcome == "moved":
        return moved(where, seq, after)
    if outcome == "damaged":
        return Damaged(f"record {after} is not the one that was written (checksum)").about(*where)
    if outcome == "missing":
        return Fenced("it is no longer in this store").about(*where)
    return Fenced("another writer took it over, or the lease was released").about(*where)


def _label(holder: leases.Holder | None) -> str:
    return holder.label if holder else "another writer"
