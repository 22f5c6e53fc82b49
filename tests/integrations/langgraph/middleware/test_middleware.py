"""What goes to the model is valid on every call, and the state is mended once."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from anthropic import BadRequestError as AnthropicRefusal
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelRequest,
    SummarizationMiddleware,
)
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Command
from openai import BadRequestError as OpenAIRefusal

import lockstitch
from lockstitch.errors import UsageError
from lockstitch.integrations.langgraph import HealMiddleware, heal_hook
from lockstitch.integrations.langgraph.hooks import ResultSearch, sendable
from lockstitch.provider import OK
from lockstitch.repair.turns import START
from tests.integrations.langgraph.agents import (
    JOBS,
    Bench,
    Provider,
    agent,
    calling,
    provided,
    replying,
)
from tests.integrations.langgraph.reconcile.breaking import THREAD, Thread, asked
from tests.integrations.langgraph.scripted import Scripted

CLIENTS = [("claude", AnthropicRefusal), ("gpt", OpenAIRefusal)]


def broken() -> list[BaseMessage]:
    """A call without a result, and a message behind it."""
    return [
        HumanMessage("Go.", id="1"),
        AIMessage("On it.", id="2", tool_calls=calling("one").tool_calls),
        HumanMessage("And now?", id="3"),
    ]


def fine() -> list[BaseMessage]:
    return [HumanMessage("Go.", id="1"), AIMessage("Done.", id="2"), HumanMessage("Why?", id="3")]


def test_a_state_in_which_nothing_is_wrong_gets_no_update() -> None:
    middleware = HealMiddleware()
    assert middleware.before_model({"messages": fine()}, None) is None
    assert asyncio.run(middleware.abefore_model({"messages": fine()}, None)) is None
    assert heal_hook({"messages": fine()}) == {"messages": []}


def test_a_list_in_which_nothing_is_wrong_is_passed_on_as_the_same_object() -> None:
    request = ModelRequest(model=Scripted(), messages=fine())  # type: ignore[arg-type]
    seen: list[Any] = []
    HealMiddleware().wrap_model_call(request, seen.append)
    assert seen == [request]
    assert seen[0] is request
    held = fine()
    assert sendable(held) is held


def test_the_update_is_as_small_as_it_can_be() -> None:
    update = ResultSearch(broken()[:2]).update()
    assert update is not None
    (answer,) = update
    assert isinstance(answer, ToolMessage)
    assert answer.id
    update = ResultSearch(broken()).update()
    assert update is not None
    assert isinstance(update[0], RemoveMessage)
    assert update[0].id == REMOVE_ALL_MESSAGES
    merged: Any = add_messages(broken(), update)
    assert [message.type for message in merged] == ["human", "ai", "tool", "human"]
    assert ResultSearch(merged).update() is None


def test_what_is_healed_twice_is_equal_to_the_byte() -> None:
    one, other = sendable(broken()), sendable(broken())
    assert [message.model_dump_json() for message in one] == [
        message.model_dump_json() for message in other
    ]


@pytest.mark.parametrize(("client", "refusal"), CLIENTS)
def test_the_provider_accepts_what_it_refused_before(
    tmp_path: Path, client: str, refusal: type[Exception]
) -> None:
    with provided(tmp_path, replying(*JOBS)) as provider:
        thread = _broken_off(provider, client)
        bare = agent(getattr(provider, client)(), Bench(), thread.saver)
        with pytest.raises(refusal):
            bare.invoke(asked("And now?"), THREAD)
        assert provider.log[-1].outcome == "refused"
        thread.graph.invoke(asked("And now?"), THREAD)
        assert provider.log[-1].outcome == "accepted"
        assert lockstitch.check(thread.stored, "langchain") == []


def _broken_off(provider: Provider, client: str) -> Thread:
    model = getattr(provider, client)()
    return Thread("agent", model=model, middleware=[HealMiddleware()]).break_off()


@pytest.mark.parametrize("client", ["claude", "gpt"])
@pytest.mark.parametrize("is_async", [False, True])
def test_the_prefix_never_changes_between_calls(
    tmp_path: Path, client: str, is_async: bool
) -> None:
    """A provider's cache knows a conversation by its first bytes."""
    with provided(tmp_path, replying(*JOBS), OK, replying("four"), OK) as provider:
        thread = _broken_off(provider, client)
        for text in ("And now?", "Go on.", "Thanks."):
            if is_async:
                asyncio.run(_asked(thread, provider, client, text))
            else:
                thread.graph.invoke(asked(text), THREAD)
        bodies = [body["messages"] for body in provider.bodies]
    assert all(entry.outcome == "accepted" for entry in provider.log)
    assert len(bodies) == 5
    for one, other in pairwise(bodies):
        assert _plain(other)[: len(one)] == _plain(one)


async def _asked(thread: Thread, provider: Provider, client: str, text: str) -> None:
    """A new client each time: LangChain keeps one's connections, and they belong to a loop."""
    options = {"timeout": 30 + len(provider.log)}
    model = getattr(provider, client)(**options)
    graph = agent(model, Bench(), thread.saver, middleware=[HealMiddleware()])
    await graph.ainvoke(asked(text), THREAD)


def _plain(messages: list[Any]) -> list[Any]:
    """Without the marks that only say up to where the cache goes."""
    return json.loads(json.dumps(messages).replace(', "cache_control": {"type": "ephemeral"}', ""))


def test_the_state_is_written_once() -> None:
    thread = Thread("agent", middleware=[HealMiddleware()]).break_off()
    updates: list[Any] = []
    for text in ("And now?", "Go on.", "Thanks."):
        for found in thread.graph.stream(asked(text), THREAD, stream_mode="updates"):
            updates += [found[name] for name in found if name.startswith("HealMiddleware")]
    assert len(updates) == 3
    assert updates[0]
    assert updates[1:] == [None, None]


