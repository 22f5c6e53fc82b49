"""How an event is kept: its bytes, where it stands, who wrote it, and a checksum over all before.

A store knows nothing of what an event says. It keeps records in order, and every record carries a
checksum that covers the one before it, so a changed byte, a missing record or two that changed
places are found on reading, whatever the store's own format lets pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from msgspec import Struct

from lockstitch.errors import Damaged, UsageError

DIGEST_SIZE = 16
START = bytes(DIGEST_SIZE)
BLOB_NAME_SIZE = 32
_SESSION = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_INBOX = "~inbox"
_KEY = re.compile(r"[\x21-\x7e]{1,128}")


class Entry(Struct, frozen=True, gc=False):
    """An event on its way into a store.

    ``key`` names it once in its session: sent again after an unknown outcome it is kept once.
    ``body`` is one line of JSON without a line break; ``at`` is milliseconds since 1970.
    ``blobs`` are the large values that the body names by :func:`blob_name`.
    """

    key: str
    at: int
    body: bytes
    blobs: tuple[bytes, ...] = ()


class Record(Struct, frozen=True, gc=False):
    """An event in a store: the ``seq``-th of its session, from 1, written under ``epoch``."""

    seq: int
    epoch: int
    key: str
    at: int
    body: bytes
    digest: bytes


class Head(Struct, frozen=True, gc=False):
    """Where a session stands: its last record (0 for none), that one's digest, its last epoch."""

    seq: int = 0
    digest: bytes = START
    epoch: int = 0


NEW = Head()
# A copy of a hash that has seen nothing yet is made in a third of the time of a new one.
_fresh = blake2b(digest_size=DIGEST_SIZE).copy


def digest_of(before: bytes, seq: int, epoch: int, entry: Entry | Record) -> bytes:
    """Compute a record's checksum, which covers the record before it."""
    hashed = _fresh()
    hashed.update(b"%b%d %d %d %b\n" % (before, seq, epoch, entry.at, entry.key.encode("ascii")))
    hashed.update(entry.body)
    return hashed.digest()


def chained(head: Head, epoch: int, entries: Iterable[Entry]) -> list[Record]:
    """Make the records that follow a head."""
    records: list[Record] = []
    seq, before = head.seq, head.digest
    for entry in entries:
        seq += 1
        before = digest_of(before, seq, epoch, entry)
        records.append(Record(seq, epoch, entry.key, entry.at, entry.body, before))
    return records


def verified(records: Iterable[Record], head: Head, where: str) -> Iterator[Record]:
    """Pass records on that follow ``head``; raises ``Damaged`` at the first that does not."""
    seq, before, epoch = head.seq, head.digest, 0
    for record in records:
        seq += 1
        if record.seq != seq:
            raise Damaged(f"{where}: record {seq} is missing, the next one is {record.seq}")
        before = digest_of(before, seq, record.epoch, record)
        if before != record.digest:
            raise Damaged(f"{where}: record {seq} is not what was written (checksum)")
        if record.epoch < epoch:
            raise Damaged(f"{where}: record {seq} was written under an older lease")
        epoch = record.epoch
        yield record


def blob_name(value: bytes) -> str:
    """Name a large value by its content: 32 hexadecimal digits."""
    return blake2b(value, digest_size=BLOB_NAME_SIZE // 2).hexdigest()


def inbox_of(session: str) -> str:
    """Name the journal that holds what others delivered to a session."""
    return checked_name(session) + _INBOX


def is_inbox(name: str) -> bool:
    """Whether a journal is a session's inbox, not a session."""
    return name.endswith(_INBOX)


def checked_session(name: object) -> str:
    """Give the name of a session's journal back, or of its inbox, if it may be one."""
    if isinstance(name, str) and is_inbox(name):
        return checked_name(name.removesuffix(_INBOX)) + _INBOX
    return checked_name(name)


def checked_name(name: object) -> str:
    """Give a session's name back if it may be one: it becomes file names and parts of URLs."""
    if not isinstance(name, str) or not _SESSION.fullmatch(name):
        raise UsageError(
            "a session's name has 1 to 128 letters, digits, '.', '_' or '-' and no leading dot"
        )
    return name


def checked_key(key: object) -> str:
    """Give an idempotency key back if it may be one."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise UsageError("a key has 1 to 128 printable ASCII characters and no space")
    return key
