"""``lockstitch watch``: sessions checked while their programs write them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from lockstitch.cli import render, terminal
from lockstitch.cli.options import Command, Operand, Option, read_seconds
from lockstitch.cli.terminal import CLEAN, INTERRUPTED
from lockstitch.errors import UsageError
from lockstitch.transcript import several

if TYPE_CHECKING:
    from lockstitch.watch.watcher import Notice, WatchStart

_IDLE = 30.0
_COLOURS = {"broken": "red", "refused": "yellow", "repaired": "green", "healthy": "green"}


def run(  # noqa: PLR0913 - one keyword an option
    *,
    paths: list[str],
    repair: bool,
    idle: float,
    notify: bool,
    command: str | None,
    as_json: bool,
) -> int:
    """Watch until somebody ends it, and return the exit status."""
    from pathlib import Path
    from time import monotonic

    from lockstitch.watch import changes, watcher
    from lockstitch.watch.watcher import Watcher, WatchLoop

    missing = [path for path in paths if not os.path.lexists(path)]
    if missing:
        raise UsageError("no such file or folder").about(render.target_name(missing[0]))
    places = changes.given_places(paths) if paths else changes.known_places(Path.home(), os.environ)
    loop = WatchLoop(places, Watcher(monotonic, os.environ, idle=idle, repair=repair))
    notifier = watcher.find_notifier() if notify else None
    words = watcher.parse_command(command) if command is not None else None
    commands = watcher.EventCommands(terminal.complain)

    def announce(found: WatchStart) -> None:
        if as_json:
            facts = {"folders": found.folders, "sessions": found.sessions}
            render.emit_json_line(event="started", **facts)
            return
        folders = several(len(found.folders), "folder")
        terminal.note(
            f"Watching {several(found.sessions, 'session')} in {folders}. Ctrl-C ends it; "
            "`lockstitch scan` checks the sessions that nobody writes to."
        )

    def report(event: Notice) -> None:
        fields = {**watcher.notice_fields(event), "session": render.report_fields(event.report)}
        document = render.encode_json(**fields)
        if as_json:
            terminal.emit(document)
        else:
            name = terminal.paint(render.target_name(render.report_name(event.report)), "bold")
            said = terminal.escape_controls(watcher.describe_notice(event))
            next_step = f"  {terminal.escape_controls(event.command)}" if event.command else ""
            terminal.say(f"{name}: {terminal.paint(said, _COLOURS[event.kind])}{next_step}")
        terminal.flush()
        if notifier is not None:
            commands.notify(notifier, event)
        if words is not None:
            commands.run(words, event, document)

    before = signal.signal(signal.SIGTERM, lambda *_: loop.end())
    try:
        loop.run(announce, report)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
        commands.close()
    return CLEAN


COMMAND = Command(
    name="watch",
    run=run,
    details=(
        "Follows the places where the known programs keep their sessions, or PATH, and reads what "
        "is appended. What is wrong is reported in one line, with the command that repairs it. A "
        "call without a result at the end of a session may be at work: it is reported only when "
        "the session was not written to for a while and its program has ended. --repair repairs "
        "such sessions then, with a backup, and never one that a program has open. The command of "
        "--exec is run without a shell; it gets the event as JSON on its standard input, and in "
        "variables such as LOCKSTITCH_TARGET and LOCKSTITCH_CODES."
    ),
    examples=(
        "lockstitch watch",
        "lockstitch watch --notify",
        "lockstitch watch --repair --idle 120",
        "lockstitch watch ~/.claude/projects --json",
        "lockstitch watch --exec 'logger -t sessions -f /dev/stdin'",
    ),
    operand=Operand("paths", "PATH", "Files or folders instead of the known places.", many=True),
    options=(
        Option("repair", ("--repair",), "Repair sessions at rest, with a backup."),
        Option(
            "idle",
            ("--idle",),
            "How long nothing is written until a session is at rest (default: 30).",
            metavar="SECONDS",
            default=_IDLE,
            read=read_seconds,
        ),
        Option("notify", ("--notify",), "Show a notice on the desktop, too."),
        Option("command", ("--exec",), "Run this command for every event.", metavar="CMD"),
        Option("as_json", ("--json",), "Print one JSON document a line for programs."),
    ),
)
