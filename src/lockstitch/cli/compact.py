"""``lockstitch compact``: shorten a session that is too long, with a backup and an undo.

The summary comes from a command of the user's, which gets a prompt on its stdin, or from a digest.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from lockstitch.cli import render, terminal
from lockstitch.cli.options import (
    FOLLOW,
    FORMAT,
    JSON,
    OVERWRITE,
    SESSION,
    YES,
    Command,
    Operand,
    option,
    read_number,
    read_seconds,
)
from lockstitch.cli.targets import find_one, is_own_store, naming_target, write_copy
from lockstitch.cli.terminal import CLEAN, FINDINGS, ProgressBar
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.formats.repair import file_bytes
from lockstitch.rules.rule import several
from lockstitch.sources import compaction, operations
from lockstitch.sources.source import pasted
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from lockstitch.sources.source import Shorter, Source

_RUNGS = {
    "nothing": "nothing to do",
    "shortened": "old results shortened",
    "summary": "summarized by the command",
    "digest": "summarized in a digest",
}


class CompactRequest(Struct, frozen=True):
    """The options on the command line, by name."""

    target: str | None
    budget: int
    max_bytes: int | None
    model_command: str | None
    deadline: float
    yes: bool
    diff: bool
    output: str | None
    force: bool
    undo: bool
    form: str | None
    session: str | None
    follow_symlinks: bool
    as_json: bool

    @property
    def limits(self) -> dict[str, Any]:
        """The budget, as arguments of the Python call."""
        return {"budget": self.budget, "most_bytes": self.max_bytes}


class CompactionPlan(Struct):
    """What a compaction without a model would do, and a function that does the real one."""

    outlook: Shorter
    apply: Callable[[dict[str, Any]], Shorter]
    require: Callable[[], object] = lambda: None


def run(request: CompactRequest) -> int:
    """Compact one session, and return the exit status."""
    target = request.target
    if target is None:
        raise UsageError("nothing to compact: give a file, the id of a session or a store")
    name = render.target_name(target)
    if is_own_store(target, request.form):
        from lockstitch import stored

        if request.output is not None:
            raise UsageError(
                "-o is for files; `lockstitch fork` copies a session within a store"
            ).about(name)
        with naming_target(target):
            if not request.undo:
                return _compact(name, request, _plan_journal(target, request))
            session = render.target_name(stored.uncompact(target, request.session))
            terminal.note(f"{session}: the whole conversation is sent again.")
            return CLEAN
    if request.undo:
        raise UsageError(
            "--undo is for stores; `lockstitch undo` takes back a change to a file"
        ).about(name)
    source = find_one(target, request.form, request.session)
    try:
        return _compact(name, request, _plan_file(source, request))
    except LockstitchError as error:
        if error.target is None:
            error.about(name)
        raise


def _plan_journal(target: str, request: CompactRequest) -> CompactionPlan:
    from lockstitch import stored

    journal = stored.read(target, request.session)
    done = stored.outlook(journal, request.budget, request.max_bytes)

    def apply(options: dict[str, Any]) -> Shorter:
        return stored.compact(target, journal.session, **options)

    return CompactionPlan(stored.shorter(target, journal, done), apply)


def _plan_file(source: Source, request: CompactRequest) -> CompactionPlan:
    output, follow = request.output, request.follow_symlinks
    if output is not None and not request.diff:
        write_copy(output, None, source.path, force=request.force)
    session = source.open(follow_symlinks=follow)
    outlook = compaction.preview_compaction(
        session, compaction.plan_compaction(session, **request.limits)
    )
    if output is None:
        return CompactionPlan(
            outlook,
            lambda options: compaction.compact(source, follow_symlinks=follow, **options),
            lambda: session.source.require_closed(session, operations.COPY),
        )
    if session.before is None:
        raise UsageError(
            "it is in a database, and one session of a database cannot be written as a copy: "
            "leave out -o"
        )

    def write(options: dict[str, Any]) -> Shorter:
        again = source.open(follow_symlinks=follow)
        made = compaction.plan_compaction(again, **options)
        write_copy(output, file_bytes(made.after), source.path, force=request.force)
        return compaction.preview_compaction(again, made)

    return CompactionPlan(outlook, write)


def _compact(name: str, request: CompactRequest, plan: CompactionPlan) -> int:
    """Show what would be done without a model, ask, and then do it."""
    for line in _outlook_lines(name, request, plan.outlook):
        terminal.note(line)
    if plan.outlook.done.event is None or request.diff:
        return _finish(request, plan.outlook, written=False)
    plan.require()
    # a copy leaves the session as it is, so no question is needed
    if request.output is None and not request.yes:
        question = "Compact it? The original is kept."
        if not terminal.confirm(question, "--yes compacts without asking"):
            _finish(request, plan.outlook, written=False)
            return FINDINGS
    with ExitStack() as stack:
        options: dict[str, Any] = {**request.limits, "deadline": request.deadline}
        if request.model_command is not None:
            options["summarize"] = stack.enter_context(ModelCommand(request.model_command))
            bar: ProgressBar | None = None

            def show(done: int, total: int) -> None:
                # the bar appears with the first question, when the number of parts is known
                nonlocal bar
                if bar is None:
                    bar = ProgressBar("Summing up", total, "parts")
                    stack.enter_context(bar)
                bar.advance(max(done - bar.done, 0))

            options["on_progress"] = show
            # a person who types a command wants it to run, whatever happened before
            options["ignore_pause"] = True
        done = plan.apply(options)
    return _finish(request, done, written=True)


def _outlook_lines(name: str, request: CompactRequest, outlook: Shorter) -> Iterator[str]:
    done, turns = outlook.done, outlook.turns
    before, after = done.before, done.after
    if done.event is None:
        yield f"{name} is within the budget, with {before.tokens} of {request.budget} tokens."
        return
    is_asked = done.rung == "digest" and request.model_command
    rung = _RUNGS["summary" if is_asked else done.rung]
    what = f"{several(turns, 'turn')} {rung}" if turns else rung
    yield (
        f"{name}: {before.tokens} tokens ({before.bytes} bytes) become about {after.tokens} "
        f"({after.bytes}): {what}."
    )
    if outlook.changes:
        yield f"{name}: {several(len(outlook.changes), 'change')} of a repair come first."


def _finish(request: CompactRequest, shorter: Shorter, *, written: bool) -> int:
    done, report, where = shorter.done, shorter.report, public(str(request.target))
    if request.as_json:
        fields = {
            "target": where,
            "format": report.format,
            "session": report.session,
            "rung": done.rung,
            "before": {"tokens": done.before.tokens, "bytes": done.before.bytes},
            "after": {"tokens": done.after.tokens, "bytes": done.after.bytes},
            "turns": shorter.turns,
            "asked": done.asked,
            "failures": list(done.failures),
            "unasked": done.unasked,
            "edits": shorter.changes,
            "backup": shorter.backup,
            "applied": written,
        }
        terminal.emit(render.encode_json(**fields))
    if request.as_json or not written:
        return CLEAN
    terminal.note(
        f"Compacted ({_RUNGS[done.rung]}): {done.before.tokens} tokens before, "
        f"{done.after.tokens} now."
    )
    if done.failures:
        reasons = ", ".join(dict.fromkeys(map(describe_failure, done.failures)))
        terminal.note(f"The command failed {several(len(done.failures), 'time')}: {reasons}.")
    elif done.unasked:
        terminal.note(f"The command was not run: {done.unasked}.")
    if shorter.backup is not None:
        terminal.note(f"Backup: {pasted(shorter.backup)}")
        terminal.note(f"To undo it: lockstitch undo {pasted(report.target)}")
    elif request.output is None:
        more = f" --session {pasted(report.session)}" if report.session else ""
        terminal.note(f"To undo it: lockstitch compact {pasted(where)}{more} --undo")
    if shorter.carried:
        terminal.note(f"The session was continued meanwhile; see: lockstitch check {pasted(where)}")
    return CLEAN


# The command.

_MOST_BYTES = 4 << 20


class CommandFailed(Exception):
    """The command returned no summary.

    ``status_code`` is its exit status, if it ended by itself.
    """

    def __init__(self, status: int | None = None) -> None:
        super().__init__()
        self.status_code = status


def describe_failure(failure: str) -> str:
    """Return why a command returned no summary, in the words of a shell."""
    name, _, status = failure.partition(" ")
    return f"exit status {status.strip('()')}" if name == CommandFailed.__name__ else failure


class ModelCommand:
    """Runs a command for each question, without a shell, and leaves none of them running.

    Its output is used as the summary and never shown.
    """

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError:
            raise UsageError("--model-command has a quotation mark that is not closed") from None
        if not self._words or shutil.which(self._words[0]) is None:
            raise UsageError("--model-command names a program that was not found")
        self._running: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __call__(self, prompt: str) -> str:
        """Run the command once; raise ``CommandFailed`` if it returns no summary."""
        self.stop()
        process = self._start()
        # Written by a thread, because a command may print before it has read everything.
        feeder = threading.Thread(target=_feed, args=(process, prompt), daemon=True)
        feeder.start()
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        with process.stdout as out:
            # One byte more than allowed shows that there is too much, without reading it all.
            text = out.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            _kill(process)
        status = process.wait()
        feeder.join()
        if status or len(text) > _MOST_BYTES:
            raise CommandFailed(status)
        return text.decode("utf-8", "replace")

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            try:
                self._running = subprocess.Popen(  # noqa: S603 - the user's own command
                    self._words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                raise CommandFailed from error
            return self._running

    def stop(self) -> None:
        """End the last command and everything that it started, if it is still running."""
        with self._lock:
            if self._running is not None and self._running.poll() is None:
                _kill(self._running)
                self._running.wait()
            self._running = None

    def __enter__(self) -> Self:
        """Return the command itself."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        """End the command if it is still running."""
        self.stop()


def _feed(process: subprocess.Popen[bytes], prompt: str) -> None:
    """Write the prompt; a command need not read all of it."""
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    with suppress(OSError):
        process.stdin.write(prompt.encode("utf-8", "replace"))
    with suppress(OSError):
        process.stdin.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _read_deadline(text: str) -> float:
    if not read_seconds(text):
        raise ValueError("a number of seconds")
    return float(text)


COMMAND = Command(
    name="compact",
    run=run,
    bundle=CompactRequest,
    details=(
        "For sessions of Claude Code and Codex, message lists, and Lockstitch stores. Shows "
        "what would be done and asks first; --yes skips the question, --diff only shows it, -o "
        "writes a compacted copy instead. A summary replaces the first turns. --model-command "
        "writes it: the command gets a prompt on stdin for each part and prints the summary. "
        "Without it, or if it fails, the summary is a digest of what was said and done. The "
        "last turns stay as they are. The original is kept, and `lockstitch undo` restores it "
        "byte for byte; --undo takes back the compaction of a session in a store. A broken "
        "session is repaired as well. A session that its program has open is refused, because "
        "the program would continue from what it has in memory."
    ),
    examples=(
        "lockstitch compact session.jsonl --diff",
        "lockstitch compact session.jsonl --budget 50000",
        "lockstitch compact session.jsonl --model-command 'claude -p' --deadline 600 --yes",
        "lockstitch compact conversation.json --max-bytes 20000000 -o shorter.json",
        "lockstitch compact sqlite:///agent.db --session ticket-42 --yes",
    ),
    operand=Operand(
        "target", "TARGET", "A file, the id of a session, or a store's address.", required=True
    ),
    options=(
        option(
            "--budget TOKENS",
            f"Tokens that a request may have afterwards (default: {compaction.BUDGET}).",
            default=compaction.BUDGET,
            read=read_number("a number, 1 or more", 1),
        ),
        option(
            "--max-bytes BYTES",
            "Bytes that a request may have, including images.",
            read=read_number("a number, 1 or more", 1),
        ),
        option(
            "--model-command CMD",
            "Program that summarizes: gets a prompt on stdin, prints the summary on stdout; run "
            "without a shell.",
        ),
        option(
            "--deadline SECONDS",
            "Total seconds that summarizing may take (default: 300).",
            default=300.0,
            read=_read_deadline,
        ),
        YES,
        option("--diff", "Only show what would be done."),
        option("--output -o FILE", "Write a compacted copy here."),
        OVERWRITE,
        option("--undo", "Undo the compactions of a session in a store."),
        FORMAT,
        SESSION,
        FOLLOW,
        JSON,
    ),
)
