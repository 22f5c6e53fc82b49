"""``lockstitch vacuum``: the room of what was removed is given back."""

from __future__ import annotations

from lockstitch.cli import CLEAN, terminal
from lockstitch.cli.arguments import JSON, Command, Operand
from lockstitch.cli.rows import size
from lockstitch.cli.targets import require_store, told


def run(*, target: str | None, as_json: bool) -> int:
    """Vacuum one store, and return the exit status."""
    target = require_store(target)
    from lockstitch import stored

    with told(target):
        freed = stored.vacuum(target)
    if as_json:
        from lockstitch.cli import machine
        from lockstitch.places import public

        terminal.emit(machine.encode(target=public(target), freed=freed))
        return CLEAN
    terminal.note(f"Gave {size(freed)} back." if freed else "There was nothing to give back.")
    return CLEAN


COMMAND = Command(
    name="vacuum",
    group="store",
    run=run,
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
