"""The agent of ``agent.py`` in the way most are built: a list of messages, saved as it grows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from lockstitch.demo.agent import ask, bash, read

FILE = Path("messages.json")
TOOLS: dict[str, Callable[..., str]] = {"bash": bash, "read": read}


def save(messages: list[Any], message: Any) -> None:
    """Add a message and write the list."""
    messages.append(message)
    FILE.write_text(json.dumps(messages), encoding="utf-8")


def run_tool(call: dict[str, Any]) -> dict[str, Any]:
    """Run one tool."""
    output = TOOLS[call["name"]](**call["input"])
    print(f"finished {call['id']}", flush=True)
    return {"type": "tool_result", "tool_use_id": call["id"], "content": output}


def take_turn(messages: list[Any], prompt: str) -> None:
    """Say something, and let the model and its tools work until it has nothing more to do."""
    save(messages, {"role": "user", "content": prompt})
    while messages[-1]["role"] == "user":
        content = json.loads(ask(messages))["content"]
        save(messages, {"role": "assistant", "content": content})
        calls = [block for block in content if block["type"] == "tool_use"]
        with ThreadPoolExecutor() as pool:
            results = list(pool.map(run_tool, calls))
        if results:
            save(messages, {"role": "user", "content": results})


def main() -> None:
    """Talk until the input ends."""
    messages = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    while prompt := sys.stdin.readline().strip():
        try:
            take_turn(messages, prompt)
        except HTTPError as error:
            print(f"{error.code} {error.read().decode()}", flush=True)


if __name__ == "__main__":
    main()
