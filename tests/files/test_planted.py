"""Folders of backups that somebody else planted: nothing is put there, nothing is believed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lockstitch.errors import Conflict, LockstitchError, Unreadable, UsageError
from lockstitch.files import backup, os_files, replace
from tests.files.conftest import LINES, keep_original, leftovers
from tests.files.planted import FOLDER, IS_ROOT, MALLORY, SWAPPING, make_foreign, plant
from tests.files.test_replace import NEW
from tests.postgres_server import open_room

SECRET = b"secret\n"


def repair(path: Path) -> None:
    backup.replace_with_backup(replace.snapshot(path), NEW, "run", {})


def contents(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}


# Backups.


def test_no_backup_is_given_to_the_owner_of_a_planted_folder(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = session.parent / FOLDER
    place.mkdir()
    make_foreign(place, monkeypatch)
    with pytest.raises(UsageError, match=r"belongs to another user.* -o FILE writes a repaired"):
        repair(session)
    assert session.read_bytes() == LINES
    assert list(place.iterdir()) == leftovers(session.parent) == []


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    command = [sys.executable, "-c", SWAPPING, str(one), str(other)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="swaps two names in one step")
@pytest.mark.parametrize("kind", ["link", "foreign folder"])
def test_a_folder_that_is_swapped_for_a_link_between_look_and_use(
    session: Path, tmp_path: Path, kind: str
) -> None:
    """It is swapped some thousand times a second, while backups are made and listed."""
    if kind != "link" and not IS_ROOT:
        kind = "link"  # only root has folders of two users
    trap, other, place = tmp_path / "trap", tmp_path / "other", tmp_path / FOLDER
    place.mkdir(mode=0o700)
    trap.mkdir()
    (trap / "theirs").write_bytes(SECRET)
    if kind == "link":
        other.symlink_to("trap")
    else:
        trap.rename(other)
        os.chown(other, MALLORY, MALLORY)
        trap = other
    made = refused = 0
    with swapping(place, other):
        end = time.monotonic() + 1.5
        while time.monotonic() < end and (made < 40 or refused < 40):
            try:
                keep_original(replace.snapshot(session), "run")
                made += 1
            except (LockstitchError, OSError):
                refused += 1
            with suppress(LockstitchError, OSError):
                backup.list_backups(session)
    assert made
    assert refused
    real = next(one for one in (place, other) if not one.is_symlink() and not _is_trap(one))
    trapped = trap if kind == "link" else next(one for one in (place, other) if one != real)
    assert contents(trapped) == {"theirs": SECRET}
    assert contents(real)
    assert {one.stat().st_uid for one in real.iterdir()} == {os.geteuid()}


def _is_trap(folder: Path) -> bool:
    return (folder / "theirs").exists()


def test_what_was_read_is_not_written_with_the_owner_and_mode_of_another_file(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody puts a file of theirs in the place of the one that was read."""
    before = replace.snapshot(session)
    other = session.with_name("other")
    other.write_bytes(LINES)
    other.chmod(0o666)
    other.replace(session)
    written: list[bytes] = []
    monkeypatch.setattr(os_files, "write_all", lambda _, data: written.append(data))
    with pytest.raises(Conflict):
        backup.replace_with_backup(before, NEW, "run", {})
    assert written == []
    assert session.read_bytes() == LINES


@pytest.fixture
def of_mallory() -> Iterator[Path]:
    """A session of another user in a folder of theirs, for root to repair."""
    if not IS_ROOT:
        pytest.skip("NOT TESTED as root: only root meets the files of two users")
    with tempfile.TemporaryDirectory(dir=open_room()) as name:
        path = Path(name, "session.jsonl")
        path.write_bytes(LINES)
        for one in (path.parent, path):
            os.chown(one, MALLORY, MALLORY)
        yield path


def test_root_gives_a_backup_to_the_owner_of_the_file_that_it_is_of(of_mallory: Path) -> None:
    repair(of_mallory)
    kept = [of_mallory.parent / FOLDER, *(of_mallory.parent / FOLDER).iterdir()]
    found = {(one.stat().st_uid, one.stat().st_mode & 0o077) for one in kept}
    assert (len(kept), found) == (3, {(MALLORY, 0)})
    assert backup.undo_backup(of_mallory).kept
    assert (of_mallory.read_bytes(), of_mallory.stat().st_uid) == (LINES, MALLORY)
    of_mallory.unlink()
    backup.undo_backup(of_mallory, run=backup.list_backups(of_mallory)[0].run, force=True)
    assert of_mallory.stat().st_uid == MALLORY


def test_root_keeps_its_own_file_out_of_the_folder_of_another(of_mallory: Path) -> None:
    """The folder around is theirs, and the planted one, too; the session is root's."""
    os.chown(of_mallory, 0, 0)
    plant(of_mallory, SECRET)
    os.chown(of_mallory.parent / FOLDER, MALLORY, MALLORY)
    before = contents(of_mallory.parent / FOLDER)
    with pytest.raises(UsageError, match="belongs to another user"):
        repair(of_mallory)
    for force in (False, True):
        with pytest.raises(UsageError, match="are not trusted"):
            backup.undo_backup(of_mallory, force=force)
    assert of_mallory.read_bytes() == LINES
    assert contents(of_mallory.parent / FOLDER) == before


# Undo.


def _planted(session: Path, target: Path) -> Path:
    """A backup of the session whose manifest is a link to another file."""
    stem = plant(session, SECRET)
    manifest = stem.with_name(f"{stem.name}.json")
    manifest.unlink()
    manifest.symlink_to(target)
    return manifest


