"""Compacts sessions in processes that die at a given moment: ``python -m tests.compaction.agent``.

It is told a store, a folder for logs, and a list of sessions with the moment each dies: at the
n-th question (``asked``), before or after the n-th write (``before``, ``after``), or some
milliseconds after it began (``late``). Each has a process of its own, forked from this one, which
has neither threads nor a store. A log line is one system call, so it outlives ``kill -9``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import lockstitch.stores.postgres
import lockstitch.stores.sqlite  # noqa: F401 - once, before it forks
from lockstitch.compaction.ladder import key_of
from lockstitch.session.store import Store
from lockstitch.stores.opening import open_backend
from tests.compaction.talks import GOOD, MIDDLE


class Dying:
    """One compaction, and the moment at which its process dies."""

    def __init__(self, url: str, folder: Path, name: str, how: str, number: int) -> None:
        self.name = name
        self.how = how
        self.left = number
        self.says = number % 2 == 0
        self.said = 0
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self.log = os.open(folder / f"{name}.log", flags, 0o600)
        self.backend = open_backend(url)

    def tell(self, *words: Any) -> None:
        os.write(self.log, json.dumps(words).encode() + b"\n")

    def strike(self, how: str) -> None:
        if how == self.how:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def run(self) -> None:
        store = Store(self.backend)
        self.session = store.session(self.name, wait=60)
        append = self.backend.append

        def appended(*arguments: Any) -> Any:
            self.strike("before")
            head = append(*arguments)
            self.strike("after")
            return head

        self.backend.append = appended  # type: ignore[method-assign]
        self.tell("began")
        done = self.session.compact(self.summarize, budget=MIDDLE)
        self.tell("done", done.rung)

    def summarize(self, prompt: str) -> str:
        """Answer, and say something to the session meanwhile."""
        self.tell("asked", key_of(prompt))
        self.strike("asked")
        if self.says:
            self.said += 1
            self.session.say(f"<M{self.said}> meanwhile")
            self.tell("said", self.said)
        return f"{GOOD} {self.name}"


def killed(url: str, folder: Path, name: str, how: str, number: int) -> None:
    """Fork a process that compacts a session, and see it dead."""
    pid = os.fork()
    if pid == 0:
        try:
            Dying(url, folder, name, how, number).run()
        finally:
            os._exit(0)
    if how == "late":
        log = folder / f"{name}.log"
        while not log.exists() or b"began" not in log.read_bytes():
            time.sleep(0.001)
        time.sleep(number / 1000)
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    orders = json.loads(sys.argv[3])
    for order in orders:
        killed(sys.argv[1], Path(sys.argv[2]), *order)
