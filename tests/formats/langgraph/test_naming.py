"""The order of ids and versions, and which writes are results."""

from __future__ import annotations

from uuid import UUID

import pytest
from langgraph.checkpoint.base.id import uuid6

from lockstitch.formats.langgraph.decisions import change_channels, count_steps, sort_writes
from lockstitch.formats.langgraph.snapshot import (
    CLAIM,
    INTERRUPT,
    NO_TASK,
    RESUME,
    Coded,
    StoredCheckpoint,
    StoredWrite,
    holders,
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


def test_the_last_id_has_no_successor() -> None:
    last = str(UUID(int=(1 << 128) - 1 ^ 9 << 76))
    assert successor(last) is None


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


def test_what_changes_and_what_ends_has_the_new_version() -> None:
    values, versions = {"a": 1, "b": 2, "branch:to:x": 3}, {"a": 4, "b": 4, "branch:to:x": 5}
    made = change_channels(values, versions, {"a": 6}, ["branch:to:x"], 7)
    assert made == ({"a": 6, "b": 2}, {"a": 7, "b": 4, "branch:to:x": 7})


def test_only_channels_of_changes_are_counted_on() -> None:
    counters = {"a": [2, 3], "b": (0, 1), "whole": [1, 1], "odd": "x", "flag": [True, 1]}
    assert count_steps(counters, 1, {"whole"}) == {"a": (2, 4), "b": (0, 2)}


@pytest.mark.parametrize(
    ("parents", "found"),
    [
        ({"4": "3", "3": "2", "2": "1"}, (["3", "2"], "")),
        ({"4": "3"}, (["3"], "2")),
        ({"4": "3", "3": "4"}, (["3"], "")),
        ({"4": "4"}, ([], "")),
    ],
    ids=["to where it is stored", "one is gone", "a loop", "its own parent"],
)
def test_ancestors_are_read_up_to_the_one_that_holds_the_value(
    parents: dict[str, str], found: tuple[list[str], str]
) -> None:
    known = {
        own: StoredCheckpoint(
            own,
            parent,
            {"channel_versions": {"messages": 1}},
            {"messages": Coded("msgpack", b"\x90")} if own == "2" else {},
            {"counters_since_delta_snapshot": {"messages": [0, 1]}},
        )
        for own, parent in {"3": "2", **parents}.items()
    }
    chain, gone = holders(known["4"], known.get)
    assert ([one.id for one in chain], gone) == found


def test_what_no_task_wrote_is_merged_before_what_tasks_returned() -> None:
    work = sort_writes([("a", "messages", 1), (NO_TASK, "messages", 2), ("a", "other", 3)])
    assert work.written_to("messages") == [2, 1]
    assert work.returned_to("messages") == [1]
    value = Coded("msgpack", b"")
    stored = [StoredWrite("a", "", 0, "m", value), StoredWrite(NO_TASK, "~x", 0, "m", value)]
    assert [one.task for one in sorted(stored, key=lambda one: one.order)] == [NO_TASK, "a"]
