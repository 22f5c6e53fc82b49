"""``python -m tests.clients.sessions --out DIR``: sessions of the real Claude Code, made by hand.

They hold the client's own prompts: keep them out of version control.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from .drive import ClaudeCode
from .install import PROJECT
from .scenarios import HEALTHY, SCENARIOS, Scenario
from .seat import Seat

VERSIONS = ("2.1.325", "2.1.197", "2.1.112", "2.1.50", "2.0.50")
OUT = PROJECT / ".cache" / "sessions"
_TIME = re.compile(rb'"timestamp":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"')
_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


def made(scenario: Scenario, version: str, out: Path) -> Path:
    """Play a scenario; return the folder of its sessions, with and without long pauses."""
    with tempfile.TemporaryDirectory(prefix="sessions-", ignore_cleanup_errors=True) as folder:
        seat = Seat(ClaudeCode(version), Path(folder) / "seat")
        scenario.play(seat)
        projects = seat.place.home / ".claude" / "projects"
        target = out / version / scenario.name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(projects, target / "quick")
        shutil.copytree(projects, target / "slow")
        for path in (target / "slow").rglob("*.jsonl"):
            path.write_bytes(stretched(path.read_bytes()))
        return target


def truths(out: Path) -> dict[str, str]:
    """Return what is true of each session below *out*, by its path from there."""
    found = {}
    for path in sorted(out.rglob("*.jsonl")):
        name = path.relative_to(out)
        # A helper's file, and one that a client has opened and said nothing in.
        is_aside = name.name.startswith("agent-") or b'"type":"user"' not in path.read_bytes()
        found[str(name)] = HEALTHY if is_aside else SCENARIOS[name.parts[1]].truth
    return found


def stretched(data: bytes, factor: int = 20) -> bytes:
    """Return the lines with longer pauses between them, as a person makes who thinks."""
    found = _TIME.search(data)
    if found is None:
        return data
    first = datetime.strptime(found[1].decode(), _FORMAT).replace(tzinfo=UTC)

    def later(match: re.Match[bytes]) -> bytes:
        then = datetime.strptime(match[1].decode(), _FORMAT).replace(tzinfo=UTC)
        now = first + (then - first) * factor
        return f'"timestamp":"{now.strftime(_FORMAT)[:-4]}Z"'.encode()

    return _TIME.sub(later, data)


def main(words: list[str] | None = None) -> int:
    """Run the command; the status is 1 if a scenario could not be played."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients.sessions", description=__doc__)
    parser.add_argument("--versions", default=",".join(VERSIONS), help="separated by commas")
    parser.add_argument("--only", default="", help="names of scenarios, separated by commas")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args(words)
    names = given.only.split(",") if given.only else list(SCENARIOS)
    given.out.mkdir(parents=True, exist_ok=True)
    wanted = [
        (SCENARIOS[name], version)
        for version in given.versions.split(",")
        for name in names
        if SCENARIOS[name].is_for(version)
    ]

    def play(each: tuple[Scenario, str]) -> bool:
        begun = time.monotonic()
        failure = ""
        try:
            made(*each, given.out)
        except Exception as error:  # noqa: BLE001 - the others are played all the same
            failure = f"NOT MADE: {type(error).__name__}: {error}"
        took = time.monotonic() - begun
        sys.stdout.write(f"{each[1]} {each[0].name} ({took:.0f} s): {failure or 'made'}\n")
        sys.stdout.flush()
        return not failure

    with ThreadPoolExecutor(given.workers) as pool:
        played = list(pool.map(play, wanted))
    (given.out / "truth.json").write_text(json.dumps(truths(given.out), indent=1), "utf-8")
    sys.stdout.write(f"{sum(played)} of {len(wanted)} scenarios\n")
    return int(not all(played))


if __name__ == "__main__":
    sys.exit(main())
