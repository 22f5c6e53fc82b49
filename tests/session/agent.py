"""Agents in a process of their own, to be killed or interrupted: ``python -m tests.session.agent``.

Each says on standard output where it is, so that a test strikes at a known moment.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

from lockstitch.session.session import Session
from lockstitch.session.store import Store
from lockstitch.session.tool_run import Tool, current_call
from lockstitch.stores.sqlite import SqliteBackend

from .talk import asks

FOLDER = Path(sys.argv[2] if len(sys.argv) > 2 else ".")


def tell(word: str) -> None:
    """Say where we are."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def quick(n: int) -> str:
    """Give a result at once."""
    return f"quick {n}"


def slow(n: int) -> str:
    """Leave a trace of having run, then never come to an end."""
    with (FOLDER / "ran").open("a") as file:
        file.write(f"{n} {current_call().effect} {current_call().attempt}\n")
    tell("running")
    threading.Event().wait(60)
    return "too late"


TOOLS: dict[str, Any] = {"quick": quick, "slow": slow}


def store() -> Store:
    """Open the store of this agent."""
    return Store(SqliteBackend(FOLDER / "agent.db"))


def opened() -> Session:
    """Open the session of this agent."""
    return store().session("s")


def parallel(dialect: str) -> None:
    """Run three tools, of which one does not end."""
    with opened() as session:
        session.say("Go")
        calls = [("c1", "quick", {"n": 1}), ("c2", "quick", {"n": 2}), ("c3", "slow", {"n": 3})]
        session.record(asks(dialect, *calls))
        threading.Thread(target=_when_two_are_done, args=(session,), daemon=True).start()
        session.run_tools(TOOLS)


def _when_two_are_done(session: Session) -> None:
    while sum(call.outcome == "ok" for call in session.calls) < 2:
        time.sleep(0.002)
    tell("two done")


def queued(dialect: str) -> None:
    """Run one tool after the other; the second does not end, so the third never starts."""
    with opened() as session:
        session.say("Go")
        calls = [("c1", "quick", {"n": 1}), ("c2", "slow", {"n": 2}), ("c3", "quick", {"n": 3})]
        session.record(asks(dialect, *calls))
        session.run_tools(TOOLS, max_parallel=1)


def unstarted(dialect: str) -> None:
    """Get a reply that asks for tools, and run none of them."""
    with opened() as session:
        session.say("Go")
        session.record(asks(dialect, ("c1", "quick", {"n": 1}), ("c2", "quick", {"n": 2})))
        tell("recorded")
        time.sleep(60)


def repeated(dialect: str) -> None:
    """Run a tool that may be repeated, and one that may not; neither ends."""
    with opened() as session:
        if not session.turn.calls:
            session.say("Go")
            session.record(asks(dialect, ("c1", "slow", {"n": 1}), ("c2", "once", {"n": 2})))
        session.run_tools({"slow": Tool(slow, repeatable=True), "once": slow})


def waiting(dialect: str) -> None:
    """Let a call wait for approval."""
    with opened() as session:
        session.say("Go")
        session.record(asks(dialect, ("c1", "quick", {"n": 1}), ("c2", "quick", {"n": 2})))
        session.run_tools({"quick": quick}, approve=lambda call: call.id == "c1")
        tell("waiting")
        time.sleep(60)


def streamed(dialect: str) -> None:
    """Read a stream that stops in the middle of its second block."""
    from .events import half

    with opened() as session:
        session.say("Go")
        with session.stream(half(dialect, lambda: tell("streaming"))) as stream:
            for _ in stream:
                pass


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[3:])
