"""Read a request's body for recording, and turn its new messages into events of a journal."""

from __future__ import annotations

import json
import re
import threading
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from lockstitch.conversation.pairing import FLAT
from lockstitch.conversation.parts import (
    ASSISTANT,
    CALL,
    REASONING,
    RESULT,
    SYSTEM,
    TEXT,
    Message,
    Part,
)
from lockstitch.dialects.base import Dialect
from lockstitch.dialects.profiles import VIEWS, new_dialect, profile_named
from lockstitch.errors import Unreadable
from lockstitch.journal.events import (
    AskedCall,
    Ended,
    Event,
    Finished,
    Instructed,
    Noted,
    Replied,
    Said,
    bytes_of,
    text_payload,
)
from lockstitch.journal.messages import import_events, said_as
from lockstitch.redaction import redact_value
from lockstitch.session.copying import SYSTEMS, instructions, said_by_system, system_in

_SIZE = 12
_ENCODE = msgspec.json.Encoder(order="sorted").encode
_DECODE = msgspec.json.Decoder().decode
_WRAPPED = re.compile(r"\s*<([\w-]+)>.*</\1>\s*", re.DOTALL)
_REMINDER = re.compile(r"\s*<system-reminder>.*</system-reminder>\s*", re.DOTALL)
# A header that Claude Code adds to its instructions, which differs in every request.
_VARYING = re.compile(r"x-anthropic-billing-header:[^\n]*\n?")
# Fields that identify a part without being part of its content.
_NAMES = frozenset({"id", "call_id", "tool_call_id", "tool_use_id", "toolUseId", "status"})
# Cache markers: a field of a block, and a block of its own.
_MARKER, _MARKERS = "cache_control", ("cachePoint",)
# How many messages are recognized by their bytes, so that their links need not be computed again.
_KNOWN = 50_000

Links = tuple[bytes, ...]


class HashChain(Struct, frozen=True):
    """The hashes of a list of messages: at the end of each, and after 1, 2, 4, 8, … links.

    ``lengths`` counts the links up to the end of each message; ``length`` counts all of them.
    """

    last: bytes
    length: int = 0
    ends: list[bytes] = []
    lengths: list[int] = []
    marks: dict[int, bytes] = {}

    def extend(self, messages: Iterable[Links]) -> HashChain:
        """Return the chain with more messages at its end."""
        ends, lengths, marks = list(self.ends), list(self.lengths), dict(self.marks)
        last, length = self.last, self.length
        for links in messages:
            for link in links:
                last, length = _digest(last + link), length + 1
                if length & (length - 1) == 0:
                    marks[length] = last
            ends.append(last)
            lengths.append(length)
        return HashChain(last, length, ends, lengths, marks)


def beginning(dialect: str, instructions: str = "") -> HashChain:
    """Return the chain before the first message; ``instructions`` is what else it depends on."""
    return HashChain(_digest(f"{dialect}\n{instructions}".encode()))


class Linked(NamedTuple):
    """A message of a request: who speaks, and its links."""

    role: str
    links: Links


class Linking:
    """Computes the links of messages; messages with the same bytes as before are not read again."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Linked] = OrderedDict()
        self._lock = threading.Lock()

    def of_raws(self, dialect: str, raws: Iterable[bytes]) -> list[Linked]:
        """Return the links of messages; raise ``ValueError`` if one is not JSON."""
        view, found = new_dialect(dialect), []
        with self._lock:
            for raw in raws:
                name = blake2b(raw, digest_size=16, person=view.name.encode()[:16]).digest()
                linked = self._known.get(name)
                if linked is None:
                    message = view.read([_DECODE(raw)])[0]
                    linked = self._known[name] = Linked(message.role, links_of(view, message))
                    if len(self._known) > _KNOWN:
                        self._known.popitem(last=False)
                found.append(linked)
        return found


def links_of_reply(dialect: str, messages: Sequence[Any]) -> list[Links]:
    """Return the links of a reply's messages, in the form in which the client sends them back."""
    view = new_dialect(dialect)
    return [links_of(view, message) for message in view.read(messages)]


