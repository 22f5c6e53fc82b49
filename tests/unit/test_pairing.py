"""Which result answers which call: single cases, a slow reference, and the number of looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstitch.conversation.pairing import (
    ANSWER,
    DUPLICATE,
    ORPHAN,
    PairedCall,
    PairedResult,
    Zone,
    pair_results,
)
from lockstitch.conversation.parts import CALL, RESULT, Part

LOST = "lost"
# No zone, and no call or result.
NOWHERE = -1


class PairingSlot(NamedTuple):
    """A call or a result: its order, the number of its zone, its key and its alias."""

    order: int
    zone: int
    key: str
    alias: str = ""


class Pairing(NamedTuple):
    """What pairing found out, in numbers of calls and results."""

    answers: list[int]
    owners: list[int]
    verdicts: list[str]
    displaced: set[int]
    masked: dict[int, int]


class Reader:
    """Says of results what a dialect would; what they say is their raw value."""

    ids_are_optional = False

    def same_result(self, first: Part, second: Part) -> bool:
        return bool(first.raw == second.raw)

    def is_placeholder(self, part: Part) -> bool:
        return bool(part.raw == LOST)


class Talk(NamedTuple):
    """Calls and results in the order of the conversation; ``texts`` are what the results say."""

    calls: list[PairingSlot]
    results: list[PairingSlot]
    texts: list[str]


def talk(*slots: tuple[str, int, str] | tuple[str, int, str, str]) -> Talk:
    """Slots as (call or text, zone, key[, alias]); whatever is not "call" is a result's text."""
    calls, results, texts = [], [], []
    for order, (what, *rest) in enumerate(slots, 1):
        slot = PairingSlot(order, *rest)
        if what == "call":
            calls.append(slot)
        else:
            results.append(slot)
            texts.append(what)
    return Talk(calls, results, texts)


def pair(made: Talk, reader: Reader | None = None) -> Pairing:
    """Pair, and say in numbers what came of it."""
    zones: dict[int, Zone | None] = {NOWHERE: None}
    for slot in (*made.calls, *made.results):
        zones.setdefault(slot.zone, Zone(slot.zone))
    calls = [
        PairedCall(Part(CALL, None), order, zones[zone], key, alias)
        for order, zone, key, alias in made.calls
    ]
    results = [
        PairedResult(Part(RESULT, text), 0, order, zones[zone], key, alias)
        for text, (order, zone, key, alias) in zip(made.texts, made.results, strict=True)
    ]
    pair_results(calls, results, reader or Reader())
    number_of = {id(one.part): number for number, one in enumerate(calls)}
    rank = {one: number for number, one in enumerate(results)}
    for one in results:
        assert not (one.is_displaced or one.is_masking) or one.call is not None
        # a duplicate knows what its call is answered with, and nothing else does
        known = calls[number_of[id(one.call)]].answer if one.verdict == DUPLICATE else None
        assert one.answer is known
    return Pairing(
        [NOWHERE if one.answer is None else rank[one.answer] for one in calls],
        [NOWHERE if one.call is None else number_of[id(one.call)] for one in results],
        [one.verdict for one in results],
        {number for number, one in enumerate(results) if one.is_displaced},
        {rank[one]: rank[one.answer] for one in results if one.is_masking and one.answer},
    )


def paired(*slots: tuple[str, int, str] | tuple[str, int, str, str]) -> Pairing:
    return pair(talk(*slots))


def test_nothing_to_pair() -> None:
    assert paired() == Pairing([], [], [], set(), {})


def test_results_that_line_up() -> None:
    pairing = paired(("call", 0, "a"), ("call", 0, "b"), ("x", 0, "a"), ("y", 0, "b"))
    assert pairing == Pairing([0, 1], [0, 1], [ANSWER, ANSWER], set(), {})


def test_results_in_another_order() -> None:
    pairing = paired(("call", 0, "a"), ("call", 0, "b"), ("y", 0, "b"), ("x", 0, "a"))
    assert pairing == Pairing([1, 0], [1, 0], [ANSWER, ANSWER], set(), {})


def test_an_open_call() -> None:
    assert paired(("call", 0, "a")) == Pairing([NOWHERE], [], [], set(), {})


