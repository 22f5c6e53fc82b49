"""``lockstitch check``: what a provider would reject in a conversation, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from msgspec import Struct

import lockstitch
from lockstitch.cli import CLEAN, FAILED, FINDINGS, reading, terminal, text
from lockstitch.cli.arguments import DIALECT, JSON, MODEL, Command, Operand, Option
from lockstitch.dialects.detect import confirmed
from lockstitch.dialects.profiles import profile_named
from lockstitch.errors import Unreadable, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockstitch import Finding


class Session(Struct, frozen=True):
    """One checked conversation; ``error`` says why it could not be checked."""

    target: str
    dialect: str | None = None
    messages: int = 0
    findings: Sequence[Finding] = ()
    error: str | None = None

    @property
    def status(self) -> str:
        """The word for it in reports."""
        if self.error is not None:
            return "unreadable"
        return "broken" if self.findings else "ok"


def run(
    *, files: list[str], dialect: str | None, model: str | None, form: str, as_json: bool
) -> int:
    """Check every file, print what was found, and return the exit status."""
    if as_json and form == "sarif":
        raise UsageError("--json and --format sarif exclude each other")
    if dialect is not None:
        profile_named(dialect)
    sessions = (session(target, dialect, model) for target in reading.inputs(files))
    if form == "text" and not as_json:
        return _status([_print(checked) for checked in sessions])
    from lockstitch.cli import machine

    done = list(sessions)
    terminal.emit(machine.sarif(done) if form == "sarif" else machine.report(done))
    return _status(done)


def session(target: str, dialect: str | None, model: str | None) -> Session:
    """Read and check one target; what cannot be read becomes a session with an error."""
    try:
        document = reading.read(target)
        with reading.limits():
            dialect = confirmed(document.value, dialect)
            findings = lockstitch.check(document.value, dialect, model=model)
    except (Unreadable, UsageError) as error:
        return Session(target, dialect, error=str(error))
    return Session(target, dialect, document.messages, findings)


def _print(checked: Session) -> Session:
    if checked.error is not None:
        terminal.complain(f"{text.shown(checked.target)}: {checked.error}")
    for found in checked.findings:
        terminal.say(text.finding(checked.target, str(checked.dialect), found, sys.stdout))
    return checked


def _status(sessions: Sequence[Session]) -> int:
    findings = [found for checked in sessions for found in checked.findings]
    failed = sum(checked.error is not None for checked in sessions)
    if findings:
        terminal.note(text.count(findings))
    elif not failed:
        terminal.note("All clean.")
    return FAILED if failed else FINDINGS if findings else CLEAN


COMMAND = Command(
    name="check",
    run=run,
    summary="Find what a provider would reject in message lists or request bodies.",
    details=(
        "Reads JSON (a list of messages, or a request body that holds one) or JSONL (a message "
        "a line) and changes nothing. A finding marked [*] is one that `lockstitch heal` mends; "
        "`lockstitch explain CODE` tells more about it."
    ),
    examples=(
        "lockstitch check conversation.json",
        "lockstitch check --dialect anthropic --json *.json",
        "lockstitch check --format sarif request.json > findings.sarif",
        "cat request.json | lockstitch check -d openai-chat:mistral -",
    ),
    operand=Operand("files", "FILE", "Files to check; - or none for stdin.", many=True),
    options=(
        DIALECT,
        MODEL,
        Option(
            "form",
            ("--format", "-f"),
            "How to print: text, json or sarif.",
            metavar="FORMAT",
            choices=("text", "json", "sarif"),
            default="text",
        ),
        JSON,
    ),
)