def links_of(view: Dialect, message: Message) -> Links:
    """Return the links of one message; only a reply may have none."""
    parts = [
        part
        for part in message.parts
        if (
            not part.text.isspace() and part.text != ""
            if part.kind == TEXT
            else part.kind != REASONING and part.flavor not in _MARKERS
        )
    ]
    if message.role != ASSISTANT:
        # without the notes that Claude Code adds to what the user says
        spoken = [part for part in parts if part.kind != TEXT or not _REMINDER.fullmatch(part.text)]
        parts = spoken or parts
    if not parts and message.role != ASSISTANT:
        return (_hash_value(["odd", message.role, message.raw]),)
    return tuple(_hash_value(_words_of(view, message.role, part)) for part in parts)


def is_wrapped(part: Part) -> bool:
    """Whether an entire text is inside a tag: a program says it in the user's name."""
    return _WRAPPED.fullmatch(part.text) is not None


def _words_of(view: Dialect, role: str, part: Part) -> list[Any]:
    """Return the content of a part, without its ids."""
    if part.kind == TEXT:
        return [role, part.text.strip()]
    if part.kind == CALL:
        return [CALL, part.name, _arguments(view.arguments(part), part.raw)]
    if part.kind == RESULT:
        media = [_without_names(media.raw) for media in view.result_media(part)]
        return [RESULT, view.result_text(part).strip(), media]
    return [role, part.kind, _without_names(part.raw)]


def _arguments(found: Any, raw: Any) -> Any:
    """Return a call's arguments, whatever their form."""
    if found is UNSET:
        return _without_names(raw)
    if isinstance(found, str):
        try:
            return _DECODE(found) if found.strip() else {}
        except (ValueError, RecursionError):
            return found
    return found or {}


def _without_names(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    return {key: value for key, value in raw.items() if key not in _NAMES and key != _MARKER}


def _hash_value(value: Any) -> bytes:
    try:
        return _digest(_ENCODE(value))
    except (TypeError, ValueError, RecursionError, UnicodeError):
        return _digest(repr(value).encode("utf-8", "replace"))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_SIZE).digest()


def without_markers(message: Any) -> Any:
    """Return a message without cache markers.

    A request may have four of these, and a conversation would collect them from every turn.
    """
    key = "parts" if isinstance(message, dict) and "parts" in message else "content"
    blocks = message.get(key) if isinstance(message, dict) else None
    if not isinstance(blocks, list):
        return message
    kept: list[Any] = []
    for block in blocks:
        if isinstance(block, dict) and any(marker in block for marker in _MARKERS):
            continue
        if isinstance(block, dict) and _MARKER in block:
            block = {name: value for name, value in block.items() if name != _MARKER}  # noqa: PLW2901
        kept.append(block)
    return {**message, key: kept}


def digest_of_instructions(instructions: Sequence[Instructed]) -> str:
    """Return a hash of a model's instructions, without their changing parts; "" for none."""
    if not instructions:
        return ""
    said = [
        (event.role, _VARYING.sub("", bytes_of(event.payload).decode())) for event in instructions
    ]
    return _digest(_ENCODE(said)).hex()


def digest_of_response(response: str) -> str:
    """Return a hash of a response's id."""
    return _digest(response.encode("utf-8", "replace")).hex()


def tag_of(mark: bytes) -> str:
    """Return the tag of the sessions that have a place in their chain."""
    return f"proxy:{spell_hash(mark)}"


def spell_hash(end: bytes) -> str:
    """Return a hash in few characters."""
    return urlsafe_b64encode(end).decode()


_FIELDS = msgspec.json.Decoder(dict[str, Raw]).decode
_ITEMS = msgspec.json.Decoder(list[Raw]).decode
_PREVIOUS = "previous_response_id"


