"""What the tests of the contract share: stores of every kind, entries, other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct

from lockstitch.journal.records import JournalEntry
from lockstitch.stores.base import LEASE_SECONDS, Backend
from lockstitch.stores.memory import MemoryBackend
from lockstitch.stores.opening import open_backend

SHARED = ("jsonl", "sqlite", "postgres")
KINDS = ("memory", *SHARED)


class Measured:
    """By how many bytes a store has grown."""

    grown = 0


def _in_memory(value: object, seen: set[int] | None = None) -> int:
    """Count the bytes of a value and all that it holds, what is shared once."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type):
        return 0
    seen.add(id(value))
    parts: list[object] = []
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set)):
        parts = [*value]
    elif isinstance(value, Struct):
        parts = [getattr(value, name) for name in value.__struct_fields__]
    elif type(value).__module__ == "lockstitch.stores.memory":
        parts = [vars(value)]
    return sys.getsizeof(value) + sum(_in_memory(part, seen) for part in parts)


def _database(url: str) -> str:
    return url.rpartition("/")[2].partition("?")[0]


class Place:
    """Where a store is; ``open`` opens it once more, as another process would."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.url = _url(kind, folder)
        self.folder = folder if kind in {"jsonl", "sqlite"} else None
        self._opened: list[Backend] = []
        self._children: list[Child] = []

    def open(self, lease: float = LEASE_SECONDS) -> Backend:
        if self.kind == "memory":
            if not self._opened:
                self._opened.append(MemoryBackend())
            return self._opened[0]
        backend = open_backend(self.address(lease))
        self._opened.append(backend)
        return backend

    @contextmanager
    def measured(self) -> Iterator[Measured]:
        """Tell in the end by how many bytes the store has grown; it is closed for that."""
        found = Measured()
        before = self._size()
        yield found
        if self.kind != "memory":
            for backend in self._opened:
                backend.close()
        found.grown = self._size() - before

    def _size(self) -> int:
        if self.kind == "memory":
            return _in_memory(vars(self._opened[0])) if self._opened else 0
        if self.folder is None:
            from tests.postgres_server import shared

            question = "select coalesce(sum(pg_total_relation_size(relid)), 0)"
            found = shared().execute(f"{question} from pg_stat_user_tables", _database(self.url))
            return int(found[0][0])
        found = [path.stat() for path in self.folder.rglob("*")]
        return sum({one.st_ino: one.st_blocks * 512 for one in found}.values())

    def address(self, lease: float) -> str:
        return f"{self.url}{'&' if '?' in self.url else '?'}lease={lease}"

    def child(self, lease: float = LEASE_SECONDS) -> Child:
        """Another process with the store open."""
        child = Child(self.address(lease))
        self._children.append(child)
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for child in self._children:
            child.end()
        for backend in self._opened:
            backend.close()
        if self.kind == "postgres":
            from tests.postgres_server import shared

            shared().recycle(self.url)


def _url(kind: str, folder: Path) -> str:
    if kind == "postgres":
        from tests.postgres_server import shared

        return shared().prepared()
    return {
        "memory": "memory:",
        "jsonl": f"jsonl:///{folder}/sessions",
        "sqlite": f"sqlite:///{folder}/sessions.db",
    }[kind]


class Child:
    """Another process that does what it is told, one line at a time."""

    def __init__(self, address: str) -> None:
        command = [sys.executable, "-m", "tests.stores.contract_child", address]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def ask(self, order: str) -> str:
        self.tell(order)
        return self.answer()

    def tell(self, order: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.kill()
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()


def entry(key: str, body: bytes = b'{"kind":"noted"}', *blobs: bytes) -> JournalEntry:
    return JournalEntry(key, now(), body, blobs)


def entries(*keys: str) -> list[JournalEntry]:
    return [entry(key) for key in keys]


def now() -> int:
    return time.time_ns() // 1_000_000


def keys(backend: Backend, session: str) -> list[str]:
    return [record.key for record in backend.read(session)]
