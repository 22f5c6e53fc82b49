"""The files themselves: private, plain, named by the session, safe from links and neighbours."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from pathlib import Path

import pytest

from lockstitch.errors import Damaged, Fenced, LockstitchError, Unreadable, Unsure, UsageError
from lockstitch.files import os_files
from lockstitch.journal.records import blob_name
from lockstitch.stores.jsonl import JsonlBackend, forks
from lockstitch.stores.jsonl.files import Files
from lockstitch.stores.jsonl.forks import Blobs
from tests.stores.contract import entries, entry, keys


def test_every_line_is_json_with_the_body_in_it(tmp_path: Path) -> None:
    with JsonlBackend(tmp_path) as backend:
        lease = backend.acquire("ticket-42")
        body = b'{"kind":"said","payload":"Gr\xc3\xbc\xc3\x9fe"}'
        backend.append(lease, [entry("a", body), entry("b", b'{"kind":"ended"}')], 0)
    text = (tmp_path / "ticket-42.jsonl").read_text("utf-8")
    assert '"payload":"Grüße"' in text
    opening, first, second = map(json.loads, text.splitlines())
    assert (opening["session"], opening["epoch"]) == ("ticket-42", 1)
    assert first["body"] == json.loads(body)
    assert (second["seq"], second["key"], second["body"]["kind"]) == (2, "b", "ended")


def test_files_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "sessions"
    os.umask(os.umask(0))
    with JsonlBackend(folder) as backend:
        lease = backend.acquire("s")
        backend.append(lease, [entry("a", b"{}", b"value")], 0)
        backend.fork("s", 1, "t")
        for path in [folder, *folder.rglob("*")]:
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path


def test_links_and_other_things_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious\n")
    with JsonlBackend(tmp_path / "store") as backend:
        (tmp_path / "store" / "link.jsonl").symlink_to(target)
        (tmp_path / "store" / "loose.jsonl").symlink_to(tmp_path / "nothing")
        (tmp_path / "store" / "folder.jsonl").mkdir()
        os.mkfifo(tmp_path / "store" / "pipe.jsonl")
        for name in ("link", "loose", "folder", "pipe"):
            with pytest.raises(LockstitchError):
                backend.acquire(name)
            with pytest.raises(Unreadable):
                list(backend.read(name))
        assert len(list(backend.sessions())) == 4
        assert len(list(backend.verify())) == 8
    assert target.read_bytes() == b"precious\n"
    assert not (tmp_path / "nothing").exists()


def test_a_name_that_the_file_system_does_not_tell_apart(tmp_path: Path) -> None:
    with JsonlBackend(tmp_path) as backend:
        backend.append(backend.acquire("Ticket"), entries("a"), 0)
    # As on a file system that knows no case: the name of one leads to the file of the other.
    (tmp_path / "Ticket.jsonl").rename(tmp_path / "ticket.jsonl")
    with JsonlBackend(tmp_path) as backend:
        for use in (
            lambda: backend.acquire("ticket"),
            lambda: list(backend.read("ticket")),
            lambda: backend.head("ticket"),
            lambda: backend.fork("ticket", 1, "t"),
        ):
            with pytest.raises(UsageError, match="Ticket"):
                use()


def test_a_file_can_be_given_another_name(tmp_path: Path) -> None:
    with JsonlBackend(tmp_path) as backend:
        backend.append(backend.acquire("old"), entries("a"), 0)
    shutil.copy(tmp_path / "old.jsonl", tmp_path / "copy.jsonl")
    with JsonlBackend(tmp_path) as backend:
        assert keys(backend, "copy") == ["a"]
        backend.append(backend.acquire("copy"), entries("b"), 1)
        assert keys(backend, "copy") == ["a", "b"]
        assert keys(backend, "old") == ["a"]


def test_without_its_leases_a_store_goes_on(tmp_path: Path) -> None:
    with JsonlBackend(tmp_path) as backend:
        lease = backend.acquire("s")
        backend.append(lease, entries("a"), 0)
        shutil.rmtree(tmp_path / ".leases")
        with pytest.raises(Unsure):
            backend.append(lease, entries("b"), 1)
        backend.release(lease)
        backend.append(backend.acquire("s"), entries("b"), 1)
    assert [path.name for path in (tmp_path / ".leases").iterdir()] == ["s.lock"]


@pytest.mark.parametrize("how", ["removed", "replaced", "cut"])
def test_a_file_that_somebody_took_away(tmp_path: Path, how: str) -> None:
    path = tmp_path / "s.jsonl"
    with JsonlBackend(tmp_path) as backend:
        lease = backend.acquire("s")
        backend.append(lease, entries("a"), 0)
        data = path.read_bytes()
        if how == "removed":
            path.unlink()
        elif how == "replaced":
            path.rename(tmp_path / "old")
            path.write_bytes(data)
        else:
            os.truncate(path, len(data) - 1)
        for _ in range(2):
            with pytest.raises(Damaged):
                backend.append(lease, entries("b"), 1)
        if how != "removed":
            assert path.read_bytes() == data[: path.stat().st_size]
        backend.release(lease)
        backend.acquire("s")


def test_what_another_program_adds_is_kept_and_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with JsonlBackend(tmp_path) as backend:
        lease = backend.acquire("s")
        backend.append(lease, entries("a"), 0)
        with path.open("ab") as file:
            file.write(b'{"foreign": true}\n')
        for _ in range(2):
            with pytest.raises(Unsure):
                backend.append(lease, entries("b"), 1)
        backend.release(lease)
        backend.append(backend.acquire("s"), entries("b"), 1)
        assert keys(backend, "s") == ["a", "b"]
    assert b'{"foreign": true}\n' in path.read_bytes()


def test_a_session_that_was_deleted_begins_anew(tmp_path: Path) -> None:
    with JsonlBackend(tmp_path) as backend:
        for _ in range(3):
            lease = backend.acquire("s")
            assert lease.epoch == 1
            backend.append(lease, entries(*"abcdef"), 0)
            assert keys(backend, "s") == [*"abcdef"]
            backend.release(lease)
            (tmp_path / "s.jsonl").unlink()
            assert backend.head("s") is None


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unreadable):
        JsonlBackend(tmp_path / "file")
    with pytest.raises(UsageError):
        JsonlBackend(tmp_path, lease_seconds=0)


def test_foreign_files_in_the_folder_are_no_sessions(tmp_path: Path) -> None:
    with JsonlBackend(tmp_path) as backend:
        backend.release(backend.acquire("s"))
        (tmp_path / "notes.txt").write_text("hello", "utf-8")
        (tmp_path / ".hidden.jsonl").write_text("hello", "utf-8")
        (tmp_path / "two words.jsonl").write_text("hello", "utf-8")
        assert [listed.session for listed in backend.sessions()] == ["s"]


def test_reading_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    real = Files.walk

    def walk(*arguments: object, **options: object) -> object:
        made = real(*arguments, **options)
        begun.append(made.state.seq)
        return made

    with JsonlBackend(tmp_path) as backend, JsonlBackend(tmp_path) as other:
        lease = backend.acquire("s")
        head = backend.append(lease, entries(*"abc"), 0)
        assert len(list(other.read("s"))) == 3
        monkeypatch.setattr(Files, "walk", walk)
        backend.append(lease, entries(*"def"), 3)
        begun.clear()
        assert [record.key for record in other.read("s", head)] == [*"def"]
        assert begun == [3]


def test_a_lease_that_only_the_old_writer_remembers(tmp_path: Path) -> None:
    with JsonlBackend(tmp_path) as one, JsonlBackend(tmp_path) as other:
        lease = one.acquire("s")
        with pytest.raises(Fenced):
            other.append(lease, entries("a"), 0)
        one.append(lease, entries("a"), 0)


def test_no_thread_is_left(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with JsonlBackend(tmp_path) as backend:
        first, second = backend.acquire("s"), backend.acquire("t")
        [beating] = set(threading.enumerate()) - before
        backend.release(first)
        assert beating.is_alive()
        backend.release(second)
        beating.join(60)
        assert not beating.is_alive()
        backend.acquire("s")
    assert set(threading.enumerate()) <= before


LARGE = b"a large value"


def has(backend: JsonlBackend, value: bytes) -> bool:
    try:
        return bool(backend.blobs([blob_name(value)]))
    except Damaged:
        return False


def test_a_source_is_not_removed_while_it_is_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its large values would be gone before the copy names them."""
    with JsonlBackend(tmp_path) as backend, JsonlBackend(tmp_path) as other:
        lease = backend.acquire("s")
        backend.append(lease, [entry("a", b"{}", LARGE)], 0)
        removing = threading.Thread(target=backend.delete, args=(lease,))
        real = forks.place_file

        def place(draft: Path, target: Path) -> bool:
            removing.start()
            # It would be done long before that; but it has to wait.
            removing.join(0.3)
            return real(draft, target)

        monkeypatch.setattr(forks, "place_file", place)
        other.fork("s", 1, "t")
        removing.join(600)
        assert backend.head("s") is None
        assert keys(other, "t") == ["a"]
        assert has(other, LARGE)


