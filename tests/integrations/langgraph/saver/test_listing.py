"""The list of all threads: what LangGraph's own saver lists, in its order, from a few threads."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver

from lockstitch.integrations.langgraph import Guard
from lockstitch.journal.records import NEW, JournalEntry
from lockstitch.stores.base import Listing
from lockstitch.stores.opening import open_given
from tests.integrations.langgraph.saver.places import Where

THREADS, TURNS = 60, 240


@pytest.fixture(params=["sqlite", "postgres", "jsonl", "memory"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Where]:
    with Where(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def theirs() -> Iterator[SqliteSaver]:
    with SqliteSaver.from_conn_string(":memory:") as made:
        yield made


def config_of(thread: str, namespace: str = "", checkpoint: str | None = None) -> Any:
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": namespace,
            **({"checkpoint_id": checkpoint} if checkpoint else {}),
        }
    }


def fill(savers: list[Any], count: int = TURNS, threads: int = THREADS, ids: Any = None) -> None:
    """Put the same checkpoints everywhere, in many threads that go on in turns."""
    dice = random.Random(7)  # noqa: S311
    ends: dict[tuple[str, str], str] = {}
    for number in range(count):
        place = (f"thread {dice.randrange(threads)}", dice.choice(["", "", "sub:1"]))
        checkpoint: Any = {
            **empty_checkpoint(),
            "id": ids(number) if ids else str(uuid6(clock_seq=number)),
            "channel_values": {"n": number},
            "channel_versions": {"n": number + 1},
        }
        metadata: Any = {
            "source": dice.choice(["input", "loop"]),
            "step": number,
            "user": None if number % 3 else "somebody",
            "deep": {"er": number % 2},
        }
        for saver in savers:
            config = config_of(*place, ends.get(place))
            stored = saver.put(config, checkpoint, metadata, {"n": number + 1})
            saver.put_writes(stored, [("n", number)], f"task {number}")
        ends[place] = checkpoint["id"]


def told(saver: Any, **options: Any) -> list[Any]:
    return [
        (one.config["configurable"]["thread_id"], one.config["configurable"]["checkpoint_ns"],
         one.checkpoint["id"], one.checkpoint["channel_values"], one.metadata["step"],
         one.parent_config and one.parent_config["configurable"]["checkpoint_id"],
         one.pending_writes)
        for one in saver.list(None, **options)
    ]  # fmt: skip


QUESTIONS: list[dict[str, Any]] = [
    {},
    {"limit": 1},
    {"limit": 10},
    {"limit": 0},
    {"filter": {"source": "loop"}, "limit": 20},
    {"filter": {"source": "loop", "user": "somebody"}},
    {"filter": {"user": None}, "limit": 9},
    {"filter": {"nobody": None}, "limit": 3},
    {"filter": {"deep": {"er": 1}}, "limit": 7},
    {"filter": {"deep.er": 0}, "limit": 7},
    {"filter": {"source": "nowhere"}},
]


def test_the_list_is_that_of_langgraphs_saver(anywhere: Where, theirs: SqliteSaver) -> None:
    ours = anywhere.open()
    fill([ours, theirs])
    every = [place[2] for place in told(theirs)]
    assert len(every) == TURNS
    borders = [None, *every[::57], every[-1], every[0]]
    cold = ours if anywhere.kind == "memory" else anywhere.open()
    for saver in (ours, Guard(cold)):
        for question in QUESTIONS:
            for border in borders:
                asked = dict(question)
                if border:
                    asked["before"] = config_of("whatever", "", border)
                assert told(saver, **asked) == told(theirs, **asked)


def test_pages_give_everything_once(anywhere: Where) -> None:
    saver = anywhere.open()
    fill([saver])
    found: list[str] = []
    while page := told(saver, limit=17, **_behind(found)):
        found += [one[2] for one in page]
    assert found == [one[2] for one in told(saver)]
    assert len(set(found)) == TURNS


def _behind(found: list[str]) -> dict[str, Any]:
    return {"before": config_of("x", "", found[-1])} if found else {}


def test_a_page_reads_the_threads_that_are_on_it(anywhere: Where, monkeypatch: Any) -> None:
    fill([anywhere.open()])
    saver = anywhere.open() if anywhere.kind != "memory" else anywhere._opened[0]  # noqa: SLF001
    read: list[str] = []
    backend = saver._backend  # noqa: SLF001
    real = backend.read
    changed = sorted((one.changed for one in backend.listed(Listing(newest=True))), reverse=True)

    def counting(session: str, *given: Any, **options: Any) -> Any:
        read.append(session)
        return real(session, *given, **options)

    monkeypatch.setattr(backend, "read", counting)
    threads = {one[0] for one in told(saver, limit=10)}
    # Those on the page, all that were changed in the same millisecond as the last, and one behind.
    border = changed[len(threads) - 1]
    assert len(set(read)) <= sum(at >= border for at in changed) + 2 < THREADS
    assert len(told(saver)) == TURNS


def test_ids_that_are_no_times_are_in_order_too(anywhere: Where, theirs: SqliteSaver) -> None:
    saver = anywhere.open()
    names = [f"{number:05}" for number in range(TURNS)]
    random.Random(3).shuffle(names)  # noqa: S311
    fill([saver, theirs], ids=lambda number: names[number])
    assert told(saver, limit=25) == told(theirs, limit=25)


def test_a_clock_that_was_ahead_is_in_order_too(anywhere: Where, theirs: SqliteSaver) -> None:
    """One thread's ids are hours ahead of this machine's clock, and it is the first changed."""
    saver = anywhere.open()
    ticks = time.time_ns() // 100 + 0x01B21DD213814000 + 2 * 3600 * 10**7
    ahead = f"{ticks >> 28:08x}-{ticks >> 12 & 0xFFFF:04x}-6{ticks & 0xFFF:03x}-8000-000000000000"
    for one in (saver, theirs):
        checkpoint: Any = {
            **empty_checkpoint(), "id": ahead, "channel_values": {"n": -1},
            "channel_versions": {"n": 1},
        }  # fmt: skip
        metadata: Any = {"source": "input", "step": -1}
        stored = one.put(config_of("ahead"), checkpoint, metadata, {"n": 1})
        one.put_writes(stored, [("n", 1)], "late")
    fill([saver, theirs], 40)
    assert told(saver, limit=5) == told(theirs, limit=5)
    assert told(saver, limit=1)[0][2] == ahead


def test_other_sessions_of_the_store_are_passed_by(anywhere: Where) -> None:
    saver = anywhere.open()
    fill([saver], 20, 5)
    backend = saver._backend if anywhere.kind == "memory" else open_given(anywhere.url)  # noqa: SLF001
    for number in range(30):
        backend.add(f"other {number}".replace(" ", "-"), [JournalEntry("k", 1 << 42, b"{}")], NEW)
    backend.add("langgraph.not-a-thread", [JournalEntry("k", 1 << 42, b"{}")], NEW)
    assert len(told(saver)) == 20
    assert len(told(saver, limit=3)) == 3
    if anywhere.kind != "memory":
        backend.close()
