"""The same journal gives the same request in every process, and twice in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import Phase, given, settings

from .sessions import Session, sessions

CHILD = """
import json, sys
from lockstitch.journal.state import fold
from lockstitch.journal.requests import project
from lockstitch.journal.records import JournalRecord
from tests.dump import dump
from tests.journal.shown import DIALECT_RECEIVERS, OTHER_RECEIVERS
for line in sys.stdin:
    records, blobs = json.loads(line)
    records = [JournalRecord(s, 1, key, 0, bytes.fromhex(body), b"") for s, key, body in records]
    blobs = {name: bytes.fromhex(value) for name, value in blobs.items()}
    view = fold(records).view
    for profile, model, provider in DIALECT_RECEIVERS + OTHER_RECEIVERS:
        made = [project(view, profile, model=model, provider=provider, blobs=blobs) for _ in "12"]
        assert made[0] == made[1]
        print(dump(made[0]))
"""
BATCH = 15


@pytest.fixture(scope="module")
def batch() -> str:
    lines: list[str] = []

    @settings(max_examples=BATCH, database=None, derandomize=True, phases=[Phase.generate])
    @given(sessions(wild=True))
    def collect(session: Session) -> None:
        records = [(r.seq, r.key, r.body.hex()) for r in session.records]
        lines.append(json.dumps([records, {n: v.hex() for n, v in session.blobs.items()}]))

    collect()
    return "\n".join(lines)


def _run(batch: str, seed: str) -> str:
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=batch,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
    )
    return done.stdout


def test_every_process_makes_the_same_request(batch: str) -> None:
    first = _run(batch, "0")
    assert first.count("\n") == (batch.count("\n") + 1) * 23
    assert _run(batch, "4242") == first
