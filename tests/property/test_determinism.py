"""The same input gives the same output in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from .strategies import DIALECTS, structured

CHILD = """
import json, sys, warnings
import lockstitch
from tests.dump import dump
warnings.simplefilter("ignore")
for line in sys.stdin:
    dialect, messages = json.loads(line)
    plan = lockstitch.plan(messages, dialect)
    print(dump([plan.messages, plan.findings, plan.edits, plan.changes, plan.quarantine]))
"""
BATCH = 200


@pytest.fixture(scope="module")
def batch() -> str:
    lines: list[str] = []

    @settings(max_examples=BATCH, database=None, derandomize=True, phases=[Phase.generate])
    @given(st.sampled_from(DIALECTS).flatmap(lambda d: st.tuples(st.just(d), structured(d))))
    def collect(example: tuple[str, Any]) -> None:
        lines.append(json.dumps(example))

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


def test_every_process_gives_the_same_answer(batch: str) -> None:
    first = _run(batch, "0")
    assert first.count("\n") == batch.count("\n") + 1
    assert all(_run(batch, seed) == first for seed in ("1", "4242"))