class ParsedRequest(Struct):
    """A client's request to a model, in parts.

    ``raws`` are the bytes of the messages in the conversation, ``instructions`` what comes before
    it, and ``beside`` the other fields of the body, without keys. ``previous`` is the id of the
    response under which the provider keeps the conversation, "" if the client sends all of it.
    """

    dialect: str
    raws: list[bytes]
    linked: list[Linked]
    instructions: list[Instructed]
    beside: dict[str, bytes]
    model: str = ""
    previous: str = ""

    @property
    def replies(self) -> list[bool]:
        """For each message, whether it comes from a model."""
        return [linked.role == ASSISTANT for linked in self.linked]

    def values(self, start: int = 0, stop: int | None = None) -> list[Any]:
        """Return some of the messages, decoded."""
        return [_DECODE(raw) for raw in self.raws[start:stop]]


def parse_request(dialect: str, body: bytes, linking: Linking, model: str = "") -> ParsedRequest:
    """Return the parts of a request's body; raise ``Unreadable`` if it has no list of messages."""
    try:
        try:
            return _take_apart(dialect, body, linking, model)
        except ValueError:
            # half a surrogate pair: Python reads it, and the stored text has a replacement
            plain = json.dumps(json.loads(body), ensure_ascii=False)
            return _take_apart(dialect, plain.encode("utf-8", "replace"), linking, model)
    except (ValueError, RecursionError):
        raise Unreadable("the body of the request holds no list of messages") from None


def _take_apart(dialect: str, body: bytes, linking: Linking, model: str) -> ParsedRequest:
    profile = profile_named(dialect)
    name, key = profile.dialect, profile.list_key
    fields = _FIELDS(body)
    listed = bytes(fields.get(key, b"[]"))
    # OpenAI's Responses API accepts a text instead of a single message
    is_text = listed[:1] == b'"'
    listed = b'[{"role":"user","content":%b}]' % listed if is_text else listed
    raws = list(map(bytes, _ITEMS(listed)))
    linked = linking.of_raws(name, raws)
    begun = next((n for n, one in enumerate(linked) if one.role != SYSTEM), len(raws))
    system = system_in({one: _DECODE(fields[one]) for one in SYSTEMS if one in fields})
    others = {one: bytes(raw) for one, raw in fields.items() if one not in (key, *SYSTEMS)}
    beside = {one: _without_secrets(raw) for one, raw in others.items() if one != _PREVIOUS}
    return ParsedRequest(
        name,
        raws[begun:],
        linked[begun:],
        instructions(name, system, [_DECODE(raw) for raw in raws[:begun]]),
        beside,
        model or _text(others.get("model")),
        _text(others.get(_PREVIOUS)) if VIEWS[name].previous_key else "",
    )


@lru_cache(256)
def _without_secrets(raw: bytes) -> bytes:
    """Return a field's value for a record: on one line, and without keys.

    Clients pass keys of other servers in the descriptions of their tools.
    """
    if b'"' not in raw and b"\n" not in raw and b"\r" not in raw:
        return raw
    value = _DECODE(raw)
    clean, found = redact_value(value)
    is_plain = not found and b"\n" not in raw and b"\r" not in raw
    return raw if is_plain else msgspec.json.encode(clean)


def _text(raw: bytes | None) -> str:
    value = _DECODE(raw) if raw is not None else ""
    return value if isinstance(value, str) else ""


# The name of a note that holds a message which cannot be read.
MESSAGE = "message"
_LOST = "[lockstitch] A tool result whose call cannot be told any more:"
Known = Sequence[tuple[int, int, AskedCall]]


class NewFact(Struct, frozen=True):
    """An event; ``ends`` is the message of the request that it completes, -1 for none."""

    event: Event
    ends: int = -1


