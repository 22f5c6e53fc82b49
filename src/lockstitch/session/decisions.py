"""What a session decides: values in, facts to be added out. No I/O, no clock, no randomness.

And calls and turns as a user of the library sees them: values, taken at one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct

from lockstitch.dialects.exchange import call_parts, messages_in
from lockstitch.dialects.profiles import new_dialect, profile_named
from lockstitch.errors import Moved, UsageError
from lockstitch.journal import events
from lockstitch.journal import state as journal
from lockstitch.journal.events import (
    NOTHING,
    Approved,
    Compacted,
    Denied,
    Event,
    Finished,
    Forked,
    Interrupted,
    Noted,
    Outcome,
    Partial,
    Replied,
    Resumed,
    Rewound,
    Said,
    Started,
    as_stored,
    text_payload,
    value_of,
)
from lockstitch.journal.salvage import DAMAGED, MISSING
from lockstitch.journal.state import (
    CHECKPOINT,
    CallState,
    Checkpoint,
    JournalState,
    JournalView,
    Late,
    ModelReply,
    Spoken,
)

# What calls without arguments of their own carry instead: a tool gets these by name.
_CARRIED = ("input", "action", "actions", "operation")


class CallRequest(Struct, frozen=True):
    """What a model asked for in a call: the tool's name, and its arguments if they can be read."""

    name: str
    arguments: dict[str, Any] | None = None
    raw: Any = None


