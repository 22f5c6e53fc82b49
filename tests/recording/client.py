"""A client for campaigns, to be killed: ``python -m tests.recording.client URL SEED [LINES]``.

It says what it asks before it does (``try``) and what was acknowledged to it (``ack``), each as
the lines of its conversation. LINES, in JSON, is a conversation to go on with.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import time
from typing import Any
from urllib.parse import urlsplit

from tests.driven import say

Json = Any
LONGEST = 14


class Lost(Exception):
    """Nothing was acknowledged: the connection broke, or the request was refused."""


class Talker:
    """One conversation after the other, as lines and as Anthropic's messages."""

    def __init__(self, url: str, seed: int, lines: list[str]) -> None:
        self.host = urlsplit(url).netloc
        self.random = random.Random(seed)  # noqa: S311 - to be had again
        self.lines = lines
        self.connection = http.client.HTTPConnection(self.host, timeout=60)

    def run(self) -> None:
        while True:
            self._speak()
            self._ask()

    def _speak(self) -> None:
        """Answer a call, or say something; a new conversation begins like many others."""
        if len(self.lines) > LONGEST:
            self.lines = []
        elif self.lines and self.random.random() < 0.05:
            del self.lines[self.random.randrange(len(self.lines)) :]
            while self.lines and not self.lines[-1].startswith("assistant"):
                del self.lines[-1]
        last = self.lines[-1] if self.lines else ""
        if last.startswith(("user", "tool")):
            return
        words = ("hello", "go on", f"word {self.random.random():.6f}")
        if "look(" in last:
            self.lines.append(f"tool: {self.random.choice(words)}")
        else:
            self.lines.append(f"user: {self.random.choice(words)}")

    def _ask(self) -> None:
        """Ask until there is an answer, as clients do."""
        while True:
            say("try", json.dumps(self.lines))
            try:
                text = self._answered(is_streamed=self.random.random() < 0.7)
            except (Lost, OSError, http.client.HTTPException):
                self.connection.close()
                time.sleep(0.05)
                continue
            self.lines.append(text)
            say("ack", json.dumps(self.lines))
            return

    def _answered(self, *, is_streamed: bool) -> str:
        body = {"model": "m", "max_tokens": 9, "messages": messages(self.lines)}
        tools = [{"name": "look", "input_schema": {"type": "object"}}]
        sent = json.dumps({**body, "tools": tools, "stream": is_streamed})
        headers = {"Content-Type": "application/json", "x-api-key": "sk-never-to-be-stored"}
        self.connection.request("POST", "/v1/messages", sent, headers)
        reply = self.connection.getresponse()
        if reply.status != 200:
            reply.read()
            raise Lost
        say("ack", json.dumps(self.lines))
        data = reply.read()
        return spelled(gathered(data) if is_streamed else json.loads(data)["content"])


def gathered(data: bytes) -> list[Json]:
    """The blocks of a stream; one without its end was not acknowledged."""
    blocks: list[Json] = []
    events = [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: ")]
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            if delta["type"] == "text_delta":
                blocks[-1]["text"] += delta["text"]
            elif delta["type"] == "input_json_delta":
                blocks[-1]["json"] += delta["partial_json"]
    if not events or events[-1]["type"] != "message_stop":
        raise Lost
    return [
        {**block, "input": json.loads(block["json"])} if block["json"] else block
        for block in blocks
    ]


def spelled(blocks: list[Json]) -> str:
    """A reply as a line."""
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    calls = [
        f"look({json.dumps(block['input'], separators=(',', ':'))})"
        for block in blocks
        if block["type"] == "tool_use"
    ]
    return f"assistant: {''.join(texts)}{''.join(calls)}"


def messages(lines: list[str]) -> list[Json]:
    """The lines as a request has them; ids are made anew every time."""
    made: list[Json] = []
    for number, line in enumerate(lines):
        role, _, text = line.partition(": ")
        if role == "assistant":
            said, _, call = text.partition("look(")
            content: list[Json] = [{"type": "text", "text": said}]
            if call:
                use = {"type": "tool_use", "id": f"toolu_{number}", "name": "look"}
                content.append({**use, "input": json.loads(call[:-1])})
            made.append({"role": role, "content": content})
        elif role == "tool":
            result = {"type": "tool_result", "tool_use_id": f"toolu_{number - 1}", "content": text}
            made.append({"role": "user", "content": [result]})
        else:
            made.append({"role": "user", "content": text})
    return made


if __name__ == "__main__":
    Talker(sys.argv[1], int(sys.argv[2]), json.loads((sys.argv[3:] or ["[]"])[0])).run()
