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
    """A store of sessions, as returned by :func:`lockstitch.open`; threads may share it.

    Each session has one writer at a time and any number of readers. If another writer holds a
    session, you can wait for it (``wait=seconds``), read it (:meth:`read`), or continue in a copy
    (:meth:`fork`). A crash at any moment leaves a store that can be opened again, with every
    acknowledged write in it. Methods raise ``Closed`` after :meth:`close`, and ``Damaged`` if the
    store holds other bytes than were written.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def url(self) -> str:
        """The address of the store, without a password."""
        return self._backend.url

    def session(self, name: str, *, wait: float = 0.0, create: bool = True) -> Session:
        """Open a session for writing, and recover what a crash left open.

        It is created if it does not exist. Raises ``Held`` if another writer holds it for longer
        than ``wait`` seconds, and ``Unreadable`` if ``create`` is false and there is no such
        session.
        """
        refuse_internal(name)
        return Session(self._backend, name, wait=wait, create=create)

    def async_session(self, name: str, *, wait: float = 0.0, create: bool = True) -> Opening:
        """Open a session from asyncio or trio: ``async with store.async_session(…) as session``.

        Without a block, use ``session = await store.async_session(…)`` and ``await
        session.close()``. Needs the extra ``async``. Raises what :meth:`session` raises.
        """
        with _anyio():
            from lockstitch.session.async_session import Opening  # noqa: PLC0415 - anyio is an extra
        refuse_internal(name)
        return Opening(self._backend, name, wait=wait, create=create)

    def child(self, call: CurrentCall, *, wait: float = 0.0) -> Session:
        """Open the session that belongs to a call: ``store.child(lockstitch.current_call())``.

        Use it in a tool that is itself an agent. The name of the child contains the name of the
        parent and the place of the call, so a tool that runs again after a crash continues the same
        session; declare such a tool ``repeatable``.
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
        """Open a session for reading; this never waits for a writer.

        Raises ``Unreadable`` if there is no such session.
        """
        refuse_internal(name)
        return Reader(self._backend, name)

    async def async_read(self, name: str) -> AsyncReader:
        """Open a session for reading, as :meth:`read` does, from asyncio or trio.

        Needs the extra ``async``.
        """
        with _anyio():
            from lockstitch.session.async_session import open_reader  # noqa: PLC0415 - anyio is an extra
        refuse_internal(name)
        return await open_reader(self._backend, name)

    def fork(self, name: str, new_name: str, at: Checkpoint | str | int | None = None) -> Head:
        """Copy the beginning of a session into a new one; return the end of the new session.

        ``at`` is a checkpoint, its label or the number of a record; by default everything is
        copied. The old session may be written meanwhile. Repeating a fork, also after a crash,
        changes nothing. Raises ``Held`` if the new name belongs to any other session.
        """
        for one in (name, new_name):
            refuse_internal(one)
        return fork_session(self._backend, name, new_name, at)

    def import_messages(
        self, name: str, messages: Any, dialect: str | None = None, *, system: Any = None
    ) -> Taken:
        """Create a session from a message list of any framework, or from the body of a request.

        A broken list is healed, as by :func:`lockstitch.heal`, and the first record, a note named
        ``imported``, then keeps the original list. Calls at the end that have no result get the
        outcome ``unknown``. Importing the same list again changes nothing. Raises ``UsageError`` if
        the list cannot be made valid, and ``Held`` if the name belongs to another session.
        """
        return import_messages(self._backend, name, messages, dialect, system)

    def deliver(
        self, session: str, call: Call | str, result: Any, *, key: str | None = None
    ) -> bool:
        """Deliver the result of a call, whoever holds the session; return whether it is new.

        ``call`` is the ``current_call().effect`` that the tool received, the call itself, or an id
        that no other call of the session has. ``result`` is a value, ``Result`` or an exception. A
        result is delivered once for each ``key``, or without one once for each call. The result is
        durable when this returns: a session that waits for it wakes up, and any other has it the
        next time it is opened. Raises ``UsageError`` if there is no such call.
        """
        return deliver(self._backend, session, call, result, key=key)

    async def async_deliver(
        self, session: str, call: Call | str, result: Any, *, key: str | None = None
    ) -> bool:
        """Deliver the result of a call, as :meth:`deliver` does, from asyncio or trio."""
        with _anyio():
            from lockstitch.session.async_session import run_to_end  # noqa: PLC0415 - anyio is an extra
        return await run_to_end(lambda: self.deliver(session, call, result, key=key), insist=True)

    def copy(self, name: str, to: Store, new_name: str | None = None) -> Copy:
        """Copy a session into another store, with its keys, times, large values and description.

        The copy is verified, and is there completely or not at all. Repeating it changes nothing,
        even if the copy went on since. The session may be written meanwhile. Raises ``Held`` if the
        other store has a different session of that name.
        """
        return copy_session(self._backend, name, to._backend, new_name)

    def delete(self, name: str, *, wait: float = 0.0, reason: str | None = None) -> Deleted:
        """Delete a session: its records, and the large values that no other session uses.

        This cannot be undone. With a ``reason`` the deletion is listed in :meth:`audit`.
        :meth:`vacuum` clears what the files may still contain. Raises ``Held`` if another writer
        holds the session for longer than ``wait`` seconds, and ``Unreadable`` if there is no such
        session.
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
        """Delete the sessions that are too old, or that are not among the ``keep`` changed last.

        ``older_than`` is the time since the last change. A session is deleted if either rule
        applies and it has every one of ``tags``. A session that somebody holds stays, and so does
        one whose turn is open or waiting, unless ``including_open`` is true. Each deletion is
        recorded before it is done, see :meth:`audit`; ``by`` says who did it, by default this user
        and process. With ``dry_run`` nothing is deleted, and the result says what would be.
        """
        rule = rule_of(older_than, keep, tags, including_open=including_open)
        return apply_retention(self._backend, rule, dry_run=dry_run, by=by)

    def audit(self) -> Iterator[Audited]:
        """Return the recorded deletions, oldest first."""
        return read_audit(self._backend)

    def vacuum(self, *, wait: float = VACUUM_SECONDS) -> int:
        """Free the space of deleted sessions, and erase what the files still contain of them.

        Returns the number of bytes freed, as far as the store knows it. Sessions can be used
        meanwhile, but in a large store their writers may have to wait. Raises ``Busy`` if others
        keep the store busy for longer than ``wait`` seconds.
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
        """List the sessions, ordered by ``name``, or by last change (``changed``), newest first.

        For the next page, pass the last session of this one as ``after``, or its ``cursor``, which
        is a text. ``tag`` selects sessions with that tag, ``title`` those whose title contains a
        text in any case, and ``changed_after`` those changed after a date, or after a number of
        milliseconds since 1970. Raises ``UsageError`` if an argument is not valid.
        """
        listing = listing_of(order, after, tag, changed_after)
        return list_sessions(self._backend, listing, title, limit)

    def search(self, words: str, *, limit: int | None = None, tag: str = "") -> Iterator[Match]:
        """Find the records in which all words were said, in any case.

        It searches what users, models and tools said, including what was rewound, and begins with
        the sessions changed last. Matches are returned as they are found, with one record in memory
        at a time. Raises ``Damaged`` at the end if a part of the store could not be read.
        """
        return search_store(self._backend, words, limit, Listing(newest=True, tag=tag))

    def salvage(self, name: str) -> Salvage:
        """Read everything that can be read of a damaged session, also after the damage.

        The result says for each record whether it is what was written. Nothing is changed:
        `lockstitch repair`, or :func:`lockstitch.stored.repair`, rewrites the session.
        """
        return read_salvage(self._backend, name)

    def close(self) -> None:
        """Release every session and close the store. May be called more than once."""
        self._backend.close()

    def __repr__(self) -> str:
        """Return the address of the store, without a password."""
        return f"<Store {self.url}>"

    def __enter__(self) -> Self:
        """Return the store itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close the store."""
        self.close()
