"""``lockstitch checkpoints``: the places of a session to go back to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstitch.cli import CLEAN, FINDINGS, terminal
from lockstitch.cli.arguments import JSON, SESSION, Command, Operand
from lockstitch.cli.targets import require_own, told

if TYPE_CHECKING:
    from lockstitch.journal.state import Checkpoint
    from lockstitch.stored import Journal


def run(*, target: str | None, session: str | None, as_json: bool) -> int:
    """List the checkpoints of one session, and return the exit status."""
    target = require_own(target)
    from lockstitch import stored

    with told(target):
        journal = stored.read(target, session)
    if as_json:
        from lockstitch.cli import machine
        from lockstitch.places import public

        terminal.emit(machine.encode(target=public(target), **fields(journal)))
    else:
        _print(journal)
    if journal.fault is not None:
        terminal.note(f"{journal.fault.code} {journal.fault.message}")
    return CLEAN if journal.fault is None else FINDINGS


def fields(journal: Journal) -> dict[str, Any]:
    """What a program is told: the session, its last record, and the checkpoints."""
    return {
        "session": journal.session,
        "records": journal.state.seq,
        "checkpoints": [_fields(one) for one in journal.view.checkpoints],
    }


def _fields(checkpoint: Checkpoint) -> dict[str, Any]:
    from lockstitch.cli.machine import moment

    return {
        "seq": checkpoint.seq,
        "kind": checkpoint.kind,
        "at": moment(checkpoint.at),
        "label": checkpoint.label or None,
    }


def _print(journal: Journal) -> None:
    from lockstitch.cli.conversation import described, when

    found = journal.view.checkpoints
    width = max((len(str(one.seq)) for one in found), default=1)
    for one in found:
        text = terminal.harmless(described(one))
        terminal.say(f"{one.seq:>{width}}  {one.kind:<5}  {when(one.at)}  {text}")
    if not found:
        terminal.note("No checkpoints yet.")


COMMAND = Command(
    name="checkpoints",
    group="store",
    run=run,
    summary="List the places of a session to go back to.",
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
