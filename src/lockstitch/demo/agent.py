"""An agent that survives Ctrl-C, kill -9 and power loss: start it again, and it goes on.

ANTHROPIC_API_KEY=… python agent.py [SESSION]

It needs Lockstitch and the standard library. ANTHROPIC_BASE_URL leads it elsewhere, for instance
to `lockstitch provider`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import lockstitch

URL = os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com") + "/v1/messages"
MODEL = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-5-5")
KEY = os.environ.get("ANTHROPIC_API_KEY", "")


def bash(command: str) -> str:
    """Run a shell command and return what it prints."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}[exit status {done.returncode}]"


def read(path: str) -> str:
    """Return the content of a file."""
    return Path(path).read_text(encoding="utf-8")


def describe(tool: Any, argument: str) -> dict[str, Any]:
    """Describe a tool with one argument to the model."""
    schema = {
        "type": "object",
        "properties": {argument: {"type": "string"}},
        "required": [argument],
    }
    return {"name": tool.__name__, "description": tool.__doc__, "input_schema": schema}


OFFERED = [describe(bash, "command"), describe(read, "path")]
TOOLS = {"bash": lockstitch.Tool(bash), "read": lockstitch.Tool(read, repeatable=True)}


def ask(messages: list[Any]) -> bytes:
    """Send a request and return the provider's answer as it came."""
    body = {"model": MODEL, "max_tokens": 4096, "tools": OFFERED, "messages": messages}
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
    request = Request(URL, json.dumps(body).encode(), {**headers, "x-api-key": KEY})
    with urlopen(request, timeout=600) as answer:
        return bytes(answer.read())


def take_turn(session: lockstitch.Session) -> None:
    """Let the model and its tools work until there is nothing more to do."""
    while session.turn.is_open:
        session.run_tools(TOOLS, timeout=600)  # in parallel; each result durable at once
        reply = ask(session.request("anthropic"))  # valid, whatever happened before
        session.record(reply)  # durable from here on
        for block in json.loads(reply)["content"]:
            print(block.get("text") or f"[{block.get('name')}] {block.get('input')}", flush=True)


def prompts() -> Iterator[tuple[str, str | None]]:
    """Yield each line of the input, with a key if the same input may come again.

    A file that is fed in is the same when this program is started again, so each of its lines is
    said once. What a person types is new each time.
    """
    for number, line in enumerate(sys.stdin, 1):
        if prompt := line.strip():
            words = f"{number}-{zlib.crc32(prompt.encode()):08x}"
            yield prompt, None if sys.stdin.isatty() else words


def main() -> None:
    """Talk until the input ends; Ctrl-C breaks off the turn, not the conversation."""
    name = sys.argv[1] if len(sys.argv) > 1 else "main"
    with lockstitch.open("sqlite:///agent.db") as store, store.session(name) as session:
        for call in session.recovered.unknown:
            print(f"[{call.name} was running when the last run ended; its outcome is unknown]")
        take_turn(session)  # finish what the last run left open
        for prompt, key in prompts():
            try:
                session.say(prompt, key=key)
                take_turn(session)
            except KeyboardInterrupt:
                session.interrupt()
            except HTTPError as error:
                session.interrupt("error")
                print(f"{error.code} {error.read().decode()}", flush=True)


if __name__ == "__main__":
    main()
