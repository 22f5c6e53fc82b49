"""Interrupts in any line, threads that are all taken, forks: nothing half done, nobody waits."""

from __future__ import annotations

import asyncio
import linecache
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from lockstitch.formats.langgraph import journal
from lockstitch.integrations.langgraph import Saver
from lockstitch.integrations.langgraph import saver as saver_room
from tests.integrations.langgraph.saver.worker import CONFIG, answering

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple

_OURS = (str(Path(saver_room.__file__).parent), journal.__file__)


class Interrupt:
    """Interrupts what is called in its nth line of ours."""

    def __init__(self, line: int) -> None:
        self._left = line

    def __call__(self, frame: FrameType, event: str, _word: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        # At its end a ``with`` is traced once more, where Python itself is never interrupted.
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not text.lstrip().startswith("with "):
            self._left -= 1
            if not self._left:
                raise KeyboardInterrupt
        return self

    def is_met(self, call: Callable[[], Any]) -> bool:
        """Tell whether it came to that line."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            with suppress(KeyboardInterrupt):
                call()
        finally:
            sys.settrace(before)
        return self._left <= 0


def test_a_read_that_is_interrupted_anywhere_is_read_again(path: Path) -> None:
    with Saver(f"sqlite:///{path}") as saver:
        answering(saver).invoke({"messages": [HumanMessage("first")]}, CONFIG)
        expected = saver.get_tuple(CONFIG)
        assert expected is not None
        line, is_met = 0, True
        while is_met:
            line += 1
            saver._threads.get("shared").forget()  # noqa: SLF001 - as after a start
            is_met = Interrupt(line).is_met(lambda: saver.get_tuple(CONFIG))
            found = saver.get_tuple(CONFIG)
            assert found is not None
            assert found.checkpoint == expected.checkpoint
    assert line > 100


def test_a_put_that_is_interrupted_anywhere_is_there_or_not(path: Path) -> None:
    url = f"sqlite:///{path}"
    with Saver(url) as saver:
        answering(saver).invoke({"messages": [HumanMessage("first")]}, CONFIG)
        line, is_met = 0, True
        while is_met:
            line += 1
            before = saver.get_tuple(CONFIG)
            assert before is not None
            is_met = Interrupt(line).is_met(partial(_put, saver, before, line))
            if line % 20 == 0 or not is_met:
                with Saver(url) as cold:
                    assert _shown(saver) == _shown(cold)
    assert line > 100


def _put(saver: Saver, before: CheckpointTuple, number: int) -> None:
    body: Any = {**before.checkpoint, "id": f"2{number:08}"}
    body["channel_values"] = {"messages": [HumanMessage("x", id=f"{number}")]}
    body["channel_versions"] = {"messages": number + 100}
    saver.put(before.config, body, before.metadata, {"messages": number + 100})


def _shown(saver: Saver) -> Any:
    found = saver.get_tuple(CONFIG)
    assert found is not None
    return found.checkpoint, found.metadata


def test_nodes_that_take_all_threads_keep_nobody_from_saving(path: Path) -> None:
    """A function in a loop's last thread waits for a run that needs its checkpoints first."""
    may_end = threading.Event()

    async def quick(_state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage("done")]}

    async def main(saver: Saver) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        has_begun = asyncio.Event()

        def slow(_state: Any) -> dict[str, Any]:
            loop.call_soon_threadsafe(has_begun.set)
            assert may_end.wait(60)
            return {"messages": [AIMessage("done")]}

        said = {"messages": [HumanMessage("x")]}
        first = asyncio.create_task(_graph(slow, saver).ainvoke(said, CONFIG))
        await has_begun.wait()
        await _graph(quick, saver).ainvoke(said, {"configurable": {"thread_id": "another"}})
        may_end.set()
        assert len((await first)["messages"]) == 2

    with Saver(f"sqlite:///{path}") as saver:
        asyncio.run(main(saver))


def _graph(node: Any, saver: Saver) -> Any:
    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
    return graph.compile(checkpointer=saver)


_FORKED = """
import asyncio, os, sys
from lockstitch.errors import Closed
from lockstitch.integrations.langgraph import Saver

config = {"configurable": {"thread_id": "1"}}
saver = Saver(sys.argv[1])
asyncio.run(saver.aget_tuple(config))
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    assert asyncio.run(saver.aget_tuple(config)) is None
    saver.close()
    try:
        asyncio.run(saver.aget_tuple(config))
    except Closed:
        sys.exit(os.waitstatus_to_exitcode(status))
    sys.exit(8)
try:
    asyncio.run(saver.aget_tuple(config))
except Closed:
    os._exit(0)
os._exit(9)
"""


def test_a_forked_child_and_whoever_comes_late_are_told(path: Path) -> None:
    command = [sys.executable, "-c", _FORKED, f"sqlite:///{path}"]
    assert subprocess.run(command, check=False, timeout=120).returncode == 0
