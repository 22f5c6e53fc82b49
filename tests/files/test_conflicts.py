"""Whoever else touches the file while it is being replaced: theirs stays, ours is not written."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lockstitch.errors import Busy, Conflict
from lockstitch.files import os_files
from lockstitch.files import replace as files
from tests.files.conftest import LINES, leftovers
from tests.files.test_replace import MORE, NEW, QUICK, append


def rewrite(path: Path) -> None:
    path.write_bytes(LINES.replace(b"1", b"7"))


def shrink(path: Path) -> None:
    os.truncate(path, 5)


def supersede(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(LINES + b"theirs\n")
    other.replace(path)


def remove(path: Path) -> None:
    path.unlink()


def relink(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def empty_then_write(path: Path) -> None:
    path.write_bytes(b"")
    append(path, b"anew\n")


CHANGES = [rewrite, shrink, supersede, remove, relink, empty_then_write]


def state(path: Path) -> tuple[bool, bytes | None]:
    return path.is_symlink(), path.read_bytes() if path.exists() else None


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_since_the_snapshot_is_a_conflict(
    session: Path, change: Callable[[Path], None]
) -> None:
    before = files.snapshot(session)
    change(session)
    left = state(session)
    with pytest.raises(Conflict, match="nothing was written"):
        files.replace(before, NEW, patience=QUICK)
    assert state(session) == left
    assert leftovers(session.parent) == []


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_at_the_very_moment_of_the_swap_is_put_back(
    session: Path, change: Callable[[Path], None], around_swap: Callable[..., None]
) -> None:
    left: list[object] = []

    def interfere() -> None:
        change(session)
        left.append(state(session))

    around_swap(interfere)
    with pytest.raises(Conflict, match="nothing was written"):
        files.replace(files.snapshot(session), NEW, patience=QUICK)
    assert [state(session)] == left
    assert leftovers(session.parent) == []


def test_one_who_replaces_the_file_after_us_wins(
    session: Path, around_swap: Callable[..., None]
) -> None:
    around_swap(after=lambda: supersede(session))
    with pytest.raises(Conflict):
        files.replace(files.snapshot(session), NEW, patience=QUICK)
    assert session.read_bytes() == LINES + b"theirs\n"
    assert leftovers(session.parent) == []


def test_where_there_is_no_way_back_the_error_says_what_is_in_place(
    session: Path, around_swap: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os_files, "_exchange_names", lambda *_: False)
    monkeypatch.setattr(os, "link", refuse)
    around_swap(lambda: rewrite(session))
    with pytest.raises(Conflict, match="the new content is in place"):
        files.replace(files.snapshot(session), NEW, patience=QUICK)
    assert session.read_bytes() == NEW
    assert leftovers(session.parent) == []


HOLD = """
import sys, time
file = open(sys.argv[1], "ab", buffering=0)
print("open", flush=True)
for number in range(int(sys.argv[2])):
    file.write(b"held %d\\n" % number)
    time.sleep(0.01)
