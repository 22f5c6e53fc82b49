"""Twice as much of anything costs about twice as much: counted in calls, not timed.

A slice of the dimensions that ``benchmarks/doubling.py`` measures; ``make fuzz TESTS=tests/scale``
counts all of them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from .doubling import bases, lines, lists
from .doubling.dimension import LIMIT, Dimension, calls_of

# From here on lost branches are put back many at a time.
FEW, BRANCHES = 6, 20
STEP = 1 if os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES") else 131
ALL = [*lists.dimensions(), *lines.dimensions(), *bases.dimensions()]
# What was once slow: it is counted in every run.
WATCHED = (
    "heal: shape thinking in a row anthropic",
    "heal: shape thoughts in one message anthropic",
    "heal: shape prompts in a row bedrock",
    "heal: shape bad images in one result anthropic",
    "heal: shape reasoning in a row openai-responses",
    "heal: shape reasoning of one id in a row openai-responses",
    "heal: rule LS405 bedrock users, own ids",
    "repair: claude-code 01_open_batch_at_tail-tree, chained",
    "repair: claude-code h7_two_writers-tree, beside",
    "repair: claude-code h7_two_writers-tree, chained",
    "repair: claude-code reply_dropped_whole-tree, chained",
    "repair: claude-code open turns",
    "repair: claude-code repeated uuids",
    "repair: claude-code lines of one uuid",
    "repair: claude-code late results",
    "repair: claude-code results without calls",
    "repair: claude-code torn lines",
    "repair: claude-code unknown parents",
    "repair: claude-code lines without parents",
    "repair: claude-code cycles",
    "repair: claude-code siblings of a second writer",
    "repair: codex results without calls",
    "repair: codex:second_meta, again",
    "repair: pi results without calls",
    "repair: pi missing lines",
    "repair: pi open calls",
    "repair: goose responses without requests",
    "repair: opencode parallel tools",
)
# The bytes of a file are no calls.
UNCOUNTED = ("bytes ", "length of", "text of one message", "LS504", "LS507")


def _chosen() -> list[Dimension]:
    counted = [one for one in ALL if not any(words in one.name for words in UNCOUNTED)]
    watched = [one for one in counted if one.name in WATCHED]
    return watched + [one for one in counted[::STEP] if one.name not in WATCHED]


def test_all_that_is_watched_is_there() -> None:
    names = [dimension.name for dimension in ALL]
    assert len(names) == len(set(names))
    assert set(WATCHED) <= set(names)


@pytest.mark.parametrize("dimension", _chosen(), ids=lambda dimension: dimension.name)
def test_twice_as_much_costs_twice_as_much(dimension: Dimension) -> None:
    is_branched = any(words in dimension.name for words in ("writer", "reply_dropped"))
    few = BRANCHES if is_branched else FEW
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "first").mkdir()
        dimension.make(1, folder / "first")()
        costs = []
        for count in (few, few * 2, few * 4):
            place = folder / str(count)
            place.mkdir()
            costs.append(calls_of(dimension.make(count, place)))
    finally:
        shutil.rmtree(folder)
    # What every run costs, however small, is no part of it.
    once, twice = costs[1] - costs[0], costs[2] - costs[1]
    assert twice <= LIMIT * max(once, costs[0] / 10), costs
