"""``lockstitch retain``, ``delete`` and ``vacuum``: sessions of a store are removed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from lockstitch.cli.terminal import CLEAN, FINDINGS
from lockstitch.errors import Held, UsageError
from lockstitch.transcript import several, size

if TYPE_CHECKING:
    from lockstitch.session.maintenance import Audited, Removal, Retention
    from lockstitch.stores.base import Listed


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
        raise UsageError("say which sessions shall go: --older-than AGE, --keep N, or both")
    from lockstitch import stored

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
        _print_json(target, planned, as_json=as_json, is_done=False)
        return CLEAN
    question = f"Delete {several(len(planned.removed), 'session')} for good?"
    if not yes and not terminal.confirm(question, "--yes deletes without asking"):
        return FINDINGS
    done = _remove(target, planned)
    _print_json(target, done, as_json=as_json, is_done=True)
    for spared in done.spared[len(planned.spared) :]:
        terminal.note(f"{render.target_name(spared.session)}: stays, {spared.reason}")
    terminal.note(
        f"Deleted {several(len(done.removed), 'session')}, and wrote it down: "
        "`lockstitch retain --audit` shows it."
    )
    return CLEAN


def _remove(target: str, planned: Retention) -> Retention:
    from lockstitch import stored
    from lockstitch.cli.terminal import ProgressBar
    from lockstitch.session.maintenance import Removal, Retention

    done = Retention([], list(planned.spared))
    with (
        naming_target(target),
        ProgressBar("Deleting", len(planned.removed), "sessions") as advance,
    ):
        for one in stored.remove(target, planned.removed, advance):
            if isinstance(one, Removal):
                done.removed.append(one)
                terminal.remember_done(
                    f"{several(len(done.removed), 'session')} had been deleted before."
                )
            else:
                done.spared.append(one)
    return done


def _show_retention(planned: Retention) -> None:
    from lockstitch.cli.show import utc_time

    for one in planned.removed[:_SHOWN]:
        title = f" ({terminal.escape_controls(one.title)})" if one.title else ""
        changed = f", changed {utc_time(one.changed)} UTC" if one.changed else ""
        terminal.note(
            f"{render.target_name(one.session)}{title}: {several(one.records, 'record')}{changed}: "
            f"{one.reason}"
        )
    if planned.removed[_SHOWN:]:
        terminal.note(f"… and {several(len(planned.removed) - _SHOWN, 'more session')}")
    for spared in planned.spared[:_SHOWN]:
        reason = terminal.escape_controls(spared.reason)
        terminal.note(f"{render.target_name(spared.session)}: stays, {reason}")
    if planned.spared[_SHOWN:]:
        terminal.note(f"… and {len(planned.spared) - _SHOWN} more stay")
    if not planned.removed:
        terminal.note("No session has to go.")


def _print_json(target: str, found: Retention, *, as_json: bool, is_done: bool) -> None:
    if not as_json:
        return
    from lockstitch.stores.addresses import public

    removed = [_removal_fields(one) for one in found.removed]
    terminal.emit(
        render.encode_json(
            target=public(target), removed=removed, spared=found.spared, applied=is_done
        )
    )


def _removal_fields(one: Removal) -> dict[str, Any]:
    from lockstitch.cli.render import iso_time

    return {
        "session": one.session,
        "title": one.title or None,
        "records": one.records,
        "changed": iso_time(one.changed),
        "reason": one.reason,
    }


def _print_audit(target: str, *, as_json: bool) -> int:
    from lockstitch import stored

    with naming_target(target):
        found = stored.audit(target)
    if as_json:
        from lockstitch.stores.addresses import public

        lines = [_audit_fields(one) for one in found]
        terminal.emit(render.encode_json(target=public(target), audit=lines))
        return CLEAN
    from lockstitch.cli.show import utc_time

    for one in found:
        records = several(one.records, "record")
        told_by = terminal.escape_controls(f"{one.reason}; {one.by}")
        terminal.say(f"{utc_time(one.at)}  {render.target_name(one.session)}  {records}  {told_by}")
    if not found:
        terminal.note("Nothing was written down yet.")
    return CLEAN


def _audit_fields(one: Audited) -> dict[str, Any]:
    from lockstitch.cli.render import iso_time

    return {
        "session": one.session,
        "records": one.records,
        "changed": iso_time(one.changed),
        "reason": one.reason,
        "by": one.by,
        "at": iso_time(one.at),
    }


RETAIN = Command(
    name="retain",
    group="store",
    run=run_retain,
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
    _show_deletion(found)
    if not yes and not terminal.confirm("Delete it for good?", "--yes deletes without asking"):
        return FINDINGS
    with naming_target(target):
        try:
            done = stored.delete(target, found.session, wait=wait, reason=reason)
        except Held as error:
            raise Held(f"{error}. --wait SECONDS waits for it") from error
    if as_json:
        from lockstitch.stores.addresses import public

        fields = {"session": done.session, "records": done.records, "companions": done.companions}
        terminal.emit(render.encode_json(target=public(target), **fields))
        return CLEAN
    terminal.note(
        f"Deleted {render.target_name(done.session)}. `lockstitch vacuum` gives its room back, "
        "and clears what the files may still hold of it."
    )
    return CLEAN


def _show_deletion(found: Listed) -> None:
    from lockstitch.cli.show import utc_time

    title = f" ({terminal.escape_controls(found.title)})" if found.title else ""
    changed = f", changed {utc_time(found.changed)} UTC" if found.changed else ""
    terminal.note(
        f"{render.target_name(found.session)}{title}: {several(found.seq, 'record')}{changed}. "
        "This cannot be undone."
    )


DELETE = Command(
    name="delete",
    group="store",
    run=run_delete,
    summary="Remove a session for good, with what belongs to it.",
    details=(
        "For sessions in stores of Lockstitch's own. Says what goes and asks; --yes does not ask. "
        "Records go, and large values that no other session names. If a program has the session "
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
        from lockstitch.stores.addresses import public

        terminal.emit(render.encode_json(target=public(target), freed=freed))
        return CLEAN
    terminal.note(f"Gave {size(freed)} back." if freed else "There was nothing to give back.")
    return CLEAN


VACUUM = Command(
    name="vacuum",
    group="store",
    run=run_vacuum,
    summary="Give the room of deleted sessions back, and clear it of their words.",
    details=(
        "For stores of Lockstitch's own. Sessions can be used meanwhile, but in a large store "
        'their writers may have to wait. With --json: "freed", the bytes that were given back, as '
        "far as that is known."
    ),
    examples=("lockstitch vacuum sqlite:///agent.db",),
    operand=Operand("target", "TARGET", "A store's address, or its file.", required=True),
    options=(JSON,),
)
