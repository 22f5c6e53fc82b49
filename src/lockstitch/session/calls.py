"""Calls and turns as a user of the library sees them: values, taken at one moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct

from lockstitch.conversation.parts import Part
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.registry import new_dialect
from lockstitch.dialects.replies import call_parts, messages_in
from lockstitch.journal import state as journal
from lockstitch.journal.events import Denied, Event, Finished, Partial, Replied, value_of

# What calls without arguments of their own carry instead: a tool gets these by name.
_CARRIED = ("input", "action", "actions", "operation")


class Asking(Struct, frozen=True):
    """What a model asked for in a call: the tool's name, and its arguments if they can be read."""

    name: str
    arguments: dict[str, Any] | None = None
    raw: Any = None


def askings_in(event: Event, payload: bytes) -> list[Asking]:
    """Return what a reply asked for, a call each, in order; nothing for anything but a reply."""
    if not isinstance(event, Replied | Partial):
        return []
    view = new_dialect(profile_named(event.dialect).dialect)
    value = value_of(Raw(payload), inner=True)
    messages = view.read(messages_in(event.dialect, value))
    return [_asking(view, part) for part in call_parts(messages)]


def _asking(view: Dialect, part: Part) -> Asking:
    name = part.name or part.flavor
    raw = view.arguments(part)
    if raw is UNSET:
        carried = part.raw if isinstance(part.raw, dict) else {}
        return Asking(name, {key: carried[key] for key in _CARRIED if key in carried})
    return Asking(name, _decoded(raw), raw)


def _decoded(raw: Any) -> dict[str, Any] | None:
    """Read arguments; an empty text is how several providers spell "none"."""
    if isinstance(raw, str):
        try:
            raw = msgspec.json.decode(raw) if raw.strip() else {}
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
    return raw if isinstance(raw, dict) else None


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call at one moment; ``reply`` and ``index`` name it, ids may repeat.

    ``status`` is open, waiting (for approval), approved, started or closed; ``outcome`` is "" as
    long as nothing is known, else ok, error, denied, cancelled, timed-out, unknown or
    not-started. ``is_real`` tells an outcome that the tool gave, or a person, from one that was
    concluded. ``effect`` is the idempotency key that every attempt gives the tool. ``is_outside``
    tells that what it waits for is a result that somebody else delivers.
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
    _asked: Callable[[], Asking] | None = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> tuple[int, int]:
        """What tells it from every other call of its session."""
        return self.reply, self.index

    @property
    def arguments(self) -> dict[str, Any] | None:
        """The arguments that the model gave; None if they are no JSON object."""
        return self._asked().arguments if self._asked else None


def call_of(call: journal.Call, asked: Callable[[], Asking] | None = None) -> Call:
    """Take a call as it stands."""
    settled = call.outcome
    return Call(
        call.reply,
        call.index,
        call.id,
        call.name,
        call.status,
        call.attempts,
        call.effect,
        _outcome(settled.fact) if settled else "",
        settled is not None and settled.is_real,
        call.is_outside,
        asked,
    )


def _outcome(fact: Event) -> str:
    if isinstance(fact, Finished):
        return fact.outcome
    return "denied" if isinstance(fact, Denied) else "unknown"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn at one moment: from a user's message to the point where the model yields.

    ``began`` is the record it began with. ``calls`` are those of its last reply. ``state`` is
    "open" while it is the model's move or tools can run, "waiting" while all that is left waits
    for somebody's approval, then "ended" or "interrupted"; "none" before the first message.
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
        """The calls that wait for approval."""
        return tuple(c for c in self.calls if c.status == "waiting" and not c.is_outside)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the last writer left when it died: nothing, and false, after a clean end.

    ``finished`` are calls of the last batch whose results are there, ``unknown`` those that ran
    and may or may not have taken effect, ``never_started`` those that ``run_tools`` may still run.
    """

    finished: tuple[Call, ...] = ()
    unknown: tuple[Call, ...] = ()
    never_started: tuple[Call, ...] = ()
    interrupted: bool = False

    def __bool__(self) -> bool:
        """Whether there was anything to recover."""
        return self.interrupted or bool(self.unknown)
