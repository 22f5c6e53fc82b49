"""LangGraph.js at work: threads of a database that acts are done on, before the strict provider."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstitch.provider import Reply, Script
from lockstitch.provider import ScriptedCall as Call
from lockstitch.provider.server import running
from lockstitch.provider.service import Records, RequestEntry, Service, choose_rules

from .install import CACHE, program

Json = dict[str, Any]
COMMAND = str(Path(sys.executable).with_name("lockstitch"))
PATIENCE = 600
# Compiled scripts are kept: loading them is most of what a start takes.
_ENVIRON = {
    "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
    "LANG": "C.UTF-8",
    "NODE_COMPILE_CACHE": str(CACHE / "compiled"),
}


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that a program does with a thread, and what the model answers meanwhile."""

    act: str
    thread: str
    graph: str
    options: Json = field(default_factory=dict)
    replies: tuple[Reply, ...] = ()

    def told(self) -> Json:
        """As the script takes it."""
        return {"act": self.act, "thread": self.thread, "graph": self.graph, **self.options}


def called(*calls: tuple[str, str]) -> Reply:
    """A reply that calls tools, each with a path."""
    return Reply("I shall see.", tuple(Call(name, {"path": path}) for name, path in calls))


@dataclass(frozen=True, slots=True)
class Node:
    """The database of a program in JavaScript, and every request it sent to its provider."""

    address: str
    folder: Path
    dialect: str = "anthropic"
    log: list[RequestEntry] = field(default_factory=list)

    def does(self, *acts: Act) -> list[Json]:
        """Do acts in a process of their own, and give what came of each."""
        with self._started(acts) as process:
            out, err = _ended(process)
        assert process.returncode == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def outlives(self, begun: list[Act], other: Callable[[], None], *acts: Act) -> list[Json]:
        """Begin acts, let something else happen, and go on with further acts of the process."""
        with self._started([*begun, *acts]) as process, _limited(process):
            assert process.stdout
            assert all([process.stdout.readline() for _ in begun])  # noqa: C419 - read them all
            other()
            out, err = _ended(process)
        assert process.returncode == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def dies_in(self, *acts: Act) -> None:
        """Begin acts, and kill the process with all its runs under way."""
        with self._started(acts) as process, _limited(process):
            assert process.stdout
            begun = [process.stdout.readline() for _ in acts]
            process.kill()
            _, err = _ended(process)
        assert all(begun), err

    def bodies(self) -> list[Json]:
        """Every request so far."""
        return [json.loads(path.read_bytes()) for path in sorted(self.folder.glob("*.json"))]

    @contextmanager
    def _started(self, acts: Sequence[Act]) -> Iterator[subprocess.Popen[str]]:
        with self._provider([reply for act in acts for reply in act.replies]) as url:
            words = {"address": self.address, "provider": {"url": url, "dialect": self.dialect}}
            told = json.dumps({**words, "acts": [act.told() for act in acts]})
            with subprocess.Popen(
                [*program(), told],
                cwd=self.folder,
                env={**_ENVIRON, "LOCKSTITCH": COMMAND, "HOME": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                try:
                    yield process
                finally:
                    process.kill()

    @contextmanager
    def _provider(self, replies: list[Reply]) -> Iterator[str]:
        desk = Service(
            choose_rules([]),
            Script(replies),
            clock=time.time,
            log=self.log.append,
            records=Records(self.folder),
        )
        with running(desk) as url:
            yield url


@contextmanager
def _limited(process: subprocess.Popen[str]) -> Iterator[None]:
    """What never says a word is killed, so that whoever reads it finds its end."""
    late = threading.Timer(PATIENCE, process.kill)
    late.start()
    try:
        yield
    finally:
        late.cancel()


def _ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate(timeout=PATIENCE)
