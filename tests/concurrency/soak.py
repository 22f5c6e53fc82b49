"""The campaign at any size: ``python -m tests.concurrency.soak --processes 8 --turns 50``.

``--store`` is ``sqlite``, ``jsonl`` or ``postgres`` (started for this run, on loopback). Ends with
status 1 if the history shows a fault.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from .campaign import Plan, campaign
from .places import place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--store", choices=["sqlite", "jsonl", "postgres"], default="sqlite")
    parser.add_argument("--by", choices=["backend", "session"], default="backend")
    parser.add_argument("--lease", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstitch-soak-")))
        url, cut = stack.enter_context(place(given.store, folder, own=True))
        report = campaign(
            Plan(
                url=url,
                folder=folder,
                processes=given.processes,
                turns=given.turns,
                sessions=given.sessions,
                lease=given.lease,
                seed=given.seed,
                by=given.by,
                stops=0.01,
                deaths=0.01,
                outer_stops=0.004,
                outer_kills=0.004,
                cuts=0.1,
                cut=cut,
            )
        )
    print(f"{given.store}, {given.processes} processes x {given.turns} turns: {report}")  # noqa: T201
    sys.exit(bool(report.faults))


if __name__ == "__main__":
    main()
