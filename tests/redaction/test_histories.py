"""A redacted history is as valid as it was, in every dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

import lockstitch
from lockstitch.conversation.sdk_objects import is_plain
from lockstitch.redaction import drop_broken_thinking, redact_value
from tests.healthy import anthropic, bedrock, gemini, langchain, openai_chat, openai_responses
from tests.kinds_of_break.conversations import BROKEN, HEALTHY
from tests.kinds_of_break.render import FORMS

from .samples import KNOWN, NAMED, made

HEALTHY_HISTORIES = {
    "anthropic": anthropic.HISTORIES,
    "openai-chat": openai_chat.HISTORIES,
    "openai-responses": openai_responses.HISTORIES,
    "gemini": gemini.HISTORIES,
    "bedrock": bedrock.HISTORIES,
    "langchain": langchain.HISTORIES,
}
# Everything at once, with quotes and line ends, as a tool's output may be.
LEAK = "\n".join(
    [
        *(secret for secrets in KNOWN.values() for secret in secrets if "/B" not in secret),
        *(template.format(secret) for _, template, secret in NAMED),
    ]
)
GONE = [
    *(secret for kind, secrets in KNOWN.items() for secret in secrets if kind != "webhook"),
    *(secret for _, _, secret in NAMED if len(secret) > 12),
]


PLAIN = [
    pytest.param(*forms, id=form) for form, forms in FORMS.items() if form != "langchain-objects"
]


@pytest.mark.parametrize(("dialect", "render"), PLAIN)
def test_a_leak_in_every_text_of_a_valid_history(dialect: str, render: Any) -> None:
    messages = _leaking(render(HEALTHY.turns), LEAK)
    assert lockstitch.check(messages, dialect) == []
    clean, found = redact_value(messages)
    assert found
    assert lockstitch.check(clean, dialect) == []
    for secret in GONE:
        assert json.dumps(secret)[1:-1] not in json.dumps(clean)
        assert secret not in _all_text(clean)
    assert redact_value(clean) == (clean, [])


def _leaking(value: Any, leak: str) -> Any:
    """Every marked text with a leak behind it; arguments in a string stay JSON."""
    if isinstance(value, dict):
        return {key: _leaking(inner, leak) for key, inner in value.items()}
    if isinstance(value, list):
        return [_leaking(item, leak) for item in value]
    if not isinstance(value, str) or "MARK-" not in value:
        return value
    if value.startswith("{"):
        return json.dumps(_leaking(json.loads(value), leak))
    return f"{value}\n{leak}"


def _all_text(value: Any) -> str:
    """All strings of a value, those that hold JSON decoded."""
    if isinstance(value, dict):
        return "\n".join(map(_all_text, value.values()))
    if isinstance(value, list):
        return "\n".join(map(_all_text, value))
    if isinstance(value, str) and value.startswith("{"):
        return _all_text(json.loads(value))
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(("dialect", "render"), PLAIN)
@pytest.mark.parametrize("kind", BROKEN, ids=[kind.name for kind in BROKEN])
def test_a_broken_history_is_broken_in_the_same_places(
    dialect: str, render: Any, kind: Any
) -> None:
    messages = render(kind.turns)
    leak = f'password="a1b2c3d4" {KNOWN["github-token"][0]}'
    leaking = _leaking(messages, leak) if kind.name[:2] not in ("09", "17") else messages
    places = [(one.code, one.place) for one in lockstitch.check(leaking, dialect)]
    clean, _ = redact_value(leaking)
    assert [(one.code, one.place) for one in lockstitch.check(clean, dialect)] == places


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(history, id=f"{dialect}: {name}")
        for dialect, histories in HEALTHY_HISTORIES.items()
        for name, history in histories.items()
    ],
)
def test_valid_histories_without_secrets_are_left_alone(history: Any) -> None:
    if is_plain(history):
        assert redact_value(history)[0] is history


def test_thinking_that_was_redacted_leaves_a_valid_history_when_dropped() -> None:
    token = f"ghp_{made(36)}"
    thinking = {"type": "thinking", "thinking": f"use {token}", "signature": "EqMBCg=="}
    messages = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                thinking,
                {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"x": token}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": token}],
        },
        {
            "role": "assistant",
            "content": [{**thinking, "thinking": "done"}, {"type": "text", "text": "ok"}],
        },
    ]
    assert lockstitch.check(messages, "anthropic") == []
    clean, found = redact_value(messages)
    for bound in (True, False):
        left = drop_broken_thinking(clean, found, bound=bound)
        assert lockstitch.check(left, "anthropic") == []
        assert token not in json.dumps(left)
