"""Whole sessions, generated as the facts of a journal: likely ones, unlikely ones, impossible ones.

A session is drawn step by step by a writer that knows a little of what it wrote, so that most
facts make sense; the rest point anywhere. ``wild`` turns on what no honest program writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from lockstitch.journal.records import JournalRecord, blob_name

from .replies import DIALECTS, MODELS, PICTURES, Asked, Speech, given_in, reply_of, said_in

NAMES = ("read_file", "grep", "bash")
SHARED_IDS = ("call00001", "call00002", "call00003")
ODD_IDS = ("", "read:0", "has space", "x" * 70)
OUTCOMES = ("ok", "ok", "ok", "error", "cancelled", "timed-out", "unknown", "not-started")
CONCLUDED = ("cancelled", "timed-out", "unknown", "not-started")
ABSURD = (-1, 0, 1, 2, 3, 7, 10**6, 2**63, -(2**70), 10**30)
JUNK: tuple[Any, ...] = (
    *(None, 7, -1.5, True, [], {}, "", " ", "\x00", [[]], [None], {"role": "user"}, [7]),
    {"content": None},
    {"role": "assistant", "content": [{"type": "tool_use"}]},
    {"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "call00001"}]},
    {"role": "user", "content": "a user's message where a reply belongs"},
    {"choices": []},
    {"choices": [{"message": None}]},
    {"output": [{"type": "function_call_output", "call_id": "call00001", "output": "x"}]},
    {"output": {"message": {"role": "assistant"}}},
    {"candidates": [{"finishReason": "SAFETY"}]},
    {"candidates": [{"content": {"parts": []}}]},
    {"type": "tool", "content": "x", "tool_call_id": "call00001"},
    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    [{"type": "text", "text": ""}],
    [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}}],
    [{"type": "tool_use", "id": "call00001", "name": "grep", "input": {}}],
    [{"type": "tool_result", "tool_use_id": "call00002", "content": "x"}],
    [{"functionResponse": {"name": "grep", "response": {}}}],
    [{"toolResult": {"toolUseId": "call00001", "content": []}}],
    {"type": "function_call_output", "call_id": "call00009", "output": "x"},
)
MISSHAPEN: tuple[Any, ...] = (
    *({}, [], 7, None, "said", {"kind": 7}, {"kind": "levitated", "by": 3}, {"kind": "Said"}),
    {"kind": "started"},
    {"kind": "started", "reply": "1"},
    {"kind": "started", "reply": None},
    {"kind": "finished", "reply": 2, "outcome": "fine"},
    {"kind": "finished", "reply": 2, "synthetic": "no"},
    {"kind": "replied", "payload": "a reply in no dialect"},
    {"kind": "replied", "dialect": "anthropic", "calls": [7]},
    {"kind": "rewound"},
    {"kind": "rewound", "to": 1.5},
    {"kind": "compacted", "through": True},
    {"kind": "forked", "source": 1, "at": 2},
    {"kind": "noted"},
)


@dataclass(slots=True)
class Session:
    """The records of a session and its large values."""

    records: list[JournalRecord] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Show what a failing example says."""
        lines = [f"  {r.seq} {r.key} {r.body.decode('utf-8', 'replace')}" for r in self.records]
        return "Session(\n" + "\n".join(lines) + f"\n  {len(self.blobs)} blobs)"

    def add(self, event: Any, key: str = "", blob: Any = None) -> int:
        """Write one more event; ``blob`` is a payload to be kept apart."""
        seq = self.records[-1].seq + 1 if self.records else 1
        if blob is not None:
            raw = _written(blob)
            event = {**event, "blob": blob_name(raw)}
            self.blobs[event["blob"]] = raw
        body = event if isinstance(event, bytes) else _written(event)
        self.records.append(JournalRecord(seq, 1, key or f"k{seq}", 1000 + seq, body, b""))
        return seq


