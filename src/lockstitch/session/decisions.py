"""The decisions of a session: they take its state and return the events to add.

Nothing here does I/O, reads a clock or uses randomness. Also here are calls and turns as users of
the library see them: values that show their state at one moment.
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

# The names under which arguments that are not an object, such as a text, are passed to a tool.
_CARRIED = ("input", "action", "actions", "operation")


class CallRequest(Struct, frozen=True):
    """What a model asks for in a call: the name of a tool, and arguments if they can be read."""

    name: str
    arguments: dict[str, Any] | None = None
    raw: Any = None


def call_requests_in(event: Event, payload: bytes) -> list[CallRequest]:
    """Return the requests for calls in a reply, in order; nothing for other events."""
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
                # Several providers write "no arguments" as an empty text.
                arguments = msgspec.json.decode(raw) if raw.strip() else {}
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                arguments = None
        found.append(CallRequest(name, arguments if isinstance(arguments, dict) else None, raw))
    return found


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call at one moment; ``reply`` and ``index`` identify it, since ids may repeat.

    ``status`` is open, waiting (for approval), approved, started or closed. ``outcome`` is "" while
    there is none, else ok, error, denied, cancelled, timed-out, unknown or not-started. ``is_real``
    is true for an outcome given by the tool or by a person, and false for one that was concluded.
    ``effect`` is the idempotency key that the tool gets in every attempt. ``is_outside`` is true if
    the call waits for a result that somebody else delivers.
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
        """The place of the call, which no other call of its session has."""
        return self.reply, self.index

    @property
    def arguments(self) -> dict[str, Any] | None:
        """The arguments that the model gave; None if they are not a JSON object."""
        return self._asked().arguments if self._asked else None


def call_of(call: journal.CallState, asked: Callable[[], CallRequest] | None = None) -> Call:
    """Return a call in its current state."""
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
    """A turn at one moment: from a user's message to the point where the model stops asking.

    ``began`` is the record that the turn began with. ``calls`` are the calls of its last reply.
    ``state`` is "open" while a request can be sent or tools can run, "waiting" while everything
    left waits for somebody's approval or result, then "ended" or "interrupted"; it is "none" before
    the first message.
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
    """What the last writer left when it crashed; false after a clean end.

    ``finished`` are the calls of the last reply that have results. ``unknown`` are calls that ran
    and may or may not have taken effect. ``never_started`` are calls that ``run_tools`` will still
    run.
    """

    finished: tuple[Call, ...] = ()
    unknown: tuple[Call, ...] = ()
    never_started: tuple[Call, ...] = ()
    interrupted: bool = False

    def __bool__(self) -> bool:
        """Whether there was anything to recover."""
        return self.interrupted or bool(self.unknown)


# The name of the first note in the journal of a sub-agent's session.
CHILD = "child"
PAUSED = "paused"
NOTES = "compaction"
RESERVED = (CHECKPOINT, PAUSED, NOTES, DAMAGED, MISSING, CHILD)
# Reasons that stop the work but not the turn, since nobody asked for the turn to end.
LEAVES_TURN_OPEN = frozenset({"error", "exit", "closed", "cut"})
Key = tuple[int, int]


def is_paused(state: JournalState) -> bool:
    """Whether the last writer left in order, whatever was open then."""
    last = state.facts.get(state.seq)
    event = last.event if last else None
    return isinstance(event, Rewound | Forked) or (
        isinstance(event, Noted) and event.name == PAUSED
    )


def recovery(state: JournalState) -> list[Event]:
    """Return the outcomes to add after a crash: calls that were running become unknown.

    A call that never started stays open, unless its reply is incomplete, and a waiting call keeps
    waiting. The turn stays open, because a crash does not mean that anybody wanted it to end.
    """
    return conclude_orphans(state, ()) + [
        concluded(c, "not-started") for c in unrunnable_calls(state.view)
    ]


def is_left_open(state: JournalState) -> bool:
    """Whether the last writer disappeared in the middle of a turn without leaving in order."""
    return bool(state.view.turn) and not is_paused(state) and not _only_waits(state.view)


def conclude_orphans(state: JournalState, live: Iterable[Key]) -> list[Event]:
    """Return outcomes for the calls that were started and that nobody is running."""
    alive = set(live)
    return [
        concluded(call, "unknown")
        for key, call in state.view.calls.items()
        if call.is_running and key not in alive
    ]


def unrunnable_calls(view: JournalView) -> list[CallState]:
    """Return the open calls of an incomplete reply, which might have asked for more."""
    last = view.last_reply
    if last is None or isinstance(last.event, Replied):
        return []
    return [call for call in last.calls if call.status == "open" and call.outcome is None]


def end_stream(state: JournalState, part: Partial | None, stream: str, reason: str) -> list[Event]:
    """Return the events that end a broken stream: its partial reply, none of whose calls will run.

    Some reasons end the turn; after the others the model can be asked again.
    """
    facts: list[Event] = []
    if part is not None:
        facts = [
            part,
            *(
                # the partial reply will be the next record
                Finished(reply=state.seq + 1, index=index, outcome="not-started", synthetic=True)
                for index in range(len(part.calls))
            ),
        ]
    elif (last := state.view.last_reply) is not None and last.event.stream == stream:
        facts = [concluded(call, "not-started") for call in unrunnable_calls(state.view)]
    return facts if reason in LEAVES_TURN_OPEN else [*facts, Interrupted(reason=reason)]


