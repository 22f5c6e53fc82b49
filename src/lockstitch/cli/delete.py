"""``lockstitch delete``: a session is removed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstitch.cli import CLEAN, FINDINGS, terminal, text
from lockstitch.cli.arguments import JSON, SESSION, Command, Operand, Option
from lockstitch.cli.rewind import WAIT, seconds
from lockstitch.cli.rows import several
from lockstitch.cli.targets import require_store, told
from lockstitch.errors import Held

if TYPE_CHECKING:
    from lockstitch.stores.base import Listed


def run(  # noqa: PLR0913 - one keyword an option
    *,
    target: str | None,
    session: str | None,
    wait: str,
    reason: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Delete one session, and return the exit status."""
    target = require_store(target)
    patience = seconds(wait)
    from lockstitch import stored

    with told(target):
        found = stored.found(target, session)
    _show(found)
    if not yes and not terminal.agreed("Delete it for good?", "--yes deletes without asking"):
        return FINDINGS
    with told(target):
        try:
            done = stored.delete(target, found.session, wait=patience, reason=reason)
        except Held as error:
            raise Held(f"{error}. --wait SECONDS waits for it") from error
    if as_json:
        from lockstitch.cli import machine
        from lockstitch.places import public

        fields = {"session": done.session, "records": done.records, "companions": done.companions}
        terminal.emit(machine.encode(target=public(target), **fields))
        return CLEAN
    terminal.note(
        f"Deleted {text.shown(done.session)}. `lockstitch vacuum` gives its room back, and clears "
        "what the files may still hold of it."
    )
    return CLEAN


def _show(found: Listed) -> None:
    from lockstitch.cli.conversation import when

    title = f" ({terminal.harmless(found.title)})" if found.title else ""
    changed = f", changed {when(found.changed)} UTC" if found.changed else ""
    terminal.note(
        f"{text.shown(found.session)}{title}: {several(found.seq, 'record')}{changed}. "
        "This cannot be undone."
    )


COMMAND = Command(
    name="delete",
    group="store",
    run=run,
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
