"""A process that does turns on sessions which others want, too, and logs what it was promised.

Started as ``python -m tests.concurrency.worker '{…}'``. Every turn takes the lease of a session
anew, concludes what another writer left, says, replies with two calls, runs them, replies again.
In the middle of it the process may stop (a laptop's lid), die, or be thrown years ahead or back.

Its log is written with one call a line, which outlives ``kill -9``; nobody pulls the plug here.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lockstitch
from lockstitch.errors import Busy, Fenced, Held, LockstitchError, Moved, Unreadable, Unsure
from lockstitch.journal.events import (
    AskedCall,
    Ended,
    Event,
    Finished,
    Interrupted,
    Replied,
    Said,
    Started,
    entry_of,
    payload_of,
    text_payload,
)
from lockstitch.journal.records import JournalEntry
from lockstitch.journal.state import fold
from lockstitch.stores.base import Backend, Lease
from lockstitch.stores.opening import open_backend

PATIENCE = 300.0
YEARS = 10 * 365 * 86400 * 10**9
LARGE = 70_000


@dataclass(frozen=True, slots=True)
class Orders:
    """What a worker is told."""

    url: str
    sessions: list[str]
    name: str
    log: str
    seed: int
    first: int
    turns: int
    by: str = "backend"
    stops: float = 0.0
    deaths: float = 0.0
    stop_at: tuple[int, int] = (0, 0)
    die_at: tuple[int, int] = (0, 0)


class Log:
    """What happened, as it happened; times are of a clock that all processes share."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __call__(self, do: str, **fields: Any) -> None:
        line = {"do": do, "t": time.monotonic_ns(), **fields}
        os.write(self._file, json.dumps(line).encode() + b"\n")


class Trouble:
    """What befalls the process at a step of a turn."""

    def __init__(self, orders: Orders, dice: random.Random, log: Log) -> None:
        self.orders = orders
        self.dice = dice
        self.log = log

    def __call__(self, turn: int, step: int) -> None:
        here = (turn, step)
        if here == tuple(self.orders.stop_at) or self.dice.random() < self.orders.stops:
            self.log("stops", turn=turn, step=step)
            os.kill(os.getpid(), signal.SIGSTOP)
        if here == tuple(self.orders.die_at) or self.dice.random() < self.orders.deaths:
            self.log("dies", turn=turn, step=step)
            os.kill(os.getpid(), signal.SIGKILL)


class Turns:
    """What both kinds of worker share."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.dice = random.Random(orders.seed)  # noqa: S311 - luck, not secrets
        self.log = Log(orders.log)
        self.trouble = Trouble(orders, self.dice, self.log)

    def run(self) -> None:
        for turn in range(self.orders.first, self.orders.turns + 1):
            jump_in_time(self.dice)
            self.log("turn", turn=turn)
            with self.refusals():
                self.turn(self.dice.choice(self.orders.sessions), turn)

    def turn(self, session: str, turn: int) -> None:
        raise NotImplementedError

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """A turn may be refused in these ways, and then is over for this worker."""
        try:
            yield
        except (Fenced, Held, Moved, Unsure, Busy, Unreadable) as error:
            self.log("refused", why=type(error).__name__, text=str(error))

    @contextmanager
    def told(self, ids: list[str]) -> Iterator[dict[str, Any]]:
        """Log what is tried, then what became of it."""
        self.log("try", ids=ids)
        more: dict[str, Any] = {}
        try:
            yield more
        except LockstitchError as error:
            self.log("not", ids=ids, why=type(error).__name__)
            raise
        self.log("ack", ids=ids, **more)

    def id(self, turn: int, step: int, index: int = 0) -> str:
        return f"{self.orders.name}.{turn}.{step}.{index}"


def jump_in_time(dice: random.Random) -> None:
    """Set the time of day of this process somewhere else; everything reads it by these two."""
    shift = dice.randint(-YEARS, YEARS)
    time.time_ns = lambda: NOW() + shift
    time.time = lambda: (NOW() + shift) / 10**9


NOW: Callable[[], int] = time.time_ns


class OnBackend(Turns):
    """Turns written with nothing but the store's own calls."""

    def __init__(self, orders: Orders) -> None:
        super().__init__(orders)
        self.backend: Backend = open_backend(orders.url)

    def turn(self, session: str, turn: int) -> None:
        lease = self.backend.acquire(session, wait=PATIENCE)
        self.log("holds", session=session, epoch=lease.epoch, seq=lease.head.seq, turn=turn)
        try:
            self.write(lease, turn)
        finally:
            self.log("lets-go", turn=turn)
            self.backend.release(lease)

    def write(self, lease: Lease, turn: int) -> None:
        seq = self.recover(lease, turn)
        seq = self.append(lease, turn, 0, seq, [said(self.id(turn, 0))])
        reply = seq = self.append(lease, turn, 1, seq, [asked(self.id(turn, 1))])
        both = [Started(reply=reply, index=0), Started(reply=reply, index=1)]
        seq = self.append(lease, turn, 2, seq, both)
        for step, index in ((3, 0), (4, 1)):
            given = text_payload(f"<{self.id(turn, step)}>" + " " * self.dice.choice([0, LARGE]))
            seq = self.append(lease, turn, step, seq, [
                Finished(reply=reply, index=index, payload=given)
            ])  # fmt: skip
        self.append(lease, turn, 5, seq, [answered(self.id(turn, 5)), Ended()])
        self.log("done", turn=turn)

    def append(self, lease: Lease, turn: int, step: int, seq: int, events: list[Event]) -> int:
        self.trouble(turn, step)
        ids = [self.id(turn, step, index) for index in range(len(events))]
        return self.sent(lease, ids, seq, events)

    def sent(self, lease: Lease, ids: list[str], seq: int, events: list[Event]) -> int:
        at = time.time_ns() // 10**6
        entries: list[JournalEntry] = [
            entry_of(event, key, at) for event, key in zip(events, ids, strict=True)
        ]
        with self.told(ids) as more:
            head = self.backend.append(lease, entries, seq)
            more |= {"seq": head.seq, "epoch": lease.epoch, "session": lease.session}
        return head.seq

    def recover(self, lease: Lease, turn: int) -> int:
        """Conclude what another writer left, from the words of the contract."""
        state = fold(self.backend.read(lease.session))
        left: list[Event] = [
            Finished(reply=call.reply, index=call.index, outcome="unknown", synthetic=True)
            for call in state.view.calls.values()
            if call.is_running
        ]
        if state.view.turn:
            left.append(Interrupted(reason="takeover"))
        if not left:
            return state.seq
        ids = [f"{self.orders.name}.{turn}.r.{index}" for index in range(len(left))]
        return self.sent(lease, ids, state.seq, left)


