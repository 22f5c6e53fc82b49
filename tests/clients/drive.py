"""The real clients at work: a session file in, the requests of its resume out.

Everything runs in a scratch home with an environment of its own, against the strict provider
of this project on a free port of this machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from lockstitch.provider import Reply, Script
from lockstitch.provider import ScriptedCall as Call
from lockstitch.provider.server import running
from lockstitch.provider.service import (
    ReceivedRequest,
    Records,
    RequestEntry,
    Service,
    Verdict,
    choose_rules,
)

from .install import CACHE, NotInstalled, installed

Json = dict[str, Any]

PROMPT = "Go on from here, please."
PATIENCE = 600
_BARE = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TERM": "dumb", "LANG": "C.UTF-8"}


class Open(Service):
    """A provider that takes every request, whatever this project thinks of it."""

    def judge_request(self, asked: ReceivedRequest) -> Verdict:
        return Verdict(super().judge_request(asked).body)


@dataclass(frozen=True, slots=True)
class Place:
    """A scratch home, a folder to work in, and what the provider there was sent.

    ``desk`` judges what is sent, ``more_environ`` is what else a client shall find in its
    environment.
    """

    root: Path
    log: list[RequestEntry] = field(default_factory=list)
    desk: type[Service] = Service
    more_environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @contextmanager
    def provider(self, *replies: Reply) -> Iterator[str]:
        """A provider that keeps what it is sent; gives its address."""
        records = Records(self.root / "sent")
        desk = self.desk(
            choose_rules([]), Script(replies), clock=time.time, log=self.log.append, records=records
        )
        self.home.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True, exist_ok=True)
        with running(desk) as url:
            yield url

    def bodies(self) -> list[Json]:
        """Every request so far."""
        return [json.loads(path.read_bytes()) for path in sorted((self.root / "sent").iterdir())]


@dataclass(frozen=True, slots=True)
class Resumed:
    """What came of a resume: the requests that asked for the next turn, and how it ended.

    ``status`` is None for a client that had to be stopped.
    """

    requests: list[Json]
    log: list[RequestEntry]
    status: int | None
    said: str

    @property
    def refused(self) -> list[str]:
        """What the provider refused, as codes and places."""
        return [
            f"{found.code} {found.place}"
            for entry in self.log
            if entry.outcome == "refused"
            for found in entry.findings
        ]

    @property
    def is_accepted(self) -> bool:
        """Whether the client asked for the next turn, was answered, and ended well."""
        every = all(entry.outcome == "accepted" for entry in self.log)
        return bool(self.requests) and every and self.status == 0


@dataclass(frozen=True, slots=True)
class Client(ABC):
    """One version of one program."""

    version: str
    package: ClassVar[str]

    @property
    def modules(self) -> Path:
        """Where its packages are; raises NotInstalled."""
        found = installed(self.package, self.version)
        if isinstance(found, NotInstalled):
            raise found
        return found

    def found(self, pattern: str) -> str:
        """The program for this platform among its packages; raises NotInstalled."""
        program = next(self.modules.glob(pattern), None)
        if program is None:
            raise NotInstalled(f"{self.package}@{self.version} has no program for this platform")
        return str(program)

    def put(self, place: Place, files: Mapping[str, bytes]) -> None:
        """Write session files where it looks for them, by their path from there."""
        for name, data in files.items():
            path = self.folder(place.home, place.work) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def resume(self, place: Place, session: str, patience: float = PATIENCE) -> Resumed:
        """Resume a session with a prompt and let it run to its end."""
        with place.provider() as url:
            command = [*self.program(), *self.resuming(session)]
            status, said = _run(command, place.work, self._environ(place, url), patience)
        requests = [body for body in place.bodies() if PROMPT in json.dumps(self.last(body))]
        return Resumed(requests, place.log, status, said)

    def start(self, place: Place, call: Call, patience: float = PATIENCE) -> None:
        """Start a session whose first turn makes one call, and let it run to its end."""
        with place.provider(Reply("I start it.", (call,))) as url:
            command = [*self.program(), *self.starting()]
            _run(command, place.work, self._environ(place, url), patience)

    def die(self, place: Place, shell: str, patience: float = PATIENCE) -> None:
        """Start a session whose first turn runs a shell command, and kill it as that runs."""
        with self.working(place, shell, patience=patience):
            pass

    @contextmanager
    def working(
        self,
        place: Place,
        shell: str,
        environ: Mapping[str, str] = _BARE,
        patience: float = PATIENCE,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Start a session whose first turn runs a shell command; killed at the end of the block.

        The command has to leave a file ``started`` in the folder where it runs.
        """
        with place.provider(Reply("I start it.", (self.shell_call(shell),))) as url:
            command = [*self.program(), *self.starting()]
            given = {**self._environ(place, url), **environ}
            with _started(command, place.work, given) as process:
                try:
                    end = time.monotonic() + patience
                    while not self._is_at_work(place, shell) and time.monotonic() < end:
                        time.sleep(0.05)
                    yield process
                finally:
                    os.killpg(process.pid, signal.SIGKILL)

    def _is_at_work(self, place: Place, shell: str) -> bool:
        """Whether a shell command runs, and the call of it is on the disk."""
        written = json.dumps(shell)[1:-1].encode()
        spelled = (written, json.dumps(written.decode())[1:-1].encode())
        try:
            found = [path.read_bytes() for path in place.root.rglob("*.jsonl") if path.is_file()]
        except FileNotFoundError:
            return False  # the client took a file away that was there a moment ago
        is_written = any(each in data for data in found for each in spelled)
        return (place.work / "started").exists() and is_written

    def _environ(self, place: Place, url: str) -> dict[str, str]:
        return {
            **_BARE,
            "HOME": str(place.home),
            **self.environ(place.home, url),
            **place.more_environ,
        }

    @abstractmethod
    def folder(self, home: Path, work: Path) -> Path:
        """Where it looks for the sessions of a working directory."""

    @abstractmethod
    def sessions(self, home: Path) -> list[tuple[str, Path]]:
        """The sessions it has written: id and file."""

    @abstractmethod
    def program(self) -> list[str]:
        """The command without its arguments; raises NotInstalled."""

    @abstractmethod
    def resuming(self, session: str) -> list[str]:
        """The arguments that resume a session with the prompt."""

    @abstractmethod
    def starting(self) -> list[str]:
        """The arguments that start a session with the prompt, free to run commands."""

    @abstractmethod
    def shell_call(self, command: str) -> Call:
        """A call of its shell tool."""

    @abstractmethod
    def environ(self, home: Path, url: str) -> dict[str, str]:
        """What points it at a provider; may write its settings into the home."""

    @abstractmethod
    def last(self, body: Json) -> Any:
        """The last thing a request says."""


