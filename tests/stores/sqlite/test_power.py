"""A real file system loses power under a writer; ``tests.stores.sqlite.soak`` does it longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores.sqlite import power

ROUNDS = 3


@pytest.mark.skipif(bool(power.why_not()), reason=f"NOT TESTED: {power.why_not()}")
def test_what_was_acknowledged_survives_a_real_power_loss(tmp_path: Path) -> None:
    try:
        machine = power.Machine(tmp_path)
        with power.mounted(machine.image, machine.folder):
            power.shut_down(machine.folder)
    except OSError as error:
        pytest.skip(f"NOT TESTED: file systems cannot be mounted or shut down here ({error})")
    acked = 0
    for _ in range(ROUNDS):
        acked += machine.lose_power()
        machine.check()
    print(f"{ROUNDS} power losses, {acked} acknowledged records, none lost")  # noqa: T201
    assert acked > ROUNDS
