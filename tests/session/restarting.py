"""An agent program as it is printed, in a process of its own that is killed at a durable step.

The steps are the writes of the store, counted; the process is killed with SIGKILL right before
one is made, or right after it was made and before anybody is told.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anthropic
import trio  # noqa: F401 - what a printed program imports is at hand in a process that is forked

import lockstitch
import lockstitch.session.async_session
from lockstitch.stores.postgres import PostgresBackend
from lockstitch.stores.sqlite import SqliteBackend

BEFORE, AFTER = "before", "after"


class Killing:
    """Counts the writes of a store, and ends this process at one of them."""

    def __init__(self, when: str, step: int, log: Path) -> None:
        self.when, self.step, self.log = when, step, log
        self.count = 0

    def around(self, kind: type) -> None:
        """Count what a kind of store appends."""
        append = kind.append  # type: ignore[attr-defined]

        def counted(*args: Any, **options: Any) -> Any:
            self.count += 1
            self._strike(BEFORE)
            try:
                return append(*args, **options)
            finally:
                self._strike(AFTER)
                self.log.write_text(str(self.count))

        kind.append = counted  # type: ignore[attr-defined]

    def _strike(self, when: str) -> None:
        if (when, self.count) == (self.when, self.step):
            os.kill(os.getpid(), signal.SIGKILL)


def run(source: str, folder: str, url: str, given: str, when: str = "", step: int = 0) -> None:
    """Run a printed program with what its page has said before, and the input it is given."""
    os.chdir(folder)
    os.environ.update(ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="none", NO_PROXY="*", no_proxy="*")
    with Path("input").open("w") as file:
        file.write(given)
    for stream, number, name in ((sys.stdin, 0, "input"), (sys.stdout, 1, "output")):
        stream.flush() if number else None
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.stdin = Path("input").open()  # noqa: SIM115 - as long as the process lives
    sys.argv = ["agent.py"]
    killing = Killing(when, step, Path("steps"))
    for kind in (SqliteBackend, PostgresBackend):
        killing.around(kind)
    names: dict[str, Any] = {"__name__": "__main__", "lockstitch": lockstitch}
    names["anthropic"] = anthropic
    exec(compile(source, "program.py", "exec"), names)  # noqa: S102 - our own pages
