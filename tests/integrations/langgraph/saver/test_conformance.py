"""LangGraph's own conformance tests for checkpointers, every capability, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

from lockstitch.integrations.langgraph import Saver
from tests.integrations.langgraph.saver.places import Where


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "jsonl", "memory"])
def test_every_capability_is_there(kind: str, tmp_path: Path) -> None:
    with Where(kind, tmp_path) as where:

        async def made() -> AsyncIterator[Saver]:
            with Saver(where.url) as saver:
                yield saver

        registered = checkpointer_test(name=f"Saver {kind} {uuid4()}")(made)
        report = asyncio.run(validate(registered))
    failures = [one for result in report.results.values() for one in result.failures or ()]
    assert failures == []
    assert len(report.results) == 8
    assert all(result.passed for result in report.results.values())
