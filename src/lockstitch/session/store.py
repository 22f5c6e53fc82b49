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
        """Open a session for writing; calls that a crash left open get an outcome.

        Raises ``Held`` if another writer has it for longer than ``wait`` seconds, and, without
        ``create``, ``Unreadable`` if it does not exist.
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

        This is for a tool that is itself an agent. Its name is the parent's plus the place of the
        call, so if the tool runs again after a crash, it continues in the same session (declare it
        ``repeatable``).
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
        """Open a session for reading, whoever writes it; raises ``Unreadable`` if missing."""
        refuse_internal(name)
        return Reader(self._backend, name)

    async def async_read(self, name: str) -> AsyncReader:
        """Open a session for reading only, from asyncio or trio; needs the extra ``async``."""
        with _anyio():
            from lockstitch.session.async_session import open_reader  # noqa: PLC0415 - anyio is an extra
        refuse_internal(name)
        return await open_reader(self._backend, name)

    def fork(self, name: str, new_name: str, at: Checkpoint | str | int | None = None) -> Head:
        """Copy a session up to some point into a new one; returns the number of its last record.

        ``at`` is a checkpoint, its label or a record's number; the default is the end. The old
        session may be in use. Repeating the same fork changes nothing.
        """
        for one in (name, new_name):
            refuse_internal(one)
        return fork_session(self._backend, name, new_name, at)

    def import_messages(
        self, name: str, messages: Any, dialect: str | None = None, *, system: Any = None
    ) -> Taken:
        """Create a session from a message list of any framework, or from a request body.

        Whatever is broken is healed, as by :func:`lockstitch.heal`, and the first record, a note
        called ``imported``, keeps the original list. Calls at the end without a result are
        left open with an unknown outcome. Repeating the same import changes nothing; raises
        ``Held`` if a different session has that name.
        """
        return import_messages(self._backend, name, messages, dialect, system)

    def deliver(
        self, session: str, call: Call | str, result: Any, *, key: str | None = None
    ) -> bool:
        """Deliver a result from outside, whoever holds the session; returns whether it is new.

        ``call`` is the tool's ``current_call().effect``, the call itself, or an id that no other
        call of the session has; ``result`` is a value, a ``Result`` or an exception. Delivering the
        same result again, by its ``key`` or else by the call, changes nothing. A session that is
        waiting for it wakes up; one that is not open finds it when it is opened.
        """
        return deliver(self._backend, session, call, result, key=key)

    async def async_deliver(
        self, session: str, call: Call | str, result: Any, *, key: str | None = None
    ) -> bool:
        """Deliver a result as :meth:`deliver` does, from asyncio or trio."""
        with _anyio():
            from lockstitch.session.async_session import run_to_end  # noqa: PLC0415 - anyio is an extra
        return await run_to_end(lambda: self.deliver(session, call, result, key=key), insist=True)

    def copy(self, name: str, to: Store, new_name: str | None = None) -> Copy:
        """Copy a session unchanged into another store: records, large values, title and tags.

        It is copied completely or not at all, and verified; repeating the copy changes nothing,
        even if the copy was continued since. The session may be in use. Raises ``Held`` if the
        other store has a different session of that name.
        """
        return copy_session(self._backend, name, to._backend, new_name)

    def delete(self, name: str, *, wait: float = 0.0, reason: str | None = None) -> Deleted:
        """Delete a session for good: its records, and large values that no other session uses.

        Raises ``Held`` if another writer has it for longer than ``wait`` seconds, and
        ``Unreadable`` if it does not exist. :meth:`vacuum` erases what the files may still hold of
        it. With a ``reason`` its name stays in the store's :meth:`audit`.
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
        """Delete sessions not changed for that long, and all but the ``keep`` that changed last.

        Either rule is enough for a session to be deleted; with ``tags``, only sessions that have
        all of them are considered. A session that a program holds stays, and so does one whose turn
        is open or waiting, unless ``including_open`` is true. Everything that is removed is written
        down first, see :meth:`audit`; ``by`` is who did it, if not this user and process. With
        ``dry_run`` nothing is deleted; the plan is returned.
        """
        rule = rule_of(older_than, keep, tags, including_open=including_open)
        return apply_retention(self._backend, rule, dry_run=dry_run, by=by)

    def audit(self) -> Iterator[Audited]:
        """Return the recorded deletions, oldest first."""
        return read_audit(self._backend)

    def vacuum(self, *, wait: float = VACUUM_SECONDS) -> int:
        """Free the space of deleted sessions, and erase them from the files.

        Returns how many bytes were freed, as far as that is known. Sessions can be used meanwhile,
        but a large store may make their writers wait. Raises ``Busy`` if other programs keep the
        store locked for longer than ``wait`` seconds.
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
        is a string. ``tag`` and ``title`` (part of it, ignoring case) select sessions by their
        description, and ``changed_after`` by the time of their last record: a date, or milliseconds
        since 1970.
        """
        listing = listing_of(order, after, tag, changed_after)
        return list_sessions(self._backend, listing, title, limit)

    def search(self, words: str, *, limit: int | None = None, tag: str = "") -> Iterator[Match]:
        """Find records by what was said: all of the words in one record, ignoring case.

        Searches what users, models and tools said, most recently changed sessions first, including
        turns that were rewound. Records are read one at a time, as the result is iterated.
        """
        return search_store(self._backend, words, limit, Listing(newest=True, tag=tag))

    def salvage(self, name: str) -> Salvage:
        """Read everything that can be read of a damaged session, even after the damage.

        The result says of each record whether it is as it was written. Nothing is changed:
        `lockstitch repair`, or :func:`lockstitch.stored.repair`, rebuilds the session.
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
