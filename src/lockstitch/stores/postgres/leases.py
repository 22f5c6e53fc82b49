"""The leases that one backend holds: where each session stands, and which are in doubt.

A lost connection puts one lease in doubt, the one that was written under, and no other: a fleet's
store holds many sessions over many connections.
"""

from __future__ import annotations

import threading

from lockstitch.errors import Unsure
from lockstitch.journal.records import Head
from lockstitch.stores.base import Lease


class Leases:
    """What is known of the leases taken here; safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heads: dict[str, tuple[Lease, Head]] = {}
        self._doubtful: set[str] = set()
        self._gone: dict[str, set[str]] = {}

    def add(self, lease: Lease) -> None:
        """Hold a lease; with it every doubt about the session's earlier ones is settled."""
        with self._lock:
            self._gone.pop(lease.session, None)
            self._heads[lease.token] = (lease, lease.head)

    def head(self, lease: Lease) -> Head | None:
        """Tell where the session of a lease stands; raises ``Unsure`` if that is in doubt."""
        with self._lock:
            if lease.token in self._doubtful:
                raise Unsure(
                    f"session {lease.session}: an earlier write under this lease failed and may be "
                    "there or not; open the session again"
                )
            held = self._heads.get(lease.token)
        return held[1] if held else None

    def move(self, lease: Lease, head: Head) -> None:
        """Remember where a session stands after an append."""
        with self._lock:
            held = self._heads.get(lease.token)
            if held and head.seq > held[1].seq:
                self._heads[lease.token] = (lease, head)

    def doubt(self, lease: Lease) -> None:
        """Remember that a write under a lease has an unknown outcome."""
        with self._lock:
            self._heads.pop(lease.token, None)
            self._doubtful.add(lease.token)
            self._gone.setdefault(lease.session, set()).add(lease.token)

    def give_up(self, session: str, token: str) -> None:
        """Remember a token that may stand in the store and that nobody uses any more."""
        with self._lock:
            self._gone.setdefault(session, set()).add(token)

    def given_up(self, session: str) -> list[str]:
        """Tell the tokens of a session that nobody uses any more."""
        with self._lock:
            return sorted(self._gone.get(session, ()))

    def drop(self, tokens: set[str]) -> None:
        """Forget leases that were given back or taken over."""
        with self._lock:
            for token in tokens:
                self._heads.pop(token, None)

    def leftover(self) -> list[tuple[str, str]]:
        """Tell what may stand in the store as held by this backend: tokens and their sessions."""
        with self._lock:
            held = [(token, lease.session) for token, (lease, _head) in self._heads.items()]
            lost = [(token, name) for name, tokens in self._gone.items() for token in tokens]
        return held + lost

    def live(self) -> list[Lease]:
        """Tell the leases that are held here and not in doubt."""
        with self._lock:
            return [lease for lease, _head in self._heads.values()]
