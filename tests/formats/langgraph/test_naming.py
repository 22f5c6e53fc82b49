"""The order of ids and versions, and which writes are results."""

from __future__ import annotations

import pytest
from langgraph.checkpoint.base.id import uuid6

from lockstitch.formats.langgraph.decisions import sort_writes
from lockstitch.formats.langgraph.snapshot import (
    CLAIM,
    INTERRUPT,
    NO_TASK,
    RESUME,
    next_version,
    successor,
    ticks_of,
)

# Of LangGraph.js at step -1: its clock sequence leaves no room for the variant of a version.
OF_JS = "1f1e1335-167e-60e0-ffff-357185f98155"


# Named, because ids that are made now differ between the workers that share the tests.
@pytest.mark.parametrize(
    "head",
    [str(uuid6(clock_seq=-2)), str(uuid6(clock_seq=7)), OF_JS],
    ids=["before the first step", "of Python", "of LangGraph.js"],
)
def test_a_repair_sorts_right_behind_its_head(head: str) -> None:
    behind = successor(head)
    assert behind is not None
    assert head < behind < str(uuid6(clock_seq=0))
    assert ticks_of(behind) == (ticks_of(head) or 0) + 1


def test_a_carry_goes_through_all_parts_of_the_time() -> None:
    head = "1f1e1335-ffff-6fff-8001-357185f98155"
    assert successor(head) == "1f1e1336-0000-6000-8001-357185f98155"


@pytest.mark.parametrize(
    "head",
    ["", "1", "7b4f0ad0-6c38-4a3e-9a43-6a8c6a5a2f10", OF_JS.upper()],
    ids=["nothing", "short", "random", "upper case"],
)
def test_an_id_that_is_no_time_has_no_successor(head: str) -> None:
    assert successor(head) is None


def test_versions_go_on_as_they_are_written() -> None:
    assert next_version([]) == 1
    assert next_version([3, 1]) == 4
    texts = [f"{9:032}.0.25", f"{10:032}.0.75"]
    assert next_version(texts) == f"{11:032}.0.75"


def test_a_task_waits_until_it_has_returned() -> None:
    asked = [("a", INTERRUPT), ("a", RESUME), ("a", CLAIM), ("a", "__no_writes__")]
    left = [(NO_TASK, "messages"), ("a", "messages")]
    waiting, answered = (
        sort_writes((task, channel, None) for task, channel in [*asked, write]) for write in left
    )
    assert waiting.asking == {"a"}
    assert answered.asking == set()
