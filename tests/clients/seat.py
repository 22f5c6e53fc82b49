"""A person at the real Claude Code: windows on scratch projects, prompts, commands, dialogs."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from lockstitch.provider import OK, Incoming, Reply, Script
from lockstitch.provider import ScriptedCall as Call
from lockstitch.provider.server import running
from lockstitch.provider.service import Records, choose_rules

from .drive import ClaudeCode, Open, Place
from .terminal import Terminal

_NUMBERS = count(1)
_FREE = ("Bash", "Read", "Write", "Edit", "Task", "Agent", "mcp__desk__add", "TodoWrite")
# A model may be asked by a title or a hook in between: what is told is told in a turn.
_TURN = "Bash"
_RENAMED = {"Agent": "Task", "TaskOutput": "BashOutput"}
PROMPT_LINE = "(?m)^[│ ]*[\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}>](?!\\S)"
BUSY = r"esc to interrupt|ctrl\+b to run|esc to cancel"


class Told(Script):
    """A model that says in its turns what it is told to say, one thing after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._told: list[Reply] = []
        self.pause = 0.0

    def tell(self, *replies: Reply) -> None:
        """Let it say these next."""
        self._told += replies

    @property
    def is_told(self) -> bool:
        """Whether there is something that it has not said yet."""
        return bool(self._told)

    def forget(self) -> None:
        """Let it say none of what it was told and has not said."""
        self._told.clear()

    def reply(self, request: Incoming) -> Reply:
        tools = request.tools
        if _TURN not in tools:
            return OK
        time.sleep(self.pause)
        if not self._told:
            return Reply(word("Nothing else to say"))
        reply = self._told.pop(0)
        calls = tuple(
            Call(
                call.name if call.name in tools else _RENAMED.get(call.name, call.name),
                call.arguments,
            )
            for call in reply.calls
        )
        return Reply(reply.text, calls, reply.thinking)


def word(text: str) -> str:
    """Return a text that has not been said before."""
    return f"{text}, number {next(_NUMBERS)}."


@dataclass
class Window:
    """One running client in a terminal, with a model of its own."""

    terminal: Terminal
    model: Told

    def ready(self) -> None:
        """Wait until it takes a prompt."""
        self.terminal.wait(PROMPT_LINE)
        self.terminal.rest(0.8)

    def enter(self, text: str) -> None:
        """Type a line and send it off."""
        self.terminal.type(text)
        tail = re.escape(text[-12:].strip())
        self.terminal.wait(tail)
        self.terminal.rest(0.4)
        self.terminal.press("enter")

    def ask(self, prompt: str, *replies: Reply) -> None:
        """Ask for something and wait for the end of the turn; the last reply has to be text."""
        self.begin(prompt, *replies)
        self.finish()

    def begin(self, prompt: str, *replies: Reply) -> None:
        """Ask for something and do not wait."""
        told = (
            [*replies]
            if replies and replies[-1].text and not replies[-1].calls
            else [
                *replies,
                Reply(word("That is done")),
            ]
        )
        self._last = told[-1].text
        self.model.tell(*told)
        self.enter(prompt)

    def finish(self) -> None:
        """Wait for the last reply of what was begun."""
        self.terminal.wait(re.escape(self._last.splitlines()[-1][-30:]))
        self.idle()

    def all_said(self) -> None:
        """Wait until the model has said all it was told, to whomever, and nothing runs."""
        end = time.monotonic() + 60
        while self.model.is_told and time.monotonic() < end:
            time.sleep(0.1)
        self.idle(5)

    def idle(self, quiet: float = 0.8) -> None:
        """Wait until nothing runs and the screen is quiet."""
        end = time.monotonic() + 60
        self.terminal.rest(quiet)
        while self.terminal.sees(BUSY) and time.monotonic() < end:
            time.sleep(0.1)

    def command(self, text: str, shows: str | None = None) -> None:
        """Give a command of the client, and wait for what it shows."""
        self.enter(text)
        if shows is not None:
            self.terminal.wait(shows)
        self.terminal.rest(1.0)

    def dismiss(self) -> None:
        """Close what a command has opened; harmless if it has opened nothing."""
        self.terminal.press("esc")
        self.terminal.rest(1.0)
        self.terminal.wait(PROMPT_LINE)

    def leave(self) -> None:
        """Leave by the client's own command."""
        self.enter("/exit")
        if not self.terminal.ended(5):
            self.terminal.press("enter")
        assert self.terminal.ended(20), self.terminal.text


@dataclass
class Seat:
    """A scratch home and project for one client."""

    client: ClaudeCode
    root: Path
    settings: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.place = Place(self.root)
        self.place.home.mkdir(parents=True)
        self.place.work.mkdir(parents=True)
        self.trust(self.place.work)

    def trust(self, *folders: Path) -> None:
        """Say that a person has been here before: no first questions."""
        path = self.place.home / ".claude.json"
        known = json.loads(path.read_text("utf-8")) if path.exists() else {}
        projects = known.get("projects", {})
        for folder in folders:
            projects[os.path.realpath(folder)] = {
                "hasTrustDialogAccepted": True,
                "hasCompletedProjectOnboarding": True,
                "projectOnboardingSeenCount": 4,
                "enabledMcpjsonServers": ["desk"],
            }
        known |= {
            "hasCompletedOnboarding": True,
            "lastOnboardingVersion": self.client.version,
            "theme": "dark",
            "numStartups": 9,
            "autoUpdates": False,
            "customApiKeyResponses": {"approved": ["none"], "rejected": []},
            "projects": projects,
        }
        path.write_text(json.dumps(known), "utf-8")

    def set(self, **settings: object) -> None:
        """Write the settings of a person."""
        path = self.place.home / ".claude" / "settings.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(settings), "utf-8")

    @contextmanager
    def window(
        self,
        *words: str,
        free: bool = True,
        work: Path | None = None,
        more: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> Iterator[Window]:
        """Open a window; ``free`` lets it use its tools without asking."""
        model = Told()
        desk = Open(
            choose_rules([]),
            model,
            clock=time.time,
            log=self.place.log.append,
            records=Records(self.root / "sent" / str(next(_NUMBERS))),
        )
        mode = ["--permission-mode", "default"]
        allowed = ["--allowedTools", ",".join(_FREE)] if free else []
        folder = work or self.place.work
        with running(desk) as url:
            environ = {**self.environ(url), **(more or {})}
            command = [*self.client.program(), *mode, *words, *allowed]
            with Terminal(command, folder, environ) as terminal:
                window = Window(terminal, model)
                if wait:
                    window.ready()
                yield window

    def environ(self, url: str) -> dict[str, str]:
        """Return what points a client of this home at a model."""
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "HOME": str(self.place.home),
            "CLAUDE_CODE_IDE_SKIP_AUTO_INSTALL": "1",
            "DISABLE_INSTALLATION_CHECKS": "1",
            **self.client.environ(self.place.home, url),
        }

    @property
    def files(self) -> list[Path]:
        """The sessions so far, the oldest first."""
        found = (path for _, path in self.client.sessions(self.place.home))
        return sorted(found, key=lambda path: path.stat().st_mtime)

    @property
    def last(self) -> str:
        """The id of the session that was used last."""
        return self.files[-1].stem
