"""Another process: ``python -m tests.integrations.langgraph.saver.worker NAME ADDRESS …``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

from lockstitch.errors import Conflict
from lockstitch.integrations.langgraph import Saver
from tests.driven import say

CONFIG: Any = {"configurable": {"thread_id": "shared"}}


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def answering(saver: Saver) -> Any:
    def answer(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(f"reply to {state['messages'][-1].content}")]}

    return StateGraph(State).add_node(answer).add_edge(START, "answer").compile(saver)


def turns(address: str, name: str, count: str, wait: str = "0") -> None:
    """Take turns on a thread that others use, too; a turn that was refused is tried again."""
    refused = 0
    with Saver(address, turn_wait=float(wait)) as saver:
        graph = answering(saver)
        for turn in range(int(count)):
            while True:
                try:
                    graph.invoke({"messages": [HumanMessage(f"{name}{turn}")]}, CONFIG)
                    break
                except Conflict:
                    refused += 1
                    time.sleep(0.001 * refused % 7)
    say("refused", refused)


def working(saver: Saver, folder: Path) -> Any:
    """An agent with three tools, of which the last one never ends."""

    def model(_state: State) -> dict[str, Any]:
        calls = [{"name": "tool", "args": {"n": n}, "id": f"c{n}"} for n in range(3)]
        return {"messages": [AIMessage("", id="calls", tool_calls=calls)]}

    def spread(state: State) -> list[Send]:
        return [Send("tool", call) for call in state["messages"][-1].tool_calls]  # type: ignore[union-attr]

    def tool(call: dict[str, Any]) -> dict[str, Any]:
        number = call["args"]["n"]
        with Path(folder, f"ran-{number}").open("a") as file:
            file.write("x")
        if number == 2 and not Path(folder, "may end").exists():
            time.sleep(600)
        return {"messages": [ToolMessage(f"result {number}", tool_call_id=call["id"])]}

    builder = StateGraph(State).add_node(model).add_node(tool)
    builder.add_edge(START, "model").add_conditional_edges("model", spread, ["tool"])
    return builder.compile(checkpointer=saver)


def hang(address: str, folder: str, wait: str = "0") -> None:
    """Run until the tool that does not end."""
    with Saver(address, turn_wait=float(wait)) as saver:
        working(saver, Path(folder)).invoke({"messages": [HumanMessage("go")]}, CONFIG)


if __name__ == "__main__":
    {"turns": turns, "hang": hang}[sys.argv[1]](*sys.argv[2:])