def _only_waits(view: JournalView) -> bool:
    """Whether there is nothing to do now except to decide on calls.

    That is, the turn waits for somebody's approval, and nothing was said since.
    """
    last = next((item for item in reversed(view.items) if not isinstance(item, Late)), None)
    calls = last.calls if isinstance(last, ModelReply) else []
    waits = any(call.status in ("waiting", "approved") for call in calls)
    others = any(call.status in ("open", "approved", "started") for call in view.batch)
    return waits and not others


def concluded(call: CallState | Started, outcome: Outcome) -> Finished:
    """Return an outcome that no tool gave; a real one that comes later replaces it."""
    attempt = call.attempt if isinstance(call, Started) else max(call.attempts, 1)
    return Finished(
        reply=call.reply, index=call.index, attempt=attempt, outcome=outcome, synthetic=True
    )


def break_off(state: JournalState, reason: str, only: Iterable[Key] | None = None) -> list[Event]:
    """Return the events that stop the work for a reason, which may end the turn or leave it open.

    ``only`` names the calls that were being run.
    """
    if reason not in LEAVES_TURN_OPEN:
        return interrupt(state, reason, only)
    others = state.view.calls.keys() - set(only) if only is not None else ()
    return conclude_orphans(state, others)


def interrupt(state: JournalState, reason: str, only: Iterable[Key] | None = None) -> list[Event]:
    """Return the events that interrupt the turn: every call that waits for nobody gets an outcome.

    A running call may have taken effect and becomes ``cancelled``; the others become
    ``not-started``. ``only`` names further calls to close, also if no turn is open.
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
    """Return the event that continues the interrupted turn, if the last turn was interrupted."""
    return [Resumed()] if state.view.interrupted else []


def pause(state: JournalState) -> list[Event]:
    """Return a note that the turn is left open on purpose, unless that is recorded already."""
    return [Noted(name=PAUSED)] if state.view.turn and not is_paused(state) else []


class Candidate(Struct, frozen=True):
    """A call that can run now; ``is_approved`` says that somebody approved it.

    ``starts`` also counts starts that were rewound, which had the same ``effect``.
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
    """Return the calls that can run now, in order, and the calls that may have run and cannot.

    Candidates are all approved calls, wherever they stand, and, if the last reply is complete, its
    calls that never started or that may have run and can be repeated.
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
    """Whether the process that ran a call has gone, so that its outcome is unknown."""
    fact = call.outcome.fact if call.outcome and not call.outcome.is_real else None
    unknown = isinstance(fact, Finished) and fact.outcome == "unknown"
    return unknown and call.status == "closed"


def is_unchanged(state: JournalState, candidate: Candidate) -> bool:
    """Whether a call is still in the state in which it was chosen to run."""
    call = state.view.calls.get(candidate.key)
    if call is None or call.attempts != candidate.attempts or call.status == "started":
        return False
    if candidate.is_approved:
        return call.status == "approved"
    if candidate.is_repeat:
        return is_lost(call)
    return call.status == "open" and call.outcome is None


def decide_approval(call: CallState, reason: str | None = None, *, allow: bool) -> list[Event]:
    """Return the event that approves or denies a waiting call; nothing if that is done already."""
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
    """Return a call, given the call itself or an id that only one waiting call has."""
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
    """Return the state of the turn."""
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
    """Return the record to go back to, given a number, a checkpoint or the label of one."""
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
    """Return the event that undoes the last rewind which has not been undone yet."""
    for fact in reversed(state.line(state.seq)):
        event = fact.event
        if not isinstance(event, Rewound):
            continue
        behind = state.facts.get(event.to + 1)
        # A rewind to just before another rewind is itself the undo of that one.
        if event.reason == "undo" and behind is not None and isinstance(behind.event, Rewound):
            continue
        return [Rewound(to=fact.seq - 1, reason="undo")]
    raise UsageError("nothing was rewound in the current line of this session")


def revert_interrupted(state: JournalState) -> list[Event]:
    """Return a rewind to just before the message that began the interrupted turn."""
    began = state.view.interrupted
    if not began:
        raise UsageError("the last turn was not interrupted, or something was said since")
    return [Rewound(to=state.facts[began].parent, reason="interrupted")]


def commit_compaction(state: JournalState, event: Compacted, base: int) -> list[Event]:
    """Return a compaction made from the records up to ``base``; raise ``Moved`` if it is outdated.

    Records that were added since stay after it.
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
    """Return the key to add something under; "" if it was added already.

    If a rewind has removed what was added under the key, it can be added again under a variant of
    the key. Raises ``UsageError`` if the key was used for something other than ``event``.
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
        # A store accepts keys of at most 128 characters.
        tried = f"{key[:120]}~{number}"
    return tried


def is_same(kept: Event, event: Event) -> bool:
    """Whether a stored event says the same as another, whenever and however they came."""
    new = as_stored(event)
    return type(kept) is type(new) and (kept.payload, kept.blob) == (new.payload, new.blob)


def words_of_turn(state: JournalState) -> list[Said]:
    """Return the messages of the user in the open turn, in order."""
    began = state.view.turn
    spoken = (item for item in state.view.items if isinstance(item, Spoken))
    return [item.event for item in spoken if began and item.seq >= began]


def describe(
    state: JournalState,
    title: str | None,
    tags: Iterable[str] | None,
    metadata: Mapping[str, Any] | None,
) -> list[Event]:
    """Return the event that describes the session; nothing if it would change nothing."""
    event = events.describe(events.about_from(state.described), title, tags, metadata)
    return [] if event == (state.described or events.describe(events.NO_ABOUT)) else [event]
