"""Many checks of one case as one test, since starting a test takes longer than most checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Check = Callable[..., None]


class Together:
    """Checks that are all made of each case; what fails is named, and hides no other.

    It decorates the checks, and one test calls it with the case::

        each = Together()

        @each.check
        def nothing_is_lost(case: Case) -> None: ...

        @pytest.mark.parametrize("case", CASES)
        def test_every_case(case: Case) -> None:
            each.made(case)
    """

    def __init__(self) -> None:
        self._checks: list[Check] = []

    def check(self, check: Check) -> Check:
        """Take a check in."""
        self._checks.append(check)
        return check

    def made(self, *given: Any) -> None:
        """Make all checks; fails with everything that does not hold."""
        assert self._checks
        failed: list[Exception] = []
        for check in self._checks:
            try:
                check(*given)
            except Exception as error:  # noqa: BLE001 - whatever a check stumbles over
                error.add_note(f"this was the check that {check.__name__.replace('_', ' ')}")
                failed.append(error)
        if len(failed) == 1:
            raise failed[0]
        if failed:
            raise ExceptionGroup("several checks of this case", failed)
