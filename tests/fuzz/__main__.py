"""``python -m tests.fuzz``: damaged sessions of every program, and whether all promises hold.

Each mutant is a session with one or several changes, which goes through check, repair, check,
repair and undo. Whatever breaks a promise is kept, made smaller and can be run again.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from lockstitch.cli.terminal import ProgressBar

from .campaign import Outcome, Task, kept, tried
from .faults import FAULTS
from .seeds import FORMATS, seeds

KEEP = Path(".cache/fuzz")


def main(words: list[str] | None = None) -> int:
    """Run the command, and return its status: 1 if any mutant broke a promise."""
    given = _parser().parse_args(words)
    if given.list:
        for form in FORMATS:
            print(f"{form:<16} {len(seeds(form)):>4} seeds")
        return 0
    if not given.format:
        _parser().error("name a format with --format, or all of them; --list shows them")
    failed = 0
    for form in FORMATS if "all" in given.format else given.format:
        task = Task(
            form,
            given.mutants,
            given.seed or secrets.token_hex(4),
            given.jobs,
            given.seconds,
            given.seeds and str(Path(given.seeds).resolve()),
            given.only,
            given.fault,
        )
        with ProgressBar(form, len(task.numbers), "mutants") as advance:
            outcome = tried(task, advance)
        _say(outcome)
        for line in kept(outcome, given.keep):
            print(f"  {line}")
        sys.stdout.flush()
        failed += outcome.failed
    return 1 if failed else 0


def _say(outcome: Outcome) -> None:
    task = outcome.task
    speed = outcome.tried / outcome.seconds if outcome.seconds else 0
    print(
        f"{task.format:<16} {outcome.tried:>7} mutants  {outcome.failed:>5} failed  "
        f"{outcome.seconds:>6.0f} s  {speed:>4.0f}/s  seed {task.seed}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Damages sessions at random and holds Lockstitch to its promises.",
    )
    parser.add_argument(
        "--format", action="append", choices=[*FORMATS, "all"], help="Which program's sessions."
    )
    parser.add_argument("--list", action="store_true", help="List the formats and their seeds.")
    parser.add_argument("--mutants", type=int, default=1000, help="How many of each format.")
    parser.add_argument("--seed", default="", help="Make the mutants of an earlier run again.")
    parser.add_argument("--only", type=int, metavar="N", help="Only the mutant of this number.")
    parser.add_argument("--jobs", type=int, default=2, help="How many processes.")
    parser.add_argument("--seconds", type=float, default=10.0, help="Processor time of a mutant.")
    parser.add_argument("--seeds", default="", metavar="FOLDER", help="Begin with real files.")
    parser.add_argument(
        "--keep", type=Path, default=KEEP, metavar="FOLDER", help="Where failing mutants go."
    )
    parser.add_argument("--fault", choices=FAULTS, default="", help="Plant a bug, to see it found.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
