"""The session that a program would resume, found where the program keeps it."""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path

import pytest

from lockstitch import launch
from lockstitch.launch import NAMED, NEWEST, PICKED, Client, Resume, find_resumable
from tests.formats.codex_files import CASES as CODEX
from tests.formats.databases import CASES as DATABASES
from tests.formats.gemini_files import CASES as GEMINI
from tests.formats.pi_files import CASES as PI
from tests.watching.made import Chat

ID = "00000000-0000-4000-8000-00000000000{}"


def folder_of(client: Client, home: Path, work: Path) -> Path:
    """Where a program keeps the sessions of a working directory."""
    real = os.path.realpath(work)
    places = {
        launch.CLAUDE: f".claude/projects/{re.sub('[^a-zA-Z0-9]', '-', real)}",
        launch.CODEX: ".codex/sessions/2026/09/01",
        launch.PI: f".pi/agent/sessions/--{real.strip('/').replace('/', '-')}--",
        launch.GEMINI: f".gemini/tmp/{sha256(real.encode()).hexdigest()}/chats",
    }
    return home / places[client]


def session_of(client: Client, home: Path, work: Path, number: int) -> Path:
    """Write a session of a working directory."""
    folder = folder_of(client, home, work)
    folder.mkdir(parents=True, exist_ok=True)
    own = ID.format(number)
    if client == launch.CLAUDE:
        chat = Chat(folder / f"{own}.jsonl")
        chat.turns(2)
        return chat.path
    names = {
        launch.CODEX: f"rollout-2026-09-01T00-00-0{number}-{own}.jsonl",
        launch.PI: f"2026-09-01T00-00-0{number}_{own}.jsonl",
        launch.GEMINI: f"session-2026-09-01T00-0{number}-{own[:7]}{number}.jsonl",
    }
    cases = {launch.CODEX: CODEX, launch.PI: PI, launch.GEMINI: GEMINI}[client]
    path = folder / names[client]
    cases[0].write(path)
    data = path.read_bytes()
    path.write_bytes(re.sub(rb'"cwd":"[^"]*"', b'"cwd":"%s"' % os.fsencode(work), data))
    return path


FILES = [launch.CLAUDE, launch.CODEX, launch.PI, launch.GEMINI]


@pytest.mark.parametrize("client", FILES, ids=lambda client: client.format)
def test_the_session_that_was_used_last_in_the_folder_is_found(
    client: Client, tmp_path: Path
) -> None:
    home, work, other = tmp_path / "home", tmp_path / "a b", tmp_path / "other"
    work.mkdir()
    other.mkdir()
    made = [session_of(client, home, work, number) for number in (1, 2, 3)]
    elsewhere = session_of(client, home, other, 4)
    for at, path in enumerate([made[0], made[2], made[1], elsewhere]):
        os.utime(path, (1e9 + at, 1e9 + at))

    def found(resume: Resume) -> list[str]:
        return [one.path for one in find_resumable(client, resume, str(work), home, {})]

    assert found(Resume(NEWEST)) == [str(made[1])]
    assert found(Resume(PICKED)) == [str(made[1]), str(made[2]), str(made[0])]
    assert found(Resume(NEWEST, folder=str(other))) == [str(elsewhere)]
    name = made[0].stem[-8:]
    assert found(Resume(NAMED, name)) == [str(made[0])]
    assert found(Resume(NAMED, str(made[2]))) == [str(made[2])]
    assert found(Resume(NAMED, "nothing like it")) == []
    assert found(Resume()) == []


@pytest.mark.parametrize("client", [launch.OPENCODE, launch.GOOSE], ids=lambda one: one.format)
def test_a_session_in_a_database_is_found(client: Client, tmp_path: Path) -> None:
    case = next(case for case in DATABASES if case.format == client.format)
    place = {
        launch.OPENCODE: "opencode/opencode.db",
        launch.GOOSE: "goose/sessions/sessions.db",
    }[client]
    path = tmp_path / ".local" / "share" / place
    path.parent.mkdir(parents=True)
    case.write(path)
    newest = find_resumable(client, Resume(NEWEST, everywhere=True), "/", tmp_path, {})
    assert [one.session for one in newest] == [case.session]
    named = find_resumable(client, Resume(NAMED, case.session), "/", tmp_path, {})
    assert named == newest
    assert find_resumable(client, Resume(NEWEST), str(tmp_path), tmp_path, {}) == []


def test_a_moved_folder_is_looked_into(tmp_path: Path) -> None:
    path = session_of(launch.CLAUDE, tmp_path, tmp_path, 1)
    environ = {"CLAUDE_CONFIG_DIR": str(tmp_path / ".claude")}
    nobody = tmp_path / "nobody"
    found = find_resumable(launch.CLAUDE, Resume(NEWEST), str(tmp_path), nobody, environ)
    assert [one.path for one in found] == [str(path)]
