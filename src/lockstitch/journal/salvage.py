"""Find out which records of a damaged session are still intact, and rebuild a session from them.

The checksum of a record covers the record before it only through that record's checksum. So the
records after a damaged one are proven by the checksum that the damaged one still carries, and are
not lost with it. If one bit has flipped, the checksum tells which one, and it is flipped back. A
record that cannot be proven is marked, and bytes that make no sense are kept as they are.

The rebuilt session has the same records under the same numbers, since events refer to others by
number. In place of a lost record stands a note with whatever is left of it. Nothing is made up:
words and results whose large value is gone say so. A reply whose content is gone becomes a note,
because nobody knows which tools it called.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct, structs

from lockstitch.conversation.parts import repr_without
from lockstitch.errors import UsageError
from lockstitch.journal.events import Finished, Noted, Said, entry_of, event_of, text_payload
from lockstitch.journal.records import (
    DIGEST_SIZE,
    START,
    Head,
    JournalEntry,
    JournalRecord,
    blob_name,
    check_key,
    digest_of,
)

Proof = Literal["intact", "behind", "restored", "unproven", "damaged", "missing"]
# The largest body, in bytes, in which searching for one changed bit does not take too long.
SEARCHED = 16 * 1024
_MOST_LINKS = 8
_WORD = 63


class Remnant(Struct, frozen=True):
    """What a store holds of one record, valid or not.

    ``seq`` is the number that it is stored under, 0 if unknown. ``raw`` holds the bytes of a
    remnant that does not form a record. ``is_altered`` says that the store had to correct something
    in order to read it, and ``is_sealed`` that a checksum of the store's own fits. ``is_guess``
    says that it may not belong to the session at all, so that it counts only if a checksum proves
    it.
    """

    seq: int
    record: JournalRecord | None = None
    raw: bytes = b""
    is_altered: bool = False
    is_sealed: bool = False
    is_guess: bool = False

    __repr__ = repr_without("raw")


class Remains(Struct, frozen=True):
    """Everything that a store holds of a session: where it says the session ends, and the remnants.

    The remnants are in order. ``notes`` describe any other damage. ``stamp`` belongs to the store,
    which can tell from it later whether the session has changed.
    """

    head: Head | None
    remnants: list[Remnant]
    notes: tuple[str, ...] = ()
    stamp: str = ""


class Salvaged(Struct, frozen=True):
    """One record of a damaged session, and how far it can be trusted.

    ``proof`` is ``intact`` for a record that is what was written, as is everything before it, and
    ``behind`` for one that is what was written but stands after damage. ``restored`` means that it
    was changed and has been corrected to what was written. ``unproven`` means that it can be read,
    but the record that would prove it is lost. ``damaged`` means that it is not what was written.
    ``missing`` means that there is no record; ``count`` says how many are missing from ``seq`` on.
    """

    seq: int
    proof: Proof
    record: JournalRecord | None = None
    raw: bytes = b""
    why: str = ""
    count: int = 1

    __repr__ = repr_without("raw")

    @property
    def is_readable(self) -> bool:
        """Whether the record can be used as it is."""
        return self.proof not in {"damaged", "missing"}


class Salvage(Struct, frozen=True):
    """A session as far as it can be read, record by record.

    ``lost`` names the large values that are gone or changed, each with the numbers of the records
    that name it. ``notes`` describe any other damage. A whole session has neither, and only intact
    records.
    """

    session: str
    records: list[Salvaged]
    lost: dict[str, list[int]]
    notes: tuple[str, ...] = ()
    stamp: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the entire session is as it was written."""
        return not self.lost and not self.notes and all(r.proof == "intact" for r in self.records)

    @property
    def readable(self) -> int:
        """The number of records that can be read."""
        return sum(one.is_readable for one in self.records)

    @property
    def behind(self) -> int:
        """The number of readable records after the first damage."""
        first = next((n for n, one in enumerate(self.records) if one.proof != "intact"), None)
        return 0 if first is None else sum(one.is_readable for one in self.records[first + 1 :])

    @property
    def holes(self) -> list[Salvaged]:
        """The records that are lost, because they are damaged or missing."""
        return [one for one in self.records if not one.is_readable]


