"""A valid history has no finding and comes back as the very same object."""

from __future__ import annotations

from copy import deepcopy
from importlib.util import find_spec
from typing import Any

import pytest

import lockstitch
from tests.oracles import problems

from . import anthropic, bedrock, gemini, langchain, openai_chat, openai_responses

CASES: list[tuple[str, str, Any]] = [
    (dialect, name, history)
    for dialect, histories in {
        "anthropic": anthropic.HISTORIES,
        "openai-chat": openai_chat.HISTORIES,
        "openai-chat:mistral": openai_chat.MISTRAL,
        "openai-responses": openai_responses.HISTORIES,
        "gemini": gemini.HISTORIES,
        "bedrock": bedrock.HISTORIES,
        "langchain": langchain.HISTORIES,
    }.items()
    for name, history in histories.items()
]
CLASSES = {
    "human": "HumanMessage",
    "ai": "AIMessage",
    "tool": "ToolMessage",
    "system": "SystemMessage",
}


def _as_dicts(messages: list[Any]) -> list[Any]:
    return [{"type": m["type"], "data": m} for m in messages]


def _as_constructors(messages: list[Any]) -> list[Any]:
    path = ["langchain", "schema", "messages"]
    return [
        {"lc": 1, "type": "constructor", "id": [*path, CLASSES[m["type"]]], "kwargs": m}
        for m in messages
    ]


def _as_objects(messages: list[Any]) -> list[Any]:
    from langchain_core.messages import messages_from_dict

    return list(messages_from_dict(_as_dicts(deepcopy(messages))))


LANGCHAIN_FORMS = {"as dicts": _as_dicts, "as constructors": _as_constructors}
if find_spec("langchain_core"):
    LANGCHAIN_FORMS["as objects"] = _as_objects
CASES += [
    ("langchain", f"{name}, {form}", turn(history))
    for name, history in langchain.HISTORIES.items()
    for form, turn in LANGCHAIN_FORMS.items()
    if all("type" in message for message in history)
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("dialect", "history"),
    [(dialect, history) for dialect, _, history in CASES],
    ids=[f"{dialect}: {name}" for dialect, name, _ in CASES],
)
def test_left_alone(dialect: str, history: Any) -> None:
    assert problems(dialect, history) == []
    before = deepcopy(history)
    assert lockstitch.check(history, dialect) == []
    assert lockstitch.heal(history, dialect) is history
    plan = lockstitch.plan(history, dialect)
    assert (plan.changed, plan.edits, plan.messages is history) == (False, [], True)
    assert history == before
