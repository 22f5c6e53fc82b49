"""``-o`` of every command: over nothing that exists unless forced, and never over what is read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import lockstitch as library
from tests.compaction.files import BUDGET, claude_file
from tests.formats.databases import AgentsBook, rows
from tests.inprocess import command
from tests.sessions import claude

Run = Callable[..., Any]
COMMANDS: dict[str, tuple[str, ...]] = {
    "repair": ("repair",),
    "branch": ("repair", "--branch", "2"),
    "compact": ("compact", "--budget", str(BUDGET)),
    "export": ("export",),
}


@pytest.fixture
def session(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A session that is long for a compaction, has a branch for a fork, and is broken else."""
    command = request.node.callspec.params["command"]
    if command == "compact":
        return claude_file(tmp_path)[0]
    path = tmp_path / "session.jsonl"
    text = claude.broken()
    if command == "branch":
        text += claude.line(600, 1, "assistant", claude.said("No."))
        text += claude.line(601, 600, "user", "Why?")
    path.write_text(text, encoding="utf-8")
    return path


def spelled(path: Path) -> dict[str, str]:
    """The same file by other names."""
    link, hard = path.with_name("link.jsonl"), path.with_name("hard.jsonl")
    link.symlink_to(path)
    os.link(path, hard)
    folder = path.parent.with_name(f"{path.parent.name} by another way")
    folder.symlink_to(path.parent)
    return {
        "itself": str(path),
        "relative": os.path.relpath(path),
        "dotted": str(path.parent / ".." / path.parent.name / path.name),
        "symbolic link": str(link),
        "hard link": str(hard),
        "linked folder": str(folder / path.name),
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_never_over_the_session_itself(here: Run, session: Path, command: str) -> None:
    before = session.read_bytes()
    names = {path.name for path in session.parent.iterdir()}
    for how, name in spelled(session).items():
        for words in ((), ("--force",)):
            done = here(*COMMANDS[command], session, "-o", name, *words)
            assert done.returncode == 2, (how, done.stderr)
            assert b"is the file that is being read" in done.stderr, how
            assert b"with the backup" not in done.stderr
            assert session.read_bytes() == before, how
    more = {"link.jsonl", "hard.jsonl"}
    assert {path.name for path in session.parent.iterdir()} == names | more


@pytest.mark.parametrize("command", COMMANDS)
def test_over_another_file_only_by_force(
    here: Run, session: Path, tmp_path: Path, command: str
) -> None:
    before = session.read_bytes()
    other, new = tmp_path / "other.jsonl", tmp_path / "new.jsonl"
    other.write_bytes(b"mine\n")
    done = here(*COMMANDS[command], session, "-o", other)
    assert (done.returncode, other.read_bytes()) == (2, b"mine\n")
    assert b"exists; nothing was written" in done.stderr
    assert b"--force" in done.stderr
    link = tmp_path / "link to it"
    link.symlink_to(other)
    assert here(*COMMANDS[command], session, "-o", link).returncode == 2
    assert other.read_bytes() == b"mine\n"
    assert here(*COMMANDS[command], session, "-o", other, "--force").returncode == 0
    assert here(*COMMANDS[command], session, "-o", new).returncode == 0
    assert other.read_bytes() == new.read_bytes() != b"mine\n"
    assert new.stat().st_mode & 0o777 == 0o600
    assert session.read_bytes() == before


@pytest.mark.parametrize("command", ["repair", "export"])
def test_never_among_the_backups(here: Run, session: Path, command: str) -> None:
    assert here("repair", "--yes", session).returncode == 0
    [backup] = (session.parent / ".lockstitch").glob("*.bak")
    before = backup.read_bytes()
    done = here(*COMMANDS[command], session, "-o", backup, "--force")
    assert (done.returncode, backup.read_bytes()) == (2, before)


def test_a_database_is_not_overwritten_by_its_export(here: Run, tmp_path: Path) -> None:
    book = AgentsBook("one")
    book.work("Read the settings.", "settings")
    path = tmp_path / "agents.db"
    book.write(path)
    with closing(sqlite3.connect(path)) as base:
        base.execute("select * from agent_messages").fetchall()
        state = rows(path)
        for name in (path, f"{path}-wal"):
            done = here("export", path, "-o", name, "--force")
            assert (done.returncode, b"is the file that is being read" in done.stderr) == (2, True)
    assert rows(path) == state


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
def test_a_store_is_not_overwritten_by_its_export(here: Run, tmp_path: Path, scheme: str) -> None:
    place = tmp_path / "store"
    with library.open(f"{scheme}:///{place}") as store, store.session("one") as session:
        session.say("Hello.")
    files = [place] if place.is_file() else [one for one in place.iterdir() if one.is_file()]
    before = {path: path.read_bytes() for path in files}
    for path in files:
        done = here("export", f"{scheme}:///{place}", "--session", "one", "-o", path, "--force")
        assert (done.returncode, b"is the file that is being read" in done.stderr) == (2, True), (
            path
        )
    assert {path: path.read_bytes() for path in files} == before


def test_a_copy_may_go_to_a_device_or_a_pipe(here: Run, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(claude.broken(), encoding="utf-8")
    assert here("export", path, "-o", "/dev/null").returncode == 0
    done = here("export", path, "-o", tmp_path)
    assert (done.returncode, b"is a folder" in done.stderr) == (2, True)


def test_force_is_only_for_copies(here: Run, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(claude.broken(), encoding="utf-8")
    done = here("repair", "--yes", "--force", path)
    assert done.returncode == 2
    assert b"never repaired" in done.stderr
    assert path.read_text("utf-8") == claude.broken()


def test_what_is_quarantined_is_with_a_backup_only_where_there_is_one(
    here: Run, tmp_path: Path
) -> None:
    path = tmp_path / "session.jsonl"
    torn = claude.line(5, 4, "user", "More.")[:-20] + "\n"
    path.write_text(claude.broken() + torn, encoding="utf-8")
    done = here("repair", path, "-o", tmp_path / "copy.jsonl")
    assert done.returncode == 0
    assert b"quarantined" in done.stderr
    assert b"with the backup" not in done.stderr
    assert b"stays in the original only" in done.stderr
    done = here("repair", path)
    assert b"kept with the backup" in done.stderr
    assert b"to be kept with the backup" in done.stderr
    assert b"is kept with it" not in done.stderr
    done = here("repair", "--yes", path)
    assert done.returncode == 0
    assert b"What was quarantined (1 piece) is kept with it." in done.stderr


def test_a_link_to_nowhere_is_a_name_that_is_taken(tmp_path: Path) -> None:
    """In a folder of several users it may be anybody's, and lead anywhere."""
    session, link, key = tmp_path / "s.jsonl", tmp_path / "copy.jsonl", tmp_path / "authorized_keys"
    session.write_text(claude.broken(), encoding="utf-8")
    link.symlink_to(key)
    for words in (["repair", session], ["export", session]):
        done = command(*words, "-o", link)
        assert (done.returncode, key.exists()) == (2, False)
        assert b"exists; nothing was written" in done.stderr
