"""Commands for Lockstitch stores: rewind, fork, checkpoints, retain, delete and vacuum.

``rewind`` continues a session from an earlier place, ``fork`` makes a new session from there, and
``checkpoints`` lists these places; none of the three deletes anything. ``retain``, ``delete`` and
``vacuum`` do.
"""

from __future__ import annotations

from lockstitch import stored
from lockstitch.cli import render, terminal
from lockstitch.cli.options import (
    JSON,
    SESSION,
    WAIT,
    YES,
    Command,
    Operand,
    option,
    read_age,
    read_number,
)
from lockstitch.cli.targets import naming_target, require_own_session, require_store
from lockstitch.cli.terminal import CLEAN, FINDINGS, ProgressBar
from lockstitch.conversation.json_text import is_index
from lockstitch.errors import Held, UsageError
from lockstitch.rules.rule import several
from lockstitch.session.maintenance import Retention, Spared
from lockstitch.sources.source import pasted
from lockstitch.stores.addresses import public
from lockstitch.transcript import size, utc_time


def run_rewind(  # noqa: PLR0913 - one keyword an option
    *,
    target: str | None,
    to: str | None,
    undo: bool,
    session: str | None,
    wait: float,
    yes: bool,
    as_json: bool,
) -> int:
    """Rewind one session, and return the exit status."""
    target = require_own_session(target)
    if undo == (to is not None):
        raise UsageError(
            "name where to go with --to PLACE, or take the last rewind back with --undo: one of "
            "the two"
        )
    place = None if to is None else parse_place(to)
    with naming_target(target):
        journal = stored.read(target, session)
        aim = stored.aim(journal, place)
    left = stored.left_behind(journal, aim)
    where = f"{render.target_name(journal.session)}: back from record {journal.state.seq} to {aim}."
    if left == stored.Left(0, 0, 0):
        terminal.note(f"{where} Nothing leaves the conversation; what a rewind removed is back.")
    else:
        replies = f"{left.replies} {'reply' if left.replies == 1 else 'replies'}"
        parts = (several(left.turns, "turn"), replies, several(left.calls, "call"))
        said = ", ".join(parts)
        terminal.note(f"{where} {said} leave the conversation; nothing is deleted.")
    if not yes and not terminal.confirm("Go back?", "--yes goes back without asking"):
        return FINDINGS
    with naming_target(target):
        try:
            moved = stored.rewind(target, journal.session, to=place, wait=wait)
        except Held as error:
            hint = "--wait SECONDS waits for it; `lockstitch fork` makes a copy to continue with"
            raise Held(f"{error.message}. {hint}").about(error.target, error.session) from error
    if as_json:
        fields = {"session": moved.session, "from": moved.was, "to": moved.to, "seq": moved.seq}
        terminal.emit(render.encode_json(target=public(target), **fields))
        return CLEAN
    again = f"{pasted(public(target))} --session {pasted(moved.session)}"
    terminal.note(f"Went back to record {moved.to}.")
    terminal.note(f"To undo it: lockstitch rewind {again} --undo")
    return CLEAN


def parse_place(word: str) -> int | str:
    """Return a record's number, or a checkpoint's label."""
    return int(word) if is_index(word) else word


REWIND = Command(
    name="rewind",
    run=run_rewind,
    details=(
        "For sessions in Lockstitch stores. Says what leaves the conversation and asks first; "
        "--yes skips the question. The rewind is one more record, and --undo takes it back. If "
        "a program has the session open, the command says which; --wait waits for it."
    ),
    examples=(
        "lockstitch rewind sqlite:///agent.db --session ticket-42 --to 17",
        "lockstitch rewind agent.db --to before-the-migration --yes",
        "lockstitch rewind agent.db --undo",
    ),
    operand=Operand("target", "TARGET", "The address or file of a store.", required=True),
    options=(
        option("--to PLACE", "Number of a record, or label of a checkpoint."),
        option("--undo", "Undo the last rewind."),
        SESSION,
        WAIT,
        YES,
        JSON,
    ),
)


_TWO = 2


def run_fork(*, names: list[str], at: str | None, session: str | None, as_json: bool) -> int:
    """Fork one session, and return the exit status."""
    if len(names) != _TWO:
        raise UsageError("name a store and the new session: lockstitch fork TARGET NEW")
    target, new = require_own_session(names[0]), names[1]
    with naming_target(target):
        name = stored.name_in(target, session)
        upto = stored.fork(target, name, new, at=None if at is None else parse_place(at))
    if as_json:
        terminal.emit(render.encode_json(target=public(target), source=name, session=new, at=upto))
        return CLEAN
    terminal.note(
        f"Made {render.target_name(new)} of the first {upto} records of {render.target_name(name)}."
    )
    return CLEAN


FORK = Command(
    name="fork",
    run=run_fork,
    details=(
        "For sessions in Lockstitch stores. The new session holds the records up to --at, or "
        "all of them, in the same store. The old session is only read, so it may be in use."
    ),
    examples=(
        "lockstitch fork sqlite:///agent.db ticket-42-again --session ticket-42",
        "lockstitch fork agent.db other-way --session ticket-42 --at 17",
    ),
    operand=Operand(
        "names", "TARGET NEW", "The address or file of a store; the new name.", many=True
    ),
    options=(
        option("--at PLACE", "Number of the last record to take, or label of a checkpoint."),
        SESSION,
        JSON,
    ),
)


