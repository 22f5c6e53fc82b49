"""The example agent, run as a person runs it: answered, interrupted, resumed, refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lockstitch import stored
from lockstitch.errors import LockstitchError
from lockstitch.provider import Reply, Script
from lockstitch.provider import ScriptedCall as Call
from lockstitch.provider.server import running
from lockstitch.provider.service import Service, choose_rules

AGENT = Path(__file__).parents[2] / "examples" / "agent.py"


@contextmanager
def provider(*replies: Reply) -> Iterator[str]:
    with running(Service(choose_rules([]), Script(replies), clock=lambda: 1_700_000_000.5)) as url:
        yield url


def started(folder: Path, url: str) -> subprocess.Popen[str]:
    env = {**os.environ, "ANTHROPIC_BASE_URL": url, "NO_PROXY": "*", "no_proxy": "*"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, AGENT], cwd=folder, env=env, text=True, **pipes)


def talked(folder: Path, url: str, *prompts: str) -> str:
    with started(folder, url) as agent:
        said, failed = agent.communicate("".join(f"{prompt}\n" for prompt in prompts), timeout=600)
    assert (agent.returncode, failed) == (0, "")
    return said


def test_it_runs_tools_and_goes_on_when_started_again(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("remember the milk")
    calls = (Call("read", {"path": "notes.txt"}), Call("bash", {"command": "echo hi; exit 3"}))
    with provider(Reply("I look.", calls), Reply("Milk."), Reply("Still milk.")) as url:
        assert "Milk." in talked(tmp_path, url, "What is in the notes?")
        assert "Still milk." in talked(tmp_path, url, "Are you sure?")
    journal = stored.read(f"sqlite:///{tmp_path}/agent.db")
    assert journal.turns == 2
    [read, bash] = journal.view.calls.values()
    assert (_output(journal, read), _output(journal, bash)) == (
        "remember the milk",
        "hi\n[exit status 3]",
    )


def _output(journal: Any, call: Any) -> Any:
    return journal.value(call.outcome.fact)


def test_ctrl_c_breaks_off_the_turn_and_not_the_conversation(tmp_path: Path) -> None:
    slow = Call("bash", {"command": "echo $$ > pid; exec sleep 3600"})
    quick = Call("bash", {"command": "echo done"})
    with provider(Reply("", (slow, quick)), Reply("I go on.")) as url:
        with started(tmp_path, url) as agent:
            assert agent.stdin
            agent.stdin.write("Do both\n")
            agent.stdin.flush()
            _wait_for_two(tmp_path)
            agent.send_signal(signal.SIGINT)
            said, failed = agent.communicate("And now?\n", timeout=600)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert (agent.returncode, failed) == (0, "")
    assert "I go on." in said
    journal = stored.read(f"sqlite:///{tmp_path}/agent.db")
    outcomes = [call.outcome.fact.outcome for call in journal.view.calls.values() if call.outcome]
    assert outcomes == ["cancelled", "ok"]


def _wait_for_two(folder: Path) -> None:
    """Wait until one call has finished and the other one runs."""
    end = time.monotonic() + 600
    while time.monotonic() < end:
        with suppress(LockstitchError):
            calls = stored.read(f"sqlite:///{folder}/agent.db").view.calls.values()
            ran = {call.is_running for call in calls if call.outcome or call.is_running}
            if ran == {True, False} and (folder / "pid").exists():
                return
        time.sleep(0.02)
    raise AssertionError("the tools did not run")


def test_a_refusal_is_shown_and_the_conversation_goes_on(tmp_path: Path) -> None:
    with provider(Reply("Fine.")) as url:
        assert talked(tmp_path, f"{url}/nowhere", "Hello", "Hello?").count("404 ") == 2
        assert "Fine." in talked(tmp_path, url, "Hello!")
    journal = stored.read(f"sqlite:///{tmp_path}/agent.db")
    said, replied, *_ = journal.messages()
    assert [block["text"] for block in said["content"]] == ["Hello", "Hello?", "Hello!"]
    assert replied["role"] == "assistant"