class ClaudeCode(Client):
    """Claude Code; older versions are a script for node, newer ones a native program."""

    package = "@anthropic-ai/claude-code"

    def folder(self, home: Path, work: Path) -> Path:
        name = re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath(work))
        return home / ".claude" / "projects" / name

    def sessions(self, home: Path) -> list[tuple[str, Path]]:
        paths = home.glob(".claude/projects/*/*.jsonl")
        return [(path.stem, path) for path in paths if not path.name.startswith("agent-")]

    def program(self) -> list[str]:
        script = self.modules / "@anthropic-ai" / "claude-code" / "cli.js"
        if script.is_file():
            return [*_node(), str(script)]
        return [self.found("@anthropic-ai/claude-code-*/claude")]

    def resuming(self, session: str) -> list[str]:
        return ["-p", PROMPT, "--resume", session]

    def starting(self) -> list[str]:
        return ["-p", PROMPT, "--allowedTools", "Bash"]

    def shell_call(self, command: str) -> Call:
        return Call("Bash", {"command": command, "description": "runs it"})

    def environ(self, home: Path, url: str) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
        }

    def last(self, body: Json) -> Any:
        return body.get("messages", [None])[-1]


class Codex(Client):
    """Codex; its sessions must name the provider that is in the settings."""

    package = "@openai/codex"
    provider: ClassVar[str] = "local"

    def folder(self, home: Path, work: Path) -> Path:
        return home / ".codex" / "sessions" / "2026" / "09" / "01"

    def sessions(self, home: Path) -> list[tuple[str, Path]]:
        paths = home.glob(".codex/sessions/*/*/*/rollout-*.jsonl")
        return [("-".join(path.stem.split("-")[-5:]), path) for path in paths]

    def program(self) -> list[str]:
        return [self.found("@openai/codex-*/vendor/*/bin/codex"), "exec", "--skip-git-repo-check"]

    def resuming(self, session: str) -> list[str]:
        return ["resume", session, PROMPT]

    def starting(self) -> list[str]:
        return [PROMPT]

    def shell_call(self, command: str) -> Call:
        return Call("exec_command", {"cmd": command, "yield_time_ms": 30_000})

    def environ(self, home: Path, url: str) -> dict[str, str]:
        settings = home / ".codex" / "config.toml"
        settings.parent.mkdir(exist_ok=True)
        settings.write_text(
            f'model = "gpt-5.5"\nmodel_provider = "{self.provider}"\n'
            'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
            f'[model_providers.{self.provider}]\nname = "{self.provider}"\n'
            f'base_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "LOCAL_KEY"\n'
            "request_max_retries = 0\nstream_max_retries = 0\n",
            "utf-8",
        )
        return {"LOCAL_KEY": "none"}

    def last(self, body: Json) -> Any:
        return body.get("input", [None])[-1]


