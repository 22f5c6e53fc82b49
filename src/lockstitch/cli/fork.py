"""``lockstitch fork``: a new session out of the beginning of another one."""

from __future__ import annotations

from lockstitch.cli import CLEAN, terminal, text
from lockstitch.cli.arguments import JSON, SESSION, Command, Operand, Option
from lockstitch.cli.rewind import place_of
from lockstitch.cli.targets import require_own, told
from lockstitch.errors import UsageError

_OPERANDS = 2


def run(*, names: list[str], at: str | None, session: str | None, as_json: bool) -> int:
    """Fork one session, and return the exit status."""
    if len(names) != _OPERANDS:
        raise UsageError("give a store and the name of the new session: lockstitch fork TARGET NEW")
    target, new = require_own(names[0]), names[1]
    from lockstitch import stored

    with told(target):
        name = stored.name_in(target, session)
        upto = stored.fork(target, name, new, at=None if at is None else place_of(at))
    if as_json:
        from lockstitch.cli import machine
        from lockstitch.places import public

        terminal.emit(machine.encode(target=public(target), source=name, session=new, at=upto))
        return CLEAN
    terminal.note(f"Made {text.shown(new)} of the first {upto} records of {text.shown(name)}.")
    return CLEAN


COMMAND = Command(
    name="fork",
    group="store",
    run=run,
    summary="Make a new session out of the beginning of another one.",
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
