"""Walks over parents: they end, they visit nothing twice, they say where they had to guess."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lockstitch.formats.write_back import CYCLE, DANGLING, RecordTree, TreeNode

IDS = st.integers(0, 9).map(str)
NODES = st.lists(st.tuples(IDS, st.none() | IDS | st.just("gone"), st.booleans()), max_size=20)


@given(NODES)
def test_every_walk_ends(rows: list[tuple[str, str | None, bool]]) -> None:
    nodes = [TreeNode(number, *row) for number, row in enumerate(rows)]
    graph = RecordTree(nodes)
    for node in nodes:
        walk = graph.walk(node)
        assert walk.path[-1] == node.number
        assert len(set(walk.path)) == len(walk.path)
        first = graph.by_number[walk.path[0]]
        assert first.parent is None or walk.breaks[-1].onward is None


def test_a_missing_parent_is_the_record_before() -> None:
    graph = RecordTree([TreeNode(0, "a", None), TreeNode(1, "b", "a"), TreeNode(2, "c", "gone")])
    walk = graph.walk(graph.nodes[2])
    assert walk.path == [0, 1, 2]
    assert [(one.number, one.why, one.onward) for one in walk.breaks] == [(2, DANGLING, 1)]


def test_a_circle_is_left() -> None:
    graph = RecordTree([TreeNode(0, "a", "c"), TreeNode(1, "b", "a"), TreeNode(2, "c", "b")])
    walk = graph.walk(graph.nodes[2])
    assert walk.path == [0, 1, 2]
    assert [(one.number, one.why, one.onward) for one in walk.breaks] == [(0, CYCLE, None)]
