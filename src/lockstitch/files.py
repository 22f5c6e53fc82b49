"""Writing a file so that a reader, or a crash, sees the old one or the new one, never less."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def write_atomically(path: str | Path, data: bytes) -> None:
    """Replace a file's content as a whole, durably, or raise and leave it as it was.

    The data goes to a temporary file in the same folder, is fsynced, renamed, and the folder is
    fsynced. A new file gets mode 0600; an existing one keeps its mode and, where allowed, its
    owner. A symbolic link is followed; a device or a pipe cannot be replaced and is written to.
    """
    existing = _status(path)
    if existing and not stat.S_ISREG(existing.st_mode):
        Path(path).write_bytes(data)
        return
    target = Path(path).resolve()
    handle, name = tempfile.mkstemp(prefix=".lockstitch-", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if existing:
                _adopt(temporary, existing)
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _status(path: str | Path) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except FileNotFoundError:
        return None


def _adopt(temporary: Path, existing: os.stat_result) -> None:
    """Give the new file the owner and the mode of the old one, in that order: chown clears bits."""
    with suppress(PermissionError, AttributeError):
        os.chown(temporary, existing.st_uid, existing.st_gid)
    temporary.chmod(stat.S_IMODE(existing.st_mode))


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable; Windows has no way to ask for that."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
