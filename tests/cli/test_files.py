from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lockstitch.files import write_atomically


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_private(tmp_path: Path) -> None:
    write_atomically(tmp_path / "new", b"data")
    assert (tmp_path / "new").read_bytes() == b"data"
    assert mode(tmp_path / "new") == 0o600


@pytest.mark.parametrize("wanted", [0o644, 0o600, 0o640, 0o444])
def test_an_existing_file_keeps_its_mode(tmp_path: Path, wanted: int) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"old")
    path.chmod(wanted)
    write_atomically(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", wanted)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_reader_that_has_the_old_file_open_keeps_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        write_atomically(path, b"new and longer")
        assert reader.read() == b"old"


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_atomically(os.devnull, b"data")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_at_any_step_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="Input/output"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, sys
from lockstitch.files import write_atomically

left = int(sys.argv[2])

def count(frame, event, arg):
    global left
    if not frame.f_code.co_filename.endswith("files.py"):
        return None
    left -= 1
    if not left:
        os.kill(os.getpid(), 9)
    return count

sys.settrace(count)
write_atomically(sys.argv[1], b"new" * 100_000)
"""


def test_killed_at_any_line_the_file_is_the_old_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    seen = set()
    for step in range(1, 200):
        path.write_bytes(b"old")
        command = [sys.executable, "-c", KILLED, str(path), str(step)]
        done = subprocess.run(command, check=False, timeout=60)
        assert path.read_bytes() in (b"old", b"new" * 100_000)
        seen.add(path.read_bytes()[:3])
        if done.returncode == 0:
            break
        assert done.returncode == -9
    assert seen == {b"old", b"new"}
    assert step > 20
