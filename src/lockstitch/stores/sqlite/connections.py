"""The files of a SQLite store, and connections to it: commits are durable, nothing runs unasked.

``synchronous=FULL`` and the journal mode are set and then queried, because the pragma can fail
silently. No connection checkpoints by itself: up to version 3.51.2, SQLite can corrupt a database
when a checkpoint and a restart of the log coincide, so both happen under our lock.

Some connections for reading are kept open. Each sees one state of the store at a time, never waits
for a writer, and cannot checkpoint, not even when it is the last one to be closed.

No function of the file system opens a database that SQLite may have open in this process: closing
that file would drop SQLite's locks on it, and acknowledged commits could be lost.

A store may come from anywhere. Compressed data does not say how large it will be, and a few bytes
can stand for gigabytes, so nothing is unpacked beyond the size that it can rightly have.
"""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import shutil
import sqlite3
import stat
import struct
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

from lockstitch.errors import (
    Busy,
    Closed,
    Damaged,
    LockstitchError,
    Unreadable,
    Unsure,
    Where,
    reason_of,
)
from lockstitch.files import os_files
from lockstitch.stores.addresses import encoded_path
from lockstitch.stores.group_commit import forget_in_children

Identity = tuple[int, int]
_NOWHERE: Identity = (0, 0)

# Databases whose log was removed while this process had a connection. SQLite shares its knowledge
# of a log among all connections of a process, so a new connection would not see the actual files.
_LOST: set[Identity] = set()


def wal_of(path: Path) -> Path:
    """Return the path of the log that SQLite writes commits to."""
    return path.with_name(f"{path.name}-wal")


def shm_of(path: Path) -> Path:
    """Return the path of the file through which the processes that use a store share an index."""
    return path.with_name(f"{path.name}-shm")


def lock_of(path: Path) -> Path:
    """Return the path of the lock file."""
    return path.with_name(f"{path.name}-lock")


def size_of(path: Path) -> int | None:
    """Return the size of a regular file, None if there is none.

    Raise an error for anything else.
    """
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"{reason_of(error)}").about(path) from error
    if stat.S_ISLNK(found.st_mode):
        raise Unreadable("it is a symbolic link; name the file itself").about(path)
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable("it is not a plain file").about(path)
    return found.st_size


def check_one_name(path: Path) -> None:
    """Raise an error if a database has a second name, because SQLite finds log and locks by name.

    Under the other name it would be read without its log, and a write there would corrupt it.
    """
    try:
        count = os.lstat(path).st_nlink
    except OSError:
        return
    if count > 1:
        raise Unreadable(
            f"it is a hard link, one of {count} names of the same file, and SQLite corrupts"
            " a database that is used under two names; nothing was changed. Make it a file of its"
            f" own: remove the other names (find FOLDER -samefile {path.name} lists them), or put"
            " a copy in its place while no program has it open"
        ).about(path)


def is_writable(path: Path) -> bool:
    """Whether this process may write to an existing database and to the files beside it."""
    if not _may_write(path):
        return False
    beside = (wal_of(path), shm_of(path), lock_of(path))
    return _may_write(path.parent) or all(map(_may_write, beside))


def _may_write(path: Path) -> bool:
    """Whether the system permits writing for the effective user; this notices read-only systems."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def make_folders(folder: Path) -> None:
    """Create a private folder and its parents, and make their names durable."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        os_files.sync_folder(folder.parent)
    except OSError as error:
        raise Unreadable(f"the folder {folder} cannot be created: {reason_of(error)}") from error


def check_alone(path: Path) -> None:
    """Raise an error if a new database would get a leftover log, which SQLite would apply to it."""
    for left in (wal_of(path), path.with_name(f"{path.name}-journal")):
        if size_of(left):
            raise Unreadable(
                f"{left.name} is left over from a database that is gone; move it away first"
            ).about(path)


