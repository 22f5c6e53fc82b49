from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lockstitch.errors import Busy, Conflict, Unreadable, UsageError
from lockstitch.files import backup as backups
from lockstitch.files import backup as manifests
from lockstitch.files import os_files, replace
from lockstitch.files.backup import (
    Backup,
    find_undoable,
    finish_rows,
    keep_row_images,
    list_backups,
    list_runs,
    open_backup_folder,
    undo_backup,
)
from lockstitch.files.read import Folder
from tests.files.conftest import LINES, keep_original, leftovers
from tests.files.test_replace import MORE, NEW, append

NEWER = b'{"n": 1, "mended": 2}\n{"n": 2}\n'
NOON = datetime(2026, 10, 24, 12, tzinfo=UTC)


def repair(path: Path, data: bytes = NEW, run: str = "run") -> Backup:
    return backups.replace_with_backup(replace.snapshot(path), data, run, {"codes": ["LS101"]})[0]


def test_a_backup_is_the_file_as_it_was_read(session: Path) -> None:
    before = replace.snapshot(session)
    append(session, MORE)
    backup = keep_original(before, "run")
    assert backup.file.read_bytes() == LINES
    assert backup.file.parent == session.parent / ".lockstitch"
    assert (backup.path, backup.run, backup.status) == (str(session), "run", "unfinished")
    assert list_backups(session) == [bare(backup)]


def bare(backup: Backup) -> Backup:
    """What is left of a backup whose manifest was not written."""
    known = backup.manifest
    manifest = manifests.Manifest(
        1, known.run, known.target, known.time, before_size=known.before_size
    )
    return Backup(backup.path, backup.stem, backup.time, manifest)


def test_the_name_has_the_time_in_it_and_something_random(session: Path) -> None:
    backup = keep_original(
        replace.snapshot(session), "run-1", now=lambda: NOON, token=lambda: "cafe"
    )
    assert backup.file.name == "session.jsonl.20261024T120000000000Z-run-1-cafe.bak"


