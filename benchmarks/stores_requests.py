"""What a request costs: the first one of an opened session, each later one, and one of too much."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw
from stores_workload import Talk, entry

import lockstitch
from lockstitch.journal.events import AskedCall, Ended, Event, Finished, Replied, Said, text_payload
from lockstitch.stores.opening import open_backend

Fields = dict[str, Any]
DIALECTS = ("anthropic", "openai-chat", "openai-responses", "gemini", "bedrock")
SIZES = {"small": (50, 300), "large": (800, 2000)}
MEGABYTE = 1_000_000


def _anthropic(words: str, calls: list[tuple[str, str]], _number: int) -> Fields:
    asked = [
        {"type": "tool_use", "id": name, "name": "bash", "input": {"command": command}}
        for name, command in calls
    ]
    return {"role": "assistant", "content": [{"type": "text", "text": words}, *asked]}


def _chat(words: str, calls: list[tuple[str, str]], _number: int) -> Fields:
    asked = [
        {
            "id": name,
            "type": "function",
            "function": {"name": "bash", "arguments": json.dumps({"command": command})},
        }
        for name, command in calls
    ]
    message = {"role": "assistant", "content": words}
    return {"choices": [{"message": {**message, "tool_calls": asked} if asked else message}]}


def _responses(words: str, calls: list[tuple[str, str]], number: int) -> Fields:
    text = {"type": "output_text", "text": words, "annotations": []}
    message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [text]}
    asked = [
        {
            "type": "function_call",
            "id": f"fc_{name}",
            "call_id": name,
            "name": "bash",
            "arguments": json.dumps({"command": command}),
        }
        for name, command in calls
    ]
    return {"output": [message, *asked]}


def _gemini(words: str, calls: list[tuple[str, str]], _number: int) -> Fields:
    asked = [
        {"functionCall": {"id": name, "name": "bash", "args": {"command": command}}}
        for name, command in calls
    ]
    content = {"role": "model", "parts": [{"text": words}, *asked]}
    return {"candidates": [{"content": content}]}


def _bedrock(words: str, calls: list[tuple[str, str]], _number: int) -> Fields:
    asked = [
        {"toolUse": {"toolUseId": name, "name": "bash", "input": {"command": command}}}
        for name, command in calls
    ]
    return {"output": {"message": {"role": "assistant", "content": [{"text": words}, *asked]}}}


REPLIES: dict[str, Callable[[str, list[tuple[str, str]], int], Fields]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
    "bedrock": _bedrock,
}


class Turns:
    """Turns of a prompt, a call, its result and an answer, all of one size."""

    def __init__(self, dialect: str, size: str) -> None:
        self.dialect, self.talk, self.number = dialect, Talk(), 0
        self.least, self.most = SIZES[size]

    def text(self) -> str:
        """A text of some size."""
        spread = self.most - self.least
        return self.talk.text(self.least + (self.number * 7919) % spread)

    def reply(self, calls: list[tuple[str, str]], part: int) -> Replied:
        """A reply that came in its envelope."""
        made = REPLIES[self.dialect](self.text(), calls, 2 * self.number + part)
        asked = tuple(AskedCall(id=name, name="bash") for name, _ in calls)
        payload = Raw(msgspec.json.encode(made))
        return Replied(dialect=self.dialect, model="m", payload=payload, calls=asked)

    def events(self, after: int) -> list[Event]:
        """The next turn as facts; ``after`` is the last record before it."""
        self.number += 1
        calls = [(f"call_{self.number:07d}", self.talk.text(60))]
        return [
            Said(payload=text_payload(self.text())),
            self.reply(calls, 0),
            Finished(reply=after + 2, payload=text_payload(self.text())),
            self.reply([], 1),
            Ended(),
        ]


def fill(url: str, name: str, turns: Turns, messages: int) -> None:
    """Write a session whose request has about so many messages."""
    made: list[Any] = []
    for _ in range(messages // 4):
        facts = turns.events(len(made))
        made += [entry(fact, len(made) + n) for n, fact in enumerate(facts, 1)]
    made.append(entry(Said(payload=text_payload("and now?")), len(made) + 1))
    with open_backend(url) as backend:
        lease = backend.acquire(name)
        for start in range(0, len(made), 1000):
            backend.append(lease, made[start : start + 1000], start)


def cpu(call: Callable[[], Any], rounds: int) -> float:
    """The least milliseconds of processor that a call took."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        times.append((time.process_time() - start) * 1e3)
    return min(times)


