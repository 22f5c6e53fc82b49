"""What check and scan print for programs and services, and which findings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from lockstitch.cli import COMMANDS, command

PROJECT = Path(__file__).parents[2]
USER = {"role": "user", "content": "Go on."}


def calls(count: int) -> list[Any]:
    """A conversation with so many calls that nothing answers, in several rounds."""
    turns = []
    for number in range(count):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "bash", "input": {}}
        turns += [USER, {"role": "assistant", "content": [call]}]
    return [*turns, USER]


@pytest.mark.parametrize("name", ["check", "scan"])
def test_github_annotations(lockstitch: Any, saved: Any, broken: Any, name: str) -> None:
    path = saved(broken, "odd, name: 100%.json")
    done = lockstitch(name, path, "--output-format", "github")
    [line] = done.stdout.decode().splitlines()
    file = str(path).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    title = "title=LS101 orphan-call"
    assert line.startswith(f"::error file={file},{title}::messages.1.content.0: call toolu_1")
    assert done.returncode == 1


def test_github_names_the_line_of_a_file_of_lines(lockstitch: Any, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    tools = [{"name": "bash", "input_schema": {"type": "object"}}]
    bodies = [{"system": "s", "tools": tools, "messages": calls(n)} for n in (0, 1)]
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    words = ["check", path, "--dialect", "anthropic", "--output-format", "github"]
    [line] = lockstitch(*words).stdout.decode().splitlines()
    assert ",line=2,title=LS101" in line


@pytest.mark.parametrize("name", ["check", "scan"])
def test_junit(lockstitch: Any, saved: Any, broken: Any, clean: Any, name: str) -> None:
    saved(broken, "broken & <odd> \x1b.json")
    saved(clean, "clean.json")
    folder = saved(b"\xff\xfe[{", "torn.json").parent
    done = lockstitch(name, *sorted(folder.iterdir()), "--output-format", "junit")
    tree = ET.fromstring(done.stdout)  # noqa: S314 - our own
    [suite] = tree
    cases = {Path(case.get("name", "")).name: case for case in suite}
    [failure] = cases["broken & <odd> \\x1b.json"]
    assert (failure.tag, failure.get("type")) == ("failure", "LS101")
    assert "call toolu_1 has no result" in str(failure.text)
    assert list(cases["clean.json"]) == []
    if name == "check":  # for scan it is a file of no program that is known
        assert [child.tag for child in cases["torn.json"]] == ["error"]
        assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert done.returncode == 2


def codes(done: Any) -> list[str]:
    [session] = json.loads(done.stdout)["sessions"]
    return [found["code"] for found in session["findings"]]


@pytest.mark.parametrize("name", ["check", "scan"])
@pytest.mark.parametrize(
    ("words", "expected", "status"),
    [
        ([], ["LS101", "LS404"], 1),
        (["--select", "LS1"], ["LS101"], 1),
        (["--select", "ls404, LS2"], ["LS404"], 1),
        (["--select", "orphan-call"], ["LS101"], 1),
        (["--ignore", "LS1,LS4"], [], 0),
        (["--select", "LS1,LS4", "--ignore", "LS40"], ["LS101"], 1),
    ],
)
def test_select_and_ignore(
    lockstitch: Any, saved: Any, name: str, words: list[str], expected: list[str], status: int
) -> None:
    path = saved([*calls(1), {"role": "assistant", "content": []}, USER])
    done = lockstitch(name, path, *words, "--json")
    assert (codes(done), done.returncode) == (expected, status)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--select", "LS19"], "--select: no code begins with 'LS19'."),
        (["--ignore", "orphan-cal"], "Did you mean orphan-call?"),
        (["--select", ","], "--select needs codes"),
        (
            ["--json", "--output-format", "junit"],
            "--json and --output-format junit cannot be combined",
        ),
        (["--statistics", "--output-format", "github"], "--statistics and --output-format github"),
    ],
)
def test_contradictions(lockstitch: Any, words: list[str], said: str) -> None:
    done = lockstitch("check", *words, stdin=b"[]")
    assert done.returncode == 2
    assert said in done.stderr.decode()


@pytest.mark.parametrize("name", ["check", "scan"])
def test_statistics(lockstitch: Any, saved: Any, name: str) -> None:
    saved(calls(3), "a.json")
    folder = saved(calls(1), "b.json").parent
    paths = sorted(folder.iterdir())
    lines = lockstitch(name, *paths, "--statistics").stdout.decode().splitlines()
    assert lines == ["     4  LS101  orphan-call: a tool call has no result"]
    document = json.loads(lockstitch(name, *paths, "--statistics", "--json").stdout)
    row = {"code": "LS101", "name": "orphan-call", "findings": 4, "sessions": 2}
    assert document == {"version": 1, "statistics": [row]}


def test_findings_that_are_alike_are_listed_ten_times(lockstitch: Any, saved: Any) -> None:
    path = saved(calls(25))
    lines = lockstitch("check", path).stdout.decode().splitlines()
    assert sum("error LS101" in line for line in lines) == 10
    last = "15 more LS101 like these, the last at messages.49.content.0; -v lists them all"
    assert lines[-1].endswith(last)
    everything = lockstitch("check", path, "-v").stdout.decode()
    assert everything.count("error LS101") == 25
    assert len(codes(lockstitch("check", path, "--json"))) == 25


def with_json() -> list[str]:
    """The commands that print JSON when asked, but for those that run until they are stopped."""
    flags = {name: {f for o in command(name).options for f in o.flags} for name in COMMANDS}
    endless = {"provider", "demo", "proxy", "run", "watch", "ui"}
    return [name for name in COMMANDS if "--json" in flags[name] and name not in endless]


@pytest.mark.parametrize("name", with_json())
@pytest.mark.parametrize("words", [["nosuch.db"], ["nosuch.db", "x.db"], ["--nonsense"], []])
def test_a_failure_is_json_where_json_was_asked_for(
    lockstitch: Any, tmp_path: Path, name: str, words: list[str]
) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = lockstitch(name, *words, "--json", cwd=tmp_path, env=environment)
    assert json.loads(done.stdout)["version"] == 1
    assert done.returncode in (0, 2)
    assert done.returncode == 0 or "error" in done.stdout.decode()


@pytest.mark.parametrize(
    ("dialect", "meant"),
    [
        ("antropic", "anthropic"),
        ("openai", "openai-chat"),
        ("claude", "anthropic"),
        ("openai-chat:mistrl", "openai-chat:mistral"),
    ],
)
def test_a_dialect_that_is_nearly_one(lockstitch: Any, dialect: str, meant: str) -> None:
    said = lockstitch("check", "-d", dialect, stdin=b"[]").stderr.decode()
    expected = f"--dialect: unknown dialect '{dialect}'. Did you mean {meant}?\n"
    assert said == f"lockstitch: {expected}"


def test_a_list_whose_dialect_cannot_be_told_names_the_option(lockstitch: Any) -> None:
    said = lockstitch("check", stdin=json.dumps([USER]).encode()).stderr.decode()
    assert "--dialect" in said


def test_an_id_that_may_mean_several_names_them(lockstitch: Any, tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "projects" / "-home-ada"
    folder.mkdir(parents=True)
    ids = [f"4ee0c484-0000-4000-8000-00000000000{number}" for number in range(7)]
    for name in ids:
        (folder / f"{name}.jsonl").write_text('{"type":"user","sessionId":"x"}\n')
    said = lockstitch("show", "4ee0", env={**os.environ, "HOME": str(tmp_path)}).stderr.decode()
    listed = ", ".join([*ids[:5], "and 2 more"])
    assert f"is the beginning of 7 session ids, {listed}: type more of it" in said


def test_the_pre_commit_hook(saved: Any, broken: Any, clean: Any, tmp_path: Path) -> None:
    [hook] = yaml.safe_load((PROJECT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    [program, *words] = hook["entry"].split()
    assert (program, hook["language"]) == ("lockstitch", "python")
    assert re.search(hook["files"], "sessions/one.jsonl")
    start = [sys.executable, "-m", "lockstitch", *words]
    for messages, status in ((broken, 1), (clean, 0)):
        lines = "".join(json.dumps(message) + "\n" for message in messages)
        path = saved(lines.encode(), "list.jsonl")
        done = subprocess.run(
            [*start, path], cwd=tmp_path, capture_output=True, check=False, timeout=600
        )
        assert done.returncode == status
        assert (b"LS101" in done.stdout) == bool(status)


@pytest.mark.parametrize(
    ("inputs", "status", "said"),
    [
        ({}, 1, "::error file=a b.json,title=LS101"),
        ({"ignore": "LS1"}, 0, ""),
        ({"select": "LS2", "output-format": "text", "dialect": "anthropic"}, 0, ""),
    ],
)
def test_the_action(
    tmp_path: Path, broken: Any, inputs: dict[str, str], status: int, said: str
) -> None:
    action = yaml.safe_load((PROJECT / "action.yml").read_text("utf-8"))
    (tmp_path / "a b.json").write_text(json.dumps(broken))
    (tmp_path / "lockstitch").write_text(f'#!/bin/sh\nexec {sys.executable} -m lockstitch "$@"\n')
    (tmp_path / "lockstitch").chmod(0o755)
    values = {name: field.get("default", "") for name, field in action["inputs"].items()}
    values |= {"targets": "a b.json\n", **inputs}
    step = action["runs"]["steps"][-1]
    given = {
        key: values[re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", source)[1]]  # type: ignore[index]
        for key, source in step["env"].items()
    }
    assert set(values) == {source[11:-3] for source in step["env"].values()}
    # as GitHub runs a step whose shell is bash
    done = subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=tmp_path,
        env={**os.environ, **given, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == status, done.stderr
    assert done.stdout.startswith(said)
