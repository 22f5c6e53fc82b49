"""``lockstitch rewind``, ``fork`` and ``checkpoints``: earlier places of a session in a store.

A rewind goes on from one, a fork makes a new session of it; nothing is deleted.
"""

from __future__ import annotations

from lockstitch.cli import render, terminal
from lockstitch.cli.options import JSON, SESSION, WAIT, Command, Operand, Option
from lockstitch.cli.targets import naming_target, require_own_session
from lockstitch.cli.terminal import CLEAN, FINDINGS
from lockstitch.conversation.json_text import is_index
from lockstitch.errors import Held, UsageError
from lockstitch.sources.source import pasted
from lockstitch.stores.addresses import public
from lockstitch.transcript import several, utc_time


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
        raise UsageError("give either --to PLACE or --undo")
    from lockstitch import stored

    place = None if to is None else parse_place(to)
    with naming_target(target):
        journal = stored.read(target, session)
        aim = stored.aim(journal, place)
    left = stored.left_behind(journal, aim)
    where = f"{render.target_name(journal.session)}: back from record {journal.state.seq} to {aim}."
    if left == stored.Left(0, 0, 0):
        terminal.note(f"{where} Nothing leaves the conversation; what a rewind took out is back.")
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
            hint = "--wait SECONDS waits for it; `lockstitch fork` makes a copy to go on with"
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
    """Return a record by its number, or a checkpoint by its label."""
    return int(word) if is_index(word) else word


REWIND = Command(
    name="rewind",
    run=run_rewind,
    details=(
        "For sessions in stores of Lockstitch's own. Says what leaves the conversation and asks; "
        "--yes does not ask. The rewind is one more record, and --undo takes it back. If a program "
        "has the session open, the command says which; --wait waits for it."
    ),
    examples=(
        "lockstitch rewind sqlite:///agent.db --session ticket-42 --to 17",
        "lockstitch rewind agent.db --to before-the-migration --yes",
        "lockstitch rewind agent.db --undo",
    ),
    operand=Operand("target", "TARGET", "A store's address, or its file.", required=True),
    options=(
        Option("to", ("--to",), "Number of a record, or label of a checkpoint.", metavar="PLACE"),
        Option("undo", ("--undo",), "Take the last rewind back."),
        SESSION,
        WAIT,
        Option("yes", ("--yes", "-y"), "Do not ask."),
        JSON,
    ),
)


_OPERANDS = 2


def run_fork(*, names: list[str], at: str | None, session: str | None, as_json: bool) -> int:
    """Fork one session, and return the exit status."""
    if len(names) != _OPERANDS:
        raise UsageError("give a store and the name of the new session: lockstitch fork TARGET NEW")
    target, new = require_own_session(names[0]), names[1]
    from lockstitch import stored

    with naming_target(target):
        name = stored.name_in(target, session)
        upto = stored.fork(target, name, new, at=None if at is None else parse_place(at))
    if as_json:
        from lockstitch.stores.addresses import public

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
        "For sessions in stores of Lockstitch's own. The new session holds the records up to --at, "
        "or all of them, in the same store. The old one is only read, so it may be in use."
    ),
    examples=(
        "lockstitch fork sqlite:///agent.db ticket-42-again --session ticket-42",
        "lockstitch fork agent.db other-way --session ticket-42 --at 17",
    ),
    operand=Operand("names", "TARGET NEW", "A store's address or file; the new name.", many=True),
    options=(
        Option(
            "at",
            ("--at",),
            "Number of the last record to take, or label of a checkpoint.",
            metavar="PLACE",
        ),
        SESSION,
        JSON,
    ),
)


def run_checkpoints(*, target: str | None, session: str | None, as_json: bool) -> int:
    """List the checkpoints of one session, and return the exit status."""
    target = require_own_session(target)
    from lockstitch import stored
    from lockstitch.transcript.journals import describe_checkpoint

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
        "A session in a store of Lockstitch's own has one before every batch of tool calls, one at "
        "the end of every turn, and those that were named. The number is what `lockstitch rewind` "
        "and `lockstitch fork` take. Times are in UTC."
    ),
    examples=(
        "lockstitch checkpoints sqlite:///agent.db --session ticket-42",
        "lockstitch checkpoints agent.db --json",
    ),
    operand=Operand("target", "TARGET", "A store's address, or its file.", required=True),
    options=(SESSION, JSON),
)
