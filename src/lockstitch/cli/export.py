"""``lockstitch export``: a stored session as the messages of a request."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from lockstitch import files, sessions
from lockstitch.cli import CLEAN, FINDINGS, terminal, text
from lockstitch.cli.arguments import FORMAT, SESSION, Command, Operand, Option
from lockstitch.cli.targets import one
from lockstitch.dialects.profiles import DIALECTS, profile_named
from lockstitch.lists import plan_stored
from lockstitch.splices import dump

if TYPE_CHECKING:
    from lockstitch import Finding


def run(  # noqa: PLR0913 - one keyword an option
    *,
    target: str | None,
    to: str | None,
    raw: bool,
    redact: bool,
    output: str | None,
    form: str | None,
    session: str | None,
) -> int:
    """Export one session, and return the exit status."""
    wanted = profile_named(to).full_name if to else None
    stored = sessions.opened(one(target, form, session), follow_symlinks=True)
    messages, dialect, left = exported(stored, wanted, raw=raw)
    if redact:
        messages = _redacted(messages, dialect)
    data = _encoded(messages)
    if output is None:
        terminal.emit(data)
    else:
        files.write_atomically(output, data)
    for found in left:
        terminal.note(text.finding(str(target), dialect, found, sys.stderr))
    return FINDINGS if left else CLEAN


def exported(
    stored: sessions.Opened, wanted: str | None, *, raw: bool
) -> tuple[list[Any], str, list[Finding]]:
    """Give the messages of a session in a dialect, that dialect, and what is still wrong."""
    transcript = stored.transcript if raw else sessions.planned(stored).after
    history = transcript.history
    messages: list[Any] = history.messages
    dialect = wanted or history.dialect
    if dialect.partition(":")[0] != history.dialect.partition(":")[0]:
        from lockstitch.dialects.render import rendered

        messages = rendered(messages, history.dialect, dialect)
    if raw:
        return messages, dialect, []
    plan = plan_stored(messages, dialect, history.model)
    return list(plan.plain), dialect, plan.remaining


def _redacted(messages: list[Any], dialect: str) -> list[Any]:
    from lockstitch.redaction import redacted, without_broken_thinking

    clean, found = redacted(messages)
    if dialect.startswith("anthropic"):
        clean = without_broken_thinking(clean, found)
    terminal.note(f"Redacted {len(found)} place{'s' * (len(found) != 1)}.")
    plan = plan_stored(clean, dialect, None)
    return list(plan.plain)


def _encoded(messages: list[Any]) -> bytes:
    """A JSON list with a message a line."""
    lines = ",\n".join(dump(message) for message in messages)
    return f"[\n{lines}\n]\n".encode() if lines else b"[]\n"


COMMAND = Command(
    name="export",
    run=run,
    summary="Print a stored session as the messages of a request, healed.",
    details=(
        "The messages are those that a resume would send, in the dialect of the session's own "
        "provider or in another one (--to). --raw leaves them as they are stored. --redact "
        "replaces keys, tokens and passwords by stable placeholders; the list stays valid."
    ),
    examples=(
        "lockstitch export session.jsonl > messages.json",
        "lockstitch export 4ee0c484 --to openai-chat",
        "lockstitch export session.jsonl --redact -o shareable.json",
    ),
    operand=Operand("target", "TARGET", "A file, or the id of a session."),
    options=(
        Option("to", ("--to",), f"Dialect: {', '.join(DIALECTS)}.", metavar="DIALECT"),
        Option("raw", ("--raw",), "As stored: not healed."),
        Option("redact", ("--redact",), "Without secrets."),
        Option("output", ("--output", "-o"), "Write to this file (0600).", metavar="FILE"),
        FORMAT,
        SESSION,
    ),
)