def create(path: Path, fill: Callable[[Path], None]) -> None:
    """Create a private database under a temporary name, and move it into place when complete."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        os.close(os.open(draft, os_files.CREATING, 0o600))
        fill(draft)
        draft.replace(path)
        os_files.sync_folder(path.parent)
    except OSError as error:
        raise Unreadable(f"it cannot be created: {reason_of(error)}").about(path) from error
    finally:
        for name in (draft, wal_of(draft), shm_of(draft)):
            name.unlink(missing_ok=True)


def identity(path: str) -> Identity:
    """Return the device and inode that a name leads to now."""
    try:
        found = os.lstat(path)
    except OSError:
        return _NOWHERE
    return found.st_dev, found.st_ino


class WatchedName:
    """Returns which file has a name, as often as asked, without reading the file's times.

    Since Linux 6.13, reading a file's times makes the next write set finer ones, and then an fsync
    has to wait for the file system's journal as well, which takes a third longer. Used by one
    thread at a time.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._found = ctypes.create_string_buffer(_STATX_SIZE)
        call = _statx()
        name = os.fsencode(path)
        self._ask = call and partial(call, _HERE, name, _NO_LINKS, _INODE, self._found)

    def identity(self) -> Identity:
        """Return the device and inode that the name leads to now."""
        if self._ask is None or self._ask() != 0:
            return identity(self._path)
        number, major, minor = _PARTS.unpack_from(self._found, _START)
        return os.makedev(major, minor), number


_STATX_SIZE = 256
_HERE = -100  # AT_FDCWD
_NO_LINKS = 0x100  # AT_SYMLINK_NOFOLLOW
_INODE = 0x100  # STATX_INO
# The offsets in a struct statx of the inode's number and of both halves of the device's.
_START = 32
_PARTS = struct.Struct("=Q96xII")


@cache
def _statx() -> Callable[..., int] | None:
    """Return Linux's call that reads only the requested fields of a file; None on other systems."""
    if sys.platform != "linux":
        return None
    try:
        call: Callable[..., int] = ctypes.CDLL(None).statx
    except (OSError, AttributeError):
        return None
    return call


def mark_unusable(found: Identity) -> None:
    """Record that this process can no longer use a database."""
    _LOST.add(found)


def check_usable(path: Path) -> None:
    """Raise an error if this process can no longer use a database."""
    if _LOST and identity(str(path)) in _LOST:
        raise Unsure(
            "another program removed the database's log while it was in use; the last writes "
            "may be lost: restart this process"
        ).about(path)


def stamp(path: Path) -> tuple[int, int, int, int]:
    """Return a file's device, inode, size and modification time."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


# The most bytes that a large value may unpack to, and the least limit for a session's records.
MOST = 1 << 29
MOST_OF_RECORDS = 1 << 26
# The limit for unpacking anything, as a multiple of its size.
RATIO = 32
# The most bytes that one compressed byte can stand for.
DENSEST = 1040
_STEP = 1 << 20


class Overfull(zlib.error):
    """Compressed data stands for more bytes than it may."""


def inflate(body: bytes, most: int) -> bytes:
    """Return compressed bytes unpacked; raise ``Overfull`` above a limit, or ``zlib.error``."""
    if len(body) * DENSEST > most:
        # It may exceed the limit: measure it first without keeping the output.
        unpacking, rest, count = zlib.decompressobj(), body, 0
        while rest and not unpacking.eof:
            count += len(unpacking.decompress(rest, _STEP))
            rest = unpacking.unconsumed_tail
            if count > most:
                raise Overfull(most)
    return zlib.decompress(body)


def inflate_beginning(body: bytes, most: int) -> bytes:
    """Return what compressed bytes contain before the damage, up to a limit."""
    unpacking, found, count = zlib.decompressobj(), list[bytes](), 0
    try:
        for place in range(0, len(body), 64):
            found.append(unpacking.decompress(body[place : place + 64], max(most - count, 1)))
            count += len(found[-1])
            if count >= most:
                break
    except zlib.error:
        pass
    return b"".join(found)


def overfull_error(where: Where, what: str, most: int) -> Damaged:
    """Return the error for data that unpacks to more than it may."""
    return Damaged(
        f"{what} unpacks to more than {most:,} bytes, which nothing written here does; nothing "
        "was changed"
    ).about(*where)


APPLICATION = int.from_bytes(b"lstj")
# Of new databases. Records continue on the next page, so records of any size leave no gaps. A
# commit writes whole pages, so small pages make it short.
PAGE = 4096
BUSY_SECONDS = 30.0

_OLDEST = (3, 24, 0)
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_KIND = 0xFF
# The version that records which session names which large value.
_USES = 2
# The version that supports forks, and stores records in pieces.
FORKS = 5
_NAMES = re.compile(rb'"(?:blob|x)":"([0-9a-f]{32})"')

_RUNNING = """
select type, name, sql from sqlite_master
 where type in ('trigger', 'view') or sql like 'create virtual%'
