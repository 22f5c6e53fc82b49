"""``lockstitch retain``: sessions that are old, or more than shall be kept, are removed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lockstitch.cli import CLEAN, FINDINGS, terminal, text
from lockstitch.cli.arguments import JSON, Command, Operand, Option
from lockstitch.cli.rows import several
from lockstitch.cli.targets import require_store, told
from lockstitch.conversation.json_text import is_index
from lockstitch.errors import UsageError

if TYPE_CHECKING:
    from lockstitch.session.maintenance import Audited, Removal, Retention

_AGE = re.compile(r"(\d+)([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SHOWN = 20


def run(  # noqa: PLR0913 - one keyword an option
    *,
    target: str | None,
    older_than: str | None,
    keep: str | None,
    tag: str | None,
    including_open: bool,
    dry_run: bool,
    audit: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Show what would go, ask, remove it, and return the exit status."""
    target = require_store(target)
    if audit:
        return _print_audit(target, as_json=as_json)
    if older_than is None and keep is None:
        raise UsageError("say which sessions shall go: --older-than AGE, --keep N, or both")
    from lockstitch import stored

    with told(target):
        planned = stored.retain(
            target,
            older_than=None if older_than is None else age_of(older_than),
            keep=None if keep is None else count_of(keep),
            tags=[] if tag is None else [tag],
            including_open=including_open,
            dry_run=True,
        )
    _show(planned)
    if dry_run or not planned.removed:
        _print_json(target, planned, as_json=as_json, is_done=False)
        return CLEAN
    question = f"Delete {several(len(planned.removed), 'session')} for good?"
    if not yes and not terminal.agreed(question, "--yes deletes without asking"):
        return FINDINGS
    done = _removed(target, planned)
    _print_json(target, done, as_json=as_json, is_done=True)
    for spared in done.spared[len(planned.spared) :]:
        terminal.note(f"{text.shown(spared.session)}: stays, {spared.reason}")
    terminal.note(
        f"Deleted {several(len(done.removed), 'session')}, and wrote it down: "
        "`lockstitch retain --audit` shows it."
    )
    return CLEAN


def age_of(word: str) -> float:
    """Return the seconds of an age such as ``30d``."""
    found = _AGE.fullmatch(word)
    if not found:
        raise UsageError("--older-than takes an age such as 90d, 12h or 6w")
    return int(found[1]) * _UNITS[found[2]]


def count_of(word: str) -> int:
    """Return how many are to be kept."""
    if not is_index(word):
        raise UsageError("--keep takes a whole number")
    return int(word)


def _removed(target: str, planned: Retention) -> Retention:
    from lockstitch import stored
    from lockstitch.cli.progress import Progress
    from lockstitch.session.maintenance import Removal, Retention

    done = Retention([], list(planned.spared))
    with told(target), Progress("Deleting", len(planned.removed), "sessions") as advance:
        for one in stored.remove(target, planned.removed, advance):
            if isinstance(one, Removal):
                done.removed.append(one)
                terminal.achieve(
                    f"{several(len(done.removed), 'session')} had been deleted before."
                )
            else:
                done.spared.append(one)
    return done


def _show(planned: Retention) -> None:
    from lockstitch.cli.conversation import when

    for one in planned.removed[:_SHOWN]:
        title = f" ({terminal.harmless(one.title)})" if one.title else ""
        changed = f", changed {when(one.changed)} UTC" if one.changed else ""
        terminal.note(
            f"{text.shown(one.session)}{title}: {several(one.records, 'record')}{changed}: "
            f"{one.reason}"
        )
    if planned.removed[_SHOWN:]:
        terminal.note(f"… and {several(len(planned.removed) - _SHOWN, 'more session')}")
    for spared in planned.spared[:_SHOWN]:
        terminal.note(f"{text.shown(spared.session)}: stays, {terminal.harmless(spared.reason)}")
    if planned.spared[_SHOWN:]:
        terminal.note(f"… and {len(planned.spared) - _SHOWN} more stay")
    if not planned.removed:
        terminal.note("No session has to go.")


def _print_json(target: str, found: Retention, *, as_json: bool, is_done: bool) -> None:
    if not as_json:
        return
    from lockstitch.cli import machine
    from lockstitch.places import public

    removed = [_fields(one) for one in found.removed]
    terminal.emit(
        machine.encode(target=public(target), removed=removed, spared=found.spared, applied=is_done)
    )


def _fields(one: Removal) -> dict[str, Any]:
    from lockstitch.cli.machine import moment

    return {
        "session": one.session,
        "title": one.title or None,
        "records": one.records,
        "changed": moment(one.changed),
        "reason": one.reason,
    }


def _print_audit(target: str, *, as_json: bool) -> int:
    from lockstitch import stored

    with told(target):
        found = stored.audit(target)
    if as_json:
        from lockstitch.cli import machine
        from lockstitch.places import public

        lines = [_audited(one) for one in found]
        terminal.emit(machine.encode(target=public(target), audit=lines))
        return CLEAN
    from lockstitch.cli.conversation import when

    for one in found:
        records = several(one.records, "record")
        told_by = terminal.harmless(f"{one.reason}; {one.by}")
        terminal.say(f"{when(one.at)}  {text.shown(one.session)}  {records}  {told_by}")
    if not found:
        terminal.note("Nothing was written down yet.")
    return CLEAN


def _audited(one: Audited) -> dict[str, Any]:
    from lockstitch.cli.machine import moment

    return {
        "session": one.session,
        "records": one.records,
        "changed": moment(one.changed),
        "reason": one.reason,
        "by": one.by,
        "at": moment(one.at),
    }


COMMAND = Command(
    name="retain",
    group="store",
    run=run,
    summary="Remove sessions that are old, or more than shall be kept.",
    details=(
        "For stores of Lockstitch's own. Shows which sessions would go and asks; --yes does not "
        "ask, and --dry-run only shows. Either rule is enough for a session to go. One that "
        "somebody holds stays, and so does one whose turn is open or waits for somebody, unless "
        "--including-open. Every removal is written down in the store first, with the name, the "
        'time, the reason and who did it: --audit shows that. With --json: "removed", "spared" and '
        '"applied"; with --audit "audit".'
    ),
    examples=(
        "lockstitch retain sqlite:///agent.db --older-than 90d --dry-run",
        "lockstitch retain sqlite:///agent.db --keep 1000 --yes",
        "lockstitch retain sqlite:///agent.db --older-than 6w --tag trial",
        "lockstitch retain sqlite:///agent.db --audit",
    ),
    operand=Operand("target", "TARGET", "A store's address, or its file.", required=True),
    options=(
        Option(
            "older_than",
            ("--older-than",),
            "Remove sessions not changed for so long: 90d, 12h, 6w.",
            metavar="AGE",
        ),
        Option("keep", ("--keep",), "Remove all but the N changed last.", metavar="N"),
        Option("tag", ("--tag",), "Only sessions with this tag.", metavar="TAG"),
        Option(
            "including_open", ("--including-open",), "Also sessions whose turn is open or waits."
        ),
        Option("dry_run", ("--dry-run",), "Only show what would go."),
        Option("audit", ("--audit",), "Show what was removed so far, and why."),
        Option("yes", ("--yes", "-y"), "Do not ask."),
        JSON,
    ),
)
