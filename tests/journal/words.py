"""What a journal adds up to, from the words of its contract and with no regard for speed.

Every prefix is looked at as a whole: the line first, then who is seen on it, then each call by
all that was told of it. It reads the stored JSON itself and shares no code with the fold.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from lockstitch.journal.records import JournalRecord

Fields = dict[str, Any]
Names = list[tuple[int, int]]

OUTCOMES = {"ok", "error", "cancelled", "timed-out", "unknown", "not-started"}
COMMON: Fields = {"blob": str}
SPOKEN: Fields = {"dialect": str, "provider": str, "model": str, "stream": str, "after": int}
CALL: Fields = {"reply": int, "index": int}
KINDS: dict[str, tuple[Fields, tuple[str, ...]]] = {
    "said": ({"dialect": str}, ()),
    "replied": (SPOKEN, ("dialect",)),
    "partial": (SPOKEN, ("dialect",)),
    "started": ({**CALL, "attempt": int, "effect": str}, ("reply",)),
    "finished": (
        {**CALL, "attempt": int, "outcome": str, "synthetic": bool, "dialect": str},
        ("reply",),
    ),
    "waiting": ({**CALL, "outside": bool}, ("reply",)),
    "approved": (CALL, ("reply",)),
    "denied": (CALL, ("reply",)),
    "interrupted": ({"reason": str}, ()),
    "resumed": ({}, ()),
    "ended": ({}, ()),
    "compacted": ({"through": int, "shortened": int, "limit": int}, ()),
    "rewound": ({"to": int, "reason": str}, ("to",)),
    "forked": ({"source": str, "at": int}, ("source", "at")),
    "noted": ({"name": str, "label": str}, ("name",)),
}
ABOUT_CALLS = ("started", "finished", "waiting", "approved", "denied")


@dataclass(slots=True)
class Told:
    """A fact: its position, when it was written, its kind and fields."""

    seq: int
    at: int
    kind: str
    fields: Fields

    @property
    def call(self) -> tuple[int, int]:
        return self.fields["reply"], self.fields.get("index", 0)

    @property
    def real(self) -> bool:
        return self.kind == "finished" and not self.fields.get("synthetic", False)


@dataclass(slots=True)
class Seen:
    """The conversation along the visible line."""

    line: list[int] = field(default_factory=list)
    items: list[tuple[str, int]] = field(default_factory=list)
    calls: dict[tuple[int, int], Fields] = field(default_factory=dict)
    notes: list[tuple[int, tuple[int, int]]] = field(default_factory=list)
    checkpoints: list[tuple[int, int, str, str]] = field(default_factory=list)
    summary: tuple[int, int, set[int]] | None = None
    turn: int = 0
    interrupted: int = 0
    told: dict[int, Told] = field(default_factory=dict)


def told_in(record: JournalRecord) -> Told:
    """Read a record; what is not a known fact in its shape is the fact that changes nothing."""
    nothing = Told(record.seq, record.at, "", {})
    try:
        value = json.loads(record.body)
    except ValueError:
        return nothing
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return nothing
    shape = KINDS.get(value["kind"])
    if shape is None or not _fits(value, *shape):
        return nothing
    return Told(record.seq, record.at, value["kind"], value)


def _fits(value: Fields, types: Fields, needed: tuple[str, ...]) -> bool:
    if any(name not in value for name in needed):
        return False
    for name, kind in {**COMMON, **types}.items():
        if name in value and type(value[name]) is not kind:
            return False
    if value["kind"] in {"replied", "partial"} and not _are_calls(value.get("calls", [])):
        return False
    return value["kind"] != "finished" or value.get("outcome", "ok") in OUTCOMES


def _are_calls(calls: Any) -> bool:
    return isinstance(calls, list) and all(
        isinstance(call, dict) and all(type(call.get(key, "")) is str for key in ("id", "name"))
        for call in calls
    )


def seen_in(records: list[JournalRecord]) -> Seen:
    """What all of these records add up to."""
    facts = _facts(records)
    seen = Seen(told=facts)
    lines: dict[int, list[int]] = {0: []}
    before = 0
    for seq, fact in facts.items():
        to = fact.fields.get("to")
        back = fact.kind == "rewound" and to in lines
        lines[seq] = [*lines[to if back else before], seq]
        before = seq
    seen.line = lines[before]
    strays = [seq for seq, fact in facts.items() if _is_stray(fact, lines[seq])]
    line = [facts[seq] for seq in sorted({*seen.line, *strays})]
    gone = _gone(line)
    _settle(seen, line, gone)
    _place(seen, line, gone)
    _mark(seen, line)
    _shorten(seen, line, gone)
    _turns(seen, line, gone)
    return seen


def _gone(line: list[Told]) -> dict[int, int]:
    """Parts of replies that another reply took the place of, and where it did.

    That is so where the turn was open still, and nothing had come behind the part.
    """
    gone: dict[int, int] = {}
    for at, fact in enumerate(line):
        if not _replies(line[: at + 1]):
            continue
        upto = Seen()
        _settle(upto, line[:at], gone)
        _place(upto, line[:at], gone)
        _turns(upto, line[:at], gone)
        kind, last = upto.items[-1] if upto.items else ("", 0)
        part = next((before for before in line[:at] if before.seq == last), None)
        is_part = kind == "reply" and part is not None and part.kind == "partial"
        if part and is_part and upto.turn and _stream(part) != _stream(fact):
            gone[last] = fact.seq
    return gone


def _stream(fact: Told) -> str:
    return str(fact.fields.get("stream", ""))


def _replies(line: list[Told]) -> bool:
    """Whether the last fact is a reply; a part that comes behind its whole is none."""
    *before, fact = line
    if fact.kind != "partial":
        return fact.kind == "replied"
    stream = _stream(fact)
    return not stream or not any(b.kind == "replied" and _stream(b) == stream for b in before)


def _is_stray(fact: Told, line: list[int]) -> bool:
    """Whether a tool told its result when its reply was not on the line: it counts everywhere."""
    return fact.kind == "finished" and fact.real and fact.fields["reply"] not in line


def _facts(records: list[JournalRecord]) -> dict[int, Told]:
    """Positions and keys that were there before bring nothing."""
    facts: dict[int, Told] = {}
    keys: set[str] = set()
    for record in records:
        if facts and record.seq <= max(facts):
            continue
        fact = told_in(record)
        facts[record.seq] = Told(record.seq, record.at, "", {}) if record.key in keys else fact
        keys.add(record.key)
    return facts


def _settle(seen: Seen, line: list[Told], gone: dict[int, int]) -> None:
    """What became of every call; what is told of a stream's part goes for the whole of it."""
    parts: dict[str, tuple[Told, list[Names]]] = {}
    whole: set[str] = set()
    for reply in line:
        for stream, (part, _) in list(parts.items()):
            if gone.get(part.seq) == reply.seq:
                _forget(seen, parts.pop(stream)[0])
        stream = reply.fields.get("stream", "")
        is_late = reply.kind == "partial" and stream in whole
        if reply.kind not in {"replied", "partial"} or is_late:
            continue
        before = parts.pop(stream, None)
        names = [_names(reply, index, before) for index in range(len(_calls(reply)))]
        if before is not None:
            _forget(seen, before[0])
        if stream and reply.kind == "partial":
            parts[stream] = (reply, names)
        elif stream:
            whole.add(stream)
        _tell(seen, line, reply, names)
        if not stream and reply.seq in gone and any(f.seq == gone[reply.seq] for f in line):
            _forget(seen, reply)
    seen.notes = sorted(note for note in seen.notes if note[1] in seen.calls)