def judge_remains(remains: Remains) -> tuple[list[Salvaged], tuple[str, ...]]:
    """Judge what is left of a session; return its records, and what is wrong with its end."""
    judge = _RemnantJudge(remains)
    for seq in range(1, judge.last + 1):
        judge.judge(seq)
    return judge.finish(remains.head)


class _RemnantJudge:
    """Judges the records of a session in order of their numbers.

    ``_links`` holds the checksums that the previous record may have: the next record is proven if
    it follows from one of them.
    """

    def __init__(self, remains: Remains) -> None:
        self.head = remains.head
        found = remains.remnants
        # A number this far above the count of records must itself be damaged.
        bound = 4 * len(found) + 10_000
        self._numbered: dict[int, list[Remnant]] = {}
        self._loose: list[Remnant] = []
        for one in found:
            if 0 < one.seq <= bound:
                self._numbered.setdefault(one.seq, []).append(one)
            else:
                self._loose.append(one)
        self.last = max(self._numbered, default=0)
        self._end = 0 if self.head is None or self.head.seq > bound else self.head.seq
        if not self._numbered or self._end > self.last:
            self.last = max(self.last, self._end)
        self._links = [START]
        self._done: list[Salvaged] = []
        self._is_whole = True

    def judge(self, seq: int) -> None:
        """Judge the record with this number."""
        here = self._numbered.get(seq, [])
        # Any session's first record follows from START, so a fit proves nothing about a guessed
        # one.
        loose = (one for one in self._loose if seq > 1 or not one.is_guess)
        for one in chain(here, loose):
            proven = self._proven(one, seq)
            if proven is not None:
                if one in self._loose:
                    self._loose.remove(one)
                if one.is_altered or one.seq != seq:
                    self._is_whole = False
                    self._take(Salvaged(seq, "restored", proven, why=_FORM), proven.digest)
                else:
                    proof: Proof = "intact" if self._is_whole else "behind"
                    self._take(Salvaged(seq, proof, proven), proven.digest)
                self._loose += [other for other in here if other is not one]
                return
        sure = [one for one in here if not one.is_guess]
        self._loose += sure[1:]
        if not sure:
            last = self._done[-1] if self._done else None
            if last is not None and last.proof == "missing":
                self._done[-1] = structs.replace(last, count=last.count + 1)
            else:
                self._done.append(Salvaged(seq, "missing", why="it is missing"))
            self._is_whole = False
            self._links = []
        else:
            self._judge_unproven(seq, sure[0])

    def _proven(self, one: Remnant, seq: int) -> JournalRecord | None:
        """Return a remnant as the record with this number, or None if no checksum proves it."""
        if one.record is None:
            return None
        record = structs.replace(one.record, seq=seq)
        for link in self._links:
            if digest_of(link, seq, record.epoch, record) == record.digest:
                self._restore_previous(link)
                return record
        return None

    def _restore_previous(self, link: bytes) -> None:
        """Mark the previous record as restored: the record after it proves all but its checksum."""
        last = self._done[-1] if self._done else None
        if last is None or last.proof != "damaged" or last.record is None:
            return
        if last.record.digest != link:
            right = structs.replace(last.record, digest=link)
            self._done[-1] = Salvaged(last.seq, "restored", right, why=_CHECKSUM)

    def _judge_unproven(self, seq: int, one: Remnant) -> None:
        """Judge a record that no checksum proves as it stands."""
        self._is_whole = False
        links = self._links
        record = None if one.record is None else structs.replace(one.record, seq=seq)
        if record is None:
            self._take(Salvaged(seq, "damaged", raw=one.raw, why=_FORM))
        elif not links and one.is_sealed:
            self._take(Salvaged(seq, "behind", record), record.digest)
        elif not links and _makes_sense(record):
            why = "the record before it, which it is checked with, is lost"
            self._take(Salvaged(seq, "unproven", record, why=why), record.digest)
        elif right := next(filter(None, (correct_bit(link, record) for link in links)), None):
            why = "one bit of it has changed"
            self._take(Salvaged(seq, "restored", right, why=why), right.digest)
        else:
            said = [record.digest] if len(record.digest) == DIGEST_SIZE else []
            made = [digest_of(link, seq, record.epoch, record) for link in links]
            why = "its checksum does not match"
            self._take(Salvaged(seq, "damaged", record, why=why), *(said + made)[:_MOST_LINKS])

    def _take(self, one: Salvaged, *links: bytes) -> None:
        """Store the verdict on a record, and the checksums that may precede the next one."""
        self._done.append(one)
        self._links = list(links)

    def finish(self, head: Head | None) -> tuple[list[Salvaged], tuple[str, ...]]:
        """Compare the end with the store's head; return the records and notes on the end.

        Remnants that belong nowhere come last, as records without a number.
        """
        done, notes = self._done, []
        ends = {one.record.digest: one.seq for one in done if one.record is not None}
        if head is None:
            notes.append("what the store says about its end cannot be read")
        elif done and head.digest in self._links and done[-1].proof == "damaged":
            self._restore_previous(head.digest)
        elif done and done[-1].proof == "missing":
            # If the head's checksum belongs to a record we have, only the head's number is wrong,
            # and nothing is missing after that record.
            if head.digest in ends:
                done = done[:-1]
                notes.append(f"it ends at record {ends[head.digest]}, but the store says otherwise")
        else:
            end: tuple[int, bytes | None] = (0, START)
            if done:
                last, record = done[-1], done[-1].record
                end = (last.seq + last.count - 1, record.digest if record else None)
            if (head.seq, head.digest) != end:
                notes.append(f"it ends at record {end[0]}, but the store says otherwise")
        over = [one for one in self._loose if not one.is_guess]
        done += [Salvaged(0, "damaged", one.record, one.raw, _FORM) for one in over]
        return done, tuple(notes)


