"""Edits: the difference between a list and its repaired copy, in named places.

The two share untouched values, so identity shows what stayed, and every edit names the smallest
place that differs. All places are in the original's coordinates.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET, Struct, json, structs

from lockstitch.conversation.parts import Path, repr_without

INSERT = "insert"
REPLACE = "replace"
DELETE = "delete"
MOVE = "move"
# How far to look ahead for a changed element where no repair keeps a record.
_AHEAD = 16
_ENDLESS = sys.maxsize
# The interpreter shares small values, so identity only tells these apart.
_NESTED = (dict, list)


class Edit(Struct, frozen=True, kw_only=True):
    """One change: the value that is at ``place`` afterwards.

    An insert goes before the element at ``place`` in the original, or at the end if ``place`` is
    the first free index. Several inserts at one place keep their order. A move takes the value from
    ``source``.
    """

    op: str
    place: str
    path: Path
    value: Any = UNSET
    source: str = ""
    source_path: Path = ()

    __repr__ = repr_without("value")


def diff(
    before: Any, after: Any, root: Path = (), earlier: Mapping[int, Any] | None = None
) -> list[Edit]:
    """Return the edits that turn one value into the other.

    ``earlier`` is the record of a repair. It maps the ``id`` of each changed message and part to
    what it was before, None for a new one. Values that it does not name are compared by their
    place.
    """
    edits: list[Edit] = []
    _compare(before, after, root, earlier or {}, edits)
    # Turn a delete and an insert of the same object into one move.
    gone: dict[int, list[Edit]] = {}
    for edit in edits:
        if edit.op == DELETE and isinstance(edit.value, _NESTED):
            gone.setdefault(id(edit.value), []).append(edit)
    moved: set[int] = set()
    result: list[Edit] = []
    for edit in edits:
        sources = gone.get(id(edit.value)) if edit.op == INSERT else None
        if sources:
            source = sources.pop(0)
            moved.add(id(source))
            result.append(
                structs.replace(edit, op=MOVE, source=source.place, source_path=source.path)
            )
        else:
            result.append(edit)
    return [
        structs.replace(edit, value=UNSET) if edit.op in (DELETE, MOVE) else edit
        for edit in result
        if id(edit) not in moved
    ]


Span = tuple[int, int]


def _compare(
    before: Any, after: Any, path: Path, earlier: Mapping[int, Any], edits: list[Edit]
) -> None:
    """Add the edits that turn the value at a path into another one."""
    if before is after:
        return
    if type(before) is dict and type(after) is dict:
        kept = [key for key in before if key in after]
        if kept != [key for key in after if key in before]:
            # keys in another order cannot be expressed by smaller edits
            edits.append(_edit(REPLACE, path, after))
            return
        edits += [_edit(DELETE, (*path, key)) for key in before if key not in after]
        for key, value in after.items():
            if key in before:
                _compare(before[key], value, (*path, key), earlier, edits)
            else:
                edits.append(_edit(INSERT, (*path, key), value))
    elif type(before) is list and type(after) is list:
        _compare_lists(before, after, path, earlier, edits)
    elif not _same(before, after):
        edits.append(_edit(REPLACE, path, after))


def _compare_lists(
    before: list[Any], after: list[Any], path: Path, earlier: Mapping[int, Any], edits: list[Edit]
) -> None:
    most = min(len(before), len(after))
    head = min(most, _count_same(zip(before, after, strict=False)))
    most -= head
    tail = min(most, _count_same(zip(reversed(before), reversed(after), strict=False)))
    stop_old, stop_new = len(before) - tail, len(after) - tail
    olds, fresh = before[head:stop_old], after[head:stop_new]
    shared = {id(item) for item in olds if isinstance(item, _NESTED)} & set(map(id, fresh))
    old = new = head
    anchors = [(head + one, head + other) for one, other in _anchors(olds, fresh)]
    for end_old, end_new in [*anchors, (stop_old, stop_new)]:
        # between two anchors: elements changed in place, then the surplus of each side
        fresh_old = [at for at in range(old, end_old) if id(before[at]) not in shared]
        fresh_new = [at for at in range(new, end_new) if id(after[at]) not in shared]
        pairs = _pairs(before, after, fresh_old, fresh_new, earlier)
        for at_old, at_new in [*pairs, (end_old, end_new)]:
            edits += [_edit(DELETE, (*path, i), before[i]) for i in range(old, at_old)]
            edits += [_edit(INSERT, (*path, at_old), after[i]) for i in range(new, at_new)]
            if at_old < end_old:
                _compare(before[at_old], after[at_new], (*path, at_old), earlier, edits)
            old, new = at_old + 1, at_new + 1


def _pairs(
    before: list[Any],
    after: list[Any],
    olds: list[int],
    fresh: list[int],
    earlier: Mapping[int, Any],
) -> list[Span]:
    """Match elements that were changed in place with what they became."""
    if any(id(after[new]) in earlier for new in fresh):
        became: dict[int, int] = {}
        for new in fresh:
            became.setdefault(id(earlier.get(id(after[new]))), new)
        found = [(old, became[id(before[old])]) for old in olds if id(before[old]) in became]
    else:
        # no record: take the next element that keeps most of its fields, looking a little ahead
        found, start = [], 0
        for old in olds:
            ahead = range(start, min(start + _AHEAD, len(fresh)))
            near = next((at for at in ahead if _is_edited(before[old], after[fresh[at]])), None)
            if near is not None:
                found.append((old, fresh[near]))
                start = near + 1
    pairs: list[Span] = []
    for old, new in found:
        if _is_edited(before[old], after[new]) and (not pairs or new > pairs[-1][1]):
            pairs.append((old, new))
    return pairs


def _count_same(pairs: Iterable[tuple[Any, Any]]) -> int:
    """Return the number of pairs at the start that are the same object."""
    return next((at for at, (one, other) in enumerate(pairs) if one is not other), _ENDLESS)


def _is_edited(before: Any, after: Any) -> bool:
    """Whether one value is better described as edited than as replaced by the other."""
    if type(before) is not type(after):
        return False
    if type(before) is not dict:
        return type(before) is list or _same(before, after)
    kept = sum(
        key in after
        and (
            _same(value, after[key])
            if not isinstance(value, _NESTED)
            else type(value) is type(after[key])
        )
        for key, value in before.items()
    )
    return 2 * kept >= len(before) and (kept > 0 or not before)


def _same(before: Any, after: Any) -> bool:
    """Whether two values are the same JSON: true is not 1, and 1 is not 1.0."""
    if not isinstance(before, _NESTED) or type(before) is not type(after):
        return type(before) is type(after) and bool(before == after)
    try:
        return json.encode(before) == json.encode(after)
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return False


def _anchors(before: list[Any], after: list[Any]) -> list[tuple[int, int]]:
    """Return a long run of shared elements that keep their order in both lists."""
    where: dict[Any, list[int]] = {}
    for index, item in enumerate(before):
        where.setdefault(_key(item), []).append(index)
    uses: dict[Any, int] = {}
    tails: list[int] = []
    rows: list[tuple[int, int]] = []
    links: list[int] = []
    best: list[int] = []
    for new, item in enumerate(after):
        key = _key(item)
        places = where.get(key, [])
        use = uses.get(key, 0)
        if use >= len(places):
            continue
        uses[key] = use + 1
        # The longest increasing run, by patience sorting: ``tails`` holds the lowest end of each
        # length.
        at = bisect_left(tails, places[use])
        rows.append((places[use], new))
        links.append(best[at - 1] if at else -1)
        if at == len(tails):
            tails.append(places[use])
            best.append(len(rows) - 1)
        else:
            tails[at] = places[use]
            best[at] = len(rows) - 1
    chain: list[tuple[int, int]] = []
    link = best[-1] if best else -1
    while link >= 0:
        chain.append(rows[link])
        link = links[link]
    return chain[::-1]


def _key(item: Any) -> Any:
    """Return what identifies an element: its identity, or the value of a scalar."""
    is_scalar = isinstance(item, str | int | float | None)
    return (type(item), item) if is_scalar else id(item)


def _edit(op: str, path: Path, value: Any = UNSET) -> Edit:
    return Edit(op=op, place=".".join(map(str, path)), path=path, value=value)


def apply(edits: Iterable[Edit], before: Any) -> Any:
    """Return a value with the edits that were made for it applied; the rest is shared."""
    # places start with the name of the list, which a bare list does not have
    skip = 1 if isinstance(before, list) else 0
    tree = EditTree.of(edits, skip)

    def value_of(edit: Edit) -> Any:
        value = before
        for step in edit.source_path[skip:]:
            value = value[step]
        return value if edit.op == MOVE else edit.value

    return tree.apply_to(before, value_of)


class EditTree:
    """The edits at and below one place."""

    def __init__(self) -> None:
        self.below: dict[str | int, EditTree] = {}
        self.inserts: list[Edit] = []
        self.replacement: Edit | None = None
        self.deleted = False

    @classmethod
    def of(cls, edits: Iterable[Edit], skip: int = 0) -> EditTree:
        """Return the tree of edits, without the first ``skip`` steps of their paths."""
        tree = cls()
        for edit in edits:
            node = tree.reach(edit.path[skip:])
            if edit.op in (INSERT, MOVE):
                node.inserts.append(edit)
            elif edit.op == REPLACE:
                node.replacement = edit
            else:
                node.deleted = True
            if edit.op == MOVE:
                tree.reach(edit.source_path[skip:]).deleted = True
        return tree

    def reach(self, path: Path) -> EditTree:
        """Return the node at a path, and create it if it is missing."""
        node = self
        for step in path:
            node = node.below.setdefault(step, EditTree())
        return node

    def apply_to(self, value: Any, value_of: Any) -> Any:
        """Return the value with all edits at and below this place apply_to."""
        if self.replacement is not None:
            return self.replacement.value
        if not self.below:
            return value
        if isinstance(value, list):
            result: list[Any] = []
            last = max([len(value) - 1, *(s for s in self.below if isinstance(s, int))])
            for index in range(last + 1):
                node = self.below.get(index)
                if node is not None:
                    result += [value_of(edit) for edit in node.inserts]
                if index < len(value) and not (node is not None and node.deleted):
                    item = value[index]
                    result.append(item if node is None else node.apply_to(item, value_of))
            return result
        return self._apply_to_dict(value, value_of)

    def _apply_to_dict(self, value: dict[Any, Any], value_of: Any) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, item in value.items():
            node = self.below.get(key)
            if node is None:
                result[key] = item
            elif not node.deleted:
                result[key] = node.apply_to(item, value_of)
        for key, node in self.below.items():
            for edit in node.inserts:
                result[key] = value_of(edit)
        return result
