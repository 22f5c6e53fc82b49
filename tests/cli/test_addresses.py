"""No command shows the secret of an address, whatever is wrong with it, nor breaks over one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.formats.langgraph_postgres import stage
from tests.unit.test_addresses import SECRET, SPELLINGS

# Nobody listens there, and nobody has to look the name up.
ADDRESSES = [
    *(re.sub(r"host\b(?!=)", "127.0.0.1:1", one, count=1) for one in SPELLINGS),
    "postgresql://[::1/db",
    "postgresql://[",
    "sqlite://[",
    "jsonl://[x]/y",
    "memory://[",
    "http://[",
    "[",
]
COMMANDS = [
    ["check"],
    ["check", "--json"],
    ["check", "--format", "langgraph"],
    ["check", "--output-format", "sarif"],
    ["scan"],
    ["scan", "--json"],
    ["show"],
    ["export"],
    ["repair", "--yes"],
    ["repair", "--yes", "--json"],
    ["undo"],
    ["undo", "--list"],
    ["undo", "--run", "migrate-x"],
    ["checkpoints"],
    ["rewind", "--to", "1"],
    ["delete", "--session", "s", "--yes"],
    ["retain", "--older-than", "1d"],
    ["vacuum"],
    ["compact"],
    ["heal"],
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_one_target(words: list[str]) -> None:
    for address in ADDRESSES:
        done = stage.run(words[0], address, *words[1:])
        assert SECRET not in done.out + done.err, address
        assert done.status == 2 or "--list" in words, (address, done)


@pytest.mark.parametrize("word", ["migrate", "import", "fork", "search"])
def test_two_targets(word: str, tmp_path: Path) -> None:
    Path("list.json").write_text("[]")
    other = {"migrate": "sqlite:///a.db", "import": "list.json", "fork": "x", "search": "words"}
    for address in ADDRESSES:
        for words in ([address, other[word]], [other[word], address]):
            if word == "search" and words[0] == address:
                continue  # these are the words to look for
            done = stage.run(word, *words)
            assert SECRET not in done.out + done.err, address
            assert done.status == 2, (words, done)
    assert SECRET not in " ".join(map(str, tmp_path.rglob("*")))
