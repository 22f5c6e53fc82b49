"""Kill clients, proxy and store for as long as you like: ``python -m tests.recording.soak``.

``--minutes 10 --store sqlite`` or ``--store postgres`` (started for this run, on loopback). Ends
with status 1 if anything that was acknowledged is missing, or any two conversations were mixed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.postgres_server import PATIENT, running
from tests.recording.campaign import Plan, campaign, sqlite_in


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstitch-soak-")))
        url, server = sqlite_in(folder), None
        if given.store == "postgres":
            server = stack.enter_context(running())
            url = f"{server.fresh()}?{PATIENT}"
        seconds = given.minutes * 60
        plan = Plan(url, seconds, given.clients, given.workers, given.seed, (0.5, 3.0), server)
        report = campaign(plan)
    print(f"{given.store}, {given.minutes:g} minutes: {report}")  # noqa: T201
    sys.exit(not report.is_clean)


if __name__ == "__main__":
    main()
