"""Sessions of Claude Code and Codex of any length, and one more line of each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LONG_AGO = 1_788_000_000


def moment(count: int) -> str:
    """Return a time that is a little later for each count."""
    seconds, thousandths = divmod(count, 1000)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"2026-09-01T{hours:02d}:{minutes:02d}:{seconds % 60:02d}.{thousandths:03d}Z"


class Chat:
    """A session of Claude Code that grows line by line."""

    def __init__(self, path: Path, words: int = 20, aside: int = 0) -> None:
        """Begin a session; ``aside`` is how many bytes of every line are never sent."""
        self.path = path
        self._words = words
        self._aside = "x" * aside
        self._count = 0
        self._parent: str | None = None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def turns(self, count: int) -> None:
        """Append whole turns."""
        with self.path.open("a", encoding="utf-8") as file:
            for _ in range(count):
                file.write(self.said("user", "word " * self._words))
                file.write(self.said("assistant", [{"type": "text", "text": "ok " * self._words}]))

    def call(self, name: str = "toolu_1") -> None:
        """Append a call without a result."""
        block = {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": "ls"}}
        self.append(self.said("assistant", [block]))

    def result(self, name: str = "toolu_1") -> None:
        """Append the result of a call."""
        self.append(
            self.said("user", [{"type": "tool_result", "tool_use_id": name, "content": "x"}])
        )

    def append(self, text: str) -> None:
        """Append anything."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)

    def said(self, role: str, content: Any, parent: str | None = "") -> str:
        """Return a line of the session, behind the last one unless a parent is given."""
        self._count += 1
        number = f"{self._count:012d}"
        uuid = f"00000000-0000-4000-8000-{number}"
        message: dict[str, Any] = {"role": role, "content": content}
        if role == "assistant":
            message |= {"id": f"msg_{number}", "model": "claude-sonnet-4-5"}
        line = {
            "parentUuid": self._parent if parent == "" else parent,
            "isSidechain": False,
            "sessionId": self.path.stem,
            "cwd": "/project",
            "version": "2.1.325",
            "toolUseResult": self._aside,
            "type": role,
            "message": message,
            "uuid": uuid,
            "timestamp": moment(self._count),
        }
        self._parent = uuid
        return json.dumps(line) + "\n"

    def age(self) -> None:
        """Let it be last written long ago."""
        os.utime(self.path, (LONG_AGO, LONG_AGO))


class Rollout:
    """A session of Codex that grows line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._count = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        session = path.stem[-36:]
        meta = {"id": session, "timestamp": "2026-09-01T00:00:00.000Z", "cwd": "/project"}
        meta |= {"originator": "codex_exec", "cli_version": "0.146.0", "model_provider": "openai"}
        path.write_text(self._line("session_meta", meta), "utf-8")

    def _line(self, kind: str, payload: dict[str, Any]) -> str:
        self._count += 1
        line = {"timestamp": moment(self._count), "type": kind, "payload": payload}
        return json.dumps(line) + "\n"

    def turns(self, count: int, words: int = 20) -> None:
        """Append whole turns, each with a call and its result."""
        size = self.path.stat().st_size
        with self.path.open("a", encoding="utf-8") as file:
            for number in range(count):
                file.writelines(self._turn(f"call_{size}_{number}", words))

    def _turn(self, name: str, words: int) -> Iterator[str]:
        yield self._message("user", "input_text", "word " * words)
        yield self.call(name)
        yield self._line(
            "response_item",
            {"type": "function_call_output", "call_id": name, "output": "out " * words},
        )
        yield self._message("assistant", "output_text", "ok " * words)

    def _message(self, role: str, kind: str, text: str) -> str:
        content = [{"type": kind, "text": text}]
        return self._line("response_item", {"type": "message", "role": role, "content": content})

    def call(self, name: str) -> str:
        """Return the line of a call."""
        given = json.dumps({"cmd": "ls"})
        payload = {
            "type": "function_call",
            "name": "exec_command",
            "arguments": given,
            "call_id": name,
        }
        return self._line("response_item", payload)

    def append(self, text: str) -> None:
        """Append anything."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)
