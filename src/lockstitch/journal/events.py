"""The events of a journal, and how each of them is written.

An event is written as one line of JSON: ``{"kind": "replied", …, "payload": …}``. The payload is
the one large value that an event may have, such as a provider's response. It is embedded as it
came, never decoded and encoded again; above ``INLINE`` bytes it goes into a separate blob. Fields
named ``reply`` hold the reply's position in the journal, and ``index`` numbers its calls from 0:
with several providers ids repeat across turns, positions do not.

A session's title, tags and metadata are an event, too. A store keeps a copy of the body of the last
one beside the session, so that a listing need not read the journal. The store recognizes such a
body by its first bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct, structs

from lockstitch.conversation.parts import repr_without
from lockstitch.errors import UsageError
from lockstitch.journal.records import JournalEntry, JournalRecord, blob_name

INLINE = 64 * 1024
NOTHING = Raw(b"null")

Role = Literal["system", "developer"]
Outcome = Literal["ok", "error", "cancelled", "timed-out", "unknown", "not-started"]


class AskedCall(Struct, frozen=True, omit_defaults=True, gc=False):
    """A call inside a reply: the id and the name that the model gave it, "" if it gave none."""

    id: str = ""
    name: str = ""


class Event(
    Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="kind",
    tag=str.lower,
    gc=False,
):
    """One immutable event; ``blob`` names the payload if that is kept in a separate blob."""

    payload: Raw = NOTHING
    blob: str = ""

    __repr__ = repr_without("payload", "title")


class Said(Event, frozen=True, kw_only=True):
    """The user said something: a JSON string, or the content of a message in ``dialect``."""

    dialect: str = ""


class Instructed(Event, frozen=True, kw_only=True):
    """Instructions that the model reads before the conversation: a JSON string, "" for none."""

    role: Role = "system"


class _ReplyEvent(Event, frozen=True, kw_only=True):
    dialect: str
    provider: str = ""
    model: str = ""
    calls: tuple[AskedCall, ...] = ()
    stream: str = ""
    after: int = 0


class Replied(_ReplyEvent, frozen=True, kw_only=True):
    """A model replied in full; the payload is the provider's response or message, byte for byte.

    ``stream`` identifies the stream that the reply came by; the reply replaces the partial replies
    of that stream. ``after`` is the last record that the request was made from, 0 if unknown:
    records that were written after it stand after the reply.
    """


class Partial(_ReplyEvent, frozen=True, kw_only=True):
    """The part of a reply that has been streamed so far: text and whole blocks, never half a call.

    The payload is a message in the format of ``dialect``. A later event of the same stream replaces
    all earlier ones.
    """


class _CallEvent(Event, frozen=True, kw_only=True):
    reply: int
    index: int = 0


class Started(_CallEvent, frozen=True, kw_only=True):
    """A call is about to run; ``effect`` is the idempotency key that its tool receives."""

    attempt: int = 1
    effect: str = ""


class Finished(_CallEvent, frozen=True, kw_only=True):
    """A call has an outcome; the payload is the result: a JSON string, or content in ``dialect``.

    ``synthetic`` marks an outcome that was concluded and not given by the tool; a real outcome that
    comes later replaces it.
    """

    attempt: int = 1
    outcome: Outcome = "ok"
    synthetic: bool = False
    dialect: str = ""


class Waiting(_CallEvent, frozen=True, kw_only=True):
    """A call waits for somebody's approval; the payload is the question to them, if there is one.

    With ``outside`` the call was started, and somebody else will deliver its result.
    """

    outside: bool = False


class Approved(_CallEvent, frozen=True, kw_only=True):
    """A call that was waiting for approval may run."""


class Denied(_CallEvent, frozen=True, kw_only=True):
    """A call that was waiting must not run; the payload is the reason, a JSON string, if any."""


class Interrupted(Event, frozen=True, kw_only=True):
    """The turn was interrupted; ``reason`` is a word for why: ``user``, ``crash``, ``error``."""

    reason: str = ""


class Resumed(Event, frozen=True, kw_only=True):
    """The interrupted turn goes on, without a new message of the user."""


class Ended(Event, frozen=True, kw_only=True):
    """The turn is over: the model asked for nothing more."""


class Compacted(Event, frozen=True, kw_only=True):
    """From here on a summary replaces everything up to ``through``, and long results are shortened.

    The payload is the summary, a JSON string. After the summary, results up to record ``shortened``
    are sent with at most ``limit`` characters, and media up to there become notes. Only the last
    event of this kind counts: one with neither undoes all compactions.
    """

    through: int = 0
    shortened: int = 0
    limit: int = 0


class Rewound(Event, frozen=True, kw_only=True):
    """The session goes on from record ``to``, as if nothing had come after it; nothing is deleted.

    A rewind to the record just before an earlier rewind undoes that rewind.
    """

    to: int
    reason: str = ""


class Forked(Event, frozen=True, kw_only=True):
    """Everything before this was copied from another session: its first ``at`` records."""

    source: str
    at: int


class Noted(Event, frozen=True, kw_only=True):
    """Something that no model sees: a ``checkpoint`` with a label, or a note of the caller's."""

    name: str
    label: str = ""