def _forget(seen: Seen, part: Told) -> None:
    for index in range(len(_calls(part))):
        del seen.calls[part.seq, index]


def _tell(seen: Seen, line: list[Told], reply: Told, names: list[Names]) -> None:
    until = _overtaken(line, reply)
    facts = [fact for fact in line if fact.kind in ABOUT_CALLS and fact.seq < until]
    replies = [f.seq for at, f in enumerate(line) if _replies(line[: at + 1])]
    for index, asked in enumerate(_calls(reply)):
        about = [f for f in facts if f.call in names[index] and f.seq > f.call[0]]
        call, notes = _became(about, [seq for seq in replies if seq > reply.seq])
        ids = {"id": asked.get("id", ""), "name": asked.get("name", "")}
        seen.calls[reply.seq, index] = {**call, **ids}
        seen.notes += [(seq, (reply.seq, index)) for seq in notes if seq > reply.seq]


def _calls(reply: Told) -> list[Fields]:
    return reply.fields.get("calls", [])


def _names(reply: Told, index: int, before: tuple[Told, list[Names]] | None) -> Names:
    """Where a call stands, and where it stood in the parts of its stream."""
    own = [(reply.seq, index)]
    if before is None or index >= len(_calls(before[0])):
        return own
    one, two = _calls(before[0])[index], _calls(reply)[index]
    same = all(one.get(key, "") == two.get(key, "") for key in ("id", "name"))
    return [*before[1][index], *own] if same else own


