"""Edits: what changed between two bodies, in named places, and the way from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstitch.repair.edits import DELETE, INSERT, MOVE, REPLACE, Edit, apply, diff
from tests.together import Together

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from(["", "a", "b", "0"])
)
NAMES = st.sampled_from(["a", "b", "c", "0"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
BODIES = st.dictionaries(NAMES, VALUES, max_size=4)
BLOCKS = st.fixed_dictionaries({"type": st.sampled_from(["text", "call"]), "text": LEAVES})
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": st.lists(BLOCKS, max_size=3)}
)
REQUESTS = st.fixed_dictionaries({"model": LEAVES, "messages": st.lists(MESSAGES, max_size=5)})
REPEATABLE = settings(max_examples=3 * settings().max_examples)

Change = Callable[[list[Any], st.DrawFn], list[Any]]


def _without(items: list[Any], draw: st.DrawFn) -> list[Any]:
    at = draw(st.integers(0, max(len(items) - 1, 0)))
    return items[:at] + items[at + 1 :]


def _with(items: list[Any], draw: st.DrawFn) -> list[Any]:
    at = draw(st.integers(0, len(items)))
    return [*items[:at], draw(MESSAGES), *items[at:]]


def _moved(items: list[Any], draw: st.DrawFn) -> list[Any]:
    if not items:
        return items
    source = draw(st.integers(0, len(items) - 1))
    rest = items[:source] + items[source + 1 :]
    at = draw(st.integers(0, len(rest)))
    return [*rest[:at], items[source], *rest[at:]]


def _rewritten(items: list[Any], draw: st.DrawFn) -> list[Any]:
    if not items:
        return items
    at = draw(st.integers(0, len(items) - 1))
    blocks = list(items[at]["content"])
    if blocks and draw(st.booleans()):
        blocks = _moved(blocks, draw)
    else:
        blocks.insert(draw(st.integers(0, len(blocks))), draw(BLOCKS))
    return [*items[:at], {**items[at], "content": blocks}, *items[at + 1 :]]


def _lent(items: list[Any], draw: st.DrawFn) -> list[Any]:
    """A block moves from one message into another."""
    if not items or not items[0]["content"]:
        return items
    block, *rest = items[0]["content"]
    at = draw(st.integers(0, len(items) - 1))
    if at == 0:
        return items
    first, other = {**items[0], "content": rest}, items[at]
    there = {**other, "content": [*other["content"], block]}
    return [first, *items[1:at], there, *items[at + 1 :]]


CHANGES: list[Change] = [_without, _with, _moved, _rewritten, _lent]


@st.composite
def repairs(draw: st.DrawFn, changes: list[Change] = CHANGES) -> tuple[Any, Any]:
    """A request, and what a repair makes of it: untouched messages and blocks are shared."""
    before = draw(REQUESTS)
    messages = list(before["messages"])
    for change in draw(st.lists(st.sampled_from(changes), min_size=1, max_size=4)):
        messages = change(messages, draw)
    return before, {**before, "messages": messages}


def parts(value: Any) -> Iterator[Any]:
    """Every list and dict in a value, itself first."""
    if isinstance(value, list | dict):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from parts(inner)


@REPEATABLE
@given(BODIES, BODIES)
def test_any_body_becomes_any_other(before: Any, after: Any) -> None:
    copy = deepcopy(before)
    healed = apply(diff(before, after), before)
    assert healed == after
    assert before == copy
    # Keys that stay keep their order.
    assert [key for key in healed if key in before] == [key for key in after if key in before]


@REPEATABLE
@given(st.lists(VALUES, max_size=5), st.lists(VALUES, max_size=5))
def test_any_list_becomes_any_other(before: Any, after: Any) -> None:
    assert apply(diff(before, after, ("messages",)), before) == after


each = Together()


@REPEATABLE
@given(repairs())
def test_the_edits_of_any_repair(pair: tuple[Any, Any]) -> None:
    each.made(pair)


@each.check
def a_repair_is_reproduced(pair: tuple[Any, Any]) -> None:
    before, after = pair
    copy = deepcopy(before)
    assert apply(diff(before, after), before) == after
    assert before == copy


@each.check
def what_a_repair_left_alone_is_shared(pair: tuple[Any, Any]) -> None:
    before, after = pair
    healed = apply(diff(before, after), before)
    old = {id(part) for part in parts(before)}
    for mine, theirs in zip(healed["messages"], after["messages"], strict=True):
        if id(theirs) in old:
            assert mine is theirs


@REPEATABLE
@given(repairs(changes=[_rewritten]))
def test_what_a_rewritten_message_kept_is_shared(pair: tuple[Any, Any]) -> None:
    before, after = pair
    healed = apply(diff(before, after), before)
    old = {id(part) for part in parts(before)}
    for mine, theirs in zip(healed["messages"], after["messages"], strict=True):
        blocks = zip(mine["content"], theirs["content"], strict=True)
        assert all(one is other for one, other in blocks if id(other) in old)


@each.check
def edits_of_a_bare_list_are_those_of_its_body(pair: tuple[Any, Any]) -> None:
    before, after = pair
    edits = diff(before["messages"], after["messages"], ("messages",))
    assert edits == diff(before, after)
    assert apply(edits, before["messages"]) == after["messages"]
    assert apply(edits, before) == after


@each.check
def every_edit_names_a_place_of_the_original(pair: tuple[Any, Any]) -> None:
    before, after = pair
    for edit in diff(before, after):
        assert edit.place == ".".join(map(str, edit.path))
        holder = _at(before, edit.path[:-1])
        last = edit.path[-1]
        if edit.op in (REPLACE, DELETE):
            assert last in holder if isinstance(holder, dict) else last < len(holder)
        elif isinstance(holder, list):
            assert last <= len(holder)
        if edit.op == MOVE:
            assert edit.source == ".".join(map(str, edit.source_path))
            _at(before, edit.source_path)


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@REPEATABLE
@given(BODIES)
def test_no_change_is_no_edit(body: Any) -> None:
    assert diff(body, body) == []
    assert diff(body, deepcopy(body)) == []
    assert apply([], body) is body


@each.check
def applying_is_repeatable(pair: tuple[Any, Any]) -> None:
    before, after = pair
    edits = diff(before, after)
    assert apply(edits, before) == apply(edits, before)
    assert apply(iter(edits), before) == after


def _shapes(edits: list[Edit]) -> list[tuple[str, ...]]:
    return [
        (edit.op, edit.place) if edit.op != MOVE else (edit.op, edit.source, edit.place)
        for edit in edits
    ]


def _say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


ONE, TWO, THREE = _say("one"), _say("two"), _say("three")


@pytest.mark.parametrize(
    ("after", "edits"),
    [
        ([ONE, TWO], [(DELETE, "messages.2")]),
        ([ONE, THREE], [(DELETE, "messages.1")]),
        ([ONE, TWO, THREE, _say("4")], [(INSERT, "messages.3")]),
        ([_say("0"), ONE, TWO, THREE], [(INSERT, "messages.0")]),
        ([ONE, THREE, TWO], [(MOVE, "messages.2", "messages.1")]),
        ([], [(DELETE, "messages.0"), (DELETE, "messages.1"), (DELETE, "messages.2")]),
        ([ONE, {**TWO, "role": "assistant"}, THREE], [(REPLACE, "messages.1.role")]),
        ([ONE, {**TWO, "name": "Ann"}, THREE], [(INSERT, "messages.1.name")]),
        ([ONE, {"content": TWO["content"]}, THREE], [(DELETE, "messages.1.role")]),
    ],
    ids=lambda value: " ".join(value[0]) if value and isinstance(value[0], tuple) else "",
)
def test_the_smallest_place_is_named(after: list[Any], edits: list[tuple[str, ...]]) -> None:
    before = {"messages": [ONE, TWO, THREE]}
    made = diff(before, {"messages": after})
    assert _shapes(made) == edits
    assert apply(made, before) == {"messages": after}


def test_several_inserts_at_one_place_keep_their_order() -> None:
    before = {"messages": [ONE]}
    after = {"messages": [TWO, THREE, ONE]}
    edits = diff(before, after)
    assert _shapes(edits) == [(INSERT, "messages.0"), (INSERT, "messages.0")]
    assert apply(edits, before) == after


def test_a_block_that_changes_its_message_is_moved() -> None:
    block = {"type": "image"}
    before = {"messages": [{"role": "user", "content": [block, {"type": "text"}]}, TWO]}
    first = {**before["messages"][0], "content": before["messages"][0]["content"][1:]}
    second = {**TWO, "content": [*TWO["content"], block]}
    after = {"messages": [first, second]}
    edits = diff(before, after)
    assert _shapes(edits) == [(MOVE, "messages.0.content.0", "messages.1.content.1")]
    healed = apply(edits, before)
    assert healed == after
    assert healed["messages"][1]["content"][1] is block


def test_moves_carry_no_value() -> None:
    (move,) = diff([ONE, TWO], [TWO, ONE], ("messages",))
    assert move.op == MOVE
    assert "one" not in repr(move)
    assert "two" not in repr(move)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([ONE, TWO, ONE], [ONE, ONE]),
        ([ONE, TWO, ONE], [TWO, ONE]),
        ([ONE, TWO, ONE], [TWO]),
        ([ONE, ONE], [ONE]),
        ([ONE, ONE, TWO], [TWO, ONE]),
        ([ONE, ONE, TWO], [TWO, ONE, ONE]),
        ([TWO, ONE, ONE], [ONE, TWO, ONE]),
        ([ONE], [ONE, ONE]),
        ([ONE, TWO], [TWO, ONE, TWO, ONE]),
    ],
)
def test_one_object_in_several_places(before: list[Any], after: list[Any]) -> None:
    """A program may put the very same message into its list more than once."""
    edits = diff(before, after, ("messages",))
    assert apply(edits, before) == after


@REPEATABLE
@given(st.lists(st.integers(0, 3), max_size=7), st.lists(st.integers(0, 4), max_size=7))
def test_any_arrangement_of_shared_objects(before: list[int], after: list[int]) -> None:
    pool = [_say(str(number)) for number in range(5)]
    old, new = [pool[n] for n in before], [pool[n] for n in after]
    assert apply(diff(old, new, ("messages",)), old) == new


@REPEATABLE
@given(st.permutations(range(6)), st.permutations(range(6)), st.integers(0, 6))
def test_any_rearrangement_hands_the_same_objects_back(
    before: list[int], after: list[int], count: int
) -> None:
    pool = [_say(str(number)) for number in range(6)]
    old, new = [pool[n] for n in before], [pool[n] for n in after[:count]]
    healed = apply(diff(old, new, ("messages",)), old)
    assert [id(message) for message in healed] == [id(message) for message in new]


def test_true_is_not_one() -> None:
    before, after = {"a": 1, "b": True, "c": 0}, {"a": True, "b": 1, "c": 0.0}
    healed = apply(diff(before, after), before)
    assert [type(value) for value in healed.values()] == [bool, int, float]


def test_null_is_not_missing() -> None:
    before, after = {"a": None}, {}
    assert apply(diff(before, after), before) == {}
    assert apply(diff(after, before), after) == before


def test_keys_keep_their_order() -> None:
    before = {"b": 1, "a": [ONE], "c": 2}
    after = {"b": 1, "a": [ONE, TWO], "c": 2}
    assert list(apply(diff(before, after), before)) == ["b", "a", "c"]
    swapped = {"a": 1, "b": 2}
    assert list(apply(diff({"b": 2, "a": 1}, swapped), {"b": 2, "a": 1})) == ["a", "b"]


def test_deep_nesting_is_no_obstacle() -> None:
    deep: Any = "bottom"
    for _ in range(400):
        deep = [deep]
    before, after = {"a": deep, "b": 1}, {"a": deep, "b": 2}
    healed = apply(diff(before, after), before)
    assert healed["b"] == 2
    assert healed["a"] is deep


def test_long_lists_need_few_edits() -> None:
    before = [_say(str(number)) for number in range(5_000)]
    after = [*before[:100], *before[101:4_000], _say("new"), *before[4_000:]]
    edits = diff(before, after, ("messages",))
    assert _shapes(edits) == [(DELETE, "messages.100"), (INSERT, "messages.4000")]
    assert apply(edits, before) == after
