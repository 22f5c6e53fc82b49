"""What became of a repair, for a person: how many, what is left, how to undo it, how to go on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lockstitch import sessions
from lockstitch.cli import terminal, text
from lockstitch.cli.looks import here
from lockstitch.cli.rows import several
from lockstitch.places import pasted
from lockstitch.rules import is_broken
from lockstitch.sessions.summary import described

if TYPE_CHECKING:
    from lockstitch.report import Report
    from lockstitch.rules import Finding
    from lockstitch.sessions import Repaired

# So many places are named one by one.
_MOST_BACKUPS = 3


def say(
    repaired: list[tuple[Repaired, bool]],
    findings: list[Finding],
    left: list[Finding],
    *,
    only_shown: bool,
    is_quiet: bool,
) -> None:
    """Say what became of some sessions; nothing was written if they were ``only_shown``."""
    written = [outcome for outcome, was_written in repaired if was_written]
    if written:
        before = text.tally(findings) or "no findings"
        terminal.note(f"Repaired {several(len(written), 'session')}; {before} before.")
    elif repaired and not findings:
        terminal.note("All clean. Nothing was changed.")
    elif repaired and not is_broken(findings):
        said = text.tally(findings)
        terminal.note(f"Healthy with notes: {said}, nothing broken, nothing changed.")
    elif not only_shown:
        terminal.note("Nothing was changed.")
    kept = [outcome for outcome in written if outcome.backup]
    if kept and not is_quiet:
        for outcome in kept[:_MOST_BACKUPS]:
            terminal.note(f"Backup: {pasted(str(outcome.backup))}")
        if len(kept) > _MOST_BACKUPS:
            terminal.note(f"And {several(len(kept) - _MOST_BACKUPS, 'more backup')}.")
        pieces = sum(len(outcome.quarantine) for outcome in kept)
        if pieces:
            terminal.note(f"What was quarantined ({several(pieces, 'piece')}) is kept with it.")
    if left and written:
        terminal.note(f"Left: {text.tally(left)}.")


def say_next(reports: list[Report], targets: list[str]) -> None:
    """Say how repairs are undone, and how a session that was repaired is resumed."""
    if not reports:
        return
    places = undo_places([report.target for report in reports], targets, sessions.searched())
    what = "it" if len(reports) == 1 else f"all {len(reports)}"
    terminal.note(f"To undo {what}: lockstitch undo {' '.join(map(pasted, places))}")
    if len(reports) == 1:
        line = described(reports[0]).resume_line(here())
        if line:
            terminal.note(f"To resume it: {line}")


def undo_places(paths: list[str], given: list[str], known: list[str]) -> list[str]:
    """Return the fewest places that an undo of all these files can be given.

    What a person gave counts first, then the files themselves, then the folders of programs.
    """
    named = [place for place in given if any(_is_in(path, place) for path in paths)]
    is_all = all(any(_is_in(path, place) for place in named) for path in paths)
    if is_all and len(named) <= _MOST_BACKUPS:
        return named
    files = [*dict.fromkeys(paths)]
    roots = [root for root in known if any(_is_in(path, root) for path in files)]
    is_short = len(files) <= _MOST_BACKUPS or not roots
    return files if is_short else roots


def _is_in(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip(os.sep) + os.sep)
