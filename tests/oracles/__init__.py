"""Validators that know what the providers accept and nothing of how Lockstitch works.

Each module has ``problems(messages_or_body) -> list[str]``: empty when the provider would take it.
They share no code with the engine on purpose, so that a mistake there can not hide itself here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from . import anthropic, bedrock, gemini, langchain, openai_chat, openai_responses

ORACLES: dict[str, Callable[[Any], list[str]]] = {
    "anthropic": anthropic.problems,
    "openai-chat": openai_chat.problems,
    "openai-chat:mistral": partial(openai_chat.problems, mistral=True),
    "openai-responses": openai_responses.problems,
    "gemini": gemini.problems,
    "bedrock": bedrock.problems,
    "langchain": langchain.problems,
}


def problems(dialect: str, value: Any) -> list[str]:
    """What the provider of *dialect* would refuse in *value*."""
    return ORACLES[dialect](value)
