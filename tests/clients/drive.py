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
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from lockstitch.provider.desk import Desk, Entry, Records
from lockstitch.provider.judge import chosen
from lockstitch.provider.replies import Script
from lockstitch.provider.server import running

from .install import NotInstalled, installed

Json = dict[str, Any]

PROMPT = "Go on from here, please."
PATIENCE = 60


@dataclass(frozen=True, slots=True)
class Resumed:
    """What came of a resume: the requests that asked for the next turn, and how it ended.

    ``status`` is None for a client that had to be stopped.
    """

    requests: list[Json]
    log: list[Entry]
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

    def __str__(self) -> str:
        return f"{type(self).__name__}-{self.version}"

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

    def resume(
        self, root: Path, session: str, files: Mapping[str, bytes], patience: float = PATIENCE
    ) -> Resumed:
        """Resume a session in an empty folder; *files* by their path from the session's folder."""
        command = self.command(session)
        home, work = root / "home", root / "work"
        folder = self.folder(home, work)
        work.mkdir(parents=True)
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        log: list[Entry] = []
        desk = Desk(
            chosen([]), Script(), clock=lambda: 0, log=log.append, records=Records(root / "sent")
        )
        with running(desk) as url:
            environ = self.environ(home, url)
            status, said = _run(command, work, {**_BARE, "HOME": str(home), **environ}, patience)
        bodies = [json.loads(path.read_bytes()) for path in sorted((root / "sent").iterdir())]
        requests = [body for body in bodies if PROMPT in json.dumps(self.last(body))]
        return Resumed(requests, log, status, said)

    @abstractmethod
    def folder(self, home: Path, work: Path) -> Path:
        """Where it looks for the sessions of a working directory."""

    @abstractmethod
    def command(self, session: str) -> list[str]:
        """The command that resumes a session with the prompt."""

    @abstractmethod
    def environ(self, home: Path, url: str) -> dict[str, str]:
        """What points it at a provider; may write its settings into the home."""

    @abstractmethod
    def last(self, body: Json) -> Any:
        """The last thing a request says."""


class ClaudeCode(Client):
    """Claude Code; a native program since 2.1.113 or so, a script for node before."""

    package = "@anthropic-ai/claude-code"

    def folder(self, home: Path, work: Path) -> Path:
        name = re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath(work))
        return home / ".claude" / "projects" / name

    def command(self, session: str) -> list[str]:
        return [*self._program(), "-p", PROMPT, "--resume", session]

    def _program(self) -> list[str]:
        script = self.modules / "@anthropic-ai" / "claude-code" / "cli.js"
        if script.is_file():
            return [_node(), str(script)]
        return [self.found("@anthropic-ai/claude-code-*/claude")]

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

    def command(self, session: str) -> list[str]:
        program = self.found("@openai/codex-*/vendor/*/bin/codex")
        return [program, "exec", "--skip-git-repo-check", "resume", session, PROMPT]

    def environ(self, home: Path, url: str) -> dict[str, str]:
        settings = home / ".codex" / "config.toml"
        settings.write_text(
            f'model = "gpt-5.5"\nmodel_provider = "{self.provider}"\n'
            'approval_policy = "never"\nsandbox_mode = "read-only"\n'
            f'[model_providers.{self.provider}]\nname = "{self.provider}"\n'
            f'base_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "LOCAL_KEY"\n'
            "request_max_retries = 0\nstream_max_retries = 0\n",
            "utf-8",
        )
        return {"LOCAL_KEY": "none"}

    def last(self, body: Json) -> Any:
        return body.get("input", [None])[-1]


_BARE = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TERM": "dumb", "LANG": "C.UTF-8"}


def _node() -> str:
    found = shutil.which("node")
    if found is None:
        raise NotInstalled("node is not installed")
    return found


def _run(
    command: Sequence[str], work: Path, environ: Mapping[str, str], patience: float
) -> tuple[int | None, str]:
    """Run to the end, or stop it and all it has started."""
    with subprocess.Popen(
        command,
        cwd=work,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            out, _ = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, "stopped"
        return process.returncode, out.decode(errors="replace")
