from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from lockstitch.errors import Unreadable, UsageError
from lockstitch.files import replace
from tests.files.conftest import LINES


def test_data_and_status_are_those_of_one_open_file(session: Path) -> None:
    read = replace.snapshot(session)
    found = session.stat()
    assert (read.path, read.data, read.size) == (str(session), LINES, len(LINES))
    assert (read.device, read.inode) == (found.st_dev, found.st_ino)
    assert read.mode == stat.S_IMODE(found.st_mode)
    assert read.digest == hashlib.sha256(LINES).hexdigest()


def test_the_file_is_opened_once(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    real = os.open

    def count(path: object, *rest: int) -> int:
        opened.append(path)
        return real(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", count)
    replace.snapshot(session)
    assert opened == [str(session)]


def test_a_large_file_is_read_whole(tmp_path: Path) -> None:
    data = os.urandom(1 << 16) * 50
    (tmp_path / "large").write_bytes(data)
    assert replace.snapshot(tmp_path / "large").data == data


def test_an_empty_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert replace.snapshot(tmp_path / "empty").data == b""


def test_a_snapshot_does_not_show_the_content(session: Path) -> None:
    assert repr(replace.snapshot(session)) == f"Snapshot({str(session)!r}, {len(LINES)} bytes)"


def test_a_link_is_refused_and_says_how_to_follow_it(session: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(session)
    with pytest.raises(UsageError, match=r"symbolic link.*--follow-symlinks"):
        replace.snapshot(tmp_path / "link")


def test_a_followed_link_is_the_file_it_points_to(session: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("session.jsonl")
    read = replace.snapshot(tmp_path / "link", follow_symlinks=True)
    assert (read.path, read.data) == (str(session.resolve()), LINES)


def test_a_link_put_there_after_the_look_is_not_followed(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(session)
    monkeypatch.setattr(replace.stat, "S_ISLNK", lambda _: False)
    with pytest.raises(Unreadable):
        replace.snapshot(tmp_path / "link")


def test_a_dangling_link_and_a_missing_file_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(UsageError, match="symbolic link"):
        replace.snapshot(tmp_path / "link")
    for path in (tmp_path / "missing", tmp_path / "missing" / "file"):
        with pytest.raises(Unreadable, match="no such file"):
            replace.snapshot(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="folder"):
        replace.snapshot(tmp_path)


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unreadable, match="not a regular file"):
        replace.snapshot(tmp_path / "pipe")


def test_a_device_is_refused() -> None:
    with pytest.raises(Unreadable, match="not a regular file"):
        replace.snapshot(os.devnull)


def test_an_impossible_name_is_a_wrong_call() -> None:
    with pytest.raises(UsageError):
        replace.snapshot("a\0b")


def test_a_disk_that_cannot_be_read_is_unreadable(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "read", fail)
    with pytest.raises(Unreadable, match="Input/output"):
        replace.snapshot(session)