class Pi(Client):
    """pi; it needs a newer node than many machines have, which comes as a package, too."""

    package = "@earendil-works/pi-coding-agent"

    def folder(self, home: Path, work: Path) -> Path:
        name = re.sub(r"[/\\:]", "-", os.path.realpath(work).lstrip("/"))
        return home / ".pi" / "agent" / "sessions" / f"--{name}--"

    def sessions(self, home: Path) -> list[tuple[str, Path]]:
        paths = home.glob(".pi/agent/sessions/*/*.jsonl")
        return [(path.stem.rpartition("_")[2], path) for path in paths]

    def program(self) -> list[str]:
        script = self.modules / "@earendil-works" / "pi-coding-agent" / "dist" / "cli.js"
        options = ["--offline", "--provider", "local", "--model", "claude-sonnet-4-5"]
        return [*_node(), str(script), *options]

    def resuming(self, session: str) -> list[str]:
        return ["-c", "-p", PROMPT]

    def starting(self) -> list[str]:
        return ["-p", PROMPT]

    def shell_call(self, command: str) -> Call:
        return Call("bash", {"command": command})

    def environ(self, home: Path, url: str) -> dict[str, str]:
        models = [{"id": "claude-sonnet-4-5", "contextWindow": 200_000, "maxTokens": 8192}]
        local = {"baseUrl": url, "api": "anthropic-messages", "apiKey": "none", "models": models}
        settings = home / ".pi" / "agent" / "models.json"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps({"providers": {"local": local}}), "utf-8")
        return {"PI_SKIP_VERSION_CHECK": "1"}

    def last(self, body: Json) -> Any:
        return body.get("messages", [None])[-1]


NODE = "22.23.3"


def _node() -> list[str]:
    """Run a script at little cost: compiled once, and without npm, which clients start in vain.

    A node that keeps what it compiled comes as a package; any other does the same, but slower.
    """
    package = f"node-linux-{'arm64' if os.uname().machine == 'aarch64' else 'x64'}"
    modules = installed(package, NODE)
    found = shutil.which("node")
    if not isinstance(modules, NotInstalled):
        found = str(modules / package / "bin" / "node")
    if found is None:
        raise NotInstalled("node is not installed")
    path = f"{Path(__file__).parent / 'bin'}:{_BARE['PATH']}"
    return ["/usr/bin/env", f"NODE_COMPILE_CACHE={CACHE / 'compiled'}", f"PATH={path}", found]


def _run(
    command: Sequence[str], work: Path, environ: Mapping[str, str], patience: float
) -> tuple[int | None, str]:
    """Run to the end, or stop it and all it has started."""
    with _started(command, work, environ) as process:
        try:
            out, _ = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, "stopped"
        return process.returncode, out.decode(errors="replace")


def _started(
    command: Sequence[str], work: Path, environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """A process at the head of a group of its own."""
    return subprocess.Popen(
        command,
        cwd=work,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
