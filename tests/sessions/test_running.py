"""Sessions whose program runs: told by its process files, or by where it works; real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lockstitch import sessions
from lockstitch.errors import Busy
from lockstitch.files import os_files
from tests.compaction.files import BUDGET, claude_book
from tests.formats import claude_files
from tests.formats.gemini_files import CASES as GEMINI
from tests.formats.pi_files import Session as PiSession
from tests.formats.stored import dumped, joined
from tests.sessions import claude
from tests.sessions.command import run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
SLEEP = shutil.which("sleep") or ""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "settings"
    (folder / "sessions").mkdir(parents=True)
    return folder


@pytest.fixture
def session(config: Path) -> Path:
    return written(config / "projects" / "-home-ada-project" / f"{claude.SESSION}.jsonl")


def written(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(claude.broken(), encoding="utf-8")
    return path


@contextmanager
def program(name: str, folder: Path, **environ: str) -> Iterator[int]:
    """A process of this name that works in a folder."""
    binary = folder.parent / "bin" / name
    binary.parent.mkdir(exist_ok=True)
    shutil.copy(SLEEP, binary)
    folder.mkdir(exist_ok=True)
    given = {"PATH": "/usr/bin:/bin", **environ}
    with subprocess.Popen([binary, "600"], cwd=folder, env=given) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def says(config: Path, pid: int, **fields: Any) -> Path:
    """The process file of 2.1.325, with other fields; those that are None are left out."""
    known = {
        "pid": pid,
        "sessionId": claude.SESSION,
        "cwd": "/home/ada/project",
        "startedAt": int(time.time() * 1000),
        "procStart": os_files.start_moment(pid),
        "version": "2.1.325",
        "pidDomain": f"linux:{'0' * 32}:{os_files.namespace()}",
        **fields,
    }
    path = config / "sessions" / f"{pid}.json"
    path.write_text(json.dumps({key: value for key, value in known.items() if value is not None}))
    return path


def refused(path: Path, said: str) -> None:
    before = path.read_bytes()
    done = run("repair", "--yes", path)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "nothing was changed" in done.stderr
    assert path.read_bytes() == before
    assert not (path.parent / ".lockstitch").exists()


def repaired(path: Path) -> None:
    done = run("repair", "--yes", path)
    assert done.returncode == 0, done.stderr


# Process files


@pytest.mark.parametrize(
    "fields",
    [{}, {"pidDomain": None}, {"pidDomain": None, "procStart": None, "version": None}],
    ids=["2.1.325", "2.1.197", "2.1.112"],
)
def test_a_process_file_of_a_living_process_is_believed(
    config: Path, session: Path, tmp_path: Path, fields: dict[str, Any]
) -> None:
    with program("claude", tmp_path / "work") as pid:
        says(config, pid, **fields)
        refused(session, f"Claude Code (process {pid}) has it open")
        assert run("check", session).returncode == 1
        assert run("repair", session, "-o", tmp_path / "copy.jsonl").returncode == 0
    repaired(session)


@pytest.mark.parametrize(
    "fields",
    [
        {"sessionId": "00000000-0000-4000-8000-000000000000"},
        {"procStart": "1"},
        {"procStart": None, "startedAt": 1_000_000_000_000},
        {"sessionId": 7},
    ],
    ids=["another session", "number used again", "used again, 2.1.112", "no id"],
)
def test_a_process_file_of_somebody_else_is_not(
    config: Path, session: Path, tmp_path: Path, fields: dict[str, Any]
) -> None:
    with program("other", tmp_path / "work") as pid:
        says(config, pid, **fields)
        repaired(session)


def test_a_process_that_cannot_be_asked_counts_while_there_are_signs_of_life(
    config: Path, session: Path, tmp_path: Path
) -> None:
    with program("claude", tmp_path / "work") as pid:
        record = says(config, pid, pidDomain="linux:0:pid:[1]")
        refused(session, f"remove {record} if it is gone")
        old = time.time() - 2 * 3600
        os.utime(record, (old, old))
        refused(session, "elsewhere")
        os.utime(session, (old, old))
        repaired(session)


def test_a_sub_agent_belongs_to_its_session(config: Path, session: Path, tmp_path: Path) -> None:
    aside = written(session.with_suffix("") / "subagents" / "agent-1.jsonl")
    aside.write_text(claude.broken().replace(claude.SESSION, "another"), encoding="utf-8")
    with program("claude", tmp_path / "work") as pid:
        says(config, pid)
        refused(aside, f"process {pid}")


def test_a_copy_elsewhere_is_nobodys(config: Path, session: Path, tmp_path: Path) -> None:
    copy = tmp_path / f"{claude.SESSION}.jsonl"
    shutil.copy(session, copy)
    with program("claude", tmp_path / "work") as pid:
        says(config, pid)
        repaired(copy)


def test_projects_that_lie_elsewhere(config: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "disk" / "kept" / "-home-ada-project" / f"{claude.SESSION}.jsonl")
    (config / "projects").symlink_to(tmp_path / "disk" / "kept")
    with program("claude", tmp_path / "work") as pid:
        says(config, pid)
        refused(config / "projects" / "-home-ada-project" / path.name, f"process {pid}")
        environ = {**os.environ, "CLAUDE_CONFIG_DIR": str(config)}
        done = run("repair", "--yes", path, env=environ)
        assert (done.returncode, f"process {pid}" in done.stderr) == (2, True)


def test_compaction_undo_and_the_python_calls_wait_as_well(
    config: Path, session: Path, tmp_path: Path
) -> None:
    book = claude_book()
    long = session.with_name(f"{book.session}.jsonl")
    long.write_bytes(claude_files.joined(book.lines()))
    repaired(session)
    done = session.read_bytes()
    before = long.read_bytes()
    with program("claude", tmp_path / "work") as pid:
        says(config, pid)
        ran = run("undo", "--yes", session)
        assert (ran.returncode, f"process {pid}" in ran.stderr) == (2, True)
        assert run("undo", "--yes", "--force", session).returncode == 2
        assert session.read_bytes() == done
        says(config, pid, sessionId=book.session)
        ran = run("compact", "--yes", "--budget", BUDGET, long)
        assert (ran.returncode, f"process {pid}" in ran.stderr) == (2, True)
        with pytest.raises(Busy, match=f"process {pid}"):
            sessions.compact(str(long), budget=BUDGET)
    assert long.read_bytes() == before
    assert run("undo", "--yes", session).returncode == 0
    assert run("compact", "--yes", "--budget", BUDGET, long).returncode == 0


# Programs that only work in a folder


def test_an_old_claude_code_is_told_by_where_it_works(config: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    name = re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath(work))
    path = written(config / "projects" / name / f"{claude.SESSION}.jsonl")
    with program("claude", work, CLAUDE_CONFIG_DIR=str(config)) as pid:
        os.utime(path)
        refused(path, f"Claude Code (process {pid}) works in the folder of this session")
        # It started after the last change, so that it has not written this one.
        old = time.time() - 3600
        os.utime(path, (old, old))
        repaired(path)


def test_a_claude_code_with_other_settings_is_none_of_them(config: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    name = re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath(work))
    path = written(config / "projects" / name / f"{claude.SESSION}.jsonl")
    with program("claude", work, HOME=str(tmp_path)):
        os.utime(path)
        repaired(path)


def test_pi_is_told_by_where_it_works(tmp_path: Path) -> None:
    work = tmp_path / "work"
    chat = PiSession("open")
    chat.lines[0]["cwd"] = str(work)
    chat.ask("Run the build.")
    chat.say("I build it.", "build")
    path = tmp_path / "sessions" / "session.jsonl"
    path.parent.mkdir()
    with program("pi", work) as pid:
        path.write_bytes(joined([dumped(line) for line in chat.lines]))
        refused(path, f"pi (process {pid}) works in the folder")
    repaired(path)


def test_gemini_cli_is_told_by_where_it_works(tmp_path: Path) -> None:
    work = tmp_path / "work"
    case = next(case for case in GEMINI if not case.healthy)
    path = tmp_path / "tmp" / "work" / "chats" / Path(case.path).name
    path.parent.mkdir(parents=True)
    (path.parent.parent / ".project_root").write_text(f"{work}\n")
    with program("gemini", work) as pid:
        case.write(path)
        os.utime(path)
        refused(path, f"Gemini CLI (process {pid}) works in the folder")
    assert run("repair", "--yes", path).returncode in {0, 1}