def test_an_orphan() -> None:
    assert paired(("x", NOWHERE, "a")) == Pairing([], [NOWHERE], [ORPHAN], set(), {})


def test_one_id_in_every_turn_is_paired_by_position() -> None:
    turns = [slot for zone in range(3) for slot in (("call", zone, "a"), (f"{zone}", zone, "a"))]
    assert paired(*turns) == Pairing([0, 1, 2], [0, 1, 2], [ANSWER] * 3, set(), {})


def test_one_id_twice_in_a_turn_is_first_in_first_out() -> None:
    pairing = paired(("call", 0, "a"), ("call", 0, "a"), ("x", 0, "a"), ("y", 0, "a"))
    assert pairing.answers == [0, 1]


def test_a_missing_turn_does_not_shift_the_others() -> None:
    pairing = paired(("call", 0, "a"), ("call", 1, "a"), ("x", 1, "a"))
    assert pairing == Pairing([NOWHERE, 0], [1], [ANSWER], set(), {})


def test_a_displaced_result_goes_to_the_latest_call_before_it() -> None:
    pairing = paired(("call", 0, "a"), ("call", 1, "a"), ("x", NOWHERE, "a"))
    assert pairing == Pairing([NOWHERE, 0], [1], [ANSWER], {0}, {})


def test_a_displaced_result_goes_to_the_only_open_call() -> None:
    pairing = paired(("call", 0, "a"), ("call", 1, "a"), ("x", 1, "a"), ("y", NOWHERE, "a"))
    assert pairing == Pairing([1, 0], [1, 0], [ANSWER, ANSWER], {1}, {})


def test_a_displaced_result_is_not_guessed_among_several_open_calls() -> None:
    pairing = paired(
        ("call", 0, "a"), ("call", 1, "a"), ("call", 2, "a"), ("x", 2, "a"), ("y", NOWHERE, "a")
    )
    assert (pairing.answers, pairing.verdicts) == ([NOWHERE, NOWHERE, 0], [ANSWER, DUPLICATE])
    assert pairing.owners == [2, 2]


def test_a_displaced_repeat_is_not_taken_for_the_answer_of_another_call() -> None:
    pairing = paired(("call", 0, "a"), ("call", 1, "a"), ("x", 1, "a"), ("x", NOWHERE, "a"))
    assert (pairing.answers, pairing.verdicts) == ([NOWHERE, 0], [ANSWER, DUPLICATE])


def test_a_result_before_its_call() -> None:
    pairing = paired(("x", NOWHERE, "a"), ("call", 0, "a"))
    assert pairing == Pairing([0], [0], [ANSWER], {0}, {})


def test_a_repeat_is_a_duplicate_of_the_call_it_repeats() -> None:
    pairing = paired(("call", 0, "a"), ("x", 0, "a"), ("x", 0, "a"))
    assert pairing == Pairing([0], [0, 0], [ANSWER, DUPLICATE], set(), {})


@pytest.mark.parametrize("zone", [0, NOWHERE])
def test_a_real_result_takes_the_place_of_a_placeholder(zone: int) -> None:
    pairing = paired(("call", 0, "a"), (LOST, 0, "a"), ("x", zone, "a"))
    displaced = set() if zone == 0 else {1}
    assert pairing == Pairing([1], [0, 0], [DUPLICATE, ANSWER], displaced, {0: 1})


def test_a_placeholder_takes_no_place() -> None:
    pairing = paired(("call", 0, "a"), ("x", 0, "a"), (LOST, 0, "a"))
    assert pairing == Pairing([0], [0, 0], [ANSWER, DUPLICATE], set(), {})


def test_a_second_placeholder_takes_no_place() -> None:
    pairing = paired(("call", 0, "a"), (LOST, 0, "a"), (LOST, NOWHERE, "a"))
    assert pairing == Pairing([0], [0, 0], [ANSWER, DUPLICATE], set(), {})


def test_a_placeholder_does_not_open_a_call_while_another_is_open() -> None:
    pairing = paired(
        ("call", 0, "a"), ("call", 1, "a"), (LOST, 1, "a"), ("call", 2, "a"), ("x", 2, "a"),
        ("y", NOWHERE, "a"),
    )  # fmt: skip
    assert pairing.answers == [2, 0, 1]


