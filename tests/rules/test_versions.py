"""Rules that came or went with a version: what holds for one model may not hold for the next."""

from __future__ import annotations

from typing import Any

import pytest

import lockstitch

from .kits import ANTHROPIC, BEDROCK, CHAT, GEMINI, A, B, Chat

SENTINEL = "skip_thought_signature_validator"
PREFILLED = [*ANTHROPIC.user(), *ANTHROPIC.assistant("I loo")]
THINKING = {"type": "thinking", "thinking": "Then.", "signature": "c2lnbmVk"}
# An open call, and thinking behind it.
REPAIRED = [
    *ANTHROPIC.user(),
    *ANTHROPIC.calls(A),
    *ANTHROPIC.user("Hello?"),
    {"role": "assistant", "content": [THINKING, {"type": "text", "text": "Yes."}]},
    *ANTHROPIC.user("Good."),
]

MAY_PREFILL = [
    "claude-3-5-sonnet-20241022",
    "claude-sonnet-4-20250514",
    "claude-opus-4-1-20250805",
    "claude-opus-4-5",
    "claude-opus-4-5-20251101",
    "claude-sonnet-4-5",
    "claude-haiku-4-5-20251001",
    "anthropic/claude-sonnet-4-5",
    "some-proxy-model",
]
MAY_NOT_PREFILL = [
    "claude-opus-4-6",
    "claude-sonnet-4-6",
    "claude-sonnet-4-6-20260218",
    "claude-opus-4-7",
    "claude-sonnet-5",
    "claude-haiku-5",
    "claude-fable-5",
    "claude-fable-5-1",
    "claude-mythos-5-1",
    "us.anthropic.claude-sonnet-4-6-v1:0",
]


def codes(messages: Any, dialect: str, model: str | None = None) -> list[str]:
    return [finding.code for finding in lockstitch.check(messages, dialect, model=model)]


@pytest.mark.parametrize("model", MAY_PREFILL)
def test_older_models_may_end_with_the_assistant(model: str) -> None:
    assert codes(PREFILLED, "anthropic", model) == []
    assert codes({"model": model, "messages": PREFILLED}, "anthropic") == []
    assert lockstitch.heal(PREFILLED, "anthropic", model=model) is PREFILLED


@pytest.mark.parametrize("model", MAY_NOT_PREFILL)
def test_newer_models_may_not_end_with_the_assistant(model: str) -> None:
    assert codes(PREFILLED, "anthropic", model) == ["LS407"]
    assert codes({"model": model, "messages": PREFILLED}, "anthropic") == ["LS407"]
    healed = lockstitch.heal(PREFILLED, "anthropic", model=model)
    assert all(new is old for new, old in zip(healed, PREFILLED, strict=False))
    assert [message["role"] for message in healed] == ["user", "assistant", "user"]


def test_a_stored_session_may_end_as_it_does() -> None:
    """Every session on disk ends with the assistant: without a model it is not a request."""
    kits = (ANTHROPIC, GEMINI, BEDROCK)
    for kit in kits:
        messages = [*kit.user(), *kit.assistant()]
        assert lockstitch.heal(messages, kit.dialect) is messages
    messages = [*CHAT.user(), *CHAT.assistant()]
    assert lockstitch.heal(messages, "openai-chat:mistral") is messages


@pytest.mark.parametrize("model", MAY_NOT_PREFILL)
def test_a_turn_that_waits_for_a_server_tool_may_end_a_request(model: str) -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    messages = [*ANTHROPIC.user(), {"role": "assistant", "content": [search]}]
    assert lockstitch.heal(messages, "anthropic", model=model) is messages


def test_an_open_call_at_the_end_is_answered_not_continued() -> None:
    messages = [*ANTHROPIC.user(), *ANTHROPIC.calls(A)]
    healed = lockstitch.heal(messages, "anthropic", model="claude-fable-5-1")
    assert [block["type"] for block in healed[-1]["content"]] == ["tool_result"]
    assert len(healed) == 3


def test_bedrock_relaxed_its_start() -> None:
    messages = [*BEDROCK.assistant(), *BEDROCK.user("More.")]
    assert lockstitch.heal(messages, "bedrock") is messages
    assert codes(messages, "bedrock:classic") == ["LS406"]
    healed = lockstitch.heal(messages, "bedrock:classic")
    assert healed[1] is messages[0]
    assert healed[0]["role"] == "user"


