"""The new messages of a request as the facts of a journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from lockstitch.conversation.pairing import FLAT
from lockstitch.conversation.parts import SYSTEM
from lockstitch.dialects.registry import new_dialect
from lockstitch.journal.answers import said_as
from lockstitch.journal.events import (
    Asked,
    Ended,
    Event,
    Finished,
    Noted,
    Partial,
    Replied,
    Said,
    text_payload,
)
from lockstitch.journal.importing import Imported, imported
from lockstitch.proxy.recording.bodies import Asking
from lockstitch.proxy.recording.chains import without_markers
from lockstitch.session.importing import said_by_system

# The note that holds a message in which nothing can be read.
MESSAGE = "message"
_LOST = "[lockstitch] A tool result whose call cannot be told any more:"
Known = Sequence[tuple[int, int, Asked]]


class NewFact(Struct, frozen=True):
    """An event; ``ends`` is the message of the request that is complete with it, -1 for none."""

    event: Event
    ends: int = -1


def facts_of(asking: Asking, matched: int, known: Known, first: int) -> list[NewFact]:
    """Return the facts of a request's messages behind the first ``matched`` ones.

    ``known`` are the calls up to there, as the session has them, and ``first`` is the number of
    the record that the first fact becomes.
    """
    if asking.previous:
        stubs = [_stub(asked) for _, _, asked in known]
        return _Tail(asking, stubs, matched, known, first).facts()
    start = _last_run(asking, matched)
    tail = _Tail(asking, asking.values(start, matched), matched, known, first)
    if tail.made.unpaired and start:
        # a result that comes late answers a call further up
        tail = _Tail(asking, asking.values(0, matched), matched, known, first)
    return tail.facts()


def _stub(asked: Asked) -> dict[str, str]:
    """Stand for a call that the provider keeps and the client does not send."""
    return {"type": "function_call", "call_id": asked.id, "name": asked.name, "arguments": "{}"}


def _last_run(asking: Asking, matched: int) -> int:
    """Return where the last replies begin among the first messages: what follows answers them."""
    replies = asking.replies
    at = matched
    while at and not replies[at - 1]:
        at -= 1
    while at and replies[at - 1]:
        at -= 1
    return at


def _imported(dialect: str, messages: list[Any]) -> Imported:
    roles = [message.role for message in new_dialect(dialect).read(messages)]
    spoken = [
        said_by_system(dialect, raw) if role == SYSTEM else without_markers(raw)
        for raw, role in zip(messages, roles, strict=True)
    ]
    return imported(spoken, dialect, keep_unpaired=True)


class _Tail:
    """The new messages of a request, read behind ``before``, which has the calls they answer."""

    def __init__(
        self, asking: Asking, before: list[Any], matched: int, known: Known, first: int
    ) -> None:
        if before and new_dialect(asking.dialect).layout == FLAT:
            # items of a model's that stand together are read as one reply
            before = [*before, said_as(asking.dialect, ".")]
        self.asking = asking
        self.made = _imported(asking.dialect, [*before, *asking.values(matched)])
        self.before = len(before)
        self.known = known
        self.first = first
        # what to add to an index of the list to have that of the request's message
        self.shift = matched - len(before)
        self.places: dict[int, int] = {}
        self.numbers: dict[tuple[int, int], int] = {}
        self.out: list[NewFact] = []

    def facts(self) -> list[NewFact]:
        self._count_matched()
        mine = [one for one in self._ordered() if one[0] >= self.before]
        for (_, end, number), behind in zip(mine, [*mine[1:], None], strict=False):
            follows = behind is not None and behind[0] <= end
            self._put(number, end, -1 if follows else end + self.shift)
        return self.out

    def _ordered(self) -> list[tuple[int, int, int]]:
        """Return the facts in the order of their messages: first and last of these, and a number.

        The number is -1 for a message that made no fact. A result that stands before its call
        comes behind it.
        """
        made, found = self.made, []
        covered: set[int] = set()
        for number, (home, end) in enumerate(zip(made.homes, made.ends, strict=True)):
            covered.update(range(home, end + 1))
            event = made.events[number]
            place = max(home, made.homes[event.reply - 1] if isinstance(event, Finished) else 0)
            found.append((place, max(place, end), number))
        messages = range(self.before, len(self.asking.raws) - self.shift)
        found += [(index, index, -1) for index in messages if index not in covered]
        return sorted(found, key=lambda one: one[0])

    def _count_matched(self) -> None:
        """Number the calls of the replies that are there already, in order."""
        count = 0
        for number, event in enumerate(self.made.events, 1):
            if isinstance(event, Replied) and self.made.homes[number - 1] < self.before:
                for index in range(len(event.calls)):
                    self.numbers[number, index] = count
                    count += 1
        self.missing = count - len(self.known)

    def _put(self, number: int, end: int, ends: int) -> None:
        if number < 0:
            raw = msgspec.json.encode(msgspec.json.decode(self.asking.raws[end + self.shift]))
            self.out.append(NewFact(Noted(name=MESSAGE, payload=Raw(raw)), ends))
            return
        event = self.made.events[number]
        if isinstance(event, Finished):
            event = self._placed(event)
        self.places[number + 1] = self.first + len(self.out)
        if isinstance(event, Replied) and not event.calls:
            self.out.append(NewFact(event))
            self.out.append(NewFact(Ended(), ends))
        else:
            self.out.append(NewFact(event, ends))

    def _placed(self, event: Finished) -> Event:
        """Return a result with the record of its call's reply."""
        if event.reply in self.places:
            return structs.replace(event, reply=self.places[event.reply])
        # the calls that the session knows are the last ones of those in the list, or more
        at = self.numbers[event.reply, event.index] - self.missing
        if not 0 <= at < len(self.known):
            text = msgspec.json.encode(event.payload).decode()
            return Said(payload=text_payload(f"{_LOST}\n{text}"))
        reply, index, _ = self.known[at]
        return structs.replace(event, reply=reply, index=index)


def facts_of_reply(reply: Replied | Partial) -> list[Event]:
    """Return the facts of what a provider answered: a whole reply without calls ends the turn."""
    is_end = isinstance(reply, Replied) and not reply.calls
    return [reply, Ended()] if is_end else [reply]
