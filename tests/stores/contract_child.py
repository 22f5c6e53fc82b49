"""Another process of the tests: ``python -m tests.stores.contract_child ADDRESS``."""

from __future__ import annotations

import sys

from lockstitch.errors import LockstitchError
from lockstitch.stores.base import Backend, Lease
from lockstitch.stores.opening import open_backend
from tests.stores.contract import entries, keys


class Orders:
    """Does one order a line: its first word is a method, the others are its arguments."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.leases: dict[str, Lease] = {}

    def acquire(self, session: str, wait: str = "0") -> str:
        self.leases[session] = self.backend.acquire(session, wait=float(wait))
        return f"epoch {self.leases[session].epoch}"

    def append(self, session: str, after: str, *names: str) -> str:
        head = self.backend.append(self.leases[session], entries(*names), int(after))
        return f"seq {head.seq}"

    def release(self, session: str) -> str:
        self.backend.release(self.leases[session])
        return "released"

    def forks(self, source: str, upto: str, name: str) -> str:
        """Fork again and again, until it is killed."""
        for number in range(10_000):
            self.backend.fork(source, int(upto), f"{name}{number}")
        return "forked"

    def deletes(self, name: str, count: str) -> str:
        """Delete sessions, until it is killed."""
        for number in range(int(count)):
            self.backend.delete(self.backend.acquire(f"{name}{number}"))
        return "deleted"

    def vacuums(self) -> str:
        """Give room back again and again, until it is killed."""
        for _ in range(10_000):
            self.backend.vacuum()
        return "done"

    def keys(self, session: str) -> str:
        return " ".join(keys(self.backend, session))


def main() -> None:
    with open_backend(sys.argv[1]) as backend:
        orders = Orders(backend)
        for line in sys.stdin:
            name, *arguments = line.split()
            try:
                answer = getattr(orders, name)(*arguments)
            except LockstitchError as error:
                answer = type(error).__name__
            print(answer, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
