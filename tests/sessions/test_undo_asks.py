"""An undo shows what it will replace by what, and asks; planted backups change nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lockstitch.files import backup
from tests.at_terminal import at_terminal
from tests.files.planted import make_foreign, plant
from tests.sessions import claude
from tests.sessions.command import run
from tests.sessions.test_undo import KINDS, rows

EVIL = b"#!/bin/sh\necho owned\n"


@pytest.fixture
def repaired(tmp_path: Path) -> Path:
    path = tmp_path / "session.jsonl"
    path.write_text(claude.broken(), encoding="utf-8")
    assert run("repair", "--yes", path).returncode == 0
    return path


def test_nobody_there_means_no(repaired: Path) -> None:
    before = repaired.read_bytes()
    done = run("undo", repaired)
    assert (done.returncode, repaired.read_bytes()) == (1, before)
    assert "Nothing was changed: --yes undoes it without asking." in done.stderr
    shown = next(line for line in done.stderr.splitlines() if str(repaired) in line)
    assert "kB, last changed 20" in shown
    assert "kB of before the repair of 20" in shown
    assert "will replace it" in shown
    done = run("undo", "--json", repaired)
    [one] = json.loads(done.stdout)["sessions"]
    assert (one["restored"], one["error"], done.returncode) == (None, None, 1)


@pytest.mark.parametrize(("keys", "status"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1)])
def test_a_person_is_asked(repaired: Path, keys: bytes, status: int) -> None:
    found, shown = at_terminal("undo", repaired, keys=keys)
    assert found == status
    assert b"Undo this? [y/N]" in shown
    assert (repaired.read_text("utf-8") == claude.broken()) == (status == 0)


def test_a_file_that_is_gone_is_said_to_come_back(repaired: Path) -> None:
    repaired.unlink()
    done = run("undo", "--force", repaired)
    assert (done.returncode, repaired.exists()) == (1, False)
    assert "is gone; the" in done.stderr


def test_planted_bytes_are_shown_before_they_take_the_place_of_a_file(tmp_path: Path) -> None:
    """Out of a repository, all of it is ours: then the one who undoes must see what it is."""
    victim = tmp_path / "Makefile"
    victim.write_bytes(b"all:\n")
    plant(victim, EVIL)
    done = run("undo", tmp_path)
    assert (done.returncode, victim.read_bytes()) == (1, b"all:\n")
    assert str(victim) in done.stderr


@pytest.mark.parametrize("words", [["--force"], ["--run", "evil"], []])
def test_a_planted_folder_of_another_user(
    tmp_path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "session.jsonl"
    victim.write_text(claude.healthy(), encoding="utf-8")
    stem = plant(victim, EVIL)
    make_foreign(stem.parent, monkeypatch)
    for target in (victim, tmp_path):
        done = run("undo", "--yes", *words, target)
        assert (done.returncode, victim.read_text("utf-8")) == (2, claude.healthy())
        assert "belongs to another user" in done.stderr
        assert run("undo", "--list", target).returncode == 2


def test_a_manifest_that_is_a_link_overwrites_nothing(tmp_path: Path) -> None:
    session, victim = tmp_path / "session.jsonl", tmp_path / ".bashrc"
    session.write_text(claude.healthy(), encoding="utf-8")
    victim.write_bytes(b"mine\n")
    for words in (["--force"], ["--run", "evil", "--force"]):
        stem = plant(session, EVIL)
        manifest = stem.with_name(f"{stem.name}.json")
        manifest.unlink()
        manifest.symlink_to(victim)
        run("undo", "--yes", *words, session)
        assert victim.read_bytes() == b"mine\n"


def test_the_rest_of_a_folder_is_undone_beside_a_planted_one(
    repaired: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = repaired.parent / "inner" / "theirs.jsonl"
    inner.parent.mkdir()
    inner.write_text(claude.healthy(), encoding="utf-8")
    stem = plant(inner, EVIL)
    if os.geteuid() != 0:
        stem.parent.chmod(0o777)
    else:
        make_foreign(stem.parent, monkeypatch)
    done = run("undo", "--yes", repaired.parent)
    assert done.returncode == 2
    assert f"{inner.parent}: it has a folder .lockstitch beside it" in done.stderr
    assert repaired.read_text("utf-8") == claude.broken()
    assert inner.read_text("utf-8") == claude.healthy()


@pytest.mark.parametrize(
    "images",
    [
        {},
        {"format": "goose", "rows": 5},
        {"format": "nobody", "rows": []},
        {"format": "claude-code", "rows": []},
        {"format": "goose", "rows": [5]},
        {"format": "goose", "rows": [{"table": "messages", "before": [], "after": None}]},
        {"format": "goose", "rows": [{"table": "secrets", "before": {"rowid": 1}, "after": None}]},
        {"format": "goose", "rows": [{"table": "messages", "before": {}, "after": None}]},
        {"format": "goose", "rows": [{"table": "sqlite_sequence", "before": {}, "after": {}}]},
    ],
)
def test_images_of_rows_that_no_repair_writes(tmp_path: Path, images: object) -> None:
    path, _ = KINDS["goose"](tmp_path)
    state = rows(path)
    plant(path, b"", {"rows": images, "before_digest": "", "after_digest": ""})
    for manifest in (tmp_path / backup.FOLDER).glob("*.bak"):
        manifest.unlink()
    for words in (["undo", "--yes"], ["undo", "--yes", "--force"], ["undo", "--yes", "--run=evil"]):
        done = run(*words, path)
        assert (done.returncode, "internal error" in done.stderr) == (2, False), done.stderr
    assert run("undo", "--list", path).returncode == 0
    assert rows(path) == state
