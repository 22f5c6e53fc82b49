"""The provider without sockets: each request is judged, answered, logged and, if wished, kept."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.conversation.parts import TEXT, USER
from lockstitch.dialects.profiles import new_dialect, profile_named
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.heal import check
from lockstitch.provider import (
    NONE,
    DeliveryEnd,
    Faults,
    Incoming,
    InjectedFault,
    Script,
    arrives_whole,
)
from lockstitch.provider.apis import (
    COUNT,
    INVALID,
    STREAM,
    AnsweredTurn,
    AnthropicApi,
    BedrockApi,
    GeminiApi,
    RequestAddress,
    Wire,
    ident_of,
    tokens_in,
)
from lockstitch.provider.openai import ChatApi, ResponsesApi
from lockstitch.rules import ERROR, Finding

WIRES: tuple[Wire, ...] = (
    AnthropicApi(),
    ChatApi(),
    ResponsesApi(),
    GeminiApi(),
    BedrockApi(),
)


class Verdict(Struct, frozen=True):
    """The judgement on one request; ``refusal`` is the text with which it is refused."""

    body: Mapping[str, Any] = {}
    findings: tuple[Finding, ...] = ()
    refusal: str | None = None


def choose_rules(profiles: list[str]) -> dict[str, str]:
    """Return the rules to judge each API by: its own, or those of a profile that was named."""
    rules = {wire.dialect: wire.dialect for wire in WIRES}
    for name in profiles:
        dialect = profile_named(name).dialect
        if dialect not in rules:
            raise UsageError(
                f"the provider speaks {', '.join(rules)}, not {dialect}: name one of these"
            )
        rules[dialect] = name
    return rules


def wire_at(path: str) -> Wire | None:
    """Return the API that a path belongs to, even if there is nothing at that path."""
    return next((wire for wire in WIRES if wire.paths.match(path)), None)


def _decode(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a body, or None.

    A body that only msgspec refuses is left to rules.
    """

    def refuse_constant(name: str) -> Any:
        # NaN and Infinity, which only Python accepts as JSON
        raise ValueError(name)

    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        body = None
        with suppress(ValueError, RecursionError):
            body = json.loads(data, parse_constant=refuse_constant)
    return body if isinstance(body, dict) else None


ACCEPTED, REFUSED = "accepted", "refused"
_NOTHING_SENT = 0
_BROKEN_SCRIPT = 500
_SUMMARY = re.compile(r"\bsummar(?:y|ise|ize)", re.IGNORECASE)


class RequestEntry(Struct, frozen=True):
    """A line of the log: what came and what became of it, but never what it said.

    ``status`` is 0 if the connection was dropped; ``fault`` is what was made to go wrong.
    """

    number: int
    path: str
    dialect: str
    outcome: str
    status: int
    messages: int
    stream: bool
    findings: tuple[Finding, ...]
    record: str | None
    fault: str = ""


class ProviderAnswer(Struct, frozen=True):
    """What is sent back: a status with a body, or a turn to stream, and what goes wrong with it."""

    status: int
    body: dict[str, Any] = {}
    turn: AnsweredTurn | None = None
    headers: dict[str, str] = {}
    fault: InjectedFault = NONE
    number: int = 0


class ReceivedRequest(Struct, frozen=True):
    """A request that arrived, and where it was kept."""

    wire: Wire
    data: bytes
    at: RequestAddress
    record: str | None


