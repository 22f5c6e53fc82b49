"""``lockstitch check``: what a provider would reject in a conversation, and why."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from lockstitch.cli import render, terminal
from lockstitch.cli.heal import input_names
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
from lockstitch.cli.targets import find_sessions, last_used_session, name_threads, survey_of
from lockstitch.cli.terminal import CLEAN, FAILED, FINDINGS, describe_bug
from lockstitch.errors import Unreadable, UsageError
from lockstitch.rules import NOTE
from lockstitch.rules.rule import several
from lockstitch.sources.source import OWN, Report, Survey, pasted
from lockstitch.sources.targets import resolve_whole, stores_below
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lockstitch.sources.source import Source

# The command that repairs them is printed for at most this many targets.
_MOST_DUE = 3


class CheckRequest(Struct, frozen=True):
    """The options on the command line, by name."""

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
    part, targets = request.shard, request.targets
    are_threads = part is not None and name_threads(targets, request.form, request.session)
    survey = survey_of(request.workers, part, targets, are_threads=are_threads)
    survey = structs.replace(survey, dialect=request.dialect, model=request.model)
    checked = (
        report
        for target in input_names(request.targets)
        for report in check_target(target, request, survey)
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
    # Options that a check of a list needed are needed for its repair, too.
    asked = {"--dialect": request.dialect, "--model": request.model}
    return tally.say(
        "".join(f" {name} {shlex.quote(word)}" for name, word in asked.items() if word)
    )


class CheckTally(Struct):
    """Counts reports one by one, because there may be millions."""

    kinds: dict[str, int] = field(default_factory=dict)
    fixable: int = 0
    failed: int = 0
    own: int = 0
    records: int = 0
    due: dict[str, str] = field(default_factory=dict)

    def count(self, reports: Iterable[Report]) -> Iterator[Report]:
        """Yield the same reports, and count them."""
        for report in reports:
            self.failed += report.error is not None
            if report.format == OWN and report.session is not None:
                self.own += 1
                self.records += report.records
            for found in report.findings:
                self.kinds[found.severity] = self.kinds.get(found.severity, 0) + 1
                self.fixable += found.fixable
            if len(self.due) <= _MOST_DUE and any(f.fixable for f in report.findings):
                verb = "heal" if report.format == "list" else "repair"
                self.due[public(report.target)] = verb
            yield report

    def say(self, heal_options: str) -> int:
        """Print the counts and the command that repairs the sessions; return the exit status."""
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
    survey: Survey = Survey(),  # noqa: B008 - the same
) -> Iterator[Report]:
    """Check one target: every session in it, or the message list that it is."""
    form, session = request.form, request.session
    is_folder = os.path.isdir(target)  # noqa: PTH112 - start-up time
    is_list = request.dialect is not None or (request.model is not None and form is None)
    found: Sequence[Source]
    try:
        whole = None if is_folder else resolve_whole(target, form, session)
        if whole is not None:
            found = [whole]
        elif form == OWN:
            found = stores_below(target) if is_folder else []
        else:
            found = find_sessions(target, form, session, is_list=is_list)
            if is_folder and form is None and not is_list:
                found = [*stores_below(target), *found]
    except (Unreadable, UsageError) as error:
        yield Report(public(target), form, error=error.message_with_session)
        return
    if not found:
        what = "it is a folder that holds" if is_folder else "it holds"
        yield Report(target, form, error=f"{what} no {'such session' if session else 'session'}")
    is_only = len(found) == 1 and found[0].error is None and whole is None and not is_folder
    for source in found:
        try:
            for report in source.reports(survey):
                if is_only:
                    report.target = target
                yield report
        except Exception as error:  # noqa: BLE001 - said as any other, and the rest is checked
            yield Report(public(source.path), source.format, error=describe_bug(error))


COMMAND = Command(
    name="check",
    run=run,
    bundle=CheckRequest,
    details=(
        "Takes the session files and databases of agent programs (Claude Code, Codex, pi, "
        "OpenClaw, Gemini CLI, opencode, goose, OpenAI Agents), folders of them, the id of a "
        "session on this machine, JSON (a list of messages, or a request body that contains "
        "one) and JSONL. In a Lockstitch store (sqlite:///, postgresql://, jsonl:///) it reads "
        "every byte and verifies the checksums and the request that each session produces, even "
        "while sessions are being written. A PostgreSQL database with LangGraph's checkpoints "
        "is read thread by thread, in short transactions. Changes nothing. A finding marked [*] "
        "can be repaired with `lockstitch repair` (`heal` for lists); `lockstitch explain CODE` "
        "describes it."
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
        "Files, folders, session ids or store addresses; - or nothing for stdin.",
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
