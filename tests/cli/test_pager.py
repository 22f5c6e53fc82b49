"""Through the pager on a terminal, straight out elsewhere, and never a failure of its own."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import itertools, sys
from lockstitch.cli.terminal import page_lines
count = int(sys.argv[1])
page_lines(f"line {n} \\u276f \\ud800" for n in (range(count) if count else itertools.count()))
print("behind", file=sys.stderr)
"""


def run(count: int, pager: str | None, *, on_a_terminal: bool = True) -> tuple[str, str, int]:
    """What the terminal (or pipe) shows, what stderr holds, and the exit status."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PAGER", "LESS")}
    if pager is not None:
        environment["PAGER"] = pager
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(count)],
        stdout=follower if on_a_terminal else subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env={**environment, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
    )
    os.close(follower)
    shown = b""
    try:
        while on_a_terminal and (chunk := os.read(leader, 65536)):
            shown += chunk
    except OSError:
        pass
    out, err = process.communicate(timeout=600)
    os.close(leader)
    return (shown or out or b"").decode(), err.decode(), process.returncode


def test_a_pager_gets_all_of_it(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shown, err, status = run(3, f"tee '{copy}'")
    expected = ["line 0 \u276f \\ud800", "line 1 \u276f \\ud800", "line 2 \u276f \\ud800"]
    assert copy.read_text("utf-8").splitlines() == expected
    assert shown.splitlines() == expected
    assert (err, status) == ("behind\n", 0)


@pytest.mark.parametrize("pager", ["/no/such/pager", "", "   ", "cat", "unclosed 'quote"])
def test_without_a_pager_it_is_printed(pager: str) -> None:
    shown, err, status = run(2, pager)
    assert shown.splitlines() == ["line 0 \u276f \\ud800", "line 1 \u276f \\ud800"]
    assert (err, status) == ("behind\n", 0)


@pytest.mark.parametrize("pager", ["head -n 1", "true", "false"])
def test_a_pager_that_quits_early_ends_even_what_never_ends(pager: str) -> None:
    shown, err, status = run(0, pager)
    assert shown.splitlines() == (["line 0 \u276f \\ud800"] if pager.startswith("head") else [])
    assert (err, status) == ("behind\n", 0)


def test_no_pager_when_stdout_is_no_terminal() -> None:
    shown, err, status = run(2, "sed s/line/paged/", on_a_terminal=False)
    assert shown.splitlines() == ["line 0 \u276f \\ud800", "line 1 \u276f \\ud800"]
    assert (err, status) == ("behind\n", 0)


def test_the_default_pager() -> None:
    shown, err, status = run(2, None)
    assert "line 1 \u276f" in shown
    assert (err, status) == ("behind\n", 0)
