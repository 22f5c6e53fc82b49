"""What is measured of a store, each beside what it is held against, in alternating rounds."""

from __future__ import annotations

import json
import os
import secrets
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from stores_rivals import raw_connection, size_of
from stores_workload import FIRST, RESULT, Talk, entry, lines, long_session
from stores_workload import events as events_of

import lockstitch
from lockstitch.journal.events import Finished, entry_of, text_payload
from lockstitch.stores.base import Backend
from lockstitch.stores.opening import open_backend

Arm = Callable[[], Any]


def alternating(arms: dict[str, Arm], rounds: int, block: int) -> dict[str, list[float]]:
    """Time every arm, a block of calls at a time, one arm after the other, again and again."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, call in arms.items():
            for _ in range(block):
                start = time.perf_counter()
                call()
                times[name].append((time.perf_counter() - start) * 1e3)
    return times


def both_times(arms: dict[str, Arm], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Time every arm by turns: by the clock, and what this process had of the processors."""
    clocks = {"times": time.perf_counter, "cpu": time.process_time}
    found: dict[str, dict[str, list[float]]] = {kind: {a: [] for a in arms} for kind in clocks}
    for _ in range(rounds):
        for name, call in arms.items():
            starts = {kind: clock() for kind, clock in clocks.items()}
            call()
            for kind, clock in clocks.items():
                found[kind][name].append((clock() - starts[kind]) * 1e3)
    return found


def p99(values: list[float]) -> float:
    """The value that one in a hundred exceeds."""
    return sorted(values)[int(len(values) * 0.99)]


def p99_of_waiting(values: list[float]) -> float:
    """The time such that one in a hundred moments of all waiting is part of a longer wait.

    Threads that call again as soon as they are served count themselves often, and those who starve
    hardly ever: of 1 000 appends, one that waited for a second among 999 of a tenth of a
    millisecond is no part of the p99 over appends. Whoever comes at a moment of their own choice
    finds nine tenths of that time taken by the one who starves; so a wait counts for as long as it
    lasts.
    """
    left = sum(values) * 0.01
    longest = sorted(values, reverse=True)
    for value in longest:
        left -= value
        if left <= 0:
            return value
    return 0.0


class Appender:
    """Appends events of one result each to a session of its own."""

    def __init__(self, backend: Backend, name: str) -> None:
        self.backend, self.name = backend, name
        self.lease = backend.acquire(name)
        self.after = self.lease.head.seq
        self.text = text_payload(Talk().text(RESULT))

    def __call__(self) -> None:
        """Append one event, made from scratch."""
        event = Finished(reply=1, payload=self.text)
        made = entry(event, self.after + 1)
        self.after = self.backend.append(self.lease, [made], self.after).seq

    def grow(self, turns: int) -> None:
        """Put so many turns in, many at a time."""
        talk = Talk().turns()
        for start in range(0, turns, 200):
            made: list[Any] = []
            for _ in range(min(200, turns - start)):
                facts = events_of(next(talk), self.after + len(made))
                made += [entry(e, self.after + len(made) + n) for n, e in enumerate(facts, 1)]
            self.after = self.backend.append(self.lease, made, self.after).seq


class Raw:
    """Appends the same bytes to a bare file, with fdatasync."""

    def __init__(self, path: Path) -> None:
        event = Finished(reply=1, payload=text_payload(Talk().text(RESULT)))
        self.line = entry(event, 1).body + b"\n"
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __call__(self) -> None:
        """Append one line."""
        os.write(self.file, self.line)
        os.fdatasync(self.file)


def appends(urls: dict[str, str], folder: Path, rounds: int) -> dict[str, list[float]]:
    """Append one event, durably: every store, a session's ``note``, and a bare file."""
    with ExitStack() as stack:
        raw = Raw(folder / "append.raw")
        stack.callback(os.close, raw.file)
        row = raw_connection(folder / "append.raw.db")
        stack.callback(row.close)
        insert = "insert into messages (session, body) values (1, ?)"
        arms: dict[str, Arm] = {"raw fdatasync": raw}
        arms["raw SQLite FULL"] = lambda: row.execute(insert, (raw.line,))
        for name, url in urls.items():
            arms[name] = Appender(stack.enter_context(open_backend(url)), "append")
        store = stack.enter_context(lockstitch.open(urls["sqlite"]))
        session = stack.enter_context(store.session("note"))
        text = Talk().text(RESULT)
        arms["sqlite, Session.note"] = lambda: session.note("result", text)
        alternating(arms, 1, 30)
        return alternating(arms, rounds, 40)


