"""Folders with what is no session in them: pipes, devices, links, what may not be read.

Nothing is waited for, each is said in a line, the exit status tells, and the rest is done.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lockstitch
from lockstitch.errors import Unreadable
from lockstitch.files import read
from tests.cli.test_reading import without_privileges
from tests.postgres_server import open_room
from tests.sessions import claude
from tests.sessions.command import run


@pytest.fixture(autouse=True)
def impatience() -> Iterator[None]:
    """What waits for a pipe, or reads without an end, fails and does not hang."""

    def give_up(*_: object) -> None:
        raise TimeoutError("still at it")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        # the name of a socket is short
        before = os.open(".", os.O_RDONLY)
        os.chdir(path.parent)
        try:
            one.bind(path.name)
        finally:
            os.fchdir(before)
            os.close(before)


def link(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


EMPTY = "empty"
KINDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (pipe, "is a pipe"),
    "socket": (bound, ""),
    "endless device": (link("/dev/urandom"), "is a device"),
    "zeros": (link("/dev/zero"), "is a device"),
    "terminal": (link("/dev/tty"), ""),
    "loop": (link("odd.jsonl"), ""),
    "dangling": (link("nowhere"), "no such file"),
    # These say that they are empty, and are not touched.
    "kernel's": (link("/proc/kmsg"), EMPTY),
    "memory": (link("/proc/self/mem"), EMPTY),
    "pages": (link("/proc/self/pagemap"), EMPTY),
}


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that any user can reach, as those of pytest are not."""
    with tempfile.TemporaryDirectory(dir=open_room()) as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "a.jsonl").write_text(claude.broken(), encoding="utf-8")
    (place / "z.jsonl").write_text(claude.broken(), encoding="utf-8")
    return place


@pytest.mark.parametrize(
    ("kind", "end"),
    [*((kind, "jsonl") for kind in KINDS), *(("pipe", end) for end in ("json", "db", "jsonl.zst"))],
)
def test_what_is_no_regular_file_is_said_and_the_rest_is_done(
    folder: Path, kind: str, end: str
) -> None:
    make, reason = KINDS[kind]
    odd = folder / f"odd.{end}"
    make(odd)
    for words in (["scan"], ["check"], ["repair", "--yes"], ["undo", "--yes"]):
        done = run(*words, folder)
        said = done.stdout + done.stderr
        if reason == EMPTY:
            assert str(odd) not in done.stdout
            assert done.returncode == (words[0] in {"scan", "check"}), said
            continue
        if words[0] != "undo":
            lines = [line for line in said.splitlines() if str(odd) in line]
            assert len(lines) == 1, said
            assert end == "db" or reason in lines[0]
        assert done.returncode == (0 if words[0] == "undo" else 2), said
        assert "internal error" not in said
    assert (folder / "a.jsonl").read_text("utf-8") == claude.broken()


@pytest.mark.parametrize(
    "words",
    [
        *(["check"], ["repair", "--yes"], ["show"], ["export"], ["heal"], ["compact", "--yes"]),
        *(["undo", "--yes"], ["scan"], ["import", "--into", "x.db"], ["search", "word"]),
    ],
)
def test_a_pipe_that_is_named_is_not_waited_for(tmp_path: Path, words: list[str]) -> None:
    for name in ("pipe", "pipe.jsonl", "pipe.db", "pipe.json"):
        if not (tmp_path / name).exists():
            os.mkfifo(tmp_path / name)
        done = run(*words, tmp_path / name)
        assert done.returncode == 2, (name, done.stdout, done.stderr)
        assert "internal error" not in done.stderr


def test_what_may_not_be_read_is_said(public: Path) -> None:
    for name in ("a", "closed", "inner/hidden"):
        path = public / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(claude.broken(), encoding="utf-8")
        path.chmod(0o666)
    commands = (["scan"], ["check"], ["check", "--json"], ["repair"])
    for words in commands:
        assert run(*words, public).returncode == 1  # and all that is imported on the way
    (public / "closed.jsonl").chmod(0)
    (public / "inner").chmod(0)
    for words in commands:
        with without_privileges():
            done = run(*words, public)
        said = done.stdout + done.stderr
        assert done.returncode == 2, said
        for path in (public / "closed.jsonl", public / "inner", public / "a.jsonl"):
            assert str(path) in said
        assert said.count("permission denied") == 2, said