_CHECKSUM = "its checksum has changed, and nothing else"
_FORM = "it does not have the form of a record"


def _makes_sense(record: JournalRecord) -> bool:
    """Whether a record that cannot be proven looks like a real one."""
    try:
        check_key(record.key)
        msgspec.json.decode(record.body)
    except (UsageError, ValueError, RecursionError):
        return False
    return b"\n" not in record.body and len(record.digest) == DIGEST_SIZE


def correct_bit(link: bytes, record: JournalRecord) -> JournalRecord | None:
    """Return a record with its one flipped bit corrected, or None if that is not what is wrong.

    ``link`` is the checksum of the record before it.
    """
    # The flipped bit may be in the checksum itself.
    right = digest_of(link, record.seq, record.epoch, record)
    changed_bits = (int.from_bytes(right) ^ int.from_bytes(record.digest)).bit_count()
    if len(record.digest) == DIGEST_SIZE and changed_bits == 1:
        return structs.replace(record, digest=right)
    for one in _small_variants(record):
        if digest_of(link, one.seq, one.epoch, one) == record.digest:
            return one
    return _with_body(link, record) if len(record.body) <= SEARCHED else None


def _small_variants(record: JournalRecord) -> Iterator[JournalRecord]:
    """Yield copies of a record with one bit changed in its epoch, time or key."""
    for bit in range(_WORD):
        yield structs.replace(record, epoch=record.epoch ^ 1 << bit)
        yield structs.replace(record, at=record.at ^ 1 << bit)
    for key in filter(bytes.isascii, flip_each_bit(record.key.encode("ascii"))):
        yield structs.replace(record, key=key.decode("ascii"))


def flip_each_bit(data: bytes) -> Iterator[bytes]:
    """Yield copies of some bytes, each with another bit changed."""
    changed = bytearray(data)
    for place, byte in enumerate(data):
        for bit in range(8):
            changed[place] = byte ^ 1 << bit
            yield bytes(changed)
        changed[place] = byte


def _with_body(link: bytes, record: JournalRecord) -> JournalRecord | None:
    """Return a record with one bit of its body changed so that its checksum fits, or None."""
    head = b"%d %d %d %b\n" % (record.seq, record.epoch, record.at, record.key.encode("ascii"))
    # The hash of everything before a byte is computed once, and copied for each of its bits.
    running = blake2b(link + head, digest_size=DIGEST_SIZE)
    body = memoryview(record.body)
    for place, byte in enumerate(record.body):
        rest = body[place + 1 :]
        for bit in range(8):
            hashed = running.copy()
            hashed.update(bytes((byte ^ 1 << bit,)))
            hashed.update(rest)
            if hashed.digest() == record.digest:
                changed = bytearray(record.body)
                changed[place] ^= 1 << bit
                return structs.replace(record, body=bytes(changed))
        running.update(body[place : place + 1])
    return None


