"""The folder of backups beside a file: opened once, without following links, if it is ours.

Whoever may write to the folder above can plant one. A backup that is put there would be theirs,
and one that is found there is what they want to be restored. So its owner is asked of the
descriptor, and everything in it is done relative to that.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

from msgspec import Struct

from lockstitch import disk, files
from lockstitch.errors import Unreadable, UsageError
from lockstitch.folders import Folder, folder_at

NAME = files.BACKUPS
_NO_FOLDER = (errno.ENOTDIR, errno.ELOOP, errno.EMLINK)
_COPY = "-o FILE writes a repaired copy elsewhere"


class Owner(Struct, frozen=True):
    """The user and the group that a file belongs to."""

    uid: int
    gid: int


def owner_of(path: str | Path) -> Owner:
    """Return the owner of a file, or of its folder if it is gone."""
    try:
        found = Path(path).lstat()
    except FileNotFoundError:
        found = Path(path).parent.stat()
    return Owner(found.st_uid, found.st_gid)


class Vault:
    """An open folder of backups that is ours to use, and of whom files in it may be."""

    def __init__(self, folder: Folder, owner: Owner) -> None:
        self.folder = folder
        self.owner = owner

    def hand_over(self, handle: int) -> None:
        """Give what root has made to the owner of the file that it is of: they may undo, too."""
        if os.name != "nt" and os.geteuid() == 0:
            with suppress(PermissionError):
                os.fchown(handle, self.owner.uid, self.owner.gid)

    def read(self, name: str) -> files.Snapshot:
        """Read a file in it; raises Unreadable if somebody else put it there."""
        found = files.snapshot(name, folder=self.folder)
        if os.name != "nt" and found.uid not in self._users():
            raise Unreadable(f"was put there by another user (uid {found.uid}); it is not believed")
        return found

    def _users(self) -> set[int]:
        own = self.folder.status().st_uid
        return {own, self.owner.uid} if own == os.geteuid() else {own}


@contextmanager
def found_beside(path: str | Path, owner: Owner | None = None) -> Iterator[Vault | None]:
    """Open the folder of backups beside a file; None if there is none, or a link in its place.

    Raises UsageError if it belongs to somebody else, or if others may write to it.
    """
    known = owner_of(path) if owner is None else owner
    with folder_at(Path(path).parent) as beside:
        try:
            folder = beside.inside(NAME)
        except OSError as error:
            if error.errno not in (*_NO_FOLDER, errno.ENOENT):
                raise
            yield None
            return
        with closing(folder):
            _require_ours(folder, known, "what is in it is not believed and nothing was changed")
            _require_closed(folder, beside)
            yield Vault(folder, known)


@contextmanager
def made_beside(path: str | Path, owner: Owner, around: Folder | None = None) -> Iterator[Vault]:
    """Open the folder of backups beside a file, for writing; it is made if there is none.

    ``around`` is the folder of the file, if that is open already. Raises UsageError if somebody
    else's, or something else, has its name.
    """
    with folder_at(Path(path).parent) if around is None else nullcontext(around) as beside:
        is_new = _is_made(beside)
        try:
            folder = beside.inside(NAME)
        except OSError as error:
            if error.errno not in _NO_FOLDER:
                raise
            raise UsageError(f"cannot be backed up: {NAME} next to it is not a folder") from None
        with closing(folder):
            vault = Vault(folder, owner)
            _require_ours(folder, owner, f"no backup is put there and nothing was written; {_COPY}")
            if folder.handle is not None and is_new:
                vault.hand_over(folder.handle)
            elif folder.handle is not None and folder.status().st_mode & 0o077:
                os.fchmod(folder.handle, 0o700)
            if is_new:
                beside.sync()
            disk.tidy(folder)
            yield vault


def _is_made(beside: Folder) -> bool:
    try:
        beside.make(NAME)
    except FileExistsError:
        return False
    return True


def _require_ours(folder: Folder, owner: Owner, so: str) -> None:
    """Raise UsageError unless a folder is the user's own, or for root that of the file's owner."""
    if os.name == "nt":
        return
    user = os.geteuid()
    found = folder.status().st_uid
    if found != user and not (user == 0 and found == owner.uid):
        raise UsageError(
            f"has a folder {NAME} beside it that belongs to another user (uid {found}): {so}"
        )


def _require_closed(folder: Folder, beside: Folder) -> None:
    """Raise UsageError if those may write to a folder who may not write to the one around it."""
    if os.name == "nt":
        return
    mode, around = folder.status().st_mode, beside.status().st_mode
    if mode & 0o022 & ~around and not mode & stat.S_ISVTX:
        raise UsageError(
            f"has a folder {NAME} beside it that other users may write to: what is in it is not "
            f"believed and nothing was changed; look into it, and close it with `chmod 700`"
        )
