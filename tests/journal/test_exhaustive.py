"""Every order of a few facts about two calls that share an id: all of them, not a sample.

One fact after another is drawn from a small alphabet, to a depth of three (four in a soak run),
behind a reply with two calls. What the fold says is compared with the words of the contract, and
the request is held to every claim, in one dialect after another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import cycle, product
from typing import Any

import pytest

import lockstitch
from lockstitch.journal.requests import project
from lockstitch.journal.state import fold

from .replies import Asked, Speech, reply_of
from .sessions import Session
from .shown import DIALECT_RECEIVERS, Claims, refused
from .test_fold import _same
from .words import seen_in

DEPTH = 4 if os.environ.get("LOCKSTITCH_FUZZ_EXAMPLES") else 3
ALPHABET = (
    *("start", "give", "give-again", "give-other", "conclude", "wait", "expect", "approve", "deny"),
    *("say", "reply", "overtaken-reply", "part", "interrupt", "resume", "end"),
    *("compact", "compact-all", "rewind", "rewind-one"),
)
CALLS = {"start": "started", "wait": "waiting", "approve": "approved", "deny": "denied"}
ENDS = {"interrupt": "interrupted", "resume": "resumed", "end": "ended"}
ISSUERS = ("anthropic", "openai-chat", "openai-responses", "gemini", "bedrock", "langchain")


class Story:
    """A session that begins with a reply of two calls, and goes on as it is told."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.session = Session()
        self.marks = 0
        self.say()
        self.reply()

    def mark(self, letter: str = "T") -> str:
        self.marks += 1
        return f"<{letter}{self.marks}>"

    def say(self) -> None:
        self.session.add({"kind": "said", "payload": self.mark()})

    def reply(self, after: int = 0) -> None:
        calls = tuple(Asked("call00001", "grep", self.mark("A")) for _ in range(2))
        self.marks += 1
        speech = Speech(self.marks, self.mark(), calls, self.mark("R"), f"SEAL{self.marks:04d}")
        asked = [{"id": "call00001", "name": "grep"}] * 2
        event = {"kind": "replied", "dialect": self.dialect, "calls": asked, "after": after}
        self.session.add({**event, "payload": reply_of(self.dialect, speech).response})

    def part(self) -> None:
        self.marks += 1
        speech = Speech(self.marks, self.mark(), (), self.mark("R"), f"SEAL{self.marks:04d}")
        event = {"kind": "partial", "dialect": self.dialect, "stream": f"s{self.marks}"}
        self.session.add({**event, "payload": reply_of(self.dialect, speech).response})

    def tell(self, kind: str, index: int = 0, **fields: Any) -> None:
        self.session.add({"kind": kind, "reply": 2, "index": index, **fields})

    def add(self, word: str) -> None:
        last = self.session.records[-1].seq
        if word.startswith("give"):
            self.tell("finished", int(word == "give-other"), payload=self.mark())
        elif word == "conclude":
            self.tell("finished", synthetic=True, outcome="unknown")
        elif word == "expect":
            self.tell("started")
            self.tell("waiting", outside=True)
        elif word.startswith("compact"):
            through = last if word == "compact-all" else 2
            self.session.add({"kind": "compacted", "through": through, "payload": self.mark("S")})
        elif word.startswith("rewind"):
            self.session.add({"kind": "rewound", "to": 2 if word == "rewind" else last - 1})
        elif word in CALLS:
            self.tell(CALLS[word])
        elif word in ENDS:
            self.session.add({"kind": ENDS[word]})
        else:
            speak = {"reply": self.reply, "part": self.part, "say": self.say}
            speak.get(word, lambda: self.reply(after=2))()


def _stories(first: str) -> Iterator[tuple[str, ...]]:
    for length in range(DEPTH):
        yield from ((first, *rest) for rest in product(ALPHABET, repeat=length))


@pytest.mark.parametrize("first", ALPHABET)
def test_every_order_of_facts(first: str) -> None:
    receivers = cycle(DIALECT_RECEIVERS)
    # Five and six have no common divisor: every issuer meets every receiver.
    issuers = cycle(ISSUERS[:5])
    for words in _stories(first):
        story = Story(next(issuers))
        for word in words:
            story.add(word)
        state, seen = fold(story.session.records), seen_in(story.session.records)
        _same(state, seen)
        profile = next(receivers)[0]
        messages = project(state.view, profile)
        assert lockstitch.check(messages, profile) == [], words
        assert refused(profile, messages) == [], words
        Claims(story.session, seen).check(profile, messages)
