"""What each page needs to be run: small sessions, a home directory, a database."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, chdir, contextmanager
from pathlib import Path
from unittest import mock

from tests.docs.pages import ROOT, Run
from tests.sessions import claude

Setup = Callable[[Path], AbstractContextManager[Run]]


@contextmanager
def ready(page: str, folder: Path) -> Iterator[Run]:
    """Prepare a folder for a page and go there."""
    with ExitStack() as stack:
        stack.enter_context(chdir(folder))
        stack.enter_context(mock.patch.dict(os.environ, {"HOME": str(folder)}))
        yield stack.enter_context(SETUPS[page](folder))


@contextmanager
def _bare(folder: Path) -> Iterator[Run]:
    yield Run(folder)


@contextmanager
def _claude_code(folder: Path) -> Iterator[Run]:
    """A home directory with one Claude Code session that was cut off, and one that was not."""
    project = folder / ".claude" / "projects" / "-home-ada-project"
    project.mkdir(parents=True)
    project.joinpath(f"{claude.SESSION}.jsonl").write_text(_two_windows(), "utf-8")
    yield Run(folder)


def _two_windows() -> str:
    """A call that was cut off, and two windows that went on from there."""
    lines = [
        claude.line(1, None, "user", "Fix the failing test"),
        claude.line(2, 1, "assistant", claude.call("toolu_01A")),
        claude.line(3, 2, "user", "Go on"),
        claude.line(4, 3, "assistant", claude.said("One test failed.")),
        claude.line(5, 2, "user", "Are you there?"),
        claude.line(6, 5, "assistant", claude.said("All tests passed.")),
    ]
    return "".join(lines)


@contextmanager
def _lists(folder: Path) -> Iterator[Run]:
    """A list that a provider would refuse."""
    call = {"type": "tool_use", "id": "toolu_01A", "name": "bash", "input": {"command": "pytest"}}
    messages = [
        {"role": "user", "content": "Fix the failing test"},
        {"role": "assistant", "content": [{"type": "text", "text": "I run it."}, call]},
    ]
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield Run(folder, {"messages": messages, "broken": messages, "__name__": "page"})
    root.setLevel(level)
    root.handlers[:] = handlers


@contextmanager
def _sessions(folder: Path) -> Iterator[Run]:
    with _claude_code(folder) as run:
        run.names["ask_my_model"] = str.upper
        yield run


@contextmanager
def _langgraph(folder: Path) -> Iterator[Run]:
    """A graph, a checkpointer of its own, a thread that was interrupted, and a database of one."""
    import sqlite3

    from langgraph.checkpoint.sqlite import SqliteSaver

    from tests.docs.graphs import Model, broken, builder

    graphs = builder()
    with sqlite3.connect("checkpoints.db") as base:
        broken(graphs.compile(checkpointer=SqliteSaver(base)), "ticket-42")
    base.close()
    connection = sqlite3.connect("live.db", check_same_thread=False)
    saver = SqliteSaver(connection)
    graph = graphs.compile(checkpointer=saver)
    names = {"builder": graphs, "saver_of_mine": saver, "model": Model(), "__name__": "page"}
    yield Run(folder, {**names, "config": broken(graph, "live")})
    connection.close()


@contextmanager
def _postgres(folder: Path) -> Iterator[Run]:
    """A PostgreSQL on which the page's statements are run, and the roles that they make."""
    from tests import postgres_server

    server = postgres_server.shared()
    database = ["postgres"]

    def execute(code: str) -> None:
        for statement in (
            re.sub(r"--.*", "", code).replace("\\c agents\n", "\\c agents;").split(";")
        ):
            if statement.strip() == "\\c agents":
                database[0] = "agents"
            elif statement.strip():
                server.execute(statement, database[0])

    agent = f"{server.address('agents', 'agent')}?owner=lockstitch_owner"
    names = {"OWNER_URL": server.address("agents", "lockstitch_owner"), "AGENT_URL": agent}
    shown = "postgresql://agent@db/agents?owner=lockstitch_owner"
    run = Run(folder, {**names, "__name__": "page"}, {"sql": execute}, {shown: agent})
    try:
        yield run
    finally:
        if store := run.names.get("store"):
            store.close()
        server.execute("DROP DATABASE IF EXISTS agents")
        for role in ("agent", "lockstitch_owner"):
            server.execute(f"DROP ROLE IF EXISTS {role}")


@contextmanager
def _capacity(folder: Path) -> Iterator[Run]:
    """A store that was opened once, and holds nothing yet."""
    import lockstitch
    from tests import postgres_server

    server = postgres_server.shared()
    url = server.fresh()
    lockstitch.open(url).close()

    def execute(code: str) -> None:
        server.execute(code, url.rpartition("/")[2])

    folder.joinpath("benchmarks").symlink_to(ROOT / "benchmarks")

    run = Run(folder, {"OWNER_URL": url, "__name__": "page"}, {"sql": execute})
    yield run
    run.names["store"].close()


# Every page of which the blocks are run; the long ones have tests of their own.
SETUPS: dict[str, Setup] = {
    "library.md": _lists,
    "sessions.md": _sessions,
    "tutorial.md": _bare,
    "howto/claude-code.md": _claude_code,
    "howto/langgraph.md": _langgraph,
    "howto/agent-loop.md": _bare,
    "howto/postgresql.md": _postgres,
    "operations.md": _bare,
    "capacity.md": _capacity,
    "explanation/on-disk.md": _bare,
}
