"""Which warnings fail a test: those at our lines, not those of other packages among themselves."""

from __future__ import annotations

import warnings

import pytest


def given(module: str, category: type[Warning] = DeprecationWarning) -> None:
    """Warn as code in a module would."""
    warnings.warn_explicit("old", category, f"{module}.py", 1, module=module)


@pytest.mark.parametrize("module", ["lockstitch", "lockstitch.cli.check", "tests.unit.test_x"])
def test_a_warning_at_a_line_of_ours_is_an_error(module: str) -> None:
    with pytest.raises(DeprecationWarning):
        given(module)


@pytest.mark.parametrize("module", ["langgraph.pregel", "testscenarios", "asyncio.events"])
@pytest.mark.parametrize("category", [DeprecationWarning, FutureWarning, UserWarning])
def test_one_that_others_cause_is_only_printed(module: str, category: type[Warning]) -> None:
    with warnings.catch_warnings(record=True) as seen:
        given(module, category)
    assert [each.category for each in seen] == [category]


def test_what_our_call_causes_is_ours() -> None:
    def deprecated() -> None:
        warnings.warn("do not call this", DeprecationWarning, stacklevel=2)

    with pytest.raises(DeprecationWarning):
        deprecated()


def test_what_is_left_open_is_an_error_wherever_it_is_found() -> None:
    with pytest.raises(ResourceWarning):
        warnings.warn_explicit("unclosed <x>", ResourceWarning, "gc.py", 1, module="anywhere")


def test_a_coroutine_that_nobody_awaits_is_an_error_wherever_it_is_found() -> None:
    said = "coroutine 'f' was never awaited"
    with pytest.raises(RuntimeWarning):
        warnings.warn_explicit(said, RuntimeWarning, "gc.py", 1, module="anywhere")