def _overtaken(line: list[Told], reply: Told) -> float:
    """Where more of a stream came than this part of it."""
    stream = reply.fields.get("stream", "")
    later = (
        fact.seq
        for fact in line
        if fact.seq > reply.seq
        and fact.kind in {"replied", "partial"}
        and fact.fields.get("stream", "") == stream
    )
    is_part = reply.kind == "partial" and stream
    return next(later, float("inf")) if is_part else float("inf")


def _became(about: list[Told], replies: list[int]) -> tuple[Fields, list[int]]:
    """What became of a call, and the real outcomes that came when it had a firm one.

    What somebody decided or delivered when models had replied since is news: told by a note.
    """
    status, attempts, effect, notes = "open", 0, "", []
    outcome: Told | None = None
    outside = news = False
    for fact in about:
        firm = outcome is not None and (outcome.real or outcome.kind == "denied")
        is_answered = any(seq < fact.seq for seq in replies)
        if fact.kind == "waiting":
            is_outside = bool(fact.fields.get("outside", False))
            if status == ("started" if is_outside else "open"):
                status, outside = "waiting", is_outside
        elif fact.kind == "approved" and status == "waiting" and not outside:
            status, news = "approved", is_answered
        elif fact.kind == "denied" and outcome is None and status != "started":
            status, outcome = "closed", fact
        elif fact.kind == "started" and not firm:
            status = "started"
            attempts = max(attempts + 1, fact.fields.get("attempt", 1))
            effect = effect or fact.fields.get("effect", "")
        elif fact.kind == "finished":
            status = "closed"
            if outcome is None or (fact.real and not firm):
                outcome = fact
                news = is_answered if fact.real and outside else news
                notes += [fact.seq] if fact.real and news else []
            elif fact.real and _said_by(outcome) != _said_by(fact):
                notes.append(fact.seq)
    settled = (outcome.seq, outcome.real or outcome.kind == "denied") if outcome else None
    became = {"status": status, "attempts": attempts, "effect": effect, "outcome": settled}
    return {**became, "news": news, "outside": outside}, notes


def _said_by(fact: Told) -> str:
    """A fact's words, without what only says the default."""
    plain = {"attempt": 1, "index": 0, "outcome": "ok", "synthetic": False, "dialect": ""}
    kept = {key: value for key, value in fact.fields.items() if plain.get(key, ()) != value}
    return json.dumps(kept)


def _place(seen: Seen, line: list[Told], gone: dict[int, int]) -> None:
    """In order of writing; but a reply stands before what its model cannot have known.

    What came of a stream stands where it came until more of it comes.
    """
    parts: dict[str, int] = {}
    whole: set[str] = set()
    notes = {seq for seq, _ in seen.notes}
    for fact in line:
        stream = fact.fields.get("stream", "")
        if fact.kind == "said":
            seen.items.append(("said", fact.seq))
        elif fact.kind == "replied" or (fact.kind == "partial" and stream not in whole):
            for part in [part for part, by in gone.items() if by == fact.seq]:
                seen.items.remove(("reply", part))
                parts = {name: seq for name, seq in parts.items() if seq != part}
            if stream in parts:
                seen.items.remove(("reply", parts.pop(stream)))
            seen.items.insert(_stand(seen, fact), ("reply", fact.seq))
            if stream and fact.kind == "partial":
                parts[stream] = fact.seq
            elif stream:
                whole.add(stream)
        elif fact.seq in notes:
            seen.items.append(("note", fact.seq))


def _stand(seen: Seen, reply: Told) -> int:
    after = reply.fields.get("after", 0)
    known = after if 0 < after < reply.seq else reply.seq - 1
    at = len(seen.items)
    while at and seen.items[at - 1][0] != "reply" and seen.items[at - 1][1] > known:
        at -= 1
    return at


