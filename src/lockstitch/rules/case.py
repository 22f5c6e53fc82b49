"""A case: one request as the rules look at it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from lockstitch.conversation.pairing import PairedCalls, pair_messages
from lockstitch.conversation.parts import Message, Part, Path, Place, Sorted, sort_parts
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.fast import encoded_size
from lockstitch.dialects.profiles import Profile, Traits
from lockstitch.rules.rule import Finding, Rule, shown

# What only the provider can count, such as a column; "<nil>" is a word of its own.
_UNFILLED = re.compile(r"<(?!nil>)\w+>")


class RequestContext(Struct, frozen=True):
    """What surrounds a list of messages: its format, its receiver and the rest of the body.

    ``waiting`` names the calls that wait on purpose; ``numbers`` gives the original indices where
    the list is an excerpt, and ``ids`` the ids of all of it. ``stored`` says that the list is kept
    for later, whatever is known of the model: it need not end like a request.
    """

    dialect: Dialect
    profile: Profile
    traits: Traits
    body: dict[str, Any] | None = None
    waiting: frozenset[str] = frozenset()
    model: str | None = None
    numbers: Sequence[int] | None = None
    ids: frozenset[str] = frozenset()
    stored: bool = False

    def place(self, index: int, at: Path = ()) -> Place:
        """Return a place in the list that was given, of which this may be an excerpt."""
        return Place.in_list(self.profile.list_key, self.number(index), at)

    def number(self, index: int) -> int:
        """Give the index in the list that was given."""
        if self.numbers is None or index < 0:
            return index
        return self.numbers[index] if index < len(self.numbers) else index


class Case:
    """A request as the rules look at it.

    ``is_request`` says that this is about to be sent, not merely stored: rules on how a request
    must end hold only then.
    """

    def __init__(self, request: RequestContext, messages: list[Message]) -> None:
        self.request = request
        self.messages = messages
        self.dialect = request.dialect
        self.profile = request.profile
        self.traits = request.traits
        self.body = request.body
        self.waiting = request.waiting
        self.model = request.model
        self.is_request = not request.stored and (request.body is not None or request.traits.known)

    @cached_property
    def parts(self) -> Sorted:
        """All parts by kind."""
        return sort_parts(self.messages)

    @cached_property
    def threads(self) -> PairedCalls:
        """All calls and results, paired."""
        dialect = self.dialect
        return pair_messages(
            self.messages,
            self.profile.layout,
            dialect.keys,
            dialect.is_placeholder,
            dialect.same_result,
        )

    @cached_property
    def encoded_size(self) -> int:
        """Size of the list as JSON; -1 if some text in it may not be encodable."""
        return encoded_size([message.raw for message in self.messages])

    @cached_property
    def leans_on_stored_state(self) -> bool:
        """Tell whether part of the conversation lives at the provider, out of our sight."""
        body = self.body or {}
        if body.get("previous_response_id") or body.get("conversation"):
            return True
        if self.profile.dialect != "openai-responses":
            return False
        return any(part.flavor == "item_reference" and not part.at for part in self.parts.rest)

    def place(self, part: Part) -> Place:
        """Return the place of a part."""
        return self.request.place(part.home, part.at)

    def place_at(self, index: int, at: Path = ()) -> Place:
        """Return the place of a message, or of something in it."""
        return self.request.place(index, at)

    def find(  # noqa: PLR0913 - all but three by keyword, each with a default
        self,
        rule: Rule,
        place: Place,
        message: str,
        *,
        wording: str = "",
        severity: str = "",
        fixable: bool | None = None,
        lossy: bool | None = None,
        **fills: object,
    ) -> Finding:
        """Make a finding that predicts the provider's own error text.

        ``wording`` picks one of several texts that a provider has for a rule.
        How bad it is, whether it can be mended, and whether that loses anything, is the rule's
        word unless this very place is known to be different.
        """
        return Finding(
            code=rule.code,
            name=rule.name,
            severity=severity or rule.severity,
            place=place,  # type: ignore[arg-type]  # its text is made in Placed
            message=message,
            error=self.predicted(rule, place, wording, fills),
            fixable=rule.fixable if fixable is None else fixable,
            lossy=rule.lossy if lossy is None else lossy,
            help=rule.help,
        )

    def predicted(
        self, rule: Rule, place: Place, wording: str, fills: dict[str, object]
    ) -> str | None:
        """Fill the provider's error text with what it would name here."""
        text = self._template(rule.errors, wording)
        if text is None:
            return None
        numbers = [str(step) for step in place.steps if type(step) is int]
        known: dict[str, object] = dict(zip(("N", "M", "K"), numbers, strict=False))
        known["place"] = str(place)
        known.update(fills)
        for key, value in known.items():
            mark = f"<{key}>"
            if mark in text:
                text = text.replace(mark, shown(value))
        return _UNFILLED.sub("…", text) if "<" in text else text

    def _template(self, errors: Sequence[tuple[str, str]], wording: str) -> str | None:
        names = (self.profile.full_name, self.profile.dialect)
        special = [f"{name} ({wording})" for name in names] if wording else []
        for name in (*special, *names):
            for who, text in errors:
                if who == name:
                    return text
        return None
