"""Threads that the saver keeps are found by what was said in them, and copied as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import MessagesState, StateGraph

import lockstitch
from lockstitch.errors import UsageError
from lockstitch.integrations.langgraph import Saver

LONG = "filler words " * 10_000


def talk(url: str, thread: str, text: str) -> None:
    def answer(state: MessagesState) -> dict[str, list[AIMessage]]:
        return {"messages": [AIMessage(f"You said: {state['messages'][-1].content}")]}

    with Saver(url) as saver:
        graph = StateGraph(MessagesState).add_node("answer", answer).set_entry_point("answer")
        compiled = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": thread}}
        compiled.invoke({"messages": [HumanMessage(text)]}, config)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["a small teapot", f"{LONG} teapot"])
def test_a_thread_is_found_and_copied(tmp_path: Path, text: str) -> None:
    url, other = f"sqlite:///{tmp_path}/a.db", f"jsonl:///{tmp_path}/b"
    talk(url, "one", text)
    talk(url, "two", "nothing of the kind")
    with lockstitch.open(url) as store, lockstitch.open(other) as there:
        found = list(store.search("Teapot"))
        assert {match.session for match in found} == {"langgraph.one"}
        assert {match.who for match in found} == {"user", "assistant"}
        with pytest.raises(UsageError):
            store.copy("langgraph.one", there, "other")
        assert store.copy("langgraph.one", there).is_new
    with Saver(other) as saver:
        state = saver.get_tuple({"configurable": {"thread_id": "one"}})
        assert state
        messages = state.checkpoint["channel_values"]["messages"]
        assert [message.content for message in messages] == [text, f"You said: {text}"]