def test_a_call_without_an_id_is_paired_inside_its_zone() -> None:
    assert paired(("call", 0, ""), ("x", 0, "")).answers == [0]
    assert paired(("call", 0, "a"), ("x", 0, "")).answers == [0]


def test_a_result_without_an_id_is_not_moved() -> None:
    pairing = paired(("call", 0, ""), ("x", NOWHERE, ""))
    assert pairing == Pairing([NOWHERE], [NOWHERE], [ORPHAN], set(), {})


def test_a_name_stands_in_for_an_id() -> None:
    """One of the two has an id, the other only the name of its tool."""
    assert paired(("call", 0, "a", "f"), ("x", 0, "f", "f")).answers == [0]
    assert paired(("call", 0, "f", "f"), ("x", 0, "a", "f")).answers == [0]


def test_a_name_does_not_overrule_two_ids() -> None:
    pairing = paired(("call", 0, "a", "f"), ("x", 0, "b", "f"))
    assert (pairing.answers, pairing.verdicts) == ([NOWHERE], [ORPHAN])


def test_a_name_says_nothing_of_calls_that_come_later() -> None:
    """What stands before them is what it was before they came: prefixes stay as they are."""
    pairing = paired(("x", NOWHERE, "f", "f"), ("call", 0, "f", "f"), ("y", 0, "f", "f"))
    assert (pairing.answers, pairing.verdicts) == ([1], [ORPHAN, ANSWER])


def test_results_of_one_tool_are_first_in_first_out() -> None:
    pairing = paired(
        ("call", 0, "f", "f"), ("call", 0, "f", "f"), ("x", 0, "f", "f"), ("y", 0, "f", "f")
    )
    assert pairing.answers == [0, 1]


class Reference:
    """The three steps of the module's docstring, in the slowest and plainest words.

    Where the docstring leaves it open: an unanswered call comes before one that only a
    placeholder answers, and a result that repeats the latest call's answer word for word is that
    answer again, not the answer of some other call.
    """

    def __init__(self, made: Talk) -> None:
        self.made = made
        self.answer: dict[int, int] = {}
        self.owner: dict[int, int] = {}
        self.verdict: dict[int, str] = {}
        self.displaced: set[int] = set()
        self.masked: dict[int, int] = {}

    def pairing(self) -> Pairing:
        results = range(len(self.made.results))
        for step in (self.by_key, self.by_name, self.by_place, self.from_afar):
            for result in results:
                if result not in self.verdict:
                    step(result)
        return Pairing(
            [self.answer.get(call, NOWHERE) for call in range(len(self.made.calls))],
            [self.owner.get(result, NOWHERE) for result in results],
            [self.verdict[result] for result in results],
            self.displaced,
            self.masked,
        )

    def is_lost(self, result: int) -> bool:
        return self.made.texts[result] == LOST

    def is_masked(self, call: int) -> bool:
        return call in self.answer and self.is_lost(self.answer[call])

    def repeats(self, result: int, call: int) -> bool:
        texts = self.made.texts
        return call in self.answer and texts[self.answer[call]] == texts[result]

    def calls(self, fits: Callable[[PairingSlot], bool]) -> list[int]:
        return [number for number, call in enumerate(self.made.calls) if fits(call)]

    def first_open(self, calls: list[int], result: int) -> int | None:
        idle = [call for call in calls if call not in self.answer]
        masked = [call for call in calls if self.is_masked(call) and not self.is_lost(result)]
        return next(iter(idle + masked), None)

    def give(self, result: int, call: int) -> None:
        if call in self.answer:
            before = self.answer[call]
            self.verdict[before] = DUPLICATE
            self.displaced.discard(before)
            self.masked[before] = result
        self.answer[call] = result
        self.owner[result] = call
        self.verdict[result] = ANSWER

    def claim(self, result: int, calls: list[int]) -> None:
        call = self.first_open(calls, result)
        if call is not None:
            self.give(result, call)
        elif calls:
            twins = [call for call in calls if self.repeats(result, call)]
            self.owner[result] = (twins or calls)[0]
            self.verdict[result] = DUPLICATE

    def by_key(self, result: int) -> None:
        """A result that names a call is one of the calls of its zone with that id."""
        slot = self.made.results[result]
        if slot.zone != NOWHERE and slot.key != slot.alias:
            named = self.calls(lambda call: call.zone == slot.zone and call.key == slot.key)
            alike = [c for c in named if self.made.calls[c].alias == slot.alias]
            self.claim(result, alike or named)

    def by_name(self, result: int) -> None:
        """Where result or call has no id, the name of the tool decides."""
        slot = self.made.results[result]
        if slot.zone == NOWHERE or not slot.alias:
            return
        zone = self.calls(lambda call: call.zone == slot.zone and call.alias == slot.alias)
        one_lacks_an_id = [
            number for number in zone if slot.alias in (slot.key, self.made.calls[number].key)
        ]
        self.claim(result, one_lacks_an_id)

    def by_place(self, result: int) -> None:
        slot = self.made.results[result]
        if slot.key or slot.zone == NOWHERE:
            return
        idle = [c for c in self.calls(lambda c: c.zone == slot.zone) if c not in self.answer]
        if idle:
            self.give(result, idle[0])

    def from_afar(self, result: int) -> None:
        slot = self.made.results[result]
        calls = self.calls(lambda call: bool(slot.key) and call.key == slot.key)
        earlier = [call for call in calls if self.made.calls[call].order < slot.order]
        owner = self.distant_owner(result, calls, earlier)
        if owner is not None:
            self.give(result, owner)
            self.displaced.add(result)
            return
        only_named = slot.key == slot.alias and not earlier
        answered = [call for call in earlier[-1:] + calls if call in self.answer and not only_named]
        if answered:
            self.owner[result] = answered[0]
        self.verdict[result] = DUPLICATE if answered else ORPHAN

    def distant_owner(self, result: int, calls: list[int], earlier: list[int]) -> int | None:
        if earlier:
            latest = self.first_open(earlier[-1:], result)
            if latest is not None:
                return latest
            if self.repeats(result, earlier[-1]):
                return None
        idle = [call for call in calls if call not in self.answer]
        masked = [call for call in calls if self.is_masked(call) and not self.is_lost(result)]
        return next(
            (some[0] for some in (idle, masked if not idle else []) if len(some) == 1), None
        )


