"""A store of sessions: what ``lockstitch.open`` returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from lockstitch.errors import UsageError
from lockstitch.journal.queries import Match
from lockstitch.journal.records import Head
from lockstitch.journal.salvage import Salvage
from lockstitch.journal.state import Checkpoint
from lockstitch.session.copying import Copy, Taken, copy_session, fork_session, import_messages
from lockstitch.session.decisions import Call
from lockstitch.session.listing import (
    Order,
    Parent,
    deliver,
    list_sessions,
    listing_of,
    refuse_internal,
    search_store,
)
from lockstitch.session.maintenance import (
    Audited,
    Deleted,
    Retention,
    apply_retention,
    delete_with_reason,
    read_audit,
    read_salvage,
    rule_of,
)
from lockstitch.session.reader import Reader
from lockstitch.session.session import Session, check_wait
from lockstitch.session.tool_run import CurrentCall
from lockstitch.stores.base import VACUUM_SECONDS, Backend, Listed, Listing

if TYPE_CHECKING:
    from lockstitch.session.async_session import AsyncReader, Opening


@contextmanager
def _anyio() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "anyio":
            raise
        raise UsageError("async sessions need anyio: pip install 'lockstitch[async]'") from None


class Store:
    """Sessions by name, for all threads of a program: one writer each, any number of readers.

    If another writer has a session, you can wait (``wait=seconds``), read it (:meth:`read`), or go
    on in a copy (:meth:`fork`).
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def url(self) -> str:
        """The address, without a password."""
        return self._backend.url

    def session(self, name: str, *, wait: float = 0.0, create: bool = True) -> Session:
        """Open a session for writing; calls that a crash left open get their outcome.

        Raises ``Held`` if another writer has it for longer than ``wait`` seconds, and, without
        ``create``, ``Unreadable`` if there is none.
        """
        refuse_internal(name)
        return Session(self._backend, name, wait=wait, create=create)

    def async_session(self, name: str, *, wait: float = 0.0, create: bool = True) -> Opening:
        """Open a session from asyncio or trio: ``async with store.async_session(…) as session``.

        Or ``session = await store.async_session(…)`` and ``await session.close()``. Needs the
        extra ``async``.
        """
        with _anyio():
            from lockstitch.session.async_session import Opening  # noqa: PLC0415 - anyio is an extra
        refuse_internal(name)
        return Opening(self._backend, name, wait=wait, create=create)

    def child(self, call: CurrentCall, *, wait: float = 0.0) -> Session:
        """Open the session that belongs to a call: ``store.child(lockstitch.current_call())``.

        For a tool that is an agent itself. Its name is the parent's with the call's place, so the
        tool, run again after a crash, goes on in the same one (declare it ``repeatable``).
        """
        parent = Parent(call.session, *call.key)
        return Session(self._backend, parent.child, wait=wait, parent=parent)

    def async_child(self, call: CurrentCall, *, wait: float = 0.0) -> Opening:
        """Open the session that belongs to a call, as :meth:`child` does, from asyncio or trio."""
        with _anyio():
            from lockstitch.session.async_session import Opening  # noqa: PLC0415 - anyio is an extra
        parent = Parent(call.session, *call.key)
        return Opening(self._backend, parent.child, wait=wait, create=True, parent=parent)

    def read(self, name: str) -> Reader:
        """Open a session for reading only, whoever writes it; raises ``Unreadable`` if missing."""
        refuse_internal(name)
        return Reader(self._backend, name)

    async def async_read(self, name: str) -> AsyncReader:
        """Open a session for reading only, from asyncio or trio; needs the extra ``async``."""
        with _anyio():
            from lockstitch.session.async_session import open_reader  # noqa: PLC0415 - anyio is an extra
        refuse_internal(name)
        return await open_reader(self._backend, name)

    def fork(self, name: str, new_name: str, at: Checkpoint | str | int | None = None) -> Head:
        """Copy a session up to a place into a new one, all of it or none; returns where that ends.

        ``at`` is a checkpoint, its label or a record's number, and by default the end. Nobody has
        to stop writing the old one. The same fork again is done already.
        """
        for one in (name, new_name):
            refuse_internal(one)
        return fork_session(self._backend, name, new_name, at)

    def import_messages(
        self, name: str, messages: Any, dialect: str | None = None, *, system: Any = None
    ) -> Taken:
        """Make a new session of a message list, from any framework, or of a request's body.

        What is broken in it is healed, as :func:`lockstitch.heal` does, and the first record, a
        note called ``imported``, keeps the list as it was. Calls at the end without a result are
        left open with an unknown outcome. The same list again is done already; raises ``Held`` if
        the name is another session's.
        """
        return import_messages(self._backend, name, messages, dialect, system)

    def deliver(
        self, session: str, call: Call | str, result: Any, *, key: str | None = None
    ) -> bool:
        """Hand in a result from outside, whoever holds the session; returns whether it is new.

        ``call`` is what the tool was given as ``current_call().effect``, the call itself, or an
        id that no other call of the session has; ``result`` is a value, ``Result`` or an
        exception. The same again, known by ``key`` or else by the call, is delivered already.
        A session that waits for it is woken, and one that is not open has it when it is opened.
        """
        return deliver(self._backend, session, call, result, key=key)

    async def async_deliver(
        self, session: str, call: Call | str, result: Any, *, key: str | None = None
    ) -> bool:
        """Hand in a result as :meth:`deliver` does, from asyncio or trio."""
        with _anyio():
            from lockstitch.session.async_session import run_to_end  # noqa: PLC0415 - anyio is an extra
        return await run_to_end(lambda: self.deliver(session, call, result, key=key), insist=True)

    def copy(self, name: str, to: Store, new_name: str | None = None) -> Copy:
        """Copy a session into another store as it is: keys, times, large values, what it is called.

        All of it or nothing, and verified; the same copy again is done already, also when it went
        on since. Nobody has to stop writing the session. Raises ``Held`` if the other store has
        another one of that name.
        """
        return copy_session(self._backend, name, to._backend, new_name)

    def delete(self, name: str, *, wait: float = 0.0, reason: str | None = None) -> Deleted:
        """Remove a session for good: its records, and large values that no other session names.

        Raises ``Held`` if another writer has it for longer than ``wait`` seconds, and
        ``Unreadable`` if there is none. :meth:`vacuum` clears what the files may still hold of it.
        With a ``reason`` its name stays in the store's :meth:`audit`.
        """
        refuse_internal(name)
        return delete_with_reason(self._backend, name, check_wait(wait), reason)

    def retain(  # noqa: PLR0913 - options, all by name
        self,
        *,
        older_than: timedelta | float | None = None,
        keep: int | None = None,
        tags: Iterable[str] = (),
        including_open: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> Retention:
        """Remove sessions not changed for so long, and all but the ``keep`` changed last.

        Either rule is enough to remove a session; of ``tags`` it must have every one to be looked
        at. One that somebody holds stays, and so does one whose turn is open or waits, unless
        ``including_open`` says otherwise. Everything that is removed is written down first, see
        :meth:`audit`; ``by`` is who did it, if not this user and process. With ``dry_run`` nothing
        is removed, and what would be is returned.
        """
        rule = rule_of(older_than, keep, tags, including_open=including_open)
        return apply_retention(self._backend, rule, dry_run=dry_run, by=by)

    def audit(self) -> Iterator[Audited]:
        """Return the removals that were written down, oldest first."""
        return read_audit(self._backend)

    def vacuum(self, *, wait: float = VACUUM_SECONDS) -> int:
        """Free the space of what was removed, and leave nothing of it in the files.

        Returns how many bytes were freed, as far as that is known here. Sessions can be used
        meanwhile, but a large store may make their writers wait. Raises ``Busy`` if others have
        the store in hand for longer than ``wait`` seconds.
        """
        return self._backend.vacuum(wait=check_wait(wait))

    def sessions(  # noqa: PLR0913 - options, all by name
        self,
        *,
        order: Order = "name",
        after: Listed | str = "",
        limit: int | None = None,
        tag: str = "",
        title: str = "",
        changed_after: datetime | int | None = None,
    ) -> Iterator[Listed]:
        """List sessions by ``name``, or by when they were ``changed``, newest first.

        For the next page pass the last session of this one as ``after``, or its ``cursor``, which
        is a text. ``tag`` and ``title`` (a part of it, in any case) choose sessions by how they
        were described, and ``changed_after`` by the time of their last record: a date, or
        milliseconds since 1970.
        """
        listing = listing_of(order, after, tag, changed_after)
        return list_sessions(self._backend, listing, title, limit)

    def search(self, words: str, *, limit: int | None = None, tag: str = "") -> Iterator[Match]:
        """Find records by what was said: all of the words, in any case, in one record.

        What users, models and tools said is looked at, those sessions first that were changed
        last, what was rewound included. It is read as it goes, one record at a time.
        """
        return search_store(self._backend, words, limit, Listing(newest=True, tag=tag))

    def salvage(self, name: str) -> Salvage:
        """Read all that can be read of a damaged session, also behind the damage.

        It says of each record whether it is what was written. Nothing is changed: `lockstitch
        repair`, or :func:`lockstitch.stored.repair`, writes the session anew.
        """
        return read_salvage(self._backend, name)

    def close(self) -> None:
        """Release every session and close the store; may be called twice."""
        self._backend.close()

    def __repr__(self) -> str:
        """Name the store by its address, without a password."""
        return f"<Store {self.url}>"

    def __enter__(self) -> Self:
        """Return the store itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close the store."""
        self.close()
