"""One life of a database of LangGraph.js: broken, checked, mended, continued, and brought back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path

from tests.formats.campaign import Home, Ran

from . import threads
from .databases import Database, Rows, fresh
from .drive import Json, Node


@dataclass(frozen=True, slots=True)
class Seen:
    """What a program in JavaScript sees of each thread, and what comes of going on with it.

    ``states`` are the threads as it finds them, ``histories`` all their states, newest first, as
    far as they were asked for. ``continued`` tells what a further message does to
    those that are broken, ``resumed`` what an answer does to those that wait for one.
    """

    states: dict[str, Json]
    histories: dict[str, Json]
    continued: dict[str, Json]
    resumed: dict[str, Json]

    @classmethod
    def of(cls, node: Node) -> Seen:
        """Let it look and go on."""
        parts = (
            threads.shown(threads.GRAPHS),
            threads.told(threads.names(*threads.KILLED)),
            threads.continued(threads.BROKEN),
            threads.resumed(),
        )
        came = iter(node.does(*(act for part in parts for act in part)))
        found = [{act.thread: next(came) for act in part} for part in parts]
        states = {thread: each["state"] for thread, each in found[0].items()}
        histories = {thread: each["history"] for thread, each in found[1].items()}
        return cls(states, histories, *found[2:])


@dataclass
class Life:
    """Each step is done when it is first asked for, and once; they are named in their order."""

    kind: str
    folder: Path

    def __post_init__(self) -> None:
        self._numbers = count(1)

    @cached_property
    def database(self) -> Database:
        """With every thread in it, as the program left it."""
        database = fresh(self.kind, self.folder)
        node = self.node(database)
        node.does(*threads.MADE)
        node.dies_in(*threads.KILLED, *threads.DROPPED)
        return database

    @cached_property
    def rows(self) -> Rows:
        """Its rows."""
        return self.database.rows()

    @cached_property
    def before(self) -> Seen:
        """What the program makes of a copy of it."""
        return Seen.of(self.node(self.database.copy()))

    @cached_property
    def checked(self) -> Ran:
        """What the command finds."""
        assert self.rows
        assert self.before
        return self.run("check")

    @cached_property
    def repaired(self) -> Ran:
        """What the command mends."""
        assert self.checked
        return self.run("repair", "--yes")

    @cached_property
    def mended(self) -> Database:
        """A copy of the database as it was right behind the repair."""
        assert self.repaired
        return self.database.copy()

    @cached_property
    def requests(self) -> Path:
        """Where the requests of ``after`` are kept."""
        return self.folder / "requests"

    @cached_property
    def after(self) -> Seen:
        """What the program makes of a copy of that."""
        return Seen.of(Node(self.mended.copy().address, self.requests))

    @cached_property
    def undone(self) -> Ran:
        """What bringing it all back says; nothing else is done to the database behind it."""
        assert self.mended
        return self.run("undo", "--yes")

    def node(self, database: Database) -> Node:
        """A program in JavaScript with that database."""
        return Node(database.address, self.folder / f"requests-{next(self._numbers)}")

    def run(self, command: str, *options: str, target: str | None = None) -> Ran:
        """Run the command on the database, or on another target."""
        home = Home(self.folder / "home")
        home.root.mkdir(exist_ok=True)
        return home.run(command, *options, "--json", target or self.database.address)


def sessions(ran: Ran) -> dict[str, Json]:
    """What a report says of each thread."""
    found = [json.loads(line)["sessions"] for line in ran.out.splitlines()]
    return {each["session"]: each for listed in found for each in listed}
