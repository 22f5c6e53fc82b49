"""The command ``lockstitch``.

Exit status: 0 clean or repaired, 1 findings left, 2 bad usage, unreadable input or an internal
error, 130 after Ctrl-C. There is no other, and there is never a traceback.

A command line loads the module of its own command only, and help loads none of them: what a
command is in one line stands in ``summaries``, which is generated.
"""

from __future__ import annotations

import gc
import os
import shlex
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from lockstitch.errors import LockstitchError, UsageError, suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockstitch.cli.parser import Command, CommonOptions

CLEAN, FINDINGS, FAILED, INTERRUPTED = 0, 1, 2, 130
COMMANDS = (
    "scan",
    "check",
    "repair",
    "undo",
    "backups",
    "show",
    "export",
    "heal",
    "compact",
    "checkpoints",
    "rewind",
    "fork",
    "search",
    "migrate",
    "import",
    "delete",
    "retain",
    "vacuum",
    "explain",
    "proxy",
    "run",
    "watch",
    "provider",
    "ui",
    "demo",
    "completion",
)
# A session is many objects and hardly any circles of them: to look for those as often as Python
# does takes up to a quarter of the time.
COLLECT_AFTER = 50_000
# A module cannot have the name of a word of Python's own, nor that of a function here.
_MODULES = {"import": "importing", "run": "running"}


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    gc.set_threshold(COLLECT_AFTER)
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit status; no exception leaves this function."""
    from lockstitch.cli import terminal

    terminal.configure()
    try:
        status = _dispatch(words)
        terminal.flush()
    except LockstitchError as error:
        return _failed(words, error, str(error))
    except KeyboardInterrupt as error:
        terminal.start_new_line()
        _failed(words, error, " ".join(["interrupted.", *terminal.done_so_far()]))
        return INTERRUPTED
    except BrokenPipeError:
        terminal.abandon()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return _failed(words, error, f"{error.filename}: {reason}" if error.filename else reason)
    except Exception as error:  # noqa: BLE001 - the last line of defence: status 2, no traceback
        status = _failed(words, error, own_failure(error))
        for place in _places(error) if terminal.is_verbose() else ():
            terminal.note(f"  at {place}")
        return status
    else:
        return status
    return FAILED


def _failed(words: Sequence[str], error: BaseException, message: str) -> int:
    """Say why the command failed, to a program that asked for JSON as JSON."""
    from lockstitch.cli import terminal

    terminal.complain(message)
    asked = words[: words.index("--")] if "--" in words else words
    if "--json" in asked and not terminal.has_emitted():
        from lockstitch.cli import output

        terminal.emit_last(output.encode_failure(type(error).__name__, message))
    return FAILED


def command(name: str) -> Command:
    """The declaration of one command; imports only that command's module."""
    found: Command = import_module(f"lockstitch.cli.{_MODULES.get(name, name)}").COMMAND
    return found


def _dispatch(words: Sequence[str]) -> int:
    from lockstitch.cli import parser, terminal

    began = time.monotonic()
    line = parser.split_line(words)
    if line.name == "help":
        line = parser.SplitLine(["--help"], line.rest[0] if line.rest else "", [])
    common = parser.parse_common(line.front)
    if not line.name:
        terminal.configure(common.quiet, common.verbose, common.color)
        if not words and _is_at_terminal():
            from lockstitch.cli import pick

            return pick.run()
        return _about(common)
    if line.name not in COMMANDS:
        raise UsageError(_unknown(line.name))
    chosen = command(line.name)
    call = parser.parse(chosen, [*line.front, *line.rest])
    terminal.configure(call.common.quiet, call.common.verbose, call.common.color)
    if call.common.help or call.common.version:
        return _about(call.common, chosen)
    status = chosen.start(call.values)
    if terminal.is_verbose():
        terminal.note(f"Took {time.monotonic() - began:.2f} s.")
    return status


def _unknown(word: str) -> str:
    """Say that there is no such command, and what may be meant: another one, or a session."""
    from lockstitch.addresses import public

    hint = suggestion(word, COMMANDS) or " lockstitch -h lists all commands."
    if "://" in word or os.path.lexists(word):
        hint = f" To check what has that name: lockstitch check {shlex.quote(public(word))}"
    return f"there is no command {public(word)!r}.{hint}"


def _about(common: CommonOptions, chosen: Command | None = None) -> int:
    """Print the versions if they are asked for, else help."""
    from lockstitch.cli import terminal

    if common.version:
        from lockstitch.cli import help

        terminal.emit(help.version_page().encode())
        return CLEAN
    from lockstitch.cli import help as pages

    terminal.emit((pages.command_page(chosen) if chosen else pages.overview_page()).encode())
    return CLEAN


def _is_at_terminal() -> bool:
    """Whether a person sees what is printed, and can answer."""
    streams = (sys.stdin, sys.stdout)
    return all(stream is not None and stream.isatty() for stream in streams)


def own_failure(error: Exception) -> str:
    """Name a bug by type and place; its text could hold message content."""
    where = [*_places(error), "unknown place"]
    return f"internal error: {type(error).__name__} at {where[0]}"


def _places(error: Exception) -> list[str]:
    """Where an error was raised, and by whom that was called: the innermost place first."""
    places: list[str] = []
    step = error.__traceback__
    while step:
        places.append(f"{step.tb_frame.f_code.co_filename}:{step.tb_lineno}")
        step = step.tb_next
    return places[::-1]
