"""A graph of one node for the pages on LangGraph, and a thread of it that was interrupted."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import START, MessagesState, StateGraph

CALL = {"name": "bash", "args": {}, "id": "call_1"}


class Model(BaseChatModel):
    """Says one thing."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("done"))])


def builder() -> StateGraph[Any]:
    """A graph that asks the model once."""
    made = StateGraph(MessagesState)
    made.add_node("model", lambda state: {"messages": [Model().invoke(state["messages"])]})
    made.add_edge(START, "model")
    return made


def broken(graph: Any, thread: str) -> dict[str, Any]:
    """Leave a call open in a thread, as an app does that is interrupted; gives its config."""
    config = {"configurable": {"thread_id": thread}}
    said = [HumanMessage("go", id="h"), AIMessage("I look.", id="a", tool_calls=[CALL])]
    graph.update_state(config, {"messages": said}, as_node="model")
    return config
