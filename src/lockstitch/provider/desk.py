"""Where requests come in: each is numbered, kept if wished, judged, answered and logged."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from lockstitch.provider.judge import Verdict, judge
from lockstitch.provider.replies import Script
from lockstitch.provider.wire import (
    COUNT,
    INVALID,
    STREAM,
    Address,
    Turn,
    Wire,
    ident_of,
    tokens_in,
)
from lockstitch.rules import Finding

ACCEPTED, REFUSED = "accepted", "refused"


class Entry(Struct, frozen=True):
    """A line of the log: what came and what became of it, never what it said."""

    number: int
    path: str
    dialect: str
    outcome: str
    status: int
    messages: int
    stream: bool
    findings: tuple[Finding, ...]
    record: str | None


class Answer(Struct, frozen=True):
    """What goes back: a status with a body, or a turn to be streamed."""

    status: int
    body: dict[str, Any] = {}
    turn: Turn | None = None
    headers: dict[str, str] = {}


class Asked(Struct, frozen=True):
    """A request that came, and where it was kept."""

    wire: Wire
    data: bytes
    at: Address
    record: str | None


class Records:
    """A folder that keeps every request body under its number, for its owner's eyes only."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = [path.name.partition("-")[0] for path in self._folder.glob("*.json")]
        self._last = max((int(number) for number in taken if number.isdecimal()), default=0)

    def keep(self, name: str, data: bytes) -> str:
        """Write one body as it came; returns the name of its file."""
        self._last += 1
        path = self._folder / f"{self._last:06}-{name}.json"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
        return path.name


class Desk:
    """The provider without its sockets: bytes of a request in, an answer out.

    ``rules`` names the profile each dialect is judged by, ``log`` takes an entry a request,
    ``clock`` tells the seconds.
    """

    def __init__(
        self,
        rules: dict[str, str],
        script: Script,
        *,
        clock: Callable[[], float],
        log: Callable[[Entry], None] | None = None,
        records: Records | None = None,
    ) -> None:
        self._rules = rules
        self._script = script
        self._clock = clock
        self._log = log
        self._records = records
        self._number = 0

    def received(self, wire: Wire, data: bytes, at: Address) -> Asked:
        """Take a request that came to an address."""
        name = f"{wire.dialect}-count" if at.asks == COUNT else wire.dialect
        record = None if self._records is None else self._records.keep(name, data)
        return Asked(wire, data, at, record)

    def judged(self, asked: Asked) -> Verdict:
        """Judge a request; it touches nothing of the desk, and may take its time elsewhere."""
        return judge(asked.data, asked.wire, self._rules[asked.wire.dialect], asked.at)

    def answered(self, asked: Asked, verdict: Verdict) -> Answer:
        """Answer a request that was judged."""
        wire, data = asked.wire, asked.data
        answer = self._refused(wire, data, verdict)
        if answer is None and asked.at.asks == COUNT:
            answer = Answer(200, wire.counted(tokens_in(data)))
        elif answer is None:
            answer = self._answered(asked, verdict)
        self._note(asked, verdict, answer)
        return answer

    def _refused(self, wire: Wire, data: bytes, verdict: Verdict) -> Answer | None:
        if verdict.refusal is None:
            return None
        refusal = wire.refusal(INVALID, verdict.refusal, ident_of(data))
        return Answer(INVALID, refusal.body, headers=refusal.headers)

    def _answered(self, asked: Asked, verdict: Verdict) -> Answer:
        wire, data = asked.wire, asked.data
        reply = self._script.answer(wire.tools(verdict.body))
        created = int(self._clock())
        turn = Turn(verdict.body, reply, asked.at, ident_of(data), created, tokens_in(data))
        if asked.at.asks == STREAM or verdict.body.get("stream"):
            return Answer(200, turn=turn)
        return Answer(200, wire.whole(turn))

    def _note(self, asked: Asked, verdict: Verdict, answer: Answer) -> None:
        self._number += 1
        if self._log is None:
            return
        messages = verdict.body.get(asked.wire.list_key)
        entry = Entry(
            number=self._number,
            path=asked.at.path,
            dialect=asked.wire.dialect,
            outcome=REFUSED if verdict.refusal is not None else ACCEPTED,
            status=answer.status,
            messages=len(messages) if isinstance(messages, list) else 0,
            stream=answer.turn is not None,
            findings=verdict.findings,
            record=asked.record,
        )
        self._log(entry)
