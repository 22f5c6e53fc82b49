"""The list under repair: what was done to it, and where everything in it came from.

A pass that changes a part keeps its home and its path. A pass that moves a part keeps both, too. A
pass that makes a part gives it none. So at the end the draft itself says what each message and each
part was. Edits, SDK objects and files are written from that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, structs

from lockstitch.conversation.parts import (
    ASSISTANT,
    CHANGED,
    COSMETIC,
    UNTOUCHED,
    USER,
    Message,
    Part,
    Path,
    Place,
    Placed,
    repr_without,
)
from lockstitch.dialects.base import Dialect, as_json, value_at
from lockstitch.rules.rule import Case, Rule


class Change(Placed, frozen=True, kw_only=True):
    """One thing that a repair did, without content. ``place`` is in the original list."""

    code: str
    action: str
    place: str
    note: str

    def __str__(self) -> str:
        """Return one line for a log: code, what was done, where, and details."""
        return f"{self.code} {self.action} at {self.place}: {self.note}."


class Quarantined(Placed, frozen=True, kw_only=True):
    """A value that could not stay, kept whole, with the place it came from."""

    code: str
    place: str
    value: Any
    size: int

    __repr__ = repr_without("value")


class Ledger(Struct):
    """Collects what the passes of a repair do."""

    changes: list[Change]
    quarantine: list[Quarantined]

    def note(self, rule: Rule, action: str, place: Any, note: str) -> None:
        """Record a change; ``place`` is a ``Place``, or a text of a single step."""
        self.changes.append(Change(code=rule.code, action=action, place=place, note=note))

    def set_aside(self, rule: Rule, place: Any, value: Any, size: int = -1) -> None:
        """Keep a value that had to go.

        ``size`` is the size of the original if ``value`` only stands for it.
        """
        if size < 0:
            size = len(value) if isinstance(value, (str, bytes)) else len(as_json(value))
        self.quarantine.append(Quarantined(code=rule.code, place=place, value=value, size=size))


class RepairDraft:
    """Messages that passes edit in place; the raw data is never mutated."""

    def __init__(self, case: Case) -> None:
        self.origin = case
        self.dialect: Dialect = case.dialect
        self.profile = case.profile
        self.body = case.body
        self.messages = case.messages
        self.ledger = Ledger([], [])
        self.changes = self.ledger.changes
        # the original parts, to which reasoning may be bound
        self.parts_before: dict[int, Sequence[Any]] = {}
        if case.parts.reasoning:
            for message in case.messages:
                self.parts_before[message.index] = [part.raw for part in message.parts]

    def case(self) -> Case:
        """Return the draft as it stands, as a case for the rules."""
        if not self.changes:
            return self.origin
        request = structs.replace(self.origin.request, body=self.body)
        return Case(request, self.messages, self.origin.size)

    def case_of(self, message: Message) -> Case:
        """Return a single message as a case for the rules."""
        request = structs.replace(self.origin.request, body=None)
        return Case(request, [message], self.origin.size)

    def note(self, rule: Rule, action: str, what: Part | Message | Place | str, note: str) -> None:
        """Record what was done to something; a text names a field of the request."""
        place: Any = what if isinstance(what, str) else self.origin.place(what)
        self.changes.append(Change(code=rule.code, action=action, place=place, note=note))

    def set_aside(self, rule: Rule, what: Part | Message | Place | str, value: Any) -> None:
        """Keep a value that had to go, with the place it came from."""
        place = what if isinstance(what, str) else self.origin.place(what)
        self.ledger.set_aside(rule, place, value)

    def drop(self, rule: Rule, part: Part, note: str) -> None:
        """Record that a part goes, and keep it in the quarantine."""
        self.note(rule, "removed", part, note)
        self.set_aside(rule, part, part.raw)

    def keep_parts(self, message: Message, parts: list[Part], state: int = CHANGED) -> None:
        """Replace the parts of a message."""
        message.parts = parts
        message.touch(state)

    def change_parts(self, change: Callable[[Part], Part]) -> None:
        """Replace each part by the one that ``change`` makes of it."""
        for message in self.messages:
            parts = [change(part) for part in message.parts]
            if any(new is not old for new, old in zip(parts, message.parts, strict=True)):
                self.keep_parts(message, parts)

    def user_text(self, text: str) -> Message:
        """Make a user message."""
        return self.dialect.new_message(USER, [self.dialect.text_part(text, USER)])

    def assistant_text(self, text: str) -> Message:
        """Make an assistant message."""
        return self.dialect.new_message(ASSISTANT, [self.dialect.text_part(text, ASSISTANT)])

    def set_field(self, key: str, value: Any) -> None:
        """Set a field of a copy of the request body."""
        self.body = {**(self.body or {}), key: value}

    def render(self) -> list[Any]:
        """Return the raw list; untouched messages are the very same objects."""
        return [
            message.raw if message.state == UNTOUCHED else self.dialect.rebuild(message)
            for message in self.messages
        ]

    def first_change(self) -> tuple[int, int]:
        """Return message and part number of the first content that differs from the original."""
        for position, message in enumerate(self.messages):
            if message.index != position:
                return position, 0
            if message.state > COSMETIC:
                before = self.parts_before.get(message.index, ())
                for number, part in enumerate(message.parts):
                    if number >= len(before) or before[number] is not part.raw:
                        return position, number
                return position, len(message.parts)
        return len(self.messages), 0


class RepairedPart(Struct, gc=False):
    """A part of a repaired message, and the message and path it came from.

    ``origin`` is None if the part is new.
    """

    value: Any
    origin: int | None
    path: Path

    __repr__ = repr_without("value")


class RepairedMessage(Struct, gc=False):
    """A message of a repaired list, and the number of the message it was, None for a new one.

    ``parts`` is empty if the repair did not look into the message: it is as it was. ``earlier``
    maps the ``id`` of the message and of its changed parts to what they were before, None for new
    ones. Values that are the same objects as before are not listed.
    """

    message: Any
    origin: int | None
    parts: Sequence[RepairedPart] = ()
    earlier: dict[int, Any] = {}

    __repr__ = repr_without("message", "earlier")


def trace_draft(
    draft: RepairDraft, rendered: Sequence[Any], raw: Sequence[Any]
) -> list[RepairedMessage]:
    """Return each rendered message of a draft, with where it and its parts came from.

    Numbers are those of the original list, even if ``raw`` is an excerpt of it.
    """
    numbers = draft.origin.request.numbers or range(len(raw))
    traced: list[RepairedMessage] = []
    for view, message in zip(draft.messages, rendered, strict=True):
        if view.state == UNTOUCHED and view.index >= 0:
            traced.append(RepairedMessage(message, numbers[view.index]))
            continue
        index = view.index
        if index < 0:
            # a new message made of parts of an old one of its kind is the second half of that
            homes = (part.home for part in view.parts if part.home >= 0)
            index = next((home for home in homes if _kind(raw[home]) == _kind(message)), -1)
        earlier = {id(message): raw[index] if index >= 0 else None}
        parts: list[RepairedPart] = []
        for part in view.parts:
            is_new = part.home < 0
            parts.append(RepairedPart(part.raw, None if is_new else numbers[part.home], part.at))
            old = None if is_new else value_at(raw[part.home], part.at)
            if type(part.raw) is dict and old is not part.raw and part.raw is not message:
                earlier[id(part.raw)] = old
        origin = numbers[index] if index >= 0 else None
        traced.append(RepairedMessage(message, origin, parts, earlier))
    return traced


def _kind(message: Any) -> tuple[Any, Any] | None:
    return (message.get("role"), message.get("type")) if type(message) is dict else None
