"""Where requests come in: each is numbered, kept if wished, judged, answered and logged."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from lockstitch.provider.judge import Verdict, judge
from lockstitch.provider.replies import Script
from lockstitch.provider.wire import INVALID, Turn, Wire, ident_of, tokens_in
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


class Asked(Struct, frozen=True):
    """A request that came; ``count`` is the path it came to if it asks for tokens only."""

    wire: Wire
    data: bytes
    count: str
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

    def received(self, wire: Wire, data: bytes, count: str = "") -> Asked:
        """Take a request for a message, or for the number of tokens only, at the path *count*."""
        name = f"{wire.dialect}-count" if count else wire.dialect
        record = None if self._records is None else self._records.keep(name, data)
        return Asked(wire, data, count, record)

    def judged(self, asked: Asked) -> Verdict:
        """Judge a request; it touches nothing of the desk, and may take its time elsewhere."""
        profile = self._rules[asked.wire.dialect]
        return judge(asked.data, asked.wire, profile, sampled=not asked.count)

    def answered(self, asked: Asked, verdict: Verdict) -> Answer:
        """Answer a request that was judged."""
        wire, data = asked.wire, asked.data
        answer = self._refused(wire, data, verdict)
        if answer is None and asked.count:
            answer = Answer(200, {"input_tokens": tokens_in(data)})
        elif answer is None:
            answer = self._answered(wire, data, verdict)
        self._note(wire, asked.count or wire.path, verdict, answer, asked.record)
        return answer

    def _refused(self, wire: Wire, data: bytes, verdict: Verdict) -> Answer | None:
        if verdict.refusal is None:
            return None
        return Answer(400, wire.refusal(INVALID, verdict.refusal, ident_of(data)))

    def _answered(self, wire: Wire, data: bytes, verdict: Verdict) -> Answer:
        reply = self._script.answer(wire.tools(verdict.body))
        created = int(self._clock())
        turn = Turn(verdict.body, reply, ident_of(data), created, tokens_in(data))
        if verdict.body.get("stream"):
            return Answer(200, turn=turn)
        return Answer(200, wire.whole(turn))

    def _note(
        self, wire: Wire, path: str, verdict: Verdict, answer: Answer, record: str | None
    ) -> None:
        self._number += 1
        if self._log is None:
            return
        messages = verdict.body.get(wire.list_key)
        entry = Entry(
            number=self._number,
            path=path,
            dialect=wire.dialect,
            outcome=REFUSED if verdict.refusal is not None else ACCEPTED,
            status=answer.status,
            messages=len(messages) if isinstance(messages, list) else 0,
            stream=answer.turn is not None,
            findings=verdict.findings,
            record=record,
        )
        self._log(entry)
