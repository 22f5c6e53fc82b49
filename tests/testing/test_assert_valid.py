from __future__ import annotations

import pytest

from lockstitch.errors import UsageError
from lockstitch.testing import assert_valid
from tests.kinds_of_break.conversations import BROKEN, HEALTHY
from tests.kinds_of_break.render import FORMS
from tests.oracles import problems


@pytest.mark.parametrize("form", FORMS)
def test_it_raises_where_the_provider_would_refuse(form: str) -> None:
    dialect, render = FORMS[form]
    for conversation in (HEALTHY, *BROKEN):
        messages = render(conversation.turns)
        if not problems(dialect, messages):
            assert_valid(messages, dialect)
            continue
        with pytest.raises(AssertionError) as caught:
            assert_valid(messages, dialect)
        first, *rest = str(caught.value).splitlines()
        assert first == f"{dialect} would refuse this:"
        assert rest
        assert "MARK" not in str(caught.value)


def test_it_names_code_place_and_words() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"secret": "words"}}
    messages = [
        {"role": "user", "content": "words"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": "words"},
    ]
    with pytest.raises(AssertionError) as caught:
        assert_valid(messages, "anthropic")
    assert str(caught.value) == (
        "anthropic would refuse this:\n"
        "  LS101 orphan-call at messages.1.content.0: messages.1: `tool_use` ids were found "
        "without `tool_result` blocks immediately after: toolu_1. Each `tool_use` block must have "
        "a corresponding `tool_result` block in the next message."
    )


def test_the_dialect_is_detected_and_the_model_counts() -> None:
    contents = [{"role": "user", "parts": [{"text": "Go."}]}]
    assert_valid(contents)
    calls = [
        *contents,
        {"role": "model", "parts": [{"functionCall": {"name": "bash", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "bash", "response": {}}}]},
    ]
    assert_valid(calls, "gemini", model="gemini-2.5-pro")
    with pytest.raises(AssertionError, match="gemini would refuse this"):
        assert_valid(calls, "gemini", model="gemini-3-pro")


def test_what_is_only_doubtful_is_valid() -> None:
    """A warning is about what a provider takes, and should not be sent."""
    assert_valid(
        [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Yes."}], "anthropic"
    )


def test_what_is_no_list_is_a_wrong_call() -> None:
    with pytest.raises(UsageError):
        assert_valid({"nothing": 1}, "anthropic")