TEXTS = st.sampled_from(["x", "x", "y", LOST])
KEYS = st.sampled_from(["a", "a", "b", ""])


@st.composite
def turns(draw: st.DrawFn) -> Talk:
    """Turns as of Anthropic or OpenAI Chat: a result's zone is the turn before it, or none."""
    slots: list[tuple[str, int, str]] = []
    results = st.lists(st.tuples(TEXTS, st.booleans(), KEYS), max_size=4)
    for text, _, key in draw(results):
        slots.append((text, NOWHERE, key))
    for zone in range(draw(st.integers(1, 4))):
        slots += [("call", zone, key) for key in draw(st.lists(KEYS, min_size=1, max_size=3))]
        slots += [(text, zone if near else NOWHERE, key) for text, near, key in draw(results)]
    return talk(*slots)


@st.composite
def items(draw: st.DrawFn) -> Talk:
    """Items as of the Responses API: a result's zone is that of the latest call with its key."""
    slots: list[tuple[str, int, str]] = []
    latest: dict[str, int] = {}
    zone = NOWHERE
    for is_call, key, text in draw(st.lists(st.tuples(st.booleans(), KEYS, TEXTS), max_size=12)):
        if is_call:
            if not slots or slots[-1][0] != "call":
                zone += 1
            latest[key] = zone
        slots.append(("call" if is_call else text, latest.get(key, NOWHERE), key))
    return talk(*slots)


@st.composite
def named(draw: st.DrawFn) -> Talk:
    """Turns as of Gemini: ids are optional, tools have names."""
    slots: list[tuple[str, int, str, str]] = []
    part = st.tuples(st.sampled_from(["a", "b", None, None]), st.sampled_from(["f", "g"]))
    for zone in range(draw(st.integers(1, 3))):
        for key, name in draw(st.lists(part, min_size=1, max_size=3)):
            slots.append(("call", zone, key or name, name))
        for (key, name), text, near in draw(
            st.lists(st.tuples(part, TEXTS, st.booleans()), max_size=4)
        ):
            slots.append((text, zone if near else NOWHERE, key or name, name))
    return talk(*slots)


