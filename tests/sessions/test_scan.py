"""``scan``: all sessions of a home directory, without a trace."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest

import lockstitch
from tests.formats.databases import OpencodeBook
from tests.sessions import claude, command, homes

INTERRUPTIBLE = """
import signal, sys
from lockstitch.cli import run
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / ".claude" / "projects" / "-home-ada-project"
    folder.mkdir(parents=True)
    (folder / f"{claude.SESSION}.jsonl").write_text(claude.healthy(), encoding="utf-8")
    (folder / "5ee0c484.jsonl").write_text(claude.broken(), encoding="utf-8")
    (folder / "torn.jsonl").write_text(claude.healthy()[:-30], encoding="utf-8")
    return tmp_path


def run(home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HOME": str(home)}
    environ.pop("CLAUDE_CONFIG_DIR", None)
    return command.run(*words, env=environ)


def state(home: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in home.rglob("*")
        if path.is_file()
    }


def test_a_home_directory(home: Path) -> None:
    before = state(home)
    done = run(home, "scan")
    assert done.returncode == 1
    assert state(home) == before
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0][:5] == ["program", "project", "sessions", "broken", "warnings"]
    assert rows[1][:5] == ["claude-code", "/home/ada/project", "3", "1", "1"]
    assert "3 sessions: 1 healthy, 1 with warnings, 1 broken." in done.stderr
    assert "To repair all of them: lockstitch repair --all" in done.stderr


@pytest.mark.parametrize("columns", [80, 40])
def test_each_broken_session_is_told_in_words_that_fit(tmp_path: Path, columns: int) -> None:
    homes.large(tmp_path)
    done = command.run("scan", env={**os.environ, "HOME": str(tmp_path), "COLUMNS": str(columns)})
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    commands = [line.strip() for line in lines if "lockstitch repair " in line]
    assert all(len(line) <= columns or "lockstitch repair" in line for line in lines)
    assert [line[:6] for line in lines].count("broken") == 2
    assert [line[:7] for line in lines].count("warning") == 2
    for words in ("Fix the failing", "1 turn a resume would drop", "2 hours ago", "Claude Code"):
        assert words in done.stdout
    assert "LS" not in done.stdout
    assert "8 sessions: 4 healthy, 2 with warnings, 2 broken." in done.stderr
    # every hint can be pasted as it is
    assert len(commands) == 4
    for line in commands:
        pasted = line.split()[1:]
        done = command.run(*pasted, "--diff", env={**os.environ, "HOME": str(tmp_path)})
        assert done.returncode == 1, done.stderr
        assert "(repaired)" in done.stdout


def test_a_database_is_not_counted_once_a_session(tmp_path: Path) -> None:
    place = tmp_path / ".local" / "share" / "opencode" / "opencode.db"
    place.parent.mkdir(parents=True)
    book = OpencodeBook("sized")
    book.work("Look around.", "look")
    book.write(place)
    with closing(sqlite3.connect(place)) as base, base:
        base.execute(
            "insert into session select 'ses_two', project_id, parent_id, slug, directory,"
            " 'Second', version, share_url, revert, permission, time_created, time_updated,"
            " time_compacting, time_archived from session"
        )
        rows = "id || 'x', {} 'ses_two', time_created, time_updated, data from {} where session_id"
        base.execute(f"insert into message select {rows.format('', 'message')} <> 'ses_two'")
    done = run(tmp_path, "scan", "--all", "--json")
    found = json.loads(done.stdout)["sessions"]
    assert {one["session"] for one in found} == {book.session, "ses_two"}
    assert sum(one["size"] for one in found) < place.stat().st_size
    assert "Second" in run(tmp_path, "scan", "--all").stdout


def test_where_it_looked_is_said_when_nothing_is_found(tmp_path: Path) -> None:
    done = run(tmp_path, "scan")
    assert done.returncode == 0
    assert "No sessions were found. Lockstitch looked in:\n  ~/.claude/projects\n" in done.stderr
    assert "0 sessions" not in done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_as_json_with_any_number_of_workers(home: Path, workers: str) -> None:
    done = run(home, "scan", "--json", "--workers", workers)
    report = json.loads(done.stdout)
    assert report["version"] == 1
    found = {Path(one["target"]).name: one for one in report["sessions"]}
    assert found["5ee0c484.jsonl"]["status"] == "broken"
    assert [f["code"] for f in found["5ee0c484.jsonl"]["findings"]] == ["LS101"]
    assert [f["code"] for f in found["torn.jsonl"]["findings"]] == ["LS601"]
    assert found[f"{claude.SESSION}.jsonl"]["status"] == "ok"


@pytest.mark.parametrize("words", [["show"], ["export"], ["export", "--to", "markdown"]])
def test_what_cannot_be_read_is_named(home: Path, words: list[str]) -> None:
    pipe = home / ".claude" / "projects" / "-home-ada-project" / "7ee0c484.jsonl"
    os.mkfifo(pipe)
    done = run(home, *words, "7ee0c484")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"lockstitch: {pipe}: it is a pipe")


