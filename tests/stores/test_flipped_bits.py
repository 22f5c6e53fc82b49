"""Any one bit of a store flips: every other record is there, and a repaired session is valid."""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lockstitch.errors import Damaged, LockstitchError
from lockstitch.heal import check
from lockstitch.journal.records import NEW, JournalRecord
from lockstitch.session import maintenance
from lockstitch.session.store import Store
from lockstitch.stores.base import Backend
from lockstitch.stores.jsonl import JsonlBackend
from lockstitch.stores.memory import MemoryBackend
from lockstitch.stores.sqlite import SqliteBackend
from tests.stores.talking import talked

FLIPS = 4000 if os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES") else 250
Open = Callable[[], Backend]


def outcome(open_store: Open, records: list[JournalRecord]) -> tuple[str, int]:
    """Say what became of a session, and how many of its records are lost; repair it if need be."""
    try:
        backend = open_store()
    except LockstitchError:
        return "not opened", 0
    with backend:
        if is_whole(backend, records):
            return "harmless", 0
        try:
            found = maintenance.read_salvage(backend, "talk")
        except LockstitchError:
            return "not found", 0
        readable = {one.seq: one.record for one in found.records if one.is_readable}
        right = [one for one in records if given(readable.get(one.seq)) == given(one)]
        wrong = [seq for seq, one in readable.items() if given(one) not in map(given, records)]
        assert not [seq for seq in wrong if found.records[seq - 1].proof != "unproven"]
        lost = len(records) - len(right)
        if found.is_whole:
            return "found elsewhere", lost
        try:
            maintenance.rewrite_damaged(backend, found)
        except Damaged:
            # Pages that SQLite cannot read cannot be written to: what is left goes elsewhere.
            with MemoryBackend() as other:
                other.add("talk", maintenance.entries_of(backend, found), NEW)
                is_valid(other)
            return "copied", lost
        is_valid(backend)
        return "repaired", lost


def given(record: JournalRecord | None) -> tuple[object, ...] | None:
    return None if record is None else (record.seq, record.key, record.at, record.body)


def is_whole(backend: Backend, records: list[JournalRecord]) -> bool:
    try:
        return list(map(given, backend.read("talk"))) == list(map(given, records))
    except LockstitchError:
        return False


def is_valid(backend: Backend) -> None:
    """Open the session for writing, and judge what it asks."""
    with Store(backend).session("talk") as session:
        session.say("Go on")
        messages = session.request("anthropic")
    assert not [one for one in check(messages, "anthropic") if one.severity == "error"]


def flipped(data: bytes, place: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    return bytes(changed)


def test_any_bit_of_a_session_s_file_of_lines(tmp_path: Path) -> None:
    with JsonlBackend(tmp_path / "first") as backend:
        records = talked(backend)
    data = (tmp_path / "first" / "talk.jsonl").read_bytes()
    dice = random.Random(3)  # noqa: S311
    found: Counter[tuple[str, int]] = Counter()
    for number in range(FLIPS):
        folder = tmp_path / str(number)
        folder.mkdir()
        place = dice.randrange(len(data))
        (folder / "talk.jsonl").write_bytes(flipped(data, place, dice.randrange(8)))
        found[outcome(lambda: JsonlBackend(folder), records)] += 1  # noqa: B023
    print(found)  # noqa: T201
    assert {lost for _, lost in found} == {0}
    assert {what for what, _ in found} <= {"repaired", "harmless"}


@pytest.mark.parametrize("compress", [False, True])
def test_any_bit_of_a_database(tmp_path: Path, compress: bool) -> None:
    path = tmp_path / "sessions.db"
    with SqliteBackend(path, compress=compress) as backend:
        records = talked(backend)
        talked(backend, "other")
    data = path.read_bytes()
    with closing(sqlite3.connect(path)) as base:
        size = base.execute("pragma page_size").fetchone()[0]
        [(root,)] = base.execute("select rootpage from sqlite_master where name = 'events'")
    own = range((root - 1) * size, root * size)
    filled = [place for place in own if data[place]]
    dice = random.Random(4)  # noqa: S311
    found: Counter[tuple[str, int]] = Counter()
    for number in range(FLIPS):
        # Most of a small database is empty: half of the flips are in the pages with the records.
        place = dice.choice(filled) if number % 2 else dice.randrange(len(data))
        copy = tmp_path / f"{number}.db"
        copy.write_bytes(flipped(data, place, dice.randrange(8)))
        what = outcome(lambda: SqliteBackend(copy), records)  # noqa: B023
        found[what] += 1
        for file in tmp_path.glob(f"{number}.db*"):
            file.unlink()
    print(found)  # noqa: T201
    lost = Counter(count for (_, count), times in found.items() for _ in range(times))
    # A bit in the directory of a page can cost more than one record; elsewhere none is lost.
    assert lost[0] > FLIPS * 0.9
