"""Killed, interrupted or failed at every step: the old file or the new one, and its backup."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstitch.files import backup as backups
from lockstitch.files.backup import FOLDER
from tests import tools
from tests.driven import Driven
from tests.files import driver
from tests.files.conftest import leftovers

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
PIPE = subprocess.PIPE


class Driver(Driven):
    """The repairing program, one child after the other."""

    def __init__(self, process: subprocess.Popen[str], path: Path) -> None:
        super().__init__(process)
        self.path = path

    def send(self, order: str = "") -> None:
        """Start one repair of the old file, with no trace of the one before."""
        driver.restore(self.path)
        shutil.rmtree(self.path.parent / FOLDER, ignore_errors=True)
        for name in leftovers(self.path.parent):
            (self.path.parent / name).unlink()
        self.tell(order)

    def check(self) -> str:
        """The file is whole, and if it is the new one its backup is there; says which it is."""
        data = self.path.read_bytes()
        assert data in (driver.OLD, driver.NEW)
        if data == driver.OLD:
            return "old"
        [backup] = backups.list_backups(self.path)
        assert backup.file.read_bytes() == driver.OLD
        assert backups.find_undoable(self.path, force=True) == backup
        return "new"


@pytest.fixture
def way() -> str:
    return "exchange"


@pytest.fixture
def driven(way: str) -> Iterator[Driver]:
    # In memory if possible: a kill leaves the same there, and a thousand of them are quick.
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        path = Path(folder, "session.jsonl")
        command = [sys.executable, "-m", "tests.files.driver", str(path), way]
        with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
            yield Driver(process, path)
            assert process.stdin
            process.stdin.close()


@pytest.mark.parametrize("way", ["exchange", "link", "rename"])
def test_killed_at_every_line_of_our_code(driven: Driver) -> None:
    outcomes = []
    for count in range(1, 5000):
        driven.send(f"{count} kill")
        status, _ = driven.read("ended")
        outcomes.append((status, driven.check()))
        if status == "0":
            break
    assert len(outcomes) > 200
    assert set(outcomes) == {("-9", "old"), ("-9", "new"), ("0", "new")}
    assert outcomes == sorted(outcomes, key=lambda outcome: outcome[1], reverse=True)


# An interrupt in the middle of the cleaning up can leave a draft, which is swept later.
CLEANING_UP = {"open_draft", "close", "remove"}


def test_interrupted_at_every_line_of_our_code(driven: Driver) -> None:
    outcomes = set()
    for count in range(1, 5000):
        driven.send(f"{count} interrupt")
        status, lines = driven.read("ended")
        where = {line.split()[1] for line in lines if line.startswith("at ")}
        if not where & CLEANING_UP:
            assert leftovers(driven.path.parent) == [], where
        outcomes.add((status, driven.check()))
        if status == "0":
            break
    assert outcomes == {("1", "old"), ("1", "new"), ("0", "new")}


# strace: the same at every system call, whatever code made it.


def watched(driven: Driver, *options: str) -> tuple[str, list[str]]:
    """Run one repair under strace from its first step on; its exit status and what it said."""
    tools.needed("strace")
    driven.send()
    pid, _ = driven.read("started")
    wait_until_stopped(pid)
    command = tools.attached(pid, *options)
    with subprocess.Popen(command, stderr=PIPE, text=True) as strace:
        assert strace.stderr
        said = strace.stderr.readline()
        os.kill(int(pid), signal.SIGCONT if "attached" in said else signal.SIGKILL)
        ended = driven.read("ended")
        strace.stderr.read()
    assert "attached" in said, said
    return ended


def wait_until_stopped(pid: str) -> None:
    deadline = time.monotonic() + 600
    while ") T " not in Path(f"/proc/{pid}/stat").read_text("utf-8"):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def system_calls(driven: Driver, tmp_path: Path) -> Counter[str]:
    """How often a repair makes which system call."""
    log = tmp_path / "log"
    assert watched(driven, "-o", str(log))[0] == "0"
    calls = re.findall(r"^\d+ +(\w+)\(", log.read_text("utf-8", "replace"), re.MULTILINE)
    return Counter(calls)


def test_killed_at_every_system_call(driven: Driver, tmp_path: Path) -> None:
    calls = system_calls(driven, tmp_path)
    assert {"fsync", "renameat2", "write", "openat", "mkdirat"} <= set(calls)
    outcomes: Counter[tuple[str, str]] = Counter()
    for name, count in calls.items():
        for number in range(1, count + 1):
            inject = f"inject={name}:signal=SIGKILL:when={number}"
            status, _ = watched(driven, "-o", "/dev/null", "-e", inject)
            outcomes[status, driven.check()] += 1
    assert set(outcomes) <= {("-9", "old"), ("-9", "new"), ("0", "new")}
    assert outcomes["-9", "old"] > 50
    assert outcomes["-9", "new"] > 10


FALLIBLE = (
    *("openat", "write", "fsync", "renameat2", "rename", "renameat", "mkdirat", "fchmod"),
    *("pread64", "read", "newfstatat"),
)


@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EACCES"])
def test_failed_at_every_system_call(driven: Driver, tmp_path: Path, error: str) -> None:
    calls = system_calls(driven, tmp_path)
    outcomes: Counter[tuple[str, str]] = Counter()
    for name in FALLIBLE:
        for number in range(1, calls[name] + 1):
            inject = f"inject={name}:error={error}:when={number}"
            status, lines = watched(driven, "-o", "/dev/null", "-e", inject)
            assert leftovers(driven.path.parent) == []
            outcomes[status, driven.check()] += 1
            if status != "0":
                # Errors of the library come without the path, which the command puts in front.
                assert str(driven.path) in lines[-1] or "Unreadable" in lines[-1], (name, number)
    assert outcomes["1", "old"] > 10
