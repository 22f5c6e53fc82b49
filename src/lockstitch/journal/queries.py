"""Queries over records: where words were said, and what the replies cost.

A search ignores case. Each word may stand anywhere in the text, and one record must contain all of
them. Costs are known as far as the providers reported them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal

from msgspec import Raw, Struct, field

from lockstitch.conversation.parts import ASSISTANT, RESULT, SYSTEM, TEXT, repr_without
from lockstitch.dialects.base import as_text
from lockstitch.dialects.exchange import Tokens, messages_in, tokens_in
from lockstitch.dialects.profiles import new_dialect
from lockstitch.errors import UsageError
from lockstitch.journal.events import (
    Event,
    Finished,
    Forked,
    Partial,
    Replied,
    Said,
    event_of,
    value_of,
)
from lockstitch.journal.messages import known, said_as
from lockstitch.journal.records import JournalRecord
from lockstitch.journal.state import Fact

Who = Literal["user", "assistant", "system", "result"]
Payload = Callable[[str], bytes]
Spoken = Iterator[tuple[Who, str]]
Others = Callable[[bytes, Callable[[bytes], bool], Payload], Spoken | None]
_SEARCHED = (Said, Replied, Partial, Finished)
_STARTS = tuple(b'{"kind":"%s"' % kind for kind in (b"said", b"replied", b"partial", b"finished"))
_PLAIN = re.compile(r"[a-z0-9_-]+")
_BLANK = re.compile(r"\s+")
_BEFORE, _LENGTH = 40, 120


class Match(Struct, frozen=True):
    """A record that contains all the words: who said it, and a short excerpt of the text."""

    session: str
    seq: int
    who: Who
    excerpt: str
    at: int = 0

    __repr__ = repr_without("excerpt")


class SearchWords:
    """The words of a search."""

    def __init__(self, text: object) -> None:
        self.words = text.casefold().split() if isinstance(text, str) else []
        if not self.words:
            raise UsageError("there is nothing to search for: pass one word or more")
        self._plain = [word.encode() for word in self.words if _PLAIN.fullmatch(word)]

    def __repr__(self) -> str:
        """Return the number of words, but not the words: they may be secrets."""
        return f"<{type(self).__name__}: {len(self.words)} words>"

    def may_be_in(self, raw: bytes) -> bool:
        """Whether the JSON of a text may contain all words; False is certain, True is not.

        Any character that is not ASCII, or that is escaped, may be another case of a letter that
        is.
        """
        if not self._plain or not raw.isascii() or b"\\u" in raw:
            return True
        lower = raw.lower()
        return all(word in lower for word in self._plain)

    def are_in(self, text: str) -> bool:
        """Whether a text contains all words."""
        folded = text.casefold()
        return all(word in folded for word in self.words)

    def excerpt(self, text: str) -> str:
        """Return a short excerpt of a text around the first word, on one line."""
        found = re.search(re.escape(self.words[0]), text, re.IGNORECASE)
        start = max((found.start() if found else 0) - _BEFORE, 0)
        cut = _BLANK.sub(" ", text[start : start + _LENGTH]).strip()
        head = "…" if start else ""
        return f"{head}{cut}{'…' if start + _LENGTH < len(text) else ''}"


def said_in(dialect: str, messages: Sequence[Any]) -> Iterator[tuple[int, Who, str]]:
    """Yield the texts in messages: the number of the message, who speaks, and the text."""
    view = new_dialect(dialect)
    for number, message in enumerate(view.read(messages)):
        for part in message.parts:
            if part.kind == TEXT:
                who: Who = "assistant" if message.role == ASSISTANT else "user"
                yield number, "system" if message.role == SYSTEM else who, part.text or ""
            elif part.kind == RESULT:
                yield number, "result", view.result_text(part)


class SessionSearch:
    """Searches the records of one session, in order.

    A partial reply counts until the whole reply of its stream is seen; one that never came in full
    is returned by :meth:`rest`. ``others`` returns the texts of a record that is not an event of a
    session, and None for any other record.
    """

    def __init__(self, session: str, words: SearchWords, payload: Payload, others: Others) -> None:
        self._session = session
        self._words = words
        self._payload = payload
        self._others = others
        self._parts: dict[str, Match] = {}

    def look(self, record: JournalRecord) -> Match | None:
        """Search the next record; return a match, or None."""
        body = record.body
        others = self._others(body, self._words.may_be_in, self._payload)
        if others is not None:
            return self._match(record, others)
        if not body.startswith(_STARTS) and body.startswith(b'{"kind":'):
            return None
        event = event_of(record)
        if isinstance(event, Replied) and event.stream:
            self._parts.pop(event.stream, None)
        if not isinstance(event, _SEARCHED) or (not event.blob and not self._words.may_be_in(body)):
            return None
        raw = Raw(self._payload(event.blob)) if event.blob else event.payload
        value = None
        if not event.blob or self._words.may_be_in(bytes(raw)):
            with suppress(ValueError, RecursionError):
                value = value_of(raw, inner=isinstance(event, Replied | Partial))
        found = self._match(record, _spoken(event, value))
        if found and isinstance(event, Partial) and event.stream:
            self._parts[event.stream] = found
            return None
        return found

    def rest(self) -> list[Match]:
        """Return the matches in replies that never came in full."""
        return sorted(self._parts.values(), key=lambda match: match.seq)

    def _match(self, record: JournalRecord, spoken: Spoken) -> Match | None:
        """Return a match if one text of a record, or all of them together, contain all words."""
        texts: list[str] = []
        first: Who | None = None
        for who, text in spoken:
            if self._words.are_in(text):
                excerpt = self._words.excerpt(text)
                return Match(self._session, record.seq, who, excerpt, record.at)
            first = first or who
            texts.append(text)
        whole = "\n".join(texts)
        if first is None or not self._words.are_in(whole):
            return None
        return Match(self._session, record.seq, first, self._words.excerpt(whole), record.at)


def _spoken(event: Event, value: Any) -> Spoken:
    """Return the texts of an event, and who said each."""
    if value is None:
        return
    if isinstance(event, Replied | Partial):
        name = known(event.dialect)
        messages = messages_in(name, value) if name else []
        yield from ((who, text) for _, who, text in said_in(name, messages) if messages)
        return
    who: Who = "user" if isinstance(event, Said) else "result"
    name = known(event.dialect) if isinstance(event, Said | Finished) else ""
    if not name or isinstance(value, str):
        yield who, as_text(value)
        return
    found = [text for _, _, text in said_in(name, [said_as(name, value)])]
    yield from ((who, text) for text in found or [as_text(value)])


class Spent(Struct, frozen=True):
    """The tokens of some replies; ``unknown`` counts the replies that report no costs."""

    tokens: Tokens = Tokens()
    replies: int = 0
    unknown: int = 0

    @property
    def input(self) -> int:
        """All tokens that were sent, including those read from a cache."""
        return self.tokens.input

    @property
    def output(self) -> int:
        """All tokens that were generated, including reasoning."""
        return self.tokens.output

    @property
    def cached(self) -> int:
        """The input tokens that were read from a cache."""
        return self.tokens.cached

    @property
    def cache_write(self) -> int:
        """The input tokens that were written to a cache."""
        return self.tokens.cache_write

    @property
    def reasoning(self) -> int:
        """The output tokens that were reasoning, as far as the provider reports them."""
        return self.tokens.reasoning

    def __add__(self, other: Spent) -> Spent:
        """Return the sum of both."""
        return Spent(
            self.tokens + other.tokens, self.replies + other.replies, self.unknown + other.unknown
        )


class Usage(Spent, frozen=True):
    """The costs of all replies in a session, and of each model; "" stands for an unnamed model.

    Replies that were rewound count, because they were paid for. Replies that a fork started with
    count too; ``copied`` holds their costs, which were paid in the session that they were copied
    from.
    """

    models: dict[str, Spent] = field(default_factory=dict)
    copied: Spent = Spent()


def usage_of(facts: Iterable[Fact], payload: Callable[[Event], bytes]) -> Usage:
    """Return the sum of the costs that replies report; ``payload`` returns the payload of an event.

    A reply whose stream broke off counts with what it reported by then.
    """
    replies: dict[int | str, tuple[int, Replied | Partial]] = {}
    copied_upto = 0
    for fact in facts:
        event = fact.event
        if isinstance(event, Forked):
            copied_upto = max(copied_upto, event.at)
        elif isinstance(event, Replied | Partial):
            name = event.stream or fact.seq
            # a partial reply counts until the whole reply of its stream is there
            is_known = name in replies and isinstance(replies[name][1], Replied)
            if isinstance(event, Replied) or not is_known:
                replies[name] = (fact.seq, event)
    models: dict[str, Spent] = {}
    copied = Spent()
    for seq, event in replies.values():
        try:
            tokens = tokens_in(value_of(Raw(payload(event)), inner=True))
        except (ValueError, RecursionError):
            tokens = None
        spent = Spent(tokens or Tokens(), 1, int(tokens is None))
        models[event.model] = models.get(event.model, Spent()) + spent
        copied += spent if seq <= copied_upto else Spent()
    total = sum(models.values(), Spent())
    return Usage(total.tokens, total.replies, total.unknown, models, copied)
