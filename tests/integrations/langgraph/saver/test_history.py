"""The same history as LangGraph's saver in memory, whatever is run, forked, answered, or fails."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver

from lockstitch.integrations.langgraph import Saver
from tests.integrations.langgraph.saver import programs
from tests.integrations.langgraph.saver.places import Where
from tests.integrations.langgraph.saver.programs import Step, built, run, told

# LangGraph says so for every type that it is not told of; there are none in these programs.
pytestmark = pytest.mark.filterwarnings("ignore:.*unregistered.*")
EXAMPLES = max(settings.get_profile("lockstitch").max_examples // 6, 1)
LONG: list[Step] = [
    ("invoke", [("say", 1), ("call", 2), ("mutate", 1), ("fan", 3)], "sync", -1),
    ("invoke", [("ask", 1), ("change", 0)], "async", -1),
    ("reopen", [], "", -1),
    ("answer", [], "sync", -1),
    ("update", [("say", 3)], "", 4),
    ("replay", [], "sync", 6),
    ("invoke", [("remove", 1), ("fail", 2)], "exit", -1),
]


def compare(program: list[Step], url: str, *, delta: bool) -> None:
    theirs = built(InMemorySaver(), delta=delta)
    saver = Saver(url, reconcile=False)
    try:
        for number, step in enumerate(program):
            if step[0] == "reopen":
                saver.close()
                saver = Saver(url, reconcile=False)
            ours = built(saver, delta=delta)
            assert run(ours, step, number) == run(theirs, step, number)
            assert told(ours) == told(theirs)
    finally:
        saver.close()


@pytest.mark.parametrize("delta", [False, True])
@settings(max_examples=EXAMPLES)
@given(st.lists(programs.steps, min_size=1, max_size=6))
@example(LONG)
def test_whatever_is_run_the_history_is_the_same(delta: bool, program: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        compare(program, f"sqlite:///{folder}/agent.db", delta=delta)


@pytest.mark.parametrize("delta", [False, True])
def test_also_on_other_stores(where: Where, tmp_path: Path, delta: bool) -> None:
    compare(LONG, where.url, delta=delta)
    compare(LONG, f"jsonl:///{tmp_path}/lines", delta=delta)
