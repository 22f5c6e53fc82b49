"""What a resume of a Claude Code file would leave behind, and whether that was on purpose.

A branch is a piece of the conversation off the chain. What a person did on purpose (rewound,
cleared, broken off) is never damage, so a branch counts as lost only with evidence: a reply that
hangs beside the chain, turns that were written while the chain went on, a leaf that a window named
after somebody else had spoken, a conversation that goes on without its beginning.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct

from lockstitch.formats.claude_code.chain import (
    ASSISTANT,
    SPEAKERS,
    ClaudeChain,
    is_boundary,
    is_prompt,
    is_sent,
    queued_words,
    results_in,
    seconds_between,
)
from lockstitch.formats.claude_code.evidence import (
    BranchContext,
    descendants,
    has_substance,
    is_farewell,
    is_fresh_start,
    is_interruption,
    is_model,
    is_own_words,
    notes_rewind,
    opening_of,
    top_of,
    version_of,
    words_of,
)
from lockstitch.sources.write_back import GraphNode

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
# Why a resume does not send a branch, in words.
WHY = {
    REPLY: "a reply of the model that the next turn is not attached to",
    WRITER: "written by a second window while this conversation went on",
    CUT: "written before a break in the conversation",
    LATE: "written while a compaction ran, and not in its summary",
    END: "written after the place where a resume continues",
    GAP: "written before a record that is missing",
    REWOUND: "left behind on purpose, by a rewind",
    CLEARED: "left behind on purpose, when the context was cleared",
}
# Nobody reads a whole answer, goes back and types another prompt in less than this.
_QUICKEST_REWIND = 3.0
# From this version on (at the latest) the client notes a rewind behind the prompt that follows it.
_REWINDS_NOTED = (2, 1, 325)


class OffBranch(Struct):
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


def find_branches(chain: ClaudeChain) -> list[OffBranch]:
    """Find all pieces of the conversation that are off the chain, in file order."""
    reached = {*chain.order, *chain.walk.path}
    for group in chain.groups.values():
        reached.update(group.members, group.results)
    pieces: dict[int, list[int]] = {}
    tops: dict[int, int] = {}
    for node in chain.graph.nodes:
        if node.number in reached or node.aside or chain.graph.by_id[node.id] is not node:
            continue
        top = top_of(chain, node, reached, tops)
        if top > chain.boundary:
            pieces.setdefault(top, []).append(node.number)
    way = BranchContext(chain, reached)
    found = [_branch(way, top, members) for top, members in pieces.items()]
    late = _late(chain, reached)
    return [branch for branch in (*found, late) if branch is not None]


def _late(chain: ClaudeChain, reached: set[int]) -> OffBranch | None:
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


def _branch(way: BranchContext, first: int, members: list[int]) -> OffBranch | None:
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


def _made(chain: ClaudeChain, kind: str, members: list[int], attach: int, onward: int) -> OffBranch:
    spoken = [number for number in members if is_sent(chain.value(number))]
    prompts = sum(is_own_words(chain, number) for number in members)
    opens = bool(spoken) and not is_prompt(chain.value(spoken[0]))
    return OffBranch(
        kind=kind,
        members=members,
        attach=attach,
        onward=onward,
        tail=_tail(chain, members),
        turns=max(prompts + opens, 1) if kind != LATE else prompts,
        size=sum(chain.records[number].size for number in members),
    )


def _neighbours(way: BranchContext, node: GraphNode) -> tuple[int, int]:
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


def _tail(chain: ClaudeChain, members: Sequence[int]) -> int:
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


def _behind_words(chain: ClaudeChain, number: int, inside: set[int]) -> int:
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


def _rootless_kind(way: BranchContext, top: GraphNode) -> str:
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


def _kind(way: BranchContext, members: list[int], attach: int, onward: int) -> str:
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


def _prompt_kind(way: BranchContext, members: list[int], solid: list[int], onward: int) -> str:
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


def _is_said_again(way: BranchContext, solid: Sequence[int]) -> bool:
    """Whether a branch is nothing but words that stand on the chain, too."""
    chain = way.chain
    if not all(is_own_words(chain, number) for number in solid):
        return False
    words = (words_of(chain.value(number)) for number in solid)
    return all(way.last_said.get(said, -1) > solid[0] for said in words)


def _is_deed(way: BranchContext, onward: int) -> bool:
    """Whether the chain goes on with what a person did, as it does after every rewind."""
    speaker = way.next_speaker(onward)
    if speaker < 0:
        return True
    value = way.chain.value(speaker)
    return value.get("type") != ASSISTANT and not results_in(value)


def _is_written_again(way: BranchContext, first: int, onward: int) -> bool:
    """Whether the chain goes on with older words than the branch: the client copied them here."""
    speaker = way.next_speaker(onward)
    if speaker < first:
        return False
    gap = seconds_between(way.chain.value(first), way.chain.value(speaker))
    return gap is not None and gap < 0


def _went_on_elsewhere(way: BranchContext, members: Sequence[int], onward: int) -> bool:
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


def _is_named_later(way: BranchContext, members: Sequence[int], onward: int) -> bool:
    """Whether a window named a record of the branch after the chain had gone on elsewhere."""
    names = (way.chain.graph.by_number[number].id for number in members)
    return any(way.named.get(name, -1) >= max(onward, 0) for name in names)


def _is_too_quick(way: BranchContext, members: Sequence[int], onward: int) -> bool:
    """Whether a whole answer was followed by another prompt faster than a person can go back."""
    chain = way.chain
    speaker = way.next_speaker(onward)
    spoken = [n for n in members if is_sent(chain.value(n))]
    if speaker < 0 or not spoken or not is_model(chain.value(spoken[-1])):
        return False
    gap = seconds_between(chain.value(spoken[-1]), chain.value(speaker))
    return gap is not None and gap < _QUICKEST_REWIND
