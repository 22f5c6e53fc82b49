"""The conversation of a Claude Code file as branches are held against it, read once for all.

What hangs below a record, where the parents of one lead, what stands on the walk before and behind
a place, which lines windows named, and what is known of results.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import accumulate
from typing import Any

from lockstitch.formats.claude_chain import LAST_PROMPT, SYSTEM, Chain, call_ids_in, is_sent
from lockstitch.formats.claude_context import Past, has_substance, words_of
from lockstitch.formats.graph import Node

# Records that a person causes where they stand, as against those that the client adds by itself.
_DEEDS = ("local_command", "away_summary", "scheduled_task_fire")


class Way:
    """What branches are held against, read once for all of them: the walk, its names and words."""

    def __init__(self, chain: Chain, reached: set[int]) -> None:
        self.chain = chain
        self.reached = reached
        # The highest number up to each place of the walk: it only grows.
        self._highest = list(accumulate(chain.walk.path, max))

    @cached_property
    def past(self) -> Past:
        """The conversation up to any of its records."""
        return Past(self.chain)

    @cached_property
    def roots(self) -> list[Node]:
        """The records that hang on nothing and that something was said below, in file order."""
        return _roots(self.chain)

    @cached_property
    def _reached_nodes(self) -> list[Node]:
        nodes = self.chain.graph.nodes
        return [node for node in nodes if not node.aside and node.number in self.reached]

    def reached_before(self, number: int) -> Node | None:
        """Return the nearest earlier record of the conversation that is on the chain."""
        at = bisect_left(self._reached_nodes, number, key=lambda node: node.number)
        return self._reached_nodes[at - 1] if at else None

    def place_behind(self, number: int) -> int:
        """Return the first place of the walk where a later record stands; -1 for none."""
        at = bisect_right(self._highest, number)
        return at if at < len(self._highest) else -1

    @cached_property
    def _spoken(self) -> list[int]:
        """The first record that is sent from each place of the walk on; -1 for none."""
        found = [-1]
        for number in reversed(self.chain.walk.path):
            found.append(number if is_sent(self.chain.value(number)) else found[-1])
        return found[::-1]

    def next_speaker(self, onward: int) -> int:
        """Return the first record of the chain from here on that is sent; -1 for none."""
        place = self.chain.places.get(onward)
        return -1 if place is None else self._spoken[place]

    @cached_property
    def _solid(self) -> list[int]:
        """The places of the walk at which something of substance stands."""
        path = self.chain.walk.path
        return [at for at, number in enumerate(path) if has_substance(self.chain, number)]

    def rivals(self, onward: int) -> tuple[int, int] | None:
        """Return the first and last record of substance on the walk from here on."""
        at = bisect_left(self._solid, self.chain.places[onward])
        if at == len(self._solid):
            return None
        path = self.chain.walk.path
        return path[self._solid[at]], path[self._solid[-1]]

    @cached_property
    def last_said(self) -> dict[str, int]:
        """The highest number of a record on the walk, by its words."""
        said: dict[str, int] = {}
        for number in self.chain.walk.path:
            words = words_of(self.chain.value(number))
            said[words] = max(said.get(words, -1), number)
        return said

    @cached_property
    def named(self) -> dict[str, int]:
        """The last record in which a window named a line as its leaf, by the line's id."""
        return {
            record.value["leafUuid"]: number
            for number, record in enumerate(self.chain.records)
            if record.is_record
            and record.value.get("type") == LAST_PROMPT
            and type(record.value.get("leafUuid")) is str
        }

    @cached_property
    def named_below(self) -> dict[str, int]:
        """The last record that names a line or one that hangs below it, by the line's id."""
        homes: dict[str, list[Node]] = {}
        for node in self.chain.graph.nodes:
            homes.setdefault(node.id, []).append(node)
        found: dict[str, int] = {}
        for name, number in sorted(self.named.items(), key=lambda item: -item[1]):
            todo = [name]
            while todo:
                at = todo.pop()
                if at in found:
                    continue
                found[at] = number
                above = (node.parent for node in homes.get(at, ()) if not node.aside)
                todo += [parent for parent in above if parent is not None]
        return found

    @cached_property
    def hangs_on_nothing(self) -> bool:
        """Whether the parents of the line that a resume does not go on behind lead nowhere."""
        chain = self.chain
        return chain.overruled is not None and _hangs_on_nothing(chain, chain.overruled)

    @cached_property
    def is_left_by_client(self) -> bool:
        """Whether nothing but notes of the client stand where a resume would go on."""
        return _is_left_by_client(self.chain)

    @cached_property
    def known_results(self) -> set[str]:
        """The calls that the chain has an answer to, and those that are off it."""
        chain = self.chain
        on_chain = set(chain.order)
        elsewhere = {
            name
            for node in chain.graph.nodes
            if node.number not in on_chain
            for name in call_ids_in(chain.value(node.number))
        }
        return chain.result_homes(chain.order).keys() | elsewhere


