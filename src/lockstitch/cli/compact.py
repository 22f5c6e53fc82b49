"""``lockstitch compact``: a session that is too long made shorter, backed up and undoable.

A command of the user's that sums up: a prompt on its stdin, the summary on its stdout.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from lockstitch import sessions
from lockstitch.cli import render, terminal
from lockstitch.cli.parser import FOLLOW, FORMAT, JSON, OVERWRITE, SESSION, Command, Operand, Option
from lockstitch.cli.targets import find_one, is_own_store, naming_target, write_copy
from lockstitch.cli.terminal import CLEAN, FINDINGS, ProgressBar
from lockstitch.conversation.json_text import is_index
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.sources.targets import pasted, public
from lockstitch.transcript import several

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from lockstitch.compaction.ladder import Compaction
    from lockstitch.sessions import Shorter
    from lockstitch.sources.source import Source


_RUNGS = {
    "nothing": "nothing to do",
    "shortened": "old results shortened",
    "summary": "summed up by the command",
    "digest": "summed up by a digest",
}


class CompactRequest(Struct, frozen=True):
    """How the command was asked to go about it."""

    target: str
    budget: int
    most_bytes: int | None
    deadline: float
    command: str | None
    yes: bool
    diff: bool
    output: str | None
    force: bool
    follow: bool
    as_json: bool

    @property
    def limits(self) -> dict[str, Any]:
        """The budget, by the names of the Python call."""
        return {"budget": self.budget, "most_bytes": self.most_bytes}


def run(  # noqa: PLR0913 - one keyword an option
    *,
    target: str | None,
    budget: str,
    max_bytes: str | None,
    model_command: str | None,
    deadline: str,
    yes: bool,
    diff: bool,
    output: str | None,
    force: bool,
    undo: bool,
    form: str | None,
    session: str | None,
    follow_symlinks: bool,
    as_json: bool,
) -> int:
    """Compact one session, and return the exit status."""
    if target is None:
        raise UsageError("nothing to compact: give a file, the id of a session or a store")
    how = CompactRequest(
        target,
        _count(budget, "--budget"),
        None if max_bytes is None else _count(max_bytes, "--max-bytes"),
        _seconds(deadline),
        model_command,
        yes,
        diff,
        output,
        force,
        follow_symlinks,
        as_json,
    )
    if is_own_store(target, form):
        return _compact_journal(how, session, undo=undo)
    if undo:
        raise UsageError(
            f"{render.target_name(target)}: `lockstitch undo` takes back what was done to a file"
        )
    source = find_one(target, form, session)
    with _naming_target(target):
        return _compact_file(how, source)


def _count(word: str, flag: str) -> int:
    if not is_index(word) or not int(word):
        raise UsageError(f"{flag} takes a number from 1 on")
    return int(word)


def _seconds(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise UsageError("--deadline takes a number of seconds")
    return number


@contextmanager
def _naming_target(target: str) -> Iterator[None]:
    """Put the target's name before what an error says of it."""
    try:
        yield
    except LockstitchError as error:
        raise type(error)(f"{render.target_name(target)}: {error}") from error


def _compact_file(how: CompactRequest, source: Source) -> int:
    """Plan without a model, show, ask, and only then have it done."""
    if how.output is not None and not how.diff:
        write_copy(how.output, None, source.path, force=how.force)
    session = sessions.opened(source, follow_symlinks=how.follow)
    outlook = sessions.shorter(session, sessions.condensed(session, **how.limits))
    if how.output is not None and session.before is None:
        raise UsageError("is in a database; a copy of one session of it cannot be written")
    _show(how, outlook.done, outlook.turns, len(outlook.changes))
    if outlook.done.event is None or how.diff:
        return _finish(how, outlook, written=False)
    if how.output is None:
        sessions.require_closed(session, sessions.COPY)
    if how.output is None and not _is_confirmed(how):
        _finish(how, outlook, written=False)
        return FINDINGS
    with ExitStack() as stack:
        options: dict[str, Any] = {**how.limits, "deadline": how.deadline, **_asking(how, stack)}
        if how.output is None:
            done = sessions.compact(source, follow_symlinks=how.follow, **options)
        else:
            done = _write_compacted_copy(how, source, options)
    return _finish(how, done, written=True)


