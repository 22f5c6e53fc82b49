"""``lockstitch demo``: what a kill -9 during a tool does to a message list, and to a session.

The processes, the kills and the requests to the provider are real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lockstitch.cli import render, terminal
from lockstitch.cli.options import JSON, Command, Operand
from lockstitch.cli.terminal import CLEAN
from lockstitch.dialects.placeholders import UNKNOWN_OUTCOME
from lockstitch.errors import LockstitchError, UsageError
from lockstitch.stores.addresses import encoded_path

if TYPE_CHECKING:
    from lockstitch.provider.service import RequestEntry

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
    """Something that the demo is meant to show did not happen."""


class Act(Struct, frozen=True):
    """What became of one agent: who was killed, and what the provider told the next one.

    ``error`` is the provider's own text, ``answers`` what the request said about the three calls,
    and ``said`` what the model answered.
    """

    killed: int
    status: int
    error: str = ""
    answers: tuple[str, ...] = ()
    said: str = ""


class Child:
    """A process whose output is read line by line, and which is killed by its number."""

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
            raise DemoFailed(f"the demo waited for {what}, which never came")
        return found

    def rest(self) -> list[str]:
        """Let it finish, and return its remaining lines."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        found: list[str] = []
        while (line := self.lines.get(timeout=PATIENCE)) is not None:
            found.append(line)
        self.process.wait(PATIENCE)
        return found

    def kill(self) -> int:
        """Kill it at once, as kill -9 does; return its number."""
        self.process.kill()
        self.process.wait()
        return self.process.pid

    def close(self) -> None:
        """End it if it is running, and close its pipes."""
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

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests = self.folder / "requests"
        self.store = f"sqlite:///{encoded_path(self.folder / 'session' / 'agent.db')}"
        self._seen: SimpleQueue[tuple[RequestEntry, Mapping[str, Any]]] = SimpleQueue()
        self._url = ""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Start the provider, and end it."""
        from lockstitch.provider import Script, replies_of, server
        from lockstitch.provider.service import Records, Service, choose_rules

        service = Service(
            choose_rules([]),
            Script(replies_of(REPLIES)),
            clock=time.time,
            seen=lambda entry, body: self._seen.put((entry, body)),
            records=Records(self.requests),
        )
        with server.running(service) as self._url:
            yield

    def plain(self) -> Act:
        """Kill the agent with the plain list, and start it again."""

        def is_there(agent: Child) -> None:
            for number in range(len(_CALLS) - 1):
                while not agent.line(f"result {number}").startswith("finished"):
                    pass

        killed = self._start_and_kill("plain", is_there)
        error = _refusal(self._run_again("plain", SECOND))
        entry, _ = self._next_request()
        if entry.status != _REFUSED or not error:
            raise DemoFailed("the provider took the plain list; there is nothing to show")
        return Act(killed, entry.status, error)

    def session(self) -> Act:
        """Kill the agent with the session at the same place, and start it again."""
        killed = self._start_and_kill(
            "session", lambda _: _until(self._is_in_mid_tool, "two results")
        )
        said = self._run_again("session")
        entry, body = self._next_request()
        answers = _answers_in(body)
        if entry.status != _TAKEN or _GOES_ON["text"] not in said:
            raise DemoFailed("the provider did not take the session's request")
        if answers[-1] != UNKNOWN_OUTCOME or UNKNOWN_OUTCOME in answers[:-1]:
            raise DemoFailed("the request does not say what happened to the calls")
        return Act(killed, entry.status, answers=answers, said=str(_GOES_ON["text"]))

    def _start_and_kill(self, name: str, wait: Callable[[Child], None]) -> int:
        """Start an agent, wait until two tools are done and one is running, and kill it there."""
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        (folder / "notes.txt").write_text("Deploy on Fridays only.\n", encoding="utf-8")
        agent = self._start_agent(name)
        try:
            agent.say(FIRST)
            _until(lambda: _number(folder / "deploy.pid") > 0, "the third tool")
            wait(agent)
            killed = agent.kill()
        finally:
            agent.close()
            # the tool outlives its agent
            if pid := _number(folder / "deploy.pid"):
                with suppress(OSError):
                    os.kill(pid, 9)
        if self._next_request()[0].status != _TAKEN:
            raise DemoFailed("the provider refused the first request")
        return killed

    def _run_again(self, name: str, *words: str) -> str:
        agent = self._start_agent(name)
        try:
            for word in words:
                agent.say(word)
            return "\n".join(agent.rest())
        finally:
            agent.close()

    def _start_agent(self, name: str) -> Child:
        module = "lockstitch.demo.plain" if name == "plain" else "lockstitch.demo.agent"
        folder = self.folder / name
        return Child([module], folder, ANTHROPIC_BASE_URL=self._url, ANTHROPIC_API_KEY="demo")

    def _is_in_mid_tool(self) -> bool:
        """Whether the journal contains two results and a third call that is running."""
        from lockstitch import stored

        try:
            calls = stored.read(self.store).view.calls.values()
        except LockstitchError:
            return False
        done = sum(call.outcome is not None for call in calls)
        return done == len(_CALLS) - 1 and any(call.is_running for call in calls)

    def _next_request(self) -> tuple[RequestEntry, Mapping[str, Any]]:
        """Return what the provider says about its next request, and its body."""
        try:
            return self._seen.get(timeout=PATIENCE)
        except Empty:
            raise DemoFailed("the demo waited for a request, which never came") from None


def _answers_in(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a request says about the three calls, in order."""
    blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
    asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = {b["tool_use_id"]: b for b in blocks if b["type"] == "tool_result"}
    if len(asked) != len(_CALLS) or set(asked) != set(results):
        raise DemoFailed("the request does not answer every call")
    said = [results[ident]["content"] for ident in asked]
    return tuple(
        one if isinstance(one, str) else "".join(str(block.get("text", "")) for block in one)
        for one in said
    )