union all
select 'computed column', m.name || '.' || x.name, ''
  from sqlite_master as m, pragma_table_xinfo(m.name) as x
 where m.type = 'table' and x.hidden <> 0
"""

Connection = sqlite3.Connection
Connect = Callable[[str], Connection]


def connect(uri: str) -> Connection:
    """Open a database; transactions begin only when we say so."""
    return sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS
    )


def uri_of(path: Path, **options: str) -> str:
    """Return the URI that SQLite expects for a path."""
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"file:{encoded_path(path)}?{query}"


def prepare(connection: Connection, path: Path) -> None:
    """Configure a connection, and check that the settings took effect."""
    if ask(connection, "pragma journal_mode=wal") != "wal":
        raise Unreadable("SQLite cannot keep a write-ahead log here").about(path)
    connection.execute("pragma synchronous=full")
    if ask(connection, "pragma synchronous") != 2:  # noqa: PLR2004
        raise Unreadable("SQLite does not promise durable commits here").about(path)
    ask(connection, "pragma wal_autocheckpoint=0")
    connection.execute("pragma cell_size_check=on")
    # A growing piece may move to another page, and its old place must not keep its content.
    ask(connection, "pragma secure_delete=on")


def ask(connection: Connection, question: str, *values: object) -> Any:
    """Return the first value of a statement's result, None if it is empty."""
    row = connection.execute(question, values).fetchone()
    return None if row is None else row[0]


def fill(connect: Connect, path: Path) -> None:
    """Turn an empty file into a new, empty store."""
    connection = connect(uri_of(path, mode="rw"))
    try:
        connection.execute(f"pragma page_size={PAGE}")
        prepare(connection, path)
        connection.execute("begin immediate")
        migrate(connection)
        connection.execute(f"pragma application_id={APPLICATION}")
        connection.execute("commit")
        if ask(connection, "pragma wal_checkpoint(truncate)") != 0:
            raise Unreadable("somebody else uses a file that is just being created").about(path)
    finally:
        connection.close()


def migrations() -> list[tuple[int, str]]:
    """Return the scripts that lead from each version to the next one, in order."""
    folder = resources.files(__package__)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(int(name.removesuffix(".sql")), (folder / name).read_text("utf-8")) for name in names]


def migrate(connection: Connection) -> None:
    """Bring a database to the newest version, within the open transaction."""
    version = version_of(connection)
    for number, script in migrations():
        if number > version:
            for statement in _statements(script):
                connection.execute(statement)
            if number == _USES:
                _note_uses(connection)
            connection.execute(f"pragma user_version={number}")


def version_of(connection: Connection) -> int:
    """Return the version of a store; one that is only read may be older than this program."""
    return int(ask(connection, "pragma user_version"))


