from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lockstitch import cli
from tests import inprocess

LOCKSTITCH = [sys.executable, "-m", "lockstitch"]

CALL = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"}


@pytest.fixture
def clean() -> list[Any]:
    return [
        {"role": "user", "content": "List the files."},
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [RESULT]},
    ]


@pytest.fixture
def broken() -> list[Any]:
    return [
        {"role": "user", "content": "List the files."},
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": "Are you there?"},
    ]


@pytest.fixture
def lockstitch() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Runs the command, in this process: what is about processes takes ``process`` instead."""
    return inprocess.command


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Runs the command as a process of its own."""

    def run(*words: str | Path, stdin: bytes = b"", **options: Any) -> Any:
        options = {"capture_output": True, "timeout": 600, **options}
        command = [*LOCKSTITCH, *map(str, words)]
        return subprocess.run(command, input=stdin, check=False, **options)

    return run


@dataclass(frozen=True)
class Done:
    """What a command that ran in this process printed, and its exit status."""

    returncode: int
    stdout: bytes
    stderr: bytes


@pytest.fixture
def here(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Done]:
    """Runs the command in this process, which is much faster than starting another one."""

    def run(*words: str | Path) -> Done:
        status = cli.run([str(word) for word in words])
        return Done(status, *capfdbinary.readouterr())

    return run


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    def save(value: Any, name: str = "conversation.json", **style: Any) -> Path:
        path = tmp_path / name
        data = value if isinstance(value, bytes) else json.dumps(value, **style).encode()
        path.write_bytes(data)
        return path

    return save
