"""Looking after stores from the command line: delete, retain, vacuum, search, migrate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lockstitch
from lockstitch.journal.events import INLINE
from tests.sessions import claude

from .conftest import Done
from .journals import replied, said, write

Run = Callable[..., Done]
DAY = 86_400_000


def stored(url: str) -> list[str]:
    with lockstitch.open(url) as store:
        return [one.session for one in store.sessions()]


@pytest.fixture(params=["sqlite", "jsonl"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with three sessions: two that ended long ago, one in the middle of a turn."""
    url = f"{request.param}:///{tmp_path}/agent.db"
    with lockstitch.open(url) as store:
        for name in ("ticket-1", "ticket-2", "ticket-3"):
            with store.session(name) as session:
                session.describe(f"About {name}", ["trial"])
                session.say("Where is the teapot?")
                if name != "ticket-3":
                    session.record(
                        {"role": "assistant", "content": f"On the table of {name}."}, "openai-chat"
                    )
    return url


def answer(done: Done) -> Any:
    assert done.returncode in {0, 2}, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("version") == 1
    return found


def test_delete_shows_asks_and_deletes(here: Run, url: str) -> None:
    done = here("delete", url, "--session", "ticket-1")
    assert done.returncode == 1
    assert b"ticket-1 (About ticket-1): 4 records" in done.stderr
    assert b"--yes deletes without asking" in done.stderr
    assert len(stored(url)) == 3
    done = here("delete", url, "--session", "ticket-1", "--yes")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"Deleted ticket-1" in done.stderr
    assert stored(url) == ["ticket-2", "ticket-3"]
    found = answer(
        here("delete", url, "--session", "ticket-2", "-y", "--json", "--reason", "asked")
    )
    assert found == {"target": url, "session": "ticket-2", "records": 4, "companions": []}
    assert stored(url) == ["ticket-3"]
    [line] = answer(here("retain", url, "--audit", "--json"))["audit"]
    assert (line["session"], line["reason"]) == ("ticket-2", "asked")
    # the audit is no session: the only one left needs no name
    assert here("delete", url, "-y").returncode == 0


def test_delete_says_what_is_in_the_way(here: Run, url: str) -> None:
    with lockstitch.open(url) as store, store.session("ticket-1"):
        done = here("delete", url, "--session", "ticket-1", "--yes")
    assert done.returncode == 2
    assert b"--wait SECONDS waits for it" in done.stderr
    assert b"there is no session nobody" in here("delete", url, "--session", "nobody").stderr
    assert b"name one with --session" in here("delete", url).stderr
    assert here("delete").returncode == 2
    assert len(stored(url)) == 3


