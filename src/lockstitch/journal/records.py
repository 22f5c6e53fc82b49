"""How a store keeps an event: as bytes, with a position, a writer and a chained checksum.

A store knows nothing about the content of an event. It keeps records in order. The checksum of each
record covers the checksum of the record before it, so a reader notices a changed byte, a missing
record or two swapped records, even where the store's own format would accept them. Large values are
kept apart from the records that name them, and are read only as far as needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b

import msgspec
from msgspec import Struct

from lockstitch.conversation.parts import repr_without
from lockstitch.errors import Damaged, UsageError, Where

DIGEST_SIZE = 16
START = bytes(DIGEST_SIZE)
BLOB_NAME_SIZE = 32
_SESSION = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_INBOX = "~inbox"
_JOURNAL = re.compile(rf"{_SESSION.pattern}(?:{_INBOX})?")
_KEY = re.compile(r"[\x21-\x7e]{1,128}")


class JournalEntry(Struct, frozen=True, gc=False):
    """An event on its way into a store.

    ``key`` identifies the event within its session: an event that is sent again after an unknown
    outcome is stored only once. ``body`` is one line of JSON without a line break; ``at`` is
    milliseconds since 1970. ``blobs`` are the large values that the body names by
    :func:`blob_name`.
    """

    key: str
    at: int
    body: bytes
    blobs: tuple[bytes, ...] = ()

    __repr__ = repr_without("body", "blobs")


class JournalRecord(Struct, frozen=True, gc=False):
    """An event in a store: number ``seq`` of its session, from 1, written under ``epoch``."""

    seq: int
    epoch: int
    key: str
    at: int
    body: bytes
    digest: bytes

    __repr__ = repr_without("body")


class Head(Struct, frozen=True, gc=False):
    """The end of a session: its last record (0 for none), that record's digest, its last epoch."""

    seq: int = 0
    digest: bytes = START
    epoch: int = 0


NEW = Head()
# Copying an unused hash object takes a third of the time of creating a new one.
_fresh = blake2b(digest_size=DIGEST_SIZE).copy


def digest_of(before: bytes, seq: int, epoch: int, entry: JournalEntry | JournalRecord) -> bytes:
    """Return the checksum of a record, which covers the checksum of the record before it."""
    hashed = _fresh()
    hashed.update(b"%b%d %d %d %b\n" % (before, seq, epoch, entry.at, entry.key.encode("ascii")))
    hashed.update(entry.body)
    return hashed.digest()


def chain_entries(head: Head, epoch: int, entries: Iterable[JournalEntry]) -> list[JournalRecord]:
    """Return the records that entries become when they are appended after a head."""
    records: list[JournalRecord] = []
    seq, before = head.seq, head.digest
    for entry in entries:
        seq += 1
        before = digest_of(before, seq, epoch, entry)
        records.append(JournalRecord(seq, epoch, entry.key, entry.at, entry.body, before))
    return records


def verify_chain(
    records: Iterable[JournalRecord],
    after: Head,
    where: Where,
    *,
    last: int = 0,
    end: Head | None = None,
) -> Iterator[JournalRecord]:
    """Yield the records that follow ``after``; raise ``Damaged`` at the first that does not fit.

    ``Damaged`` is also raised if the records end before number ``last``, or if the last record of
    the session is not the one that ``end`` names.
    """
    seq, before, epoch = after.seq, after.digest, 0
    for record in records:
        seq += 1
        if record.seq != seq:
            raise Damaged(f"record {seq} is missing; the next one is {record.seq}").about(*where)
        before = digest_of(before, seq, record.epoch, record)
        if before != record.digest:
            raise Damaged(f"record {seq} is not what was written (checksum)").about(*where)
        if record.epoch < epoch:
            raise Damaged(f"record {seq} was written under an older lease").about(*where)
        epoch = record.epoch
        yield record
    if seq < last:
        raise Damaged(f"record {seq + 1} is missing; the session continues to record {last}").about(
            *where
        )
    if end is not None and seq == end.seq and before != end.digest:
        raise Damaged(f"record {seq} is not the last one that was written (checksum)").about(*where)


