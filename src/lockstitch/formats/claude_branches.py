"""What a resume of a Claude Code file would leave behind, and whether that was on purpose.

A branch is a piece of the conversation off the chain. What a person did on purpose (rewound,
cleared, broken off) is never damage, so a branch counts as lost only with evidence: a reply that
hangs beside the chain, turns that were written while the chain went on, a leaf that a window named
after somebody else had spoken, a conversation that goes on without its beginning.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

from msgspec import Struct

from lockstitch.formats.claude_chain import (
    ASSISTANT,
    LAST_PROMPT,
    SPEAKERS,
    SYSTEM,
    Chain,
    call_ids_in,
    is_boundary,
    is_prompt,
    is_sent,
    queued_words,
    results_in,
)
from lockstitch.formats.claude_context import (
    Past,
    has_substance,
    is_farewell,
    is_fresh_start,
    is_interruption,
    is_model,
    is_own_words,
    notes_rewind,
    opening_of,
    version_of,
    words_of,
)
from lockstitch.formats.claude_times import seconds_between
from lockstitch.formats.graph import Node

REPLY = "reply"
WRITER = "writer"
CUT = "cut"
LATE = "late"
END = "end"
GAP = "gap"
REWOUND = "rewound"
CLEARED = "cleared"
# What a resume loses although nobody gave it up. A gap is reported where the link is missing.
LOST = (REPLY, WRITER, CUT, LATE, END, GAP)
# What a person left behind on purpose, or may have.
LEFT = (REWOUND, CLEARED)
# Nobody reads a whole answer, goes back and types another prompt in less than this.
_QUICKEST_REWIND = 3.0
# From this version on (at the latest) the client notes a rewind behind the prompt that follows it.
_REWINDS_NOTED = (2, 1, 325)
# Records that a person causes where they stand, as against those that the client adds by itself.
_DEEDS = ("local_command", "away_summary", "scheduled_task_fire")


class Branch(Struct):
    """A piece off the chain: its records in file order, and the record of the chain it hangs on.

    ``onward`` is the record of the chain that would follow it, ``tail`` its own last record.
    """

    kind: str
    members: list[int]
    attach: int
    onward: int
    tail: int
    turns: int
    size: int

    @property
    def top(self) -> int:
        """Its first record."""
        return self.members[0]


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


def branches(chain: Chain) -> list[Branch]:
    """Find all pieces of the conversation that are off the chain, in file order."""
    reached = {*chain.order, *chain.walk.path}
    for group in chain.groups.values():
        reached.update(group.members, group.results)
    pieces: dict[int, list[int]] = {}
    tops: dict[int, int] = {}
    for node in chain.graph.nodes:
        if node.number in reached or node.aside or chain.graph.by_id[node.id] is not node:
            continue
        top = _top(chain, node, reached, tops)
        if top > chain.boundary:
            pieces.setdefault(top, []).append(node.number)
    way = Way(chain, reached)
    found = [_branch(way, top, members) for top, members in pieces.items()]
    late = _late(chain, reached)
    return [branch for branch in (*found, late) if branch is not None]


def descendants(chain: Chain, number: int) -> list[int]:
    """Return a record and all that hang on it, in file order."""
    todo = [chain.graph.by_number[number]]
    found: set[int] = set()
    while todo:
        node = todo.pop()
        if node.number not in found:
            found.add(node.number)
            todo += [child for child in chain.graph.children.get(node.id, ()) if not child.aside]
    return sorted(found)


def root_of(chain: Chain, node: Node) -> int:
    """Return the first record of the tree that a record is in."""
    return _top(chain, node, set(), {})


def _late(chain: Chain, reached: set[int]) -> Branch | None:
    """Find the turns that a compaction cut off although its summary was made before them."""
    if chain.boundary < 0:
        return None
    named = chain.value(chain.boundary).get("logicalParentUuid")
    covered = chain.graph.by_id.get(named) if type(named) is str else None
    if covered is None or covered.number > chain.boundary:
        return None
    numbers = descendants(chain, covered.number)[1:]
    members = [n for n in numbers if n < chain.boundary and n not in reached]
    path = chain.walk.path[chain.cut :]
    summary = next((n for n in path if chain.value(n).get("isCompactSummary")), -1)
    if not any(is_own_words(chain, number) for number in members) or summary < 0:
        return None
    behind = path[path.index(summary) + 1 :]
    return _made(chain, LATE, members, summary, behind[0] if behind else -1)


def _top(chain: Chain, node: Node, reached: set[int], tops: dict[int, int]) -> int:
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


def _branch(way: Way, first: int, members: list[int]) -> Branch | None:
    """Say what a piece is; None for one that holds nothing but what the client wrote for itself.

    The client may write a reply before the prompt that it hangs on, so the first is not the lowest.
    """
    chain = way.chain
    members = sorted(members, key=lambda number: (number != first, number))
    if not any(has_substance(chain, number) for number in members):
        return None
    top = chain.graph.by_number[first]
    attach, onward = _neighbours(way, top)
    if top.parent is None or top.parent not in chain.graph.by_id:
        kind = _rootless_kind(way, top)
    else:
        kind = _kind(way, members, attach, onward)
    return _made(chain, kind, members, attach, onward) if kind else None


def _made(chain: Chain, kind: str, members: list[int], attach: int, onward: int) -> Branch:
    spoken = [number for number in members if is_sent(chain.value(number))]
    prompts = sum(is_own_words(chain, number) for number in members)
    opens = bool(spoken) and not is_prompt(chain.value(spoken[0]))
    return Branch(
        kind=kind,
        members=members,
        attach=attach,
        onward=onward,
        tail=_tail(chain, members),
        turns=max(prompts + opens, 1) if kind != LATE else prompts,
        size=sum(chain.records[number].size for number in members),
    )


def _neighbours(way: Way, node: Node) -> tuple[int, int]:
    """Return the records of the chain before and behind a branch; -1 where there is none."""
    graph, path = way.chain.graph, way.chain.walk.path
    parent = graph.by_id.get(node.parent) if node.parent else None
    if parent is None and node.parent:
        parent = way.reached_before(node.number)
    place = way.place_behind(node.number)
    if parent is None:
        before = path[place - 1] if place > 0 else path[-1] if place < 0 and path else -1
        return before, path[place] if place >= 0 else -1
    if parent.number not in way.chain.places:
        return parent.number, path[place] if place >= 0 else -1
    at = way.chain.places[parent.number] + 1
    return parent.number, path[at] if at < len(path) else -1


def _tail(chain: Chain, members: Sequence[int]) -> int:
    """Return the last record of a branch that a conversation can go on from."""
    inside = set(members)
    ends = [
        number
        for number in members
        if chain.value(number).get("type") in SPEAKERS
        and not any(
            child.number in inside and chain.value(child.number).get("type") in SPEAKERS
            for child in chain.graph.children.get(chain.graph.by_number[number].id, ())
        )
    ]
    return _behind_words(chain, ends[-1], inside) if ends else members[-1]


def _behind_words(chain: Chain, number: int, inside: set[int]) -> int:
    """Go on from a record to what a person typed behind it while the model was busy."""
    seen: set[int] = set()
    at: int | None = number
    while at is not None and at not in seen:
        number = at
        seen.add(number)
        children = chain.graph.children.get(chain.graph.by_number[number].id, ())
        queued = (
            c.number for c in children if c.number in inside and queued_words(chain.value(c.number))
        )
        at = next(queued, None)
    return number


def _rootless_kind(way: Way, top: Node) -> str:
    """Say what a tree of its own is: cut off, left by a link that leads nowhere, or given up.

    That depends on the tree which follows it in the file. It comes behind the tree of the chain
    itself if a window named a leaf there, and then it is the one that lost its link.
    """
    chain, path = way.chain, way.chain.walk.path
    later = top
    if not path or top.number < path[0]:
        at = bisect_right(way.roots, top.number, key=lambda node: node.number)
        later = way.roots[at] if at < len(way.roots) else top
    if later.parent is not None:
        return GAP
    if is_boundary(chain.value(later.number)):
        # A summary stands for what is before it; a whole compaction may be gone round, too.
        return REWOUND if later is top else ""
    after = descendants(chain, later.number)
    if is_fresh_start(chain, way.past, later.number, after):
        return CLEARED
    unanswered = not any(is_model(chain.value(n)) for n in descendants(chain, top.number))
    replaced = later is not top and opening_of(chain, after) is not None
    return CLEARED if unanswered and replaced else CUT


def _roots(chain: Chain) -> list[Node]:
    """Return the records that hang on nothing and that something was said below, in file order."""
    tops: dict[int, int] = {}
    found = {
        _top(chain, node, set(), tops)
        for node in chain.graph.nodes
        if not node.aside
        and chain.graph.by_id[node.id] is node
        and has_substance(chain, node.number)
    }
    found.update(chain.walk.path[:1])
    return [chain.graph.by_number[number] for number in sorted(found)]


def _kind(way: Way, members: list[int], attach: int, onward: int) -> str:
    """Say what a branch is that hangs on a record which the file holds; empty for nothing lost."""
    chain = way.chain
    solid = [number for number in members if has_substance(chain, number)]
    opening = next(n for n in members if n == solid[0] or is_prompt(chain.value(n)))
    if is_prompt(chain.value(opening)) or is_own_words(chain, opening):
        return _prompt_kind(way, members, solid, onward)
    if all(results_in(chain.value(number)) for number in solid):
        is_news = not chain.result_homes(solid).keys() <= way.known_results
        return REPLY if is_news and attach >= 0 else ""
    if onward < 0:
        return END if way.is_left_by_client else REPLY
    answer = way.next_speaker(onward)
    follower = chain.value(answer) if answer >= 0 else {}
    if follower.get("type") == ASSISTANT or is_interruption(follower):
        # The client asked again, or a person broke off: it had this reply in hand and let it go.
        said = any(is_own_words(chain, number) for number in solid)
        return _prompt_kind(way, members, solid, onward) if said else ""
    return REPLY


def _prompt_kind(way: Way, members: list[int], solid: list[int], onward: int) -> str:
    """Say whether turns that begin with a person's words were rewound or are another window's."""
    chain = way.chain
    if _is_said_again(way, solid):
        return ""
    if onward < 0:
        if way.hangs_on_nothing:
            return GAP
        return END if way.is_left_by_client else REWOUND
    if _is_named_later(way, members, onward) or _went_on_elsewhere(way, members, onward):
        return WRITER
    if _is_written_again(way, solid[0], onward):
        return REWOUND
    if not _is_deed(way, onward):
        return WRITER
    rival = way.rivals(onward)
    # A tool that was left running may still end; only words tell that somebody went on.
    solid = [n for n in solid if not results_in(chain.value(n))]
    if not rival or solid[-1] < rival[0]:
        return WRITER if _is_too_quick(way, members, onward) else REWOUND
    if solid[0] < rival[-1]:
        return WRITER
    # It came last, and yet a resume goes elsewhere: because another window said so afterwards, or
    # because the client died before it noted that a person had gone back.
    return WRITER if chain.named_leaf()[0] > solid[0] else REWOUND


def _is_said_again(way: Way, solid: Sequence[int]) -> bool:
    """Whether a branch is nothing but words that stand on the chain, too."""
    chain = way.chain
    if not all(is_own_words(chain, number) for number in solid):
        return False
    words = (words_of(chain.value(number)) for number in solid)
    return all(way.last_said.get(said, -1) > solid[0] for said in words)


def _hangs_on_nothing(chain: Chain, node: Node) -> bool:
    """Whether the parents of a record lead to one that is not in the file."""
    top = chain.graph.by_number[root_of(chain, node)]
    return top.parent is not None and top.parent not in chain.graph.by_id


def _is_deed(way: Way, onward: int) -> bool:
    """Whether the chain goes on with what a person did, as it does after every rewind."""
    speaker = way.next_speaker(onward)
    if speaker < 0:
        return True
    value = way.chain.value(speaker)
    return value.get("type") != ASSISTANT and not results_in(value)


def _is_written_again(way: Way, first: int, onward: int) -> bool:
    """Whether the chain goes on with older words than the branch: the client copied them here."""
    speaker = way.next_speaker(onward)
    if speaker < first:
        return False
    gap = seconds_between(way.chain.value(first), way.chain.value(speaker))
    return gap is not None and gap < 0


def _went_on_elsewhere(way: Way, members: Sequence[int], onward: int) -> bool:
    """Whether the prompt that took the place of whole turns is known not to be a rewind's.

    The newest clients note every rewind behind the prompt that follows it. And the window of these
    turns had been closed: a new one would have begun behind them, with a reply of the client's.
    """
    chain = way.chain
    speaker = way.next_speaker(onward)
    if speaker < 0 or not any(is_model(chain.value(number)) for number in members):
        return False
    if notes_rewind(chain, speaker):
        return False
    is_noted = way.named_below.get(chain.graph.by_number[onward].id, -1) >= max(onward, 0)
    if is_noted and version_of(chain.value(speaker)) >= _REWINDS_NOTED:
        return True
    return members[-1] < speaker and is_farewell(chain, members)


def _is_named_later(way: Way, members: Sequence[int], onward: int) -> bool:
    """Whether a window named a record of the branch after the chain had gone on elsewhere."""
    names = (way.chain.graph.by_number[number].id for number in members)
    return any(way.named.get(name, -1) >= max(onward, 0) for name in names)


def _is_too_quick(way: Way, members: Sequence[int], onward: int) -> bool:
    """Whether a whole answer was followed by another prompt faster than a person can go back."""
    chain = way.chain
    speaker = way.next_speaker(onward)
    spoken = [n for n in members if is_sent(chain.value(n))]
    if speaker < 0 or not spoken or not is_model(chain.value(spoken[-1])):
        return False
    gap = seconds_between(chain.value(spoken[-1]), chain.value(speaker))
    return gap is not None and gap < _QUICKEST_REWIND


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
