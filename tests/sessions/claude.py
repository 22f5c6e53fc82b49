"""Small Claude Code sessions for tests of the commands; the formats have larger ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

SESSION = "4ee0c484-e994-4f01-b1be-6cd86456e2af"


def uuid(number: int) -> str:
    """The id of a line."""
    return str(UUID(int=number, version=4))


def time(number: int) -> str:
    """The time of a line, a second after the one before."""
    at = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(seconds=number)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line(number: int, parent: int | None, kind: str, content: Any, **fields: Any) -> str:
    """One line of a session, with its line break."""
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message = {"id": f"msg_{number}", "model": "claude-sonnet-4-5", **message}
    record = {
        "parentUuid": None if parent is None else uuid(parent),
        "isSidechain": False,
        "userType": "external",
        "cwd": "/home/ada/project",
        "sessionId": SESSION,
        "version": "2.1.325",
        "gitBranch": "main",
        "type": kind,
        "message": message,
        "uuid": uuid(number),
        "timestamp": time(number),
        **fields,
    }
    return json.dumps(record, separators=(",", ":")) + "\n"


def call(name: str) -> list[dict[str, Any]]:
    """The content of a line with one call."""
    return [{"type": "tool_use", "id": name, "name": "Bash", "input": {"command": "make"}}]


def result(name: str, text: str) -> list[dict[str, Any]]:
    """The content of a line with one result."""
    return [{"type": "tool_result", "tool_use_id": name, "content": text}]


def said(text: str) -> list[dict[str, Any]]:
    """The content of a line with words."""
    return [{"type": "text", "text": text}]


def healthy() -> str:
    """A prompt, a call with its result, an answer."""
    return "".join(
        [
            line(1, None, "user", "Build it, please."),
            line(2, 1, "assistant", call("toolu_01")),
            line(3, 2, "user", result("toolu_01", "built")),
            line(4, 3, "assistant", said("It is built.")),
        ]
    )


def broken() -> str:
    """A call in the middle lost its result."""
    return "".join(
        [
            line(1, None, "user", "Build it, please."),
            line(2, 1, "assistant", call("toolu_01")),
            line(3, 2, "user", "Are you there?"),
            line(4, 3, "assistant", said("Yes.")),
        ]
    )


def long_session(path: Path, size: int) -> int:
    """Write a healthy session of about this many bytes; gives the number of its last line."""
    text = "word " * 800
    number = 0
    written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            parent = number or None
            turn = [
                line(number + 1, parent, "user", f"Step {number}."),
                line(number + 2, number + 1, "assistant", call(f"toolu_{number}")),
                line(number + 3, number + 2, "user", result(f"toolu_{number}", text)),
                line(number + 4, number + 3, "assistant", said("Done.")),
            ]
            written += sum(map(file.write, turn))
            number += 4
    return number
