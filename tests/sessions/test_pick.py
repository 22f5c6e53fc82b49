"""Bare ``lockstitch`` at a real terminal: pick a session, repair it, get the line that resumes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import inprocess
from tests.at_terminal import at_terminal
from tests.clients.terminal import Terminal
from tests.sessions import claude, homes

LOCKSTITCH = (sys.executable, "-m", "lockstitch")
RESUME = f"cd /home/ada/project && claude --resume {claude.SESSION}"


def environ(home: Path, **more: str) -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
    return {**kept, "HOME": str(home), "LANG": "C.UTF-8", "PYTHONUTF8": "1", **more}


def started(home: Path, columns: int) -> Terminal:
    return Terminal(LOCKSTITCH, home, environ(home), columns=columns, rows=24)


def unwrapped(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("columns", [80, 40])
def test_a_dead_session_is_picked_repaired_and_resumed(tmp_path: Path, columns: int) -> None:
    broken = homes.small(tmp_path)
    before = broken.read_bytes()
    with started(tmp_path, columns) as terminal:
        # the list is there at once, the state of each as it is found
        terminal.wait(r"2 sessions . 1 broken$|2 sessions . 1 broken\n")
        terminal.wait("Fix the failing test +2 hours ago")
        terminal.wait("broken: 1 tool call without a result")
        terminal.wait("The healthy one +1 day ago")
        assert "LS101" not in terminal.text
        terminal.press("enter")
        terminal.wait("What is wrong")
        terminal.wait("will be answered")
        assert "LS101" not in terminal.text
        terminal.press("d")
        terminal.wait("@@ new, after 2 @@")
        terminal.press("b")
        terminal.wait("What is wrong")
        assert broken.read_bytes() == before
        terminal.press("r")
        terminal.wait("Repair it")
        terminal.press("n")
        terminal.wait(r"\[r\]epair")
        assert broken.read_bytes() == before
        terminal.press("r")
        terminal.wait("Repair it")
        terminal.press("y")
        terminal.wait("Repaired")
        assert broken.read_bytes() != before
        terminal.press("b")
        terminal.wait("0 broken")
        terminal.press("1")
        terminal.wait("Nothing is wrong")
        terminal.press("q")
        assert terminal.ended()
        assert terminal.process.returncode == 0
        assert RESUME.replace(" ", "") in terminal.text.replace("\n", "").replace(" ", "")
    env = environ(tmp_path)
    undo = [*LOCKSTITCH, "undo", "--yes", str(broken)]
    subprocess.run(undo, env=env, check=True, capture_output=True, timeout=60)
    assert broken.read_bytes() == before


def test_the_outcome_and_the_line_that_resumes_stay_on_the_terminal(tmp_path: Path) -> None:
    homes.small(tmp_path)
    with started(tmp_path, 100) as terminal:
        terminal.wait("1 broken")
        terminal.press("1")
        terminal.wait("What the repair will do")
        terminal.press("r")
        terminal.wait("Repair it")
        terminal.press("y")
        terminal.wait("Repaired")
        terminal.press("enter")
        assert terminal.ended()
        terminal.rest()
        text = terminal.text.replace("\n", "")
        assert "To undo it: lockstitch undo ~/.claude/projects/-home-ada-project/" in text
        assert RESUME in text


def test_sessions_of_all_programs_and_a_search(tmp_path: Path) -> None:
    homes.large(tmp_path)
    with started(tmp_path, 80) as terminal:
        terminal.wait("8 sessions . 2 broken")
        terminal.wait("warning: 1 tool call without a result . Codex")
        terminal.wait("broken: 1 turn a resume would drop . Claude Code")
        for program in ("pi", "Gemini CLI", "opencode", "goose"):
            assert f"· {program}" in terminal.text
        terminal.press("/", *"resume drop", "enter")
        terminal.wait(r"\[/resume drop\]")
        terminal.press("enter")
        terminal.wait(r"\[t\]urns dropped")
        terminal.press("t")
        terminal.wait("The other window asks")
        # as Ctrl-C does at a terminal of one's own
        os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.ended()
        assert terminal.process.returncode == 130


def test_a_terminal_that_cannot_move_its_cursor_gets_a_numbered_list(tmp_path: Path) -> None:
    broken = homes.small(tmp_path)
    env = environ(tmp_path, TERM="dumb")
    status, shown = at_terminal(keys=b"1\nd\ny\n", env=env)
    text = shown.decode().replace("\r\n", "\n")
    assert status == 0
    assert " 1 Fix the failing test" in text
    assert "broken: 1 tool call without a result" in text
    assert "Repair it? A backup is kept. [y]es [n]o [d]iff" in text
    assert "@@ new, after 2 @@" in text
    assert RESUME in text
    assert "\x1b" not in text
    assert b"[lockstitch]" in broken.read_bytes()


def test_who_declines_is_told_that_nothing_was_changed(tmp_path: Path) -> None:
    broken = homes.small(tmp_path)
    before = broken.read_bytes()
    for keys in (b"1\nn\n", b"q\n", b"99\n"):
        status, shown = at_terminal(keys=keys, env=environ(tmp_path, TERM="dumb"))
        assert status == 0
        assert b"Nothing was changed." in shown
    assert broken.read_bytes() == before


def test_a_home_without_sessions_is_told_where_they_were_looked_for(tmp_path: Path) -> None:
    status, shown = at_terminal(env=environ(tmp_path))
    assert status == 0
    assert b"No sessions were found" in shown
    assert b"~/.claude/projects" in shown
    assert b"~/.codex/sessions" in shown


def test_in_a_pipe_it_prints_help() -> None:
    done = inprocess.command()
    assert done.returncode == 0
    assert b"scan" in done.stdout
    assert b"repair" in done.stdout


def test_a_search_names_the_session_by_its_title(tmp_path: Path) -> None:
    homes.large(tmp_path)
    status, shown = at_terminal("search", "are you there", env=environ(tmp_path, TERM="dumb"))
    lines = shown.decode().replace("\r\n", "\n").splitlines()
    at = lines.index("Fix the failing test · Claude Code · /home/ada/project · 2 hours ago")
    assert f"{claude.SESSION}.jsonl:" in lines[at + 1]
    assert lines[at + 2] == "  message 2, user: Are you there?"
    assert status == 0
