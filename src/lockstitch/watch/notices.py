"""What is reported of a session that is followed: in words, as a value, and to other programs.

A notice on the desktop and a command for every event get it without a shell: as words of a command
line, on standard input and in the environment.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct

from lockstitch.errors import UsageError
from lockstitch.rules import ERROR
from lockstitch.sources.interface import SQLITE
from lockstitch.sources.source import Report, Source

BROKEN, REPAIRED, REFUSED, HEALTHY = "broken", "repaired", "refused", "healthy"


class Notice(Struct):
    """Something that is told: a session is broken, was repaired, was not, or is healthy again.

    ``command`` is what a person may paste next; the findings of ``report`` are those that are
    left. Neither holds anything of what was said in the session.
    """

    kind: str
    report: Report
    command: str
    backup: str | None = None
    reason: str = ""

    @property
    def codes(self) -> list[str]:
        """The codes of what is wrong, each once."""
        return sorted({found.code for found in self.report.findings})


def command_for(verb: str, report: Report, source: Source) -> str:
    """Return the command that repairs a session, or takes that back, for a shell."""
    words = ["lockstitch", verb, source.path]
    if source.kind == SQLITE and report.session is not None:
        words += ["--session", report.session]
    return shlex.join(words)


def describe_notice(event: Notice) -> str:
    """Return in a sentence what happened to a session; which one stands elsewhere."""
    if event.kind == HEALTHY:
        return "nothing is wrong with it any more."
    if event.kind == REPAIRED:
        left = f" Left: {', '.join(event.codes)}." if event.codes else ""
        return f"repaired; the original is kept in {event.backup}.{left}"
    if event.kind == REFUSED:
        return f"not repaired: {event.reason}"
    if event.report.error is not None:
        return f"cannot be read: it {event.report.error}"
    findings = sorted(event.report.findings, key=lambda found: found.severity != ERROR)
    first = findings[0]
    more = len(findings) - 1
    rest = f", and {more} more" if more else ""
    return f"broken: {first.message} ({first.code} at {first.place}{rest})"


def notice_fields(event: Notice) -> dict[str, Any]:
    """Return what a program is fields besides the session itself."""
    fields: dict[str, Any] = {
        "event": event.kind,
        "said": describe_notice(event),
        "command": event.command,
    }
    if event.backup is not None:
        fields["backup"] = event.backup
    if event.reason:
        fields["reason"] = event.reason
    return fields


_NO_DESKTOP = "--notify needs notify-send (on Linux) or osascript (on macOS), and finds neither"
_SCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)
_PATIENCE = 60
Complain = Callable[[str], None]


def find_notifier() -> list[str]:
    """Return the command that shows a notice, without its title and text; raises UsageError."""
    found = shutil.which("notify-send")
    if found:
        return [found, "--app-name=lockstitch", "--"]
    found = shutil.which("osascript")
    if found:
        return [found, *(word for line in _SCRIPT for word in ("-e", line))]
    raise UsageError(_NO_DESKTOP)


def parse_command(given: str) -> list[str]:
    """Take a command apart as a shell does, without one; raises UsageError."""
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise UsageError(f"--exec takes a command: {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise UsageError(f"--exec: there is no command {words[0] if words else given!r}")
    return words


class EventCommands:
    """Commands that are run for every event, one after the other, beside all that goes on."""

    def __init__(self, complain: Complain) -> None:
        self._complain = complain
        self._pool = ThreadPoolExecutor(1)

    def notify(self, command: list[str], event: Notice) -> None:
        """Show a notice."""
        title = f"{event.report.format or 'Session'}: {event.kind}"
        self._start([*command, title, f"{event.report.target}: {describe_notice(event)}"], b"", {})

    def run(self, command: list[str], event: Notice, document: bytes) -> None:
        """Run a command with the event on its standard input and in its environment."""
        variables = {
            "LOCKSTITCH_EVENT": event.kind,
            "LOCKSTITCH_TARGET": event.report.target,
            "LOCKSTITCH_FORMAT": event.report.format or "",
            "LOCKSTITCH_SESSION": event.report.session or "",
            "LOCKSTITCH_CODES": " ".join(event.codes),
            "LOCKSTITCH_SAID": describe_notice(event),
            "LOCKSTITCH_COMMAND": event.command,
        }
        # No value of the environment can hold one, and no name of a file does.
        self._start(
            command, document, {name: text.replace("\0", "") for name, text in variables.items()}
        )

    def close(self) -> None:
        """Wait for what was started."""
        self._pool.shutdown()

    def _start(self, command: list[str], document: bytes, variables: Mapping[str, str]) -> None:
        self._pool.submit(self._run, command, document, variables)

    def _run(self, command: list[str], document: bytes, variables: Mapping[str, str]) -> None:
        try:
            done = subprocess.run(  # noqa: S603 - the command that a person gave
                command,
                input=document,
                env={**os.environ, **variables},
                timeout=_PATIENCE,
                stdout=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self._complain(f"{command[0]} took more than {_PATIENCE} s and was ended")
        except OSError as error:
            self._complain(f"{command[0]} could not be run: {error.strerror}")
        else:
            if done.returncode:
                self._complain(f"{command[0]} ended with status {done.returncode}")
