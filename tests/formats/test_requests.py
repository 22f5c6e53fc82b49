"""Files of which every line is a request: each is checked and repaired on its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from lockstitch.formats.plain import Requests
from tests.sessions import command

from .surgery import Json, joined, mend
from .test_plain import LISTS, anthropic, chat

FORM = Requests()
KEYS = {"openai-responses": "input", "gemini": "contents"}
WORDS = {"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hey."}]}


def requests(dialect: str, *answered: bool) -> list[Json]:
    key = KEYS.get(dialect, "messages")
    return [{key: LISTS[dialect](answered=one)} for one in answered]


@pytest.mark.parametrize("dialect", LISTS)
def test_each_line_is_one_request(dialect: str) -> None:
    values = requests(dialect, True, False, True)
    assert FORM.claims("x.jsonl", values)
    data = joined(*values).replace(b'"List."', b'"\\u004cist."')
    done = mend(FORM, data, name="x.jsonl")
    assert ("LS101" in done.codes, done.remaining) == (True, [])
    assert done.before.history.dialect == dialect
    before = data.split(b"\n")
    assert [done.lines[0], *done.lines[2:]] == [before[0], *before[2:]]
    assert b"\\u004cist." in done.lines[1]


def test_a_healthy_file_keeps_every_byte() -> None:
    data = joined(*requests("openai-chat", True, True), WORDS)
    done = mend(FORM, data)
    assert (done.codes, done.data) == ([], data)
    assert done.before.messages == 10


def test_the_same_request_again_is_no_damage() -> None:
    data = joined(*requests("anthropic", True), *requests("anthropic", True))
    assert mend(FORM, data).data == data


def test_a_torn_line_goes() -> None:
    data = joined(*requests("openai-chat", True, True))
    done = mend(FORM, data + b'{"messages": [{"role": "us')
    assert (done.codes, done.data) == (["LS601"], data)


@pytest.mark.parametrize(
    "values",
    [
        [WORDS, WORDS],
        [{"messages": chat(answered=True)}, {"messages": anthropic(answered=True)}],
        [{"messages": chat(answered=True)}, {"type": "response", "choices": []}],
        [{"messages": []}, {"messages": []}],
        [{"role": "user", "content": "Hi.", "messages": chat(answered=True)}],
        [],
    ],
    ids=["nothing tells", "two dialects", "not all", "empty", "messages", "none"],
)
def test_what_is_not_sure_is_not_claimed(values: list[Json]) -> None:
    assert not FORM.claims("x.jsonl", values)


def _run(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return command.run(*words, path)


def test_the_commands(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    values = requests("openai-chat", True, True, False)
    data = joined(*values)
    path.write_bytes(data)
    for words in (["check", "--json"], ["scan", "--json"]):
        done = _run(path, *words)
        [report] = json.loads(done.stdout)["sessions"]
        [finding] = report["findings"]
        assert (report["format"], done.returncode) == ("requests", 1)
        assert (finding["code"], finding["place"]) == ("LS101", "3.messages.1.tool_calls.0")
    done = _run(path, "check", "--dialect", "openai-chat")
    assert "log.jsonl:3.messages.1.tool_calls.0: error LS101 [*]" in done.stdout
    for words in (["heal"], ["export"]):
        done = _run(path, *words)
        assert done.returncode == 2
        assert "request on every line" in done.stderr
    assert path.read_bytes() == data
    assert _run(path, "repair", "--yes").returncode == 0
    assert path.read_bytes().splitlines()[:2] == data.splitlines()[:2]
    assert _run(path, "check").returncode == 0
    assert _run(path, "undo", "--yes").returncode == 0
    assert path.read_bytes() == data


def test_lines_that_tell_no_dialect_can_be_given_one(tmp_path: Path) -> None:
    path = tmp_path / "words.jsonl"
    path.write_bytes(joined(WORDS, WORDS))
    assert _run(path, "check").returncode == 2
    assert _run(path, "check", "--dialect", "openai-chat").returncode == 0