def test_no_more_workers_than_there_is_work(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is an interpreter of its own: a mistyped number must not take the machine down."""
    from lockstitch import cli
    from lockstitch.cli import scan

    started: list[int] = []

    def start(workers: int) -> ThreadPool:
        started.append(workers)
        return ThreadPool(1)

    monkeypatch.setattr(scan, "start_workers", start)
    assert cli.run(["scan", str(home), "--workers", "5000"]) == 1
    assert started == [3]


def test_a_session_is_found_by_the_beginning_of_its_id(home: Path) -> None:
    assert run(home, "check", "4ee0c484").returncode == 0
    assert run(home, "check", "5ee0").returncode == 1
    nobody = run(home, "check", "9999")
    assert nobody.returncode == 2
    assert "neither a file nor the id of a session" in nobody.stderr


def test_the_environment_may_move_the_sessions(home: Path, tmp_path: Path) -> None:
    moved = home / ".claude"
    moved.rename(tmp_path / "elsewhere")
    environ = {**os.environ, "HOME": str(home), "CLAUDE_CONFIG_DIR": str(tmp_path / "elsewhere")}
    done = command.run("scan", "--json", env=environ)
    assert len(json.loads(done.stdout)["sessions"]) == 3


def test_a_first_line_larger_than_what_is_looked_at_first(home: Path, tmp_path: Path) -> None:
    file = tmp_path / f"{claude.SESSION}.jsonl"
    prompt = claude.line(1, None, "user", "look at this: " + "x" * 400_000)
    file.write_text(prompt + claude.line(2, 1, "assistant", claude.said("seen")), "utf-8")
    done = run(home, "check", file, "--json")
    assert json.loads(done.stdout)["sessions"][0]["format"] == "claude-code"


def test_a_path_that_is_not_there(home: Path) -> None:
    done = run(home, "scan", home / "nowhere")
    assert done.returncode == 2
    assert done.stderr == f"lockstitch: {home / 'nowhere'}: no such file or folder\n"


@pytest.mark.parametrize("url", ["sqlite:///{}/agent.db", "jsonl:///{}/lines"])
def test_the_address_of_a_store(home: Path, url: str) -> None:
    url = url.format(home)
    with lockstitch.open(url) as store, store.session("ticket-42") as session:
        session.say("go on")
    done = run(home, "scan", url, "--json")
    assert [one["session"] for one in json.loads(done.stdout)["sessions"]] == ["ticket-42"]
    gone = run(home, "scan", f"{url}-gone")
    assert (gone.returncode, gone.stdout) == (2, "")
    assert "no such file or folder" in gone.stderr


def test_an_interrupt_leaves_nothing_behind(home: Path) -> None:
    folder = home / ".claude" / "projects" / "large"
    folder.mkdir()
    claude.long_session(folder / "large.jsonl", 60_000_000)
    # a repeated id makes the quick pass give up, so that there is enough to do
    with (folder / "large.jsonl").open("a", encoding="utf-8") as file:
        file.write(claude.line(1, None, "user", "again"))
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    process = subprocess.Popen(
        # a job in the background ignores interrupts unless it is told otherwise
        [sys.executable, "-c", INTERRUPTIBLE, "scan", "--workers", "2"],
        env={**os.environ, "HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not _children(process.pid):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.6)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert process.returncode in (1, 130)
    assert "Traceback" not in said
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before


WORKERS = """
import signal
from lockstitch.cli.scan import start_workers

blocked = signal.SIG_BLOCK, set()
if __name__ == "__main__":
    with start_workers(2) as pool:
        asked = [pool.apply_async(signal.pthread_sigmask, blocked) for _ in range(4)]
        print(all(signal.SIGINT in one.get(60) for one in asked))
    print(signal.SIGINT in signal.pthread_sigmask(*blocked))
"""


def test_workers_leave_an_interrupt_to_the_command(tmp_path: Path) -> None:
    """In a process of its own, since the first worker of any starts what tracks all of them."""
    path = tmp_path / "workers.py"
    path.write_text(WORKERS, encoding="utf-8")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def _children(pid: int) -> list[str]:
    """The workers of a scan; an interrupt before there are any would only test the start."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()


def test_a_failure_of_our_own_does_not_end_the_scan(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lockstitch.cli import scan
    from lockstitch.sources import operations

    def fail(path: str) -> list[object]:
        raise KeyError(path)

    monkeypatch.setattr(operations, "scan_file", fail)
    [report] = scan.scan_file(str(home / "secret words.jsonl"))
    assert report.status == "unreadable"
    assert (report.error or "").startswith("internal error: KeyError at ")
    assert "secret words" not in (report.error or "")


def test_a_session_with_only_notes_is_healthy(home: Path) -> None:
    """A missing line break at the end harms nobody: it is said, and nothing is done about it."""
    folder = home / ".claude" / "projects" / "-home-ada-project"
    for name in ("5ee0c484.jsonl", "torn.jsonl"):
        (folder / name).unlink()
    file = folder / f"{claude.SESSION}.jsonl"
    file.write_text(claude.healthy().removesuffix("\n"), encoding="utf-8")
    before = file.read_bytes()
    done = run(home, "scan", "--all")
    assert done.returncode == 0
    assert "healthy (note: 1 missing line break)" in done.stdout
    assert "1 session: 1 healthy (1 with notes), 0 broken." in done.stderr
    assert "missing line break" not in run(home, "scan").stdout
    done = run(home, "check", file)
    assert done.returncode == 0
    assert ": note LS608 [*] " in done.stdout
    assert done.stderr == "Healthy with notes: 1 note, nothing broken.\n"
    done = run(home, "check", file, "--json")
    assert json.loads(done.stdout)["sessions"][0]["status"] == "notes"
    done = run(home, "repair", "--yes", file)
    assert (done.returncode, file.read_bytes()) == (0, before)
    assert "Healthy with notes: 1 note, nothing broken, nothing changed." in done.stderr
    assert run(home, "repair", "--yes", "--notes", file).returncode == 0
    assert file.read_bytes() == before + b"\n"
