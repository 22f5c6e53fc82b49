"""The demo itself: real processes, a real kill -9, and what the provider was really sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from lockstitch import stored
from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME
from lockstitch.errors import LockstitchError

PATIENCE = 60.0
FIRST = "Check the notes, run the tests and deploy."
SECOND = "What happened? Go on."
_GLANCE = 0.02
_TAKEN, _REFUSED = 200, 400
_DEPLOY = "echo $$ > deploy.pid; exec sleep 300"
_CALLS = [
    {"name": "read", "arguments": {"path": "notes.txt"}},
    {"name": "bash", "arguments": {"command": "echo 12 tests passed"}},
    {"name": "bash", "arguments": {"command": _DEPLOY}},
]
_ASKS = {"text": "I do all three at once.", "calls": _CALLS}
_GOES_ON = {"text": "Notes and tests are fine. I look whether the deployment went through first."}
REPLIES = [_ASKS, _ASKS, _GOES_ON]


class DemoFailed(LockstitchError):
    """Something that the demo is about did not happen."""


class Act(Struct, frozen=True):
    """What became of one agent: who was killed, and what the provider said to the next one.

    ``error`` is the provider's own text, ``answers`` what the request said of the three calls,
    ``said`` what the model answered.
    """

    killed: int
    status: int
    error: str = ""
    answers: tuple[str, ...] = ()
    said: str = ""


class Child:
    """A process whose output is read line by line, and which is ended by its number."""

    def __init__(self, words: Sequence[str], folder: Path, **environ: str) -> None:
        command = [sys.executable, "-m", *words]
        local = {"no_proxy": "*", "NO_PROXY": "*", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(  # noqa: S603 - this project's own modules
            command,
            cwd=folder,
            env={**os.environ, **local, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self.lines: SimpleQueue[str | None] = SimpleQueue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def say(self, line: str) -> None:
        """Write a line to its input."""
        if self.process.stdin is not None:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()

    def line(self, what: str) -> str:
        """Return its next line of output."""
        try:
            found = self.lines.get(timeout=PATIENCE)
        except Empty:
            found = None
        if found is None:
            raise DemoFailed(f"the demo waited for {what} in vain")
        return found

    def rest(self) -> list[str]:
        """Let it finish, and give the lines that it had still to say."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        found: list[str] = []
        while (line := self.lines.get(timeout=PATIENCE)) is not None:
            found.append(line)
        self.process.wait(PATIENCE)
        return found

    def kill(self) -> int:
        """End it at once, as kill -9 does; return its number."""
        self.process.kill()
        self.process.wait()
        return self.process.pid

    def close(self) -> None:
        """End it if it runs, and let go of its pipes."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reading.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class Stage:
    """A folder with a provider and the agents that talk to it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.requests = self.folder / "requests"
        self.store = f"sqlite:///{quote(str(self.folder / 'session' / 'agent.db'))}"
        self._provider: Child | None = None
        self._url = ""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Start the provider, and end everything that was started here."""
        (self.folder / "replies.json").write_text(json.dumps(REPLIES), encoding="utf-8")
        words = ["--port", "0", "--json", "--reply", "replies.json", "--record", "requests"]
        self._provider = Child(["lockstitch", "provider", *words], self.folder)
        try:
            self._url = json.loads(self._provider.line("the provider"))["url"]
            yield
        finally:
            self._provider.close()

    def plain(self) -> Act:
        """Kill the agent with the plain list, and start it again."""

        def is_there(agent: Child) -> None:
            for number in range(len(_CALLS) - 1):
                while not agent.line(f"result {number}").startswith("finished"):
                    pass

        killed = self._killed("plain", is_there)
        error = _refusal(self._run_again("plain", SECOND))
        entry = self._entry()
        if entry["status"] != _REFUSED or not error:
            raise DemoFailed("the provider took the plain list; there is nothing to show")
        return Act(killed, entry["status"], error)

    def session(self) -> Act:
        """Kill the agent with the session at the same place, and start it again."""
        killed = self._killed("session", lambda _: _until(self._is_in_mid_tool, "two results"))
        said = self._run_again("session")
        entry = self._entry()
        answers = self._answers(entry["record"])
        if entry["status"] != _TAKEN or _GOES_ON["text"] not in said:
            raise DemoFailed("the provider did not take the session's request")
        if answers[-1] != UNKNOWN_OUTCOME or UNKNOWN_OUTCOME in answers[:-1]:
            raise DemoFailed("the request does not say what became of the calls")
        return Act(killed, entry["status"], answers=answers, said=str(_GOES_ON["text"]))

    def _killed(self, name: str, wait: Callable[[Child], None]) -> int:
        """Start an agent, wait until two tools are done and one runs, and kill it there."""
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        (folder / "notes.txt").write_text("Deploy on Fridays only.\n", encoding="utf-8")
        agent = self._agent(name)
        try:
            agent.say(FIRST)
            _until(lambda: _number(folder / "deploy.pid") > 0, "the third tool")
            wait(agent)
            killed = agent.kill()
        finally:
            agent.close()
            _end(_number(folder / "deploy.pid"))
        if self._entry()["status"] != _TAKEN:
            raise DemoFailed("the provider refused the first request")
        return killed

    def _run_again(self, name: str, *words: str) -> str:
        agent = self._agent(name)
        try:
            for word in words:
                agent.say(word)
            return "\n".join(agent.rest())
        finally:
            agent.close()

    def _agent(self, name: str) -> Child:
        module = "lockstitch.demo.plain" if name == "plain" else "lockstitch.demo.agent"
        folder = self.folder / name
        return Child([module], folder, ANTHROPIC_BASE_URL=self._url, ANTHROPIC_API_KEY="demo")

    def _is_in_mid_tool(self) -> bool:
        """Whether the journal holds two results, and a third call that runs."""
        try:
            calls = stored.read(self.store).view.calls.values()
        except LockstitchError:
            return False
        done = sum(call.outcome is not None for call in calls)
        return done == len(_CALLS) - 1 and any(call.is_running for call in calls)

    def _entry(self) -> dict[str, Any]:
        """Return the provider's next line on a request."""
        line = self._provider.line("a request") if self._provider else "{}"
        found: dict[str, Any] = json.loads(line)["request"]
        return found

    def _answers(self, record: str) -> tuple[str, ...]:
        """Return what a request says of the three calls, in order."""
        body = json.loads((self.requests / record).read_text(encoding="utf-8"))
        blocks = [
            b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]
        ]
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        results = {b["tool_use_id"]: b for b in blocks if b["type"] == "tool_result"}
        if len(asked) != len(_CALLS) or set(asked) != set(results):
            raise DemoFailed("the request does not answer every call")
        return tuple(_text(results[ident]["content"]) for ident in asked)


def _refusal(said: str) -> str:
    """Return the provider's words in what an agent printed."""
    lines = (line.removeprefix("400 ") for line in said.splitlines() if line.startswith("400 "))
    return next((str(json.loads(line)["error"]["message"]) for line in lines), "")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(block.get("text", "")) for block in content)


def _until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise DemoFailed(f"the demo waited for {what} in vain")
        time.sleep(_GLANCE)


def _number(path: Path) -> int:
    """Return the number that a file holds; 0 as long as it does not."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def _end(pid: int) -> None:
    """End the tool that outlived its agent."""
    if pid:
        with suppress(OSError):
            os.kill(pid, 9)
