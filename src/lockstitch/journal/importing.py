"""A message list of some provider as the facts of a journal: what was said, replied and found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lockstitch.conversation.pairing import FLAT, NOWHERE, pair_messages
from lockstitch.conversation.parts import ASSISTANT, CALL, RESULT, SYSTEM, USER, Message, Part
from lockstitch.dialects.base import Dialect, as_text
from lockstitch.dialects.profiles import profile_named
from lockstitch.dialects.registry import new_dialect
from lockstitch.dialects.render import is_failed
from lockstitch.dialects.replies import calls_in, provider_of
from lockstitch.journal.events import AskedCall, Event, Finished, Replied, Said, text_payload
from lockstitch.repair.pairing import ORPHAN_LABEL

_ENCODE = msgspec.json.Encoder().encode


class Imported(Struct):
    """The facts of a list, each with the indexes of the first and last message it was read from.

    ``system`` are messages that are no part of the conversation. ``unpaired`` counts results
    that answer no call of the list.
    """

    events: list[Event]
    homes: list[int]
    ends: list[int]
    system: list[Any]
    unpaired: int = 0


def import_events(raw: Sequence[Any], dialect: str, *, keep_unpaired: bool = False) -> Imported:
    """Take a valid list apart; projected again it says the same.

    Of a list that is not valid, results that answer no call of it are left out; with
    ``keep_unpaired`` they are kept as words of the user's, labelled as what they are.
    """
    view = new_dialect(profile_named(dialect).dialect)
    return _Import(view, raw, provider_of(dialect), keep_unpaired=keep_unpaired).run()


class _Import:
    def __init__(
        self, dialect: Dialect, raw: Sequence[Any], provider: str, *, keep_unpaired: bool
    ) -> None:
        self.dialect = dialect
        self.keep_unpaired = keep_unpaired
        self.provider = provider
        self.messages = dialect.read(raw)
        placeholder, same = dialect.is_placeholder, dialect.same_result
        self.threads = pair_messages(self.messages, dialect.layout, dialect.keys, placeholder, same)
        self.numbers = {id(call): number for number, call in enumerate(self.threads.calls)}
        self.paired = set(self.threads.pairing.answers)
        self.results = {id(part): number for number, part in enumerate(self.threads.results)}
        self.out = Imported([], [], [], [])

    def run(self) -> Imported:
        """Go through the list, a reply at a time."""
        for group in self._groups():
            first = group[0]
            if first.role == SYSTEM:
                self.out.system += [message.raw for message in group]
            elif first.role == ASSISTANT:
                self._replied(group)
            else:
                self._said(first)
        return self.out

    def _groups(self) -> Iterator[list[Message]]:
        """Return messages by themselves, but the items of one reply together."""
        group: list[Message] = []
        for message in self.messages:
            joins = self.dialect.layout == FLAT and message.role == ASSISTANT
            if group and not (joins and group[-1].role == ASSISTANT):
                yield group
                group = []
            group.append(message)
        if group:
            yield group

    def _put(self, event: Event, home: int, end: int | None = None) -> None:
        self.out.events.append(event)
        self.out.homes.append(home)
        self.out.ends.append(home if end is None else end)

    def _said(self, message: Message) -> None:
        parts = [inner for part in message.parts for inner in self._spoken(part)]
        if not parts:
            return
        if len(parts) == 1 and isinstance(parts[0].raw, str):
            self._put(Said(payload=text_payload(parts[0].raw)), message.index)
            return
        blocks = [p.raw if isinstance(p.raw, dict) else _text(self.dialect, p) for p in parts]
        self._put(Said(payload=_payload(blocks), dialect=self.dialect.name), message.index)

    def _spoken(self, part: Part) -> list[Part]:
        """Return what of a part are the user's words: of a result nothing, if it has its call."""
        if part.kind != RESULT:
            return [part]
        if self.results[id(part)] in self.paired:
            return []
        self.out.unpaired += 1
        if not self.keep_unpaired:
            return []
        label = ORPHAN_LABEL.format(id=part.id or "without an id")
        text = f"{label}\n{self.dialect.result_text(part)}"
        return [self.dialect.text_part(text, USER), *self.dialect.result_media(part)]

    def _replied(self, group: list[Message]) -> None:
        raw = [message.raw for message in group]
        asked = tuple(AskedCall(*call) for call in calls_in(self.dialect.name, raw))
        payload = _payload(raw if len(raw) > 1 else raw[0])
        reply = Replied(
            dialect=self.dialect.name, provider=self.provider, calls=asked, payload=payload
        )
        self._put(reply, group[0].index, group[-1].index)
        seq = len(self.out.events)
        calls = [part for message in group for part in message.parts if part.kind == CALL]
        for index, call in enumerate(calls[: len(asked)]):
            self._finished(seq, index, call)

    def _finished(self, reply: int, index: int, call: Part) -> None:
        answer = self.threads.pairing.answers[self.numbers[id(call)]]
        if answer == NOWHERE:
            return
        part = self.threads.results[answer]
        failed = is_failed(self.dialect, part)
        payload = self.dialect.payload(part)
        is_text = isinstance(payload, str) or not isinstance(payload, list)
        fact = Finished(
            reply=reply,
            index=index,
            outcome="error" if failed else "ok",
            synthetic=self.dialect.is_placeholder(part),
            dialect="" if is_text else self.dialect.name,
            payload=text_payload(self.dialect.result_text(part)) if is_text else _payload(payload),
        )
        self._put(fact, part.home)


def _text(dialect: Dialect, part: Part) -> Any:
    return dialect.note_block(part.text or as_text(part.raw))


def _payload(value: Any) -> Raw:
    return Raw(_ENCODE(value))