def _note_uses(connection: Connection) -> None:
    """Record which large values the records of an older store name."""
    if not ask(connection, "select exists (select 1 from blobs)"):
        return
    for session, codec, body in connection.execute("select session, codec, body from events"):
        with suppress(zlib.error, TypeError):
            for name in _NAMES.findall(inflate(body, MOST) if codec else body):
                connection.execute(
                    "insert or ignore into uses (name, session) values (?, ?)",
                    (bytes.fromhex(name.decode()), session),
                )


def _statements(script: str) -> list[str]:
    statements, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements


def check_kind(connection: Connection, path: Path) -> None:
    """Raise an error if a database is not a store, or is one of a later version."""
    if ask(connection, "pragma application_id") != APPLICATION:
        raise Unreadable("it is a database of another program, not a store of sessions").about(path)
    newest = migrations()[-1][0]
    version = version_of(connection)
    if version > newest:
        raise Unreadable(
            f"it was written by a later version of Lockstitch (format {version}, this one"
            f" reads up to {newest}); nothing was changed"
        ).about(path)
    # A store must contain no triggers but ours, because they would run when it is used.
    connection.execute("pragma trusted_schema=off")
    for kind, name, text in connection.execute(_RUNNING).fetchall():
        if kind == "trigger" and _spaced(str(text)) in _triggers():
            continue
        shown = str(name).encode("ascii", "replace").decode()
        raise Unreadable(
            f"it has a {kind} {shown[:60]!r}, which no version of Lockstitch creates and which "
            "would run when the store is used; nothing was read or changed"
        ).about(path)


@cache
def _triggers() -> frozenset[str]:
    """Return the texts of all triggers that any version creates."""
    made = (_spaced(one) for _, script in migrations() for one in _statements(script))
    return frozenset(one for one in made if one.startswith("create trigger"))


def _spaced(text: str) -> str:
    """Return a statement without comments and with the white space that SQLite keeps."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return " ".join(" ".join(lines).split()).rstrip(";").replace("CREATE TRIGGER", "create trigger")


def check_library() -> None:
    """Raise an error if SQLite is older than the statements here need."""
    if sqlite3.sqlite_version_info < _OLDEST:
        raise Unreadable(f"SQLite {sqlite3.sqlite_version} is too old: 3.24 or later is needed")


def translate_error(error: sqlite3.Error, path: Path) -> LockstitchError:
    """Return our error for something that SQLite could not read."""
    kind = kind_of(error)
    if kind in _BROKEN or type(error) is sqlite3.DatabaseError:
        return Damaged(f"the database is damaged, or it is not a database: {error}").about(path)
    if kind == sqlite3.SQLITE_BUSY:
        return Busy(f"another program holds the database: {error}").about(path)
    return Unreadable(f"it cannot be read: {error}").about(path)


def unsure_error(error: BaseException, path: Path) -> Unsure:
    """Return the error for a failed write with an unknown outcome."""
    return Unsure(
        f"a write failed ({error}); whether it is in the store is not known: open the session again"
    ).about(path)


def kind_of(error: sqlite3.Error) -> int:
    """Return the kind of an error as SQLite's constants name it."""
    return int(getattr(error, "sqlite_errorcode", 0)) & _KIND


def is_busy(error: sqlite3.Error) -> bool:
    """Whether SQLite only reports that another connection is at work."""
    return kind_of(error) == sqlite3.SQLITE_BUSY


