"""Exit status 0, 1, 2 or 130, whatever happens, and never a traceback."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lockstitch import cli
from lockstitch.sources import lists

LOCKSTITCH = [sys.executable, "-m", "lockstitch"]
DEEP = b"[" * 100_000 + b"]" * 100_000


def test_check(process: Any, saved: Any, clean: Any, broken: Any, tmp_path: Path) -> None:
    good, bad = saved(clean, "good.json"), saved(broken, "bad.json")
    assert process("check", good).returncode == 0
    assert process("check", bad).returncode == 1
    assert process("check", good, bad).returncode == 1
    assert process("check", bad, tmp_path / "missing.json", good).returncode == 2


def test_heal(process: Any, saved: Any, clean: Any, broken: Any) -> None:
    assert process("heal", saved(clean)).returncode == 0
    assert process("heal", saved(broken)).returncode == 0


@pytest.mark.parametrize("command", ["check", "heal"])
@pytest.mark.parametrize(
    "data",
    [b"", b"\x00\x01\x02", b'[{"role": "us', DEEP, b'{"role": "user"}\n{"role', b"{}", b"nonsense"],
)
def test_bad_input_on_stdin(process: Any, command: str, data: bytes) -> None:
    done = process(command, "-", stdin=data)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"lockstitch: stdin: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("command", ["check", "heal"])
def test_a_folder(process: Any, tmp_path: Path, command: str) -> None:
    done = process(command, tmp_path)
    assert done.returncode == 2
    assert b"is a folder" in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["check", "--nonsense"],
        ["check", "--dialect"],
        ["check", "--output-format", "yaml"],
        ["check", "--json", "--output-format", "sarif"],
        ["check", "--dialect", "esperanto"],
        ["heal", "--dialect", "esperanto"],
        ["heal", "a.json", "b.json"],
        ["heal", "--diff", "--json"],
        ["explain", "LS000"],
    ],
)
def test_wrong_usage(process: Any, words: list[str]) -> None:
    done = process(*words, stdin=b"[]")
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert done.stderr


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["check", "-h"], ["explain"]])
def test_answers(process: Any, words: list[str]) -> None:
    done = process(*words)
    assert done.returncode == 0
    assert done.stdout


def test_ctrl_c(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'exec "$@" < "$0"', str(fifo), *LOCKSTITCH, "check", "-"],
        stderr=subprocess.PIPE,
        # a shell that runs the tests in the background has them ignore the signal
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    with fifo.open("wb") as pipe:
        pipe.write(b" ")
        pipe.flush()
        while fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4) != b"\0" * 4:
            time.sleep(0.01)
        time.sleep(0.1)  # taken, and about to wait for more
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    assert process.returncode == 130
    assert said == b"lockstitch: interrupted.\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_goes_away(saved: Any, unbuffered: str) -> None:
    many = [{"role": "user", "content": "x" * 1000}] * 1000
    process = subprocess.Popen(
        [*LOCKSTITCH, "heal", str(saved(many)), "--dialect", "openai-chat"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout
    process.stdout.read(1)
    process.stdout.close()
    process.stdout = None
    _, said = process.communicate(timeout=600)
    assert (process.returncode, said) == (2, b"")


def test_a_slow_reader_gets_everything(saved: Any, process: Any) -> None:
    many = saved([{"role": "user", "content": "x" * 1000}] * 1000)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = process("heal", many, "--dialect", "openai-chat", env=environment)
    assert done.stdout == many.read_bytes()


def test_a_full_disk(process: Any, saved: Any, clean: Any) -> None:
    with Path("/dev/full").open("wb") as full:
        done = process(
            "heal", saved(clean), capture_output=False, stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 2
    assert done.stderr == b"lockstitch: No space left on device\n"


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&-", "1>&- 2>&- 0<&-"])
def test_closed_streams(saved: Any, clean: Any, closed: str) -> None:
    command = f'exec "$0" -m lockstitch heal "$1" {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable, str(saved(clean))],
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == (2 if "1>&-" in closed else 0)
    assert b"Traceback" not in done.stderr


def test_a_bug_is_named_without_message_content(
    saved: Any, clean: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("the user's secret")

    monkeypatch.setattr(lists, "check_list", fail)
    assert cli.run(["check", str(saved(clean))]) == 2
    said = capsys.readouterr().err
    assert "internal error: KeyError at " in said
    assert "secret" not in said


def test_a_machine_with_little_memory(saved: Any) -> None:
    path = saved([{"role": "user", "content": "x" * 1_000_000}] * 90)
    limited = 'ulimit -v 300000 && exec "$0" -m lockstitch heal --dialect anthropic "$1"'
    done = subprocess.run(
        ["/bin/sh", "-c", limited, sys.executable, str(path)],
        capture_output=True,
        check=False,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.endswith(b"needs more memory than this machine has left\n")


def test_a_large_file(process: Any, tmp_path: Path) -> None:
    turn = [{"role": "user", "content": "x" * 500_000}, {"role": "assistant", "content": "y"}]
    path = tmp_path / "large.json"
    path.write_text(json.dumps(turn * 120))
    assert path.stat().st_size > 60_000_000
    done = process("heal", path, "--dialect", "openai-chat")
    assert done.returncode == 0
    assert done.stdout == path.read_bytes()


def test_ctrl_c_says_what_has_been_done(tmp_path: Path, broken: Any) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps(broken))
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*LOCKSTITCH, "repair", "--color=never", str(tmp_path)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    os.close(follower)
    seen = b""
    for number, keys in ((1, b"y\n"), (2, b"")):
        while seen.count(b"[y") < number:
            seen += os.read(leader, 65536)
        os.write(leader, keys)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # how a terminal ends
        while piece := os.read(leader, 65536):
            seen += piece
    os.close(leader)
    assert process.wait(timeout=600) == 130
    assert b"\nlockstitch: interrupted. 1 session had been repaired before.\r\n" in seen
    assert json.loads((tmp_path / "b.json").read_bytes()) == broken
