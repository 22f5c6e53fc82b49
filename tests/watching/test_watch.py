"""``lockstitch watch`` at work: real files that grow, real programs that die."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from lockstitch import sessions
from lockstitch.files import os_files
from lockstitch.watch import changes as places
from lockstitch.watch.changes import Changes
from tests.formats.databases import CASES
from tests.inprocess import command

from .idle import bytes_read
from .made import Chat
from .process import PATIENCE, Watch

SOON = ("--idle", "0.5")


def chat_in(home: Path, name: str, project: str = "-project") -> Chat:
    """A session that was last used long ago."""
    chat = Chat(home / ".claude" / "projects" / project / f"{name}.jsonl")
    chat.turns(3)
    chat.age()
    return chat


@contextmanager
def program(home: Path, session: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that says of itself, as Claude Code does, that it has a session open."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        record = home / ".claude" / "sessions" / f"{process.pid}.json"
        record.parent.mkdir(parents=True, exist_ok=True)
        own = {"sessionId": session, "startedAt": time.time() * 1000}
        own["procStart"] = os_files.start_moment(process.pid) or ""
        record.write_text(json.dumps(own), "utf-8")
        try:
            yield process
        finally:
            process.kill()


def left_open(chat: Chat) -> None:
    """Append a prompt and a call to a session."""
    chat.append(chat.said("user", "go on"))
    chat.call()


def test_an_open_call_is_told_when_its_program_is_gone(tmp_path: Path) -> None:
    alive, dead = chat_in(tmp_path, "alive"), chat_in(tmp_path, "dead")
    with program(tmp_path, "alive") as process, Watch(tmp_path, *SOON) as watch:
        assert watch.event("started")["sessions"] == 2
        left_open(alive)
        left_open(dead)
        event = watch.event("broken")
        assert event["session"]["target"] == str(dead.path)
        assert event["session"]["findings"][0]["code"] == "LS101"
        assert event["command"] == f"lockstitch repair {dead.path}"
        process.kill()
        process.wait()
        assert watch.event("broken", 2)["session"]["target"] == str(alive.path)
        assert len([one for one in watch.events if one["event"] == "broken"]) == 2


def test_a_session_is_repaired_at_rest_and_told_once(tmp_path: Path) -> None:
    alive, dead = chat_in(tmp_path, "alive"), chat_in(tmp_path, "dead")
    with program(tmp_path, "alive"), Watch(tmp_path, *SOON, "--repair") as watch:
        watch.event("started")
        left_open(alive)
        left_open(dead)
        held = alive.path.read_bytes()
        broken = dead.path.read_bytes()
        event = watch.event("repaired")
        assert event["session"]["target"] == str(dead.path)
        assert Path(event["backup"]).read_bytes() == broken
        (source,) = sessions.sources(str(dead.path))
        assert sessions.check(source).status == "ok"
        assert alive.path.read_bytes() == held
        # Another one, so that there was time to tell the first one twice.
        left_open(chat_in(tmp_path, "third"))
        watch.event("repaired", 2)
        told = [one["session"]["target"] for one in watch.events if one["event"] == "repaired"]
        assert len(told) == len(set(told))
    undone = command("undo", dead.path, "--yes")
    assert undone.returncode == 0, undone.stderr
    assert dead.path.read_bytes() == broken


def test_what_stays_wrong_is_told_while_the_program_lives(tmp_path: Path) -> None:
    chat = chat_in(tmp_path, "alive")
    with program(tmp_path, "alive"), Watch(tmp_path, "--idle", "600") as watch:
        watch.event("started")
        chat.append('{"type":"user","uuid":"torn')
        chat.append("\n")
        chat.turns(2)
        event = watch.event("broken")
        assert {found["code"] for found in event["session"]["findings"]} >= {"LS601"}


def test_a_session_that_goes_well_again_is_told_so(tmp_path: Path) -> None:
    chat = chat_in(tmp_path, "dead")
    whole = chat.path.read_bytes()
    with Watch(tmp_path, *SOON) as watch:
        watch.event("started")
        left_open(chat)
        watch.event("broken")
        chat.path.write_bytes(whole)
        assert watch.event("healthy")["session"]["status"] == "ok"


def test_the_command_gets_the_event_and_no_shell(tmp_path: Path) -> None:
    chat = chat_in(tmp_path, "a $(touch made) `touch made` ;touch made; 'b", "-it's")
    script = tmp_path / "teller.py"
    script.write_text(
        "import json, os, sys\n"
        "told = {k: v for k, v in os.environ.items() if k.startswith('LOCKSTITCH')}\n"
        "with open('told.part', 'w') as file:\n"
        "    json.dump([sys.argv[1:], told, json.load(sys.stdin)], file)\n"
        "os.rename('told.part', 'told')\n",
        "utf-8",
    )
    told = tmp_path / "told"
    line = f"{sys.executable} teller.py 'two words'"
    environ = {"PWD": str(tmp_path)}
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        watch = Watch(tmp_path, *SOON, "--exec", line, environ=environ)
    finally:
        os.chdir(before)
    with watch:
        watch.event("started")
        left_open(chat)
        watch.event("broken")
        end = time.monotonic() + PATIENCE
        while not told.exists() and time.monotonic() < end:
            time.sleep(0.05)
    words, variables, document = json.loads(told.read_text("utf-8"))
    assert words == ["two words"]
    assert variables["LOCKSTITCH_EVENT"] == document["event"] == "broken"
    assert variables["LOCKSTITCH_TARGET"] == document["session"]["target"] == str(chat.path)
    assert variables["LOCKSTITCH_CODES"] == "LS101"
    assert not (tmp_path / "made").exists()


def test_a_notice_is_shown_on_the_desktop(tmp_path: Path) -> None:
    chat = chat_in(tmp_path, "dead")
    folder = tmp_path / "bin"
    folder.mkdir()
    shown = tmp_path / "shown"
    sender = folder / "notify-send"
    sender.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shown}.part\nmv {shown}.part {shown}\n')
    sender.chmod(0o755)
    environ = {"PATH": f"{folder}:{os.environ['PATH']}"}
    with Watch(tmp_path, *SOON, "--notify", environ=environ) as watch:
        watch.event("started")
        left_open(chat)
        end = time.monotonic() + PATIENCE
        while not shown.exists() and time.monotonic() < end:
            time.sleep(0.05)
    *_, title, text = shown.read_text("utf-8").splitlines()
    assert title == "claude-code: broken"
    assert str(chat.path) in text
    assert "LS101" in text


@pytest.mark.skipif(
    bool(shutil.which("notify-send") or shutil.which("osascript")), reason="there is a desktop"
)
def test_no_desktop_is_said_at_once(tmp_path: Path) -> None:
    ran = command("watch", tmp_path, "--notify")
    assert ran.returncode == 2
    assert b"notify-send" in ran.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it(number: int, status: int, tmp_path: Path) -> None:
    chat_in(tmp_path, "one")
    with Watch(tmp_path) as watch:
        watch.event("started")
        assert watch.end(number) == status
        assert b"Traceback" not in watch.said


@pytest.mark.parametrize("words", [["--exec", "no-such-command"], ["--exec", "'"], ["nowhere"]])
def test_what_cannot_be_done_is_said_at_once(words: list[str]) -> None:
    ran = command("watch", *words)
    assert ran.returncode == 2
    assert ran.stderr


def test_a_session_in_a_database_is_told_when_nobody_has_it_open(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.format == "opencode" and not case.healthy)
    path = tmp_path / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    made = tmp_path / "made.db"
    case.write(made)
    chat_in(tmp_path, "first")
    with Watch(tmp_path, *SOON) as watch:
        watch.event("started")
        with closing(sqlite3.connect(made)) as source, closing(sqlite3.connect(path)) as target:
            source.backup(target)
            # Told one after the other, while this process has the database open.
            for number in range(1, 5):
                other = chat_in(tmp_path, f"dead-{number}")
                left_open(other)
                assert watch.event("broken", number)["session"]["target"] == str(other.path)
        event = watch.event("broken", 5)
        assert event["session"]["target"] == str(path)
        assert event["command"].endswith(f"--session {event['session']['session']}")


def test_one_more_turn_of_a_large_session_is_cheap(tmp_path: Path) -> None:
    chat = Chat(tmp_path / ".claude/projects/-project/large.jsonl", words=400)
    chat.turns(2000)
    chat.age()
    size = chat.path.stat().st_size
    with Watch(tmp_path, *SOON) as watch:
        watch.event("started")
        pid = watch.process.pid
        start = bytes_read(pid)
        chat.turns(1)
        # Read as a whole once, since nothing is known of it yet.
        end = time.monotonic() + PATIENCE
        while bytes_read(pid) - start < size and time.monotonic() < end:
            time.sleep(0.05)
        before = bytes_read(pid)
        chat.turns(1)
        # The other one is looked at behind it.
        left_open(chat_in(tmp_path, "other"))
        watch.event("broken")
        assert bytes_read(pid) - before < size / 4


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
def test_a_file_whose_name_is_not_utf8_ends_no_watch(tmp_path: Path) -> None:
    chat = chat_in(tmp_path, "one")
    odd = Chat(chat.path.with_name(os.fsdecode(b"caf\xe9.jsonl")))
    with Watch(tmp_path, *SOON) as watch:
        watch.event("started")
        for _ in range(3):
            odd.turns(1)
            time.sleep(0.5)
        left_open(chat)
        assert Path(watch.event("broken")["session"]["target"]) == chat.path
        assert watch.end(signal.SIGTERM) == 0


def test_folders_that_come_up_later_are_watched(tmp_path: Path) -> None:
    known = places.known_places(tmp_path, {})
    with Changes(known) as changes:
        stale = [changes.is_stale]
        (tmp_path / ".claude" / "projects").mkdir(parents=True)
        stale.append(changes.is_stale)
    assert stale == [False, True]
    with Changes(known) as changes:
        chat = chat_in(tmp_path, "one")
        found: set[str] = set()
        end = time.monotonic() + PATIENCE
        while str(chat.path) not in found and time.monotonic() < end:
            found |= changes.wait(0.2) or set()
        assert found == {str(chat.path)}


MEANT = (
    ".claude/projects/-p/one.jsonl",
    ".claude/projects/-p/one/subagents/agent-1.jsonl",
    ".codex/sessions/2026/09/01/rollout-1.jsonl",
    ".local/share/opencode/opencode.db",
)
NOT_MEANT = (
    ".claude/projects/-p/.lockstitch/one.jsonl",
    ".claude/projects/-p/notes.txt",
    ".claude/history.jsonl",
    ".gemini/tmp/hash/logs.json",
    ".local/share/opencode/other.db",
)


def test_only_sessions_are_looked_at(tmp_path: Path) -> None:
    known = places.known_places(tmp_path, {})
    found = {
        path
        for path in (*MEANT, *NOT_MEANT)
        if any(place.holds(str(tmp_path / path)) for place in known)
    }
    assert found == {*MEANT}


def test_a_missing_extra_says_how_to_get_it(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['watchfiles'] = None\n"
        "from lockstitch.cli import run; sys.exit(run(['watch', sys.argv[1]]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, check=False, timeout=PATIENCE
    )
    assert ran.returncode == 2
    assert b"lockstitch[watch]" in ran.stderr
