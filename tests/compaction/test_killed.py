"""Killed with -9 at every moment of a compaction: old or new, never between, and nothing lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lockstitch
from lockstitch.compaction.ladder import key_of
from lockstitch.journal.projection import SUMMARY
from lockstitch.session.store import Store
from tests.compaction.talks import GOOD, MIDDLE, bodies, compactions, grown, requests
from tests.postgres_server import PATIENT, shared

MOST = int(os.environ.get("LOCKSTITCH_KILLS", "7"))
MOMENTS = [
    *[("asked", n) for n in range(1, 4)],
    *[(how, n) for n in range(1, MOST + 1) for how in ("before", "after")],
    *[("late", n * 7) for n in range(MOST)],
    ("late", 2000),
]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store, whose leases are given up soon."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/agent.db?lease=2"
        return
    address = shared().fresh()
    yield f"{address}?lease=2&{PATIENT}"
    shared().recycle(address)


class Killed:
    """A session whose compaction was killed, and what its process had logged by then."""

    def __init__(self, store: Store, folder: Path, name: str) -> None:
        self.store = store
        self.name = name
        log = folder / f"{name}.log"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.told = [(word, *rest) for word, *rest in lines]

    def logged(self, word: str) -> list[Any]:
        return [rest[0] for told, *rest in self.told if told == word]

    def check(self, before: dict[str, Any], old: list[bytes]) -> str:
        """Old or new; what was said meanwhile is there once, in order; answers are kept."""
        assert bodies(self.store, self.name)[: len(old)] == old
        count = compactions(self.store, self.name)
        done = self.logged("done")
        assert count == 1 if done else count in {0, 1}
        after = requests(self.store, self.name)
        for dialect, messages in after.items():
            text = str(messages)
            assert text.count(SUMMARY) == count
            marks = [f"<M{n}>" for n in self.logged("said")]
            assert [text.count(mark) for mark in marks] == [1] * len(marks)
            assert sorted(marks, key=text.index) == marks
            if not count and not marks and "<M1>" not in text:
                assert messages == before[dialect]
        self._check_answers(again=not count)
        return "new" if count else "old"

    def _check_answers(self, *, again: bool) -> None:
        """All answers but the last were kept, and none of those is asked for again."""
        asked = self.logged("asked")
        stored = b"".join(bodies(self.store, self.name))
        assert [key for key in asked[:-1] if key.encode() not in stored] == []
        repeated: list[str] = []
        with self.store.session(self.name, wait=60) as session:
            session.compact(lambda p: repeated.append(key_of(p)) or GOOD, budget=MIDDLE)
        assert not set(repeated) & set(asked[:-1])
        assert compactions(self.store, self.name) == 1 or not again
        requests(self.store, self.name)


def test_killed_at_every_moment(url: str, tmp_path: Path) -> None:
    store = lockstitch.open(url)
    grown(store, turns=6, size=1500)
    before, old = requests(store), bodies(store)
    orders = [(f"k{n}", how, number) for n, (how, number) in enumerate(MOMENTS)]
    for name, _, _ in orders:
        store.fork("s", name)
    copied = bodies(store, "k0")
    assert copied[: len(old)] == old
    command = [sys.executable, "-m", "tests.compaction.agent", url, str(tmp_path)]
    subprocess.run([*command, json.dumps(orders)], check=True, timeout=600)
    ends = Counter(Killed(store, tmp_path, name).check(before, copied) for name, _, _ in orders)
    assert min(ends["old"], ends["new"]) > 0, "every moment was the same moment"
    store.close()