@pytest.mark.parametrize(
    ("model", "stays"),
    [
        (None, False),
        ("some-proxy-model", False),
        ("claude-3-7-sonnet-20250219", True),
        ("claude-opus-4-5", True),
        ("claude-opus-4-7", True),
        ("claude-opus-5", True),
        ("claude-opus-5-5", False),
        ("claude-sonnet-5-5", False),
        ("claude-fable-5", True),
        ("claude-fable-5-1", False),
        ("claude-fable-5-1-20260801", False),
        ("claude-mythos-5-1", False),
        ("gemini-3-pro", True),
    ],
)
def test_preserved_thinking_came_with_the_later_fives(model: str | None, *, stays: bool) -> None:
    plan = lockstitch.plan(REPAIRED, "anthropic", model=model)
    kept = any(
        block == THINKING
        for message in plan.messages
        if isinstance(message["content"], list)
        for block in message["content"]
    )
    assert kept == stays
    assert [each.value for each in plan.quarantine] == ([] if stays else [THINKING])


def test_the_model_of_the_body_counts() -> None:
    tools = [{"name": "ls", "input_schema": {"type": "object"}}]
    for model, dropped in (("claude-opus-4-5", 0), ("claude-fable-5-1", 1)):
        body = {"model": model, "tools": tools, "messages": REPAIRED}
        assert len(lockstitch.plan(body, "anthropic").quarantine) == dropped


def test_the_model_that_is_passed_beats_the_one_in_the_body() -> None:
    body = {"model": "claude-opus-4-5", "messages": PREFILLED}
    assert codes(body, "anthropic", "claude-sonnet-4-6") == ["LS407"]


UNSIGNED = [*GEMINI.user(), *GEMINI.calls(A, B), *GEMINI.results(A, B)]


@pytest.mark.parametrize(
    "model", [None, "gemini-1.5-pro", "gemini-2.5-pro", "gemini-2.5-flash-lite"]
)
def test_gemini_two_wants_no_thought_signatures(model: str | None) -> None:
    assert lockstitch.heal(UNSIGNED, "gemini", model=model) is UNSIGNED


@pytest.mark.parametrize(
    "model", ["gemini-3-pro-preview", "gemini-3.5-flash", "google/gemini-3-pro", "gemini-4-pro"]
)
def test_gemini_three_wants_one_on_the_first_call_of_a_step(model: str) -> None:
    assert codes(UNSIGNED, "gemini", model) == ["LS311"]
    healed = lockstitch.heal(UNSIGNED, "gemini", model=model)
    assert [part.get("thoughtSignature") for part in healed[1]["parts"]] == [SENTINEL, None]


def test_only_the_running_turn_needs_signatures() -> None:
    earlier = [*UNSIGNED, *GEMINI.assistant(), *GEMINI.user("More.")]
    assert lockstitch.heal(earlier, "gemini", model="gemini-3-pro") is earlier


def test_each_step_of_the_running_turn_needs_a_signature() -> None:
    steps = [*UNSIGNED, *GEMINI.calls("call00003"), *GEMINI.results("call00003")]
    assert codes(steps, "gemini", "gemini-3-pro") == ["LS311", "LS311"]


@pytest.mark.parametrize("key", ["thoughtSignature", "thought_signature"])
def test_a_signature_in_either_spelling_counts(key: str) -> None:
    signed = {"role": "model", "parts": [{**GEMINI.call(A), key: "c2ln"}]}
    messages = [*GEMINI.user(), signed, *GEMINI.results(A)]
    assert lockstitch.heal(messages, "gemini", model="gemini-3-pro") is messages


@pytest.mark.parametrize("profile", ["openai-chat:kimi", "openai-chat:moonshot"])
def test_native_ids_of_kimi_are_never_rewritten(profile: str) -> None:
    kit = Chat(profile)
    messages = [
        *kit.user(),
        *kit.calls("functions.ls:0"),
        *kit.results("functions.ls:0"),
        *kit.calls("functions.ls:0"),
        *kit.results(("functions.ls:0", "other files")),
    ]
    assert lockstitch.heal(messages, profile) is messages