class Records:
    """A folder that keeps every request body under its number, readable only by its owner."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = [path.name.partition("-")[0] for path in self._folder.glob("*.json")]
        self._last = max((int(number) for number in taken if number.isdecimal()), default=0)

    def keep(self, name: str, data: bytes) -> str:
        """Write one body unchanged; return the name of its file."""
        self._last += 1
        path = self._folder / f"{self._last:06}-{name}.json"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
        return path.name


class Service:
    """The provider without sockets: it takes the bytes of a request and returns an answer.

    ``rules`` names the profile by which each dialect is judged. ``log`` gets an entry for each
    request, ``seen`` its parsed body, and ``ended`` how its answer ended. ``clock`` returns
    seconds.
    """

    def __init__(  # noqa: PLR0913 - everything that it is made of comes from outside
        self,
        rules: dict[str, str],
        script: Script,
        *,
        clock: Callable[[], float],
        log: Callable[[RequestEntry], None] | None = None,
        seen: Callable[[RequestEntry, Mapping[str, Any]], None] | None = None,
        ended: Callable[[int, DeliveryEnd], None] | None = None,
        records: Records | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._rules = rules
        self._script = script
        self._clock = clock
        self._log = log
        self._seen = seen
        self._ended = ended
        self._records = records
        self._faults = faults or Faults()
        self._number = 0

    def receive(self, wire: Wire, data: bytes, at: RequestAddress) -> ReceivedRequest:
        """Return a request that came to an address as an object, and keep it if wished."""
        name = f"{wire.dialect}-count" if at.asks == COUNT else wire.dialect
        record = None if self._records is None else self._records.keep(name, data)
        return ReceivedRequest(wire, data, at, record)

    def judge_request(self, asked: ReceivedRequest) -> Verdict:
        """Judge a request; this changes nothing in the service, so a thread may do it."""
        wire, at = asked.wire, asked.at
        body = _decode(asked.data)
        if body is None:
            return Verdict(refusal=wire.not_json())
        body = wire.request_in(body)
        required = [one for one in wire.required if at.asks != COUNT or one != "max_tokens"]
        missing = next((name for name in required if body.get(name) is None), None)
        if missing is not None:
            return Verdict(body, refusal=wire.lacks(missing))
        if isinstance(body[wire.list_key], str) and wire.takes_text:
            return Verdict(body)
        try:
            findings = check(body, self._rules[wire.dialect], model=at.model or None)
        except LockstitchError as error:
            return Verdict(body, refusal=str(error))
        except RecursionError:
            return Verdict(body, refusal=f"{wire.list_key}: nested too deeply")
        texts = (found.error or found.message for found in findings if found.severity == ERROR)
        return Verdict(body, tuple(findings), next(texts, None))

    def answer(self, asked: ReceivedRequest, verdict: Verdict) -> ProviderAnswer:
        """Answer a request that was judged."""
        wire, data = asked.wire, asked.data
        self._number += 1
        if verdict.refusal is not None:
            answer = self._error(wire, data, INVALID, verdict.refusal)
        elif asked.at.asks == COUNT:
            answer = ProviderAnswer(200, wire.counted(tokens_in(data)), number=self._number)
        else:
            answer = self._answer_in_turn(asked, verdict)
        self._note(asked, verdict, answer)
        return answer

    def note_end(self, answer: ProviderAnswer, end: DeliveryEnd) -> None:
        """Report how an answer ended."""
        if self._ended is not None:
            self._ended(answer.number, end)

    def _error(
        self, wire: Wire, data: bytes, status: int, text: str, fault: InjectedFault = NONE
    ) -> ProviderAnswer:
        refusal = wire.refusal(status, text, ident_of(data))
        headers = {**refusal.headers, **fault.headers}
        return ProviderAnswer(
            status, refusal.body, headers=headers, fault=fault, number=self._number
        )

    def _answer_in_turn(self, asked: ReceivedRequest, verdict: Verdict) -> ProviderAnswer:
        wire, data, at = asked.wire, asked.data, asked.at
        # If a fault for all requests breaks an answer, no reply is used up, because the client asks
        # again.
        try:
            request = self._incoming(asked, verdict.body)
            fault = self._faults.take(summary=request.is_summary)
            is_kept = fault.breaks
            reply = (self._script.preview if is_kept else self._script.reply)(request)
            if reply.fault and not is_kept:
                fault = reply.parsed_fault
        except LockstitchError as error:
            return self._error(wire, data, _BROKEN_SCRIPT, f"The script of replies failed: {error}")
        if fault.status:
            return self._error(wire, data, fault.status, wire.failure(fault.status), fault)
        created = int(self._clock())
        turn = AnsweredTurn(
            verdict.body, reply, at, ident_of(data), created, tokens_in(data), fault.ids
        )
        status = _NOTHING_SENT if fault.drop else 200
        is_stream = at.asks == STREAM or bool(verdict.body.get("stream"))
        body = {} if is_stream else wire.whole(turn)
        if is_kept:
            events = wire.stream(turn) if is_stream else [json.dumps(body).encode()]
            if arrives_whole(events, fault):
                self._script.use_up(reply)
        if is_stream:
            return ProviderAnswer(status, turn=turn, fault=fault, number=self._number)
        return ProviderAnswer(status, body, fault=fault, number=self._number)

    def _incoming(self, asked: ReceivedRequest, body: Mapping[str, Any]) -> Incoming:
        wire = asked.wire
        tools = frozenset(wire.tools(body))
        messages = body.get(wire.list_key)
        # whether the user's last message asks for a summary
        last = messages[-1:] if isinstance(messages, list) else []
        asks_for_summary = any(
            part.kind == TEXT and _SUMMARY.search(part.text or "")
            for message in new_dialect(wire.dialect).read(last)
            if message.role == USER
            for part in message.parts
        )
        return Incoming(
            number=self._number,
            dialect=wire.dialect,
            path=asked.at.path,
            model=asked.at.model or str(body.get("model", "")),
            tools=tools,
            messages=messages,
            body=body,
            is_summary=not tools or asks_for_summary,
        )

    def _note(self, asked: ReceivedRequest, verdict: Verdict, answer: ProviderAnswer) -> None:
        if self._log is None and self._seen is None:
            return
        messages = verdict.body.get(asked.wire.list_key)
        entry = RequestEntry(
            number=self._number,
            path=asked.at.path,
            dialect=asked.wire.dialect,
            outcome=REFUSED if verdict.refusal is not None else ACCEPTED,
            status=answer.status,
            messages=len(messages) if isinstance(messages, list) else 0,
            stream=answer.turn is not None,
            findings=verdict.findings,
            record=asked.record,
            fault=answer.fault.words,
        )
        if self._log is not None:
            self._log(entry)
        if self._seen is not None:
            self._seen(entry, verdict.body)
