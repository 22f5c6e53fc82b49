"""``lockstitch retain``, ``delete`` and ``vacuum``: sessions of a store are removed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstitch.cli import render, terminal
from lockstitch.cli.options import (
    JSON,
    SESSION,
    WAIT,
    Command,
    Operand,
    Option,
    read_age,
    read_number,
)
from lockstitch.cli.targets import naming_target, require_store
from lockstitch.cli.terminal import CLEAN, FINDINGS, ProgressBar
from lockstitch.errors import Held, UsageError
from lockstitch.stores.addresses import public
from lockstitch.transcript import several, size, utc_time

if TYPE_CHECKING:
    from lockstitch.session.maintenance import Retention


_SHOWN = 20


def run_retain(  # noqa: PLR0913 - one keyword an option
    *,
    target: str | None,
    older_than: float | None,
    keep: int | None,
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
        raise UsageError("say which sessions to remove: --older-than AGE, --keep N, or both")
    from lockstitch import stored
    from lockstitch.session.maintenance import Retention, Spared

    with naming_target(target):
        planned = stored.retain(
            target,
            older_than=older_than,
            keep=keep,
            tags=[] if tag is None else [tag],
            including_open=including_open,
            dry_run=True,
        )
    _show_retention(planned)
    if dry_run or not planned.removed:
        _emit_retention(target, planned, as_json=as_json, is_done=False)
        return CLEAN
    question = f"Delete {several(len(planned.removed), 'session')} for good?"
    if not yes and not terminal.confirm(question, "--yes deletes without asking"):
        return FINDINGS
    done = Retention([], list(planned.spared))
    count = len(planned.removed)
    with naming_target(target), ProgressBar("Deleting", count, "sessions") as advance:
        for one in stored.remove(target, planned.removed, advance):
            if isinstance(one, Spared):
                done.spared.append(one)
            else:
                done.removed.append(one)
                gone = several(len(done.removed), "session")
                terminal.remember_done(f"{gone} had been deleted before.")
    _emit_retention(target, done, as_json=as_json, is_done=True)
    for spared in done.spared[len(planned.spared) :]:
        terminal.note(f"{render.target_name(spared.session)}: stays, {spared.reason}")
    terminal.note(
        f"Deleted {several(len(done.removed), 'session')}, and wrote it down: "
        "`lockstitch retain --audit` shows it."
    )
    return CLEAN


def _describe(session: str, title: str, records: int, changed: int) -> str:
    """Return which session goes, and how large and old it is."""
    titled = f" ({terminal.escape_controls(title)})" if title else ""
    when = f", changed {utc_time(changed)} UTC" if changed else ""
    return f"{render.target_name(session)}{titled}: {several(records, 'record')}{when}"


def _show_retention(planned: Retention) -> None:
    for one in planned.removed[:_SHOWN]:
        what = _describe(one.session, one.title, one.records, one.changed)
        terminal.note(f"{what}: {one.reason}")
    if planned.removed[_SHOWN:]:
        terminal.note(f"… and {several(len(planned.removed) - _SHOWN, 'more session')}")
    for spared in planned.spared[:_SHOWN]:
        reason = terminal.escape_controls(spared.reason)
        terminal.note(f"{render.target_name(spared.session)}: stays, {reason}")
    if planned.spared[_SHOWN:]:
        terminal.note(f"… and {len(planned.spared) - _SHOWN} more stay")
    if not planned.removed:
        terminal.note("No session has to go.")


def _emit_retention(target: str, found: Retention, *, as_json: bool, is_done: bool) -> None:
    if not as_json:
        return
    removed = [
        {
            "session": one.session,
            "title": one.title or None,
            "records": one.records,
            "changed": render.iso_time(one.changed),
            "reason": one.reason,
        }
        for one in found.removed
    ]
    fields = {"removed": removed, "spared": found.spared, "applied": is_done}
    terminal.emit(render.encode_json(target=public(target), **fields))


def _print_audit(target: str, *, as_json: bool) -> int:
    from lockstitch import stored

    with naming_target(target):
        found = stored.audit(target)
    if as_json:
        lines = [
            {
                "session": one.session,
                "records": one.records,
                "changed": render.iso_time(one.changed),
                "reason": one.reason,
                "by": one.by,
                "at": render.iso_time(one.at),
            }
            for one in found
        ]
        terminal.emit(render.encode_json(target=public(target), audit=lines))
        return CLEAN
    for one in found:
        records = several(one.records, "record")
        why = terminal.escape_controls(f"{one.reason}; {one.by}")
        terminal.say(f"{utc_time(one.at)}  {render.target_name(one.session)}  {records}  {why}")
    if not found:
        terminal.note("Nothing was written down yet.")
    return CLEAN


RETAIN = Command(
    name="retain",
    run=run_retain,
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
            read=read_age,
        ),
        Option(
            "keep",
            ("--keep",),
            "Remove all but the N changed last.",
            metavar="N",
            read=read_number("a whole number"),
        ),
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


def run_delete(  # noqa: PLR0913 - one keyword an option
    *,
    target: str | None,
    session: str | None,
    wait: float,
    reason: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Delete one session, and return the exit status."""
    target = require_store(target)
    from lockstitch import stored

    with naming_target(target):
        found = stored.found(target, session)
    what = _describe(found.session, found.title, found.seq, found.changed)
    terminal.note(f"{what}. This cannot be undone.")
    if not yes and not terminal.confirm("Delete it for good?", "--yes deletes without asking"):
        return FINDINGS
    with naming_target(target):
        try:
            done = stored.delete(target, found.session, wait=wait, reason=reason)
        except Held as error:
            hint = "--wait SECONDS waits for it"
            raise Held(f"{error.message}. {hint}").about(error.target, error.session) from error
    if as_json:
        fields = {"session": done.session, "records": done.records, "companions": done.companions}
        terminal.emit(render.encode_json(target=public(target), **fields))
        return CLEAN
    terminal.note(
        f"Deleted {render.target_name(done.session)}. `lockstitch vacuum` gives its room back, "
        "and clears what the files may still hold of it."
    )
    return CLEAN


