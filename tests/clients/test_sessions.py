"""Sessions of the real Claude Code, typed by hand: the healthy are left alone, loss is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.precision.clients import RealClaude
from tests.precision.trial import Trial, ask, tried
from tests.precision.verdict import HARMLESS, TRUE

from .conftest import EVERYTHING, needs
from .drive import ClaudeCode
from .scenarios import HEALTHY, SCENARIOS, Scenario
from .sessions import VERSIONS, made, stretched

SLICE = (
    "exited_and_resumed",
    "plan_with_cleared_context",
    "rewound_to_the_start",
    "two_windows_in_turns",
)
TRIED = [
    pytest.param(version, scenario, id=f"{version}-{scenario.name}")
    for version in VERSIONS
    for scenario in SCENARIOS.values()
    if scenario.is_for(version)
    and (EVERYTHING or (version == VERSIONS[0] and scenario.name in SLICE))
]


@needs
@pytest.mark.parametrize(("version", "scenario"), TRIED)
def test_a_real_session_is_judged_rightly(version: str, scenario: Scenario, tmp_path: Path) -> None:
    assert ClaudeCode(version).program()
    trials = tried([made(scenario, version, tmp_path / "out")], tmp_path / "scratch")
    assert {trial.program for trial in trials} == {"claude-code"}
    ask(trials, [RealClaude(version)], workers=2)
    if scenario.truth == HEALTHY:
        # What a sub-agent wrote into a file of its own is resumed by nobody.
        assert {_said(trial) for trial in trials} - {("left alone", None)} == {
            ("left alone", HARMLESS)
        }
    else:
        assert {_said(trial)[0] for trial in trials} == {"broken"}
        # A resume loses what the other window said, and the repair brings it back.
        assert {trial.verdict for trial in trials} <= {TRUE, "unsure"}
        assert all(
            v.changes.more and not v.changes.less for t in trials for v in t.verdicts.values()
        )


def _said(trial: Trial) -> tuple[str, str | None]:
    """What the commands say and do, with the codes for the message of a failure."""
    if trial.is_flagged or trial.is_changed:
        return (trial.status if trial.is_flagged else "changed"), str(trial.codes)
    return "left alone", trial.verdict


def test_pauses_are_stretched() -> None:
    lines = (
        b'{"timestamp":"2026-09-01T10:00:00.000Z"}\n{"a":1}\n'
        b'{"timestamp":"2026-09-01T10:00:01.500Z"}\n'
    )
    assert stretched(lines) == (
        b'{"timestamp":"2026-09-01T10:00:00.000Z"}\n{"a":1}\n'
        b'{"timestamp":"2026-09-01T10:00:30.000Z"}\n'
    )
    assert stretched(b"{}\n") == b"{}\n"
