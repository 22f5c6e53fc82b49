"""Many sessions and long ones, made quickly and only by what a store offers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from msgspec import Raw

from lockstitch.journal.events import Ended, Event, Replied, Said, entry_of, text_payload
from lockstitch.journal.records import JournalEntry
from lockstitch.stores.base import Backend

THREADS = 16
CHUNK = 2000
TEMPLATE = "a-template"
TURN = 3
FIRST = 1_790_000_000_000


def turn(number: int) -> list[Event]:
    """A prompt and an answer: two messages, three records."""
    answer = b'{"role":"assistant","content":"answer %d to a question of no great length"}' % number
    return [
        Said(payload=text_payload(f"prompt {number}, which is about as long as people write")),
        Replied(dialect="openai-chat", model="m", payload=Raw(answer)),
        Ended(),
    ]


def entries(turns: int, after: int = 0) -> Iterator[JournalEntry]:
    """The records of so many turns, behind a record."""
    seq = after
    for number in range(turns):
        for event in turn(number):
            seq += 1
            yield entry_of(event, f"key-{seq:08d}", FIRST + seq)


def fill(backend: Backend, name: str, messages: int) -> None:
    """Make a session of so many messages."""
    made = list(entries(messages // 2))
    lease = backend.acquire(name)
    for start in range(0, len(made), CHUNK):
        backend.append(lease, made[start : start + CHUNK], start)
    backend.release(lease)


def name_of(number: int) -> str:
    """The name of one of many sessions; numbers that follow each other lie far apart."""
    return f"s-{number * 2_654_435_761 % 2**32:010d}-{number}"


def multiply(backend: Backend, count: int, messages: int = 10) -> None:
    """Make so many sessions of a few messages each: copies of one, by many threads."""
    fill(backend, TEMPLATE, messages)
    records = messages // 2 * TURN
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(lambda n: backend.fork(TEMPLATE, records, name_of(n)), range(count - 1)):
            pass