def _write_compacted_copy(how: CompactRequest, source: Source, options: dict[str, Any]) -> Shorter:
    from lockstitch.sources import repair

    session = sessions.opened(source, follow_symlinks=how.follow)
    made = sessions.condensed(session, **options)
    write_copy(str(how.output), repair.file_bytes(made.after), source.path, force=how.force)
    return sessions.shorter(session, made)


def _compact_journal(how: CompactRequest, session: str | None, *, undo: bool) -> int:
    from lockstitch import stored

    if how.output is not None:
        raise UsageError(
            f"{render.target_name(how.target)}: `lockstitch fork` makes a copy of a session of a "
            "store"
        )
    with naming_target(how.target):
        if undo:
            name = stored.uncompact(how.target, session)
            terminal.note(f"{render.target_name(name)}: all of the conversation is sent again.")
            return CLEAN
        journal = stored.read(how.target, session)
        outlook = stored.outlook(journal, how.budget, how.most_bytes)
        shorter = stored.shorter(how.target, journal, outlook)
        _show(how, outlook, shorter.turns, 0)
        if outlook.event is None or how.diff:
            return _finish(how, shorter, written=False)
        if not _is_confirmed(how):
            _finish(how, shorter, written=False)
            return FINDINGS
        with ExitStack() as stack:
            options = {**how.limits, "deadline": how.deadline, **_asking(how, stack)}
            done = stored.compact(how.target, journal.session, **options)
    return _finish(how, done, written=True)


def _is_confirmed(how: CompactRequest) -> bool:
    return how.yes or terminal.confirm(
        "Compact it? The original is kept.", "--yes compacts without asking"
    )


def _asking(how: CompactRequest, stack: ExitStack) -> dict[str, Any]:
    """The model to ask, if there is one, and the bar that shows how far it is."""
    if how.command is None:
        return {}

    return {
        "summarize": stack.enter_context(ModelCommand(how.command)),
        "on_progress": _PartsBar(stack).show,
        # somebody who types a command wants it asked, whatever became of it before
        "ignore_pause": True,
    }


