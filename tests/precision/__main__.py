"""``python -m tests.precision FOLDER…``: the measure, on a folder of real sessions."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from lockstitch.cli.terminal import ProgressBar
from tests.clients.install import NotInstalled

from .clients import senders
from .table import document, text
from .trial import ask, planned, tried
from .verdict import HARMFUL

NEWEST = "2.1.325"
CODEX = "0.166.0"


def main(words: list[str] | None = None) -> int:
    """Run the command; the status is 1 if a repair did harm, or a healthy session was flagged."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.precision",
        description="Check and repair a copy of real sessions, resume each with the real client "
        "before and after, and say how right the findings were. The folder is only read. A file "
        "truth.json in it may name files that are known to be healthy, or what broke them: "
        '{"a.jsonl": "healthy", "b.jsonl": "a second writer"}.',
    )
    parser.add_argument("folder", nargs="+", type=Path, help="folders or files of real sessions")
    parser.add_argument(
        "--client",
        action="append",
        metavar="VERSION",
        help=f"version of Claude Code to resume with; may be given again ({NEWEST})",
    )
    parser.add_argument("--codex", action="append", metavar="VERSION", help=f"of Codex ({CODEX})")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N files")
    parser.add_argument(
        "--flagged", action="store_true", help="resume only what is flagged or changed"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcome here, too")
    parser.add_argument("--workers", type=int, metavar="N", default=os.cpu_count() or 1)
    given = parser.parse_args(words)
    missing = [str(folder) for folder in given.folder if not folder.exists()]
    if missing:
        parser.error(f"no such file or folder: {', '.join(missing)}")
    try:
        clients = senders(given.client or [NEWEST], given.codex or [CODEX])
    except NotInstalled as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="precision-") as scratch:
        trials = tried(given.folder, Path(scratch), given.limit)
    everything = not given.flagged
    total = planned(trials, clients, everything=everything)
    with ProgressBar("Resuming", total, "resumes") as move:
        ask(trials, clients, workers=given.workers, everything=everything, moved=lambda: move(1))
    if given.json is not None:
        given.json.write_text(json.dumps(document(trials), indent=1), "utf-8")
    sys.stdout.write(text(trials))
    harmed = any(trial.verdict == HARMFUL for trial in trials)
    wrong = any(trial.truth == "healthy" and trial.is_flagged for trial in trials)
    return int(harmed or wrong)


if __name__ == "__main__":
    sys.exit(main())
