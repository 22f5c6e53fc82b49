"""The promises hold under every profile and for models with rules of their own."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstitch
from lockstitch.repair.edits import apply
from tests.oracles import problems

from .marks import marks
from .strategies import mutated, structured

RECEIVERS = [
    ("anthropic", "claude-sonnet-4-5"),
    ("anthropic", "claude-opus-4-6"),
    ("anthropic", "claude-fable-5-1"),
    ("anthropic:deepseek", None),
    ("openai-chat:deepseek", None),
    ("openai-chat:strict", None),
    ("openai-chat:lmstudio", None),
    ("openai-responses:copilot", None),
    ("gemini", "gemini-3-pro"),
    ("bedrock", "anthropic.claude-fable-5-1-v1:0"),
    ("bedrock:classic", None),
    ("langchain", "gpt-5.2"),
]
FEWER = settings(max_examples=settings().max_examples // 3)
every_receiver = pytest.mark.parametrize(
    ("profile", "model"), RECEIVERS, ids=[f"{profile} {model}" for profile, model in RECEIVERS]
)


def _problems(profile: str, value: Any) -> list[str]:
    """What the dialect's own provider would refuse; DeepSeek wants thinking, signed or not."""
    found = problems(profile.partition(":")[0], value)
    return [text for text in found if "deepseek" not in profile or "thinking" not in text]


@every_receiver
@FEWER
@given(data=st.data())
def test_lists_and_bodies(profile: str, model: str | None, data: st.DataObject) -> None:
    dialect = profile.partition(":")[0]
    messages = data.draw(structured(dialect) | mutated(dialect))
    key = {"openai-responses": "input", "gemini": "contents"}.get(dialect, "messages")
    body: dict[str, Any] = {key: messages, "top_k": 1}
    for given_value in (messages, body):
        before = deepcopy(given_value)
        plan = lockstitch.plan(given_value, profile, model=model)
        assert plan.remaining == []
        assert _problems(profile, plan.messages) == []
        assert given_value == before
        assert apply(plan.edits, given_value) == plan.messages
        assert lockstitch.heal(plan.messages, profile, model=model) is plan.messages
        assert marks(given_value) - marks(plan.messages) - marks(plan.quarantine) == set()


@given(data=st.data())
def test_models_without_prefill_get_a_user_message_last(data: st.DataObject) -> None:
    body = {"model": "claude-opus-4-6", "messages": data.draw(structured("anthropic"))}
    healed = lockstitch.heal(body, "anthropic")["messages"]
    assert not healed or healed[-1]["role"] != "assistant" or _waits(healed[-1])


def _waits(message: Any) -> bool:
    return "server_tool_use" in str(message) or "mcp_tool_use" in str(message)


@given(data=st.data())
def test_gemini_3_gets_a_signature_on_the_first_call(data: st.DataObject) -> None:
    contents = data.draw(structured("gemini"))
    healed = lockstitch.heal(contents, "gemini", model="gemini-3-pro")
    for content in healed[_start_of_turn(healed) :]:
        calls = [p for p in content["parts"] if "functionCall" in p or "function_call" in p]
        for part in calls[:1]:
            assert part.get("thoughtSignature") or part.get("thought_signature")


def _start_of_turn(contents: list[Any]) -> int:
    """Signatures are asked for from the last words of the user on."""
    spoken = [
        index
        for index, content in enumerate(contents)
        if content["role"] != "model" and any("text" in part for part in content["parts"])
    ]
    return spoken[-1] if spoken else 0