def test_large_values_that_a_killed_process_was_removing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go with the next write, but not those that somebody names after all."""
    kept = b"another large value"
    with JsonlBackend(tmp_path) as backend:
        lease = backend.acquire("s")
        backend.append(lease, [entry("a", b"{}", LARGE, kept)], 0)
        with monkeypatch.context() as broken:
            broken.setattr(Blobs, "_drop", lambda *_: None)
            backend.delete(lease)
        assert has(backend, LARGE)
        monkeypatch.setattr(Blobs, "is_unfinished", lambda _: False)
        backend.append(backend.acquire("t"), [entry("b", b"{}", kept)], 0)
        monkeypatch.undo()
    with JsonlBackend(tmp_path) as backend:
        backend.acquire("u")
        assert not has(backend, LARGE)
        assert has(backend, kept)
        assert not (tmp_path / "blobs" / ".doomed").exists()


def test_drafts_that_killed_processes_left_go_when_something_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os_files, "STALE", -60.0)
    with JsonlBackend(tmp_path) as backend:
        lease = backend.acquire("s")
        backend.append(lease, [entry("a", b"{}", LARGE)], 0)
        for folder in (tmp_path, tmp_path / "blobs" / blob_name(LARGE)[:2]):
            (folder / f"{os_files.PREFIX}left{os_files.SUFFIX}").write_bytes(b"secret")
        backend.delete(lease)
    assert list(tmp_path.rglob(f"{os_files.PREFIX}*")) == []
