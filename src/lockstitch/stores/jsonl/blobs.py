"""Large values in files named by their content, ``blobs/<first two digits>/<name>``."""

from __future__ import annotations

import errno
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lockstitch import disk
from lockstitch.errors import Damaged, LockstitchError, UsageError
from lockstitch.files import snapshot
from lockstitch.journal.records import blob_name
from lockstitch.stores.base import Fault, checked_blob
from lockstitch.stores.jsonl.claims import locked
from lockstitch.stores.jsonl.files import Files
from lockstitch.stores.jsonl.forks import left

_NAME = re.compile(r"[0-9a-f]{32}")
_QUICK = 0.1
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Blobs:
    """The large values of a store; a file that has its name is whole and durable."""

    def __init__(self, files: Files) -> None:
        self.folder = files.blobs
        self._doomed = self.folder / ".doomed"
        self._files = files
        self._guard = threading.Lock()
        self._durable: set[str] = set()

    def keep(self, values: Iterable[bytes]) -> None:
        """Make values durable, before a record names them; raises ``OSError`` if that fails."""
        missing = {blob_name(value): value for value in values}
        with self._guard:
            # Another process may have removed it, with the session that named it.
            known = {name for name in self._durable & set(missing) if self.exists(name)}
            for name in sorted(set(missing) - known):
                self._write(name, missing[name])
                self._durable.add(name)

    @contextmanager
    def alone(self, pass_by: Callable[[float], bool]) -> Iterator[None]:
        """Be the only one who adds or removes values and the records that name them."""
        self._files.ensure(self._files.leases)
        with locked(self._files.leases / ".blobs.lock", pass_by):
            self._finish()
            yield

    @contextmanager
    def dropping(self, names: set[str]) -> Iterator[None]:
        """Remove values when the records that name them are gone, which the block sees to.

        If it does not come to that, whoever is ``alone`` next does it, with those of them that
        nobody names then. A full disk is no reason to keep what shall go.
        """
        if names or self._files.bases.exists():
            try:
                self._files.ensure(self.folder)
                self._place(self._doomed, "\n".join(sorted(names)).encode("ascii"))
            except OSError as error:
                if error.errno not in _FULL:
                    raise
        start = time.monotonic()
        yield
        # Whoever takes long may have been stopped, and passed by others who name them now.
        is_late = time.monotonic() - start > _QUICK
        self._drop(self._files.unnamed(names) if is_late else names)

    def drop_bases(self) -> None:
        """Remove what no fork shares any more, and the values that only that named."""
        for one in left(self._files):
            names = self._files.names_in(one.path)
            one.apply()
            self._drop(self._files.unnamed(names))

    def drop_unnamed(self) -> None:
        """Remove the values that no record names: a crash or a full disk can leave some."""
        paths = self.folder.glob("[0-9a-f][0-9a-f]/*")
        names = {path.name for path in paths if _NAME.fullmatch(path.name)}
        self._drop(self._files.unnamed(names))

    def is_unfinished(self) -> bool:
        """Whether somebody was stopped in the middle of removing values."""
        return self._doomed.exists()

    def _finish(self) -> None:
        if self.is_unfinished():
            found = _NAME.findall(self._doomed.read_text("ascii", "replace"))
            self.drop_bases()
            self._drop(self._files.unnamed(found))

    def _drop(self, names: set[str]) -> None:
        for name in names:
            self._path(name).unlink(missing_ok=True)
            self._durable.discard(name)
        for folder in {self._path(name).parent for name in names}:
            disk.sync_folder(folder)
        self._doomed.unlink(missing_ok=True)

    def _write(self, name: str, value: bytes) -> None:
        path = self._path(name)
        self._files.ensure(self.folder)
        self._files.ensure(path.parent)
        # What another process wrote may not be durable yet, or damaged: then it is written anew.
        if self._read(name) != value:
            self._place(path, value)
        else:
            disk.sync_folder(path.parent)

    def _place(self, path: Path, value: bytes) -> None:
        with disk.draft(path.parent) as new:
            disk.write(new.handle, value)
            disk.sync(new.handle)
            new.close()
            new.path.replace(path)
        disk.sync_folder(path.parent)

    def _read(self, name: str) -> bytes | None:
        with suppress(LockstitchError):
            return snapshot(self._path(name)).data
        return None

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise UsageError("a large value's name has 32 hexadecimal digits")
        return self.folder / name[:2] / name

    def exists(self, name: str) -> bool:
        """Whether there is a value of that name."""
        return self._path(name).exists()

    def give(self, names: Iterable[str], where: str) -> dict[str, bytes]:
        """Read values by name, verified."""
        return {name: checked_blob(name, self._read(name), where) for name in names}

    def faults(self, where: str) -> Iterator[Fault]:
        """Read every value there is."""
        for path in sorted(self.folder.glob("[0-9a-f][0-9a-f]/*")):
            if _NAME.fullmatch(path.name):
                try:
                    self.give([path.name], where)
                except Damaged as error:
                    yield Fault("", 0, str(error))