def descendants(chain: Chain, number: int) -> list[int]:
    """Return a record and all that hang on it, in file order."""
    todo = [chain.graph.by_number[number]]
    found: set[int] = set()
    # Records of one id have the same children.
    opened: set[str] = set()
    while todo:
        node = todo.pop()
        found.add(node.number)
        if node.id not in opened:
            opened.add(node.id)
            todo += [child for child in chain.graph.children.get(node.id, ()) if not child.aside]
    return sorted(found)


def root_of(chain: Chain, node: Node) -> int:
    """Return the first record of the tree that a record is in."""
    return top_of(chain, node, set(), {})


def top_of(chain: Chain, node: Node, reached: set[int], tops: dict[int, int]) -> int:
    """Climb to the first record of a piece; every step is remembered."""
    climbed: dict[int, None] = {}
    at: Node | None = node
    top = node.number
    while at is not None and at.number not in reached and at.number not in climbed:
        top = tops.get(at.number, at.number)
        climbed[at.number] = None
        if at.number in tops:
            break
        at = chain.graph.by_id.get(at.parent) if at.parent else None
    tops.update(dict.fromkeys(climbed, top))
    return top


def _roots(chain: Chain) -> list[Node]:
    """Return the records that hang on nothing and that something was said below, in file order."""
    tops: dict[int, int] = {}
    found = {
        top_of(chain, node, set(), tops)
        for node in chain.graph.nodes
        if not node.aside
        and chain.graph.by_id[node.id] is node
        and has_substance(chain, node.number)
    }
    found.update(chain.walk.path[:1])
    return [chain.graph.by_number[number] for number in sorted(found)]


def _hangs_on_nothing(chain: Chain, node: Node) -> bool:
    """Whether the parents of a record lead to one that is not in the file."""
    top = chain.graph.by_number[root_of(chain, node)]
    return top.parent is not None and top.parent not in chain.graph.by_id


def _is_left_by_client(chain: Chain) -> bool:
    """Whether nothing but notes of the client stand where a resume would go on.

    A person who goes back says or does something there; a note that is written late does not
    mean that what was said meanwhile is given up.
    """
    if chain.leaf is None:
        return False
    if chain.overruled is not None:
        # The file ends in the past, with a line of the conversation itself or a note on it.
        last = chain.overruled.number
        return last in chain.places or _is_note(chain.value(last))
    at: Node | None = chain.end
    notes: list[int] = []
    while at is not None and at.number != chain.leaf.number:
        notes.append(at.number)
        at = chain.graph.by_id.get(at.parent) if at.parent else None
    return bool(notes) and all(_is_note(chain.value(number)) for number in notes)


def _is_note(value: dict[str, Any]) -> bool:
    """Whether the client wrote this by itself, with no deed of a person behind it."""
    return value.get("type") == SYSTEM and value.get("subtype") not in _DEEDS