def test_another_programs_file_is_not_deleted(here: Run, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(claude.healthy(), encoding="utf-8")
    for command in ("delete", "vacuum", "retain", "migrate"):
        words = [command, path, *(["sqlite:///x.db"] if command == "migrate" else [])]
        done = here(*words)
        assert done.returncode == 2
        assert b"not a Lockstitch store" in done.stderr


def test_vacuum_leaves_nothing_of_what_was_said(here: Run, url: str, tmp_path: Path) -> None:
    with lockstitch.open(url) as store, store.session("ticket-9") as session:
        session.say("CONFIDENTIAL " * INLINE)
    assert here("delete", url, "--session", "ticket-9", "-y").returncode == 0
    done = here("vacuum", url)
    assert done.returncode == 0
    assert b"back" in done.stderr
    assert isinstance(answer(here("vacuum", url, "--json"))["freed"], int)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"CONFIDENTIAL" not in path.read_bytes()


def test_retain_shows_asks_and_removes(here: Run, url: str) -> None:
    assert b"--older-than AGE" in here("retain", url).stderr
    assert b"such as 90d" in here("retain", url, "--older-than", "soon").stderr
    done = here("retain", url, "--older-than", "90d")
    assert (done.returncode, done.stderr) == (0, b"No session has to go.\n")
    done = here("retain", url, "--keep", "0", "--dry-run")
    assert done.returncode == 0
    assert b"ticket-1 (About ticket-1): 4 records" in done.stderr
    assert b"ticket-3: stays, its turn is open" in done.stderr
    assert here("retain", url, "--keep", "0").returncode == 1
    assert len(stored(url)) == 3
    found = answer(here("retain", url, "--keep", "0", "--tag", "other", "--json"))
    assert found == {"target": url, "removed": [], "spared": [], "applied": False}
    found = answer(here("retain", url, "--keep", "0", "--tag", "trial", "--yes", "--json"))
    assert [one["session"] for one in found["removed"]] == ["ticket-2", "ticket-1"]
    assert found["removed"][0]["reason"] == "not among the 0 changed last"
    assert found["spared"] == [{"session": "ticket-3", "reason": "its turn is open"}]
    assert found["applied"] is True
    assert stored(url) == ["ticket-3"]
    assert here("retain", url, "--keep", "0", "--including-open", "-y").returncode == 0
    assert stored(url) == []
    done = here("retain", url, "--audit")
    assert done.stdout.count(b"not among the 0 changed last") == 3
    assert b"ticket-3" in done.stdout


def test_search_in_a_store(here: Run, url: str) -> None:
    done = here("search", "TEAPOT", url)
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0
    assert f"{url}:ticket-1: record 2, user: Where is the teapot?" in lines
    assert len(lines) == 3
    found = answer(here("search", "the table", url, "--json"))
    assert [one["session"] for one in found["matches"]] == ["ticket-2", "ticket-1"]
    assert found["matches"][0]["who"] == "assistant"
    assert found["errors"] == []
    assert len(here("search", "teapot", url, "--session", "ticket-1").stdout.splitlines()) == 1
    done = here("search", "teapot", url, "-n", "2")
    assert len(done.stdout.splitlines()) == 2
    assert b"--limit N" in done.stderr
    assert here("search", "nowhere", url).stderr == b"Nothing was found.\n"
    assert here("search").returncode == here("search", " ", url).returncode == 2
    assert here("search", "teapot", url, "nothing.jsonl").returncode == 2


def test_search_in_sessions_of_other_programs(
    here: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".claude" / "projects" / "-home-ada"
    folder.mkdir(parents=True)
    path = folder / "00000000-0000-4000-8000-000000000001.jsonl"
    path.write_text(claude.healthy(), encoding="utf-8")
    (folder / "torn.jsonl").write_bytes(b"\x00\x01")
    for target in (path, folder):
        done = here("search", "it please", target)
        assert f"{path}: message 0, user: Build it, please." in done.stdout.decode()
    assert b"message 2, result: built" in here("search", "built", path).stdout
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    done = here("search", "it please", "--json")
    assert [one["format"] for one in json.loads(done.stdout)["matches"]] == ["claude-code"]
    found = answer(here("search", "please teapot", url, path, "--json"))
    assert found["matches"] == []
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "theirs.jsonl").write_text(claude.healthy(), encoding="utf-8")
    write(f"sqlite:///{mixed}/ours.db", "mine", said("Build a teapot, please."))
    lines = here("search", "build please", mixed).stdout.decode().splitlines()
    assert lines == [
        f"{mixed}/ours.db:mine: record 1, user: Build a teapot, please.",
        f"{mixed}/theirs.jsonl: message 0, user: Build it, please.",
    ]


def test_migrate_copies_a_store_again_and_again(here: Run, url: str, tmp_path: Path) -> None:
    other = f"{'jsonl' if url.startswith('sqlite') else 'sqlite'}:///{tmp_path}/other"
    done = here("migrate", url, other)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"Copied 3 sessions" in done.stderr
    assert stored(other) == stored(url) == ["ticket-1", "ticket-2", "ticket-3"]
    with lockstitch.open(url) as here_, lockstitch.open(other) as there:
        for name in stored(url):
            assert there.read(name).request("gemini") == here_.read(name).request("gemini")
        assert next(there.sessions(tag="trial")).title == "About ticket-1"
    done = here("migrate", url, other)
    assert b"Copied 0 sessions" in done.stderr
    assert b"3 sessions had been copied before" in done.stderr
    found = answer(here("migrate", url, other, "--session", "ticket-1", "--as", "again", "--json"))
    assert found["sessions"] == [
        {"session": "ticket-1", "name": "again", "records": 4, "new": True}
    ]
    with lockstitch.open(url) as store, store.session("ticket-2") as session:
        session.say("More")
    done = here("migrate", url, other, "--json")
    assert done.returncode == 2
    failed = [one for one in json.loads(done.stdout)["sessions"] if "error" in one]
    assert [one["session"] for one in failed] == ["ticket-2"]
    assert b"exists in" in done.stderr


def test_migrate_wants_two_stores(here: Run, url: str, tmp_path: Path) -> None:
    assert here("migrate", url).returncode == 2
    assert b"or not a store" in here("migrate", url, tmp_path / "nowhere.db").stderr
    assert b"name it with --session" in here("migrate", url, url, "--as", "x").stderr
    assert here("migrate", url, "memory:").returncode == 2
    assert here("migrate", f"sqlite:///{tmp_path}/none.db", url).returncode == 2


def test_what_reads_changes_nothing(here: Run, url: str, tmp_path: Path) -> None:
    def state() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    before = state()
    here("search", "teapot", url)
    here("retain", url, "--keep", "0", "--dry-run")
    here("retain", url, "--audit")
    here("delete", url, "--session", "ticket-1")
    assert state() == before


def test_excerpts_cannot_reach_a_terminal_as_commands(here: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    write(url, "s", said("a teapot \x1b[31m red"), replied("teapot \u202e reversed"))
    done = here("search", "teapot", url)
    assert b"\x1b" not in done.stdout
    assert "\u202e".encode() not in done.stdout
