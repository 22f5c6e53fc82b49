"""The demo really kills, the provider really refuses, and nothing is left behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lockstitch import stored
from lockstitch.demo import agent
from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME

ROOT = Path(__file__).parents[2]
ORPHAN = "`tool_use` ids were found without `tool_result` blocks immediately after"


def test_the_agent_of_the_demo_is_the_example() -> None:
    assert Path(agent.__file__).read_bytes() == (ROOT / "examples" / "agent.py").read_bytes()


def test_the_demo(process: Any, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = process("demo", folder)
    shown = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert len(shown.splitlines()) < 30
    assert re.search(r"kill -9 \d+, while `deploy` is running", shown)
    assert "the provider answers 400:\n\n    messages.1: " + ORPHAN in shown
    assert "    read notes.txt  Deploy on Fridays only.\n" in shown
    assert "    run the tests   12 tests passed [exit status 0]\n" in shown
    assert f"    deploy          {UNKNOWN_OUTCOME}\n" in shown
    assert "The provider answers 200" in shown
    commands = re.findall(r"^    lockstitch (\w+) (sqlite:\S+)$", shown, re.MULTILINE)
    assert [command for command, _ in commands] == ["show", "checkpoints"]
    for command in commands:
        assert process(*command).returncode == 0
    assert _alive(folder) == []


def test_the_demo_for_programs(process: Any, tmp_path: Path) -> None:
    report = json.loads(process("demo", tmp_path, "--json").stdout)
    plain, session = report["plain"], report["session"]
    assert (plain["status"], session["status"]) == (400, 200)
    assert plain["killed"] != session["killed"]
    assert ORPHAN in plain["error"]
    assert len(session["answers"]) == 3
    journal = stored.read(report["store"])
    calls = list(journal.view.calls.values())
    assert [bool(call.outcome and call.outcome.is_real) for call in calls] == [True, True, False]
    bodies = [path.read_bytes() for path in sorted((tmp_path / "requests").iterdir())]
    assert len(bodies) == 4
    assert json.loads(bodies[3])["messages"][-1]["role"] == "user"


def test_a_demo_that_is_interrupted_leaves_nothing_running(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lockstitch", "demo", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
        end = time.monotonic() + 600
        while not (tmp_path / "plain" / "deploy.pid").exists() and time.monotonic() < end:
            time.sleep(0.02)
        demo.send_signal(signal.SIGINT)
        _, said = demo.communicate(timeout=600)
    assert demo.returncode == 130
    assert b"Traceback" not in said
    while _alive(tmp_path) and time.monotonic() < end + 600:
        time.sleep(0.02)  # what was killed may take a moment to be gone
    assert _alive(tmp_path) == []


def test_a_folder_in_use_is_left_alone(process: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    done = process("demo", tmp_path)
    assert done.returncode == 2
    assert b"is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_without_the_extra_it_says_how_to_get_it() -> None:
    code = (
        "import sys; sys.modules['aiohttp'] = None; from lockstitch.cli import run; run(['demo'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"pip install 'lockstitch[provider]'" in done.stderr


def _alive(folder: Path) -> list[int]:
    """The processes that work in a folder or below it."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            where = (entry / "cwd").readlink()
        except OSError:
            continue
        if where.is_relative_to(folder):
            found.append(int(entry.name))
    return found
