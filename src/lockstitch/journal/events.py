"""The facts a journal is made of, and how each is written.

An event is written as one line of JSON: ``{"kind": "replied", …, "payload": …}``. The payload is
the one large value an event may have, a provider's own bytes among them: it is embedded as it
came, never decoded and encoded again. Beyond ``INLINE`` bytes it goes into a blob of its own.
Numbers named ``reply`` are the position of the reply in the journal, and ``index`` counts its
calls from 0: ids repeat across turns with several providers, positions do not.

A session's title, tags and metadata are a fact like any other. A store keeps the body of the last
one beside the session, so that a listing need not read the journal; it finds it by how such a body
begins.
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
    """A call inside a reply: the id and the name that the model gave, "" for none."""

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
    """One immutable fact; ``blob`` names the payload if it is stored separately."""

    payload: Raw = NOTHING
    blob: str = ""

    __repr__ = repr_without("payload", "title")


class Said(Event, frozen=True, kw_only=True):
    """The user said something: a JSON string, or a message's content in the form of ``dialect``."""

    dialect: str = ""


class Instructed(Event, frozen=True, kw_only=True):
    """What the model reads before the conversation: a JSON string, "" to remove it."""

    role: Role = "system"


class _ReplyEvent(Event, frozen=True, kw_only=True):
    dialect: str
    provider: str = ""
    model: str = ""
    calls: tuple[AskedCall, ...] = ()
    stream: str = ""
    after: int = 0


class Replied(_ReplyEvent, frozen=True, kw_only=True):
    """A model's complete reply; the payload is the provider's response or message, byte for byte.

    ``stream`` names the stream it came from, whose partial replies it replaces. ``after`` is the
    last record that its request was made from, 0 if not known: what was said later comes after it.
    """


class Partial(_ReplyEvent, frozen=True, kw_only=True):
    """What had arrived of a reply so far: text and complete blocks, never half a call.

    The payload is a message in the form of ``dialect``. A later one of the same stream replaces all
    earlier ones.
    """


class _CallEvent(Event, frozen=True, kw_only=True):
    reply: int
    index: int = 0


class Started(_CallEvent, frozen=True, kw_only=True):
    """A call is about to run; ``effect`` is the idempotency key that the tool gets."""

    attempt: int = 1
    effect: str = ""


class Finished(_CallEvent, frozen=True, kw_only=True):
    """A call has an outcome; the payload is its result: a JSON string, or content in ``dialect``.

    ``synthetic`` marks an outcome that did not come from the tool: a real one that arrives later
    replaces it.
    """

    attempt: int = 1
    outcome: Outcome = "ok"
    synthetic: bool = False
    dialect: str = ""


class Waiting(_CallEvent, frozen=True, kw_only=True):
    """A call is waiting for approval; the payload is the question, if any.

    With ``outside`` it was started, and its result will be delivered from outside.
    """

    outside: bool = False


class Approved(_CallEvent, frozen=True, kw_only=True):
    """A waiting call may run."""


class Denied(_CallEvent, frozen=True, kw_only=True):
    """A waiting call must not run; the payload is the reason, if any: a JSON string."""


class Interrupted(Event, frozen=True, kw_only=True):
    """The turn was interrupted; ``reason`` is a word for why: ``user``, ``crash``, ``error``."""

    reason: str = ""


class Resumed(Event, frozen=True, kw_only=True):
    """The interrupted turn continues, without a new message from the user."""


class Ended(Event, frozen=True, kw_only=True):
    """The model yielded: the turn is over."""


class Compacted(Event, frozen=True, kw_only=True):
    """From here on a summary is sent instead of everything up to ``through``, and less after it.

    The payload is the summary, a JSON string. After it, results up to record ``shortened`` are sent
    with at most ``limit`` characters, and media up to there as a note. Only the last fact of this
    kind counts: one with neither undoes every compaction.
    """

    through: int = 0
    shortened: int = 0
    limit: int = 0


class Rewound(Event, frozen=True, kw_only=True):
    """The session continues from ``to``, as if what came after had not been; nothing is deleted.

    A rewind to just before another rewind undoes that one.
    """

    to: int
    reason: str = ""


class Forked(Event, frozen=True, kw_only=True):
    """Everything before was copied from another session: its first ``at`` records."""

    source: str
    at: int


class Noted(Event, frozen=True, kw_only=True):
    """Something that no model sees: a ``checkpoint`` with its label, or a note of the caller."""

    name: str
    label: str = ""


