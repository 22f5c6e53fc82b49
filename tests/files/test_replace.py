from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.errors import Conflict
from lockstitch.files import os_files, replace
from lockstitch.files.read import Folder
from lockstitch.files.replace import Patience
from tests.files.conftest import LINES, leftovers

NEW = b'{"n": 1, "mended": true}\n{"n": 2}\n'
MORE = b'{"n": 3}\n'
QUICK = Patience(held=0.05, following=0.1, torn=0.05, grace=0.01)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_the_new_content_is_in_place(session: Path, swapping: str) -> None:
    before = replace.snapshot(session)
    done = replace.replace(before, NEW)
    assert session.read_bytes() == NEW, swapping
    assert (done.digest, done.size, done.carried) == (replace.digest_of(NEW), len(NEW), 0)
    assert done.inode == session.stat().st_ino != before.inode
    assert leftovers(session.parent) == []


@pytest.mark.parametrize(
    ("size", "rest"), [(0, b""), (0, NEW), (10, b""), (8, b"!"), (8, NEW), (9, NEW), (16, b"")]
)
def test_content_that_begins_alike_has_its_own_digest(
    session: Path, monkeypatch: pytest.MonkeyPatch, size: int, rest: bytes
) -> None:
    monkeypatch.setattr(os_files, "CHUNK", 8)
    session.write_bytes(b"0123456789abcdef")
    before = replace.snapshot(session)
    data = before.data[:size] + rest
    assert before.digest_of(data) == replace.digest_of(data)
    assert before.digest_of(data, MORE) == replace.digest_of(data + MORE)
    assert before.digest == replace.digest_of(before.data)


@pytest.mark.parametrize("wanted", [0o644, 0o600, 0o640, 0o444])
def test_the_mode_is_kept(session: Path, wanted: int) -> None:
    session.chmod(wanted)
    replace.replace(replace.snapshot(session), NEW)
    assert stat.S_IMODE(session.stat().st_mode) == wanted


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_is_kept(session: Path) -> None:
    os.chown(session, 12345, 54321)
    session.chmod(0o640)
    replace.replace(replace.snapshot(session), NEW)
    found = session.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (12345, 54321, 0o640)


def test_extended_attributes_are_kept(session: Path) -> None:
    try:
        os.setxattr(session, "user.note", b"kept")
    except (AttributeError, OSError):
        pytest.skip("no extended attributes here")
    replace.replace(replace.snapshot(session), NEW)
    assert os.getxattr(session, "user.note") == b"kept"


