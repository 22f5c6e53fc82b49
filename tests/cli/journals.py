"""Lockstitch stores for the commands to look at."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from lockstitch.journal.events import (
    AskedCall,
    Ended,
    Event,
    Finished,
    Interrupted,
    Noted,
    Replied,
    Said,
    Started,
    Waiting,
    entry_of,
    payload_of,
    text_payload,
)
from lockstitch.sources.own_stores import path_of
from lockstitch.stores.opening import open_backend
from tests.stores.sqlite.spoiling import spoil

AT = 1_794_700_000_000
LARGE = "large " * 20_000


def said(text: str) -> Said:
    return Said(payload=text_payload(text))


def replied(text: str, *calls: tuple[str, str, dict[str, Any]]) -> Replied:
    """A reply of Anthropic's with calls: id, name, arguments."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in calls]
    return Replied(
        payload=payload_of(json.dumps({"role": "assistant", "content": blocks})),
        dialect="anthropic",
        provider="anthropic",
        model="claude-sonnet-4-5",
        calls=tuple(AskedCall(ident, name) for ident, name, _ in calls),
    )


def finished(reply: int, index: int, text: str | None = None, **fields: Any) -> Finished:
    payload = {} if text is None else {"payload": text_payload(text)}
    return Finished(reply=reply, index=index, **payload, **fields)


# Record numbers stand behind: a turn with four calls, an end, a label, a turn that broke off.
TICKET: tuple[Event, ...] = (
    said("Fix the failing test"),
    replied(
        "I look into it.",
        ("toolu_1", "bash", {"command": "pytest"}),
        ("toolu_2", "read", {"path": "a.py"}),
        ("toolu_3", "pay", {"amount": 3}),
        ("toolu_4", "bash", {"command": "git push"}),
    ),  # 2
    Started(reply=2, index=0, effect="e0"),
    Started(reply=2, index=1, effect="e1"),
    Waiting(reply=2, index=2),  # 5
    Started(reply=2, index=3, effect="e3"),
    finished(2, 0, "1 failed"),  # 7
    finished(2, 1, outcome="unknown", synthetic=True),
    finished(2, 3, outcome="unknown", synthetic=True),
    finished(2, 1, "def main(): ..."),  # 10, late
    finished(2, 0, "1 failed, again"),  # 11, a second one
    replied("The test is fixed."),
    Ended(),  # 13
    Noted(name="checkpoint", label="before the refactoring"),
    said("Refactor it"),  # 15
    replied("I do.", ("toolu_1", "bash", {"command": "sed"})),
    Interrupted(reason="user"),  # 17
)
SMALL = (said("Hello"), replied("Hello."), Ended())
HEAVY = (said(LARGE), replied("That is a lot."), Ended())


def write(url: str, session: str, *events: Event) -> None:
    """Append events to a session one by one, a second apart."""
    with open_backend(url) as backend:
        lease = backend.acquire(session)
        for number, event in enumerate(events, lease.head.seq + 1):
            entry = entry_of(event, f"k{number}", AT + number * 1000)
            backend.append(lease, [entry], number - 1)


def damage(url: str, session: str, seq: int) -> None:
    """Change a byte of a record's body, the way a disk does it."""
    if url.startswith("sqlite:"):
        spoil(path_of(url), session, seq, lambda data: data.replace(b'"kind"', b'"kinb"', 1))
    elif url.startswith("jsonl:"):
        path = Path(path_of(url)) / f"{session}.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        number = next(n for n, line in enumerate(lines) if line.startswith(b'{"seq":%d,' % seq))
        lines[number] = lines[number].replace(b'"kind"', b'"kinb"', 1)
        path.write_bytes(b"".join(lines))
    else:
        with psycopg.connect(url) as base:
            base.execute(
                "update lockstitch.records set body = overlay(body placing 'kinb' from 3)"
                " where seq = %s and session ="
                " (select id from lockstitch.sessions where session = %s)",
                (seq, session),
            )


_HOLDER = """
import sys
from lockstitch.stores.opening import open_backend
with open_backend(sys.argv[1]) as backend:
    lease = backend.acquire(sys.argv[2])
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def held(url: str, session: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has a session open for writing until its input ends."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, url, session],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            if holder.stdin and not holder.stdin.closed:
                holder.stdin.close()
            holder.wait(600)
