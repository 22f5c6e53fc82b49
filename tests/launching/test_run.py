"""``lockstitch run`` with small programs of ours: terminal, signals, status, and who dies when."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstitch import stored
from lockstitch.files import os_files
from lockstitch.launch.processes import RunningProxy
from lockstitch.provider import Script
from lockstitch.provider.server import running
from lockstitch.provider.service import RequestEntry, Service, choose_rules
from tests.inprocess import LOCKSTITCH
from tests.watching.made import Chat

from .at_keys import PATIENCE, AtKeys

RUN = (*LOCKSTITCH, "run")
PROGRAM = """
import os, signal, sys, time
def told(number, _):
    columns, rows = os.get_terminal_size()
    os.write(1, f"signal {signal.Signals(number).name} {columns} {rows}\\n".encode())
for number in (signal.SIGINT, signal.SIGWINCH, signal.SIGQUIT):
    signal.signal(number, told)
signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
url = os.environ.get("ANTHROPIC_BASE_URL")
os.write(1, f"{os.getpid()} {sys.stdin.isatty()} {url} ready\\n".encode())
while True:
    line = sys.stdin.readline()
    print("read", line.strip(), flush=True)
    if line.startswith("stop"):
        os.kill(os.getpid(), signal.SIGSTOP)
        print("went on", flush=True)
    elif line.startswith("end"):
        sys.exit(3)
"""
ARGUMENTS = "import json, sys; print(json.dumps(sys.argv[1:]))"
ASKING = """
import os, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
call = {"type": "tool_use", "id": "toolu_1", "name": "a", "input": {}}
body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [
    {"role": "user", "content": "a"}, {"role": "assistant", "content": [call]},
    {"role": "user", "content": "b"}]}
import json
sent = urllib.request.Request(url, json.dumps(body).encode(), {
    "content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": "none"})
print("answered", urllib.request.urlopen(sent).status, flush=True)
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a person with an empty home."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "NO_COLOR": "1"}


def ran(
    root: Path, environ: dict[str, str], *words: str, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, *RUN, *words],
        cwd=root / "work",
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(("ending", "status"), [("exit 7", 7), ("kill -9 $$", 137), ("true", 0)])
def test_the_exit_status_is_that_of_the_command(
    ending: str, status: int, tmp_path: Path, environ: dict[str, str]
) -> None:
    done = ran(tmp_path, environ, "--no-proxy", "--", "sh", "-c", ending)
    assert done.returncode == status


def test_every_word_reaches_the_command(tmp_path: Path, environ: dict[str, str]) -> None:
    words = ["--json", "-h", "--", "--yes", "", "a b", "$HOME", "-q", "--no-proxy"]
    done = ran(tmp_path, environ, "--", sys.executable, "-c", ARGUMENTS, *words)
    assert json.loads(done.stdout) == words


def test_a_command_that_is_not_there_is_said(tmp_path: Path, environ: dict[str, str]) -> None:
    for words in (["--", "no-such-command"], ["--no-proxy", "--", "no-such-command"], []):
        done = ran(tmp_path, environ, *words)
        assert done.returncode == 2
        assert done.stderr.startswith("lockstitch:") or "lockstitch:" in done.stderr
        assert "Traceback" not in done.stderr