def run_checkpoints(*, target: str | None, session: str | None, as_json: bool) -> int:
    """List the checkpoints of one session, and return the exit status."""
    target = require_own_session(target)
    from lockstitch.transcript.messages import describe_checkpoint

    with naming_target(target):
        journal = stored.read(target, session)
    found = journal.view.checkpoints
    if as_json:
        rows = [
            {
                "seq": one.seq,
                "kind": one.kind,
                "at": render.iso_time(one.at),
                "label": one.label or None,
            }
            for one in found
        ]
        facts = {"session": journal.session, "records": journal.state.seq, "checkpoints": rows}
        terminal.emit(render.encode_json(target=public(target), **facts))
    else:
        width = max((len(str(one.seq)) for one in found), default=1)
        for one in found:
            text = terminal.escape_controls(describe_checkpoint(one))
            terminal.say(f"{one.seq:>{width}}  {one.kind:<5}  {utc_time(one.at)}  {text}")
        if not found:
            terminal.note("No checkpoints yet.")
    if journal.fault is not None:
        terminal.note(f"{journal.fault.code} {journal.fault.message}")
    return CLEAN if journal.fault is None else FINDINGS


CHECKPOINTS = Command(
    name="checkpoints",
    run=run_checkpoints,
    details=(
        "A session in a Lockstitch store has a checkpoint before every batch of tool calls, one "
        "at the end of every turn, and those that you named. `lockstitch rewind` and "
        "`lockstitch fork` take the number. Times are in UTC."
    ),
    examples=(
        "lockstitch checkpoints sqlite:///agent.db --session ticket-42",
        "lockstitch checkpoints agent.db --json",
    ),
    operand=Operand("target", "TARGET", "The address or file of a store.", required=True),
    options=(SESSION, JSON),
)


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
    """Show what would be deleted, ask, delete it, and return the exit status."""
    target = require_store(target)
    if audit:
        return _print_audit(target, as_json=as_json)
    if older_than is None and keep is None:
        raise UsageError("say which sessions to remove: --older-than AGE, --keep N, or both")

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
        f"Deleted {several(len(done.removed), 'session')}, and recorded it: `lockstitch retain "
        "--audit` shows it."
    )
    return CLEAN


def _describe(session: str, title: str, records: int, changed: int) -> str:
    """Return which session would be deleted, and how large and old it is."""
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
        terminal.note("No session needs to be deleted.")


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
        terminal.note("Nothing has been recorded yet.")
    return CLEAN


RETAIN = Command(
    name="retain",
    run=run_retain,
    details=(
        "For Lockstitch stores. Shows which sessions would be deleted and asks first; --yes "
        "skips the question, and --dry-run only shows. One of the two rules is enough for a "
        "session to be deleted. A session that a program holds stays, and so does one whose "
        "turn is open or waiting, unless you pass --including-open. Every deletion is recorded "
        "in the store first, with the name, the time, the reason and who did it: --audit shows "
        'that. With --json: "removed", "spared" and "applied"; with --audit "audit".'
    ),
    examples=(
        "lockstitch retain sqlite:///agent.db --older-than 90d --dry-run",
        "lockstitch retain sqlite:///agent.db --keep 1000 --yes",
        "lockstitch retain sqlite:///agent.db --older-than 6w --tag trial",
        "lockstitch retain sqlite:///agent.db --audit",
    ),
    operand=Operand("target", "TARGET", "The address or file of a store.", required=True),
    options=(
        option(
            "--older-than AGE",
            "Delete sessions not changed for this long: 90d, 12h, 6w.",
            read=read_age,
        ),
        option(
            "--keep N",
            "Delete all but the N that changed last.",
            read=read_number("a whole number"),
        ),
        option("--tag TAG", "Take only sessions with this tag."),
        option("--including-open", "Also delete sessions whose turn is open or waiting."),
        option("--dry-run", "Only show what would be deleted."),
        option("--audit", "Show what was deleted so far, and why."),
        YES,
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
        f"Deleted {render.target_name(done.session)}. `lockstitch vacuum "
        f"{pasted(public(target))}` frees its space, and erases what the files may still hold of "
        "it."
    )
    return CLEAN


DELETE = Command(
    name="delete",
    run=run_delete,
    details=(
        "For sessions in Lockstitch stores. Says what will be deleted and asks first; --yes "
        "skips the question. Deletes the session's records, and large values that no other "
        "session uses. If a program has the session open, the command says which; --wait waits "
        "for it. With --reason, the name, the time and the reason stay in the store's audit. "
        "With --json: session, records and companions."
    ),
    examples=(
        "lockstitch delete sqlite:///agent.db --session ticket-42",
        'lockstitch delete sqlite:///agent.db --session ticket-42 --reason "asked by the user" -y',
    ),
    operand=Operand("target", "TARGET", "The address or file of a store.", required=True),
    options=(
        SESSION,
        WAIT,
        option("--reason TEXT", "Record this reason in the store's audit."),
        YES,
        JSON,
    ),
)


def run_vacuum(*, target: str | None, as_json: bool) -> int:
    """Vacuum one store, and return the exit status."""
    target = require_store(target)
    with naming_target(target):
        freed = stored.vacuum(target)
    if as_json:
        terminal.emit(render.encode_json(target=public(target), freed=freed))
        return CLEAN
    terminal.note(f"Freed {size(freed)}." if freed else "There was nothing to free.")
    return CLEAN


VACUUM = Command(
    name="vacuum",
    run=run_vacuum,
    details=(
        "For Lockstitch stores. Sessions can be used meanwhile, but in a large store their "
        'writers may have to wait. With --json: "freed", how many bytes were freed, as far as '
        "that is known."
    ),
    examples=("lockstitch vacuum sqlite:///agent.db",),
    operand=Operand("target", "TARGET", "The address or file of a store.", required=True),
    options=(JSON,),
)