def _refusal(said: str) -> str:
    """Return the provider's words from the output of an agent."""
    lines = (line.removeprefix("400 ") for line in said.splitlines() if line.startswith("400 "))
    return next((str(json.loads(line)["error"]["message"]) for line in lines), "")


def _until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise DemoFailed(f"the demo waited for {what}, which never came")
        time.sleep(_GLANCE)


def _number(path: Path) -> int:
    """Return the number in a file; 0 while there is none."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


_MISSING = "the demo needs aiohttp for its provider: pip install 'lockstitch[provider]'"
_NAMES = ("read notes.txt", "run the tests", "deploy")


def run(*, folder: str | None, as_json: bool) -> int:
    """Run both acts; return the exit status, which is 0 only if everything really happened."""
    if find_spec("aiohttp") is None:
        raise UsageError(_MISSING)
    if os.name != "posix":
        raise UsageError("the demo needs a POSIX shell: run it on Linux or macOS")
    stage = Stage(_empty_folder(folder))
    # With --json only the outcome is printed.
    say = (lambda _: None) if as_json else terminal.say
    with stage.open():
        say(terminal.paint("An agent with a plain message list", "bold", stream=sys.stdout))
        say("The model asks for three tools at once: " + ", ".join(_NAMES) + ".")
        terminal.flush()
        plain = stage.plain()
        say(f"kill -9 {plain.killed}, while `deploy` is running and the other two are done.")
        say(f"Started again, it sends its list, and the provider answers {plain.status}:")
        say("")
        say(f"    {terminal.paint(terminal.escape_controls(plain.error), 'red')}")
        say("")
        say("Both results are lost, and every later request will be refused, too.")
        say("")
        title = "The same agent with a Lockstitch session"
        say(terminal.paint(title, "bold", stream=sys.stdout))
        terminal.flush()
        session = stage.session()
        say(f"kill -9 {session.killed}, at the same place.")
        say("Started again, it continues by itself. Its request says about the three calls:")
        say("")
        for name, answer in zip(_NAMES, session.answers, strict=True):
            say(f"    {name:<15} {terminal.escape_controls(' '.join(answer.split()))}")
        say("")
        say(f"The provider answers {session.status}, and the conversation continues:")
        say("")
        say(f"    {terminal.paint(terminal.escape_controls(session.said), 'green')}")
    say("")
    say("The session is still there to look at:")
    say("")
    for name in ("show", "checkpoints"):
        say(f"    lockstitch {name} {terminal.escape_controls(stage.store)}")
    if as_json:
        terminal.emit(render.encode_json(plain=plain, session=session, store=stage.store))
    return CLEAN


def _empty_folder(wanted: str | None) -> Path:
    if wanted is None:
        return Path(mkdtemp(prefix="lockstitch-demo-"))
    folder = Path(wanted).absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(f"{wanted} is not empty: the demo needs an empty folder")
    return folder


COMMAND = Command(
    name="demo",
    run=run,
    details=(
        "Starts the strict provider on this machine and two agents in processes of their own, "
        "and really kills each with kill -9 while one of three tools is running. One keeps a "
        "plain message list, the other a Lockstitch session. Nothing leaves this machine. The "
        "exit status is 0 only if everything happened as shown."
    ),
    examples=("lockstitch demo", "lockstitch demo /tmp/demo"),
    operand=Operand("folder", "FOLDER", "An empty folder to work in (default: a temporary one)."),
    options=(JSON,),
)
