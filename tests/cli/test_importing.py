"""Sessions of every program become sessions of a store that say the same and go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstitch import open as open_store
from tests.formats import claude_cases, codex_files, databases, gemini_files, pi_files, plain_files
from tests.formats.langgraph.graphs import Making
from tests.formats.stored import Stored, marks_in
from tests.session.talk import DIALECTS, faults
from tests.session.test_importing import told
from tests.sessions import claude

from .conftest import Done

Run = Callable[..., Done]
HELLO = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
CASES = [
    *codex_files.CASES,
    *pi_files.CASES,
    *gemini_files.CASES,
    *plain_files.CASES,
    *databases.CASES,
]


def imported(here: Run, target: Path, url: str, *words: str) -> list[dict[str, Any]]:
    done = here("import", target, url, "--json", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["version"], found["to"]) == (1, url)
    sessions: list[dict[str, Any]] = found["sessions"]
    return sessions


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_format_comes_in_and_goes_on(here: Run, tmp_path: Path, case: Stored) -> None:
    path = tmp_path / "home" / case.path
    path.parent.mkdir(parents=True)
    case.write(path)
    url = f"sqlite:///{tmp_path}/agent.db"
    before = case.state(path)
    [one] = imported(here, path, url)
    assert case.state(path) == before
    done = here("export", path)
    assert done.returncode == 0
    messages = json.loads(done.stdout)
    with open_store(url) as store:
        reader = store.read(one["session"])
        request = reader.request(one["dialect"].partition(":")[0])
        assert set(marks_in(request)) >= set(marks_in(messages))
        for dialect in DIALECTS:
            assert faults(dialect, reader.request(dialect)) == []
        if not one["unknown"]:
            name = one["dialect"].partition(":")[0]
            assert told(request, name) == told(messages, name)
        with store.session(one["session"]) as session:
            session.say("Go on")
            assert session.turn.is_open
            assert faults("anthropic", session.request("anthropic")) == []
    [again] = imported(here, path, url)
    assert again["new"] is False


def test_claude_code_comes_in(here: Run, tmp_path: Path) -> None:
    folder = tmp_path / "projects"
    folder.mkdir()
    url = f"sqlite:///{tmp_path}/agent.db"
    for number, case in enumerate(claude_cases.CASES[::5]):
        name = f"{number}-{case.name}"
        path = folder / f"{name}.jsonl"
        path.write_bytes(case.data)
        done = here("import", path, url, "--as", name, "--json")
        assert done.returncode == 0, done.stderr
        with open_store(url) as store:
            assert faults("anthropic", store.read(name).request("anthropic")) == []


def test_names_are_those_of_the_sessions(here: Run, tmp_path: Path) -> None:
    url = f"jsonl:///{tmp_path}/sessions"
    path = tmp_path / "a session.json"
    path.write_text(json.dumps(HELLO), encoding="utf-8")
    assert b"--dialect on the command line" in here("import", path, url).stderr
    [one] = imported(here, path, url, "-d", "anthropic")
    assert one["session"] == "a-session"
    again = ("import", path, url, "-d", "anthropic", "--as", "other")
    done = here(*again)
    assert done.stderr.decode().endswith("a session.json: imported as other, 2 messages\n")
    assert b"had been imported before, as other" in here(*again).stderr
    path.write_text(json.dumps(HELLO[:1]), encoding="utf-8")
    done = here(*again)
    assert done.returncode == 2
    assert b"it exists, and is not this list" in done.stderr


def test_a_list_comes_from_stdin(lockstitch: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agent.db"
    words = ("import", "-", url, "-d", "anthropic")
    data = json.dumps(HELLO).encode()
    assert b"--as NAME" in lockstitch(*words, stdin=data).stderr
    assert lockstitch(*words, "--as", "piped", stdin=data).returncode == 0
    with open_store(url) as store:
        assert store.read("piped").turn.state == "ended"


def test_a_folder_comes_in_at_once(here: Run, tmp_path: Path) -> None:
    folder = tmp_path / "projects"
    folder.mkdir()
    for number in range(3):
        text = claude.healthy().replace("4ee0c484", f"4ee0c48{number}")
        (folder / f"s{number}.jsonl").write_text(text, encoding="utf-8")
    cut = claude.line(1, None, "user", "Build") + claude.line(2, 1, "assistant", claude.call("c9"))
    (folder / "cut.jsonl").write_text(cut, encoding="utf-8")
    url = f"sqlite:///{tmp_path}/agent.db"
    found = imported(here, folder, url)
    assert sorted(one["unknown"] for one in found) == [0, 0, 0, 1]
    assert len({one["session"] for one in found}) == 4
    assert b"--as is for one session" in here("import", folder, url, "--as", "x").stderr
    done = here("import", folder, url)
    assert done.stderr.count(b"had been imported before") == 4


def test_threads_of_a_graph_come_in(here: Run, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.db"
    making = Making(str(path))
    making.all()
    url = f"sqlite:///{tmp_path}/agent.db"
    done = here("import", path, url, "--json")
    found = json.loads(done.stdout)["sessions"]
    good = [one for one in found if "error" not in one]
    assert good
    assert {one["dialect"] for one in good} == {"langchain"}
    with open_store(url) as store:
        for one in good:
            request = store.read(one["session"]).request("langchain")
            assert faults("langchain", request) == []


def test_what_cannot_come_in(here: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agent.db"
    open_store(url).close()
    assert here("import", url).returncode == 2
    done = here("import", url, f"sqlite:///{tmp_path}/other.db")
    assert done.returncode == 2
    assert b"lockstitch migrate" in done.stderr
    assert here("import", tmp_path / "nothing.jsonl", url).returncode == 2
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"role": "user", "content": "Hello"}]))
    done = here("import", path, tmp_path / "nowhere", "-d", "anthropic")
    assert done.returncode == 2
    assert b"not a store; write its address" in done.stderr


@pytest.mark.parametrize("held", ['[{"role": "user", "content": "Hello"}]', "[7]", '"text"'])
@pytest.mark.parametrize("store", ["sqlite:///{}/new.db", "jsonl:///{}/new"])
def test_a_list_that_is_refused_leaves_no_store(
    here: Run, tmp_path: Path, held: str, store: str
) -> None:
    path = tmp_path / "list.json"
    path.write_text(held)
    assert here("import", path, store.format(tmp_path)).returncode == 2
    assert [one.name for one in tmp_path.iterdir()] == ["list.json"]
