"""The command ``lockstitch``.

Exit status: 0 clean or repaired, 1 findings left, 2 bad usage, unreadable input or an internal
error, 130 after Ctrl-C. There is no other, and there is never a traceback.

An everyday call is parsed here from the command's own declaration; whatever is not everyday
(``--help``, a mistake, a spelling only a full parser knows) goes to typer, which is built from
the same declaration. That keeps typer's import, several times the cost of a check, off the path.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockstitch.cli.arguments import Command

CLEAN, FINDINGS, FAILED, INTERRUPTED = 0, 1, 2, 130
COMMANDS = (
    "scan",
    "check",
    "repair",
    "undo",
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
    "provider",
    "ui",
    "demo",
)
# A session is many objects and hardly any circles of them: to look for those as often as Python
# does takes up to a quarter of the time.
COLLECT_AFTER = 50_000
# A module cannot have the name of a word of Python's own.
_MODULES = {"import": "importing"}


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    gc.set_threshold(COLLECT_AFTER)
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit status; no exception leaves this function."""
    from lockstitch.cli import terminal
    from lockstitch.errors import LockstitchError

    try:
        status = _dispatch(words)
        terminal.flush()
    except LockstitchError as error:
        terminal.complain(str(error))
    except KeyboardInterrupt:
        terminal.complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        terminal.abandon()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        terminal.complain(f"{error.filename}: {reason}" if error.filename else reason)
    except Exception as error:  # noqa: BLE001 - the last line of defence: status 2, no traceback
        terminal.complain(own_failure(error))
    else:
        return status
    return FAILED


def command(name: str) -> Command:
    """The declaration of one command; imports only that command's module."""
    found: Command = import_module(f"lockstitch.cli.{_MODULES.get(name, name)}").COMMAND
    return found


def _dispatch(words: Sequence[str]) -> int:
    if words and words[0] in COMMANDS:
        chosen = command(words[0])
        values = chosen.parse(words[1:])
        if values is not None:
            return chosen.start(values)

    if not words and _is_at_terminal():
        from lockstitch.cli import pick

        return pick.run()
    words = words or ("--help",)

    from lockstitch.cli import manual

    return manual.run(words, [command(name) for name in COMMANDS])


def _is_at_terminal() -> bool:
    """Whether a person sees what is printed, and can answer."""
    streams = (sys.stdin, sys.stdout)
    return all(stream is not None and stream.isatty() for stream in streams)


def own_failure(error: Exception) -> str:
    """Name a bug by type and place; its text could hold message content."""
    place = error.__traceback__
    while place and place.tb_next:
        place = place.tb_next
    where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else "unknown place"
    return f"internal error: {type(error).__name__} at {where}"
