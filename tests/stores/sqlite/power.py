"""Power loss on a real file system: it is shut down under a writer, as by pulling the plug.

Linux can make a mounted ext4 or XFS forget at once everything that it has not made durable. A
file system in an image file is mounted, a writer works on it, the file system goes down, is
mounted again with its journal replayed, and what was acknowledged must be there. Needs root.
``python -m tests.stores.sqlite.power write FILE`` is the writer: it prints what it was promised.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstitch.errors import LockstitchError
from lockstitch.stores.base import StoreFault
from lockstitch.stores.sqlite import SqliteBackend
from lockstitch.stores.sqlite import writer as writing
from tests.driven import say
from tests.stores.sqlite.conftest import entries

_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN
_WITHOUT_FLUSHING = struct.pack("I", 2)
SIZES = {"ext4": 64, "xfs": 320}


def why_not(kind: str = "ext4") -> str:
    """Say why that cannot be done here, "" if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root can mount on Linux"
    if not shutil.which(f"mkfs.{kind}") or not Path("/dev/loop-control").exists():
        return f"there is no mkfs.{kind} or no loop device"
    return ""


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.strip()}")


@contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Path]:
    run("mount", "-o", "loop", str(image), str(folder))
    try:
        yield folder
    finally:
        run("umount", str(folder))


def shut_down(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(handle, _SHUTDOWN, _WITHOUT_FLUSHING)
    finally:
        os.close(handle)


class Machine:
    """A file system in an image file, and a store on it."""

    def __init__(self, folder: Path, kind: str = "ext4", seed: int = 1) -> None:
        self.image = folder / "image"
        self.folder = folder / "mounted"
        self.folder.mkdir()
        with self.image.open("wb") as file:
            file.truncate(SIZES[kind] << 20)
        run(f"mkfs.{kind}", "-q", str(self.image))
        self.dice = random.Random(seed)  # noqa: S311
        self.acked = 0
        self.told = 0

    def lose_power(self) -> int:
        """Write until the power goes; how many records were acknowledged since the last time."""
        before = self.acked
        with mounted(self.image, self.folder) as folder:
            self._write(folder / "sessions.db", self.dice.randrange(1, 60))
        self._change_disks()
        return self.acked - before

    def _change_disks(self) -> None:
        """Go on with a copy of what is on the disk now.

        A program that was started meanwhile, in a room of its own, can keep the file system that
        went down alive, and mounted again it would be the same one.
        """
        copy = self.image.with_name(f"{self.image.name}+")
        run("cp", "--sparse=always", str(self.image), str(copy))
        self.image = copy

    def _write(self, path: Path, count: int) -> None:
        command = [sys.executable, "-m", "tests.stores.sqlite.power", "write", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout
            for line in writer.stdout:
                assert line.startswith("acked"), line
                self.acked = int(line.split()[1])
                count -= 1
                if not count:
                    break
            shut_down(self.folder)
            self.told = self.acked
            for line in writer.stdout:
                if line.startswith("acked"):
                    self.told = int(line.split()[1])

    def check(self) -> None:
        """After the power is back: all that was acknowledged is there, and all is whole.

        Where power really goes, nobody is told anything any more. Here the kernel lives on, and
        may still say of the one sync that was under way that it was done: that one may be lost.
        """
        with (
            mounted(self.image, self.folder) as folder,
            SqliteBackend(folder / "sessions.db") as store,
        ):
            assert not [one for one in store.verify() if isinstance(one, StoreFault)]
            found = [(one.key, one.body) for one in store.read("s")]
        assert len(found) >= self.acked
        assert len(found) >= self.told - 1
        assert found == [(one.key, one.body) for one in entries(len(found))]
        self.acked = len(found)


def write(path: Path) -> None:
    """Append until that fails, and say each time how far it got."""
    writing.CHECKPOINT = 40 * writing.PAGE
    try:
        store = SqliteBackend(path)
        lease = store.acquire("s")
        seq = lease.head.seq
        while True:
            seq = store.append(lease, entries(1, first=seq + 1), seq).seq
            say("acked", seq)
    except LockstitchError as error:
        say("raised", type(error).__name__)
    os._exit(0)


if __name__ == "__main__":
    write(Path(sys.argv[2]))