def test_a_manifest_says_what_was_done(session: Path) -> None:
    backup = repair(session)
    written = json.loads(backup.file.with_suffix(".json").read_bytes())
    assert written == {
        "version": 1,
        "run": "run",
        "target": "session.jsonl",
        "time": backup.time.isoformat(),
        "before_digest": replace.digest_of(LINES),
        "before_size": len(LINES),
        "after_digest": replace.digest_of(NEW),
        "after_size": len(NEW),
        "finished": True,
        "details": {"codes": ["LS101"]},
    }
    assert list_backups(session) == [backup]
    assert backup.status == "done"


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_everything_is_durable_before_the_next_step_relies_on_it(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss cannot be played here, but its defence is the order of these calls."""
    steps: list[str] = []
    sync, exchange, rename = os.fsync, os_files._exchange_names, os.replace  # noqa: SLF001

    def synced(handle: int) -> None:
        steps.append(f"sync {kind(Path(f'/proc/self/fd/{handle}').readlink())}")
        sync(handle)

    def kind(path: Path) -> str:
        return path.suffix.lstrip(".") if path.is_file() else path.name

    def exchanged(folder: Folder, one: str, other: str) -> bool:
        steps.append("swap")
        return exchange(folder, one, other)

    def renamed(one: str, other: str, **where: int) -> None:
        steps.append("rename to new")
        rename(one, other, **where)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os_files, "_exchange_names", exchanged)
    monkeypatch.setattr(os, "replace", renamed)
    before = replace.snapshot(session)
    append(session, MORE)
    backups.replace_with_backup(before, NEW, "run", {})
    folder = session.parent.name
    assert steps == [
        f"sync {folder}",  # the name of .lockstitch
        "sync bak",
        "sync .lockstitch",
        "sync tmp",  # the data
        "sync tmp",  # what was appended meanwhile
        "swap",
        f"sync {folder}",
        "sync tmp",  # the manifest
        "rename to new",
        "sync .lockstitch",
    ]


def test_everything_is_private(session: Path) -> None:
    session.chmod(0o644)
    old = os.umask(0)
    try:
        repair(session)
    finally:
        os.umask(old)
    folder = session.parent / ".lockstitch"
    modes = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {".bak": 0o600, ".json": 0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_others_can_read_is_closed(session: Path) -> None:
    folder = session.parent / ".lockstitch"
    folder.mkdir(mode=0o755)
    keep_original(replace.snapshot(session), "run")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_is_a_link_is_not_followed(session: Path, tmp_path: Path) -> None:
    (tmp_path / "trap").mkdir()
    (tmp_path / ".lockstitch").symlink_to("trap")
    with pytest.raises(UsageError, match="is not a folder"):
        repair(session)
    assert list_backups(session) == []
    assert list((tmp_path / "trap").iterdir()) == []
    assert session.read_bytes() == LINES


def test_a_backup_is_never_overwritten(session: Path) -> None:
    """Not even if clock and chance repeat themselves, or the name is taken by a link."""
    before = replace.snapshot(session)
    first = keep_original(before, "run", now=lambda: NOON, token=lambda: "same")
    second = keep_original(before, "run", now=lambda: NOON, token=lambda: "same")
    assert first.file != second.file
    with open_backup_folder(session) as vault:
        assert vault is not None
        third = manifests.new_backup(session, "run", NOON, "same", vault)
    first.file.with_name(f"{third.stem}.bak").symlink_to(session)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "_stems", lambda *_: [])
        with pytest.raises(FileExistsError):
            keep_original(before, "run", now=lambda: first.time, token=lambda: "same")
    assert first.file.read_bytes() == second.file.read_bytes() == LINES


def test_a_clock_that_goes_back_does_not_change_the_order(session: Path) -> None:
    clock = iter([NOON, NOON - timedelta(days=1), NOON - timedelta(days=2)])
    made = [
        keep_original(replace.snapshot(session), f"run{number}", now=lambda: next(clock)).stem
        for number in range(3)
    ]
    assert [backup.stem for backup in list_backups(session)] == made[::-1]


def test_backups_of_other_files_are_not_listed(session: Path) -> None:
    other = session.with_name("session.jsonl.old")
    other.write_bytes(LINES)
    keep_original(replace.snapshot(other), "run")
    (session.parent / ".lockstitch" / "session.jsonl.bak").touch()
    (session.parent / ".lockstitch" / "session.jsonl.notes.json").touch()
    assert list_backups(session) == []
    assert len(list_backups(other)) == 1


@pytest.mark.parametrize(
    "name", ["x" * 250, "ä" * 125, "with\nnewline", "with space", "-run-run", ".hidden"]
)
def test_any_name_of_a_file_can_be_backed_up(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(LINES)
    repair(path)
    assert [backup.path for run in list_runs(tmp_path) for backup in run.backups] == [str(path)]
    undo_backup(path)
    assert path.read_bytes() == LINES


@pytest.mark.parametrize("run", ["", "a/b", "..", "a" * 65, "ä"])
def test_a_run_whose_name_cannot_be_part_of_a_file_name_is_refused(session: Path, run: str) -> None:
    with pytest.raises(UsageError):
        repair(session, run=run)
    assert not (session.parent / ".lockstitch").exists()


def test_details_that_are_not_json_are_refused_before_anything_is_done(session: Path) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for details in ({"bytes": b""}, {"deep": deep}, {"set": {1}}):
        with pytest.raises(UsageError):
            backups.replace_with_backup(replace.snapshot(session), NEW, "run", details)
    assert session.read_bytes() == LINES
    assert not (session.parent / ".lockstitch").exists()


def test_odd_but_possible_details_come_back(session: Path) -> None:
    details = {"quarantine": ["\ud800", 1 << 80, 1e300, None, {"": []}]}
    backups.replace_with_backup(replace.snapshot(session), NEW, "run", details)
    assert list_backups(session)[0].manifest.details == details


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b'{"version": 1}', b"\xff", b"[" * 100_000])
def test_a_manifest_that_cannot_be_read_makes_the_backup_unfinished(
    session: Path, junk: bytes
) -> None:
    backup = repair(session)
    backup.file.with_suffix(".json").write_bytes(junk)
    assert list_backups(session) == [bare(backup)]


def test_no_backup_is_left_of_a_repair_that_was_refused(session: Path) -> None:
    before = replace.snapshot(session)
    session.write_bytes(NEWER)
    with pytest.raises(Conflict):
        backups.replace_with_backup(before, NEW, "run", {})
    with session.open("ab"), pytest.raises(Busy):
        backups.replace_with_backup(replace.snapshot(session), NEW, "run", {})
    assert list_backups(session) == []
    assert leftovers(session.parent) == []


# Undo.


def test_undo_brings_the_file_back_byte_for_byte(session: Path) -> None:
    odd = b'\xef\xbb\xbf{"a":\t1e0 }\r\n\0\0\n{"to'
    session.write_bytes(odd)
    session.chmod(0o640)
    backup = repair(session)
    done = undo_backup(session)
    assert session.read_bytes() == odd
    assert stat.S_IMODE(session.stat().st_mode) == 0o640
    assert (done.restored.stem, done.restored.status) == (backup.stem, "undone")
    assert done.kept
    assert done.kept.file.read_bytes() == NEW
    assert backup.file.read_bytes() == odd


def test_repairs_are_undone_one_after_the_other(session: Path) -> None:
    repair(session, NEW, "first")
    repair(session, NEWER, "second")
    assert undo_backup(session).restored.run == "second"
    assert session.read_bytes() == NEW
    assert undo_backup(session).restored.run == "first"
    assert session.read_bytes() == LINES
    with pytest.raises(UsageError, match="no backup"):
        undo_backup(session)


def test_an_undo_can_be_undone_and_done_again(session: Path) -> None:
    repair(session)
    first = undo_backup(session, as_run="undo-1")
    assert first.kept
    again = undo_backup(session, run=first.kept.run)
    assert (first.kept.run, session.read_bytes()) == ("undo-1", NEW)
    assert again.restored.status == "undone"
    undo_backup(session)
    assert session.read_bytes() == LINES


def test_a_file_that_went_on_is_not_undone(session: Path) -> None:
    repair(session)
    append(session, MORE)
    with pytest.raises(Conflict, match="has changed since the repair"):
        undo_backup(session)
    with pytest.raises(Conflict):
        find_undoable(session)
    assert session.read_bytes() == NEW + MORE
    assert len(list_backups(session)) == 1


def test_forced_the_backup_is_restored_and_what_went_on_is_kept(session: Path) -> None:
    repair(session)
    append(session, MORE)
    done = undo_backup(session, force=True)
    assert session.read_bytes() == LINES
    assert done.kept
    assert done.kept.file.read_bytes() == NEW + MORE
    undo_backup(session, run=done.kept.run)
    assert session.read_bytes() == NEW + MORE


def test_lines_that_were_appended_during_the_repair_survive_the_undo(session: Path) -> None:
    before = replace.snapshot(session)
    append(session, MORE)
    backup, replaced = backups.replace_with_backup(before, NEW, "run", {})
    assert (replaced.carried, session.read_bytes()) == (len(MORE), NEW + MORE)
    assert backup.manifest.carried == len(MORE)
    undo_backup(session)
    assert session.read_bytes() == LINES + MORE


def test_a_torn_line_comes_back_without_swallowing_the_lines_behind_it(session: Path) -> None:
    append(session, b'{"to')
    os.utime(session, (0, 0))
    before = replace.snapshot(session)
    append(session, b"\n" + MORE)
    backups.replace_with_backup(before, NEW, "run", {})
    undo_backup(session)
    assert session.read_bytes() == LINES + b'{"to\n' + MORE


def test_a_file_that_is_gone_comes_back_only_by_force(session: Path) -> None:
    repair(session)
    session.unlink()
    with pytest.raises(Unreadable, match="no such file"):
        undo_backup(session)
    undo_backup(session, force=True)
    assert session.read_bytes() == LINES
    assert stat.S_IMODE(session.stat().st_mode) == 0o600


def test_a_damaged_backup_is_not_restored(session: Path) -> None:
    backup = repair(session)
    backup.file.write_bytes(LINES.replace(b"1", b"7"))
    for force in (False, True):
        with pytest.raises(Unreadable, match="damaged"):
            undo_backup(session, force=force)
    backup.file.unlink()
    with pytest.raises(Unreadable, match="cannot be read: no such file"):
        undo_backup(session)
    assert session.read_bytes() == NEW


def test_a_link_is_not_restored_through(session: Path, tmp_path: Path) -> None:
    repair(session)
    session.rename(tmp_path / "elsewhere")
    session.symlink_to("elsewhere")
    with pytest.raises(UsageError, match="symbolic link"):
        undo_backup(session)


# Repairs that were cut short.


def test_a_repair_cut_short_before_the_file_was_touched_is_nothing_to_undo(session: Path) -> None:
    repair(session, NEW, "first")
    keep_original(replace.snapshot(session), "second")
    assert [backup.status for backup in list_backups(session)] == ["unfinished", "done"]
    assert undo_backup(session).restored.run == "first"
    assert session.read_bytes() == LINES


def test_a_repair_cut_short_after_the_file_was_replaced_is_undone_by_force(session: Path) -> None:
    before = replace.snapshot(session)
    backup = keep_original(before, "run")
    replace.replace(before, NEW)
    with pytest.raises(Conflict, match="was interrupted"):
        undo_backup(session)
    done = undo_backup(session, force=True)
    assert (session.read_bytes(), done.restored.stem) == (LINES, backup.stem)
    assert [one.status for one in list_backups(session)] == ["done", "undone"]


def test_an_undo_that_is_refused_leaves_everything_as_it_was(session: Path) -> None:
    backup = repair(session)
    with session.open("ab"), pytest.raises(Busy):
        undo_backup(session)
    assert list_backups(session) == [backup]
    assert session.read_bytes() == NEW


# Many files.


@pytest.fixture
def project(tmp_path: Path) -> Iterator[list[Path]]:
    paths = [tmp_path / folder / f"{name}.jsonl" for folder in "ab" for name in "xy"]
    for number, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(LINES * (number + 1))
    yield paths
    shutil.rmtree(tmp_path)


def test_many_files_are_undone_as_one(project: list[Path], tmp_path: Path) -> None:
    for path in project:
        repair(path, run="early")
    for path in project[1:]:
        repair(path, NEWER, run="late")
    found = list_runs(tmp_path)
    assert [(run.id, len(run.backups)) for run in found] == [("late", 3), ("early", 4)]
    for run in found:
        for backup in run.backups:
            undo_backup(backup.path, run=run.id, as_run=f"un{run.id}")
    assert [path.read_bytes() for path in project] == [LINES * size for size in range(1, 5)]
    newest = list_runs(project)[:2]
    assert [(run.id, len(run.backups)) for run in newest] == [("unearly", 4), ("unlate", 3)]
    for run in newest:
        for backup in run.backups:
            undo_backup(backup.path, run=run.id)
    assert [path.read_bytes() for path in project] == [NEW, NEWER, NEWER, NEWER]


def test_runs_of_one_file_and_of_none(project: list[Path], tmp_path: Path) -> None:
    assert list_runs(tmp_path) == []
    repair(project[0], run="one")
    assert [run.id for run in list_runs(project[0])] == ["one"]
    assert list_runs(project[1]) == []
    assert list_runs([]) == []


# Rows of a database, which is never opened here.


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Not to be opened: it is a folder, so that trying would fail."""
    path = tmp_path / "store.db"
    path.mkdir()
    return path


ROWS = {"messages": [{"id": 1, "before": {"data": "{"}, "after": {"data": "{}"}}]}


def test_rows_are_written_down_before_and_settled_after(database: Path) -> None:
    backup = keep_row_images(database, "run", ROWS)
    assert list_backups(database) == [backup]
    assert (backup.status, backup.rows) == ("unfinished", ROWS)
    settled = finish_rows(backup, {"codes": ["LS101"]})
    assert list_backups(database) == [settled]
    assert (settled.status, settled.rows, settled.file.suffix) == ("done", ROWS, ".json")
    mode = stat.S_IMODE(settled.file.stat().st_mode)
    assert mode == 0o600


def test_rows_are_restored_by_their_format(database: Path) -> None:
    finish_rows(keep_row_images(database, "run", ROWS), {})
    with pytest.raises(UsageError, match="database"):
        undo_backup(database)
    seen: list[Any] = []
    done = undo_backup(database, restore=lambda backup: seen.append(backup.rows))
    assert (seen, done.restored.status, done.kept) == ([ROWS], "undone", None)
    with pytest.raises(UsageError, match="no backup"):
        undo_backup(database, restore=seen.append)


def test_rows_that_could_not_be_restored_are_not_marked(database: Path) -> None:
    finish_rows(keep_row_images(database, "run", ROWS), {})

    def refuse(_: Backup) -> None:
        raise Conflict("rows changed")

    with pytest.raises(Conflict, match="rows changed"):
        undo_backup(database, restore=refuse)
    assert list_backups(database)[0].status == "done"


def test_what_killed_repairs_left_behind_is_swept(session: Path) -> None:
    repair(session)
    for folder in (session.parent, session.parent / ".lockstitch"):
        (folder / ".lockstitch-dead.tmp").touch()
    assert backups.remove_leftovers(session.parent) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", count(4e9).__next__)
        assert backups.remove_leftovers(session.parent) == 2
    assert leftovers(session.parent) == []
