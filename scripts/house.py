"""Trace four everyday ways through the code and print how long each one is.

    python scripts/house.py            # a table
    python scripts/house.py --names    # the functions of each way as well, in order of first visit
    python scripts/house.py --check    # fails if a way has become longer than it may be (CI)

A way is measured by the distinct functions of ours that it visits, the modules they are in, and
how often the room changes from one newly visited function to the next. A room is a package or a
module directly under ``lockstitch``.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import lockstitch
from lockstitch import cli

SOURCE = Path(__file__).parent.parent / "src" / "lockstitch"
CALL = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}
# How long a way may be: functions, modules, changes of room. What is longer than DESIGN §4 wants it
# may only become shorter: lower the figure here when it has. A little room is left, since threads
# and files that are slower or faster take other turns.
# DESIGN wants 200 / 30 / 40 for `repair` and 120 / 22 for `run_tools`.
LIMITS = {
    "repair": (228, 34, 42),
    "run_tools": (104, 22, 28),
    "heal": (54, 14, 20),
    "guard": (60, 8, 4),
}
# Calls of a saver that the first turn of a graph with one node may take under a guard, as any later
# one; 6 without a guard.
SAVER_CALLS = 10


class Way:
    """The functions of ours that were called, in order of first visit."""

    def __init__(self) -> None:
        self.seen: dict[CodeType, str] = {}
        self.saver_calls = 0

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; what is compiled for a comprehension or a class body is no function."""
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and code not in self.seen:
            path = code.co_filename
            if path.startswith(str(SOURCE)):
                module = path.removeprefix(f"{SOURCE}{os.sep}").removesuffix(".py")
                self.seen[code] = f"{module.replace(os.sep, '.')}:{code.co_qualname}"

    @property
    def figures(self) -> tuple[int, int, int]:
        """Return the number of functions, of modules, and of changes of room."""
        modules = [name.partition(":")[0] for name in self.seen.values()]
        rooms = [module.partition(".")[0] for module in modules]
        changes = sum(new != old for old, new in pairwise(rooms))
        return len(modules), len(set(modules)), changes


@contextmanager
def traced() -> Iterator[Way]:
    """Trace what runs in the block, in this thread and in threads that it starts."""
    way = Way()
    threading.setprofile(way.profile)
    sys.setprofile(way.profile)
    try:
        yield way
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def repair(folder: Path) -> Way:
    """Repair a Claude Code session of five lines with one open call, on the command line."""
    lines = []
    parent = None
    said: list[tuple[str, Any]] = [
        ("user", "List the files."),
        ("assistant", [{"type": "text", "text": "I look."}, CALL]),
        ("user", "Go on."),
        ("assistant", [{"type": "text", "text": "Done."}]),
        ("user", "Thanks."),
    ]
    for number, (role, content) in enumerate(said):
        uuid = f"00000000-0000-4000-8000-{number:012}"
        message = {"role": role, "content": content}
        lines.append(
            {
                "parentUuid": parent,
                "isSidechain": False,
                "userType": "external",
                "cwd": "/home/ada/project",
                "sessionId": "3f0c6f0e-0000-4000-8000-000000000001",
                "version": "2.1.325",
                "type": role,
                "message": message,
                "uuid": uuid,
                "timestamp": f"2026-11-18T10:0{number}:00.000Z",
            }
        )
        parent = uuid
    path = folder / "3f0c6f0e-0000-4000-8000-000000000001.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    with traced() as way:
        status = cli.run(["repair", str(path), "--yes"])
    if status != 0:
        raise SystemExit(f"repair ended with {status}")
    return way


def run_tools(folder: Path) -> Way:
    """Run one tool of a session in SQLite, to the commit of its result."""
    with lockstitch.open(f"sqlite:///{folder}/agent.db").session("one") as session:
        session.say("List the files.")
        session.record({"role": "assistant", "content": [CALL]}, dialect="anthropic")
        with traced() as way:
            session.run_tools({"bash": lambda command: command})
    return way


def heal(_: Path) -> Way:
    """Heal a list of three messages with one open call."""
    messages = [
        {"role": "user", "content": "List the files."},
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": "Go on."},
    ]
    with traced() as way:
        lockstitch.heal(messages, "anthropic")
    return way


def guard(_: Path) -> Way:
    """Run a turn of a graph with one node under a guard."""
    from langgraph.checkpoint.memory import InMemorySaver  # noqa: PLC0415 - an extra
    from langgraph.graph import START, MessagesState, StateGraph  # noqa: PLC0415

    from lockstitch.integrations.langgraph import Guard  # noqa: PLC0415

    def speak(state: MessagesState) -> dict[str, Any]:  # noqa: ARG001 - called by name
        return {"messages": [("ai", "Done.")]}

    class CountingSaver(InMemorySaver):
        """Counts what is asked of it, but not what it asks of itself."""

        calls = 0
        depth = 0

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: CountingSaver, *given: Any, **named: Any) -> Any:
            CountingSaver.calls += CountingSaver.depth == 0
            CountingSaver.depth += 1
            try:
                return method(self, *given, **named)
            finally:
                CountingSaver.depth -= 1

        return call

    for name in ("get_tuple", "list", "put", "put_writes"):
        setattr(CountingSaver, name, counted(getattr(InMemorySaver, name)))
    builder = StateGraph(MessagesState).add_node("speak", speak).add_edge(START, "speak")
    graph: Any = builder.compile(checkpointer=Guard(CountingSaver()))
    with traced() as way:
        graph.invoke({"messages": [("user", "Hi.")]}, {"configurable": {"thread_id": "1"}})
    way.saver_calls = CountingSaver.calls
    return way


WAYS: dict[str, Callable[[Path], Way]] = {
    "repair": repair,
    "run_tools": run_tools,
    "heal": heal,
    "guard": guard,
}


def main() -> int:
    """Print a row for each way; with ``--names`` its functions, too."""
    if not str(lockstitch.__file__).startswith(str(SOURCE)):
        raise SystemExit(f"this would measure {lockstitch.__file__}, not {SOURCE}")
    too_long = False
    print(f"{'way':10} {'functions':>9} {'modules':>8} {'changes of room':>16}   at most")
    for name, follow in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            way = follow(Path(folder))
        functions, modules, changes = figures = way.figures
        limits = LIMITS[name]
        too_long |= any(figure > limit for figure, limit in zip(figures, limits, strict=True))
        at_most = " / ".join(map(str, limits))
        print(f"{name:10} {functions:9} {modules:8} {changes:16}   {at_most}")
        if way.saver_calls:
            print(f"{'':10} {way.saver_calls} calls of the saver, at most {SAVER_CALLS}")
            too_long |= way.saver_calls > SAVER_CALLS
        if "--names" in sys.argv:
            print("".join(f"    {function}\n" for function in way.seen.values()), end="")
    if too_long and "--check" in sys.argv:
        print("A way has become longer than it may be: see LIMITS in scripts/house.py.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
