"""``lockstitch check``: what a provider would reject in a conversation, and why."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

import lockstitch
from lockstitch.cli import render, terminal
from lockstitch.cli.heal import MessageDocument, input_names, limits_as_errors, read_document
from lockstitch.cli.options import (
    DIALECT,
    FORMAT,
    JSON,
    LAST,
    MODEL,
    SESSION,
    SHARD,
    WORKERS,
    Command,
    Operand,
)
from lockstitch.cli.render import STDIN
from lockstitch.cli.reports import REPORT_OPTIONS, ReportOptions, finding_lines
from lockstitch.cli.targets import (
    ThreadScope,
    find_sessions,
    last_used_session,
    own_stores_below,
    process_threads,
    read_shard,
)
from lockstitch.cli.terminal import CLEAN, FAILED, FINDINGS, ProgressBar, describe_bug
from lockstitch.dialects.recognize import confirm_dialect, messages_of
from lockstitch.errors import LockstitchError, Unreadable, UsageError
from lockstitch.formats.langgraph.postgres import Shard
from lockstitch.rules import NOTE
from lockstitch.rules.rule import several
from lockstitch.sources.source import OWN, Report, pasted
from lockstitch.sources.targets import (
    LANGGRAPH,
    SESSIONS,
    STORE,
    THREADS,
    classify,
    unknown_program,
)
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# For so many targets at most, the command that repairs them is named.
_MOST_DUE = 3


class CheckRequest(Struct, frozen=True):
    """What the command line asks for, by the names of its options."""

    targets: list[str] = field(default_factory=list)
    dialect: str | None = None
    model: str | None = None
    form: str | None = None
    session: str | None = None
    output: str = "text"
    select: str | None = None
    ignore: str | None = None
    statistics: bool = False
    workers: int | None = None
    shard: tuple[int, int] | None = None
    newest: bool = False
    as_json: bool = False


def run(request: CheckRequest) -> int:
    """Check every target, print what was found, and return the exit status."""
    options = ReportOptions.of(request)
    if request.newest:
        target, session = last_used_session(next(iter(request.targets), None), request.session)
        request = structs.replace(request, targets=[target], session=session)
    shard = Shard()
    if request.shard is not None:
        of_threads = all(classify(one, request.form) == THREADS for one in request.targets)
        shard = read_shard(request.shard, request.targets, request.session, of_threads)
    checked = (
        report
        for target in input_names(request.targets)
        for report in check_target(target, request, shard)
    )
    tally = CheckTally()
    counted = tally.count(options.select_findings(checked))
    if not options.emit(counted):
        for report in counted:
            name = render.report_name(report)
            if report.error is not None:
                terminal.complain(f"{render.target_name(name)}: {report.error}")
            for line in finding_lines(report):
                terminal.say(line)
            for note in report.notes:
                terminal.note(f"{render.target_name(name)}: note: {terminal.escape_controls(note)}")
    # What was said of a list for its check has to be said for its repair as well.
    asked = {"--dialect": request.dialect, "--model": request.model}
    return tally.say(
        "".join(f" {name} {shlex.quote(word)}" for name, word in asked.items() if word)
    )


class CheckTally(Struct):
    """What is counted of reports as they go by: there may be millions."""

    kinds: dict[str, int] = field(default_factory=dict)
    fixable: int = 0
    failed: int = 0
    own: int = 0
    records: int = 0
    due: dict[str, str] = field(default_factory=dict)

    def count(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Pass reports on, and count them."""
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

    def say(self, heal_options: str) -> int:
        """Print what was counted and which command repairs it; return the exit status."""
        if self.own:
            records = several(self.records, "record")
            terminal.note(f"Read {several(self.own, 'session')} with {records}.")
        is_broken = bool(self.kinds.keys() - {NOTE})
        if is_broken:
            count = render.count_kinds(self.kinds)
            terminal.note(f"Found {count} ({self.fixable} fixable).")
            if STDIN not in self.due and len(self.due) <= _MOST_DUE:
                for target, verb in self.due.items():
                    options = heal_options if verb == "heal" else ""
                    terminal.note(f"To repair it: lockstitch {verb} {pasted(target)}{options}")
        elif self.kinds and not self.failed:
            notes = several(self.kinds[NOTE], "note")
            terminal.note(f"Healthy with notes: {notes}, nothing broken.")
        elif not self.failed:
            terminal.note("All clean.")
        return FAILED if self.failed else FINDINGS if is_broken else CLEAN


