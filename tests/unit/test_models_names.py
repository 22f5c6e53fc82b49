from __future__ import annotations

import pytest

from lockstitch.dialects.profiles import same_model

SAME = [
    ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929"),
    ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
    ("anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"),
    ("gpt-5.1", "gpt-5.1-2025-11-13"),
    ("models/gemini-2.5-pro", "gemini-2.5-pro-001"),
    ("claude-3-5-sonnet-latest", "claude-3-5-sonnet@20240620"),
]
OTHER = [
    ("claude-sonnet-4-5", "claude-sonnet-4-6"),
    ("claude-sonnet-4-5", "claude-opus-4-5"),
    ("gpt-5.1", "gpt-5.1-codex"),
    ("gpt-5", "gpt-5.1"),
    ("deepseek-v3", "deepseek-v4"),
    ("gemini-3-pro", "gemini-3-flash"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_an_alias_and_its_issue_are_one_model(one: str, other: str) -> None:
    assert same_model(one, other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_versions_and_sizes_are_other_models(one: str, other: str) -> None:
    assert not same_model(one, other)