ANY = st.one_of(turns(), items(), named())
REPEATABLE = settings(max_examples=4 * settings().max_examples)


@REPEATABLE
@given(ANY)
def test_the_reference_says_the_same(made: Talk) -> None:
    assert pair(made) == Reference(made).pairing()


@REPEATABLE
@given(ANY)
def test_what_always_holds(made: Talk) -> None:
    pairing = pair(made)
    given_away = [answer for answer in pairing.answers if answer != NOWHERE]
    assert len(given_away) == len(set(given_away)), "one result answers two calls"
    assert set(pairing.verdicts) <= {ANSWER, DUPLICATE, ORPHAN}
    for result, (owner, verdict) in enumerate(zip(pairing.owners, pairing.verdicts, strict=True)):
        assert (owner == NOWHERE) == (verdict == ORPHAN)
        assert (verdict == ANSWER) == (owner != NOWHERE and pairing.answers[owner] == result)
        if verdict == DUPLICATE:
            assert pairing.answers[owner] != NOWHERE, "a duplicate of nothing"
    assert all(pairing.verdicts[result] == ANSWER for result in pairing.displaced)
    for hidden, real in pairing.masked.items():
        assert (made.texts[hidden], pairing.verdicts[hidden]) == (LOST, DUPLICATE)
        assert made.texts[real] != LOST


@REPEATABLE
@given(st.one_of(turns(), items()))
def test_a_placeholder_never_stands_before_the_real_result_of_an_id_used_once(made: Talk) -> None:
    pairing = pair(made)
    keys = [call.key for call in made.calls]
    for number, call in enumerate(made.calls):
        named = [r for r, slot in enumerate(made.results) if slot.key == call.key != ""]
        if keys.count(call.key) == 1 and any(made.texts[result] != LOST for result in named):
            assert made.texts[pairing.answers[number]] != LOST


class Counter(Reader):
    """Counts how often pairing asks about a result."""

    def __init__(self, *, same: bool = False, lost: bool = False) -> None:
        self.looks = 0
        self.same = same
        self.lost = lost

    def same_result(self, first: Part, second: Part) -> bool:
        self.looks += 1
        return self.same

    def is_placeholder(self, part: Part) -> bool:
        self.looks += 1
        return self.lost


MANY = 20_000


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("lost", [False, True])
def test_displaced_results_of_one_reused_id_are_linear(*, same: bool, lost: bool) -> None:
    calls = [PairingSlot(order, order, "a") for order in range(MANY)]
    results = [PairingSlot(MANY + order, NOWHERE, "a") for order in range(MANY)]
    counter = Counter(same=same, lost=lost)
    pairing = pair(Talk(calls, results, [""] * len(results)), counter)
    assert len(pairing.verdicts) == MANY
    assert pairing.verdicts.count(ORPHAN) == 0
    assert counter.looks <= 6 * MANY


def test_each_displaced_result_behind_its_own_call_is_linear() -> None:
    calls = [PairingSlot(2 * turn, turn, "a") for turn in range(MANY)]
    results = [PairingSlot(2 * turn + 1, NOWHERE, "a") for turn in range(MANY)]
    counter = Counter()
    pairing = pair(Talk(calls, results, [""] * len(results)), counter)
    assert pairing.answers == list(range(MANY))
    assert len(pairing.displaced) == MANY
    assert counter.looks <= 6 * MANY


def test_healthy_turns_need_no_look_at_all() -> None:
    calls = [PairingSlot(2 * turn, turn, "a") for turn in range(MANY)]
    results = [PairingSlot(2 * turn + 1, turn, "a") for turn in range(MANY)]
    counter = Counter()
    assert pair(Talk(calls, results, [""] * len(results)), counter).answers == list(range(MANY))
    assert counter.looks == 0


def test_many_repeats_inside_one_turn_are_linear() -> None:
    """One batch of calls that share an id, each answered twice."""
    many = 1_000
    calls = [PairingSlot(order, 0, "a") for order in range(many)]
    results = [PairingSlot(many + order, 0, "a") for order in range(2 * many)]
    counter = Counter()
    pairing = pair(Talk(calls, results, [""] * len(results)), counter)
    assert pairing.verdicts.count(DUPLICATE) == many
    assert counter.looks <= 12 * many