DELETE = Command(
    name="delete",
    run=run_delete,
    details=(
        "For sessions in stores of Lockstitch's own. Says what goes and asks; --yes does not ask. "
        "Its records go, and large values that no other session uses. If a program has the session "
        "open, the command says which; --wait waits for it. With --reason the name, the time and "
        "the reason stay in the store's audit. With --json: session, records and companions."
    ),
    examples=(
        "lockstitch delete sqlite:///agent.db --session ticket-42",
        'lockstitch delete sqlite:///agent.db --session ticket-42 --reason "asked by the user" -y',
    ),
    operand=Operand("target", "TARGET", "A store's address, or its file.", required=True),
    options=(
        SESSION,
        WAIT,
        Option("reason", ("--reason",), "Write it down in the store's audit.", metavar="TEXT"),
        Option("yes", ("--yes", "-y"), "Do not ask."),
        JSON,
    ),
)


def run_vacuum(*, target: str | None, as_json: bool) -> int:
    """Vacuum one store, and return the exit status."""
    target = require_store(target)
    from lockstitch import stored

    with naming_target(target):
        freed = stored.vacuum(target)
    if as_json:
        terminal.emit(render.encode_json(target=public(target), freed=freed))
        return CLEAN
    terminal.note(f"Gave {size(freed)} back." if freed else "There was nothing to give back.")
    return CLEAN


VACUUM = Command(
    name="vacuum",
    run=run_vacuum,
    details=(
        "For stores of Lockstitch's own. Sessions can be used meanwhile, but in a large store "
        'their writers may have to wait. With --json: "freed", how many bytes were freed, as far '
        "as that is known."
    ),
    examples=("lockstitch vacuum sqlite:///agent.db",),
    operand=Operand("target", "TARGET", "A store's address, or its file.", required=True),
    options=(JSON,),
)