def test_an_unknown_program_finds_the_proxy_in_its_environment(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    shown = 'echo "$ANTHROPIC_BASE_URL $OPENAI_BASE_URL"'
    done = ran(tmp_path, environ, "--", "sh", "-c", shown)
    assert "not a program that Lockstitch knows" in done.stderr
    one, other = done.stdout.split()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", one)
    assert other == f"{one}/v1"
    done = ran(tmp_path, environ, "--no-proxy", "--", "sh", "-c", shown)
    assert done.stdout.split() == []


def test_a_request_is_healed_on_its_way(tmp_path: Path, environ: dict[str, str]) -> None:
    log: list[RequestEntry] = []
    with running(Service(choose_rules([]), Script([]), clock=time.time, log=log.append)) as url:
        words = ["--upstream", url, "--", sys.executable, "-c", ASKING]
        done = ran(tmp_path, environ, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "answered 200\n"
    assert [entry.outcome for entry in log] == ["accepted"]
    assert "Healed 1 request on the way: LS101=1" in done.stderr


def test_what_is_said_is_kept_when_asked(tmp_path: Path, environ: dict[str, str]) -> None:
    with running(Service(choose_rules([]), Script([]), clock=time.time, log=lambda _: None)) as url:
        store = ["--record", "sqlite:///kept.db"]
        done = ran(tmp_path, environ, "--upstream", url, *store, "--", sys.executable, "-c", ASKING)
    assert done.returncode == 0, done.stderr
    (report,) = stored.check(str(tmp_path / "work" / "kept.db"))
    assert report.messages


def test_keys_and_the_window_are_the_commands(tmp_path: Path, environ: dict[str, str]) -> None:
    words = [*RUN, "--", sys.executable, "-c", PROGRAM]
    with AtKeys(words, tmp_path / "work", environ) as terminal:
        terminal.wait(b"ready")
        assert b"True http://127.0.0.1:" in terminal.read()
        terminal.type(b"\x03")
        terminal.wait(b"signal SIGINT 80 24")
        terminal.type(b"\x1c")
        terminal.wait(b"signal SIGQUIT")
        terminal.size(40, 100)
        terminal.wait(b"signal SIGWINCH 100 40")
        terminal.type(b"end\n")
        assert terminal.status() == 3


def test_a_command_that_stops_gives_the_terminal_back(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    words = [*RUN, "--no-proxy", "--", sys.executable, "-c", PROGRAM]
    with AtKeys(words, tmp_path / "work", environ) as terminal:
        terminal.wait(b"ready")
        terminal.type(b"stop\n")
        wait_for(lambda: is_stopped(terminal.process.pid))
        os.kill(terminal.process.pid, signal.SIGCONT)
        terminal.wait(b"went on")
        terminal.type(b"end\n")
        assert terminal.status() == 3


def test_a_command_that_dies_of_ctrl_c_is_told_by_its_status(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    words = [*RUN, "--", "sh", "-c", "echo ready; exec sleep 600"]
    with AtKeys(words, tmp_path / "work", environ) as terminal:
        terminal.wait(b"ready")
        terminal.type(b"\x03")
        assert terminal.status() == 130
        assert b"Traceback" not in terminal.shown


def test_a_termination_is_passed_on(tmp_path: Path, environ: dict[str, str]) -> None:
    words = [*RUN, "--", sys.executable, "-c", PROGRAM]
    with AtKeys(words, tmp_path / "work", environ) as terminal:
        terminal.wait(b"ready")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.status() == 5


def is_stopped(pid: int) -> bool:
    """Whether a child of this process has been stopped."""
    found, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
    return found == pid and os.WIFSTOPPED(status)


def wait_for(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_listening(address: str) -> bool:
    """Whether anybody answers there."""
    import socket

    host, _, port = address.removeprefix("http://").partition(":")
    with socket.socket() as one:
        return one.connect_ex((host, int(port))) == 0


def test_everything_ends_with_a_run_that_is_killed(tmp_path: Path, environ: dict[str, str]) -> None:
    words = [*RUN, "--", sys.executable, "-c", PROGRAM]
    with AtKeys(words, tmp_path / "work", environ) as terminal:
        terminal.wait(b"ready")
        found = re.search(rb"(\d+) True (http://[0-9.]+:\d+) ready", terminal.read())
        assert found
        pid, url = int(found[1]), found[2].decode()
        since = os_files.start_moment(pid)
        assert since
        assert is_listening(url)
        os.kill(terminal.process.pid, signal.SIGKILL)
        wait_for(lambda: os_files.start_moment(pid) != since)
        wait_for(lambda: not is_listening(url))


@pytest.fixture
def broken(tmp_path: Path) -> Chat:
    """A session of this folder that ends with an open call."""
    name = re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath(tmp_path / "work"))
    chat = Chat(tmp_path / "home" / ".claude" / "projects" / name / "one.jsonl")
    chat.turns(2)
    chat.append(chat.said("user", "go on"))
    chat.call()
    program = tmp_path / "claude"
    program.write_text('#!/bin/sh\necho "started $*"\nexit 4\n', "utf-8")
    program.chmod(0o755)
    return chat


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_person_is_asked_before_a_session_is_repaired(
    answer: str, tmp_path: Path, environ: dict[str, str], broken: Chat
) -> None:
    before = broken.path.read_bytes()
    words = [*RUN, "--", str(tmp_path / "claude"), "--continue"]
    with AtKeys(words, tmp_path / "work", environ) as terminal:
        terminal.wait(b"[y/N]")
        assert b"LS101" in terminal.read()
        assert broken.path.read_bytes() == before
        terminal.type(f"{answer}\n".encode())
        assert terminal.status() == 4
    assert b"started --continue" in terminal.shown
    assert (broken.path.read_bytes() != before) == (answer == "y")


def test_without_a_person_nothing_is_repaired_unless_asked(
    tmp_path: Path, environ: dict[str, str], broken: Chat
) -> None:
    before = broken.path.read_bytes()
    words = ["--", str(tmp_path / "claude"), "-c"]
    done = ran(tmp_path, environ, *words)
    assert (done.returncode, done.stdout) == (4, "started -c\n")
    assert "--yes repairs it" in done.stderr
    assert broken.path.read_bytes() == before
    done = ran(tmp_path, environ, "--yes", *words)
    assert (done.returncode, done.stdout) == (4, "started -c\n")
    assert "Repaired." in done.stderr
    assert "will be answered with a neutral result" in done.stderr  # a plan is none of the past
    (backup,) = broken.path.parent.glob(".lockstitch/*.bak")
    assert backup.read_bytes() == before
    undo = done.stderr.partition("To undo it: lockstitch ")[2].splitlines()[0]
    repaired = broken.path.read_bytes()
    pasted = ["sh", "-c", f"{shlex.join(LOCKSTITCH)} {undo} --yes"]
    again = subprocess.run(pasted, check=False, env=environ)
    assert (again.returncode, broken.path.read_bytes()) == (0, before)
    broken.path.write_bytes(repaired)
    done = ran(tmp_path, environ, "--yes", *words)
    assert done.stderr == "The session is healthy that Claude Code can resume here.\n"


def test_a_disk_that_is_full_does_not_keep_the_program_from_its_session(
    tmp_path: Path, environ: dict[str, str], broken: Chat
) -> None:
    before = broken.path.read_bytes()
    words = ("--yes", "--no-proxy", "--", str(tmp_path / "claude"), "-c")
    limited = ("sh", "-c", 'ulimit -f 1; exec "$@"', "sh")  # no file of more than 512 bytes
    # nor of a compiled module
    done = ran(tmp_path, {**environ, "PYTHONDONTWRITEBYTECODE": "1"}, *words, before=limited)
    assert (done.returncode, done.stdout) == (4, "started -c\n")
    assert f"{broken.path}: not repaired: File too large" in done.stderr
    assert broken.path.read_bytes() == before


def test_a_session_that_is_open_elsewhere_is_left_alone(
    tmp_path: Path, environ: dict[str, str], broken: Chat
) -> None:
    before = broken.path.read_bytes()
    record = tmp_path / "home" / ".claude" / "sessions" / f"{os.getpid()}.json"
    record.parent.mkdir()
    own = {"sessionId": "one", "procStart": os_files.start_moment(os.getpid())}
    record.write_text(json.dumps(own), "utf-8")
    done = ran(tmp_path, environ, "--yes", "--no-proxy", "--", str(tmp_path / "claude"), "-c")
    assert done.returncode == 4
    assert f"process {os.getpid()}" in done.stderr
    assert broken.path.read_bytes() == before


def test_what_a_library_writes_beside_the_log_ends_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(
        b"Error handling request from 127.0.0.1\nTraceback (most recent call last):\n"
        b'{"repaired":{"LS101":1},"error":"","status":200}\n\xff\n'
    )
    with log.open("rb") as file, subprocess.Popen([sys.executable, "-c", ""]) as process:
        heard = RunningProxy(process, "http://127.0.0.1:1", file).activity()
    assert (heard.requests, dict(heard.repaired), heard.errors) == (1, {"LS101": 1}, [])


def test_reading_the_log_does_not_move_where_the_proxy_writes(tmp_path: Path) -> None:
    lines = b'{"repaired":{"LS101":1}}\n{"error":"the provider is gone"}\n'
    log = tmp_path / "log"
    log.write_bytes(lines)
    with log.open("rb") as file, subprocess.Popen(["true"]) as process:  # noqa: S607 - any will do
        os.lseek(file.fileno(), 7, os.SEEK_SET)
        heard = RunningProxy(process, "http://127.0.0.1:1", file).activity()
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 7
    assert (heard.requests, heard.repaired["LS101"]) == (1, 1)
    assert heard.errors == ["the provider is gone"]