def check_target(
    target: str,
    request: CheckRequest = CheckRequest(),  # noqa: B008 - frozen
    shard: Shard = Shard(),  # noqa: B008 - the same
) -> Iterator[Report]:
    """Check one target: every session in it, or the message list that it is."""
    form, session = request.form, request.session
    try:
        is_folder = os.path.isdir(target)  # noqa: PTH112 - start-up time
        kind = SESSIONS if is_folder else classify(target, form)
        if kind == STORE:
            yield from check_own_store(target, request)
            return
        if kind == THREADS:
            yield from check_threads(target, ThreadScope(request.workers, session, shard))
            return
        own = own_stores_below(target) if is_folder and form in (None, OWN) else []
        is_list = request.dialect is not None or (request.model is not None and form is None)
        found = None if is_list else [] if form == OWN else find_sessions(target, form, session)
    except (Unreadable, UsageError) as error:
        yield Report(public(target), form, error=error.message_with_session)
        return
    if found is None:
        yield check_list(target, request.dialect, request.model)
        return
    if not found and not own:
        what = "it is a folder that holds" if is_folder else "it holds"
        yield Report(target, form, error=f"{what} no {'such session' if session else 'session'}")
    for path in own:
        yield from check_own_store(path, request)
    from lockstitch.sources import operations

    for source in found:
        try:
            report = operations.check(source)
        except Exception as error:  # noqa: BLE001 - said as any other, and the rest is checked
            report = Report(public(source.path), source.format, error=describe_bug(error))
        if len(found) == 1 and source.error is None and not is_folder:
            report.target = target
        yield report


def check_threads(
    target: str, scope: ThreadScope, title: str = "Checking", *, search: bool = True
) -> Iterator[Report]:
    """Check LangGraph's threads; ``search`` looks into older checkpoints. An error is a report."""
    try:
        for outcome in process_threads(target, scope, title, search=search):
            yield outcome.report
    except LockstitchError as error:
        said = error.message_with_session
        yield Report(public(target), LANGGRAPH, scope.session, error=said)


def check_own_store(
    target: str,
    request: CheckRequest = CheckRequest(),  # noqa: B008 - frozen
) -> Iterator[Report]:
    """Check a Lockstitch store, with a progress bar; an error is a report, too."""
    from lockstitch import stored

    session, names = request.session, {"dialect": request.dialect, "model": request.model}
    try:
        with ProgressBar("Checking", stored.count(target, session), "records") as advance:
            yield from stored.check(target, session, advance=advance, **names)
    except LockstitchError as error:
        yield Report(public(target), OWN, error=error.message_with_session)


def check_list(target: str, dialect: str | None, model: str | None) -> Report:
    """Read and check one message list; what cannot be read becomes a report with an error."""
    from lockstitch.formats.plain import doubt_of

    try:
        document = read_document(target)
        with limits_as_errors():
            if document.requests:
                return _check_requests(document, dialect, model)
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


def _check_requests(document: MessageDocument, dialect: str | None, model: str | None) -> Report:
    """Check a file of which every line is a request."""
    from lockstitch.formats.plain import Requests, dialect_in

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
        messages=sum(len(messages_of(body)) for _, body in document.requests),
        reachable=len(document.requests),
        dialect=dialect,
        findings=findings,
    )


COMMAND = Command(
    name="check",
    run=run,
    bundle=CheckRequest,
    details=(
        "Takes the session files and databases of agent programs (Claude Code, Codex, pi, "
        "OpenClaw, Gemini CLI, opencode, goose, OpenAI Agents), folders of them, the id of a "
        "session on this machine, JSON (a list of messages, or a request body that holds one) "
        "and JSONL. Of a Lockstitch store (sqlite:///, postgresql://, jsonl:///) it "
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
        *REPORT_OPTIONS,
        WORKERS,
        SHARD,
        JSON,
    ),
)
