"""Edits: the difference between a list and its repaired copy, in named places.

Untouched values are shared between the two, so identity tells what stayed, and every edit names
the smallest place that differs. All places are in the original's coordinates.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from msgspec import UNSET, Struct, json, structs

from lockstitch.conversation.parts import Path

INSERT = "insert"
REPLACE = "replace"
DELETE = "delete"
MOVE = "move"
# How far a changed element is looked for among its successors.
_AHEAD = 16
_ENDLESS = sys.maxsize


class Edit(Struct, frozen=True, kw_only=True):
    """One change: what stands at ``place`` afterwards.

    An insert goes in front of what stands at ``place`` in the original (behind the last element
    for the first free index); several inserts at one place keep their order.
    A move takes the value from ``source``.
    """

    op: str
    place: str
    path: Path
    value: Any = UNSET
    source: str = ""
    source_path: Path = ()


def diff(before: Any, after: Any, root: Path = ()) -> list[Edit]:
    """Give the edits that turn one value into the other."""
    edits: list[Edit] = []
    _compare(before, after, root, edits)
    return _with_moves(edits)


def _compare(before: Any, after: Any, path: Path, edits: list[Edit]) -> None:
    if before is after:
        return
    if type(before) is dict and type(after) is dict:
        _compare_dicts(before, after, path, edits)
    elif type(before) is list and type(after) is list:
        _compare_lists(before, after, path, edits)
    elif not _same(before, after):
        edits.append(_edit(REPLACE, path, after))


def _compare_dicts(
    before: dict[Any, Any], after: dict[Any, Any], path: Path, edits: list[Edit]
) -> None:
    if list(before) != [key for key in after if key in before] or any(
        k not in after for k in before
    ):
        kept = [key for key in before if key in after]
        if kept != [key for key in after if key in before]:
            edits.append(_edit(REPLACE, path, after))
            return
        edits += [_edit(DELETE, (*path, key)) for key in before if key not in after]
    for key, value in after.items():
        if key in before:
            _compare(before[key], value, (*path, key), edits)
        else:
            edits.append(_edit(INSERT, (*path, key), value))


def _compare_lists(before: list[Any], after: list[Any], path: Path, edits: list[Edit]) -> None:
    most = min(len(before), len(after))
    head = min(most, _alike(zip(before, after, strict=False)))
    most -= head
    tail = min(most, _alike(zip(reversed(before), reversed(after), strict=False)))
    stop_old, stop_new = len(before) - tail, len(after) - tail
    olds, news = before[head:stop_old], after[head:stop_new]
    lists = _Lists(before, after, _ids(olds) & _ids(news))
    old = new = head
    anchors = [(head + one, head + other) for one, other in _anchors(olds, news)]
    for end_old, end_new in [*anchors, (stop_old, stop_new)]:
        _compare_gap(lists, (old, end_old), (new, end_new), path, edits)
        old, new = end_old + 1, end_new + 1


def _alike(pairs: Iterable[tuple[Any, Any]]) -> int:
    """Count the pairs at the start that are one and the same object."""
    return next((at for at, (one, other) in enumerate(pairs) if one is not other), _ENDLESS)


Span = tuple[int, int]


class _Lists(Struct):
    """Two lists under comparison, and the identities they share."""

    before: list[Any]
    after: list[Any]
    shared: set[int]


def _ids(items: list[Any]) -> set[int]:
    return {id(item) for item in items if _has_identity(item)}


def _compare_gap(lists: _Lists, olds: Span, news: Span, path: Path, edits: list[Edit]) -> None:
    """Compare what stands between two anchors: pairs first, then the surplus of either side."""
    before, after = lists.before, lists.after
    old, new = olds[0], news[0]
    for stop_old, stop_new in [*_pairs(lists, olds, news), (olds[1], news[1])]:
        edits += [_edit(DELETE, (*path, i), before[i]) for i in range(old, stop_old)]
        edits += [_edit(INSERT, (*path, stop_old), after[i]) for i in range(new, stop_new)]
        if (stop_old, stop_new) != (olds[1], news[1]):
            _compare(before[stop_old], after[stop_new], (*path, stop_old), edits)
        old, new = stop_old + 1, stop_new + 1


def _pairs(lists: _Lists, olds: Span, news: Span) -> list[tuple[int, int]]:
    """Match changed elements with what they became, looking a little ahead.

    An element that both lists hold was moved, not changed.
    """
    before, after, shared = lists.before, lists.after, lists.shared
    pairs: list[tuple[int, int]] = []
    start = news[0]
    for old in range(*olds):
        ahead = range(start, min(start + _AHEAD, news[1]))
        fresh = (new for new in ahead if id(after[new]) not in shared)
        match = next((new for new in fresh if _akin(before[old], after[new])), None)
        if match is not None and id(before[old]) not in shared:
            pairs.append((old, match))
            start = match + 1
    return pairs


def _akin(before: Any, after: Any) -> bool:
    """Tell whether one value is plausibly the edited form of the other, or its equal."""
    if type(before) is not type(after):
        return False
    if type(before) is not dict:
        return before is after or _same(before, after)
    shared = [key for key in before if key in after and _shares(before[key], after[key])]
    return len(shared) * 2 >= len(before) and (bool(shared) or not before)


def _shares(before: Any, after: Any) -> bool:
    if before is after:
        return True
    if type(before) is list and type(after) is list:
        mine = {id(item) for item in before}
        return any(id(item) in mine for item in after) or _same(before, after)
    if type(before) is dict and type(after) is dict:
        return _akin(before, after)
    return _same(before, after)


def _same(before: Any, after: Any) -> bool:
    """Tell whether two values are the same JSON: true is not 1, and 1 is not 1.0."""
    if not _has_identity(before) or type(before) is not type(after):
        return type(before) is type(after) and bool(before == after)
    try:
        return json.encode(before) == json.encode(after)
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return False


def _anchors(before: list[Any], after: list[Any]) -> list[tuple[int, int]]:
    """Give a long run of shared elements that keeps its order in both lists."""
    where: dict[int, list[int]] = {}
    for index, item in enumerate(before):
        if _has_identity(item):
            where.setdefault(id(item), []).append(index)
    uses: dict[int, int] = {}
    tails: list[int] = []
    rows: list[tuple[int, int]] = []
    links: list[int] = []
    best: list[int] = []
    for new, item in enumerate(after):
        places = where.get(id(item), [])
        use = uses.get(id(item), 0)
        if use >= len(places):
            continue
        uses[id(item)] = use + 1
        at = bisect_left(tails, places[use])
        rows.append((places[use], new))
        links.append(best[at - 1] if at else -1)
        if at == len(tails):
            tails.append(places[use])
            best.append(len(rows) - 1)
        else:
            tails[at] = places[use]
            best[at] = len(rows) - 1
    return _traced(rows, links, best[-1] if best else -1)


def _traced(rows: list[tuple[int, int]], links: list[int], at: int) -> list[tuple[int, int]]:
    chain: list[tuple[int, int]] = []
    while at >= 0:
        chain.append(rows[at])
        at = links[at]
    return chain[::-1]


def _has_identity(item: Any) -> bool:
    """Small values are shared by the interpreter, so their identity says nothing."""
    return isinstance(item, (dict, list))


def _edit(op: str, path: Path, value: Any = UNSET) -> Edit:
    return Edit(op=op, place=".".join(map(str, path)), path=path, value=value)


def _with_moves(edits: list[Edit]) -> list[Edit]:
    """Turn a delete and an insert of the same object into one move."""
    gone: dict[int, list[Edit]] = {}
    for edit in edits:
        if edit.op == DELETE and _has_identity(edit.value):
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


def apply(edits: Iterable[Edit], before: Any) -> Any:
    """Apply edits to the list or body they were made for; untouched values are shared."""
    # places start with the name of the list, which a bare list does not contain
    skip = 1 if isinstance(before, list) else 0
    tree = _EditTree()
    for edit in edits:
        tree.add(edit, edit.path[skip:])
        if edit.op == MOVE:
            tree.reach(edit.source_path[skip:]).deleted = True
    return tree.applied(before, lambda edit: _value_of(edit, before, skip))


def _value_of(edit: Edit, before: Any, skip: int) -> Any:
    if edit.op != MOVE:
        return edit.value
    value = before
    for step in edit.source_path[skip:]:
        value = value[step]
    return value


class _EditTree:
    """The edits at and below one place."""

    def __init__(self) -> None:
        self.below: dict[str | int, _EditTree] = {}
        self.inserts: list[Edit] = []
        self.replacement: Edit | None = None
        self.deleted = False

    def reach(self, path: Path) -> _EditTree:
        """Give the node at a path, made where it is missing."""
        node = self
        for step in path:
            node = node.below.setdefault(step, _EditTree())
        return node

    def add(self, edit: Edit, path: Path) -> None:
        """Hang an edit where it belongs."""
        node = self.reach(path)
        if edit.op in (INSERT, MOVE):
            node.inserts.append(edit)
        elif edit.op == REPLACE:
            node.replacement = edit
        else:
            node.deleted = True

    def applied(self, value: Any, value_of: Any) -> Any:
        """Give the value with everything below this place applied."""
        if self.replacement is not None:
            return self.replacement.value
        if not self.below:
            return value
        if isinstance(value, list):
            return self._applied_list(value, value_of)
        return self._applied_dict(value, value_of)

    def _applied_list(self, value: list[Any], value_of: Any) -> list[Any]:
        result: list[Any] = []
        last = max([len(value) - 1, *(s for s in self.below if isinstance(s, int))])
        for index in range(last + 1):
            node = self.below.get(index)
            if node is not None:
                result += [value_of(edit) for edit in node.inserts]
            if index < len(value) and not (node is not None and node.deleted):
                item = value[index]
                result.append(item if node is None else node.applied(item, value_of))
        return result

    def _applied_dict(self, value: dict[Any, Any], value_of: Any) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, item in value.items():
            node = self.below.get(key)
            if node is None:
                result[key] = item
            elif not node.deleted:
                result[key] = node.applied(item, value_of)
        for key, node in self.below.items():
            for edit in node.inserts:
                result[key] = value_of(edit)
        return result
