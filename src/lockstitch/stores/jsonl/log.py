"""What counts in a session's file: one rule, the same for every reader and every writer.

Lines are only ever added, each by one write at the end, so their order is the same for all:

- A writer's opening line counts if its epoch is higher than all before it.
- A record counts if it is of the last such epoch and its whole append stands there in one piece,
  with the next number and a digest that continues the chain. One of an older epoch came late,
  from a writer that had been taken over, and counts for nothing.
- Anything else is what an append left that was never acknowledged, if the next writer's opening
  line says so, or if it is the end of the file and looks like what a crash can leave. Else it is
  damage: no writer goes on behind such bytes without saying so, and no crash leaves a line that
  has its whole length and its end, but another content. Nothing is ever cut off or changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct, structs

from lockstitch.errors import Damaged, UsageError
from lockstitch.journal.about import about_in
from lockstitch.journal.records import START, Head, digest_of
from lockstitch.stores.jsonl.lines import (
    FORKED,
    VERSION,
    Base,
    Opened,
    Written,
    hidden,
    parsed,
    was_whole,
)

CHUNK = 1 << 20


class State(Struct, frozen=True, gc=False):
    """How far a file counts: up to ``end``, with the last append from ``last`` on.

    ``epoch`` and ``token`` are those of the last writer, ``made`` and ``changed`` the times of the
    first writer and of the last record, and ``about`` is how the session was last described.
    ``base`` is what a fork shares.
    """

    end: int = 0
    last: int = 0
    epoch: int = 0
    token: str = ""
    session: str = ""
    seq: int = 0
    digest: bytes = START
    made: int = 0
    changed: int = 0
    about: bytes | None = None
    base: Base | None = None

    @property
    def head(self) -> Head:
        """Where the session stands."""
        return Head(self.seq, self.digest, self.epoch)


class Walk:
    """Goes through a file's lines from a state on and tells what counts.

    ``torn`` is where bytes begin that do not count, None without such, and ``broken`` are the
    whole records that an append there begins with. ``strange`` is where the first of those bytes
    are that make no line.
    """

    def __init__(self, state: State, session: str) -> None:
        self.state = state
        self.session = session
        self.where = f"session {session}"
        self.torn: int | None = None
        self.strange: int | None = None
        self.broken: list[Written] = []
        self._parts: list[Written] = []
        self._parts_start = 0

    def feed(self, place: int, piece: bytes) -> list[Written]:
        """Take the next piece, a line but for the file's last one; gives a whole append."""
        line = parsed(piece)
        if self.torn is None:
            if isinstance(line, Opened) and not self._parts:
                return self._open(line, place + len(piece))
            if isinstance(line, Written) and self._continues(line):
                return self._add(line, place, len(piece))
            if isinstance(line, Written) and not self._parts and self._is_late(line):
                return self._skip(place + len(piece))
            self._break(place)
            self.strange = place if line is None else None
        self._look(place, piece, line)
        return []

    def finish(self, rest: bytes) -> None:
        """Say that the file ends here: an append that is not whole does not count.

        ``rest`` is what stands from ``strange`` on.
        """
        if self._parts:
            self._break(self._parts_start)
        if was_whole(rest):
            raise self._damage("though it has its whole length")

    def _break(self, place: int) -> None:
        self.torn = self._parts_start if self._parts else place
        self.broken, self._parts = self._parts, []

    def _open(self, line: Opened, end: int) -> list[Written]:
        if line.lockstitch != (FORKED if line.base else VERSION):
            known = f"{VERSION} or {FORKED}"
            raise Damaged(f"{self.where}: it is of version {line.lockstitch}, not {known}")
        if line.session != self.session and line.session.lower() == self.session.lower():
            told = f"session {self.session}: the file system does not tell it from {line.session}"
            raise UsageError(told)
        if line.base is not None:
            self._begin_behind(line.base)
        if line.epoch > self.state.epoch or not self.state.made:
            self.state = structs.replace(
                self.state,
                end=end,
                epoch=line.epoch,
                token=line.token,
                session=line.session,
                made=self.state.made or line.at,
            )
        return self._skip(end)

    def _begin_behind(self, base: Base) -> None:
        """Go on behind the records that a fork shares; only its first line tells of them."""
        if self.state.made:
            raise Damaged(f"{self.where}: it is said to be a fork, but not in its first line")
        digest = bytes.fromhex(base.digest)
        self.state = structs.replace(
            self.state,
            seq=base.seq,
            digest=digest,
            changed=base.at,
            about=base.about,
            base=base,
        )

    def _skip(self, end: int) -> list[Written]:
        self.state = structs.replace(self.state, end=end)
        return []

    def _is_late(self, line: Written) -> bool:
        return line.record.epoch < self.state.epoch

    def _continues(self, line: Written) -> bool:
        """Whether a record is the next one of this writer."""
        record, state, parts = line.record, self.state, self._parts
        before = parts[-1].record.digest if parts else state.digest
        return (
            record.epoch == state.epoch
            and record.seq == state.seq + 1 + len(parts)
            and line.index == len(parts)
            and line.index < line.count == (parts[0].count if parts else line.count)
            and record.digest == digest_of(before, record.seq, record.epoch, record)
        )

    def _add(self, line: Written, place: int, size: int) -> list[Written]:
        if not self._parts:
            self._parts_start = place
        self._parts.append(line)
        if len(self._parts) < line.count:
            return []
        parts, self._parts = self._parts, []
        self.state = structs.replace(
            self.state,
            end=place + size,
            last=self._parts_start,
            seq=line.record.seq,
            digest=line.record.digest,
            changed=line.record.at,
            about=about_in(part.record.body for part in parts) or self.state.about,
        )
        return parts

    def _look(self, place: int, piece: bytes, line: Opened | Written | None) -> None:
        """Behind bytes that do not count: go on with the writer that says so, or find damage."""
        torn = self.torn
        if isinstance(line, Opened) and line.epoch > self.state.epoch and line.torn == torn:
            self.torn = self.strange = None
            self._open(line, place + len(piece))
        elif any(self._is_proof(one, place) for one in [line, *hidden(piece)]):
            raise self._damage("and more follows it")

    def _damage(self, why: str) -> Damaged:
        number = self.state.seq + len(self.broken) + 1
        message = f"record {number} is not what was written, {why} (from byte {self.torn} on)"
        return Damaged(f"{self.where}: {message}")

    def _is_proof(self, line: Opened | Written | None, place: int) -> bool:
        """Whether a line proves that the bytes before it had been acknowledged."""
        if isinstance(line, Opened):
            return line.epoch > self.state.epoch
        if not isinstance(line, Written) or line.record.epoch < self.state.epoch:
            return False
        if line.record.epoch > self.state.epoch or line.first > self.state.seq + 1:
            return True
        is_known = place == self.torn or line.record in [part.record for part in self.broken]
        return line.first == self.state.seq + 1 and line.index == 0 and not is_known


def pieces(handle: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Cut a part of an open file into lines, each with its place; the last one may be none."""
    rest: list[bytes] = []
    place = start
    while start < end and (read := os.pread(handle, min(CHUNK, end - start), start)):
        start += len(read)
        first, *lines = read.split(b"\n")
        rest.append(first)
        for line in lines:
            whole = b"".join((*rest, b"\n"))
            yield place, whole
            place += len(whole)
            rest = [line]
    if place < start:
        yield place, b"".join(rest)


def walked(walk: Walk, handle: int, end: int) -> Iterator[list[Written]]:
    """Go through an open file from where a walk stands to an end, one append after the other."""
    try:
        for place, piece in pieces(handle, walk.state.end, end):
            if whole := walk.feed(place, piece):
                yield whole
        place = end if walk.strange is None else walk.strange
        walk.finish(os.pread(handle, end - place, place))
    except Damaged:
        # It had been acknowledged, or there would be no damage: what is left of it counts.
        if walk.broken:
            yield walk.broken
        raise
