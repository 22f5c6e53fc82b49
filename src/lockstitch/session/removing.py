"""Removing a session from a store, with all that belongs to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from lockstitch.errors import Damaged, LockstitchError, Unreadable
from lockstitch.session.companions import companions
from lockstitch.stores.base import Backend, Lease


class Deleted(Struct, frozen=True):
    """A session that was removed, how many records it had, and what was removed with it."""

    session: str
    records: int
    companions: tuple[str, ...] = ()


def deleted(
    backend: Backend,
    name: str,
    wait: float = 0.0,
    before: Callable[[Lease], object] = lambda _: None,
) -> Deleted:
    """Remove a session, its records, large values that no other session names, and companions.

    All leases are taken first, so that nothing is removed if somebody writes any of them. Then
    ``before`` is called, which may refuse. The session itself goes last: whoever is killed in
    between finds it there and can do it again.
    """
    leases = [backend.acquire(name, wait=wait, create=False)]
    try:
        leases += _taken(backend, companions(backend, name), wait)
        before(leases[0])
        for lease in reversed(leases):
            backend.delete(lease)
    except BaseException:
        for lease in leases:
            with suppress(LockstitchError):
                backend.release(lease)
        raise
    first, *others = leases
    return Deleted(name, first.head.seq, tuple(lease.session for lease in others))


def _taken(backend: Backend, names: list[str], wait: float) -> list[Lease]:
    leases: list[Lease] = []
    try:
        for name in names:
            try:
                leases.append(backend.acquire(name, wait=wait, create=False))
            except Unreadable as error:
                if isinstance(error, Damaged):
                    raise
                # it was removed since it was found
    except BaseException:
        for lease in leases:
            with suppress(LockstitchError):
                backend.release(lease)
        raise
    return leases
