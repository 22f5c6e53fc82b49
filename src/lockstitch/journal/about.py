"""What a session is called and belongs to: its title, its tags, and the caller's metadata.

It is a fact like any other. A store keeps the body of the last one beside the session, so that a
listing need not read the journal; it finds it by how such a body begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from lockstitch.errors import UsageError
from lockstitch.journal.events import Described, value_of

BEGINNING = b'{"kind":"described"'
LONGEST_TITLE = 300
LONGEST_TAG = 100
MOST_TAGS = 64
LARGEST = 16 * 1024
_DECODER = msgspec.json.Decoder(Described)


class About(Struct, frozen=True):
    """A session's title ("" for none), tags and metadata."""

    title: str = ""
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}


NOTHING = About()


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
        return NOTHING
    try:
        return told(_DECODER.decode(body))
    except (ValueError, RecursionError):
        return NOTHING


def told(event: Described | None) -> About:
    """Return what an event says."""
    if event is None:
        return NOTHING
    metadata = value_of(event.payload)
    return About(event.title, event.tags, metadata if isinstance(metadata, dict) else {})


def described(
    before: About,
    title: str | None = None,
    tags: Iterable[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Described:
    """Say what a session is called and belongs to; what is None stays as it was before."""
    return Described(
        title=before.title if title is None else checked_title(title),
        tags=before.tags if tags is None else checked_tags(tags),
        payload=_payload(before.metadata if metadata is None else metadata),
    )


def checked_title(title: object) -> str:
    """Give a title back if it may be one."""
    if not isinstance(title, str) or len(title) > LONGEST_TITLE or not title.isprintable():
        raise UsageError(f"a title is one line of at most {LONGEST_TITLE} characters")
    return title


def checked_tags(tags: object) -> tuple[str, ...]:
    """Give tags back if they may be some, each once, in order."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise UsageError("tags are a list of texts")
    found = list(tags)
    if len(found) > MOST_TAGS or not all(map(_may_be_tag, found)):
        raise UsageError(
            f"tags are at most {MOST_TAGS} texts of 1 to {LONGEST_TAG} characters on one line"
        )
    return tuple(sorted(set(found)))


def _may_be_tag(tag: object) -> bool:
    return isinstance(tag, str) and 0 < len(tag) <= LONGEST_TAG and tag.isprintable()


def _payload(metadata: object) -> Raw:
    if not isinstance(metadata, Mapping):
        raise UsageError("metadata is a dictionary that can be written as JSON")
    try:
        raw = msgspec.json.encode(dict(metadata))
    except (TypeError, ValueError, RecursionError):
        raise UsageError("metadata is a dictionary that can be written as JSON") from None
    if len(raw) > LARGEST:
        raise UsageError(f"metadata has at most {LARGEST} bytes as JSON; this has {len(raw)}")
    return Raw(raw)
