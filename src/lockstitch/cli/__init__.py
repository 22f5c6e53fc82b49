"""The command ``lockstitch``.

Exit status: 0 clean or repaired, 1 findings left, 2 bad usage, unreadable input or an internal
error, 130 after Ctrl-C. There is no other, and there is never a traceback.

A command line loads only the module of its own command. The list of all commands in the help loads
none of them, because their summaries are here.
"""

from __future__ import annotations

import gc
import os
import shlex
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from msgspec import structs

from lockstitch.cli import parser, terminal
from lockstitch.cli.terminal import CLEAN, FAILED, INTERRUPTED
from lockstitch.errors import LockstitchError, UsageError, suggestion
from lockstitch.stores.addresses import address_problem, public

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockstitch.cli.parser import Command

# Each command, with its group and its line in the help.
COMMANDS = {
    "scan": (
        "sessions",
        "Find every agent session on this machine, or below PATH, and check them all.",
    ),
    "check": (
        "sessions",
        "Find what is wrong with a session, a message list or a request body.",
    ),
    "repair": ("sessions", "Repair broken sessions in place: shown first, backed up, undoable."),
    "undo": ("sessions", "Undo the last repair of a session, byte for byte."),
    "backups": ("sessions", "List, show and delete the backups that repairs have kept."),
    "show": ("sessions", "Show a session in readable form, each call with its result."),
    "export": (
        "sessions",
        "Print a stored session as healed request messages, or as a document.",
    ),
    "heal": ("requests", "Make a message list or request body valid, and say what was changed."),
    "compact": ("sessions", "Shorten a session that is too long, as its own program would."),
    "checkpoints": ("store", "List the points in a session that you can go back to."),
    "rewind": ("store", "Continue a session from an earlier point; nothing is deleted."),
    "fork": ("store", "Start a new session from the beginning of another one."),
    "search": ("sessions", "Find sessions by what was said in them."),
    "migrate": ("store", "Copy sessions from one store to another."),
    "import": ("store", "Copy another program's session into a store, to continue it there."),
    "delete": ("store", "Delete a session for good, with everything that belongs to it."),
    "retain": ("store", "Delete sessions that are too old, or more than you want to keep."),
    "vacuum": ("store", "Free the space of deleted sessions, and erase their content from it."),
    "explain": ("", "Explain a finding's code: what it is, what causes it, how it is repaired."),
    "proxy": ("requests", "Heal requests between any client and its provider."),
    "run": (
        "sessions",
        "Repair the session that a command is about to resume, then run it behind the proxy.",
    ),
    "watch": (
        "sessions",
        "Check sessions while they are being written; report what breaks, and repair it if asked.",
    ),
    "provider": ("requests", "Run a strict provider on this machine, for tests and demos."),
    "ui": (
        "sessions",
        "Show sessions in the browser: read, repair, undo, rewind, export.",
    ),
    "demo": ("", "Kill an agent mid-tool, once with a message list and once with a session."),
    "completion": ("", "Print a script that lets your shell complete lockstitch's commands."),
}
# A session consists of many objects and hardly any cycles. Searching for cycles as often as Python
# does by default takes up to a quarter of the time.
COLLECT_AFTER = 50_000
# Commands on one subject share a module, in which each is a constant with its own name.
_SHARED = {
    name: module
    for module, names in {
        "undo": ("undo", "backups"),
        "migrate": ("migrate", "import"),
        "store": ("rewind", "fork", "checkpoints", "retain", "delete", "vacuum"),
        "serving": ("provider", "proxy", "ui", "watch"),
        # a module must not have the name of a function in this package
        "running": ("run",),
    }.items()
    for name in names
}


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    gc.set_threshold(COLLECT_AFTER)
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit status; no exception leaves this function."""
    terminal.configure()
    try:
        status = _run_command(words)
        terminal.flush()
    except LockstitchError as error:
        return _report_failure(words, error, str(error))
    except KeyboardInterrupt as error:
        terminal.start_new_line()
        _report_failure(words, error, " ".join(["interrupted.", *terminal.done_so_far()]))
        return INTERRUPTED
    except BrokenPipeError:
        terminal.abandon(sys.stdout)
        return FAILED
    except OSError as error:
        reason = error.strerror or type(error).__name__
        named = f"{error.filename}: {reason}" if error.filename else reason
        return _report_failure(words, error, named)
    except Exception as error:  # noqa: BLE001 - the last line of defence: status 2, no traceback
        status = _report_failure(words, error, terminal.describe_bug(error))
        for place in terminal.raised_at(error) if terminal.is_verbose() else ():
            terminal.note(f"  at {place}")
    return status


def _report_failure(words: Sequence[str], error: BaseException, message: str) -> int:
    """Print why the command failed; as JSON for a program that asked for JSON."""
    terminal.complain(message)
    own = words[: words.index("--")] if "--" in words else words
    if "--json" in own and not terminal.has_emitted():
        from lockstitch.cli import render

        terminal.emit_last(render.encode_json(error=message, kind=type(error).__name__))
    return FAILED


def command(name: str) -> Command:
    """Return the declaration of one command, importing only that command's module."""
    module = import_module(f"lockstitch.cli.{_SHARED.get(name, name)}")
    found: Command = getattr(module, name.upper() if name in _SHARED else "COMMAND")
    group, summary = COMMANDS[name]
    return structs.replace(found, group=group, summary=summary)


def _run_command(words: Sequence[str]) -> int:
    began = time.monotonic()
    # the command is the first word that is neither an option nor an option's value
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in parser.COMMON_WITH_VALUE else 1
    front, name, rest = words[:at], words[at] if at < len(words) else "", words[at + 1 :]
    if name == "help":
        front, name, rest = ["--help"], rest[0] if rest else "", []
    call, chosen = parser.parse(None, front), None
    if name:
        if name not in COMMANDS:
            raise UsageError(_describe_unknown(name))
        chosen = command(name)
        call = parser.parse(chosen, [*front, *rest])
    common = call.common
    terminal.configure(common.quiet, common.verbose, common.color)
    if common.version or common.help or chosen is None:
        streams = (sys.stdin, sys.stdout)
        if not words and all(stream is not None and stream.isatty() for stream in streams):
            # somebody sees the output, and can answer
            from lockstitch.cli import pick

            return pick.run()
        from lockstitch.cli import help as pages

        page = pages.command_page(chosen) if chosen else pages.overview_page(COMMANDS)
        terminal.emit((pages.version_page() if common.version else page).encode())
        return CLEAN
    operand = chosen.operand
    named = call.values[operand.name]
    for word in named if isinstance(named, list) else [named]:
        # anything that exists is a path, however it looks, so that commands need not consider odd
        # addresses
        if word and operand.is_target and not os.path.lexists(word):
            problem = address_problem(word)
            if problem:
                raise UsageError(problem).about(public(word))
    values = call.values
    status = chosen.run(chosen.bundle(**values)) if chosen.bundle else chosen.run(**values)
    if common.verbose:
        terminal.note(f"Took {time.monotonic() - began:.2f} s.")
    return status


def _describe_unknown(word: str) -> str:
    """Return the error for an unknown command, with a suggestion: another one, or a session."""
    hint = suggestion(word, COMMANDS) or " `lockstitch -h` lists all commands."
    if "://" in word or os.path.lexists(word):
        hint = f" To check the session of that name: lockstitch check {shlex.quote(public(word))}"
    return f"there is no command {public(word)!r}.{hint}"