def blob_name(value: bytes) -> str:
    """Return the name of a large value: a hash of its content, 32 hexadecimal digits."""
    return blake2b(value, digest_size=BLOB_NAME_SIZE // 2).hexdigest()


def inbox_of(session: str) -> str:
    """Return the name of the journal that holds the results which others delivered to a session."""
    return check_name(session) + _INBOX


def is_inbox(name: str) -> bool:
    """Whether a journal is a session's inbox, not a session."""
    return name.endswith(_INBOX)


def is_session_name(name: str) -> bool:
    """Whether this is a valid name for a session's journal, or for its inbox."""
    return bool(_JOURNAL.fullmatch(name))


def check_session_name(name: object) -> str:
    """Return the name of a session's journal or inbox; raise ``UsageError`` if it is not valid."""
    if isinstance(name, str) and _JOURNAL.fullmatch(name):
        return name
    return check_name(name)


def check_name(name: object) -> str:
    """Return a session's name, which becomes part of file names and URLs, if it is valid."""
    if not isinstance(name, str) or not _SESSION.fullmatch(name):
        raise UsageError(
            "a session's name must have 1 to 128 letters, digits, '.', '_' or '-' and no "
            "leading dot"
        )
    return name


def check_key(key: object) -> str:
    """Return an idempotency key if it is valid; raise ``UsageError`` otherwise."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise UsageError("a key must have 1 to 128 printable ASCII characters and no space")
    return key


_decode = msgspec.json.Decoder(str).decode
# The most bytes that one character, or one escape, takes in a JSON string.
WIDEST = 6
# How many bytes from a cut to search for the start of a character.
_NEAR = 200
_CONTINUES = 0b1000_0000
_MASK = 0b1100_0000


class Large:
    """Large values in memory, by name; a missing value reads as JSON null."""

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self._values = values

    def whole(self, name: str) -> bytes:
        """Return the bytes of a value."""
        return self._values.get(name, b"null")

    def sizes(self, names: list[str]) -> Mapping[str, int]:
        """Return the length of each named value in bytes."""
        return {name: len(self.whole(name)) for name in names}

    def ends(self, name: str, head: int, tail: int) -> tuple[bytes, bytes]:
        """Return the first ``head`` and the last ``tail`` bytes of a value."""
        value = self.whole(name)
        return value[:head], value[len(value) - tail :]


class StoredLarge(Large):
    """Large values that stay in the store; only their sizes are kept in memory.

    The first read of a value always fetches all of it, so that the store verifies its checksum.
    """

    def __init__(
        self,
        fetch: Callable[[list[str]], Mapping[str, bytes]],
        sizes: Callable[[list[str]], Mapping[str, int]],
        ends: Callable[[str, int, int], tuple[bytes, bytes]],
    ) -> None:
        super().__init__({})
        self._fetch, self._sizes, self._ends = fetch, sizes, ends
        self._known: dict[str, int] = {}
        self._verified: set[str] = set()

    def whole(self, name: str) -> bytes:
        return self._fetch([name])[name]

    def sizes(self, names: list[str]) -> Mapping[str, int]:
        unknown = [name for name in names if name not in self._known]
        if unknown:
            self._known.update(self._sizes(unknown))
        return {name: self._known[name] for name in names}

    def ends(self, name: str, head: int, tail: int) -> tuple[bytes, bytes]:
        if name in self._verified:
            return self._ends(name, head, tail)
        value = self.whole(name)
        self._verified.add(name)
        return value[:head], value[len(value) - tail :]


def text_ends(large: Large, name: str, head: int, tail: int) -> tuple[str, str] | None:
    """Return the first and the last characters of a stored text without reading its middle.

    Return None if the value is not a JSON string, or if it should be read as a whole.
    """
    for width in (1.2, 2, WIDEST):
        first, last = large.ends(name, int(width * (head + 200)), int(width * (tail + 200)))
        if first[:1] != b'"' or last[-1:] != b'"':
            return None
        # Cut the head as late and the tail as early as possible, but never inside a character or
        # escape.
        head_raw, tail_raw = first[1:], last[:-1]
        stops = range(len(head_raw) - 1, max(len(head_raw) - _NEAR, 0), -1)
        starts = range(WIDEST, min(len(tail_raw), _NEAR))
        stop, start = _first_boundary(head_raw, stops), _first_boundary(tail_raw, starts)
        before = None if stop is None else _decoded(head_raw[:stop])
        behind = None if start is None else _decoded(tail_raw[start:])
        if before is None or behind is None:
            return None
        if len(before) >= head and len(behind) >= tail:
            return before[:head], behind[len(behind) - tail :]
    return None


def _first_boundary(raw: bytes, places: Iterable[int]) -> int | None:
    """Return the first of some offsets at which a character begins and no escape is near."""
    for at in places:
        if raw[at] & _MASK != _CONTINUES and b"\\" not in raw[max(at - WIDEST, 0) : at]:
            return at
    return None


def _decoded(raw: bytes) -> str | None:
    """Return the text of a JSON string without its quotes, or None if it is not valid."""
    try:
        return _decode(b'"%b"' % raw)
    except ValueError:
        return None
