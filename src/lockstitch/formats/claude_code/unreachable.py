"""What a resume of a Claude Code file would leave behind, and whether that was on purpose.

A branch is a piece of the conversation off the chain. Whatever a person did on purpose (rewound,
cleared, interrupted) is never damage, so a branch counts as lost only with evidence. Evidence is a
reply beside the chain, turns that were written while the chain continued, a leaf that a window
named after someone else had spoken, or a conversation that continues without its beginning.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

from msgspec import Struct

from lockstitch.formats.claude_code.chain import (
    ASSISTANT,
    LAST_PROMPT,
    SYSTEM,
    ClaudeChain,
    call_ids_in,
    is_boundary,
    is_prompt,
    is_sent,
    queued_words,
    results_in,
    seconds_between,
    version_of,
)
from lockstitch.formats.claude_code.evidence import (
    EarlierLines,
    has_substance,
    is_farewell,
    is_fresh_start,
    is_interruption,
    is_model,
    is_own_words,
    notes_rewind,
    opening_of,
    words_of,
)
from lockstitch.formats.write_back import TreeNode

REPLY = "reply"
WRITER = "writer"
CUT = "cut"
LATE = "late"
END = "end"
GAP = "gap"
REWOUND = "rewound"
CLEARED = "cleared"
# Kinds that a resume loses although nobody gave them up. A gap is reported where the link is
# missing.
LOST = (REPLY, WRITER, CUT, LATE, END, GAP)
# Kinds that a person left behind on purpose, or may have.
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
# Nobody reads a whole answer, goes back and types another prompt in less time than this.
_QUICKEST_REWIND = 3.0
# From this version on (at the latest), the client notes a rewind after the prompt that follows it.
_REWINDS_NOTED = (2, 1, 325)
# Records that a person causes where they stand, unlike those that the client adds by itself.
_DEEDS = ("local_command", "away_summary", "scheduled_task_fire")


class OffBranch(Struct):
    """A piece off the chain: its records in file order, and its parent on the chain (``attach``).

    ``onward`` is the record of the chain that would follow it, and ``tail`` its own last record
    after which a conversation can continue.
    """

    kind: str
    members: list[int]
    attach: int | None
    onward: int | None
    tail: int
    turns: int
    size: int

    @property
    def top(self) -> int:
        """The first record."""
        return self.members[0]


def find_branches(chain: ClaudeChain) -> list[OffBranch]:
    """Return all pieces of the conversation that are off the chain, in file order."""
    reached = {*chain.order, *chain.walk.path}
    pieces: dict[int, list[int]] = {}
    tops: dict[int, int] = {}
    for node in chain.off:
        top = chain.graph.top_of(node, reached, tops)
        if top > chain.boundary:
            pieces.setdefault(top, []).append(node.number)
    if not pieces and chain.boundary < 0:
        return []
    finder = _BranchFinder(chain, reached)
    found = [finder.judge(top, members) for top, members in pieces.items()]
    late = finder.find_late() if chain.boundary >= 0 else None
    return [branch for branch in (*found, late) if branch is not None]


class _BranchFinder:
    """Judges each branch; what it is compared with is read once for all of them."""

    def __init__(self, chain: ClaudeChain, reached: set[int]) -> None:
        self.chain = chain
        self.graph = chain.graph
        self.path = chain.walk.path
        self.reached = reached

    # What branches are compared with.

    @cached_property
    def _highest(self) -> list[int]:
        """The highest number up to each place of the walk, which only grows."""
        return list(accumulate(self.path, max))

    @cached_property
    def _past(self) -> EarlierLines:
        return EarlierLines(self.chain)

    @cached_property
    def _roots(self) -> list[TreeNode]:
        """The records without a parent that have something said below them, in file order."""
        tops: dict[int, int] = {}
        found = {
            self.graph.top_of(node, frozenset(), tops)
            for node in self.graph.nodes
            if not node.aside
            and self.graph.by_id[node.id] is node
            and has_substance(self.chain, node.number)
        }
        found.update(self.path[:1])
        return [self.graph.by_number[number] for number in sorted(found)]

    @cached_property
    def _reached_nodes(self) -> list[TreeNode]:
        nodes = self.graph.nodes
        return [node for node in nodes if not node.aside and node.number in self.reached]

    @cached_property
    def _spoken(self) -> list[int | None]:
        """The first record that is sent from each place of the walk on."""
        found: list[int | None] = [None]
        for number in reversed(self.path):
            found.append(number if is_sent(self.chain.values[number]) else found[-1])
        return found[::-1]

    def _next_speaker(self, onward: int) -> int | None:
        """Return the first record of the chain from here on that is sent."""
        place = self.chain.places.get(onward)
        return None if place is None else self._spoken[place]

    @cached_property
    def _places_of_substance(self) -> list[int]:
        """The places of the walk with something of substance."""
        return [at for at, number in enumerate(self.path) if has_substance(self.chain, number)]

    @cached_property
    def _last_said(self) -> dict[str, int]:
        """The highest number of a record on the walk with the same words, by these words."""
        said: dict[str, int] = {}
        for number in self.path:
            words = words_of(self.chain.values[number])
            said[words] = max(said.get(words, -1), number)
        return said

    @cached_property
    def _named(self) -> dict[str, int]:
        """The last record in which a window named a line as its leaf, by the line's id."""
        return {
            record.value["leafUuid"]: number
            for number, record in enumerate(self.chain.records)
            if record.is_record
            and record.value.get("type") == LAST_PROMPT
            and type(record.value.get("leafUuid")) is str
        }

    @cached_property
    def _named_below(self) -> dict[str, int]:
        """The last record that names a line or one of its descendants, by the line's id."""
        homes: dict[str, list[TreeNode]] = {}
        for node in self.graph.nodes:
            homes.setdefault(node.id, []).append(node)
        found: dict[str, int] = {}
        for name, number in sorted(self._named.items(), key=lambda item: -item[1]):
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
    def _lacks_parent(self) -> bool:
        """Whether the ancestors of the overruled line lead to a missing parent."""
        if self.chain.overruled is None:
            return False
        top = self.graph.by_number[self.graph.top_of(self.chain.overruled)]
        return top.parent is not None and top.parent not in self.graph.by_id

    @cached_property
    def _is_left_by_client(self) -> bool:
        """Whether only notes of the client stand where a resume would continue.

        A person who goes back says or does something there. A note that was written late does not
        mean that anything said meanwhile was given up.
        """
        chain = self.chain
        if chain.leaf is None:
            return False
        if chain.overruled is not None:
            # The file ends in the past, with a line of the conversation itself or a note on it.
            last = chain.overruled.number
            return last in chain.places or _is_note(chain.values[last])
        at: TreeNode | None = chain.end
        notes: list[int] = []
        while at is not None and at.number != chain.leaf.number:
            notes.append(at.number)
            at = self.graph.parent_of(at)
        return bool(notes) and all(_is_note(chain.values[number]) for number in notes)

    @cached_property
    def _known_results(self) -> set[str]:
        """The ids of calls that are answered on the chain, or made off it."""
        on_chain = set(self.chain.order)
        elsewhere = {
            name
            for node in self.graph.nodes
            if node.number not in on_chain
            for name in call_ids_in(self.chain.values[node.number])
        }
        return self.chain.results_on(self.chain.order) | elsewhere

    # The branches.

    def find_late(self) -> OffBranch | None:
        """Return the turns that a compaction cut off although its summary was made before them."""
        chain = self.chain
        named = chain.values[chain.boundary].get("logicalParentUuid")
        covered = self.graph.by_id.get(named) if type(named) is str else None
        if covered is None or covered.number > chain.boundary:
            return None
        numbers = self.graph.descendants(covered.number)[1:]
        members = [n for n in numbers if n < chain.boundary and n not in self.reached]
        path = self.path[chain.cut :]
        places = (at for at, n in enumerate(path) if chain.values[n].get("isCompactSummary"))
        at = next(places, None)
        if not any(is_own_words(chain, number) for number in members) or at is None:
            return None
        return self._make(LATE, members, path[at], path[at + 1] if at + 1 < len(path) else None)

    def judge(self, first: int, members: list[int]) -> OffBranch | None:
        """Return what a piece is; None if it holds only what the client wrote by itself.

        The client may write a reply before its parent, the prompt, so the first record need not be
        the one with the lowest number.
        """
        members = sorted(members, key=lambda number: (number != first, number))
        if not any(has_substance(self.chain, number) for number in members):
            return None
        top = self.graph.by_number[first]
        attach, onward = self._neighbours(top)
        if self.graph.parent_of(top) is None:
            kind = self._rootless_kind(top)
        else:
            kind = self._kind(members, attach, onward)
        return self._make(kind, members, attach, onward) if kind else None

    def _make(
        self, kind: str, members: list[int], attach: int | None, onward: int | None
    ) -> OffBranch:
        chain = self.chain
        spoken = [number for number in members if is_sent(chain.values[number])]
        prompts = sum(is_own_words(chain, number) for number in members)
        opens = bool(spoken) and not is_prompt(chain.values[spoken[0]])
        turns = max(prompts + opens, 1) if kind != LATE else prompts
        size = sum(chain.records[number].size for number in members)
        return OffBranch(kind, members, attach, onward, self._tail(members), turns, size)

    def _neighbours(self, node: TreeNode) -> tuple[int | None, int | None]:
        """Return the records of the chain before and after a branch."""
        path = self.path
        parent = self.graph.parent_of(node)
        if parent is None and node.parent:
            # its parent is missing: take the nearest earlier record that is on the chain
            at = bisect_left(self._reached_nodes, node.number, key=lambda one: one.number)
            parent = self._reached_nodes[at - 1] if at else None
        if parent is not None and parent.number in self.chain.places:
            at = self.chain.places[parent.number] + 1
            return parent.number, path[at] if at < len(path) else None
        # the first place of the walk with a later record
        place = bisect_right(self._highest, node.number)
        onward = path[place] if place < len(path) else None
        if parent is not None:
            return parent.number, onward
        return path[place - 1] if place and path else None, onward

    def _tail(self, members: Sequence[int]) -> int:
        """Return the last record of a branch after which a conversation can continue.

        That is the last line of a speaker, or what a person typed after it while the model was
        busy.
        """
        chain, children = self.chain, self.graph.children
        inside = set(members)
        ends = [
            number
            for number in members
            if number in chain.spoken
            and not any(
                child.number in inside and child.number in chain.spoken
                for child in children.get(self.graph.by_number[number].id, ())
            )
        ]
        if not ends:
            return members[-1]
        seen: set[int] = set()
        number, at = ends[-1], [ends[-1]]
        while at and at[0] not in seen:
            number = at[0]
            seen.add(number)
            below = children.get(self.graph.by_number[number].id, ())
            numbers = (child.number for child in below if child.number in inside)
            at = [n for n in numbers if queued_words(chain.values[n])]
        return number

    def _rootless_kind(self, top: TreeNode) -> str:
        """Return what a separate tree is: cut off, left by a missing link, or given up.

        That depends on the tree that follows it in the file. The tree may also come after the
        chain's own, if a window named a leaf in that one; then it is itself the one that lost its
        link.
        """
        chain, later = self.chain, top
        if not self.path or top.number < self.path[0]:
            at = bisect_right(self._roots, top.number, key=lambda node: node.number)
            later = self._roots[at] if at < len(self._roots) else top
        if later.parent is not None:
            return GAP
        if is_boundary(chain.values[later.number]):
            # A summary stands for what comes before it, but a whole compaction may also be
            # bypassed.
            return REWOUND if later is top else ""
        after = self.graph.descendants(later.number)
        if is_fresh_start(chain, self._past, later.number, after):
            return CLEARED
        below = self.graph.descendants(top.number)
        unanswered = not any(is_model(chain.values[n]) for n in below)
        replaced = later is not top and opening_of(chain, after) is not None
        return CLEARED if unanswered and replaced else CUT

    def _kind(self, members: list[int], attach: int | None, onward: int | None) -> str:
        """Return the kind of a branch whose parent is in the file; "" if nothing is lost."""
        chain = self.chain
        solid = [number for number in members if has_substance(chain, number)]
        opening = next(n for n in members if n == solid[0] or is_prompt(chain.values[n]))
        if is_prompt(chain.values[opening]) or is_own_words(chain, opening):
            return self._prompt_kind(members, solid, onward)
        if all(results_in(chain.values[number]) for number in solid):
            is_new = not chain.results_on(solid) <= self._known_results
            return REPLY if is_new and attach is not None else ""
        if onward is None:
            return END if self._is_left_by_client else REPLY
        answer = self._next_speaker(onward)
        follower = chain.values[answer] if answer is not None else {}
        if follower.get("type") == ASSISTANT or is_interruption(follower):
            # The client asked again, or a person interrupted it: it had this reply, and dropped it.
            said = any(is_own_words(chain, number) for number in solid)
            return self._prompt_kind(members, solid, onward) if said else ""
        return REPLY

    def _prompt_kind(self, members: list[int], solid: list[int], onward: int | None) -> str:
        """Return whether turns that a person's words begin were rewound, or are another window's.

        A person who rewinds does something next, reads before that, and leaves nothing behind that
        continues by itself. Turns that contradict one of these were written by a second window.
        """
        chain = self.chain
        if self._is_said_again(solid):
            return ""
        if onward is None:
            if self._lacks_parent:
                return GAP
            return END if self._is_left_by_client else REWOUND
        speaker = self._next_speaker(onward)
        if self._is_named_later(members, onward) or self._is_replaced(members, onward, speaker):
            return WRITER
        following = chain.values[speaker] if speaker is not None else {}
        if speaker is not None and speaker >= solid[0]:
            gap = seconds_between(chain.values[solid[0]], following)
            if gap is not None and gap < 0:
                # The chain continues with older words than the branch, so the client copied them
                # here.
                return REWOUND
        if following.get("type") == ASSISTANT or results_in(following):
            return WRITER
        # A tool that was left running may still end; only words show that someone continued.
        solid = [n for n in solid if not results_in(chain.values[n])]
        at = bisect_left(self._places_of_substance, chain.places[onward])
        rivals = self._places_of_substance[at:]
        if not rivals or solid[-1] < self.path[rivals[0]]:
            return WRITER if self._is_too_quick(members, speaker) else REWOUND
        if solid[0] < self.path[rivals[-1]]:
            return WRITER
        # The branch came last, and yet a resume continues elsewhere: either another window said so
        # afterwards, or the client died before it noted that a person had gone back.
        return WRITER if chain.named_leaf[0] > solid[0] else REWOUND

    def _is_said_again(self, solid: Sequence[int]) -> bool:
        """Whether a branch is nothing but words that are on the chain, too."""
        if not all(is_own_words(self.chain, number) for number in solid):
            return False
        words = (words_of(self.chain.values[number]) for number in solid)
        return all(self._last_said.get(said, -1) > solid[0] for said in words)

    def _is_named_later(self, members: Sequence[int], onward: int) -> bool:
        """Whether a window named a record of the branch after the chain had continued elsewhere."""
        names = (self.graph.by_number[number].id for number in members)
        return any(self._named.get(name, -1) >= onward for name in names)

    def _is_replaced(self, members: Sequence[int], onward: int, speaker: int | None) -> bool:
        """Whether the prompt that replaced whole turns is known not to be a rewind's.

        The newest clients note every rewind after the prompt that follows it. Also, if the window
        of these turns had been closed, a new window would have begun after them, with a reply of
        the client's.
        """
        chain = self.chain
        if speaker is None or not any(is_model(chain.values[number]) for number in members):
            return False
        if notes_rewind(chain, speaker):
            return False
        is_noted = self._named_below.get(self.graph.by_number[onward].id, -1) >= onward
        if is_noted and version_of(chain.values[speaker]) >= _REWINDS_NOTED:
            return True
        return members[-1] < speaker and is_farewell(chain, members)

    def _is_too_quick(self, members: Sequence[int], speaker: int | None) -> bool:
        """Whether a prompt followed a whole answer faster than a person can go back."""
        chain = self.chain
        spoken = [n for n in members if is_sent(chain.values[n])]
        if speaker is None or not spoken or not is_model(chain.values[spoken[-1]]):
            return False
        gap = seconds_between(chain.values[spoken[-1]], chain.values[speaker])
        return gap is not None and gap < _QUICKEST_REWIND


def _is_note(value: dict[str, Any]) -> bool:
    """Whether the client wrote this by itself, without an action of a person."""
    return value.get("type") == SYSTEM and value.get("subtype") not in _DEEDS
