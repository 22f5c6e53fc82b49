"""Growth: as many bytes for the last turn as for the first, whatever the conversation's length."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent

from lockstitch.formats.langgraph.journal import ThreadJournal
from lockstitch.integrations.langgraph import Saver

CONFIG: Any = {"configurable": {"thread_id": "1"}}


class Model(BaseChatModel):
    """Calls two tools, then ends the turn."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        said = AIMessage("done " * 20)
        if not isinstance(messages[-1], ToolMessage):
            count = len(messages)
            calls = [{"name": "look", "args": {"n": n}, "id": f"c{count}-{n}"} for n in (1, 2)]
            said = AIMessage("looking", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
def look(n: int) -> str:
    """Look something up."""
    return "found " * 100 + str(n)


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize("make", [create_agent, create_react_agent])
@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_a_turn_takes_as_many_bytes_late_as_early(make: Any, durability: Any) -> None:
    sizes = []
    with Saver("memory:") as saver:
        agent = make(Model(), [look], checkpointer=saver)
        for turn in range(30):
            agent.invoke({"messages": [HumanMessage(f"{turn:9}")]}, CONFIG, durability=durability)
            sizes.append(saver._threads.get("1").thread.size)  # noqa: SLF001
        thread = saver._threads.get("1").thread  # noqa: SLF001
    grown = [after - before for before, after in pairwise(sizes)]
    # Numbers get longer: a few bytes a turn.
    assert max(grown[-10:]) < 1.05 * min(grown[:10])
    assert max(grown) < 3 * (2 * 600 + 500) + 4500
    assert stored_once(thread)


def stored_once(thread: ThreadJournal) -> bool:
    """Tell whether the text of every result is in the journal as often as there are results."""
    whole = b"".join(map(bytes, thread.items))
    return whole.count(b"found " * 100) == 30 * 2
