from __future__ import annotations

from tests.sessions import live


def test_no_line_of_a_live_writer_is_lost() -> None:
    outcome = live.run(megabytes=1, repairs=4)
    assert outcome["appended"] > 100
    assert outcome["replaced"] >= 3
    assert (outcome["lost"], outcome["doubled"], outcome["failed"]) == (0, 0, 0)