def first(urls: Callable[[], str], rounds: int) -> list[Fields]:
    """Open 10 000 messages and get the request, in its own dialect and in another one."""
    rows = []
    for size in SIZES:
        for dialect in DIALECTS:
            url = urls()
            fill(url, "s", Turns(dialect, size), 10_000)
            with lockstitch.open(url) as store:
                for other in (dialect, "openai-chat" if dialect == "anthropic" else "anthropic"):

                    def whole(store: Any = store, other: str = other) -> Any:
                        with store.session("s") as session:
                            return session.request(other)

                    text = json.dumps(whole())
                    base = cpu(lambda text=text: json.loads(text), rounds)  # type: ignore[misc]
                    spent = cpu(whole, rounds)
                    row = {"name": f"{size}, {dialect} to {other}", "own": dialect == other}
                    rows.append({**row, "ms": spent, "parse": base, "ratio": spent / base})
    return rows


def later(urls: Callable[[], str], rounds: int) -> list[Fields]:
    """Ask once more after one more turn, at several lengths of the history."""
    rows = []
    for dialect in DIALECTS:
        times = {}
        for count in (1_000, 10_000, 40_000):
            url, turns = urls(), Turns(dialect, "small")
            fill(url, "s", turns, count)
            with lockstitch.open(url) as store, store.session("s") as session:
                session.request(dialect)
                found = []
                for _ in range(max(rounds, 3)):
                    session._writer.add(*turns.events(session.seq))  # noqa: SLF001
                    session.say("more")
                    start = time.process_time()
                    session.request(dialect)
                    found.append((time.process_time() - start) * 1e3)
                times[count] = min(found)
        rows.append({"name": dialect, "times": times, "growth": times[40_000] / times[1_000]})
    return rows


def large(urls: Callable[[], str]) -> list[Fields]:
    """Ask for a request of 150 results of 1 MB, in a process of its own."""
    url = urls()
    fill_large(url)
    rows = []
    for dialect in ("anthropic", "bedrock"):
        run = [sys.executable, __file__, url, dialect]
        printed = subprocess.run(run, capture_output=True, check=True, text=True).stdout
        rows.append({"name": dialect, **json.loads(printed)})
    return rows


def fill_large(url: str, count: int = 150) -> None:
    """Write a session of large results."""
    talk = Talk()
    with open_backend(url) as backend:
        lease, after = backend.acquire("s"), 0
        for number in range(count):
            turns = Turns("anthropic", "small")
            turns.number = number
            facts = turns.events(after)
            text = "".join(talk.text(50_000) for _ in range(MEGABYTE // 50_000))
            facts[2] = Finished(reply=after + 2, payload=text_payload(text))
            made = [entry(fact, after + n) for n, fact in enumerate(facts, 1)]
            after = backend.append(lease, made, after).seq


def _memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def measure_large(url: str, dialect: str) -> Fields:
    """Give milliseconds of processor, and by how many megabytes the process grew at most."""
    with lockstitch.open(url) as store, store.session("s") as session:
        with store.session("another") as small:
            small.say("so that everything is loaded")
            small.request(dialect)
        before = _memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        start = time.process_time()
        session.request(dialect)
        spent = (time.process_time() - start) * 1e3
        return {"ms": spent, "MB": _memory("VmHWM") - before}


if __name__ == "__main__":
    print(json.dumps(measure_large(*sys.argv[1:])))
