"""What a person is told to type next is right, and can be pasted as it is."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

import lockstitch
from tests.cli.journals import damage, said, write
from tests.sessions import claude, homes
from tests.sessions.command import run

BODY = {
    "model": "claude-sonnet-4-5",
    "messages": [
        {"role": "user", "content": "Go."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}],
        },
        {"role": "user", "content": "And?"},
    ],
}


def pasted(done: subprocess.CompletedProcess[str], word: str) -> list[str]:
    """The words behind ``lockstitch`` in the line that begins with a word."""
    [line] = [line for line in done.stderr.splitlines() if line.startswith(word)]
    return shlex.split(line.partition("lockstitch ")[2])


@pytest.mark.parametrize("words", [(), ("--dialect", "anthropic")])
def test_a_session_is_not_healed_as_a_list(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(claude.broken(), encoding="utf-8")
    done = run("heal", path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "it is a Claude Code session, not a message list" in done.stderr
    assert "`lockstitch repair`" in done.stderr


def test_requests_on_lines_are_repaired_and_not_healed(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(BODY) + "\n" for _ in range(2)), encoding="utf-8")
    words = pasted(run("check", path), "To repair it:")
    assert words == ["repair", str(path)]
    assert run(*words, "--yes").returncode == 0
    assert run("check", path).returncode == 0


def test_damage_in_one_store_does_not_end_a_search(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    write(url, "broken", *(said(f"hello {number}") for number in range(6)))
    damage(url, "broken", 3)
    (tmp_path / "session.jsonl").write_text(claude.healthy(), encoding="utf-8")
    word = "built"
    alone = run("search", word, tmp_path / "session.jsonl")
    assert alone.returncode == 0
    done = run("search", word, tmp_path)
    assert done.returncode == 2
    assert done.stdout == alone.stdout != ""
    assert "agent.db" in done.stderr


def test_backups_are_looked_at_where_they_were_listed(tmp_path: Path) -> None:
    path = tmp_path / "my session.jsonl"
    path.write_text(claude.broken(), encoding="utf-8")
    assert run("repair", path, "--yes").returncode == 0
    assert run("undo", path, "--yes").returncode == 0
    listed = run("backups", path)
    look = pasted(listed, "To look at one:")
    shown = run(*look)
    assert shown.returncode == 0
    out = tmp_path / "out.jsonl"
    write_out = [*pasted(shown, "To write it to a file:")[:-1], out]
    assert run(*write_out).returncode == 0
    # the newest is what the undo has kept: the repaired session
    assert run("check", out).returncode == 0
    assert run(*pasted(shown, "To go back to it:"), "--yes").returncode == 0
    assert path.read_bytes() == out.read_bytes()


def test_a_copy_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(claude.broken(), encoding="utf-8")
    gone = tmp_path / "gone" / "copy.jsonl"
    done = run("repair", path, "-o", gone)
    assert done.returncode == 2
    assert f"-o {gone} cannot be written: " in done.stderr
    other = homes.small(tmp_path)
    done = run("repair", path, other, "-o", tmp_path / "copy.jsonl")
    assert (done.returncode, (tmp_path / "copy.jsonl").exists()) == (2, False)
    assert "name one target" in done.stderr


def test_a_store_that_is_not_there_yet_is_the_one_that_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    with lockstitch.open(url) as store, store.session("one") as session:
        session.say("Hello.")
    done = run("migrate", tmp_path / "agent.db", tmp_path / "new.db")
    assert done.returncode == 2
    assert "new.db: it does not exist yet, or is not a store" in done.stderr