def call_requests_in(event: Event, payload: bytes) -> list[CallRequest]:
    """Return what a reply asked for, a call each, in order; nothing for anything but a reply."""
    if not isinstance(event, Replied | Partial):
        return []
    view = new_dialect(profile_named(event.dialect).dialect)
    value = value_of(Raw(payload), inner=True)
    messages = view.read(messages_in(event.dialect, value))
    found: list[CallRequest] = []
    for part in call_parts(messages):
        name, raw = part.name or part.flavor, view.arguments(part)
        if raw is UNSET:
            carried = part.raw if isinstance(part.raw, dict) else {}
            named = {key: carried[key] for key in _CARRIED if key in carried}
            found.append(CallRequest(name, named))
            continue
        arguments = raw
        if isinstance(raw, str):
            try:
                # An empty text is how several providers spell "none".
                arguments = msgspec.json.decode(raw) if raw.strip() else {}
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                arguments = None
        found.append(CallRequest(name, arguments if isinstance(arguments, dict) else None, raw))
    return found


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call at one moment; ``reply`` and ``index`` identify it, since ids may repeat.

    ``status`` is open, waiting (for approval), approved, started or closed; ``outcome`` is "" as
    long as there is none, otherwise ok, error, denied, cancelled, timed-out, unknown or
    not-started. ``is_real`` is true for an outcome from the tool or a person, and false for a
    synthetic one. ``effect`` is the idempotency key, the same for every attempt. ``is_outside`` is
    true if it is waiting for a result from outside.
    """

    reply: int
    index: int
    id: str
    name: str
    status: journal.Status
    attempts: int = 0
    effect: str = ""
    outcome: str = ""
    is_real: bool = False
    is_outside: bool = False
    _asked: Callable[[], CallRequest] | None = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> tuple[int, int]:
        """What distinguishes it from every other call of its session."""
        return self.reply, self.index

    @property
    def arguments(self) -> dict[str, Any] | None:
        """The arguments that the model gave; None if they are not a JSON object."""
        return self._asked().arguments if self._asked else None


def call_of(call: journal.CallState, asked: Callable[[], CallRequest] | None = None) -> Call:
    """Take a call as it stands."""
    ended = call.outcome
    outcome = ""
    if ended is not None:
        fact = ended.fact
        denied = "denied" if isinstance(fact, Denied) else "unknown"
        outcome = fact.outcome if isinstance(fact, Finished) else denied
    return Call(
        call.reply,
        call.index,
        call.id,
        call.name,
        call.status,
        call.attempts,
        call.effect,
        outcome,
        ended is not None and ended.is_real,
        call.is_outside,
        asked,
    )


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn at one moment: from a user's message to the point where the model yields.

    ``began`` is the record it began with. ``calls`` are those of its last reply. ``state`` is
    "open" while the model can be asked or tools can run, "waiting" while everything left is waiting
    for approval or a result from outside, then "ended" or "interrupted"; "none" before the first
    message.
    """

    began: int
    state: Literal["none", "open", "waiting", "ended", "interrupted"]
    calls: tuple[Call, ...] = ()
    reason: str = ""

    @property
    def is_open(self) -> bool:
        """Whether there is something to do now: a request to send, or tools to run."""
        return self.state == "open"

    @property
    def waiting(self) -> tuple[Call, ...]:
        """The calls that are waiting for approval."""
        return tuple(c for c in self.calls if c.status == "waiting" and not c.is_outside)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the last writer left when it died: nothing, and false, after a clean end.

    ``finished`` are the calls of the last batch that have results, ``unknown`` those that were
    running and may or may not have taken effect, ``never_started`` those that ``run_tools`` may
    still run.
    """

    finished: tuple[Call, ...] = ()
    unknown: tuple[Call, ...] = ()
    never_started: tuple[Call, ...] = ()
    interrupted: bool = False

    def __bool__(self) -> bool:
        """Whether there was anything to recover."""
        return self.interrupted or bool(self.unknown)


# The name of the note with which the journal of a sub-agent's session begins.
CHILD = "child"
PAUSED = "paused"
NOTES = "compaction"
RESERVED = (CHECKPOINT, PAUSED, NOTES, DAMAGED, MISSING, CHILD)
# What breaks off the work, but not the turn: nobody asked for it to end.
LEAVES_TURN_OPEN = frozenset({"error", "exit", "closed", "cut"})
Key = tuple[int, int]


def is_paused(state: JournalState) -> bool:
    """Whether the last writer left on purpose, whatever was open then."""
    last = state.facts.get(state.seq)
    event = last.event if last else None
    return isinstance(event, Rewound | Forked) or (
        isinstance(event, Noted) and event.name == PAUSED
    )


def recovery(state: JournalState) -> list[Event]:
    """Conclude what a dead writer left: calls that ran have an unknown outcome.

    A call that never started stays open, unless its reply did not come in full, and one that
    waits goes on waiting. The turn stays open: a crash is nobody's wish to end it.
    """
    return conclude_orphans(state, ()) + [
        concluded(c, "not-started") for c in unrunnable_calls(state.view)
    ]


def is_left_open(state: JournalState) -> bool:
    """Whether the last writer is gone from the middle of a turn, without having left in order."""
    return bool(state.view.turn) and not is_paused(state) and not _only_waits(state.view)


def conclude_orphans(state: JournalState, live: Iterable[Key]) -> list[Event]:
    """Conclude for calls that were started, and that nobody runs."""
    alive = set(live)
    return [
        concluded(call, "unknown")
        for key, call in state.view.calls.items()
        if call.is_running and key not in alive
    ]


def unrunnable_calls(view: JournalView) -> list[CallState]:
    """Return the calls of a reply that broke off: what else it would have asked nobody knows."""
    last = view.last_reply
    if last is None or isinstance(last.event, Replied):
        return []
    return [call for call in last.calls if call.status == "open" and call.outcome is None]


def end_stream(state: JournalState, part: Partial | None, stream: str, reason: str) -> list[Event]:
    """End a stream that broke off: what had come of it, of which no call is going to start.

    The turn is over if somebody wanted that; else the model can be asked again.
    """
    facts: list[Event] = []
    if part is not None:
        facts = [
            part,
            *(
                Finished(reply=state.seq + 1, index=index, outcome="not-started", synthetic=True)
                for index in range(len(part.calls))
            ),
        ]
    elif (last := state.view.last_reply) is not None and last.event.stream == stream:
        facts = [concluded(call, "not-started") for call in unrunnable_calls(state.view)]
    return facts if reason in LEAVES_TURN_OPEN else [*facts, Interrupted(reason=reason)]


def _only_waits(view: JournalView) -> bool:
    """Whether there is nothing to do now but to decide on calls.

    That is, somebody's approval is what the turn waited for, and nothing was said since.
    """
    last = next((item for item in reversed(view.items) if not isinstance(item, Late)), None)
    calls = last.calls if isinstance(last, ModelReply) else []
    waits = any(call.status in ("waiting", "approved") for call in calls)
    others = any(call.status in ("open", "approved", "started") for call in view.batch)
    return waits and not others


def concluded(call: CallState | Started, outcome: Outcome) -> Finished:
    """Make an outcome that no tool gave: a real one that comes later takes its place."""
    attempt = call.attempt if isinstance(call, Started) else max(call.attempts, 1)
    return Finished(
        reply=call.reply, index=call.index, attempt=attempt, outcome=outcome, synthetic=True
    )


def break_off(state: JournalState, reason: str, only: Iterable[Key] | None = None) -> list[Event]:
    """Leave what was being done, for a reason: end the turn, or leave it to be taken up again.

    ``only`` names the calls that were being run.
    """
    if reason not in LEAVES_TURN_OPEN:
        return interrupt(state, reason, only)
    others = state.view.calls.keys() - set(only) if only is not None else ()
    return conclude_orphans(state, others)


def interrupt(state: JournalState, reason: str, only: Iterable[Key] | None = None) -> list[Event]:
    """Break the turn off: every call that does not wait for somebody gets an outcome.

    What runs may have taken effect (cancelled), the rest never started. ``only`` names calls to
    close where no turn is open.
    """
    keys = set(only or ()) | {call.key for call in map(call_of, state.view.batch)}
    calls = [state.view.calls[key] for key in sorted(keys) if key in state.view.calls]
    facts: list[Event] = [
        concluded(call, "cancelled" if call.is_running else "not-started")
        for call in calls
        if call.is_running or (call.is_open and call.status != "waiting")
    ]
    if state.view.turn:
        facts.append(Interrupted(reason=reason))
    return facts


def resume(state: JournalState) -> list[Event]:
    """Take up the turn that was interrupted, if the last one was."""
    return [Resumed()] if state.view.interrupted else []


def pause(state: JournalState) -> list[Event]:
    """Return the note that a turn is left open on purpose."""
    return [Noted(name=PAUSED)] if state.view.turn and not is_paused(state) else []


class Candidate(Struct, frozen=True):
    """A call that could run now; ``is_approved`` if somebody said so.

    ``starts`` counts also what was started and then rewound, under the same ``effect``.
    """

    key: Key
    id: str
    attempts: int
    starts: int
    effect: str
    is_approved: bool
    is_repeat: bool


def find_candidates(
    state: JournalState, may_repeat: Callable[[CallState], bool]
) -> tuple[list[Candidate], list[Key]]:
    """Return the calls that could run now, in order, and those that may have run and cannot.

    Candidates are those that somebody approved, wherever they stand; of the last reply, if it came
    in full, those that never started, and those that may have run if their tool can be repeated.
    """
    last = state.view.last_reply
    is_whole = last is not None and isinstance(last.event, Replied)
    found: list[Candidate] = []
    lost: list[Key] = []
    for key, call in state.view.calls.items():
        if call.status != "approved":
            if last is None or call.reply != last.seq:
                continue
            is_fresh = call.status == "open" and call.outcome is None
            if not (is_whole and (is_fresh or (is_lost(call) and may_repeat(call)))):
                lost += [key] if is_lost(call) else []
                continue
        starts, effect = state.starts.get(key, (call.attempts, call.effect))
        is_approved, is_repeat = call.status == "approved", call.outcome is not None
        found.append(Candidate(key, call.id, call.attempts, starts, effect, is_approved, is_repeat))
    return found, lost


def is_lost(call: CallState) -> bool:
    """Whether a call was left by whoever ran it: its outcome is unknown."""
    fact = call.outcome.fact if call.outcome and not call.outcome.is_real else None
    unknown = isinstance(fact, Finished) and fact.outcome == "unknown"
    return unknown and call.status == "closed"


def is_unchanged(state: JournalState, candidate: Candidate) -> bool:
    """Whether a call is as it was when it was looked at."""
    call = state.view.calls.get(candidate.key)
    if call is None or call.attempts != candidate.attempts or call.status == "started":
        return False
    if candidate.is_approved:
        return call.status == "approved"
    if candidate.is_repeat:
        return is_lost(call)
    return call.status == "open" and call.outcome is None


def decide_approval(call: CallState, reason: str | None = None, *, allow: bool) -> list[Event]:
    """Approve or deny a call that waits; the same again is nothing new."""
    if allow and call.status == "approved":
        return []
    if not allow and call.outcome is not None and isinstance(call.outcome.fact, Denied):
        return []
    if call.status != "waiting":
        raise UsageError(
            f"the call {_label(call)} is not waiting for approval: it is {call.status}"
        )
    if allow and call.is_outside:
        raise UsageError(
            f"the call {_label(call)} is already running: deliver its result when it arrives"
        )
    if allow:
        return [Approved(reply=call.reply, index=call.index)]
    payload = text_payload(reason) if reason else NOTHING
    return [Denied(reply=call.reply, index=call.index, payload=payload)]


def find_waiting_call(state: JournalState, which: object) -> CallState:
    """Find a call by itself, or by an id that only one of those that wait has."""
    if isinstance(which, str):
        found = [c for c in state.view.calls.values() if c.id == which and c.status == "waiting"]
        if len(found) != 1:
            many = "several calls" if found else "no call"
            raise UsageError(
                f"{many} with the id {which!r} waits for approval: pass the call itself"
            )
        return found[0]
    call = state.view.calls.get(which.key) if isinstance(which, Call) else None
    if call is None:
        raise UsageError("there is no such call in the current line of this session")
    return call


def _label(call: CallState) -> str:
    return f"{call.id or call.name or 'without a name'} of record {call.reply}"


def turn_of(view: JournalView, take: Callable[[CallState], Call] = call_of) -> Turn:
    """Return where the turn stands."""
    calls = tuple(map(take, view.batch)) if belongs_to_turn(view) else ()
    if view.turn:
        return Turn(view.turn, "waiting" if _only_waits(view) else "open", calls)
    if view.interrupted:
        return Turn(view.interrupted, "interrupted", calls, view.reason)
    spoken = (item.seq for item in reversed(view.items) if isinstance(item, Spoken))
    return Turn(next(spoken, 0), "ended" if view.items else "none", calls)


def belongs_to_turn(view: JournalView) -> bool:
    """Whether the last reply belongs to the last turn."""
    last = view.last_reply
    return last is not None and last.seq > (view.turn or view.interrupted)


def find_place(state: JournalState, to: object) -> int:
    """Find the record to go back to: a number, a checkpoint, or the last one with a label."""
    if isinstance(to, Checkpoint):
        to = to.seq
    if isinstance(to, str):
        named = [c.seq for c in state.view.checkpoints if c.kind == "named" and c.label == to]
        if not named:
            raise UsageError("there is no checkpoint with that label in the current line")
        return named[-1]
    if not isinstance(to, int) or isinstance(to, bool) or not (to == 0 or to in state.facts):
        raise UsageError("to go back, pass a checkpoint, its label, or a record's number")
    return to


def undo_rewind(state: JournalState) -> list[Event]:
    """Take the last rewind on the visible line back; what is taken back already is passed over."""
    for fact in reversed(state.line(state.seq)):
        event = fact.event
        if not isinstance(event, Rewound):
            continue
        behind = state.facts.get(event.to + 1)
        # One that leads to just before another rewind is an ``undo_rewind`` itself.
        if event.reason == "undo" and behind is not None and isinstance(behind.event, Rewound):
            continue
        return [Rewound(to=fact.seq - 1, reason="undo")]
    raise UsageError("nothing was rewound in the current line of this session")


def revert_interrupted(state: JournalState) -> list[Event]:
    """Go back to before the message that began the interrupted turn."""
    began = state.view.interrupted
    if not began:
        raise UsageError("the last turn was not interrupted, or something was said since")
    return [Rewound(to=state.facts[began].parent, reason="interrupted")]


def commit_compaction(state: JournalState, event: Compacted, base: int) -> list[Event]:
    """Write a compaction down that was made from what there was at ``base``, if that still holds.

    What was added since stays behind it.
    """
    if not is_visible(state, base):
        raise Moved("the session was rewound while it was compacted; nothing was written")
    since = (fact.event for fact in state.line(state.seq) if fact.seq > base)
    if any(isinstance(other, Compacted) for other in since):
        raise Moved("the session was compacted by another writer meanwhile; nothing was written")
    return [event]


def is_visible(state: JournalState, seq: int) -> bool:
    """Whether a record is on the visible line."""
    at = state.seq
    while at > seq:
        at = state.facts[at].parent
    return at == seq


def free_key(state: JournalState, key: str, event: Event | None = None) -> str:
    """Return the key to add something under; "" if it is there already.

    What was said under a key and then rewound is not there: it can be said again. Raises
    ``UsageError`` if something else than ``event`` is there.
    """
    tried, number = key, 1
    while tried in state.keys:
        if is_visible(state, state.keys[tried]):
            if event is not None and not is_same(state.facts[state.keys[tried]].event, event):
                raise UsageError(
                    f"the key {key.partition('/')[2]!r} was used before, for something else: a "
                    "key names one message for ever, so give this one another key"
                )
            return ""
        number += 1
        tried = f"{key[:120]}~{number}"
    return tried


def is_same(kept: Event, event: Event) -> bool:
    """Whether an event that is kept says the same as another, whenever and however they came."""
    new = as_stored(event)
    return type(kept) is type(new) and (kept.payload, kept.blob) == (new.payload, new.blob)


def words_of_turn(state: JournalState) -> list[Said]:
    """Return what the user said in the turn that is open, in order."""
    began = state.view.turn
    spoken = (item for item in state.view.items if isinstance(item, Spoken))
    return [item.event for item in spoken if began and item.seq >= began]


def describe(
    state: JournalState,
    title: str | None,
    tags: Iterable[str] | None,
    metadata: Mapping[str, Any] | None,
) -> list[Event]:
    """Describe the session; what it says of itself already is nothing new."""
    event = events.describe(events.about_from(state.described), title, tags, metadata)
    return [] if event == (state.described or events.describe(events.NO_ABOUT)) else [event]
