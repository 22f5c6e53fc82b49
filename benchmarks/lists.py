"""Long message lists for the benchmarks of `heal`: healthy, or with a lost result every n turns."""

from __future__ import annotations

from typing import Any

MESSAGES = 40_000


def anthropic(broken_every: int) -> list[dict[str, Any]]:
    """Turns of prompt, call, result and answer; every n-th turn has lost its result."""
    messages: list[dict[str, Any]] = []
    for turn in range(MESSAGES // 4):
        call = {"type": "tool_use", "id": f"toolu_{turn:08d}", "name": "bash", "input": {"n": turn}}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "line\n" * 40}
        messages += [
            {"role": "user", "content": f"prompt {turn} " * 12},
            {"role": "assistant", "content": [{"type": "text", "text": "I look. " * 5}, call]},
        ]
        if not broken_every or turn % broken_every:
            messages.append({"role": "user", "content": [result]})
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "Done. " * 9}]})
    return [*messages, {"role": "user", "content": "bye"}]


def openai(broken_every: int) -> list[dict[str, Any]]:
    """The same conversation in OpenAI Chat."""
    messages: list[dict[str, Any]] = []
    for turn in range(MESSAGES // 4):
        function = {"name": "bash", "arguments": f'{{"n": {turn}}}'}
        call = {"id": f"call_{turn:08d}", "type": "function", "function": function}
        messages += [
            {"role": "user", "content": f"prompt {turn} " * 12},
            {"role": "assistant", "content": "I look. " * 5, "tool_calls": [call]},
        ]
        if not broken_every or turn % broken_every:
            result = {"role": "tool", "tool_call_id": call["id"], "content": "line\n" * 40}
            messages.append(result)
        messages.append({"role": "assistant", "content": "Done. " * 9})
    return [*messages, {"role": "user", "content": "bye"}]