def _mark(seen: Seen, line: list[Told]) -> None:
    for fact in line:
        kind = {"replied": "batch", "ended": "turn", "noted": "named"}.get(fact.kind)
        if fact.kind == "replied" and not fact.fields.get("calls"):
            continue
        if fact.kind == "noted" and fact.fields["name"] != "checkpoint":
            continue
        if kind:
            label = fact.fields.get("label", "") if kind == "named" else ""
            seen.checkpoints.append((fact.seq, fact.at, kind, label))


def _shorten(seen: Seen, line: list[Told], gone: dict[int, int]) -> None:
    """A summary stands for all up to a place, but for what must stay: see the end of this.

    That is the last words of the user, and replies with a call unsettled by then.
    """
    for at, fact in enumerate(line):
        if fact.kind != "compacted":
            continue
        through = fact.fields.get("through", 0)
        if not through and not fact.fields.get("shortened", 0):
            seen.summary = None
            continue
        if not 0 <= through < fact.seq:
            continue
        upto = Seen()
        _settle(upto, line[:at], gone)
        _place(upto, line[:at], gone)
        last = max((n for n, (kind, _) in enumerate(upto.items) if kind == "reply"), default=0)
        kept = {
            reply
            for (reply, _), call in upto.calls.items()
            if reply <= through
            and _is_unsettled(call, through, is_last=reply == upto.items[last][1])
        }
        spoken = max((seq for kind, seq in upto.items if kind == "said"), default=0)
        kept |= {spoken} if 0 < spoken <= through else set()
        seen.summary = (fact.seq, through, kept)


def _is_unsettled(call: Fields, through: int, *, is_last: bool) -> bool:
    """Nothing more comes of a call that never started and that the conversation left behind."""
    if call["status"] == "open":
        return is_last
    outcome = call["outcome"]
    return outcome is None or call["status"] == "started" or outcome[0] > through


def _turns(seen: Seen, line: list[Told], gone: dict[int, int]) -> None:
    """A turn begins with what is said, replied or approved when none is open, until its end.

    A result that somebody else delivers begins one, too, unless the last one was interrupted. A
    crash ends none. What was said while the last reply was on its way begins the next turn when
    this one ends.
    """
    for at, fact in enumerate(line):
        is_heard = fact.kind in {"approved", "finished"} and _is_heard(line[: at + 1], gone)
        if fact.kind == "finished" and is_heard and not seen.interrupted:
            seen.turn = seen.turn or fact.seq
        elif fact.kind == "said" or _replies(line[: at + 1]) or (is_heard and not fact.real):
            seen.turn, seen.interrupted = seen.turn or fact.seq, 0
        elif fact.kind == "interrupted" and fact.fields.get("reason", "") != "crash":
            seen.turn, seen.interrupted = 0, seen.turn or seen.interrupted
        elif fact.kind == "resumed" and seen.interrupted:
            seen.turn, seen.interrupted = seen.interrupted, 0
        elif fact.kind == "ended":
            seen.turn, seen.interrupted = _left(line[: at + 1], gone), 0


def _is_heard(line: list[Told], gone: dict[int, int]) -> bool:
    """Whether the last fact approves a call that waited for it, or is its result from outside."""
    before, after = Seen(), Seen()
    _settle(before, line[:-1], gone)
    _settle(after, line, gone)
    fact = line[-1]
    for key, call in after.calls.items():
        if before.calls[key] == call:
            continue
        is_first = call["outcome"] is not None and call["outcome"][0] == fact.seq
        if call["status"] == "approved" or (fact.real and is_first and call["outside"]):
            return True
    return False


def _left(line: list[Told], gone: dict[int, int]) -> int:
    """The first that was said while the last reply was on its way, or 0."""
    upto = Seen()
    _settle(upto, line, gone)
    _place(upto, line, gone)
    replies = [at for at, (kind, _) in enumerate(upto.items) if kind == "reply"]
    if not replies:
        return 0
    last = upto.items[replies[-1]][1]
    behind = upto.items[replies[-1] + 1 :]
    return min((seq for kind, seq in behind if kind == "said" and seq < last), default=0)
