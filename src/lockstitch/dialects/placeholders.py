"""Texts that programs write where the real result of a tool call is missing.

A result that is only such a text says nothing about what the tool did, so a real result beats it.
Listed are texts that stand in for a lost result, each with the release or file it was read in.
Listed, too, is every text that Lockstitch itself writes in such a place; no other module words one.
What a person decided ("the user doesn't want to proceed") and what a tool reported is not listed.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

UNKNOWN_OUTCOME = "[lockstitch] No result was recorded for this tool call. Its outcome is unknown."
WAITING = "[lockstitch] This tool call is still waiting for its result."
NOT_STARTED = "[lockstitch] This tool call was not started."
RUNNING = "[lockstitch] This tool call is still running."
CANCELLED = (
    "[lockstitch] This tool call was cancelled while it ran. It may have taken effect, "
    "in whole or in part."
)
TIMED_OUT = (
    "[lockstitch] This tool call did not finish in time. It may have taken effect, "
    "in whole or in part."
)
# Stands before a recorded error if the tool's own result is not on record.
FAILED = "[lockstitch] This tool call failed, and this is the error that was recorded:"
# Stands after the part of an output that had been shown.
PARTIAL = "[lockstitch] The tool was still running when this was recorded. Its outcome is unknown."


Match = Literal["exact", "prefix", "regex"]


class KnownPlaceholder(NamedTuple):
    """A known text: its vendor, how to compare it (a regex must match all of it), its source."""

    vendor: str
    match: Match
    text: str
    source: str


# The vendor, how to compare, where the texts were read, and the texts.
_TEXTS: tuple[tuple[str, Match, str, tuple[str, ...]], ...] = (
    ("lockstitch", "exact", "this file", (UNKNOWN_OUTCOME,)),
    ("lockstitch", "prefix", "this file", (FAILED,)),
    ("lockstitch", "exact", "this file", (
        WAITING, NOT_STARTED, RUNNING, CANCELLED, TIMED_OUT, PARTIAL,
    )),
    ("claude-code", "prefix", "npm @anthropic-ai/claude-code 2.1.325", (
        "[Tool call interrupted: the session ended before this call's result was recorded, so "
        "its outcome is unknown.",
        "[Tool call result not in this copy: this session was copied from another session before "
        "that session recorded this call's result.",
        "[Agent call interrupted: the process running this conversation stopped before this "
        "agent finished, so it returned no result.",
    )),
    ("claude-code", "exact", "npm @anthropic-ai/claude-code 2.1.325", (
        "[Tool result missing due to internal error]",
    )),
    ("codex", "exact", "openai/codex codex-rs/core/src/context_manager/normalize.rs", ("aborted",)),
    ("opencode", "exact", "npm opencode-ai 1.18.33", (
        "[Tool execution was interrupted]",
        "Tool execution interrupted",
        "Tool execution aborted",
        "Provider did not return a tool result",
    )),
    ("pi", "exact", "npm @mariozechner/pi-ai 0.73.1, @earendil-works/pi-ai 1.5.0", (
        "No result provided",
    )),
    ("openclaw", "exact", "npm openclaw 2026.9.6", (
        "[openclaw] missing tool result in session history; inserted synthetic error result for "
        "transcript repair.",
    )),
    ("qwen-code", "exact", "npm @qwen-code/qwen-code 0.24.4", (
        "Tool result missing from saved history; the previous run likely ended before this tool "
        "completed.",
        "Tool execution result was not recorded \N{EM DASH} likely interrupted by network "
        "failure, abort, or process exit. Treat as failure and retry if needed.",
    )),
    ("gemini-cli", "exact", "npm @google/gemini-cli-core 0.61.0 utils/historyHardening.js", (
        "The tool execution result was lost due to context management truncation.",
    )),
    ("google-adk", "exact", "google-adk 2.13.0 models/lite_llm.py", (
        "Error: Missing tool result (tool execution may have been interrupted before a response "
        "was recorded).",
    )),
    ("turnsafe", "exact", "turnsafe 0.1.0 repair.py", (
        "Error: this tool call was not executed, or its result was lost from the conversation "
        "history. Do not assume it succeeded.",
    )),
    ("deepagents", "regex", "deepagents 0.2.0 to 0.7.16, npm deepagents 1.14.1", (
        r"Tool call [^\n]+ with id [^\n]+ was cancelled - another message came in before it could "
        r"be completed\.",
    )),
    ("deepagents", "regex", "deepagents 0.7.24 to 0.7.32", (
        r"Tool call [^\n]+ with id [^\n]+ did not complete - no result was recorded\. It may have "
        r"been cancelled or interrupted\.",
    )),
    ("deer-flow", "exact",
     "bytedance/deer-flow agents/middlewares/dangling_tool_call_middleware.py", (
        "[Tool call was interrupted and did not return a result.]",
    )),
    ("litellm", "prefix", "litellm 1.83.0 to 1.108.4 prompt_templates/factory.py", (
        "[System: Tool execution skipped/interrupted by user. No result provided for tool '",
    )),
    ("strands", "exact", "strands-agents 1.30.0 to 1.62.0", ("Tool was interrupted.",)),
    ("pydantic-ai", "exact", "pydantic-ai-slim 2.66.0 messages.py", (
        "The tool call was interrupted before a result was produced.",
    )),
    ("tau", "exact", "tau-ai 0.4.8 tool_history.py", ("Tool call interrupted by user",)),
    ("hermes", "exact", "hermes-agent 0.19.0 agent/agent_runtime_helpers.py", (
        "[Result unavailable \N{EM DASH} see context summary above]",
    )),
    ("hermes", "exact", "hermes-agent 0.19.0 agent/replay_cleanup.py", (
        "[Orphan recovery: interrupted side-effecting tool may have executed; its effect is "
        "UNKNOWN. Inspect state before retrying.]",
        "[Orphan recovery: interrupted read-only tool did not complete.]",
    )),
    ("openhands", "exact", "openhands-sdk 1.58.2 conversation/impl/local_conversation.py", (
        "Tool call interrupted before completion. The conversation was paused.",
    )),
    ("librefang", "exact", "librefang/librefang crates/librefang-runtime/src/session_repair.rs", (
        "[Tool execution was interrupted or lost]",
    )),
    ("librefang", "exact",
     "librefang/librefang crates/librefang-runtime/src/agent_loop/tool_call.rs", (
        "[tool interrupted: turn aborted before this call could execute]",
    )),
    ("cline", "exact", "npm @cline/core 0.0.86", (
        "Tool execution was interrupted before a result was produced.",
    )),
    ("cline", "regex", "cline/cline sdk/packages/core/src/session/services/message-builder.ts", (
        r"Tool execution was interrupted before a result was produced\. Tool: [^\n]+\.",
    )),
    ("cline", "exact", "npm @cline/core 0.0.86", (
        "[import] Tool result was not captured in the source session history.",
    )),
    ("cline", "exact", "cline/cline apps/vscode/src/sdk/initial-message-sanitizer.ts", (
        "[migration] Tool result missing in legacy conversation history.",
    )),
    ("roo-code", "exact", "RooCodeInc/Roo-Code src/core/task/validateToolResultIds.ts", (
        "Tool execution was interrupted before completion.",
    )),
    ("roo-code", "exact", "RooCodeInc/Roo-Code src/core/task/Task.ts", (
        "Task was interrupted before this tool call could be completed.",
    )),
    ("crush", "exact", "charmbracelet/crush internal/agent/agent.go", (
        "tool call was interrupted and did not produce a result, you may retry this call if the "
        "result is still needed",
    )),
    ("mistral-vibe", "exact", "mistral-vibe 1.0.0 to 2.0.0", (
        "<user_cancellation>Tool execution interrupted - no response available</user_cancellation>",
    )),
    ("livekit", "exact", "livekit-agents 1.8.9 voice/generation.py", (
        "The tool call is still in progress.",
    )),
    ("livekit", "prefix", "livekit-agents 1.8.9 voice/generation.py", (
        "The tool call is still in progress. It keeps running in the background, and its result "
        "will be delivered to you automatically when it finishes.",
    )),
    ("amplifier", "prefix", "microsoft/amplifier-module-provider-vllm __init__.py", (
        "[SYSTEM ERROR: Tool result missing from conversation history]\n\nTool:",
    )),
    ("antigravity-manager", "exact",
     "lbjlaq/Antigravity-Manager src-tauri/src/proxy/mappers/claude/request.rs", (
        "Tool execution interrupted. No result provided.",
    )),
)  # fmt: skip
KNOWN_PLACEHOLDERS = tuple(
    KnownPlaceholder(vendor, match, text, source)
    for vendor, match, source, texts in _TEXTS
    for text in texts
)

# No listed text comes near this length, so a longer output is real without a closer look.
_LONGEST = 1024
_EXACT = {known.text: known.vendor for known in KNOWN_PLACEHOLDERS if known.match == "exact"}
_PREFIX = {known.text: known.vendor for known in KNOWN_PLACEHOLDERS if known.match == "prefix"}
_PREFIXES = tuple(_PREFIX)
_REGEXES = tuple(
    (re.compile(known.text), known.vendor) for known in KNOWN_PLACEHOLDERS if known.match == "regex"
)


def is_placeholder(text: str) -> bool:
    """Whether a result is a known stand-in for a lost one, so that a real one beats it."""
    return vendor_of(text) is not None or is_partial(text)


def is_partial(text: str) -> bool:
    """Whether a placeholder of ours holds part of the real output."""
    return bool(shown_part(text))


def shown_part(text: str) -> str:
    """Return the part of an output that a placeholder of ours holds, "" for any other text."""
    found = text.rstrip()
    return found.removesuffix(PARTIAL).strip() if found.endswith(PARTIAL) else ""


def vendor_of(text: str) -> str | None:
    """Return the program whose placeholder this is, or None for any other text."""
    if len(text) > _LONGEST:
        return None
    text = text.strip()
    vendor = _EXACT.get(text)
    if vendor is not None:
        return vendor
    if text.startswith(_PREFIXES):
        return next(_PREFIX[prefix] for prefix in _PREFIXES if text.startswith(prefix))
    return next((vendor for regex, vendor in _REGEXES if regex.fullmatch(text)), None)