def abandon(connection: Connection) -> None:
    """Keep a connection open forever, since closing it could write to a file of somebody else."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


_TRIES = 3


class Readers:
    """Connections for reading the database at a path, which is known to be an existing store.

    At most ``kept`` of them stay open while they are not used.
    """

    kept = 8

    def __init__(self, path: Path, connect: Connect) -> None:
        self.path = path
        self._connect = connect
        self._guard = threading.Lock()
        self._idle: list[Connection] = []
        self._file = identity(str(path))
        self._is_closed = False
        self._process = os.getpid()
        forget_in_children(self)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Lend a connection on which all reads see the same state."""
        self.require_open()
        try:
            found, connection = identity(str(self.path)), None
            with self._guard:
                idle, self._idle = self._idle, []
                if idle and found == self._file:
                    self._idle, connection = idle, idle.pop()
                self._file = found
            if connection is None:
                for other in idle:
                    other.close()
                connection = self.open()
                connection.execute("pragma cell_size_check=on")
            try:
                connection.execute("begin")
                yield connection
                connection.execute("rollback")
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            self.require_open()
            raise translate_error(error, self.path) from error
        except UnicodeDecodeError as error:
            # SQLite tried to quote what it could not read, which is not valid text.
            raise Damaged("the database is damaged: its names are not text").about(
                self.path
            ) from error
        with self._guard:
            if not self._is_closed and len(self._idle) < self.kept:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the connections that are not in use, and each of the others when it is returned."""
        with self._guard:
            idle, self._idle, self._is_closed = self._idle, [], True
        for connection in idle:
            connection.close()

    def require_open(self) -> None:
        """Raise ``Closed`` after closing, or in a forked child."""
        if self._process != os.getpid():
            raise Closed("it was opened by another process, before a fork").about(self.path)
        if self._is_closed:
            raise Closed("the store was closed").about(self.path)

    def forget(self) -> None:
        """In a forked child, leave the connections to the parent."""
        for connection in self._idle:
            abandon(connection)

    def open(self) -> Connection:
        """Open another connection."""
        check_usable(self.path)
        return self._connect(uri_of(self.path, mode="ro"))


class ReadonlyReaders(Readers):
    """Reads a store without leaving a trace: no file is created or changed, not even a lock.

    SQLite reads a log only together with the shared file beside it. If there is no log, the
    database is read as an unchanging file. If there is a log without the shared file, which a
    manual copy can cause, both are copied to a temporary folder.
    """

    kept = 0

    def __init__(self, path: Path, connect: Connect) -> None:
        super().__init__(path, connect)
        self._lying: tuple[int, int, int, int] | None = None
        self._aside: tempfile.TemporaryDirectory[str] | None = None
        if size_of(path) is None:
            raise Unreadable("no such file").about(path)
        check_one_name(path)
        with self.snapshot() as connection:
            check_kind(connection, path)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Lend a connection.

        Raise an error if a database without a log was changed in the meantime.
        """
        try:
            with super().snapshot() as connection:
                yield connection
        except LockstitchError as error:
            if self._is_disturbed():
                raise Unreadable("it was written to while it was being read").about(
                    self.path
                ) from error
            raise
        if self._is_disturbed():
            raise Unreadable("it was written to while it was being read: read it again").about(
                self.path
            )

    def open(self) -> Connection:
        """Open another connection, again if the files change at that moment."""
        for _ in range(_TRIES):
            connection = self._opened()
            try:
                ask(connection, "pragma schema_version")
            except sqlite3.OperationalError:
                connection.close()
            else:
                return connection
        return self._opened()

    def _opened(self) -> Connection:
        """Open the database in the way that its files require now."""
        if size_of(shm_of(self.path)) is not None:
            self._lying = None
            return self._connect(uri_of(self.path, mode="ro", readonly_shm="1"))
        if size_of(wal_of(self.path)):
            # Nobody has the database open, not even this process, or the shared file would exist.
            if self._aside is None:
                self._aside = tempfile.TemporaryDirectory(prefix="lockstitch-")
                for path in (self.path, wal_of(self.path)):
                    shutil.copyfile(path, Path(self._aside.name, path.name), follow_symlinks=False)
            return self._connect(uri_of(Path(self._aside.name, self.path.name), mode="ro"))
        self._lying = stamp(self.path)
        return self._connect(uri_of(self.path, mode="ro", immutable="1"))

    def close(self) -> None:
        """Close the connections and remove the copy."""
        super().close()
        aside, self._aside = self._aside, None
        if aside is not None:
            aside.cleanup()

    def _is_disturbed(self) -> bool:
        with suppress(OSError):
            return self._lying is not None and stamp(self.path) != self._lying
        return True