class Described(Event, frozen=True, kw_only=True):
    """The session's title, tags and metadata; only the last fact of this kind counts.

    The payload is the caller's metadata, an object. A rewind does not undo it.
    """

    title: str = ""
    tags: tuple[str, ...] = ()


class Unknown(Event, frozen=True, kw_only=True):
    """An event that this version cannot read; it changes nothing and is kept."""


AnyEvent = (
    Said | Instructed | Replied | Partial | Started | Finished | Waiting | Approved | Denied
    | Interrupted | Resumed | Ended | Compacted | Rewound | Forked | Noted | Described
)  # fmt: skip
_DECODER = msgspec.json.Decoder(AnyEvent)
_DECODE = msgspec.json.Decoder().decode
_ENCODER = msgspec.json.Encoder()


def payload_of(value: bytes | str) -> Raw:
    """Take a reply's JSON as a payload, byte for byte; raises ``ValueError`` if it is none.

    A line of a journal holds no line break and nothing that a strict reader refuses, such as half
    an emoji: JSON that does is kept as a JSON string of itself.
    """
    raw = value.encode("utf-8", "replace") if isinstance(value, str) else bytes(value)
    if b"\n" not in raw and b"\r" not in raw:
        with suppress(ValueError, RecursionError):
            _DECODE(raw)
            return Raw(raw)
    json.loads(raw)
    return text_payload(raw.decode("utf-8", "replace"))


def bytes_of(payload: Raw) -> bytes:
    """Return the bytes that :func:`payload_of` took; a reply is never a JSON string itself."""
    raw = bytes(payload)
    return str(_DECODE(raw)).encode() if raw[:1] == b'"' else raw


def text_payload(text: str) -> Raw:
    """Take a text as a payload; what UTF-8 cannot say in it is replaced."""
    return Raw(_ENCODER.encode(text.encode("utf-8", "replace").decode()))


def entry_of(event: Event, key: str, at: int) -> JournalEntry:
    """Write an event; a large payload goes into a blob."""
    large = bytes(event.payload)
    if len(large) <= INLINE:
        return JournalEntry(key, at, _ENCODER.encode(event))
    return JournalEntry(key, at, _ENCODER.encode(as_stored(event)), (large,))


def as_stored(event: Event) -> Event:
    """Return an event as its record has it: a large payload is named, not held."""
    large = bytes(event.payload)
    if len(large) <= INLINE:
        return event
    return structs.replace(event, payload=NOTHING, blob=blob_name(large))


def event_of(record: JournalRecord) -> Event:
    """Read an event; what cannot be read is ``Unknown``, with its bytes as they are."""
    try:
        event: Event = _DECODER.decode(record.body)
    except (ValueError, RecursionError):
        # What a strict reader refuses in a text, such as half an emoji, is replaced.
        try:
            value = json.loads(record.body)
            clean = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
            event = _DECODER.decode(clean)
        except (ValueError, RecursionError):
            return Unknown(payload=Raw(record.body))
    return event


def value_of(payload: Raw | str, *, inner: bool = False) -> Any:
    """Decode a payload; ``inner`` is for those of :func:`payload_of`. Raises ``ValueError``."""
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
    """Find the last body among those of new records that describes their session."""
    found = None
    for body in bodies:
        if body.startswith(BEGINNING):
            found = body
    return found


def about_of(body: bytes | None) -> About:
    """Read such a body; one that cannot be read says nothing."""
    if not body:
        return NO_ABOUT
    try:
        return about_from(_ABOUT_DECODER.decode(body))
    except (ValueError, RecursionError):
        return NO_ABOUT


def about_from(event: Described | None) -> About:
    """Return what an event says."""
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
    """Return what a session is called and belongs to; what is None stays as before."""
    return Described(
        title=before.title if title is None else check_title(title),
        tags=before.tags if tags is None else check_tags(tags),
        payload=_payload(before.metadata if metadata is None else metadata),
    )


def check_title(title: object) -> str:
    """Return a title if it may be one."""
    if not isinstance(title, str) or len(title) > LONGEST_TITLE or not title.isprintable():
        raise UsageError(f"a title must be one line of at most {LONGEST_TITLE} characters")
    return title


def check_tags(tags: object) -> tuple[str, ...]:
    """Return tags if they may be some, each once, in order."""
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
