from __future__ import annotations

import pytest

from tests.together import Together


def test_every_check_is_made_and_every_failure_is_named() -> None:
    each, made = Together(), []

    @each.check
    def it_is_even(number: int) -> None:
        made.append("even")
        assert number % 2 == 0

    @each.check
    def it_is_small(number: int) -> None:
        made.append("small")
        assert number < 10

    each.made(2)
    assert made == ["even", "small"]
    with pytest.raises(AssertionError) as one:
        each.made(3)
    assert one.value.__notes__ == ["this was the check that it is even"]
    with pytest.raises(ExceptionGroup) as several:
        each.made(11)
    assert len(several.value.exceptions) == 2


def test_a_test_without_checks_fails() -> None:
    with pytest.raises(AssertionError):
        Together().made(1)
