from __future__ import annotations

import re
import time

import pytest

from lockstitch.dialects.placeholders import (
    KNOWN_PLACEHOLDERS,
    UNKNOWN_OUTCOME,
    WAITING,
    KnownPlaceholder,
    is_placeholder,
    vendor_of,
)

# One example of every text with a variable part, as its program would have written it.
FILLED = {
    "claude-code": "[Tool call interrupted: the session ended before this call's result was "
    "recorded, so its outcome is unknown. Check whether it took effect before relying on it or "
    "running it again.]",
    "litellm": "[System: Tool execution skipped/interrupted by user. No result provided for tool "
    "'get_weather'.]",
    "cline": "Tool execution was interrupted before a result was produced. Tool: bash.",
    "livekit": "The tool call is still in progress. It keeps running in the background, and its "
    "result will be delivered to you automatically when it finishes. Do not call `book` again, "
    "and do not guess its result.",
    "amplifier": "[SYSTEM ERROR: Tool result missing from conversation history]\n\nTool: bash\n"
    "Call ID: toolu_1\n\nThis indicates the tool result was lost after execution.",
}
DEEPAGENTS = [
    "Tool call ls with id c1 was cancelled - another message came in before it could be completed.",
    (
        "Tool call ls with id c1 did not complete - no result was recorded. "
        "It may have been cancelled or interrupted."
    ),
]
REAL = [
    "",
    " ",
    "ok",
    "done",
    "null",
    "Aborted",
    "aborted by user",
    "aborted by user after 12.3s",
    "error: merge aborted",
    "No result provided by the search engine",
    "No results found.",
    "Tool execution interrupted by SIGINT after 3 of 10 tests",
    "Tool was interrupted. Partial output: 3 files",
    "[lockstitch] 12 findings",
    "User said: " + UNKNOWN_OUTCOME,
    UNKNOWN_OUTCOME + "\nexit status 0",
    "[Request interrupted by user for tool use]",
    "The user doesn't want to proceed with this tool use. The tool use was rejected.",
    "The user doesn't want to take this action right now.",
    "Tool call ls with id c1 could not be executed - arguments were malformed or truncated.",
    f"{DEEPAGENTS[0]}\nbut here is the output",
    "Tool canceled by user",
]


@pytest.mark.parametrize(
    "known",
    [known for known in KNOWN_PLACEHOLDERS if known.match != "regex"],
    ids=lambda known: f"{known.vendor}-{known.match}",
)
def test_every_listed_text_is_recognised_as_its_vendors(known: KnownPlaceholder) -> None:
    assert vendor_of(known.text) == known.vendor
    assert is_placeholder(f"\n {known.text}\t\n")


@pytest.mark.parametrize(("vendor", "text"), FILLED.items(), ids=list(FILLED))
def test_texts_with_a_variable_part_are_recognised(vendor: str, text: str) -> None:
    assert vendor_of(text) == vendor


@pytest.mark.parametrize("text", DEEPAGENTS)
def test_both_wordings_of_deepagents_are_recognised(text: str) -> None:
    assert vendor_of(text) == "deepagents"


@pytest.mark.parametrize("text", REAL)
def test_real_outputs_and_decisions_of_people_are_not_placeholders(text: str) -> None:
    assert vendor_of(text) is None
    assert not is_placeholder(text)


def test_our_own_texts_are_marked_as_ours_and_claim_no_cause() -> None:
    for text in (UNKNOWN_OUTCOME, WAITING):
        assert text.startswith("[lockstitch] ")
        assert vendor_of(text) == "lockstitch"
        assert not re.search("user|cancel|crash|interrupt", text)


def test_the_table_is_free_of_repeats_and_names_its_sources() -> None:
    assert len({known.text for known in KNOWN_PLACEHOLDERS}) == len(KNOWN_PLACEHOLDERS)
    assert all(known.source.strip() for known in KNOWN_PLACEHOLDERS)


def test_no_text_is_hidden_by_the_length_limit() -> None:
    assert max(len(known.text) for known in KNOWN_PLACEHOLDERS) < 512


def test_prefixes_are_long_enough_not_to_meet_a_real_output() -> None:
    assert min(len(known.text) for known in KNOWN_PLACEHOLDERS if known.match == "prefix") >= 60


def test_a_long_output_costs_nothing() -> None:
    short, long = "x" * 100, "[Tool call interrupted: " + "x" * 10_000_000
    assert any(_seconds(long) < 20 * _seconds(short) for _ in range(10))


def _seconds(text: str) -> float:
    def once() -> float:
        start = time.process_time()
        for _ in range(200):
            is_placeholder(text)
        return time.process_time() - start

    return min(once() for _ in range(5))
