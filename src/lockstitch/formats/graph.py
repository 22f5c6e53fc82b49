"""Records that name their parents: one walk from a leaf to its root, for every program's files.

A walk never loops. Where a parent is not in the file, or was passed already, it goes on at the
record before it in the file if the program would do so, and says so either way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from msgspec import Struct

DANGLING = "dangling"
CYCLE = "cycle"


class Node(Struct, gc=False):
    """A record in the graph: its number among the records, its id and the id of its parent.

    ``aside`` marks what is no part of the main conversation, such as a sub-agent's record.
    """

    number: int
    id: str
    parent: str | None
    aside: bool = False


class Break(Struct, frozen=True):
    """A link that leads nowhere: the number of the record, why, and where the walk went on.

    ``onward`` is -1 where the walk ends.
    """

    number: int
    why: str
    onward: int


class Walk(Struct):
    """The numbers of the records from root to leaf, and the broken links on the way."""

    path: list[int]
    breaks: list[Break]


Bridge = Callable[[Node, Node], bool]


class Graph:
    """The graph of a file's records.

    ``bridges`` says whether the program goes on from a record whose parent cannot be reached to
    the record before it in the file.
    """

    def __init__(
        self, nodes: Sequence[Node], bridges: Bridge = lambda _node, _before: True
    ) -> None:
        self.nodes = nodes
        self.bridges = bridges
        # Parents that the program takes in place of those that stand in the records, by number.
        self.detours: dict[int, str] = {}
        self.by_id: dict[str, Node] = {}
        self.children: dict[str, list[Node]] = {}
        self.repeats: list[Node] = []
        for node in nodes:
            if node.id in self.by_id:
                self.repeats.append(node)
            else:
                self.by_id[node.id] = node
            if node.parent is not None:
                self.children.setdefault(node.parent, []).append(node)
        self.by_number = {node.number: node for node in nodes}
        self._order = [node.number for node in nodes]
        # The positions of the records of the main conversation.
        self._main = [at for at, node in enumerate(nodes) if not node.aside]

    def terminals(self) -> list[Node]:
        """Give the records that nobody names as parent, in file order."""
        return [node for node in self.by_id.values() if node.id not in self.children]

    def walk(self, start: Node) -> Walk:
        """Go from a record to its root."""
        path: list[int] = []
        breaks: list[Break] = []
        seen: set[int] = set()
        passed: dict[int, int] = {}
        node: Node | None = start
        while node is not None:
            path.append(node.number)
            seen.add(node.number)
            node = self._next(node, seen, passed, breaks)
        return Walk(path[::-1], breaks)

    def _next(
        self, node: Node, seen: set[int], passed: dict[int, int], breaks: list[Break]
    ) -> Node | None:
        name = self.detours.get(node.number, node.parent)
        if name is None:
            return None
        parent = self.by_id.get(name)
        if parent is not None and parent.number not in seen:
            return parent
        onward = self._before_unseen(node.number, seen, passed)
        if onward is not None and not self.bridges(node, onward):
            onward = None
        why = DANGLING if parent is None else CYCLE
        breaks.append(Break(node.number, why, onward.number if onward else -1))
        return onward

    def _before_unseen(self, number: int, seen: set[int], passed: dict[int, int]) -> Node | None:
        """Return the nearest earlier record of the main conversation that a walk has not seen.

        ``passed`` remembers over how many such records the walk looked from where: what it has
        seen stays seen, so nothing is looked at twice.
        """
        at = bisect_left(self._main, self.position(number)) - 1
        looked: list[int] = []
        while at >= 0 and self.nodes[self._main[at]].number in seen:
            looked.append(at)
            at = passed.get(at, at - 1)
        passed.update(dict.fromkeys(looked, at))
        return self.nodes[self._main[at]] if at >= 0 else None

    def before(self, number: int, wanted: Callable[[Node], bool]) -> Node | None:
        """Give the nearest earlier record of the main conversation that is wanted."""
        for at in range(bisect_left(self._main, self.position(number)) - 1, -1, -1):
            node = self.nodes[self._main[at]]
            if wanted(node):
                return node
        return None

    def position(self, number: int) -> int:
        """Give a record's position among the nodes."""
        return bisect_left(self._order, number)