def test_a_manifest_that_is_a_link_is_neither_read_nor_written_through(
    session: Path, tmp_path: Path
) -> None:
    victim = tmp_path / ".bashrc"
    victim.write_bytes(SECRET)
    manifest = _planted(session, victim)
    backup.undo_backup(session, force=True)
    assert victim.read_bytes() == SECRET
    assert not manifest.is_symlink()


def test_a_manifest_that_is_a_link_to_one_is_not_believed(session: Path, tmp_path: Path) -> None:
    stem = plant(session, SECRET)
    manifest = stem.with_name(f"{stem.name}.json")
    manifest.rename(tmp_path / "real.json")
    manifest.symlink_to(tmp_path / "real.json")
    assert [one.status for one in backup.list_backups(session)] == ["unfinished"]


@pytest.mark.parametrize("how", ["link", "pipe", "folder", "device"])
@pytest.mark.parametrize("end", ["bak", "json"])
def test_backups_that_are_no_files_are_not_restored(
    session: Path, tmp_path: Path, how: str, end: str
) -> None:
    stem = plant(session, SECRET)
    part = stem.with_name(f"{stem.name}.{end}")
    part.rename(tmp_path / "elsewhere")
    if how == "link":
        part.symlink_to(tmp_path / "elsewhere")
    elif how == "pipe":
        os.mkfifo(part)
    elif how == "folder":
        part.mkdir()
    else:
        part.symlink_to("/dev/zero")
    if end == "json" and how != "folder":
        backup.undo_backup(session, force=True)
        assert part.read_bytes()
        return
    with pytest.raises((Unreadable, OSError)):
        backup.undo_backup(session, force=True)
    assert session.read_bytes() == (SECRET if end == "json" else LINES)


@pytest.mark.parametrize(
    "fields",
    [
        {"target": "../victim.jsonl"},
        {"target": "/etc/passwd"},
        {"target": "other.jsonl"},
        {"target": ""},
        {"target": ".."},
        {"run": "other\x1b[2J"},
        {"time": "2026-01-01T00:00:00+00:00"},
        {"version": 2},
        {"of": "../../x"},
        {"carried": -5},
        {"carried": 1 << 40},
        {"before_size": -1},
    ],
)
def test_a_manifest_that_no_repair_writes_is_not_believed(
    session: Path, fields: dict[str, object]
) -> None:
    plant(session, SECRET, fields)
    [run] = backup.list_runs(session.parent)
    [found] = run.backups
    assert (found.path, found.run, found.status) == (str(session), "evil", "unfinished")


def test_names_that_hold_no_time_are_no_backups(session: Path) -> None:
    stem = plant(session, SECRET)
    name = stem.name.replace("20261101T120000", "99999999T999999")
    stem.with_name(f"{stem.name}.bak").rename(stem.with_name(f"{name}.bak"))
    stem.with_name(f"{stem.name}.json").unlink()
    assert backup.list_backups(session) == []


def test_a_folder_that_others_may_write_to_is_not_believed(session: Path) -> None:
    plant(session, SECRET)
    for mode in (0o770, 0o702):
        (session.parent / FOLDER).chmod(mode)
        with pytest.raises(UsageError, match="other users may write to"):
            backup.list_backups(session)
    (session.parent / FOLDER).chmod(0o1777)
    assert len(backup.list_backups(session)) == 1


def test_a_folder_as_open_as_the_one_around_it_is_no_worse_than_that(session: Path) -> None:
    """So they all are where a file system knows no modes."""
    plant(session, SECRET)
    session.parent.chmod(0o777)
    (session.parent / FOLDER).chmod(0o777)
    assert len(backup.list_backups(session)) == 1


def test_files_of_others_in_a_folder_of_ours_are_not_believed(of_mallory: Path) -> None:
    os.chown(of_mallory, 0, 0)
    for end in ("json", "bak"):
        stem = plant(of_mallory, SECRET)
        os.chown(stem.with_name(f"{stem.name}.{end}"), MALLORY, MALLORY)
        [found] = backup.list_backups(of_mallory)
        assert found.status == ("unfinished" if end == "json" else "done")
        if end == "bak":
            with pytest.raises(Unreadable, match="put there by another user"):
                backup.undo_backup(of_mallory)
        shutil.rmtree(of_mallory.parent / FOLDER)


def test_a_planted_folder_below_does_not_stop_the_undo_of_the_rest(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repair(session)
    inner = session.parent / "inner"
    inner.mkdir()
    (inner / "theirs.jsonl").write_bytes(LINES)
    plant(inner / "theirs.jsonl", SECRET)
    told: list[str] = []
    tell: Callable[[str, Exception], object] = lambda place, _: told.append(place)  # noqa: E731
    if IS_ROOT:
        make_foreign(inner / FOLDER, monkeypatch)
        found = backup.list_runs(session.parent, tell)
        assert [one.path for run in found for one in run.backups] == [str(session)]
    else:
        make_foreign(inner / FOLDER, monkeypatch)
        assert backup.list_runs(inner, tell) == []
    assert told == [str(inner)]
    with pytest.raises(UsageError, match="belongs to another user"):
        backup.list_runs(inner)


def test_a_file_that_came_back_meanwhile_is_not_replaced(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is a link that somebody put there once the look was over."""
    repair(session)
    session.unlink()
    victim = session.with_name("victim")
    victim.write_bytes(SECRET)
    real = replace.write_file_in

    def late(*args: object, **options: object) -> None:
        session.symlink_to(victim)
        real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(replace, "write_file_in", late)
    with pytest.raises(LockstitchError, match="been created again meanwhile"):
        backup.undo_backup(session, force=True)
    assert victim.read_bytes() == SECRET