def early_and_late(urls: dict[str, str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Append to a session at turn 10 and to one at turn 1 000, in the same store by turns."""
    found = {}
    for name, url in urls.items():
        with open_backend(url) as backend:
            early, late = Appender(backend, "early"), Appender(backend, "late")
            early.grow(10)
            late.grow(1000)
            alternating({"early": early, "late": late}, 1, 20)
            found[name] = alternating({"early": early, "late": late}, rounds, 20)
    return found


def bytes_on_disk(urls: dict[str, str], sizes: dict[str, Callable[[], int]]) -> dict[str, float]:
    """Bytes on disk of 1 000 turns against the bytes of their messages as lines of JSON."""
    talk = Talk().turns()
    payload = sum(len(line) for _ in range(1000) for line in lines(next(talk)))
    found = {"payload MB": round(payload / 1e6, 2)}
    for name, url in urls.items():
        before = sizes[name]()
        with open_backend(url) as backend:
            Appender(backend, "bytes").grow(1000)
        found[name] = (sizes[name]() - before) / payload
    return found


def bytes_at(
    size: int, url: str, bytes_of: Callable[[], int], most: int = 4_000_000
) -> dict[str, float]:
    """Bytes on disk of events that are all of one size, twenty at a time, against theirs.

    ``payload`` counts the events as the store is given them, ``said`` only the text in them. Both
    after the store was closed; ``open`` is what it has before that, its log included.
    """
    talk, before = Talk(), bytes_of()
    payload = said = 0
    with open_backend(url) as backend:
        lease = backend.acquire("bytes")
        for seq in range(0, max(most // size, 60), 20):
            events = [Finished(reply=1, payload=text_payload(talk.text(size))) for _ in range(20)]
            made = [entry_of(event, secrets.token_hex(12), FIRST + seq) for event in events]
            backend.append(lease, made, seq)
            payload += sum(len(one.body) + sum(map(len, one.blobs)) for one in made)
            said += size * len(made)
        opened = bytes_of() - before
    closed = bytes_of() - before
    return {"payload": closed / payload, "said": closed / said, "open": opened / payload}


class Crowd:
    """Threads that append as fast as they can, for some seconds."""

    def __init__(self, arms: list[Arm]) -> None:
        self.arms = arms
        self.times: list[list[float]] = [[] for _ in arms]
        self.until = 0.0

    def run(self, seconds: float) -> tuple[float, ...]:
        """Give appends a second, and of one in milliseconds: p99, that of waiting, the longest."""
        self.until = time.perf_counter() + seconds
        threads = [threading.Thread(target=self._work, args=(n,)) for n in range(len(self.arms))]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        every = [one for own in self.times for one in own]
        spent = time.perf_counter() - start
        return len(every) / spent, p99(every), p99_of_waiting(every), max(every)

    def _work(self, number: int) -> None:
        call, times = self.arms[number], self.times[number]
        while (start := time.perf_counter()) < self.until:
            call()
            times.append((time.perf_counter() - start) * 1e3)


def crowds(folder: Path, urls: dict[str, str], count: int, seconds: float) -> dict[str, Any]:
    """So many threads, a session each: every store, and a plain connection each."""
    found: dict[str, list[tuple[float, ...]]] = {}
    for number in range(3):
        found.setdefault("a connection each", []).append(_plain(folder, count, seconds, number))
        for name, url in urls.items():
            with open_backend(url) as backend:
                arms: list[Arm] = [Appender(backend, f"{number}-{n}") for n in range(count)]
                found.setdefault(name, []).append(Crowd(arms).run(seconds))
    return {name: _middle(runs) for name, runs in found.items()}


def _middle(runs: list[tuple[float, ...]]) -> dict[str, float]:
    names = ("a second", "p99 ms", "p99 of waiting ms", "longest ms")
    return dict(zip(names, map(statistics.median, zip(*runs, strict=True)), strict=True))


def _plain(folder: Path, count: int, seconds: float, number: int) -> tuple[float, ...]:
    path = folder / f"crowd-{count}-{number}.db"
    with ExitStack() as stack:
        arms: list[Arm] = []
        body = Raw(folder / "unused")
        os.close(body.file)
        for session in range(count):
            connection = raw_connection(path)
            stack.callback(connection.close)
            arms.append(_insert(connection, session, body.line))
        return Crowd(arms).run(seconds)


def _insert(connection: Any, session: int, line: bytes) -> Arm:
    statement = "insert into messages (session, body) values (?, ?)"
    return lambda: connection.execute(statement, (session, line))


def openings(urls: dict[str, str], folder: Path, count: int, rounds: int) -> dict[str, Any]:
    """Open a session and get its request, against parsing the same messages from one file."""
    found: dict[str, Any] = {}
    for dialect in ("anthropic", "openai-chat"):
        made = long_session(count, dialect)
        with ExitStack() as stack:
            arms: dict[str, Arm] = {}
            for name, url in urls.items():
                store = stack.enter_context(lockstitch.open(url))
                _fill(url, f"long-{dialect}", made)
                arms[name] = _opening(store, f"long-{dialect}", dialect)
            path = folder / f"{dialect}.json"
            path.write_bytes(msgspec.json.encode(arms[next(iter(urls))]()))
            arms["json.loads"] = lambda path=path: json.loads(path.read_bytes())
            arms["msgspec"] = lambda path=path: msgspec.json.decode(path.read_bytes())
            _check_same(arms)
            measured = both_times(arms, rounds)
        found[dialect] = {"messages": len(json.loads(path.read_bytes())), "records": len(made)}
        found[dialect]["MB"] = round(size_of(path) / 1e6, 1)
        found[dialect].update(measured)
    return found


def _check_same(arms: dict[str, Arm]) -> None:
    first, *others = (call() for call in arms.values())
    assert all(other == first for other in others)  # noqa: S101


def _fill(url: str, name: str, made: list[Any]) -> None:
    with open_backend(url) as backend:
        lease = backend.acquire(name)
        for start in range(0, len(made), 1000):
            backend.append(lease, made[start : start + 1000], start)


def _opening(store: Any, name: str, dialect: str) -> Arm:
    def call() -> Any:
        with store.session(name) as session:
            return session.request(dialect)

    return call
