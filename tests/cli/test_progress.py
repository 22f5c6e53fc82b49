from __future__ import annotations

import pytest

from lockstitch.cli.terminal import ProgressBar, draw_bar


@pytest.mark.parametrize(
    ("done", "unit", "shown"),
    [
        (0, "records", "Reading ------------------------ 0/200 records"),
        (50, "records", "Reading ######------------------ 50/200 records  0:30 left"),
        (200, "records", "Reading ######################## 200/200 records  0:00 left"),
        (400, "records", "Reading ######################## 400/200 records  0:00 left"),
        (100, "", "Reading ############------------ 100 B of 200 B  0:10 left"),
    ],
)
def test_a_bar(done: int, unit: str, shown: str) -> None:
    progress = ProgressBar("Reading", 200, unit)
    progress.done = done
    assert draw_bar(progress, 10, 100, ("#", "-")) == shown


@pytest.mark.parametrize("columns", [10, 40])
def test_a_bar_never_fills_the_last_column(columns: int) -> None:
    progress = ProgressBar("Reading", 10**9)
    progress.done = 10**8
    assert len(draw_bar(progress, 10, columns, ("#", "-"))) < columns
