"""No command shows the secret of an address, whatever is wrong with it, nor breaks over one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lockstitch
from tests.formats.langgraph_postgres import stage
from tests.postgres_server import shared
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


WORKING = [
    ["check"],
    ["check", "--json"],
    ["check", "--format", "sarif"],
    ["scan"],
    ["scan", "--json"],
    ["show"],
    ["show", "--session", "{session}"],
    ["show", "--session", "nobody"],
    ["export", "--session", "{session}"],
    ["checkpoints", "--session", "{session}"],
    ["checkpoints", "--session", "{session}", "--json"],
    ["compact", "--session", "{session}", "-o", "x"],
    ["compact", "--session", "{session}", "--diff"],
    ["compact", "--session", "{session}", "--diff", "--json"],
    ["search", "hello", "TARGET"],
    ["search", "hello", "TARGET", "--json"],
    ["import", "TARGET", "sqlite:///new.db"],
    ["migrate", "TARGET", "sqlite:///copy.db", "--json"],
    ["migrate", "sqlite:///copy.db", "TARGET"],
    ["repair", "--diff"],
    ["repair", "-o", "x"],
    ["repair", "--yes", "--session", "{session}"],
    ["undo", "--list"],
    ["undo", "--list", "--json"],
    ["undo", "--json"],
    ["repair", "--yes", "--json"],
    ["undo"],
    ["repair", "--yes", "--shard", "1/1"],
    ["retain", "--older-than", "30d", "--json"],
    ["vacuum", "--json"],
    ["fork", "TARGET", "new", "--session", "{session}"],
    ["rewind", "--session", "{session}", "--json"],
    ["delete", "--session", "{session}", "--yes", "--json"],
]


@pytest.mark.parametrize("holds", ["a store", "threads"])
def test_addresses_that_lead_somewhere(holds: str) -> None:
    """The server takes any password; every command is given one, and says nothing of it."""
    dsn = shared().fresh()
    session = stage.BROKEN
    if holds == "threads":
        stage.templates(dsn)
    else:
        with lockstitch.open(dsn) as store, store.session("s") as writer:
            writer.say("hello")
        session = "s"
    place = dsn.replace("postgres@", f"postgres:{SECRET}@")
    for address in (f"{place}?sslpassword={SECRET}", place.replace(f":{SECRET}", f":a?{SECRET}#")):
        for words in WORKING:
            given = [one.format(session=session).replace("TARGET", address) for one in words]
            given = given if "TARGET" in words else [given[0], address, *given[1:]]
            done = stage.run(*given)
            assert SECRET not in done.out + done.err, (given, done)
            assert done.status in {0, 1, 2}