class Described(Event, frozen=True, kw_only=True):
    """The session's title, tags and metadata, all of them: only the last event of this kind counts.

    The payload is the caller's metadata, a JSON object. A rewind does not undo it.
    """

    title: str = ""
    tags: tuple[str, ...] = ()


class Unknown(Event, frozen=True, kw_only=True):
    """An event that this version cannot read; it is kept, and changes nothing."""


AnyEvent = (
    Said | Instructed | Replied | Partial | Started | Finished | Waiting | Approved | Denied
    | Interrupted | Resumed | Ended | Compacted | Rewound | Forked | Noted | Described
)  # fmt: skip
_DECODER = msgspec.json.Decoder(AnyEvent)
_DECODE = msgspec.json.Decoder().decode
_ENCODER = msgspec.json.Encoder()


def payload_of(value: bytes | str) -> Raw:
    """Return a reply's JSON as a payload, byte for byte; raise ``ValueError`` if it is not JSON.

    A journal line must not contain a line break, or anything that a strict reader refuses, such as
    half an emoji. JSON with any of these is stored inside a JSON string.
    """
    raw = value.encode("utf-8", "replace") if isinstance(value, str) else bytes(value)
    if b"\n" not in raw and b"\r" not in raw:
        with suppress(ValueError, RecursionError):
            _DECODE(raw)
            return Raw(raw)
    json.loads(raw)
    return text_payload(raw.decode("utf-8", "replace"))


def bytes_of(payload: Raw) -> bytes:
    """Return the bytes given to :func:`payload_of`; a reply itself is never a JSON string."""
    raw = bytes(payload)
    return str(_DECODE(raw)).encode() if raw[:1] == b'"' else raw


def text_payload(text: str) -> Raw:
    """Return a text as a payload; characters that UTF-8 cannot encode are replaced."""
    return Raw(_ENCODER.encode(text.encode("utf-8", "replace").decode()))


def entry_of(event: Event, key: str, at: int) -> JournalEntry:
    """Return the entry to store for an event; a large payload becomes a blob."""
    large = bytes(event.payload)
    if len(large) <= INLINE:
        return JournalEntry(key, at, _ENCODER.encode(event))
    return JournalEntry(key, at, _ENCODER.encode(as_stored(event)), (large,))


def as_stored(event: Event) -> Event:
    """Return an event as its record holds it: the name of a blob replaces a large payload."""
    large = bytes(event.payload)
    if len(large) <= INLINE:
        return event
    return structs.replace(event, payload=NOTHING, blob=blob_name(large))