class _PartsBar:
    """A progress bar that is there from the first question on, when their number is known."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.advance: Callable[[int], None] | None = None
        self.done = 0

    def show(self, done: int, total: int) -> None:
        if self.advance is None:
            self.advance = self.stack.enter_context(ProgressBar("Summing up", total, "parts"))
        self.advance(max(done - self.done, 0))
        self.done = max(done, self.done)


def _show(how: CompactRequest, done: Compaction, turns: int, mended: int) -> None:
    for line in _lines(how, done, turns, mended):
        terminal.note(line)


def _lines(how: CompactRequest, done: Compaction, turns: int, mended: int) -> Iterator[str]:
    name = render.target_name(how.target)
    before, after = done.before, done.after
    if done.event is None:
        yield f"{name}: is within the budget, with {before.tokens} of {how.budget} tokens."
        return
    rung = _RUNGS["summary" if done.rung == "digest" and how.command else done.rung]
    what = f"{several(turns, 'turn')} {rung}" if turns else rung
    yield (
        f"{name}: {before.tokens} tokens ({before.bytes} bytes) become about {after.tokens} "
        f"({after.bytes}): {what}."
    )
    if mended:
        yield f"{name}: {several(mended, 'change')} of a repair come first."


def _finish(how: CompactRequest, shorter: Shorter, *, written: bool) -> int:
    if how.as_json:
        terminal.emit(render.encode_json(**_fields(how, shorter, written=written)))
    elif written:
        _say(how, shorter)
    return CLEAN


def _say(how: CompactRequest, shorter: Shorter) -> None:
    done = shorter.done
    terminal.note(
        f"Compacted ({_RUNGS[done.rung]}): {done.before.tokens} tokens before, "
        f"{done.after.tokens} now."
    )
    if done.failures:
        reasons = ", ".join(dict.fromkeys(map(describe_failure, done.failures)))
        terminal.note(f"The command failed {several(len(done.failures), 'time')}: {reasons}.")
    elif done.unasked:
        terminal.note(f"The command was not asked: {done.unasked}.")
    if shorter.backup is not None:
        terminal.note(f"Backup: {pasted(shorter.backup)}")
        terminal.note(f"To undo it: lockstitch undo {pasted(shorter.report.target)}")
    elif how.output is None:
        own = shorter.report.session
        more = f" --session {pasted(own)}" if own else ""
        terminal.note(f"To undo it: lockstitch compact {pasted(public(how.target))}{more} --undo")
    if shorter.carried:
        where = pasted(public(how.target))
        terminal.note(f"The session went on meanwhile; see: lockstitch check {where}")


def _fields(how: CompactRequest, shorter: Shorter, *, written: bool) -> dict[str, Any]:
    done, report = shorter.done, shorter.report
    return {
        "target": public(how.target),
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


COMMAND = Command(
    name="compact",
    group="sessions",
    run=run,
    summary="Make a session that is too long shorter, as its own program would.",
    details=(
        "For sessions of Claude Code and Codex, message lists, and stores of Lockstitch's own. "
        "Says what would be done and asks; --yes does not ask, --diff only says it, -o writes a "
        "compacted copy instead. A summary takes the place of the first turns: that of "
        "--model-command, which gets a prompt on its stdin for each part and prints the summary, "
        "or, without it and when it fails, a digest of what was said and done. The last turns "
        "stay as they are. The original is kept, and `lockstitch undo` brings it back byte for "
        "byte; --undo takes the compaction of a session in a store back. A broken session is "
        "repaired on the way. Refused while its program has the session open, which would go on "
        "from what it remembers."
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
        Option(
            "budget",
            ("--budget",),
            f"Tokens that a request may have afterwards (default: {sessions.BUDGET}).",
            metavar="TOKENS",
            default=str(sessions.BUDGET),
        ),
        Option(
            "max_bytes",
            ("--max-bytes",),
            "Bytes that a request may have, images included.",
            metavar="BYTES",
        ),
        Option(
            "model_command",
            ("--model-command",),
            "Program that sums up: a prompt on stdin, the summary on stdout; no shell is used.",
            metavar="CMD",
        ),
        Option(
            "deadline",
            ("--deadline",),
            "Seconds that summing up may take in all (default: 300).",
            metavar="SECONDS",
            default="300",
        ),
        Option("yes", ("--yes", "-y"), "Do not ask."),
        Option("diff", ("--diff",), "Only say what would be done."),
        Option("output", ("--output", "-o"), "Write a compacted copy here.", metavar="FILE"),
        OVERWRITE,
        Option("undo", ("--undo",), "Take the compactions of a session in a store back."),
        FORMAT,
        SESSION,
        FOLLOW,
        JSON,
    ),
)


_MOST_BYTES = 4 << 20


class CommandFailed(Exception):
    """The command gave no summary; ``status_code`` is its exit status, if it ended by itself."""

    def __init__(self, status: int | None = None) -> None:
        super().__init__()
        self.status_code = status


def describe_failure(failure: str) -> str:
    """Say why a command gave no summary as a shell would."""
    name, _, status = failure.partition(" ")
    return f"exit status {status.strip('()')}" if name == CommandFailed.__name__ else failure


class ModelCommand:
    """Runs a command for each question, without a shell; at the end none of them is left running.

    What it prints is taken for the summary and shown to nobody.
    """

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError:
            raise UsageError("--model-command: a quotation mark is not closed") from None
        if not self._words or shutil.which(self._words[0]) is None:
            raise UsageError("--model-command: there is no such program")
        self._running: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __call__(self, prompt: str) -> str:
        """Ask once; raises CommandFailed."""
        self.stop()
        process = self._started()
        feeder = threading.Thread(target=_feed, args=(process, prompt), daemon=True)
        feeder.start()
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        with process.stdout as out:
            text = out.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            _kill(process)
        status = process.wait()
        feeder.join()
        if status or len(text) > _MOST_BYTES:
            raise CommandFailed(status)
        return text.decode("utf-8", "replace")

    def _started(self) -> subprocess.Popen[bytes]:
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
        """End the command that was asked last, if it is still running, and all it started."""
        with self._lock:
            if self._running is not None and self._running.poll() is None:
                _kill(self._running)
                self._running.wait()
            self._running = None

    def __enter__(self) -> Self:
        """Go in."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        """Leave nothing running."""
        self.stop()


def _feed(process: subprocess.Popen[bytes], prompt: str) -> None:
    """Give the prompt; a command that does not read it all is free to."""
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
