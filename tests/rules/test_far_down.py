"""The same breaks behind a long, healthy beginning: places move with them, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest

import lockstitch
from tests.together import Together

from .case import Case
from .cases import CASES
from .kits import KITS, Kit

CALL = "call00009"
TURNS = 30
# How a list begins, what the body holds, and ids that are made from a place.
OTHERWISE = {"LS203", "LS406", "LS411"}
LARGE = {"LS504", "LS507"}
INDEX = re.compile(r"((?:messages|contents|input)[.\[]|Input\[|position )(\d+)")

each = Together()


def kit_of(case: Case) -> Kit:
    return KITS[case.dialect.partition(":")[0]]


def beginning(case: Case) -> list[Any]:
    """Turns in which nothing is wrong, the first with a tool; DeepSeek would miss its thinking."""
    kit = kit_of(case)
    plain = [*kit.user("Before."), *kit.assistant("Fine.")]
    tools = [*kit.user("Before."), *kit.calls(CALL), *kit.results(CALL), *kit.assistant("Fine.")]
    once = plain if "deepseek" in case.dialect else tools
    return [*once, *plain * TURNS]


def shifted(text: str, by: int) -> str:
    return INDEX.sub(lambda match: f"{match[1]}{int(match[2]) + by}", text)


BEHIND = [
    case
    for case in CASES
    if isinstance(case.broken, list)
    and isinstance(case.broken[0], dict)
    and case.broken[0].get("role", case.broken[0].get("type")) in ("user", "human")
    and case.code not in OTHERWISE | LARGE
    and case.note != "one of many"
]


@pytest.fixture(params=BEHIND, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def test_most_cases_are_here() -> None:
    assert len(BEHIND) > len(CASES) // 2


@each.check
def places_and_indices_move_along(case: Case) -> None:
    start = beginning(case)
    alone = lockstitch.check(case.broken, case.dialect, model=case.model)
    behind = lockstitch.check([*start, *case.broken], case.dialect, model=case.model)
    assert [(finding.code, finding.place, finding.error) for finding in behind] == [
        (
            finding.code,
            re.sub(r"\d+", lambda match: str(int(match[0]) + len(start)), finding.place, count=1),
            finding.error and shifted(finding.error, len(start)),
        )
        for finding in alone
    ]


@each.check
def healing_is_the_same_behind_a_healthy_beginning(case: Case) -> None:
    start = beginning(case)
    messages = [*start, *case.broken]
    healed = lockstitch.heal(messages, case.dialect, model=case.model)
    alone = lockstitch.heal(case.broken, case.dialect, model=case.model)
    assert healed == [*start, *alone]
    assert all(new is old for new, old in zip(healed, start, strict=False))


@each.check
def a_healthy_end_comes_back_as_the_same_object(case: Case) -> None:
    messages = [*beginning(case), *case.whole]
    assert lockstitch.check(messages, case.dialect, model=case.model) == []
    assert lockstitch.heal(messages, case.dialect, model=case.model) is messages


@each.check
def a_healthy_continuation_is_left_alone(case: Case) -> None:
    """What follows a break stays what it is, if a user's words divide the two."""
    kit = kit_of(case)
    after = [*kit.user("After."), *kit.assistant("Fine."), *kit.user("Thanks.")]
    messages = [*beginning(case), *case.broken, *kit.assistant("Noted."), *after]
    healed = lockstitch.heal(messages, case.dialect, model=case.model)
    assert lockstitch.check(healed, case.dialect, model=case.model) == []
    assert all(new is old for new, old in zip(healed[-2:], after[-2:], strict=True))


def test_every_rule_far_down(case: Case) -> None:
    each.made(case)