sys.stdin.read()
"""


@contextmanager
def holding(path: Path, lines: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """A program that keeps a file open for writing until it is told to end."""
    command = [sys.executable, "-c", HOLD, str(path), str(lines)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as child:
        assert child.stdout
        assert child.stdin
        child.stdout.readline()
        yield child
        child.stdin.close()


def test_a_program_that_keeps_the_file_open_is_named_and_loses_nothing(session: Path) -> None:
    with holding(session, 20) as child, pytest.raises(Busy) as refusal:
        files.replace(files.snapshot(session), NEW, patience=QUICK)
    assert f"process {child.pid} has it open" in str(refusal.value)
    assert "nothing was written" in str(refusal.value)
    expected = LINES + b"".join(b"held %d\n" % number for number in range(20))
    assert session.read_bytes() == expected
    assert leftovers(session.parent) == []
    files.replace(files.snapshot(session), NEW)
    assert session.read_bytes() == NEW


@pytest.mark.usefixtures("without_leases")
def test_the_table_of_processes_does_where_there_are_no_leases(session: Path) -> None:
    with holding(session) as child, pytest.raises(Busy, match=f"process {child.pid} has"):
        files.replace(files.snapshot(session), NEW, patience=QUICK)
    files.replace(files.snapshot(session), NEW, patience=QUICK)
    assert session.read_bytes() == NEW


def test_a_reader_is_no_reason_to_refuse(session: Path) -> None:
    with session.open("rb") as reader:
        files.replace(files.snapshot(session), NEW, patience=QUICK)
        assert reader.read() == LINES


def test_a_program_that_opens_the_file_at_the_swap_and_stays_gets_it_back(
    session: Path, around_swap: Callable[..., None]
) -> None:
    """Its later lines would go to the old file for ever, so the old file is put back."""
    late: list[object] = []
    children: list[subprocess.Popen[bytes]] = []

    def hold() -> None:
        context = holding(session, 50)
        late.append(context)
        children.append(context.__enter__())

    around_swap(hold, lambda: append(session, MORE))
    with pytest.raises(Busy, match="has it open"):
        files.replace(files.snapshot(session), NEW, patience=QUICK)
    assert children[0].stdin
    children[0].stdin.close()
    assert children[0].wait(600) == 0
    found = session.read_bytes()
    held = [b"held %d" % number for number in range(50)]
    assert found.startswith(LINES)
    assert sorted(found[len(LINES) :].splitlines()) == sorted([*held, MORE.strip()])
    assert leftovers(session.parent) == []


def test_two_repairs_of_one_file_exclude_each_other(session: Path) -> None:
    before = files.snapshot(session)
    with session.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="locked by another program"):
            files.replace(before, NEW, patience=QUICK)
    files.replace(before, NEW)
    with pytest.raises(Conflict):
        files.replace(before, NEW)


def test_a_draft_that_somebody_removed_is_no_success(
    session: Path, around_swap: Callable[..., None]
) -> None:
    def sweep() -> None:
        for name in leftovers(session.parent):
            (session.parent / name).unlink()

    around_swap(sweep)
    with pytest.raises(Conflict):
        files.replace(files.snapshot(session), NEW, patience=QUICK)
    assert session.read_bytes() == LINES


def test_stale_drafts_are_swept_and_young_ones_are_left(session: Path) -> None:
    folder = session.parent
    names = [
        f"{os_files.PREFIX}a{os_files.SUFFIX}",
        f"{os_files.PREFIX}b{os_files.SUFFIX}",
        ".lockstitch-else",
    ]
    for name in names:
        (folder / name).touch()
    (folder / f"{os_files.PREFIX}link{os_files.SUFFIX}").symlink_to(session)
    assert os_files.remove_stale_drafts(folder) == 0
    assert os_files.remove_stale_drafts(folder, time.time() + os_files.STALE + 1) == 2
    assert sorted(leftovers(folder)) == [
        ".lockstitch-else",
        f"{os_files.PREFIX}link{os_files.SUFFIX}",
    ]


def test_a_folder_that_cannot_be_listed_is_not_tidied(tmp_path: Path) -> None:
    assert os_files.remove_stale_drafts(tmp_path / "missing") == 0


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        ("", []),
        ("p12\nf3\nar\n", []),
        ("p12\nf3\naw\np13\nf4\nar\nf5\nau\nf6\nau\n", [12, 13]),
    ],
)
def test_the_writers_in_what_lsof_lists(listing: str, expected: list[int]) -> None:
    assert os_files.writers_of(listing) == expected


def test_on_windows_a_file_that_is_open_elsewhere_is_waited_for(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played here: a rename fails there while any other program has the file open."""
    real = os.replace
    failures = iter([PermissionError(13, "Access is denied")] * 2)

    def replace(*names: Any, **where: Any) -> None:
        for error in failures:
            raise error
        real(*names, **where)

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "replace", replace)
    before = files.snapshot(session)
    append(session, MORE)
    done = files.replace(before, NEW)
    assert (session.read_bytes(), done.carried) == (NEW + MORE, len(MORE))
    failures = iter([PermissionError(13, "Access is denied")] * 1000)
    with pytest.raises(Busy, match="open in another program"):
        files.replace(files.snapshot(session), LINES, patience=QUICK)
    assert session.read_bytes() == NEW + MORE
    assert leftovers(session.parent) == []