def test_what_may_not_be_read_at_home_is_said(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    projects = public / ".claude" / "projects"
    for name in ("open", "closed"):
        (projects / name).mkdir(parents=True)
        (projects / name / "s.jsonl").write_text(claude.broken(), encoding="utf-8")
    for one in public.rglob("*"):
        one.chmod(0o777)
    monkeypatch.setenv("HOME", str(public))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    assert run("scan", "--json").returncode == 1
    (projects / "closed").chmod(0)
    with without_privileges():
        done = run("scan", "--json")
    found = {one["target"]: one["status"] for one in json.loads(done.stdout)["sessions"]}
    assert found == {
        str(projects / "open" / "s.jsonl"): "broken",
        str(projects / "closed"): "unreadable",
    }
    assert done.returncode == 2


def test_folders_in_circles_are_walked_once(folder: Path) -> None:
    for name in ("here", "there"):
        (folder / name).symlink_to(folder)
    deep = folder
    for _ in range(60):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "x.jsonl").write_text(claude.broken(), encoding="utf-8")
    done = run("scan", "--json", folder)
    assert len(json.loads(done.stdout)["sessions"]) == 3


def test_folders_a_thousand_deep_are_walked_to_the_end(folder: Path) -> None:
    here = Path.cwd()
    try:
        os.chdir(folder)
        for _ in range(1200):
            os.mkdir("d")  # noqa: PTH102 - by steps, since the path is too long for some calls
            os.chdir("d")
        Path("x.jsonl").write_text(claude.broken(), encoding="utf-8")
    finally:
        os.chdir(here)
    done = run("scan", "--json", folder)
    assert len(json.loads(done.stdout)["sessions"]) == 3
    assert run("undo", "--list", folder).returncode == 0
    subprocess.run(["/bin/rm", "-rf", str(folder)], check=True)


# Budgets.


def test_a_file_over_the_budget_is_said_and_the_rest_is_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = folder / "large.jsonl"
    large.write_text(claude.broken() * 4, encoding="utf-8")
    size = (folder / "a.jsonl").stat().st_size
    monkeypatch.setenv(read.VARIABLE, str(size))
    for words in (["scan"], ["check"], ["repair", "--yes"]):
        done = run(*words, folder)
        assert done.returncode == 2
        said = done.stdout + done.stderr
        assert f"over the limit of {size}" in said
        assert read.VARIABLE in said
    assert large.read_text("utf-8") == claude.broken() * 4
    assert (folder / "a.jsonl").stat().st_size > size


def test_a_huge_file_with_a_hole_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(claude.broken(), encoding="utf-8")
    os.truncate(path, 1 << 42)
    for words in (["check"], ["scan"], ["repair", "--yes"], ["show"], ["heal"]):
        done = run(*words, path)
        assert done.returncode == 2
        assert f"{1 << 42} bytes, over the limit of {2 << 30}" in done.stdout + done.stderr


def test_a_file_that_gives_more_than_it_says_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played here: one that others write as fast as it is read."""
    monkeypatch.setattr(read, "_GROWTH", -10)
    (tmp_path / "x.json").write_bytes(b" " * 100)
    with pytest.raises(Unreadable, match="more bytes than its size says"):
        read.read_file(tmp_path / "x.json")


def test_standard_input_has_the_same_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(read.VARIABLE, "1000000")
    with open("/dev/zero", "rb") as endless:  # noqa: PTH123
        done = run("check", "-", stdin=endless)
    assert done.returncode == 2
    assert "over the limit of 1000000 bytes" in done.stderr


def test_nothing_else_in_the_source_reads_files_by_name() -> None:
    """One reader: whatever reads what others wrote goes through ``files.read``."""
    source = Path(lockstitch.__file__).parent
    # the kernel's tables, streams, what is installed with the program, and what is private to it
    excused = {"read", "processes", "os_files", "sources/lists.py", "schema", "holders", "demo"}
    excused |= {"inspector", "server"}
    words = (".read_bytes(", ".read_text(", " open(", "=open(")
    found = [
        f"{path.relative_to(source)}: {line.strip()}"
        for path in sorted(source.rglob("*.py"))
        if not excused & {path.stem, *path.parts, path.relative_to(source).as_posix()}
        and "stores" not in path.parts
        for line in path.read_text("utf-8").splitlines()
        if any(word in line for word in words) and "def open(" not in line and ">>>" not in line
    ]
    assert found == []


def test_the_only_session_of_a_folder_is_named_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / f"{claude.SESSION}.jsonl"
    path.write_text(claude.broken(), "utf-8")
    [report] = json.loads(run("check", tmp_path, "--json").stdout)["sessions"]
    assert report["target"] == str(path)
    assert f"{path.name}:" in run("check", tmp_path).stdout