class Trimming(AgentMiddleware):  # type: ignore[type-arg]
    """Sends only the last messages, wherever the cut falls."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(messages=request.messages[-3:]))


def test_what_other_middleware_cut_is_healed_behind_it() -> None:
    middleware = [Trimming(), HealMiddleware()]
    model = Scripted(calling("one", "two", "three", "four"))
    thread = Thread("agent", model=model, middleware=middleware)
    thread.graph.invoke(asked("Go."), THREAD)
    assert all(lockstitch.check(sent, "langchain") == [] for sent in model.sent)
    assert len(thread.stored) == 7


def approval() -> HumanInTheLoopMiddleware:  # type: ignore[type-arg]
    return HumanInTheLoopMiddleware(interrupt_on={"work": True})


@pytest.mark.parametrize("order", [1, -1])
def test_an_approval_is_asked_for_and_given_in_any_order(order: int) -> None:
    middleware = [approval(), HealMiddleware()][::order]
    thread = Thread("agent", model=Scripted(calling("one", "two")), middleware=middleware)
    thread.graph.invoke(asked("Go."), THREAD)
    assert thread.state.interrupts
    decisions = [{"type": "approve"}, {"type": "reject", "message": "no"}]
    thread.graph.invoke(Command(resume={"decisions": decisions}), THREAD)
    assert thread.bench.started == ["one"]
    assert all(lockstitch.check(sent, "langchain") == [] for sent in thread.model.sent)


@pytest.mark.parametrize("order", [1, -1])
def test_a_message_instead_of_an_approval_goes_through_in_any_order(order: int) -> None:
    middleware = [approval(), HealMiddleware()][::order]
    thread = Thread("agent", model=Scripted(calling("one", "two")), middleware=middleware)
    thread.graph.invoke(asked("Go."), THREAD)
    sent = thread.invoke(asked("Never mind."))
    assert [message.type for message in sent] == ["human", "ai", "tool", "tool", "human"]
    assert thread.stored[:-1] == sent


@pytest.mark.parametrize("order", [1, -1])
def test_a_summary_is_made_in_any_order(order: int) -> None:
    summary = SummarizationMiddleware(Scripted(), trigger=("messages", 5), keep=("messages", 2))
    middleware = [summary, HealMiddleware()][::order]
    thread = Thread("agent", middleware=middleware).break_off()
    for _ in range(4):
        thread.invoke()
    assert all(lockstitch.check(sent, "langchain") == [] for sent in thread.model.sent)
    assert lockstitch.check(thread.stored, "langchain") == []


@pytest.mark.parametrize("hook", [heal_hook, heal_hook(), heal_hook(model="claude-fable-5")])
def test_the_hook_of_the_prebuilt_agent(hook: Any) -> None:
    thread = Thread("react", pre_model_hook=hook).break_off()
    sent = thread.invoke()
    assert [message.type for message in sent] == ["human", "ai", "tool", "tool", "tool", "human"]
    assert lockstitch.check(thread.stored, "langchain") == []
    before = thread.count()
    sent = thread.invoke()
    assert sent[:-1] == thread.stored[:-2]
    assert thread.count() > before


def test_without_the_hook_the_prebuilt_agent_gives_up() -> None:
    thread = Thread("react").break_off()
    with pytest.raises(ValueError, match="do not have a corresponding ToolMessage"):
        thread.invoke()


def test_rules_of_who_receives_it_are_for_what_is_sent_only() -> None:
    hook = heal_hook(dialect="langchain:mistral")
    held = [HumanMessage("Go.", id="1"), calling("one"), ToolMessage("x", tool_call_id="call_one")]
    found = hook({"messages": held})
    assert found["messages"] == []
    (call,) = found["llm_input_messages"][1].tool_calls
    assert len(call["id"]) == 9
    middleware = HealMiddleware("langchain:mistral")
    assert middleware.before_model({"messages": held}, None) is None
    seen: list[Any] = []
    request = ModelRequest(model=Scripted(), messages=held)  # type: ignore[arg-type]
    middleware.wrap_model_call(request, seen.append)
    assert len(seen[0].messages[1].tool_calls[0]["id"]) == 9
    with pytest.raises(UsageError, match="unknown dialect"):
        heal_hook(dialect="no such")
    with pytest.raises(UsageError, match="unknown dialect"):
        HealMiddleware("no such")


class Beheading(AgentMiddleware[Any, Any, Any]):
    """Cuts the conversation so that it begins with a reply, as trimming does."""

    def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
        return handler(request.override(messages=request.messages[-2:]))


@pytest.mark.parametrize("client", ["claude", "gpt"])
def test_a_list_without_its_beginning_is_opened_for_those_who_mind(
    tmp_path: Path, client: str
) -> None:
    with provided(tmp_path, replying("one")) as provider:
        middleware = [Beheading(), HealMiddleware()]
        model = getattr(provider, client)()
        thread = Thread("agent", model=model, middleware=middleware)
        thread.graph.invoke(asked("Go."), THREAD)
        assert [one.outcome for one in provider.log] == ["accepted"] * len(provider.log)
        sent = "".join(path.read_text("utf-8") for path in tmp_path.rglob("*.json"))
        assert (START in sent) == (client == "claude")
        assert START not in str(thread.stored)


@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat", "gemini"])
def test_only_messages_of_langchain_are_seen_here(dialect: str) -> None:
    for use in (HealMiddleware, lambda dialect: heal_hook(dialect=dialect)):
        with pytest.raises(UsageError, match="LangChain messages"):
            use(dialect)
