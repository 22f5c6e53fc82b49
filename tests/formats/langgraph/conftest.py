"""One database of real threads, made once by a process that kills itself; copies for each test."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copy

import pytest

from lockstitch import cli

MAKE = "import sys; from tests.formats.langgraph.graphs import main; main(sys.argv[1])"


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("langgraph") / "threads.db"
    done = subprocess.run(
        [sys.executable, "-c", MAKE, str(path)], capture_output=True, timeout=600, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    return path


@pytest.fixture
def threads(_made: Path, tmp_path: Path) -> Path:
    """A copy of the database of ``graphs.main``, with the log that the killed process left."""
    for part in _made.parent.glob(f"{_made.name}*"):
        copy(part, tmp_path)
    return tmp_path / _made.name


@pytest.fixture
def lockstitch(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs a command in this process; gives its status and all that it printed."""

    def run(*words: str | Path) -> tuple[int, str]:
        capfd.readouterr()
        status = cli.run([str(word) for word in words])
        return status, "".join(capfd.readouterr())

    return run


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """LangGraph warns of the classes of an application by a log line for each."""
    logger = logging.getLogger("langgraph.checkpoint.serde.jsonplus")
    before, logger.disabled = logger.disabled, True
    yield
    logger.disabled = before
