"""The oracle itself: it must see each kind of damage, and none where there is none."""

from __future__ import annotations

import pytest

from . import claude_oracle as oracle
from .claude_cases import BROKEN, CASES, HEALTHY
from .claude_files import Case


@pytest.mark.parametrize("case", HEALTHY, ids=str)
def test_a_healthy_file_has_no_violations_and_sends_everything(case: Case) -> None:
    assert oracle.violations(case.data) == []
    assert set(case.history) <= oracle.marks(case.data)
    assert not set(case.aside) & oracle.marks(case.data)
    assert case.pairs.items() <= oracle.pairs(case.data).items()


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_a_broken_file_violates_something_or_sends_too_little(case: Case) -> None:
    lost = set(case.history) - oracle.marks(case.data)
    if case.layout == "linear":
        lost |= set(case.history) - oracle.marks(case.data, naive=True)
    assert oracle.violations(case.data) or lost


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_mark_is_in_the_files(case: Case) -> None:
    everything = b"".join([case.data, *case.side.values()])
    for mark in (*case.history, *case.spare, *case.aside):
        assert mark.encode() in everything


def test_no_two_sessions_share_an_id() -> None:
    assert len({case.session for case in CASES}) == len(CASES)
