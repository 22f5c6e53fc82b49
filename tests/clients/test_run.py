"""Real clients under ``lockstitch run``: interrupted in mid-tool, killed, repaired, resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstitch.files import os_files
from lockstitch.provider import Reply

from .conftest import EVERYTHING, needs
from .drive import PROMPT, ClaudeCode, Client, Codex, Pi, Place
from .reading import of_items, of_messages
from .scenarios import bash, says
from .seat import Seat

RUN = [sys.executable, "-m", "lockstitch", "run", "--yes", "--"]
COMMAND = "touch started; until [ -e ended ] || [ ! -e started ]; do sleep 1; done"
UNKNOWN = "no result was recorded"
PATIENCE = 60


class RunClaude(ClaudeCode):
    """Claude Code, resumed without naming the session."""

    def program(self) -> list[str]:
        return [*RUN, *super().program()]

    def resuming(self, session: str) -> list[str]:
        return ["-p", PROMPT, "--continue"]


class RunCodex(Codex):
    """Codex, resumed without naming the session."""

    def program(self) -> list[str]:
        return [*RUN, *super().program()]

    def resuming(self, session: str) -> list[str]:
        return ["resume", "--last", PROMPT]


class RunPi(Pi):
    """pi, which has no newest session but that of its folder."""

    def program(self) -> list[str]:
        return [*RUN, *super().program()]


CLIENTS = [RunClaude("2.1.325"), RunCodex("0.166.0")]
REST = [RunClaude("2.1.50"), RunPi("0.87.1")]


def below(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    children = {
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if _parent(entry) == pid and os_files.start_moment(int(entry.name))
    }
    return [one for child in sorted(children) for one in (child, *below(child))]


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def alive(family: dict[int, str | None]) -> bool:
    """Whether any of these processes still runs."""
    return any(os_files.start_moment(pid) == since for pid, since in family.items())


def wait_for(is_true: Callable[[], bool], what: object) -> None:
    end = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@needs
@pytest.mark.parametrize(
    "client", [*CLIENTS, *(REST if EVERYTHING else ())], ids=lambda client: type(client).__name__
)
def test_a_client_killed_in_mid_tool_is_resumed_with_all_it_had(
    client: Client, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    with client.working(place, COMMAND) as process:
        family = {pid: os_files.start_moment(pid) for pid in below(process.pid)}
        # At least the proxy, the client, and the command that it runs.
        assert len(family) > 2
        # The proxy is in a group of its own: it has to notice that the others are gone.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        (place.work / "ended").touch()
        wait_for(lambda: not alive(family), family)
    ((_, path),) = client.sessions(place.home)
    broken = path.read_bytes()
    after = client.resume(place, "")
    assert after.is_accepted, (after.said, after.refused)
    assert "Repaired." in after.said
    (backup,) = path.parent.glob(".lockstitch/*.bak")
    assert backup.read_bytes() == broken
    body = after.requests[-1]
    said = of_messages(body["messages"]) if "messages" in body else of_items(body["input"])
    ((call, (_, given)),) = said.calls.items()
    assert COMMAND in given.values()
    assert UNKNOWN in said.results[call].lower()
    assert len(client.sessions(place.home)) == 1


class PlainCodex(Codex):
    """Codex without any settings, with the key of an account at OpenAI."""

    def environ(self, home: Path, url: str) -> dict[str, str]:
        return {"CODEX_API_KEY": "none"}


class SetClaude(ClaudeCode):
    """Claude Code whose settings say where it sends to, which counts more than a variable."""

    def environ(self, home: Path, url: str) -> dict[str, str]:
        settings = home / ".claude" / "settings.json"
        settings.parent.mkdir()
        settings.write_text(json.dumps({"env": {"ANTHROPIC_BASE_URL": url}}), "utf-8")
        return super().environ(home, "http://127.0.0.1:7")


PROXIED = [ClaudeCode("2.1.325"), Codex("0.166.0"), PlainCodex("0.166.0")]


@needs
@pytest.mark.parametrize(
    "client",
    [*PROXIED, *([Pi("0.87.1"), SetClaude("2.1.325")] if EVERYTHING else [])],
    ids=lambda client: type(client).__name__,
)
def test_all_requests_go_through_the_proxy(client: Client, tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.provider() as url:
        words = [*RUN[:-1], "--upstream", url, "--", *client.program(), *client.starting()]
        # Nobody listens there: what does not go through the proxy goes nowhere.
        environ = {"PATH": os.environ["PATH"], "HOME": str(place.home), "TERM": "dumb"}
        environ |= client.environ(place.home, "http://127.0.0.1:9")
        ran = subprocess.run(
            words,
            cwd=place.work,
            env=environ,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=10 * PATIENCE,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    assert {entry.outcome for entry in place.log} == {"accepted"}


if EVERYTHING:  # tests/launching tries it with a small program of ours

    @needs
    def test_a_client_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
        client, place = RunClaude("2.1.325"), Place(tmp_path)
        with client.working(place, COMMAND) as process:
            family = {pid: os_files.start_moment(pid) for pid in below(process.pid)}
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            (place.work / "ended").touch()
            wait_for(lambda: not alive(family), family)
        after = client.resume(place, "")
        assert after.is_accepted, (after.said, after.refused)


@needs
def test_a_person_interrupts_the_client_in_its_terminal_and_goes_on(tmp_path: Path) -> None:
    seat = Seat(RunClaude("2.1.325"), tmp_path / "seat")
    with seat.window() as window:
        window.begin("Wait for it", says(bash(COMMAND)))
        wait_for((seat.place.work / "started").exists, "the command")
        window.terminal.press("esc")
        window.terminal.wait("interrupted|what should claude do")
        (seat.place.work / "ended").touch()
        window.model.forget()
        window.ask("Leave it", says(bash("echo one")))
        window.leave()
        assert window.terminal.process.returncode == 0
    with seat.window("--continue") as window:
        window.ask("Next day", Reply("Good morning."))
        window.leave()
    assert {entry.outcome for entry in seat.place.log} == {"accepted"}
