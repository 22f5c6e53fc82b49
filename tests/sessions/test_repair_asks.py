"""``repair`` and the person who is asked: session by session, in words that can be acted on."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lockstitch.cli.render import _VERBS, describe_steps, in_future_tense
from lockstitch.cli.repair import undo_places
from lockstitch.cli.terminal import RepairPrompt
from lockstitch.repair.draft import Change
from tests.at_terminal import at_terminal
from tests.sessions import claude, homes
from tests.sessions.command import run

ACTIONS = ("adjusted", "brought back", "inserted", "linked", "moved", "removed", "rewritten")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_text(claude.broken(), encoding="utf-8")
    (tmp_path / "healthy.jsonl").write_text(claude.healthy(), encoding="utf-8")
    return tmp_path


def repaired(folder: Path) -> str:
    """The names of the sessions that are no longer what they were."""
    names = (path.stem for path in sorted(folder.glob("?.jsonl")))
    texts = {name: (folder / f"{name}.jsonl").read_text("utf-8") for name in names}
    return "".join(name for name, text in texts.items() if text != claude.broken())


@pytest.mark.parametrize(
    ("keys", "changed", "status", "asked"),
    [
        (b"y\nn\ny\n", "ac", 1, 3),
        (b"n\na\n", "bc", 1, 2),
        (b"y\nq\n", "a", 1, 2),
        (b"q\n", "", 1, 1),
        (b"a\n", "abc", 0, 1),
        (b"what?\nd\ny\nn\nno\n", "a", 1, 5),
    ],
)
def test_each_session_is_asked_about(
    folder: Path, keys: bytes, changed: str, status: int, asked: int
) -> None:
    done, shown = at_terminal("repair", folder, keys=keys)
    text = shown.decode().replace("\r\n", "\n")
    assert (repaired(folder), done) == (changed, status), text
    assert text.count("[y]es [n]o [a]ll [d]iff [q]uit") == asked
    assert "Repair this session (1 of 3)?" in text
    assert ("Nothing was changed." in text) == (not changed)
    assert ("@@ new, after 2 @@" in text) == (b"d" in keys.split())


def test_a_plan_is_in_the_future_and_its_outcome_in_the_past(folder: Path) -> None:
    planned = run("repair", folder / "a.jsonl").stderr
    assert "LS101 will insert: open call toolu_01 will be answered" in planned
    assert " was " not in planned.partition("Nothing was changed.")[0]
    done = run("repair", "--yes", folder / "a.jsonl").stderr
    assert "LS101 inserted: open call toolu_01 was answered" in done
    assert " will " not in done


@pytest.mark.parametrize(
    ("past", "future"),
    [
        (
            "the result of call a was moved to its call",
            "the result of call a will be moved to its call",
        ),
        ("a bare text became a user message", "a bare text will become a user message"),
        ("a result got the id of its call was_1", "a result will get the id of its call was_1"),
        ("the parent of the record is now line 5", "the parent of the record will be line 5"),
    ],
)
def test_what_was_done_is_told_as_what_will_be(past: str, future: str) -> None:
    assert in_future_tense(past) == future


def test_every_action_has_its_verb() -> None:
    assert set(ACTIONS) <= set(_VERBS)
    made = [Change(code="LS101", action="brought back", place="1", note="1 turn")] * 2
    assert describe_steps(made) == ["bring back: 1 turn (2 times)"]


def test_the_hint_to_undo_can_be_pasted(tmp_path: Path) -> None:
    homes.large(tmp_path)
    env = {**os.environ, "HOME": str(tmp_path)}
    files = [path for path in tmp_path.rglob("*.jsonl") if ".lockstitch" not in path.parts]
    before = {path: path.read_bytes() for path in files}
    done = run("repair", "--all", "--yes", env=env)
    assert done.returncode == 0, done.stderr
    assert "Repaired 4 sessions" in done.stderr
    hint = next(line for line in done.stderr.splitlines() if line.startswith("To undo all 4: "))
    words = shlex.split(hint.partition(": ")[2].replace("~/", f"{tmp_path}/"))
    assert words[:2] == ["lockstitch", "undo"]
    again = run(*words[1:], "--yes", env=env)
    assert again.returncode == 0, again.stderr
    assert {path: path.read_bytes() for path in files} == before
    assert run("scan", env=env).returncode == 1


def test_the_last_used_session_is_repaired_and_the_line_that_resumes_is_told(
    tmp_path: Path,
) -> None:
    broken = homes.small(tmp_path)
    env = {**os.environ, "HOME": str(tmp_path)}
    done = run("repair", "--last", "--yes", env=env)
    assert done.returncode == 0
    assert f"To resume it: cd /home/ada/project && claude --resume {claude.SESSION}" in done.stderr
    where = f"~/{homes.PROJECT}/{broken.name}"
    assert f"To undo it: lockstitch undo {where}" in done.stderr
    assert run("check", "--last", env=env).returncode == 0
    assert run("show", "--last", env=env).returncode == 0
    for words in (["repair", "--last", broken], ["repair", "--all", broken]):
        assert run(*words, env=env).returncode == 2


def test_a_healthy_session_is_said_to_be_so(folder: Path) -> None:
    done = run("repair", folder / "healthy.jsonl")
    assert (done.returncode, done.stderr) == (0, "All clean. Nothing was changed.\n")


def test_an_interrupt_says_what_was_done(folder: Path) -> None:
    """A person repairs one session and breaks off at the next one's question."""
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from lockstitch.cli import repair, run, terminal\n"
        "terminal.can_ask = lambda: True\n"
        "answers = iter('y')\n"
        "def asked(question):\n"
        "    answer = next(answers, None)\n"
        "    if answer is None:\n"
        "        print('waiting', flush=True)\n"
        "        while True: signal.pause()\n"
        "    return answer\n"
        "terminal.ask = asked\n"
        "sys.exit(run(['repair', sys.argv[1]]))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.1)  # it says so right before it waits
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert repaired(folder) == "a"
    assert "Repaired 1 session" in said
    assert "To undo it: lockstitch undo " in said
    assert "3 sessions not yet looked at." in said
    assert "interrupted. 1 session had been repaired before." in said
    assert "Traceback" not in said


def test_what_is_quarantined_is_counted_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(claude.healthy().encode() + b"\0" * 512 + b"\n")
    done = run("repair", "--yes", "--json", path)
    [report] = json.loads(done.stdout)["sessions"]
    assert [one["size"] for one in report["quarantine"]] == [512]


def test_places_to_undo_are_as_few_as_possible() -> None:
    known = ["/home/ada/.claude/projects", "/home/ada/.codex/sessions"]
    files = [f"{known[0]}/p/{n}.jsonl" for n in range(5)]
    assert undo_places(files[:1], ["4ee0"], known) == files[:1]
    assert undo_places(files, [known[0]], known) == [known[0]]
    assert undo_places(files, files, known) == [known[0]]
    assert undo_places([*files, f"{known[1]}/x.jsonl"], [], known) == known
    assert undo_places(["/srv/a.jsonl"] * 5, ["/srv/a.jsonl"], known) == ["/srv/a.jsonl"]


def test_nobody_to_ask_is_a_no() -> None:
    asking = RepairPrompt(3)
    assert not asking.wants(lambda: None)
