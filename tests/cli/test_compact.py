"""``lockstitch compact``: what it says, what it asks, what it writes, and what it leaves alone."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lockstitch as library
from lockstitch.journal.projection import SUMMARY
from tests.compaction.files import BUDGET, LONG, claude_file, codex_file, list_file, messages

from .conftest import LOCKSTITCH

Run = Callable[..., Any]
CONTENT = "Task 0 and this"
NOTES = "Requests: eight tasks, each of them long. Done: all but the last of them, by commands."
TASKS = 8


def script(*lines: str) -> str:
    """A command that runs some lines of Python."""
    return shlex.join([sys.executable, "-c", "\n".join(lines)])


SUMS_UP = script("import sys", "sys.stdin.read()", f"print({NOTES!r})")


@pytest.mark.parametrize("kind", ["claude", "codex", "list"])
def test_compacts_and_undoes_byte_for_byte(here: Run, tmp_path: Path, kind: str) -> None:
    path = made(tmp_path, kind)
    before = path.read_bytes()
    done = here("compact", path, "--budget", BUDGET, "--yes")
    assert done.returncode == 0, done.stderr
    assert SUMMARY.encode() in path.read_bytes()
    assert here("check", path).returncode == 0
    assert here("undo", "--yes", path).returncode == 0
    assert path.read_bytes() == before


def made(folder: Path, kind: str) -> Path:
    if kind == "claude":
        return claude_file(folder)[0]
    if kind == "codex":
        return codex_file(folder, paginated=True)[0]
    return list_file(folder, messages("anthropic"))


def test_shows_and_exports_what_is_sent(here: Run, tmp_path: Path) -> None:
    path = made(tmp_path, "claude")
    here("compact", path, "--budget", BUDGET, "--yes")
    # lines are broken where the terminal ends
    assert SUMMARY in " ".join(here("show", path).stdout.decode().split())
    exported = json.loads(here("export", path, "--to", "anthropic").stdout)
    sent = exported if isinstance(exported, list) else exported["messages"]
    assert SUMMARY in json.dumps(sent[0])


@pytest.mark.parametrize("more", [("--diff",), ("--diff", "--yes"), ()])
def test_only_says_what_it_would_do(here: Run, tmp_path: Path, more: tuple[str, ...]) -> None:
    path = made(tmp_path, "claude")
    before = path.read_bytes()
    done = here("compact", path, "--budget", BUDGET, *more)
    assert done.returncode == (0 if more else 1)
    assert b"7 turns summarized in a digest" in done.stderr
    assert b"tokens" in done.stderr
    assert CONTENT.encode() not in done.stdout + done.stderr
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_a_dry_run_asks_no_model(here: Run, tmp_path: Path) -> None:
    path, proof = made(tmp_path, "claude"), tmp_path / "asked"
    command = script(f"open({str(proof)!r}, 'w').close()")
    done = here("compact", path, "--budget", BUDGET, "--diff", "--model-command", command)
    assert b"summarized by the command" in done.stderr
    assert not proof.exists()


def test_json_has_the_figures_and_no_content(here: Run, tmp_path: Path) -> None:
    path = made(tmp_path, "claude")
    done = here("compact", path, "--budget", BUDGET, "--yes", "--json")
    found = json.loads(done.stdout)
    assert (found["version"], found["format"], found["rung"]) == (1, "claude-code", "digest")
    assert found["after"]["tokens"] <= BUDGET < found["before"]["tokens"]
    assert found["applied"]
    assert Path(found["backup"]).is_file()
    assert CONTENT.encode() not in done.stdout + done.stderr


def test_writes_a_copy(here: Run, tmp_path: Path) -> None:
    path, copy = made(tmp_path, "claude"), tmp_path / "copy.jsonl"
    before = path.read_bytes()
    assert here("compact", path, "--budget", BUDGET, "-o", copy).returncode == 0
    assert path.read_bytes() == before
    assert copy.read_bytes().startswith(before)
    assert here("check", copy).returncode == 0


def test_says_that_there_is_nothing_to_do(here: Run, tmp_path: Path) -> None:
    path = made(tmp_path, "claude")
    done = here("compact", path, "--yes")
    assert done.returncode == 0
    assert b"within the budget" in done.stderr


class TestModelCommand:
    def test_its_words_are_the_summary(self, here: Run, tmp_path: Path) -> None:
        path = made(tmp_path, "claude")
        words = ("--budget", BUDGET, "--yes", "--json", "--model-command", SUMS_UP)
        done = here("compact", path, *words)
        assert json.loads(done.stdout)["rung"] == "summary"
        assert NOTES.encode() in path.read_bytes()
        assert NOTES.encode() not in done.stdout + done.stderr

    def test_reads_the_conversation(self, here: Run, tmp_path: Path) -> None:
        path, heard = made(tmp_path, "claude"), tmp_path / "heard"
        keep = f"open({str(heard)!r}, 'a').write(sys.stdin.read())"
        command = script("import sys", keep, f"print({NOTES!r})")
        here("compact", path, "--budget", BUDGET, "--yes", "--model-command", command)
        assert CONTENT in heard.read_text("utf-8")

    @pytest.mark.parametrize(
        "lines",
        [
            ("import sys", f"print({NOTES!r})", "sys.exit(3)"),
            ("pass",),
            ("import sys", "print('secret words', file=sys.stderr)", "sys.exit(1)"),
            ("import sys", "sys.stdout.write('x' * 9_000_000)"),
        ],
        ids=["status", "empty", "stderr", "endless"],
    )
    def test_a_digest_stands_in_when_it_fails(
        self, here: Run, tmp_path: Path, lines: tuple[str, ...]
    ) -> None:
        path = made(tmp_path, "claude")
        words = ("--budget", BUDGET, "--yes", "--deadline", "3", "--json")
        done = here("compact", path, *words, "--model-command", script(*lines))
        found = json.loads(done.stdout)
        assert (done.returncode, found["rung"]) == (0, "digest")
        assert found["failures"]
        assert b"secret words" not in done.stdout + done.stderr

    def test_one_that_never_ends_is_ended_at_the_deadline(self, here: Run, tmp_path: Path) -> None:
        path, pid = made(tmp_path, "claude"), tmp_path / "pid"
        note = f"open({str(pid)!r}, 'w').write(str(os.getpid()))"
        command = script("import os, time", note, "time.sleep(600)")
        before = path.read_bytes()
        # On a slow machine it may not have begun when its time is over: then it gets more.
        for deadline in ("2", "20", "200"):
            path.write_bytes(before)
            words = ("--budget", BUDGET, "--yes", "--deadline", deadline, "--json")
            done = here("compact", path, *words, "--model-command", command)
            assert json.loads(done.stdout)["rung"] == "digest"
            if pid.exists() and pid.read_text():
                break
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)

    @pytest.mark.parametrize("command", ["no-such-program-anywhere -x", "'open", ""])
    def test_one_that_is_none(self, here: Run, tmp_path: Path, command: str) -> None:
        path = made(tmp_path, "claude")
        before = path.read_bytes()
        done = here("compact", path, "--budget", BUDGET, "--yes", f"--model-command={command}")
        assert done.returncode == 2
        assert b"--model-command" in done.stderr
        assert path.read_bytes() == before

    def test_no_shell_is_used(self, here: Run, tmp_path: Path) -> None:
        path, proof = made(tmp_path, "claude"), tmp_path / "proof"
        command = f"{SUMS_UP} ; touch {shlex.quote(str(proof))}"
        here("compact", path, "--budget", BUDGET, "--yes", "--model-command", command)
        assert not proof.exists()


class TestErrors:
    @pytest.mark.parametrize(
        "words",
        [
            ("--budget", "0"),
            ("--budget", "many"),
            ("--max-bytes", "0"),
            ("--deadline", "0"),
            ("--deadline", "soon"),
            ("--undo",),
            ("--budget", "20", "--yes"),
        ],
        ids=" ".join,
    )
    def test_nothing_is_written(self, here: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
        path = made(tmp_path, "claude")
        before = path.read_bytes()
        done = here("compact", path, *words)
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1
        assert path.read_bytes() == before

    @pytest.mark.parametrize("data", [b"", b"garbage", b"[]", b"[" * 100_000, b"\0" * 99])
    def test_what_is_no_session(self, here: Run, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "session.jsonl"
        path.write_bytes(data)
        done = here("compact", path, "--yes")
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1
        assert path.read_bytes() == data

    @pytest.mark.parametrize("words", [(), ("no-such-file.jsonl",)])
    def test_what_is_not_there(self, here: Run, words: tuple[str, ...]) -> None:
        done = here("compact", *words)
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1


class TestOwnStores:
    @pytest.fixture
    def store(self, tmp_path: Path) -> str:
        url = f"sqlite:///{tmp_path / 'agent.db'}"
        with library.open(url) as store, store.session("ticket") as session:
            for turn in range(TASKS):
                session.say(f"Task {turn} {LONG}")
                reply = {"role": "assistant", "content": f"Done {turn}."}
                session.record(reply, dialect="anthropic")
        return url

    def test_compacts_and_takes_it_back(self, here: Run, store: str) -> None:
        words = (store, "--session", "ticket", "--budget", BUDGET)
        whole = here("export", store, "--session", "ticket", "--to", "anthropic").stdout
        said = here("compact", *words, "--diff")
        assert (said.returncode, b"digest" in said.stderr) == (0, True), said.stderr
        done = here("compact", *words, "--yes", "--json")
        assert (done.returncode, json.loads(done.stdout)["applied"]) == (0, True), done.stderr
        assert json.loads(done.stdout)["turns"] > 0
        assert SUMMARY.encode() in here("export", store, "--to", "anthropic").stdout
        assert here("compact", store, "--undo").returncode == 0
        assert here("export", store, "--to", "anthropic").stdout == whole

    def test_who_types_a_command_has_it_asked(self, here: Run, store: str) -> None:
        """Whatever became of it before; a program leaves it alone for a while."""
        words = (store, "--session", "ticket", "--budget", BUDGET, "--yes", "--json")
        for _ in range(2):
            done = here("compact", *words, "--model-command", script("raise SystemExit(3)"))
            found = json.loads(done.stdout)
            assert (found["rung"], len(found["failures"]), found["unasked"]) == ("digest", 3, "")
            assert here("compact", store, "--undo").returncode == 0
        done = here("compact", *words, "--model-command", SUMS_UP)
        assert json.loads(done.stdout)["rung"] == "summary"

    def test_a_command_without_time_is_not_asked(self, here: Run, store: str) -> None:
        words = (store, "--budget", BUDGET, "--yes", "--deadline", "0.000001")
        done = here("compact", *words, "--model-command", SUMS_UP)
        assert (done.returncode, b"was not run: there was no time" in done.stderr) == (0, True)

    def test_a_copy_is_a_fork(self, here: Run, store: str, tmp_path: Path) -> None:
        done = here("compact", store, "--budget", BUDGET, "-o", tmp_path / "copy")
        assert (done.returncode, b"fork" in done.stderr) == (2, True)


def test_killed_at_any_moment_it_is_old_or_new(tmp_path: Path) -> None:
    path = made(tmp_path, "claude")
    old = path.read_bytes()
    command = [*LOCKSTITCH, "compact", str(path), "--budget", str(BUDGET), "--yes"]
    begin = time.monotonic()
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    took, new = time.monotonic() - begin, path.read_bytes()
    for step in range(8):
        path.write_bytes(old)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with process:
            time.sleep(took * (0.5 + step / 14))
            process.send_signal(signal.SIGKILL)
        assert path.read_bytes() in (old, new)
