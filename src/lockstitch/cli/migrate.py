"""``lockstitch migrate``: sessions of one store are copied into another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstitch.cli import CLEAN, FAILED, terminal, text
from lockstitch.cli.arguments import JSON, SESSION, Command, Operand, Option
from lockstitch.cli.rows import several
from lockstitch.cli.targets import require_store, told
from lockstitch.errors import UsageError

if TYPE_CHECKING:
    from lockstitch.session.copying import Copy
    from lockstitch.stored import Failed

_OPERANDS = 2


def run(*, names: list[str], session: str | None, name: str | None, as_json: bool) -> int:
    """Copy sessions, and return the exit status."""
    if len(names) != _OPERANDS:
        raise UsageError("give two stores: lockstitch migrate FROM TO")
    source, target = require_store(names[0]), names[1]
    if name is not None and session is None:
        raise UsageError("--as is for one session: name it with --session")
    from lockstitch import stored
    from lockstitch.cli.progress import Progress

    with told(source):
        total = stored.records_in(source, session)
        with Progress("Copying", total, "records") as advance:
            done = list(stored.migrate(source, target, session, name=name, advance=advance))
    failures = [one for one in done if isinstance(one, stored.Failed)]
    for one in failures:
        terminal.complain(f"{text.shown(source)}:{one.session}: {one.error}")
    if as_json:
        from lockstitch.cli import machine
        from lockstitch.places import public

        fields = {"from": public(source), "to": public(target)}
        terminal.emit(machine.encode(**fields, sessions=[_fields(one) for one in done]))
    else:
        _say(done)
    return FAILED if failures else CLEAN


def _fields(one: Copy | Failed) -> dict[str, Any]:
    from lockstitch.stored import Failed

    if isinstance(one, Failed):
        return {"session": one.session, "error": one.error}
    return {"session": one.session, "name": one.name, "records": one.records, "new": one.is_new}


def _say(done: list[Copy | Failed]) -> None:
    from lockstitch.stored import Failed

    copies = [one for one in done if not isinstance(one, Failed)]
    new = [one for one in copies if one.is_new]
    records = several(sum(one.records for one in new), "record")
    terminal.note(f"Copied {several(len(new), 'session')} ({records}), verified.")
    if len(copies) > len(new):
        terminal.note(f"{several(len(copies) - len(new), 'session')} had been copied before.")


COMMAND = Command(
    name="migrate",
    run=run,
    summary="Copy sessions from one store into another one.",
    details=(
        "For stores of Lockstitch's own, of any two kinds; TO is made if it is not there. Records "
        "keep their keys and times, large values, titles, tags and metadata go with them, and the "
        "checksums are verified on both sides. Each session is there as a whole or not at all, and "
        "one that was copied before is left alone, so the command can be given again after "
        "anything. FROM stays as it is, and may be in use. With --json: from, to, and "
        '"sessions", each with session, name, records and new, or with an error.'
    ),
    examples=(
        "lockstitch migrate sqlite:///agent.db postgresql://localhost/agents",
        "lockstitch migrate jsonl:///sessions sqlite:///agent.db --session ticket-42",
        "lockstitch migrate agent.db sqlite:///other.db --session ticket-42 --as ticket-42-copy",
    ),
    operand=Operand("names", "FROM TO", "A store's address or file; another store's.", many=True),
    options=(
        SESSION,
        Option("name", ("--as",), "Name of the copy, where one session is copied.", metavar="NAME"),
        JSON,
    ),
)
