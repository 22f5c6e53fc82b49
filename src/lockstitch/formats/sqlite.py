"""Connections to the SQLite databases of other programs, which may be running.

A database is touched through SQLite only: it is never opened, hashed or copied as a file, since
closing a plain file drops the locks that this process may hold on it. Reading opens it read-only.
In WAL mode that leaves an index (``-shm``) and an empty ``-wal`` behind if there were none;
SQLite itself removes them again when a connection that may write is the last one to close, which
is done here unless the database may not be written at all.
Where a log was there already, it keeps its bytes; its index, which is no data, may change.
Writing never starts a checkpoint while others are connected: SQLite before 3.51.3 may lose what
another process writes meanwhile.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lockstitch import disk
from lockstitch.errors import Busy, Conflict, LockstitchError, Unreadable, UsageError, reason_of
from lockstitch.formats.untrusted import Connection, connect, tables_of

READ_WAIT = 5.0
WRITE_WAIT = 10.0

CHANGED = "went on meanwhile; nothing was written"
# What SQLite says when it was us who refused a statement, or ended it.
_OURS = {"SQLITE_AUTH", "SQLITE_INTERRUPT", "SQLITE_ERROR"}
_OTHERS = "has other tables or columns than are known"
_UNREADABLE = {
    "NOTADB": "is not an SQLite database, or is encrypted",
    "CORRUPT": "is damaged: SQLite cannot read all of its pages",
    "NO_TEXT": "is damaged: names in its schema are no text",
    "TOOBIG": "holds a value that is longer than the file itself",
    "NOMEM": "takes more memory than there is",
}


@contextmanager
def reading(path: str | Path, *, follow: bool) -> Iterator[Connection]:
    """Give a connection that cannot write; raises Unreadable for what SQLite cannot read."""
    real = checked(path, follow=follow)
    is_bare = not os.path.lexists(f"{real}-wal")
    base = None
    try:
        base = connect(real, READ_WAIT)
        yield base
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise said(error, real, base) from error
    finally:
        if base is not None:
            base.close()
        if is_bare:
            _tidy(real)


@contextmanager
def writing(path: str | Path, *, follow: bool) -> Iterator[Connection]:
    """Give a connection inside a transaction, which ends with the block: done, or not at all."""
    real = checked(path, follow=follow)
    base = None
    try:
        base = connect(real, WRITE_WAIT, writes=True)
        base.execute("PRAGMA synchronous = FULL")
        base.execute("PRAGMA wal_autocheckpoint = 0")
        base.execute("BEGIN IMMEDIATE")
        yield base
        base.execute("COMMIT")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise said(error, real, base, writing=True) from error
    except OverflowError as error:
        raise Unreadable("has a number next to the last that there is; nothing was written") from (
            error
        )
    finally:
        if base is not None:
            with suppress(sqlite3.Error):
                if base.in_transaction:
                    base.execute("ROLLBACK")
            base.close()


def checked(path: str | Path, *, follow: bool) -> str:
    """Give the path of a regular file; a link only if it may be followed."""
    real = os.path.realpath(path) if follow else os.fspath(path)
    try:
        found = os.lstat(real)
    except OSError as error:
        raise Unreadable(reason_of(error)) from error
    except ValueError as error:
        raise UsageError("is no possible name of a file") from error
    if stat.S_ISLNK(found.st_mode):
        raise UsageError(
            "is a symbolic link; name the file itself, or allow it with --follow-symlinks"
        )
    if not stat.S_ISREG(found.st_mode):
        raise UsageError("is not a regular file")
    return real


def users(path: str) -> list[int]:
    """Give the other processes that have a database open for writing, where that can be told."""
    if sys.platform == "darwin":
        return [pid for pid in disk.openers(path) if pid != os.getpid()]
    if sys.platform != "linux":
        return []
    # This way of opening reads nothing, and closing it leaves all locks alone.
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return [pid for pid in disk.holders(handle) if pid != os.getpid()]
    finally:
        os.close(handle)


def _tidy(path: str) -> None:
    """Let SQLite remove the empty log and its index, which reading alone leaves behind."""
    # What SQLite says of a damaged schema may itself be no text.
    with suppress(OSError, sqlite3.Error, UnicodeDecodeError, Unreadable):
        if Path(f"{path}-wal").stat().st_size or not os.access(path, os.W_OK):
            return
        base = connect(path, 0, writes=True)
        try:
            tables_of(base)
        finally:
            base.close()


def said(
    error: sqlite3.Error | UnicodeDecodeError,
    path: str,
    base: Connection | None,
    *,
    writing: bool = False,
) -> Exception:
    """Say what SQLite's error means for the one who asked."""
    name = getattr(error, "sqlite_errorname", None) or ""
    done = "; nothing was written" if writing else ""
    if base is not None and base.reason and name in _OURS:
        return Unreadable(f"{base.reason}{'' if 'nothing was' in base.reason else done}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        kind: type[LockstitchError] = Busy if writing else Unreadable
        return kind(f"is locked by another program, which is writing to it{done}")
    if isinstance(error, UnicodeDecodeError):
        # SQLite wants to say what it cannot read, and that is no text.
        return Unreadable(f"{_UNREADABLE['NO_TEXT']}{done}")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        if writing and name == "SQLITE_READONLY" and os.access(path, os.W_OK):
            return Unreadable(f"can only be read, by what its first page says{done}")
        if writing:
            return PermissionError(errno.EACCES, "cannot be written to", path)
        return Unreadable(
            "cannot be opened: SQLite needs to write next to it, or its program has to end a "
            "transaction that a crash cut short"
        )
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        code = errno.ENOSPC if "FULL" in name else errno.EIO
        return OSError(code, f"{os.strerror(code)}{done}", path)
    if name.startswith("SQLITE_CONSTRAINT"):
        return Conflict(CHANGED)
    why = _UNREADABLE.get(name.partition("_")[2].partition("_")[0], _OTHERS)
    return Unreadable(f"{why}{done}")


def quoted(name: str) -> str:
    """Write a name of a table or a column into a query."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def slot(value: Any) -> str:
    """Write the place of a value into a query."""
    return "CAST(? AS TEXT)" if type(value) is str else "?"


def bound(values: Iterable[Any]) -> list[Any]:
    """Give values to SQLite as they came: text by its bytes, which need not be UTF-8."""
    return [v.encode("utf-8", "surrogateescape") if type(v) is str else v for v in values]
