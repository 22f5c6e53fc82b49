"""``lockstitch check``: what a provider would reject in a conversation, and why."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

import lockstitch
from lockstitch.cli import documents, render, terminal
from lockstitch.cli import reports as printing
from lockstitch.cli.databases import SHARD, WORKERS, Asked, is_meant, number, shard_of
from lockstitch.cli.databases import reports as threads
from lockstitch.cli.documents import STDIN
from lockstitch.cli.parser import DIALECT, FORMAT, JSON, LAST, MODEL, SESSION, Command, Operand
from lockstitch.cli.targets import find_sessions, is_own_store, last_used_session, own_stores_below
from lockstitch.cli.terminal import CLEAN, FAILED, FINDINGS, describe_bug
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.registry import confirm_dialect
from lockstitch.dialects.registry import messages_of as listed_in
from lockstitch.errors import LockstitchError, Unreadable, UsageError
from lockstitch.rules import NOTE
from lockstitch.sources.source import OWN, Report
from lockstitch.sources.targets import brief, pasted, public
from lockstitch.transcript import several

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# For so many targets at most the command that repairs them is told.
_MOST_DUE = 3


def run(  # noqa: PLR0913 - one keyword an option
    *,
    targets: list[str],
    dialect: str | None,
    model: str | None,
    form: str | None,
    session: str | None,
    output: str,
    select: str | None,
    ignore: str | None,
    statistics: bool,
    workers: str | None,
    shard: str | None,
    newest: bool,
    as_json: bool,
) -> int:
    """Check every target, print what was found, and return the exit status."""
    asked_for = printing.ReportOptions.of(output, select, ignore, statistics, as_json=as_json)
    if dialect is not None:
        profile_named(dialect)
    if newest:
        target, session = last_used_session(targets[0] if targets else None, session)
        targets = [target]
    asked = Asked(number(workers), session, shard_of(shard, targets, form, session))
    checked = (
        report
        for target in documents.input_names(targets)
        for report in reports(target, dialect, model, form, session, asked)
    )
    tally = Tally()
    counted = tally.over(asked_for.over(checked))
    if not asked_for.emit(counted):
        for report in counted:
            _print(report)
    return _status(tally)


class Tally(Struct):
    """What is counted of reports as they go by: there may be millions."""

    kinds: dict[str, int] = field(default_factory=dict)
    fixable: int = 0
    failed: int = 0
    own: int = 0
    records: int = 0
    due: dict[str, str] = field(default_factory=dict)

    def over(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Give reports on, and count them."""
        for report in reports:
            self.failed += report.error is not None
            if report.format == OWN and report.session is not None:
                self.own += 1
                self.records += report.records
            for found in report.findings:
                self.kinds[found.severity] = self.kinds.get(found.severity, 0) + 1
                self.fixable += found.fixable
            if len(self.due) <= _MOST_DUE and any(f.fixable for f in report.findings):
                is_list = report.format in ("list", "requests")
                self.due[public(report.target)] = "heal" if is_list else "repair"
            yield report


def reports(  # noqa: PLR0913, PLR0917 - one argument an option
    target: str,
    dialect: str | None,
    model: str | None,
    form: str | None,
    session: str | None,
    asked: Asked | None = None,
) -> Iterator[Report]:
    """Check one target: every session in it, or the message list that it is."""
    try:
        is_folder = os.path.isdir(target)  # noqa: PTH112 - start-up time
        if not is_folder and is_own_store(target, form):
            yield from journals(target, dialect, model, session)
            return
        if is_meant(target, form):
            yield from threads(target, asked or Asked(session=session))
            return
        own = own_stores_below(target) if is_folder and form in (None, OWN) else []
        is_named = dialect is not None or (model is not None and form is None)
        found = None if is_named else [] if form == OWN else find_sessions(target, form, session)
    except (Unreadable, UsageError) as error:
        yield Report(public(target), form, error=brief(str(error), target))
        return
    if found is None:
        yield listed(target, dialect, model)
        return
    if not found and not own:
        what = "is a folder that holds" if is_folder else "holds"
        yield Report(target, form, error=f"{what} no {'such session' if session else 'session'}")
    from lockstitch import sessions

    for path in own:
        yield from journals(path, dialect, model, session)

    for source in found:
        try:
            report = sessions.check(source)
        except Exception as error:  # noqa: BLE001 - said as any other, and the rest is checked
            report = Report(public(source.path), source.format, error=describe_bug(error))
        if len(found) == 1 and source.error is None:
            report.target = target
        yield report


def journals(
    target: str, dialect: str | None, model: str | None, session: str | None
) -> Iterator[Report]:
    """Check a store of Lockstitch's own, with a progress bar; an error is a report, too."""
    from lockstitch import stored as own
    from lockstitch.cli.terminal import ProgressBar

    try:
        with ProgressBar("Checking", own.count(target, session), "records") as advance:
            yield from own.check(target, session, dialect=dialect, model=model, advance=advance)
    except LockstitchError as error:
        yield Report(public(target), OWN, error=brief(str(error), target))


