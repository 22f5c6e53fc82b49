"""Which files are made, for whom, and which are refused untouched."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

import lockstitch
from lockstitch.errors import Damaged, Held, Unreadable, UsageError
from lockstitch.journal.records import Head, JournalEntry, blob_name
from lockstitch.stores.base import StoreFault
from lockstitch.stores.sqlite import SqliteBackend, connections
from tests.stores.sqlite import older
from tests.stores.sqlite.conftest import entries

POSIX = pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Everything in a folder, byte for byte, and when it was changed."""
    return {
        str(one.relative_to(folder)): (
            one.read_bytes() if one.is_file() else b"",
            one.lstat().st_mtime_ns,
        )
        for one in sorted(folder.rglob("*"))
    }


@POSIX
def test_files_and_folders_are_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "newer" / "sessions.db"
    before = os.umask(0)
    try:
        with SqliteBackend(path) as store:
            store.append(store.acquire("s"), entries(4), 0)
            made = {one.name: mode_of(one) for one in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert made == dict.fromkeys(
        ["sessions.db", "sessions.db-wal", "sessions.db-shm", "sessions.db-lock"], 0o600
    )
    assert mode_of(path.parent) == mode_of(path.parent.parent) == 0o700
    assert sorted(one.name for one in path.parent.iterdir()) == ["sessions.db", "sessions.db-lock"]


@POSIX
def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with SqliteBackend(tmp_path / "sessions.db"):
        assert mode_of(tmp_path) == 0o755


def test_a_symbolic_link_is_refused(filled: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(filled)
    before = contents(tmp_path)
    for readonly in (False, True):
        with pytest.raises(Unreadable, match="symbolic link"):
            SqliteBackend(link, readonly=readonly)
    assert contents(tmp_path) == before


def test_a_symbolic_link_in_place_of_the_lock_is_refused(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    target = tmp_path / "precious"
    path.with_name("sessions.db-lock").symlink_to(target)
    with pytest.raises(Unreadable):
        SqliteBackend(path)
    assert not target.exists()
    assert not path.exists()


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table notes (text)")


def foreign_with_log(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("pragma journal_mode=wal").fetchall()
        connection.execute("create table notes (text)")


def newer(path: Path) -> None:
    SqliteBackend(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma user_version=999")
    path.with_name("sessions.db-lock").unlink()


def binary(path: Path) -> None:
    path.write_bytes(os.urandom(40_000))


def text(path: Path) -> None:
    path.write_text("{}\n" * 1000)


def truncated(path: Path) -> None:
    with SqliteBackend(path) as store:
        store.append(store.acquire("s"), entries(8), 0)
    path.write_bytes(path.read_bytes()[:20_000])
    path.with_name("sessions.db-lock").unlink()


def short(path: Path) -> None:
    SqliteBackend(path).close()
    path.write_bytes(path.read_bytes()[:60])
    path.with_name("sessions.db-lock").unlink()


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize(
    "make", [foreign, foreign_with_log, newer, binary, text, truncated, short, folder]
)
def test_what_is_no_store_is_refused_untouched(path: Path, make: object, readonly: bool) -> None:
    path.parent.mkdir()
    make(path)  # type: ignore[operator]
    before = contents(path.parent)
    with pytest.raises(Unreadable, match=r"sessions\.db: "):
        SqliteBackend(path, readonly=readonly)
    assert contents(path.parent) == before


def test_a_later_version_is_named(path: Path) -> None:
    newer_than_this = path
    path.parent.mkdir()
    newer(newer_than_this)
    with pytest.raises(Unreadable, match="later version of Lockstitch"):
        SqliteBackend(path)


def test_a_store_is_not_made_beside_the_log_of_another(path: Path) -> None:
    killed_writer(path)
    path.unlink()
    before = contents(path.parent)
    with pytest.raises(Unreadable, match="move it away"):
        SqliteBackend(path)
    assert contents(path.parent) == before


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with SqliteBackend(path) as store:
        assert store.acquire("s").epoch == 1


def test_reading_only_an_empty_file(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with pytest.raises(Unreadable):
        SqliteBackend(path, readonly=True)


def test_a_store_is_made_by_many_at_once(path: Path) -> None:
    program = (
        "import sys; from lockstitch.stores.sqlite import SqliteBackend\n"
        "with SqliteBackend(sys.argv[1]) as store: store.acquire(sys.argv[2])"
    )
    commands = [[sys.executable, "-c", program, str(path), f"s{n}"] for n in range(6)]
    running = [subprocess.Popen(command) for command in commands]
    assert [process.wait() for process in running] == [0] * 6
    with SqliteBackend(path) as store:
        assert [one.session for one in store.sessions()] == [f"s{n}" for n in range(6)]
    assert sorted(one.name for one in path.parent.iterdir()) == ["sessions.db", "sessions.db-lock"]


# Reading only.


def test_reading_only_makes_and_changes_nothing(filled: Path) -> None:
    before = contents(filled.parent)
    with SqliteBackend(filled, readonly=True) as store:
        assert [one.seq for one in store.sessions()] == [8, 8, 8]
        assert len(list(store.read("a"))) == 8
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]
        assert not store.wait("a", 8, 0.01)
        for write in (lambda: store.acquire("a"), lambda: store.fork("a", 1, "z")):
            with pytest.raises(UsageError, match="reading only"):
                write()
    assert contents(filled.parent) == before


def test_reading_only_what_is_not_there(path: Path) -> None:
    with pytest.raises(Unreadable, match="no such file"):
        SqliteBackend(path, readonly=True)
    assert not path.parent.exists()


def test_reading_only_beside_a_writer(filled: Path) -> None:
    with SqliteBackend(filled) as writer, SqliteBackend(filled, readonly=True) as reader:
        lease = writer.acquire("a")
        for seq in range(8, 40):
            writer.append(lease, entries(1, first=seq + 1), seq)
            assert reader.head("a") == writer.head("a")
        assert len(list(reader.read("a"))) == 40
        assert next(reader.sessions()).holder


def killed_writer(path: Path) -> None:
    program = (
        "import os, sys; from lockstitch.stores.sqlite import SqliteBackend\n"
        "from tests.stores.sqlite.conftest import entries\n"
        "store = SqliteBackend(sys.argv[1]); lease = store.acquire('killed')\n"
        "store.append(lease, entries(20), 0); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert path.with_name("sessions.db-wal").stat().st_size


@pytest.mark.parametrize("lost", [(), ("sessions.db-shm",)])
def test_reading_only_what_a_killed_writer_left(filled: Path, lost: tuple[str, ...]) -> None:
    killed_writer(filled)
    for name in lost:
        filled.with_name(name).unlink()
    before = contents(filled.parent)
    with SqliteBackend(filled, readonly=True) as store:
        assert len(list(store.read("killed"))) == 20
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]
        assert [one.holder for one in store.sessions()] == [""] * 4
    assert contents(filled.parent) == before


def test_what_a_killed_writer_held_is_free(filled: Path) -> None:
    killed_writer(filled)
    with SqliteBackend(filled) as store:
        assert store.acquire("killed").head.seq == 20


NOBODY = """
import contextlib, io, os, sys
import lockstitch
from lockstitch import stored
from lockstitch.cli import run
from lockstitch.errors import LockstitchError
from lockstitch.stores.sqlite import connections
scripts = connections.migrations()
connections.migrations = lambda: scripts
url = f"sqlite:///{sys.argv[1]}"

def look():
    with lockstitch.open(url) as store:
        assert [one.session for one in store.sessions()] == ["a"]
        assert len(store.read("a").request("anthropic")) == 1
        assert [report.status for report in stored.check(url)] == ["ok"]
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        status = [run([command, url]) for command in ("check", "show")]
    return status, shown.getvalue()

seen = look()  # loads what lies where nobody may read it
for name in os.listdir(os.path.dirname(sys.argv[1])):
    if name.endswith("-lock"):
        os.unlink(os.path.join(os.path.dirname(sys.argv[1]), name))
os.chmod(sys.argv[1], int(sys.argv[2], 8))
os.chmod(os.path.dirname(sys.argv[1]), int(sys.argv[3], 8))
os.geteuid() or os.setuid(65534)
print(look() == seen)
with lockstitch.open(url) as store:
    for write in (lambda: store.session("a"), lambda: store.fork("a", "b")):
        try:
            write()
        except LockstitchError as error:
            print(error)
"""


@POSIX
@pytest.mark.parametrize(("file", "folder"), [("644", "555"), ("444", "555"), ("444", "777")])
def test_what_may_not_be_written_can_be_read(file: str, folder: str) -> None:
    """Somebody else's store is read like one's own, and nothing is made or changed there."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "sessions.db")
        with lockstitch.open(f"sqlite:///{path}") as store, store.session("a") as session:
            session.say("hello")
        command = [sys.executable, "-c", NOBODY, str(path), file, folder]
        before = path.read_bytes()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        path.parent.chmod(0o755)
        assert done.returncode == 0, done.stderr
        assert [one.name for one in path.parent.iterdir()] == ["sessions.db"]
        assert path.read_bytes() == before
    told, *refused = done.stdout.splitlines()
    assert told == "True"
    assert len(refused) == 2
    for line in refused:
        assert "may not write to it" in line


@pytest.mark.parametrize("readonly", [False, True])
def test_a_hard_link_is_refused(filled: Path, tmp_path: Path, readonly: bool) -> None:
    other = tmp_path / "other.db"
    other.hardlink_to(filled)
    before = contents(tmp_path)
    for path in (filled, other):
        with pytest.raises(Unreadable, match=r"hard link, one of 2 names .* nothing was changed"):
            SqliteBackend(path, readonly=readonly)
    assert contents(tmp_path) == before
    other.unlink()
    with SqliteBackend(filled, readonly=readonly) as store:
        assert len(list(store.read("a"))) == 8


# The format.


def test_the_format_is_what_the_documents_say(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as connection:
        asked = ("application_id", "user_version", "page_size", "journal_mode")
        found = [connections.ask(connection, f"pragma {one}") for one in asked]
    assert found == [connections.APPLICATION, 5, 4096, "wal"]


def test_a_store_with_other_pages_is_used_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier ones had larger pages: they stay, and everything works."""
    with monkeypatch.context() as earlier:
        earlier.setattr(connections, "PAGE", 16384)
        with SqliteBackend(path) as store:
            store.append(store.acquire("s"), entries(8), 0)
    with SqliteBackend(path) as store:
        store.append(store.acquire("s"), entries(8, first=9), 8)
        store.fork("s", 12, "t")
        store.delete(store.acquire("t"))
        assert [one.body for one in store.read("s")] == [one.body for one in entries(16)]
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]
    with closing(sqlite3.connect(path)) as connection:
        assert connections.ask(connection, "pragma page_size") == 16384


@pytest.mark.parametrize("has_call", [True, False], ids=["without times", "with times"])
def test_a_name_tells_which_file_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_call: bool
) -> None:
    if not has_call:
        monkeypatch.setattr(connections, "_statx", lambda: None)
    path, other = tmp_path / "a", tmp_path / "other"
    name = connections.WatchedName(path)
    assert name.identity() == (0, 0)
    for one in (path, other):
        one.write_bytes(b"")
    first = name.identity()
    path.write_bytes(b"more")
    assert name.identity() == first != (0, 0)
    assert first == (path.stat().st_dev, path.stat().st_ino)
    other.replace(path)
    assert name.identity() != first
    path.unlink()
    assert name.identity() == (0, 0)
    path.symlink_to(tmp_path / "elsewhere")
    assert name.identity()[1] == path.lstat().st_ino


def test_compressed_and_plain_records_live_together(path: Path) -> None:
    for number, compress in enumerate((False, True, False)):
        with SqliteBackend(path, compress=compress) as store:
            store.append(store.acquire("s"), entries(10, first=number * 10 + 1), number * 10)
    with SqliteBackend(path) as store:
        assert [one.body for one in store.read("s")] == [one.body for one in entries(30)]
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]


def test_a_damaged_store_says_so(path: Path) -> None:
    path.parent.mkdir()
    truncated(path)
    with pytest.raises(Damaged):
        SqliteBackend(path, readonly=True)


def test_a_session_of_another_store_in_the_process_is_held(filled: Path) -> None:
    with SqliteBackend(filled) as one, SqliteBackend(filled) as other:
        one.acquire("a")
        with pytest.raises(Held, match=f"process {os.getpid()} on "):
            other.acquire("a")


# Stores of earlier versions.

LARGE = b"large " * 20_000
NAMING = JournalEntry(
    "names", 5, b'{"kind":"noted","blob":"%s"}' % blob_name(LARGE).encode(), (LARGE,)
)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("version", [1, 2])
def test_a_store_of_an_earlier_version_is_read_as_it_is(
    path: Path, version: int, compress: bool
) -> None:
    sent = [*entries(6), NAMING]
    older.make(path, {"a": sent, "b": entries(3)}, version=version, compress=compress)
    before = contents(path.parent)
    with SqliteBackend(path, readonly=True) as store:
        assert [one.body for one in store.read("a")] == [one.body for one in sent]
        assert store.blobs([blob_name(LARGE)])
        assert [one.seq for one in store.sessions()] == [7, 3]
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]
    assert contents(path.parent) == before


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("version", [1, 2])
def test_a_store_of_an_earlier_version_goes_on(path: Path, version: int, compress: bool) -> None:
    """What is there stays in its form; what is added, forked or removed is in the new one."""
    older.make(path, {"a": entries(6), "b": entries(3)}, version=version, compress=compress)
    with SqliteBackend(path, compress=compress) as store:
        lease = store.acquire("a")
        store.append(lease, entries(6, first=7), 6)
        assert store.append(lease, entries(6, first=7), 6).seq == 12
        for seq in range(12):
            record = list(store.read("a", upto=seq))[-1] if seq else Head()
            after = Head(record.seq, record.digest, record.epoch)
            assert len(list(store.read("a", after))) == 12 - seq
        assert [store.fork("a", upto, f"f{upto}").seq for upto in (0, 4, 6, 9)] == [0, 4, 6, 9]
        store.delete(lease)
        for upto in (0, 4, 6, 9):
            found = [one.body for one in store.read(f"f{upto}")]
            assert found == [one.body for one in entries(upto)]
        other = store.acquire("b")
        store.fork("b", 2, "g")
        store.replace(other, entries(1, first=20), 3)
        assert [one.key for one in store.read("b")] == ["key-20"]
        assert [one.key for one in store.read("g")] == ["key-1", "key-2"]
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]
        store.release(other)
        for name in ("f0", "f4", "f6", "f9", "b", "g"):
            store.delete(store.acquire(name))
        assert list(store.verify()) == []
    with closing(sqlite3.connect(path)) as base:
        # Version 1 could tell whose a large value is only by records that name it.
        for table in ("events", "pieces", "forks", "uses", *["blobs"] * (version - 1)):
            assert base.execute(f"select count(*) from {table}").fetchone() == (0,), table  # noqa: S608


@pytest.mark.parametrize("compress", [False, True])
def test_version_1_did_not_know_which_session_names_a_large_value(
    path: Path, compress: bool
) -> None:
    older.make(path, {"s": [NAMING], "t": [NAMING]}, version=1, compress=compress)
    with SqliteBackend(path) as store:
        store.delete(store.acquire("s"))
        assert store.blobs([blob_name(LARGE)])
        store.delete(store.acquire("t"))
        assert list(store.verify()) == []
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("select count(*) from blobs").fetchone() == (0,)
