"""What goes through the middleware is accepted by the strict provider, with the real clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from lockstitch.integrations.langgraph import HealMiddleware
from tests.integrations.langgraph.agents import AGENTS, Bench, provided, replying
from tests.integrations.langgraph.reconcile.breaking import THREAD, asked

ENDED = {"stop_reason": "end_turn", "finish_reason": "stop"}


def called(*ids: str, name: str = "work") -> list[Any]:
    return [{"name": name, "args": {"job": "x"}, "id": one, "type": "tool_call"} for one in ids]


def asking(*ids: str, text: Any = "On it.", name: str = "work") -> AIMessage:
    return AIMessage(text, tool_calls=called(*ids, name=name))


def blocks(*ids: str) -> AIMessage:
    """A reply as Anthropic's client makes it: its calls are blocks, too."""
    made = [{"type": "tool_use", "id": one, "name": "work", "input": {"job": "x"}} for one in ids]
    return AIMessage([{"type": "text", "text": "On it."}, *made], tool_calls=called(*ids))


def answer(call: str, text: Any = "done") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call)


def human(text: Any) -> HumanMessage:
    return HumanMessage(text)


CASES: dict[str, Callable[[], list[BaseMessage]]] = {
    "an id of an earlier turn": lambda: [
        *(human("a"), asking("c1"), answer("c1"), AIMessage("ok")),
        *(human("b"), asking("c1"), answer("c1", "other"), human("c")),
    ],
    "an id of an earlier turn, as blocks": lambda: [
        *(human("a"), blocks("c1"), answer("c1"), AIMessage("ok")),
        *(human("b"), blocks("c1"), answer("c1", "other"), human("c")),
    ],
    "an id twice in one reply": lambda: [
        *(human("a"), asking("c1", "c1"), answer("c1"), answer("c1", "other"), human("b"))
    ],
    "an empty id": lambda: [human("a"), asking(""), answer(""), human("b")],
    "an id with signs": lambda: [human("a"), blocks("work:0"), answer("work:0"), human("b")],
    "a name with signs": lambda: [
        *(human("a"), asking("c1", name="do it!"), answer("c1"), human("b"))
    ],
    "a blank reply": lambda: [*(human("a"), AIMessage("  ", response_metadata=ENDED), human("b"))],
    "a blank reply with calls": lambda: [
        *(human("a"), asking("c1", text=" "), answer("c1"), human("b"))
    ],
    "a blank block": lambda: [
        *(human("a"), AIMessage([{"type": "text", "text": " "}], response_metadata=ENDED)),
        human("b"),
    ],
    "a blank question": lambda: [human("a"), AIMessage("x"), human("  ")],
    "an empty question": lambda: [human(""), AIMessage("x"), human("b")],
    "a question with a blank block": lambda: [
        human([{"type": "text", "text": ""}, {"type": "text", "text": "b"}])
    ],
    "a question of a blank block": lambda: [human([{"type": "text", "text": "\n"}])],
    "a blank result": lambda: [human("a"), asking("c1"), answer("c1", " "), human("b")],
    "a result of a blank block": lambda: [
        *(human("a"), asking("c1"), answer("c1", [{"type": "text", "text": ""}]), human("b"))
    ],
    "a blank system message": lambda: [SystemMessage(" "), human("a")],
    "an open call": lambda: [human("a"), asking("c1"), human("b")],
    "a result without a call": lambda: [human("a"), answer("c1"), human("b")],
}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("client", ["claude", "gpt"])
@pytest.mark.parametrize("case", CASES)
def test_the_provider_accepts_it(case: str, client: str, is_async: bool, tmp_path: Path) -> None:
    with provided(tmp_path) as provider:
        options = {"timeout": 30 + len(case)} if is_async else {}
        model = getattr(provider, client)(**options)
        graph = AGENTS["agent"](model, Bench(), None, middleware=[HealMiddleware()])
        if is_async:
            asyncio.run(graph.ainvoke({"messages": CASES[case]()}))
        else:
            graph.invoke({"messages": CASES[case]()})
        assert [entry.outcome for entry in provider.log] == ["accepted"]


def test_what_was_said_is_all_sent(tmp_path: Path) -> None:
    with provided(tmp_path) as provider:
        graph = AGENTS["agent"](provider.claude(), Bench(), None, middleware=[HealMiddleware()])
        graph.invoke({"messages": CASES["an id of an earlier turn"]()})
        (body,) = provider.bodies
        said = str(body["messages"])
        assert all(text in said for text in ("'done'", "'other'", "'ok'"))


@pytest.mark.parametrize("client", ["claude", "gpt"])
def test_the_state_keeps_what_only_the_provider_minds(client: str, tmp_path: Path) -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    with provided(tmp_path, replying("one")) as provider:
        model = getattr(provider, client)()
        graph = AGENTS["agent"](model, Bench(), InMemorySaver(), middleware=[HealMiddleware()])
        held = CASES["an id of an earlier turn"]()
        graph.update_state(THREAD, {"messages": held}, as_node="model")
        graph.invoke(asked("And now?"), THREAD)
        stored = graph.get_state(THREAD).values["messages"]
        assert [call["id"] for m in stored[:8] for call in getattr(m, "tool_calls", ())] == [
            "c1",
            "c1",
        ]
        assert [entry.outcome for entry in provider.log] == ["accepted"] * len(provider.log)