def listed(target: str, dialect: str | None, model: str | None) -> Report:
    """Read and check one message list; what cannot be read becomes a report with an error."""
    from lockstitch.formats.plain import doubt_of
    from lockstitch.sources.source import unknown_program

    try:
        document = documents.read_document(target)
        with documents.limits_as_errors():
            if document.requests:
                return _requests(document, dialect, model)
            like = "" if dialect else doubt_of(document.value)
            if like:
                return Report(target, error=unknown_program(like))
            dialect = confirm_dialect(document.value, dialect)
            findings = lockstitch.check(document.value, dialect, model=model)
    except (Unreadable, UsageError) as error:
        return Report(target, error=str(error))
    count = document.messages
    return Report(
        target, "list", messages=count, reachable=count, dialect=dialect, findings=findings
    )


def _requests(document: documents.JsonDocument, dialect: str | None, model: str | None) -> Report:
    """Check a file of which every line is a request."""
    from lockstitch.formats.requests import Requests, dialect_in
    from lockstitch.sources.source import unknown_program

    like = "" if dialect else Requests().doubt(document.value)
    if like:
        return Report(document.target, error=unknown_program(like))
    dialect = dialect or dialect_in(document.value)
    findings = [
        structs.replace(found, place=f"{line}.{found.place}")
        for line, body in document.requests
        for found in lockstitch.check(body, dialect, model=model)
    ]
    return Report(
        document.target,
        "requests",
        messages=sum(len(listed_in(body)) for _, body in document.requests),
        reachable=len(document.requests),
        dialect=dialect,
        findings=findings,
    )


def _print(checked: Report) -> None:
    name = render.report_name(checked)
    if checked.error is not None:
        terminal.complain(f"{render.target_name(name)}: {checked.error}")
    for line in printing.finding_lines(checked):
        terminal.say(line)
    for note in checked.notes:
        terminal.note(f"{render.target_name(name)}: note: {terminal.escape_controls(note)}")


def _status(tally: Tally) -> int:
    if tally.own:
        records = several(tally.records, "record")
        terminal.note(f"Read {several(tally.own, 'session')} with {records}.")
    if tally.kinds.keys() - {NOTE}:
        terminal.note(render.summarize_counts(tally.kinds, tally.fixable))
    elif tally.kinds and not tally.failed:
        terminal.note(f"Healthy with notes: {several(tally.kinds[NOTE], 'note')}, nothing broken.")
    elif not tally.failed:
        terminal.note("All clean.")
    _say_next(tally.due if tally.kinds.keys() - {NOTE} else {})
    broken = tally.kinds.keys() - {NOTE}
    return FAILED if tally.failed else FINDINGS if broken else CLEAN


def _say_next(due: dict[str, str]) -> None:
    """Say which command repairs what was found, to be pasted."""
    if STDIN in due or len(due) > _MOST_DUE:
        return
    for target, verb in due.items():
        terminal.note(f"To repair it: lockstitch {verb} {pasted(target)}")


COMMAND = Command(
    name="check",
    group="sessions",
    run=run,
    summary="Find what is wrong with a session, or with a message list or request body.",
    details=(
        "Takes the session files and databases of agent programs (Claude Code, Codex, pi, "
        "OpenClaw, Gemini CLI, opencode, goose, OpenAI Agents), folders of them, the id of a "
        "session on this machine, JSON (a list of messages, or a request body that holds one) "
        "and JSONL. Of a store of Lockstitch's own (sqlite:///, postgresql://, jsonl:///) it "
        "reads every byte and verifies the checksums and the request that each session makes, "
        "also while sessions are written. A PostgreSQL with LangGraph's checkpoints is read "
        "thread by thread, in short transactions. Changes nothing. A finding marked [*] is one "
        "that `lockstitch repair` (or `heal`, for lists) repairs; `lockstitch explain CODE` tells "
        "more about it."
    ),
    examples=(
        "lockstitch check ~/.claude/projects/-home-ada-project/4ee0c484.jsonl",
        "lockstitch check 4ee0c484",
        "lockstitch check --last",
        "lockstitch check sqlite:///agent.db",
        "lockstitch check postgresql://localhost/agents --session ticket-42",
        "lockstitch check 'postgresql://localhost/agents?schema=support' --format langgraph",
        "lockstitch check --dialect anthropic --json *.json",
        "lockstitch check --output-format sarif request.json > findings.sarif",
        "lockstitch check --select LS1 --statistics ~/.claude/projects",
        "cat request.json | lockstitch check -d openai-chat:mistral -",
    ),
    operand=Operand(
        "targets",
        "TARGET",
        "Files, folders, session ids or addresses of stores; - or none for stdin.",
        many=True,
    ),
    options=(
        DIALECT,
        MODEL,
        FORMAT,
        SESSION,
        LAST,
        *printing.REPORT_OPTIONS,
        WORKERS,
        SHARD,
        JSON,
    ),
)
