"""``backups``: what repairs have kept is listed, shown, written out and pruned, and no more."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.at_terminal import at_terminal
from tests.sessions import claude, homes
from tests.sessions.command import run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which one session was repaired three times, and a torn one once."""
    broken = homes.small(tmp_path)
    for _ in range(3):
        broken.write_text(claude.broken(), encoding="utf-8")
        assert run("repair", "--yes", broken).returncode == 0
    torn = tmp_path / homes.PROJECT / "torn.jsonl"
    torn.write_text(claude.healthy() + '{"type":"user","mess\x1b[31mage', encoding="utf-8")
    assert run("repair", "--yes", torn).returncode == 0
    return tmp_path


def listed(home: Path, *words: object) -> list[dict[str, object]]:
    done = run("backups", "--json", *words, env={**os.environ, "HOME": str(home)})
    assert done.returncode in (0, 1), done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)["backups"]
    return found


def kept(home: Path) -> list[str]:
    return sorted(path.name for path in (home / homes.PROJECT / ".lockstitch").iterdir())


def test_all_backups_of_this_machine_are_listed(home: Path) -> None:
    found = listed(home)
    assert len(found) == 4
    assert {one["status"] for one in found} == {"done"}
    assert [one["quarantine"] for one in found] == [1, 0, 0, 0]
    done = run("backups", env={**os.environ, "HOME": str(home)})
    assert f"~/{homes.PROJECT}/{claude.SESSION}.jsonl" in done.stdout
    assert "just now: repair, " in done.stdout
    assert "1 piece in quarantine" in done.stdout
    assert "4 backups of 2 files" in done.stderr
    assert f"lockstitch backups --show {found[0]['id']}" in done.stderr


def test_one_backup_is_shown_with_its_quarantine_and_written_out(home: Path) -> None:
    env = {**os.environ, "HOME": str(home)}
    found = listed(home)
    done = run("backups", "--show", found[0]["id"], env=env)
    assert done.returncode == 0
    assert "quarantined from 5 (LS601)" in done.stdout
    assert '{"type":"user","mess\\x1b[31mage' in done.stdout
    assert "\x1b" not in done.stdout
    copy = home / "copy.jsonl"
    assert run("backups", "--show", str(found[1]["id"])[:6], "-o", copy, env=env).returncode == 0
    assert copy.read_text("utf-8") == claude.broken()
    assert copy.stat().st_mode & 0o777 == 0o600
    # never over a file that is there
    assert run("backups", "--show", found[1]["id"], "-o", copy, env=env).returncode == 2
    assert run("backups", "--show", "nothing", env=env).returncode == 2


def test_pruning_keeps_the_newest_of_each_session(home: Path) -> None:
    before = kept(home)
    assert len(before) == 8
    found = listed(home, "--keep", "1", "--yes")
    assert [one["deleted"] for one in found] == [True, True]
    assert len(kept(home)) == 4
    # what is left is as good as before
    broken = home / homes.PROJECT / f"{claude.SESSION}.jsonl"
    assert run("undo", "--yes", broken).returncode == 0
    assert broken.read_text("utf-8") == claude.broken()


def test_nothing_is_deleted_without_an_answer(home: Path) -> None:
    before = kept(home)
    env = {**os.environ, "HOME": str(home)}
    done = run("backups", "--keep", "0", env=env)
    assert done.returncode == 1
    assert "Nothing was changed: --yes deletes without asking." in done.stderr
    status, shown = at_terminal("backups", "--keep", "0", keys=b"n\n", env=env)
    assert (status, b"Nothing was changed." in shown) == (1, True)
    assert kept(home) == before
    status, shown = at_terminal("backups", "--keep", "0", keys=b"y\n", env=env)
    assert (status, b"Deleted 4 backups." in shown) == (0, True)
    assert kept(home) == []


def test_only_what_is_old_enough_goes(home: Path) -> None:
    done = run("backups", "--older-than", "1d", "--yes", env={**os.environ, "HOME": str(home)})
    assert (done.returncode, done.stderr) == (0, "No backup is that old. Nothing was changed.\n")
    assert len(kept(home)) == 8


def test_a_backup_of_a_repair_that_was_cut_short_is_never_deleted(home: Path) -> None:
    """It may be the only whole copy: its manifest was never written."""
    folder = home / homes.PROJECT / ".lockstitch"
    newest = max(folder.glob("*.json"))
    newest.unlink()
    found = listed(home, "--keep", "0", "--yes")
    assert len(found) == 3
    assert [path.suffix for path in folder.iterdir()] == [".bak"]


@pytest.mark.parametrize(
    "words",
    [
        ["--show", "a", "--keep", "1"],
        ["-o", "file"],
        ["--keep", "many"],
        ["--older-than", "yesterday"],
    ],
)
def test_wrong_usage(tmp_path: Path, words: list[str]) -> None:
    env = {**os.environ, "HOME": str(tmp_path)}
    assert run("backups", *words, env=env).returncode == 2


def test_a_home_without_backups(tmp_path: Path) -> None:
    done = run("backups", env={**os.environ, "HOME": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "No backups were found.\n")
