"""Two processes on one thread, longer: ``python -m tests.integrations.langgraph.saver.soak``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.integrations.langgraph.saver.places import KINDS, Where
from tests.integrations.langgraph.saver.test_writers import contended

if __name__ == "__main__":
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder, Where(kind, Path(folder)) as where:
            refused, messages = contended(where, turns)
            said = {one for one in messages if not one.startswith("reply")}
            answered = {one for one in said if f"reply to {one}" in messages}
            print(  # noqa: T201
                f"{kind}: {len(answered)} of {2 * turns} turns kept and answered,"
                f" {refused} refused with a Conflict and run again"
            )