class OnSession(Turns):
    """Turns as a program with Lockstitch's session writes them."""

    def __init__(self, orders: Orders) -> None:
        super().__init__(orders)
        self.store = lockstitch.open(orders.url)

    def turn(self, session: str, turn: int) -> None:
        with self.store.session(session, wait=PATIENCE) as opened:
            self.log("holds", session=session, turn=turn)
            # what another writer left is open, and nobody here goes on with it
            if opened.turn.is_open:
                opened.interrupt("takeover")
            self.write(opened, turn)

    def write(self, session: Any, turn: int) -> None:
        one, two = self.id(turn, 3), self.id(turn, 4)
        with self.step(turn, 0, self.id(turn, 0)):
            session.say(f"<{self.id(turn, 0)}>", key=self.id(turn, 0))
        with self.step(turn, 1, self.id(turn, 1)):
            session.record(reply_with_calls(self.id(turn, 1)), key=self.id(turn, 1))
        with self.step(turn, 3, one, two):
            session.run_tools({"one": gives(one), "two": gives(two)})
        session.request("openai-chat")
        with self.step(turn, 5, self.id(turn, 5)):
            session.record(reply_without(self.id(turn, 5)), key=self.id(turn, 5))
        self.log("done", turn=turn)

    @contextmanager
    def step(self, turn: int, step: int, *ids: str) -> Iterator[None]:
        self.trouble(turn, step)
        with self.told(list(ids)):
            yield


def gives(mark: str) -> Callable[[str], str]:
    """A tool that gives a mark."""

    def tool(q: str) -> str:
        return f"<{mark}> for {q}"

    return tool


def said(mark: str) -> Said:
    return Said(payload=text_payload(f"<{mark}>"))


def reply_with_calls(mark: str) -> dict[str, Any]:
    """A reply of two calls, with the ids that every other reply has, too."""
    calls = [
        {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": {"q": mark}}
        for name in ("one", "two")
    ]
    content = [{"type": "text", "text": f"<{mark}>"}, *calls]
    return {"type": "message", "role": "assistant", "model": "m", "content": content}


def reply_without(mark: str) -> dict[str, Any]:
    content = [{"type": "text", "text": f"<{mark}>"}]
    return {"type": "message", "role": "assistant", "model": "m", "content": content}


def asked(mark: str) -> Replied:
    calls = (AskedCall("toolu_one", "one"), AskedCall("toolu_two", "two"))
    payload = payload_of(json.dumps(reply_with_calls(mark)))
    return Replied(dialect="anthropic", calls=calls, payload=payload)


def answered(mark: str) -> Replied:
    return Replied(dialect="anthropic", payload=payload_of(json.dumps(reply_without(mark))))


def main() -> None:
    orders = Orders(**json.loads(sys.argv[1]))
    kind = OnSession if orders.by == "session" else OnBackend
    kind(orders).run()


if __name__ == "__main__":
    main()
