"""What a resume of a Claude Code file would leave behind, and whether that was on purpose.

A stray is a piece of the conversation off the chain. A reply that hangs beside the chain was never
given up by anybody. Neither were the turns of a second process: they were written while the chain
went on, or so shortly before it that no person could have read, gone back and typed. Turns that
had ended before a new prompt was put in their place look like a rewind, and are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from lockstitch.formats.claude_chain import (
    ASSISTANT,
    SPEAKERS,
    Chain,
    is_prompt,
    is_sent,
    queued_words,
    results_in,
)
from lockstitch.formats.claude_times import time_of
from lockstitch.formats.graph import Node

REPLY = "reply"
WRITER = "writer"
CUT = "cut"
LATE = "late"
REWOUND = "rewound"
RETRIED = "retried"
LEFTOVER = "leftover"
# What a resume loses although nobody gave it up.
LOST = (REPLY, WRITER, CUT, LATE)
# Nobody reads an answer, goes back and types another prompt in less than this.
_QUICKEST_REWIND = 3.0


class Stray(Struct):
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
        """Give its first record."""
        return self.members[0]


def strays(chain: Chain) -> list[Stray]:
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
    found = [_stray(chain, members, reached) for members in pieces.values()]
    late = _late(chain, reached)
    return [stray for stray in (*found, late) if stray is not None]


def _late(chain: Chain, reached: set[int]) -> Stray | None:
    """Find the turns that a compaction cut off although its summary was made before them."""
    if chain.boundary < 0:
        return None
    named = chain.value(chain.boundary).get("logicalParentUuid")
    covered = chain.graph.by_id.get(named) if type(named) is str else None
    if covered is None or covered.number > chain.boundary:
        return None
    numbers = descendants(chain, covered.number)[1:]
    members = [n for n in numbers if n < chain.boundary and n not in reached]
    spoken = [number for number in members if is_sent(chain.value(number))]
    path = chain.walk.path[chain.cut :]
    summary = next((n for n in path if chain.value(n).get("isCompactSummary")), -1)
    if not any(is_prompt(chain.value(number)) for number in spoken) or summary < 0:
        return None
    behind = path[path.index(summary) + 1 :]
    return Stray(
        kind=LATE,
        members=members,
        attach=summary,
        onward=behind[0] if behind else -1,
        tail=_tail(chain, members),
        turns=sum(is_prompt(chain.value(number)) for number in members),
        size=sum(chain.records[number].size for number in members),
    )


def descendants(chain: Chain, number: int) -> list[int]:
    """Give a record and all that hang on it, in file order."""
    todo = [chain.graph.by_number[number]]
    found: set[int] = set()
    while todo:
        node = todo.pop()
        if node.number not in found:
            found.add(node.number)
            todo += [child for child in chain.graph.children.get(node.id, ()) if not child.aside]
    return sorted(found)


def _top(chain: Chain, node: Node, reached: set[int], tops: dict[int, int]) -> int:
    """Climb to the first record of a piece; every step is remembered."""
    climbed: list[int] = []
    at: Node | None = node
    top = node.number
    while at is not None and at.number not in reached and at.number not in climbed:
        top = tops.get(at.number, at.number)
        climbed.append(at.number)
        if at.number in tops:
            break
        at = chain.graph.by_id.get(at.parent) if at.parent else None
    tops.update(dict.fromkeys(climbed, top))
    return top


def _stray(chain: Chain, members: list[int], reached: set[int]) -> Stray | None:
    members = sorted(members)
    spoken = [number for number in members if is_sent(chain.value(number))]
    if not spoken:
        return None
    attach, onward = _neighbours(chain, members[0], reached)
    prompts = sum(is_prompt(chain.value(number)) for number in members)
    opens = not is_prompt(chain.value(spoken[0]))
    return Stray(
        kind=_kind(chain, spoken, members, attach, onward),
        members=members,
        attach=attach,
        onward=onward,
        tail=_tail(chain, members),
        turns=prompts + opens,
        size=sum(chain.records[number].size for number in members),
    )


def _neighbours(chain: Chain, top: int, reached: set[int]) -> tuple[int, int]:
    """Give the records of the chain before and behind a stray; -1 where there is none."""
    graph, path = chain.graph, chain.walk.path
    node = graph.by_number[top]
    parent = graph.by_id.get(node.parent) if node.parent else None
    if parent is None and node.parent:
        parent = graph.before(top, lambda other: other.number in reached)
    if parent is None:
        place = next((p for p, number in enumerate(path) if number > top), -1)
        return (path[place - 1] if place > 0 else -1), path[place] if place >= 0 else -1
    if parent.number not in path:
        return parent.number, next((number for number in path if number > top), -1)
    at = path.index(parent.number) + 1
    return parent.number, path[at] if at < len(path) else -1


def _tail(chain: Chain, members: Sequence[int]) -> int:
    """Give the last record of a stray that a conversation can go on from."""
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
    children = chain.graph.children.get(chain.graph.by_number[number].id, ())
    queued = (
        c.number for c in children if c.number in inside and queued_words(chain.value(c.number))
    )
    found = next(queued, None)
    return number if found is None else _behind_words(chain, found, inside)


def _kind(chain: Chain, spoken: list[int], members: list[int], attach: int, onward: int) -> str:
    first = chain.value(spoken[0])
    if not is_prompt(first):
        return _reply_kind(chain, spoken, attach, onward)
    if onward < 0:
        return LEFTOVER if attach < 0 else REWOUND
    if not _is_rewind(chain, members, onward):
        return WRITER if attach >= 0 else CUT
    return REWOUND


def _reply_kind(chain: Chain, spoken: list[int], attach: int, onward: int) -> str:
    if all(results_in(chain.value(number)) for number in spoken) and not _is_news(chain, spoken):
        return LEFTOVER
    if onward < 0:
        return LEFTOVER if attach < 0 else REPLY
    if attach < 0:
        return CUT
    answer = _next_speaker(chain, onward)
    retried = answer.get("type") == ASSISTANT and chain.value(spoken[0]).get("type") == ASSISTANT
    return RETRIED if retried else REPLY


def _is_news(chain: Chain, spoken: list[int]) -> bool:
    """Tell whether results answer what nothing on the chain answers."""
    return not chain.result_homes(spoken).keys() <= chain.result_homes(chain.order).keys()


def _next_speaker(chain: Chain, onward: int) -> dict[str, Any]:
    path = chain.walk.path
    for number in path[path.index(onward) :]:
        if is_sent(chain.value(number)):
            return chain.value(number)
    return {}


def _is_rewind(chain: Chain, members: list[int], onward: int) -> bool:
    """Tell whether a stray had ended, long enough ago, when another prompt took its place."""
    rival = chain.value(onward)
    if members[-1] > onward or not is_prompt(_next_speaker(chain, onward)):
        return False
    ended, began = time_of(chain.value(members[-1])), time_of(rival)
    if ended is None or began is None:
        return True
    return (began - ended).total_seconds() >= _QUICKEST_REWIND