def facts_of(asking: ParsedRequest, matched: int, known: Known, first: int) -> list[NewFact]:
    """Return the events for a request's messages after the first ``matched`` ones.

    ``known`` are the calls up to there, as the session has them, and ``first`` is the number of the
    record that the first event becomes.
    """
    if asking.previous:
        # calls that the provider has and the client does not send
        stubs = [
            {"type": "function_call", "call_id": asked.id, "name": asked.name, "arguments": "{}"}
            for _, _, asked in known
        ]
        return _NewMessages(asking, stubs, matched, known, first).facts()
    # the last replies among the first messages, which the following messages answer
    replies, start = asking.replies, matched
    while start and not replies[start - 1]:
        start -= 1
    while start and replies[start - 1]:
        start -= 1
    tail = _NewMessages(asking, asking.values(start, matched), matched, known, first)
    if tail.made.unpaired and start:
        # a late result answers an earlier call
        tail = _NewMessages(asking, asking.values(0, matched), matched, known, first)
    return tail.facts()


class _NewMessages:
    """The new messages of a request, read after ``before``, which has the calls they answer."""

    def __init__(
        self, asking: ParsedRequest, before: list[Any], matched: int, known: Known, first: int
    ) -> None:
        if before and new_dialect(asking.dialect).layout == FLAT:
            # consecutive items from a model are read as one reply
            before = [*before, said_as(asking.dialect, ".")]
        self.asking = asking
        messages = [*before, *asking.values(matched)]
        roles = [message.role for message in new_dialect(asking.dialect).read(messages)]
        spoken = [
            said_by_system(asking.dialect, raw) if role == SYSTEM else without_markers(raw)
            for raw, role in zip(messages, roles, strict=True)
        ]
        self.made = import_events(spoken, asking.dialect, keep_unpaired=True)
        self.before = len(before)
        self.known = known
        self.first = first
        # what to add to an index in the list to get the index in the request
        self.shift = matched - len(before)
        self.places: dict[int, int] = {}
        self.numbers: dict[tuple[int, int], int] = {}
        self.out: list[NewFact] = []

    def facts(self) -> list[NewFact]:
        # the calls of the replies that are there already, in order
        for number, event in enumerate(self.made.events, 1):
            if isinstance(event, Replied) and self.made.homes[number - 1] < self.before:
                for index in range(len(event.calls)):
                    self.numbers[number, index] = len(self.numbers)
        self.missing = len(self.numbers) - len(self.known)
        mine = [one for one in self._order_facts() if one[0] >= self.before]
        for (_, end, number), behind in zip(mine, [*mine[1:], None], strict=False):
            follows = behind is not None and behind[0] <= end
            self._put(number, end, -1 if follows else end + self.shift)
        return self.out

    def _order_facts(self) -> list[tuple[int, int, int]]:
        """Return the events in the order of their messages: first and last of these, and a number.

        The number is -1 for a message without an event. A result that comes before its call is
        moved after it.
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

    def _put(self, number: int, end: int, ends: int) -> None:
        if number < 0:
            raw = msgspec.json.encode(msgspec.json.decode(self.asking.raws[end + self.shift]))
            self.out.append(NewFact(Noted(name=MESSAGE, payload=Raw(raw)), ends))
            return
        event = self.made.events[number]
        if isinstance(event, Finished) and event.reply in self.places:
            event = structs.replace(event, reply=self.places[event.reply])
        elif isinstance(event, Finished):
            # the session's last calls are among those in the list
            at = self.numbers[event.reply, event.index] - self.missing
            if 0 <= at < len(self.known):
                reply, index, _ = self.known[at]
                event = structs.replace(event, reply=reply, index=index)
            else:
                text = msgspec.json.encode(event.payload).decode()
                event = Said(payload=text_payload(f"{_LOST}\n{text}"))
        self.places[number + 1] = self.first + len(self.out)
        if isinstance(event, Replied) and not event.calls:
            self.out.append(NewFact(event))
            self.out.append(NewFact(Ended(), ends))
        else:
            self.out.append(NewFact(event, ends))
