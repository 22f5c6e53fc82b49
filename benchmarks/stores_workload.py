"""The conversation that every store is given: a prompt, three parallel calls, three results."""

from __future__ import annotations

import argparse
import inspect
import json
import pathlib
import random
import subprocess
import tarfile
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lockstitch.journal.events import (
    AskedCall,
    Ended,
    Event,
    Finished,
    Replied,
    Said,
    entry_of,
    text_payload,
)
from lockstitch.journal.records import JournalEntry

CALLS = 3
RESULT = 2000
FIRST = 1_790_000_000_000


class Turn(Struct):
    """One turn in no dialect: what was said, the calls with their arguments, their results."""

    number: int
    prompt: str
    thought: str
    commands: list[str]
    results: list[str]
    answer: str

    @property
    def ids(self) -> list[str]:
        """The ids of the calls."""
        return [f"call_{self.number:07d}_{index}" for index in range(CALLS)]


class Talk:
    """Turns whose texts are pieces of the standard library's source, the same in every run.

    That is what coding agents read all day; made-up words compress worse and parse faster.
    """

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)  # noqa: S311 - the same text every time
        modules = (argparse, inspect, pathlib, subprocess, tarfile, typing)
        self._source = "".join(inspect.getsource(module) for module in modules)

    def text(self, size: int) -> str:
        """Some lines, of so many characters."""
        start = self._random.randrange(len(self._source) - size)
        return self._source[start : start + size]

    def turn(self, number: int) -> Turn:
        """The next turn."""
        return Turn(
            number,
            self.text(200),
            self.text(160),
            [self.text(60) for _ in range(CALLS)],
            [self.text(RESULT) for _ in range(CALLS)],
            self.text(300),
        )

    def turns(self) -> Iterator[Turn]:
        """One turn after the other, without end."""
        number = 0
        while True:
            number += 1
            yield self.turn(number)


def chat(turn: Turn) -> list[dict[str, Any]]:
    """A turn's five messages in OpenAI Chat."""
    calls = [
        {
            "id": name,
            "type": "function",
            "function": {"name": "bash", "arguments": json.dumps({"command": command})},
        }
        for name, command in zip(turn.ids, turn.commands, strict=True)
    ]
    return [
        {"role": "user", "content": turn.prompt},
        {"role": "assistant", "content": turn.thought, "tool_calls": calls},
        *(
            {"role": "tool", "tool_call_id": name, "content": text}
            for name, text in zip(turn.ids, turn.results, strict=True)
        ),
    ]


def anthropic(turn: Turn) -> list[dict[str, Any]]:
    """A turn's reply in Anthropic's spelling, alone in a list."""
    calls = [
        {"type": "tool_use", "id": name, "name": "bash", "input": {"command": command}}
        for name, command in zip(turn.ids, turn.commands, strict=True)
    ]
    return [{"role": "assistant", "content": [{"type": "text", "text": turn.thought}, *calls]}]


def lines(turn: Turn) -> list[bytes]:
    """A turn's messages, a line of JSON each: what is called the payload."""
    return [msgspec.json.encode(message) + b"\n" for message in chat(turn)]


_REPLIES: dict[str, Callable[[Turn], Any]] = {
    "openai-chat": lambda turn: chat(turn)[1],
    "anthropic": lambda turn: anthropic(turn)[0],
}


def replied(turn: Turn, dialect: str) -> Replied:
    """A turn's reply with its three calls."""
    return Replied(
        dialect=dialect,
        model="m",
        payload=Raw(msgspec.json.encode(_REPLIES[dialect](turn))),
        calls=tuple(AskedCall(id=name, name="bash") for name in turn.ids),
    )


def events(turn: Turn, after: int, dialect: str = "openai-chat") -> list[Event]:
    """A turn as facts; ``after`` is the last record before it."""
    reply = after + 2
    return [
        Said(payload=text_payload(turn.prompt)),
        replied(turn, dialect),
        *(
            Finished(reply=reply, index=index, payload=text_payload(text))
            for index, text in enumerate(turn.results)
        ),
    ]


def closed(turn: Turn, after: int, dialect: str) -> list[Event]:
    """A turn that the model closes with an answer, as facts."""
    content: Any = turn.answer
    if dialect == "anthropic":
        content = [{"type": "text", "text": turn.answer}]
    answer = msgspec.json.encode({"role": "assistant", "content": content})
    ending = [Replied(dialect=dialect, model="m", payload=Raw(answer)), Ended()]
    return [*events(turn, after, dialect), *ending]


def entry(event: Event, seq: int) -> JournalEntry:
    """An event as a store takes it."""
    return entry_of(event, f"{seq:024x}", FIRST + seq)


def long_session(messages: int, dialect: str) -> list[JournalEntry]:
    """A session whose request has about so many messages."""
    a_turn = 6 if dialect == "openai-chat" else 4
    talk = Talk().turns()
    made: list[JournalEntry] = []
    for _ in range(messages // a_turn):
        facts = closed(next(talk), len(made), dialect)
        made += [entry(fact, len(made) + n) for n, fact in enumerate(facts, 1)]
    last = Said(payload=text_payload("and now?"))
    return [*made, entry(last, len(made) + 1)]