def readable_records(records: Iterable[Salvaged]) -> Iterator[JournalRecord]:
    """Yield the records that can be read."""
    return (one.record for one in records if one.is_readable and one.record is not None)


# The names of the notes that take the place of lost records.
DAMAGED = "damaged-record"
MISSING = "missing-record"
_LOST = {
    Said: "[A message of the user stood here; it was lost when the store was damaged.]",
    Finished: "[The result of this call was lost when the store was damaged.]",
}


class _NamedBlobs(Struct):
    blobs: tuple[str, ...] = ()


def large_names(record: JournalRecord) -> tuple[str, ...]:
    """Return the names of the large values that a record refers to."""
    if b'"blobs":' in record.body:
        # Records that are not events, such as those of a LangGraph thread, list their blobs here.
        with suppress(msgspec.MsgspecError):
            names = msgspec.json.decode(record.body, type=_NamedBlobs).blobs
            if names:
                return names
    blob = event_of(record).blob if b'"blob":' in record.body else ""
    return (blob,) if blob else ()


def rebuild_entries(salvage: Salvage, blobs: Mapping[str, bytes]) -> list[JournalEntry]:
    """Return the entries of a rebuilt session; ``blobs`` are the large values that still exist.

    Any other large value is treated as lost.
    """
    entries: list[JournalEntry] = []
    at = 0
    last = salvage.records[-1] if salvage.records else None
    for one in salvage.records:
        if one.is_readable and one.record is not None:
            entries.append(_kept(one.record, blobs))
            at = one.record.at
            continue
        # No event refers to a number after the last record, so one note is enough for all of these.
        count = 1 if one is last else one.count
        entries += [_note(one, one.seq + number, at) for number in range(count)]
    return entries


def _kept(record: JournalRecord, blobs: Mapping[str, bytes]) -> JournalEntry:
    names = large_names(record)
    if all(name in blobs for name in names):
        values = tuple(blobs[name] for name in names)
        return JournalEntry(record.key, record.at, record.body, values)
    event = event_of(record)
    if isinstance(event, Said | Finished):
        words = text_payload(_LOST[type(event)])
        return entry_of(structs.replace(event, payload=words, blob=""), record.key, record.at)
    if isinstance(event, Noted):
        return entry_of(structs.replace(event, blob=""), record.key, record.at)
    why = f"its large value {event.blob} is gone" if event.blob else "its large values are gone"
    return _note(Salvaged(record.seq, "damaged", record, why=why), record.seq, record.at)


def _note(one: Salvaged, seq: int, at: int) -> JournalEntry:
    """Return a note that keeps what is left of a lost record."""
    left: dict[str, Any] = {"why": one.why}
    raw = one.raw
    if one.record is not None:
        record = one.record
        about = {"epoch": record.epoch, "at": record.at, "key": record.key}
        left |= {**about, "digest": record.digest.hex()}
        raw = record.body
    if one.proof == "missing":
        left["count"] = one.count
    else:
        try:
            left["body"] = raw.decode("utf-8")
        except UnicodeDecodeError:
            left["base64"] = b64encode(raw).decode("ascii")
    name = MISSING if one.proof == "missing" else DAMAGED
    label = f"record {seq}" if seq else "left over"
    event = Noted(name=name, label=label, payload=Raw(msgspec.json.encode(left)))
    # Remnants without a number are told apart by their content.
    return entry_of(event, f"{name}-{seq or blob_name(raw)}", at)


def names_in(records: Iterable[JournalRecord]) -> dict[str, list[int]]:
    """Return the large values that records refer to, each with the numbers of those records."""
    found: dict[str, list[int]] = {}
    for record in records:
        for name in large_names(record):
            found.setdefault(name, []).append(record.seq)
    return found