def test_native_ids_of_kimi_are_kept_in_anthropics_format() -> None:
    pair = [*ANTHROPIC.calls("functions.ls:0"), *ANTHROPIC.results("functions.ls:0")]
    messages = [*ANTHROPIC.user(), *pair, *pair]
    assert lockstitch.heal(messages, "anthropic:kimi") is messages
    assert codes(messages, "anthropic") == ["LS204", "LS202"]


@pytest.mark.parametrize("profile", ["openai-chat:kimi", "anthropic:kimi"])
def test_a_repair_for_kimi_keeps_the_ids_it_finds(profile: str) -> None:
    kit = ANTHROPIC if profile.startswith("anthropic") else CHAT
    messages = [
        *kit.user(),
        *kit.calls("functions.ls:0"),
        *kit.results("functions.ls:0"),
        *kit.calls("functions.ls:0", "functions.ls:1"),
        *kit.results("functions.ls:1"),
    ]
    plan = lockstitch.plan(messages, profile)
    assert [change.code for change in plan.changes] == ["LS102"]
    assert not any(change.action == "relabelled" for change in plan.changes)
    assert plan.messages[:4] == messages[:4]


def test_deepseek_wants_reasoning_back_where_there_are_calls() -> None:
    kit = Chat("openai-chat:deepseek")
    call = kit.calls(A)[0]
    bare = [*kit.user(), call, *kit.results(A)]
    assert codes(bare, kit.dialect) == ["LS312"]
    assert codes(bare, "openai-chat") == []
    healed = lockstitch.heal(bare, kit.dialect)
    assert healed[1] == call | {"reasoning_content": ""}
    kept = [*kit.user(), call | {"reasoning_content": "Hm."}, *kit.results(A)]
    assert lockstitch.heal(kept, kit.dialect) is kept


def test_deepseek_wants_no_reasoning_where_there_are_no_calls() -> None:
    messages = [*CHAT.user(), *CHAT.assistant(), *CHAT.user("More.")]
    assert lockstitch.heal(messages, "openai-chat:deepseek") is messages


def test_deepseek_takes_thinking_that_nobody_signed() -> None:
    thought = {"type": "thinking", "thinking": "Hm."}
    turn = {"role": "assistant", "content": [thought, ANTHROPIC.call(A)]}
    messages = [*ANTHROPIC.user(), turn, *ANTHROPIC.results(A)]
    assert lockstitch.heal(messages, "anthropic:deepseek") is messages
    assert codes(messages, "anthropic") == ["LS302"]


def test_deepseek_gets_an_empty_thought_in_anthropics_format() -> None:
    messages = [*ANTHROPIC.user(), *ANTHROPIC.calls(A), *ANTHROPIC.results(A)]
    assert codes(messages, "anthropic:deepseek") == ["LS312"]
    healed = lockstitch.heal(messages, "anthropic:deepseek")
    first, second = healed[1]["content"]
    assert (first["type"], first["thinking"]) == ("thinking", "")
    assert second is messages[1]["content"][0]


def test_a_repair_for_deepseek_keeps_reasoning_behind_the_repaired_place() -> None:
    kit = Chat("openai-chat:deepseek")
    messages = [
        *kit.user(),
        kit.calls(A)[0] | {"reasoning_content": "First."},
        *kit.user("Hello?"),
        kit.calls(B)[0] | {"reasoning_content": "Then."},
        *kit.results(B),
    ]
    healed = lockstitch.heal(messages, kit.dialect)
    reasoning = [m["reasoning_content"] for m in healed if "reasoning_content" in m]
    assert reasoning == ["First.", "Then."]


@pytest.mark.parametrize("model", ["claude-opus-4-5", "claude-sonnet-4-6", "claude-fable-5-1"])
def test_signed_thinking_without_text_is_left_alone(model: str) -> None:
    """Newer models send it this way: there the signature is the reasoning."""
    thought = {"type": "thinking", "thinking": "", "signature": "c2ln"}
    turn = {"role": "assistant", "content": [thought, {"type": "text", "text": "Yes."}]}
    messages = [*ANTHROPIC.user(), turn, *ANTHROPIC.user("Good.")]
    assert lockstitch.heal(messages, "anthropic", model=model) is messages
