"""Several repairs of one file at once, by real processes: one is done, the rest leave no trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

from lockstitch.files import backup
from tests.files.conftest import LINES, leftovers
from tests.files.test_replace import NEW

# Reads the file, says so, and repairs it when it is told to, together with all others.
REPAIRING = """
import sys
from lockstitch.files import backup
from lockstitch.files.replace import snapshot
from lockstitch.errors import LockstitchError
for line in sys.stdin:
    path, run = line.split()
    before = snapshot(path)
    print("read", flush=True)
    sys.stdin.readline()
    try:
        backup.replace_with_backup(before, NEW, run, {})
        print("done", flush=True)
    except LockstitchError as error:
        print(type(error).__name__, flush=True)
"""


def test_of_repairs_at_once_one_is_done_and_the_others_leave_no_trace(tmp_path: Path) -> None:
    words = [sys.executable, "-c", f"NEW = {NEW!r}\n{REPAIRING}"]
    processes = [subprocess.Popen(words, stdin=PIPE, stdout=PIPE, text=True) for _ in range(4)]
    try:
        for number in range(12):
            path = tmp_path / str(number) / "session.jsonl"
            path.parent.mkdir()
            path.write_bytes(LINES)
            os.utime(path, (0, 0))
            _tell(processes, *(f"{path} run{one}" for one in range(4)))
            assert _heard(processes) == ["read"] * 4
            _tell(processes, *["go"] * 4)
            said = _heard(processes)
            assert said.count("done") == 1, said
            assert set(said) <= {"done", "Conflict", "Busy"}
            ends = sorted(one.suffix for one in (path.parent / ".lockstitch").iterdir())
            assert ends == [".bak", ".json"]
            assert [one.status for one in backup.list_backups(path)] == ["done"]
            assert (path.read_bytes(), leftovers(path.parent)) == (NEW, [])
            backup.undo_backup(path)
            assert path.read_bytes() == LINES
    finally:
        for process in processes:
            process.communicate(timeout=60)


def _tell(processes: list[subprocess.Popen[str]], *lines: str) -> None:
    for process, line in zip(processes, lines, strict=True):
        assert process.stdin
        process.stdin.write(f"{line}\n")
        process.stdin.flush()


def _heard(processes: list[subprocess.Popen[str]]) -> list[str]:
    return [process.stdout.readline().strip() for process in processes if process.stdout]
