"""The long runs of what the tests do in short: power loss, simulated and real.

``python -m tests.stores.sqlite.soak --states 20000 --losses 100 --kind ext4 --seed 1``
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.stores.sqlite import crashes, power


def simulated(count: int, seed: int) -> int:
    """Check that many crash states of longer and longer recordings; how many there were."""
    checked = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        while checked < count:
            (folder / str(seed)).mkdir()
            recording = crashes.recorded(folder / str(seed), rounds=20 + seed % 40)
            for state in crashes.states(recording, samples=4, seed=seed):
                crashes.check(state, folder / "after")
                checked += 1
                if checked == count:
                    break
            seed += 1
    return checked


def real(count: int, kind: str, seed: int) -> int:
    """Lose power that many times; how many records were acknowledged."""
    with tempfile.TemporaryDirectory() as name:
        machine = power.Machine(Path(name), kind, seed)
        acked = 0
        for _ in range(count):
            acked += machine.lose_power()
            machine.check()
    return acked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=20_000, help="simulated crash states")
    parser.add_argument("--losses", type=int, default=100, help="real file systems shut down")
    parser.add_argument("--kind", choices=power.SIZES, default="ext4")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    begun = time.monotonic()
    print(f"simulated: {simulated(given.states, given.seed)} states, nothing lost or corrupt")  # noqa: T201
    reason = power.why_not(given.kind)
    if given.losses and reason:
        print(f"real: NOT TESTED: {reason}")  # noqa: T201
    elif given.losses:
        acked = real(given.losses, given.kind, given.seed)
        print(f"real ({given.kind}): {given.losses} losses, {acked} acknowledged, none lost")  # noqa: T201
    print(f"{time.monotonic() - begun:.0f} s")  # noqa: T201


if __name__ == "__main__":
    main()