def event_of(record: JournalRecord) -> Event:
    """Return a record's event; one that cannot be read becomes ``Unknown`` and keeps its bytes."""
    try:
        event: Event = _DECODER.decode(record.body)
    except (ValueError, RecursionError):
        # Characters that a strict reader refuses, such as half an emoji, are replaced.
        try:
            value = json.loads(record.body)
            clean = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
            event = _DECODER.decode(clean)
        except (ValueError, RecursionError):
            return Unknown(payload=Raw(record.body))
    return event


def value_of(payload: Raw | str, *, inner: bool = False) -> Any:
    """Decode a payload; raise ``ValueError`` if it is not JSON.

    ``inner`` is for payloads made by :func:`payload_of`, which may be JSON inside a JSON string.
    """
    try:
        value = _DECODE(payload)
    except ValueError:
        value = json.loads(payload if isinstance(payload, str) else bytes(payload))
    return value_of(value) if inner and isinstance(value, str) else value


BEGINNING = b'{"kind":"described"'
LONGEST_TITLE = 300
LONGEST_TAG = 100
MOST_TAGS = 64
LARGEST = 16 * 1024
_ABOUT_DECODER = msgspec.json.Decoder(Described)


class About(Struct, frozen=True):
    """A session's title ("" for none), tags and metadata."""

    title: str = ""
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}

    __repr__ = repr_without("title", "metadata")


NO_ABOUT = About()


def about_in(bodies: Iterable[bytes]) -> bytes | None:
    """Return the last body that describes the session, among those of new records."""
    found = None
    for body in bodies:
        if body.startswith(BEGINNING):
            found = body
    return found


def about_of(body: bytes | None) -> About:
    """Decode a body found by :func:`about_in`; one that cannot be read counts as empty."""
    if not body:
        return NO_ABOUT
    try:
        return about_from(_ABOUT_DECODER.decode(body))
    except (ValueError, RecursionError):
        return NO_ABOUT


def about_from(event: Described | None) -> About:
    """Return the title, tags and metadata in an event."""
    if event is None:
        return NO_ABOUT
    metadata = value_of(event.payload)
    return About(event.title, event.tags, metadata if isinstance(metadata, dict) else {})


def describe(
    before: About,
    title: str | None = None,
    tags: Iterable[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Described:
    """Return an event with a session's title, tags and metadata; None keeps what was ``before``."""
    return Described(
        title=before.title if title is None else check_title(title),
        tags=before.tags if tags is None else check_tags(tags),
        payload=_payload(before.metadata if metadata is None else metadata),
    )


def check_title(title: object) -> str:
    """Return a title if it is valid; raise ``UsageError`` otherwise."""
    if not isinstance(title, str) or len(title) > LONGEST_TITLE or not title.isprintable():
        raise UsageError(f"a title must be one line of at most {LONGEST_TITLE} characters")
    return title


def check_tags(tags: object) -> tuple[str, ...]:
    """Return tags without duplicates, in order; raise ``UsageError`` if one is not valid."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise UsageError("tags must be a list of strings")
    found = list(tags)
    if len(found) > MOST_TAGS or not all(
        isinstance(tag, str) and 0 < len(tag) <= LONGEST_TAG and tag.isprintable() for tag in found
    ):
        raise UsageError(
            f"tags must be at most {MOST_TAGS} strings of 1 to {LONGEST_TAG} characters on one line"
        )
    return tuple(sorted(set(found)))


def _payload(metadata: object) -> Raw:
    if not isinstance(metadata, Mapping):
        raise UsageError("metadata must be a dictionary that can be written as JSON")
    try:
        raw = msgspec.json.encode(dict(metadata))
    except (TypeError, ValueError, RecursionError):
        raise UsageError("metadata must be a dictionary that can be written as JSON") from None
    if len(raw) > LARGEST:
        raise UsageError(f"metadata may have at most {LARGEST} bytes as JSON; this has {len(raw)}")
    return Raw(raw)