def test_the_draft_is_private_until_it_is_in_place(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    real = os_files.write_all

    def look(handle: int, data: bytes) -> None:
        modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        real(handle, data)

    session.chmod(0o644)
    monkeypatch.setattr(os_files, "write_all", look)
    replace.replace(replace.snapshot(session), NEW)
    assert modes == [0o600]


def test_a_followed_link_stays_a_link(session: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(session)
    replace.replace(replace.snapshot(tmp_path / "link", follow_symlinks=True), NEW)
    assert (tmp_path / "link").is_symlink()
    assert session.read_bytes() == NEW


# What others appended: before, during and after the swap.


def test_lines_appended_since_the_snapshot_are_behind_the_data(
    session: Path, swapping: str
) -> None:
    before = replace.snapshot(session)
    append(session, MORE)
    done = replace.replace(before, NEW)
    assert session.read_bytes() == NEW + MORE, swapping
    assert (done.carried, done.digest) == (len(MORE), replace.digest_of(NEW + MORE))


def test_lines_appended_at_the_last_moment_are_carried_over(
    session: Path, swapping: str, around_swap: Callable[..., None]
) -> None:
    around_swap(lambda: append(session, MORE))
    done = replace.replace(replace.snapshot(session), NEW)
    assert session.read_bytes() == NEW + MORE, swapping
    assert done.carried == len(MORE)


def test_a_writer_that_had_opened_the_old_file_is_waited_for(
    session: Path, swapping: str, around_swap: Callable[..., None], tmp_path: Path
) -> None:
    """It opens before the swap and writes in two halves after it, while another appends."""
    script = tmp_path / "writer.py"
    script.write_text(LATE_WRITER)
    children: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        children.append(subprocess.Popen([sys.executable, str(script), str(session)]))
        while not (tmp_path / "opened").exists():
            time.sleep(0.001)

    around_swap(start, lambda: append(session, b"other\n"))
    done = replace.replace(replace.snapshot(session), NEW, patience=Patience(following=600))
    assert children[0].wait(600) == 0
    assert session.read_bytes() == NEW + b"other\nfirst half, second half\n", swapping
    assert done.digest == replace.digest_of(session.read_bytes())


LATE_WRITER = """
import sys, time, pathlib
path = pathlib.Path(sys.argv[1])
file = path.open("ab", buffering=0)
path.with_name("opened").touch()
time.sleep(0.1)
file.write(b"first half, ")
time.sleep(0.1)
file.write(b"second half\\n")
"""


def test_lines_appended_to_the_new_file_count_as_carried(
    session: Path, swapping: str, around_swap: Callable[..., None]
) -> None:
    around_swap(after=lambda: append(session, MORE))
    done = replace.replace(replace.snapshot(session), NEW)
    assert (session.read_bytes(), done.carried) == (NEW + MORE, len(MORE)), swapping


# Lines stay lines, whoever forgot a newline.


def test_appended_lines_are_not_glued_to_data_without_a_newline(session: Path) -> None:
    before = replace.snapshot(session)
    append(session, MORE)
    replace.replace(before, NEW.rstrip())
    assert session.read_bytes() == NEW + MORE


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("data", [NEW, NEW + b'{"to'])
def test_a_torn_line_that_was_ended_is_followed_by_the_next(
    session: Path, ending: bytes, data: bytes
) -> None:
    append(session, b'{"to')
    before = replace.snapshot(session)
    append(session, ending + MORE)
    replace.replace(before, data, patience=QUICK)
    assert session.read_bytes() == (NEW if data == NEW else data + ending) + MORE


@pytest.mark.parametrize("rest", [b'rn": 1}\n', b'rn": 1', b"\r"])
def test_a_torn_line_that_goes_on_is_a_conflict(session: Path, rest: bytes) -> None:
    append(session, b'{"to')
    before = replace.snapshot(session)
    append(session, rest)
    with pytest.raises(Conflict, match="nothing was written"):
        replace.replace(before, NEW, patience=QUICK)
    assert session.read_bytes() == before.data + rest
    assert leftovers(session.parent) == []


def test_a_torn_line_that_goes_on_at_the_last_moment_is_a_conflict(
    session: Path, around_swap: Callable[..., None]
) -> None:
    append(session, b'{"to')
    around_swap(lambda: append(session, b'rn": 1}\n'), lambda: append(session, MORE))
    with pytest.raises(Conflict):
        replace.replace(replace.snapshot(session), NEW, patience=QUICK)
    assert session.read_bytes() == LINES + b'{"torn": 1}\n' + MORE
    assert leftovers(session.parent) == []


def test_a_torn_append_is_taken_over_as_it_is(session: Path) -> None:
    before = replace.snapshot(session)
    append(session, b'{"to')
    done = replace.replace(before, NEW, patience=QUICK)
    assert session.read_bytes() == NEW + b'{"to'
    append(session, b'rn": 1}\n')
    assert session.read_bytes() == NEW + b'{"torn": 1}\n'
    assert done.carried == 4


def test_half_a_line_is_waited_for(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = replace.snapshot(session)
    append(session, b'{"to')
    steps = iter([b"", b'rn": 1}\n'])
    monkeypatch.setattr(time, "sleep", lambda _: append(session, next(steps, b"")))
    replace.replace(before, NEW, patience=Patience(held=60, torn=60))
    assert session.read_bytes() == NEW + b'{"torn": 1}\n'


def test_halves_of_a_line_that_fall_on_either_side_of_the_swap_come_together_again(
    session: Path, around_swap: Callable[..., None]
) -> None:
    around_swap(lambda: append(session, b'{"to'), lambda: append(session, b'rn": 1}\n'))
    with pytest.raises(Conflict, match="nothing was written"):
        replace.replace(replace.snapshot(session), NEW)
    assert session.read_bytes() == LINES + b'{"torn": 1}\n'
    assert leftovers(session.parent) == []


def test_carried_lines_wait_for_those_who_append_to_the_new_file(
    session: Path, around_swap: Callable[..., None]
) -> None:
    late = session.open("ab", buffering=0)

    def both() -> None:
        append(session, b"half of a line")
        late.write(MORE)
        late.close()

    around_swap(after=both)
    before = replace.snapshot(session)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os_files.WriterWatch, "is_held", lambda *_: False)
        replace.replace(before, NEW, patience=QUICK)
    assert session.read_bytes() == NEW + b"half of a line\n" + MORE


LINE = st.sampled_from([b"a\n", b"bb\n", b'{"c": 1}\r\n', b"\n"])
LINES_AND_A_TORN_ONE = st.tuples(st.lists(LINE).map(b"".join), st.sampled_from([b"", b"t"])).map(
    b"".join
)
NOT_AT_ALL = Patience(held=0, following=0, torn=0, grace=0, step=0)


def words(text: bytes) -> list[bytes]:
    return [line for line in text.splitlines() if line]


@given(LINES_AND_A_TORN_ONE, LINES_AND_A_TORN_ONE, LINES_AND_A_TORN_ONE, LINES_AND_A_TORN_ONE)
def test_every_appended_line_is_there_whole_and_in_order(
    old: bytes, data: bytes, early: bytes, late: bytes
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "session.jsonl")
        path.write_bytes(old)
        before = replace.snapshot(path)
        append(path, early)
        real = os_files.swap_names

        def swap(folder: Folder, new: str, target: str) -> bool:
            patch.setattr(os_files, "swap_names", real)
            append(path, late)
            return real(folder, new, target)

        patch.setattr(os_files, "swap_names", swap)
        try:
            replace.replace(before, data, patience=NOT_AT_ALL)
        except Conflict:
            assert old[-1:] not in (b"", b"\n")
            assert not (early + late).startswith((b"\n", b"\r\n"))
            assert path.read_bytes() in (old + early, old + early + late)
            return
        found = path.read_bytes()
        assert found.startswith(data)
        # Gluing would show here: every word of the data and of the tail is a line of its own.
        assert words(found) == words(data) + words(early + late)
        assert leftovers(path.parent) == []
