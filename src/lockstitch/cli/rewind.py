"""``lockstitch rewind``: a session goes on from an earlier place; nothing is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstitch.cli import CLEAN, FINDINGS, terminal, text
from lockstitch.cli.arguments import JSON, SESSION, Command, Operand, Option
from lockstitch.cli.rows import several
from lockstitch.cli.targets import require_own, told
from lockstitch.conversation.json_text import is_index
from lockstitch.errors import Held, UsageError
from lockstitch.places import pasted, public

if TYPE_CHECKING:
    from lockstitch.stored import Journal, Moved


WAIT = Option(
    "wait",
    ("--wait",),
    "Wait this long for a writer to give the session back (default: 0).",
    metavar="SECONDS",
    default="0",
)


def run(  # noqa: PLR0913 - one keyword an option
    *,
    target: str | None,
    to: str | None,
    undo: bool,
    session: str | None,
    wait: str,
    yes: bool,
    as_json: bool,
) -> int:
    """Rewind one session, and return the exit status."""
    target = require_own(target)
    if undo == (to is not None):
        raise UsageError("give either --to PLACE or --undo")
    from lockstitch import stored

    place = None if to is None else place_of(to)
    with told(target):
        journal = stored.read(target, session)
        aim = stored.aim(journal, place)
    _show(journal, aim)
    if not yes and not terminal.agreed("Go back?", "--yes goes back without asking"):
        return FINDINGS
    with told(target):
        moved = _rewound(target, journal.session, place, seconds(wait))
    _say(target, moved, as_json=as_json)
    return CLEAN


def place_of(word: str) -> int | str:
    """A record by its number, or a checkpoint by its label."""
    return int(word) if is_index(word) else word


def seconds(word: str) -> float:
    """A number of seconds, from 0 on."""
    try:
        number = float(word)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise UsageError("--wait takes a number of seconds")
    return number


def _rewound(target: str, session: str, place: int | str | None, wait: float) -> Moved:
    from lockstitch import stored

    try:
        return stored.rewind(target, session, to=place, wait=wait)
    except Held as error:
        raise Held(
            f"{error}. --wait SECONDS waits for it; `lockstitch fork` makes a copy to go on with"
        ) from error


def _show(journal: Journal, aim: int) -> None:
    """Say what would leave the conversation."""
    from lockstitch import stored

    left = stored.left_behind(journal, aim)
    where = f"{text.shown(journal.session)}: back from record {journal.state.seq} to {aim}."
    if left == stored.Left(0, 0, 0):
        terminal.note(f"{where} Nothing leaves the conversation; what a rewind took out is back.")
        return
    parts = [
        several(left.turns, "turn"),
        several(left.replies, "reply"),
        several(left.calls, "call"),
    ]
    said = ", ".join(parts).replace("replys", "replies")
    terminal.note(f"{where} {said} leave the conversation; nothing is deleted.")


def _say(target: str, moved: Moved, *, as_json: bool) -> None:
    if as_json:
        from lockstitch.cli import machine

        fields = {"session": moved.session, "from": moved.was, "to": moved.to, "seq": moved.seq}
        terminal.emit(machine.encode(target=public(target), **fields))
        return
    where = f"{pasted(public(target))} --session {pasted(moved.session)}"
    terminal.note(f"Went back to record {moved.to}.")
    terminal.note(f"To undo it: lockstitch rewind {where} --undo")


COMMAND = Command(
    name="rewind",
    group="store",
    run=run,
    summary="Let a session go on from an earlier place; nothing is deleted.",
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
