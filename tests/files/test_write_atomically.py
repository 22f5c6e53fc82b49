from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lockstitch.files.replace import write_atomically


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
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="Input/output"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


EVERY_LINE = """
import os, pathlib, sys
from lockstitch.files.replace import write_atomically

path, step = pathlib.Path(sys.argv[1]), 0

def die(frame, event, arg):
    global step
    if not frame.f_code.co_filename.endswith(("files.py", "disk.py", "folders.py")):
        return None
    step -= 1
    if not step:
        os.kill(os.getpid(), 9)
    return die

for lines in range(1, 1000):
    path.write_bytes(b"old")
    child = os.fork()
    if not child:
        step = lines
        sys.settrace(die)
        write_atomically(path, b"new" * 100_000)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    content = path.read_bytes()
    assert content in (b"old", b"new" * 100_000)
    print(lines, status, content[:3].decode())
    if status == 0:
        break
"""


def test_killed_at_any_line_the_file_is_the_old_or_the_new(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EVERY_LINE, str(tmp_path / "file")],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    outcomes = [line.split()[1:] for line in done.stdout.splitlines()]
    assert len(outcomes) > 20
    assert outcomes[0] == ["-9", "old"]
    assert ["-9", "new"] in outcomes
    assert outcomes[-1] == ["0", "new"]