def _written(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


@dataclass(slots=True)
class Known:
    """A call that the writer may tell something of."""

    reply: int
    index: int
    started: bool = False
    closed: bool = False


class Writer:
    """Draws a session fact by fact."""

    def __init__(self, draw: st.DrawFn, dialects: tuple[str, ...], *, wild: bool) -> None:
        self.draw = draw
        self.dialects = dialects
        self.wild = wild
        self.session = Session()
        self.calls: list[Known] = []
        self.streams = 0
        self.marks = 0
        self.turn = False

    # What is written ---------------------------------------------------------------------------

    def pick(self, *values: Any) -> Any:
        return self.draw(st.sampled_from(values))

    def chance(self, of: int) -> bool:
        return self.draw(st.integers(1, of)) == of

    def mark(self, letter: str) -> str:
        self.marks += 1
        return f"<{letter}{self.marks}>"

    def text(self) -> str:
        """A text with a mark; some hold what no provider can read, or white space."""
        before, after = self.pick(*[("", "")] * 8, ("half \ud83d", ""), ("\x00", "\n"), (" ", ""))
        return f"{before}{self.mark('T')}{after}"

    def put(self, kind: str, payload: Any = None, **fields: Any) -> int:
        event = {"kind": kind, **fields}
        if payload is None:
            return self.session.add(event)
        if self.chance(9):
            return self.session.add(event, blob=payload)
        return self.session.add({**event, "payload": payload})

    # The user and the model ----------------------------------------------------------------------

    def say(self) -> None:
        dialect = self.pick("", "", *self.dialects)
        text = self.text()
        content = said_in(dialect, text) if dialect else text
        if dialect and self.chance(6):
            content.append(PICTURES[dialect])
        self.put("said", content, dialect=dialect)
        self.turn = True

    def speech(self) -> Speech:
        count = self.pick(0, 0, 1, 1, 2, 3, 5)
        calls = tuple(
            Asked(self.call_id(), self.pick(*NAMES), self.mark("A"), self.chance(8))
            for _ in range(count)
        )
        thinks = self.pick("", "", "signed", "signed", "redacted", "unsigned")
        self.marks += 1
        return Speech(
            self.marks,
            self.text() if self.chance(2) or (not calls and not self.chance(8)) else "",
            calls,
            self.mark("R") if thinks in {"signed", "unsigned"} else "",
            self.seal() if thinks in {"signed", "redacted"} else "",
            redacted=thinks == "redacted",
            served=self.chance(6),
            paused=self.chance(10),
        )

    def seal(self) -> str:
        self.marks += 1
        return f"SEAL{self.marks:04d}"

    def call_id(self) -> str:
        if self.chance(3):
            return self.pick(*SHARED_IDS, *ODD_IDS) if self.wild else self.pick(*SHARED_IDS)
        self.marks += 1
        return f"call{self.marks:05d}"

    def reply(self, kind: str = "replied", speech: Speech | None = None, **fields: Any) -> None:
        dialect = fields.pop("dialect", None) or self.pick(*self.dialects)
        speech = speech or self.speech()
        reply = reply_of(dialect, speech)
        whole = kind == "replied" and not self.chance(3)
        # A reply kept as a message, as a list of messages, or in its envelope.
        message = reply.message
        value = reply.response if whole else self.pick(message, [message])
        if dialect == "openai-responses" and not whole:
            value = reply.messages
        self.put_reply(kind, dialect, value, speech.calls, fields)

    def put_reply(
        self, kind: str, dialect: str, value: Any, calls: tuple[Asked, ...], fields: dict[str, Any]
    ) -> None:
        payload = json.dumps(value, indent=1) if self.chance(8) else value
        asked = [{"id": call.id, "name": call.name} for call in calls]
        known = {"provider": dialect.upper(), "model": MODELS.get(dialect, "")}
        if self.chance(2):
            fields = {**fields, **known}
        if self.session.records and self.chance(3):
            fields["after"] = self.draw(st.integers(1, len(self.session.records)))
        seq = self.put(kind, payload, dialect=dialect, calls=asked, **fields)
        self.calls += [Known(seq, index) for index in range(len(calls))]
        if kind == "replied" and not calls and self.chance(2):
            self.put("ended")
            self.turn = False

    def stream(self) -> None:
        """A stream that dies or ends, with other things between its parts."""
        self.streams += 1
        name, dialect = f"s{self.streams}", self.pick(*self.dialects)
        speech = self.speech()
        for count in range(self.pick(1, 1, 2, 3)):
            text = replace(speech, text=speech.text or self.mark("T"), calls=speech.calls[:count])
            self.reply("partial", speech=text, stream=name, dialect=dialect)
            if self.chance(3):
                self.any_step()
        if self.chance(2):
            self.reply(speech=speech, stream=name, dialect=dialect)
        if self.chance(6):
            self.reply("partial", stream=name)

    # Tools ---------------------------------------------------------------------------------------

    def known(self) -> Known | None:
        """A call, one of the last ones most of the time."""
        if not self.calls:
            return None
        return self.pick(*self.calls[-5:]) if not self.chance(5) else self.pick(*self.calls)

    def start(self) -> None:
        if call := self.known():
            self.put("started", reply=call.reply, index=call.index, effect=f"e{call.reply}")
            call.started = True

    def finish(self) -> None:
        if not (call := self.known()):
            return
        dialect = self.pick("", "", *self.dialects)
        text = self.text()
        payload: Any = given_in(dialect, text) if dialect else text
        if isinstance(payload, list) and self.chance(6):
            payload.append(PICTURES[dialect])
        if not dialect and self.chance(6):
            payload = {"rows": [text]}
        outcome = self.pick(*OUTCOMES)
        fields = {"reply": call.reply, "index": call.index, "outcome": outcome}
        self.put("finished", payload, **fields, dialect=dialect)
        call.closed = True

    def conclude(self) -> None:
        if call := self.known():
            fields = {"reply": call.reply, "index": call.index, "outcome": self.pick(*CONCLUDED)}
            self.put("finished", synthetic=True, **fields)
            call.closed = True

    def run(self) -> None:
        """All open calls run, and some finish."""
        for call in [call for call in self.calls if not call.closed]:
            self.put("started", reply=call.reply, index=call.index)
            call.started = True
        for call in [call for call in self.calls if not call.closed]:
            if not self.chance(4):
                self.put("finished", self.mark("T"), reply=call.reply, index=call.index)
                call.closed = True

    def approval(self) -> None:
        if call := self.known():
            kind = self.pick("waiting", "waiting", "approved", "denied")
            payload = self.mark("D") if kind == "denied" and self.chance(2) else None
            more = {"outside": True} if kind == "waiting" and self.chance(2) else {}
            self.put(kind, payload, reply=call.reply, index=call.index, **more)

    def crash(self) -> None:
        """What opening a session after a crash writes."""
        for call in self.calls:
            if call.started and not call.closed:
                fields = {"reply": call.reply, "index": call.index, "outcome": "unknown"}
                self.put("finished", synthetic=True, **fields)
                call.closed = True
        if self.chance(2):
            self.put("interrupted", reason="crash")  # as earlier versions did

    # The session ---------------------------------------------------------------------------------

    def end(self) -> None:
        if self.chance(2):
            self.put("ended")
        else:
            self.put("interrupted", reason=self.pick("user", "error", ""))
            if self.chance(3):
                self.put("resumed")

    def place(self) -> int:
        near = st.integers(0, len(self.session.records))
        return self.draw(near | st.sampled_from(ABSURD) if self.wild else near)

    def compact(self) -> None:
        through = 0 if self.chance(4) else self.place()
        self.put("compacted", self.mark("S"), through=through)

    def rewind(self) -> None:
        self.put("rewound", to=self.place(), reason="user")

    def note(self) -> None:
        kind = self.pick("fork", "note", "checkpoint")
        if kind == "fork":
            self.put("forked", source="elsewhere", at=self.place())
        else:
            self.put("noted", self.mark("N"), name=kind, label="here")

    # What no honest program writes ---------------------------------------------------------------

    def misshapen(self) -> None:
        self.session.add(self.pick(*MISSHAPEN))

    def repeated_key(self) -> None:
        if self.session.records:
            record = self.pick(*self.session.records)
            self.session.add(record.body, key=record.key)

    def astray(self) -> None:
        """A fact of a call that never was."""
        kind = self.pick("started", "finished", "waiting", "approved", "denied")
        self.put(kind, self.mark("O"), reply=self.place(), index=self.pick(0, 1, *ABSURD))

    def junk(self) -> None:
        """A payload that is not what it should be."""
        kind = self.pick("said", "replied", "replied", "partial", "finished", "compacted")
        dialect = self.pick("", "nowhere", "anthropic:nobody", *self.dialects)
        payload = self.pick(*JUNK)
        if kind in {"replied", "partial"}:
            count = self.pick(0, 0, 1, 2)
            calls = tuple(Asked(self.call_id(), self.pick("", *NAMES), "") for _ in range(count))
            self.put_reply(kind, self.pick(dialect or "gemini", *self.dialects), payload, calls, {})
        elif kind == "finished" and (call := self.known()):
            fields = {"reply": call.reply, "index": call.index, "outcome": self.pick(*OUTCOMES)}
            self.put(kind, payload, dialect=dialect, **fields)
        elif kind == "compacted":
            self.put(kind, payload, through=self.place())
        else:
            self.put("said", payload, dialect=dialect)

    def any_step(self) -> None:
        self.pick(*(_STEPS + _WILD if self.wild else _STEPS))(self)

    def write(self, steps: int) -> Session:
        for _ in range(steps):
            if not self.turn and self.chance(2):
                self.say()
            self.any_step()
        if not self.session.records:
            self.say()
        return self.session


_STEPS: tuple[Callable[[Writer], None], ...] = (
    *[Writer.say] * 3,
    *[Writer.reply] * 6,
    *[Writer.stream] * 2,
    *[Writer.start] * 2,
    *[Writer.finish] * 4,
    *[Writer.run] * 3,
    *[Writer.conclude] * 2,
    *[Writer.approval] * 2,
    *[Writer.crash, Writer.end, Writer.compact, Writer.compact, Writer.rewind, Writer.rewind],
    Writer.note,
)
_WILD: tuple[Callable[[Writer], None], ...] = (
    *[Writer.misshapen, Writer.repeated_key, Writer.astray],
    *[Writer.junk] * 3,
)


@st.composite
def sessions(
    draw: st.DrawFn,
    dialects: tuple[str, ...] = DIALECTS,
    *,
    wild: bool = False,
    most: int = 14,
) -> Session:
    """A session of some steps; each is one fact or a few."""
    spoken = draw(st.sampled_from([dialects, *((dialect,) for dialect in dialects)]))
    return Writer(draw, spoken, wild=wild).write(draw(st.integers(1, most)))
