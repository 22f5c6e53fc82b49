"""One replacement of a file that others may be writing to at the same time.

The new file is finished beside the old one, both change their names in one step, and what
still arrives in the old file is carried over. Until all of that is done there is a way back:
the files are swapped again, and the old one is as whole as if nothing had happened.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from lockstitch import disk
from lockstitch.errors import Busy, Conflict

if TYPE_CHECKING:
    from lockstitch.files import Snapshot

CHANGED = "changed while it was being repaired; nothing was written"
GONE = "was moved or removed while it was being repaired; nothing was written"
_NO_WAY_BACK = (
    "changed at the very moment it was being replaced, on a file system without a way back: "
    "the new content is in place, what was read is in the backup"
)
NEWLINES = (b"\n", b"\r\n")
_LIVE = 60.0  # seconds after its last change in which a file counts as in use
_HURRY = 0.02  # seconds after a swap in which to look again without a pause


class Replaced(Struct, frozen=True):
    """A finished replacement.

    ``carried`` is how many bytes stand behind the data because others appended them meanwhile;
    ``digest`` and ``size`` are of the whole new file, these bytes included.
    """

    path: str
    digest: str
    size: int
    carried: int
    device: int
    inode: int


class Patience(Struct, frozen=True):
    """How long to wait, in seconds.

    For a writer to finish before (``held``) and after the swap (``following``), for the rest of
    a ``torn`` line, and for stragglers who are about to open the old file (``grace``).
    """

    held: float = 0.5
    following: float = 2.0
    torn: float = 0.25
    grace: float = 0.05
    step: float = 0.001


PATIENCE = Patience()


class Move:
    """One replacement on its way.

    ``taken`` is how much of the old file is in the new one, and ``torn`` whether that much ends
    inside a line; ``written`` is where our last writing to the new file ended, and ``ended``
    whether that ended a line. ``settled`` is its length at the swap, ``added`` are the ranges in
    it that were taken over, ``returned`` is how much of the rest went back to the old file.
    """

    def __init__(
        self, before: Snapshot, data: bytes, old: disk.Open, new: disk.Open, patience: Patience
    ) -> None:
        self.before = before
        self.data = data
        self.old = old
        self.new = new
        self.patience = patience
        self.folder = old.folder
        self.watch = disk.Watch(old.folder)
        self.inode = os.fstat(new.handle).st_ino
        self.taken = before.size
        self.torn = _is_torn(before.data)
        self.ended = not _is_torn(data)
        self.written = self.settled = len(data)
        self.added: list[tuple[int, int]] = []
        self.reversible = False
        self.returned = 0

    def fill(self) -> None:
        """Write the data, with the owner and the mode of the old file."""
        disk.write(self.new.handle, self.data)
        found = os.fstat(self.old.handle)
        disk.adopt(self.new.handle, found, self.old.handle)
        if os.fstat(self.new.handle).st_uid != found.st_uid:
            raise PermissionError(errno.EPERM, "belongs to another user; repair it as that user")
        disk.sync(self.new.handle)

    def catch_up(self) -> None:
        """Take over what was appended since, until a moment in which nobody is writing."""
        start = time.monotonic()
        self._require_beginning()
        while True:
            grown = disk.read(self.old.handle, self.taken)
            if grown:
                self._add(self._following(grown))
                disk.sync(self.new.handle)
            held = self.watch.is_held(self.old.handle)
            late = time.monotonic() - start
            if not held and (late > self.patience.held or not (grown or self._is_settling())):
                return
            if held and late > 2 * self.patience.held:
                raise Busy(_busy(self.old.handle))
            time.sleep(self.patience.step)

    def finish(self) -> Replaced:
        """Swap the files and carry over what still arrives in the old one, or put it back."""
        try:
            self._require_at(self.old.name, self.before.inode)
            self.settled = self.written
            if sys.platform == "win32":
                self._replace_on_windows()
                return self._outcome()
            self.reversible = self._swap()
            if self.reversible:
                self._require_at(self.new.name, self.before.inode)
            self._follow()
            self._require_beginning()
            self._require_at(self.old.name, self.inode)
            return self._outcome()
        except BaseException:
            self._put_back()
            raise

    def _swap(self) -> bool:
        try:
            return disk.swap(self.folder, self.new.name, self.old.name)
        except FileNotFoundError:
            raise Conflict(GONE) from None

    def _replace_on_windows(self) -> None:
        """Rename there fails as long as anybody, an indexer for instance, has the file open."""
        self.old.close()
        self.new.close()
        deadline = time.monotonic() + self.patience.following
        while True:
            try:
                self.folder.rename(self.new.name, self.old.name)
            except PermissionError:
                if time.monotonic() > deadline:
                    raise Busy("is open in another program; nothing was written") from None
                time.sleep(self.patience.grace)
            else:
                self.new.handle = self.folder.open(self.old.name, disk.READING)
                return

    def _follow(self) -> None:
        """Carry over what writers add who had opened the old file before the swap."""
        start = quiet = time.monotonic()
        grace = self.patience.grace if self._is_live() else 0.0
        while True:
            held = self._carry()
            now = time.monotonic()
            quiet = now if held else quiet
            if not held and now - quiet >= grace:
                break
            if held and now - start > self.patience.following:
                raise Busy(_busy(self.old.handle))
            self._pause(now - start)
        if self.written > self.settled:
            disk.sync(self.new.handle)
        self.folder.sync()

    def _pause(self, since: float) -> None:
        """Right after a swap there is no time to lose: half a line may wait for its rest."""
        time.sleep(0 if since < _HURRY else self.patience.step)

    def _carry(self) -> bool:
        """Append what the old file has more, only whole lines while it is held; whether it is."""
        held = self.watch.is_held(self.old.handle)
        grown = disk.read(self.old.handle, self.taken)
        if held:
            grown = grown[: grown.rfind(b"\n") + 1]
        if grown and os.fstat(self.new.handle).st_size != self.written:
            if _is_torn(grown) and self.reversible:
                # The other half of this line may already stand in the new file.
                raise Conflict(CHANGED)
            self._await_line_end()
        self._add(self._following(grown))
        return held

    def _following(self, grown: bytes) -> bytes:
        """What to write for bytes that come next in the old file, so that lines stay lines."""
        if not grown:
            return b""
        is_first = self.taken == self.before.size
        if is_first and self.torn and not grown.startswith(NEWLINES):
            raise Conflict(CHANGED)
        self.taken += len(grown)
        was_torn, self.torn = self.torn, _is_torn(grown)
        if was_torn and self.ended and is_first:
            return grown.removeprefix(b"\r").removeprefix(b"\n")
        return grown if was_torn or self.ended else b"\n" + grown

    def _add(self, text: bytes) -> None:
        if not text:
            return
        count = os.write(self.new.handle, text)
        self.written = os.lseek(self.new.handle, 0, os.SEEK_CUR)
        self.added.append((self.written - count, self.written))
        if count < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.ended = not _is_torn(text)

    def _await_line_end(self) -> None:
        """Wait until those who append to the new file have finished their line."""
        deadline = time.monotonic() + self.patience.torn
        while True:
            self.ended = disk.ends_line(self.new.handle)
            if self.ended or time.monotonic() > deadline:
                return
            time.sleep(self.patience.step)

    def _is_settling(self) -> bool:
        """Whether the end of the old file may be half a line that somebody is writing now."""
        return self.torn and self._age() < self.patience.torn

    def _is_live(self) -> bool:
        return bool(self.added) or self._age() < _LIVE

    def _age(self) -> float:
        return time.time() - os.fstat(self.old.handle).st_mtime

    def _require_beginning(self) -> None:
        """What was read must still be there; what was appended to it is welcome."""
        if not disk.begins_with(self.old.handle, self.before.data):
            raise Conflict(CHANGED)

    def _require_at(self, name: str, inode: int) -> None:
        if not self._is_at(name, inode):
            raise Conflict(GONE if self.folder.look(name) is None else CHANGED)

    def _is_at(self, name: str, inode: int) -> bool:
        found = self.folder.look(name)
        return found is not None and (found.st_dev, found.st_ino) == (self.before.device, inode)

    def is_in_place(self) -> bool:
        """Whether the new file has the name of the old one."""
        return self._is_at(self.old.name, self.inode)

    def _outcome(self) -> Replaced:
        tail = disk.read(self.new.handle, len(self.data))
        digest = hashlib.sha256(self.data)
        digest.update(tail)
        return Replaced(
            path=self.before.path,
            digest=digest.hexdigest(),
            size=len(self.data) + len(tail),
            carried=len(tail),
            device=self.before.device,
            inode=self.inode,
        )

    def _put_back(self) -> None:
        """If the files were swapped, swap them again, as if nothing had happened."""
        if not self.is_in_place():
            return
        if self.folder.look(self.new.name) is None:
            raise Conflict(_NO_WAY_BACK)
        self.new.kept = True
        leaving = self.folder.open(self.old.name, disk.READING)
        try:
            self.new.close()
            self._return_lines(leaving, self.new.name, grace=0.0)
            disk.swap(self.folder, self.new.name, self.old.name)
            if self._is_at(self.new.name, self.inode):
                self._return_lines(leaving, self.old.name, grace=self.patience.grace)
            else:  # Somebody replaced the new file in this instant: theirs stays.
                disk.swap(self.folder, self.new.name, self.old.name)
        finally:
            os.close(leaving)
        self.new.kept = False
        disk.sync(self.old.handle)
        self.folder.sync()

    def _return_lines(self, leaving: int, target: str, *, grace: float) -> None:
        """Append to the old file what others append to the new one, until nobody does."""
        start = quiet = time.monotonic()
        while True:
            held = self.watch.is_held(leaving)
            lines = self._of_others(disk.read(leaving))[self.returned :]
            if lines:
                disk.append(self.folder, target, lines)
                self.returned += len(lines)
            now = time.monotonic()
            quiet = now if held or lines else quiet
            is_quiet = not (held or lines) and now - quiet >= grace
            if is_quiet or now - start > self.patience.following:
                return
            self._pause(now - start)

    def _of_others(self, found: bytes) -> bytes:
        """What stands in the new file since the swap and was not added by us."""
        ends = [self.settled, *(end for _, end in self.added if end > self.settled)]
        starts = [*(start for start, _ in self.added if start >= self.settled), len(found)]
        return b"".join(found[end:start] for end, start in zip(ends, starts, strict=True))


def _is_torn(data: bytes) -> bool:
    return bool(data) and not data.endswith(b"\n")


def _busy(handle: int) -> str:
    pids = disk.holders(handle)
    who = f"process {', '.join(map(str, pids))} has" if pids else "a process has"
    return (
        f"{who} it open for writing, and would go on writing into the old file; nothing was "
        "written: end that program first, or repair a copy"
    )
