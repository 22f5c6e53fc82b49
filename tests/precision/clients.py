"""The real clients as senders: bytes of a session in, what its resume sends out."""

from __future__ import annotations

import json
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.drive import PROMPT, ClaudeCode, Client, Codex, Open, Place
from tests.clients.install import NotInstalled, installed
from tests.oracles import problems

from .evidence import records
from .sent import of_request
from .verdict import Sent

PATIENCE = 90
# A client may put notes of its own behind the prompt.
_NOTES_BEHIND = 6
_OUTLIVED = re.compile(r"NUL|not JSON|blank|empty")
# A judge wants what the file says, not what a client makes of a long one.
_AS_IT_IS = {"DISABLE_COMPACT": "1", "DISABLE_AUTO_COMPACT": "1", "DISABLE_MICROCOMPACT": "1"}


@dataclass(frozen=True, slots=True)
class Session:
    """A file with what stands beside it: the names are paths from the folder of the file."""

    path: Path
    data: bytes
    beside: Mapping[str, bytes]


class Sender(ABC):
    """What can resume the sessions of one program."""

    name: str
    program: str

    @abstractmethod
    def send(self, session: Session) -> Sent:
        """Resume a session in a scratch home and return what is sent."""


class _Real(Sender):
    dialect: str

    def __init__(self, client: Client) -> None:
        self.client = client
        self.name = f"{self.program} {client.version}"

    def send(self, session: Session) -> Sent:
        named = self.named(session)
        if named is None:
            return Sent(failed="names no session")
        ident, files = named
        with tempfile.TemporaryDirectory(prefix="precision-") as folder:
            place = Place(Path(folder), desk=Open, more_environ=_AS_IT_IS)
            self.client.put(place, files)
            resumed = self.client.resume(place, ident, PATIENCE)
            if resumed.status is None:
                return Sent(failed="hangs")
            asked = [body for body in place.bodies() if _asks(body)]
            if not asked:
                return Sent(failed="sends nothing")
            refused = still_true(problems(self.dialect, asked[-1]), asked[-1])
            return Sent(tuple(of_request(asked[-1], PROMPT, folder)), tuple(refused))

    @abstractmethod
    def named(self, session: Session) -> tuple[str, dict[str, bytes]] | None:
        """Return the id of a session and its files as the client looks for them, or None."""


class RealClaude(_Real):
    """Claude Code in one version."""

    program = "claude-code"
    dialect = "anthropic"

    def __init__(self, version: str) -> None:
        super().__init__(ClaudeCode(version))

    def named(self, session: Session) -> tuple[str, dict[str, bytes]] | None:
        ident = _stated(session.data, "sessionId") or session.path.stem
        if all(record.get("isSidechain") for record in _talk(session.data)):
            return None  # a sub-agent's file is resumed by nobody
        beside = {
            name.replace(session.path.stem, ident, 1): data for name, data in session.beside.items()
        }
        return ident, {f"{ident}.jsonl": session.data, **beside}


class RealCodex(_Real):
    """Codex in one version."""

    program = "codex"
    dialect = "openai-responses"

    def __init__(self, version: str) -> None:
        super().__init__(Codex(version))

    def named(self, session: Session) -> tuple[str, dict[str, bytes]] | None:
        found = re.search(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", session.path.name)
        heads = (
            r.get("payload") for _, r in records(session.data) if r.get("type") == "session_meta"
        )
        stated = next((head.get("id") for head in heads if isinstance(head, dict)), None)
        ident = stated or (found and found[0])
        if not isinstance(ident, str):
            return None
        bound = re.sub(
            rb'("model_provider"\s*:\s*)"[^"]*"',
            rb'\1"%s"' % Codex.provider.encode(),
            session.data,
        )
        return ident, {f"rollout-2026-09-01T00-00-00-{ident}.jsonl": bound}


def senders(claude: list[str], codex: list[str]) -> list[Sender]:
    """Return the clients of these versions; raises NotInstalled for one that cannot be had."""
    listed = [*map(RealClaude, claude), *map(RealCodex, codex)]
    for sender in listed:
        found = installed(sender.client.package, sender.client.version)
        if isinstance(found, NotInstalled):
            raise found
    return list(listed)


def _asks(body: dict[str, Any]) -> bool:
    """Whether a request asks for the next turn, and not for a title or for a count of tokens."""
    listed = body.get("messages") or body.get("input") or []
    is_turn = "input" in body or ("max_tokens" in body and bool(body.get("tools")))
    return is_turn and PROMPT in json.dumps(listed[-_NOTES_BEHIND:])


def still_true(found: list[str], body: dict[str, Any]) -> list[str]:
    """Return the problems that the session has not outlived.

    Where a model has answered behind a thing that an oracle calls a problem, it was sent and
    taken: reality knows better. That holds for what a block says, not for what may be missing.
    """
    listed = body.get("messages") or body.get("input") or []
    answered = [at for at, entry in enumerate(listed) if _is_answer(entry)]
    last = max(answered, default=-1)
    return [each for each in found if not (_OUTLIVED.search(each) and _index(each) < last)]


def _is_answer(entry: dict[str, Any]) -> bool:
    return entry.get("role") == "assistant" or entry.get("type") in {"function_call", "reasoning"}


def _index(problem: str) -> int:
    found = re.search(r"\d+", problem)
    return int(found[0]) if found else -1


def _talk(data: bytes) -> list[dict[str, object]]:
    return [r for _, r in records(data) if r.get("type") in {"user", "assistant"}]


def _stated(data: bytes, key: str) -> str | None:
    """Return what most records state; a session that was forked keeps its old lines."""
    stated = [r[key] for _, r in records(data) if isinstance(r.get(key), str)]
    return max(set(stated), key=stated.count) if stated else None
