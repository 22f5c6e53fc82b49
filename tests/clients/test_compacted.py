"""Sessions compacted by the command, resumed by the real clients: the summary, then the tail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockstitch.journal.projection import SUMMARY
from tests.formats.campaign import Home
from tests.formats.claude_files import Book
from tests.formats.codex_files import Rollout
from tests.formats.stored import dumped, joined

from .conftest import EVERYTHING, needs
from .drive import ClaudeCode, Client, Codex, Place, Resumed
from .reading import of_items, of_messages

SLICE = ("2.1.325", "2.1.50")
REST = ("1.0.100", "2.0.50", "2.1.112", "2.1.197")
VERSIONS = (*SLICE, *(REST if EVERYTHING else ()))
OWN = SLICE if EVERYTHING else SLICE[:1]
LAYOUTS = {"2.1.325": "tree", "2.1.197": "tree", "2.1.112": "tree"}
TURNS = 8
BUDGET = "2500"
LONG = "and this is a long request " * 40
CODEX = Codex("0.166.0")


def claude_book(version: str) -> Book:
    book = Book("compact", LAYOUTS.get(version, "linear"), version=version)
    for turn in range(TURNS):
        book.work(f"Task {turn} {LONG}", f"first-{turn}", f"second-{turn}")
    return book


def last_turn(book: Book) -> list[str]:
    """The marks of the last turn: the prompt, a text, two calls, two results, the last words."""
    return book.marks[-7:]


def compacted(place: Place, path: Path, *more: str) -> Home:
    home = Home(place.home)
    ran = home.run("compact", "--yes", "--budget", BUDGET, path, *more)
    assert ran.status == 0, ran.err
    checked = home.run("check", path)
    assert checked.status == 0, checked.out
    return home


def put(client: Client, place: Place, name: str, data: bytes) -> Path:
    client.put(place, {name: data})
    return client.folder(place.home, place.work) / name


def told(after: Resumed) -> None:
    assert after.is_accepted, (after.said, after.refused)


@needs
@pytest.mark.parametrize("version", VERSIONS)
def test_claude_code_sends_the_summary_and_the_tail(version: str, tmp_path: Path) -> None:
    client, place, book = ClaudeCode(version), Place(tmp_path), claude_book(version)
    path = put(client, place, f"{book.session}.jsonl", joined(book.lines()))
    compacted(place, path)
    after = client.resume(place, book.session)
    told(after)
    messages = after.requests[-1]["messages"]
    assert SUMMARY in first_words(messages)
    said = of_messages(without_summary(messages))
    assert [mark for mark in said.marks if mark in book.marks] == last_turn(book)
    assert len(said.calls) == len(said.results) == 2


@needs
@pytest.mark.parametrize("version", SLICE)
def test_claude_code_goes_on_after_two_compactions(version: str, tmp_path: Path) -> None:
    client, place, book = ClaudeCode(version), Place(tmp_path), claude_book(version)
    path = put(client, place, f"{book.session}.jsonl", joined(book.lines()))
    compacted(place, path)
    compacted(place, path, "--budget", "1400")
    after = client.resume(place, book.session)
    told(after)
    messages = after.requests[-1]["messages"]
    assert json.dumps(messages).count(SUMMARY) == 1
    said = of_messages(without_summary(messages))
    assert [mark for mark in said.marks if mark in book.marks] == last_turn(book)


@needs
@pytest.mark.parametrize("version", VERSIONS)
def test_claude_code_goes_on_in_the_middle_of_a_long_turn(version: str, tmp_path: Path) -> None:
    client, place = ClaudeCode(version), Place(tmp_path)
    book = Book("turn", LAYOUTS.get(version, "linear"), version=version)
    book.ask("Do all of it.")
    prompt = book.last
    for step in range(12):
        turn = book.say(f"Step {step}. {LONG}", f"one-{step}", f"two-{step}")
        for call in turn.calls:
            book.answer(call, "exit status 0")
    book.say("All is done.")
    path = put(client, place, f"{book.session}.jsonl", joined(book.lines()))
    compacted(place, path)
    after = client.resume(place, book.session)
    told(after)
    said = of_messages(without_summary(after.requests[-1]["messages"]))
    marks = [mark for mark in said.marks if mark in book.marks]
    assert marks[0] == prompt
    assert marks[1:] == book.marks[1 - len(marks) :]
    assert len(said.calls) == len(said.results) > 0


@needs
def test_codex_sends_the_summary_and_the_tail(tmp_path: Path) -> None:
    place, rollout = Place(tmp_path), Rollout("compact", paginated=True)
    for turn in range(TURNS):
        rollout.work(f"Task {turn} {LONG}", f"first-{turn}")
    data = joined([dumped(line) for line in rollout.lines])
    data = data.replace(b'"model_provider":"openai"', b'"model_provider":"local"')
    path = put(CODEX, place, f"rollout-2026-09-01T10-00-00-{rollout.session}.jsonl", data)
    compacted(place, path)
    after = CODEX.resume(place, rollout.session)
    told(after)
    items = after.requests[-1]["input"]
    summaries = [n for n, item in enumerate(items) if SUMMARY in json.dumps(item)]
    assert len(summaries) == 1
    said = of_items(items[summaries[0] + 1 :])
    assert [mark for mark in said.marks if mark in rollout.made] == rollout.made[-4:]
    assert len(said.calls) == len(said.results) == 1


@needs
@pytest.mark.parametrize(
    "client", [*map(ClaudeCode, OWN), CODEX], ids=lambda client: str(client.version)
)
def test_a_session_that_the_client_wrote_itself(client: Client, tmp_path: Path) -> None:
    place = Place(tmp_path)
    client.start(place, client.shell_call("seq 1 400"))
    for _ in range(3):
        ((session, path),) = client.sessions(place.home)
        told(client.resume(place, session))
    whole = measured(place, path)
    compacted(place, path, "--budget", str(whole - 50))
    after = client.resume(place, session)
    told(after)
    # the newest version tells of the surroundings again, behind the prompt
    request = place.bodies()[-1]
    sent = json.dumps(request.get("messages") or request["input"])
    assert sent.count(SUMMARY) == 1
    assert "seq 1 400" not in sent.partition(SUMMARY)[2].partition("Go on from here")[2]


def measured(place: Place, path: Path) -> int:
    """The tokens of a session, as the command counts them."""
    ran = Home(place.home).run("compact", path, "--json", "--diff")
    tokens: int = json.loads(ran.out)["before"]["tokens"]
    return tokens


def first_words(messages: list[dict[str, Any]]) -> str:
    return json.dumps(messages[0])


def without_summary(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without the block of the summary, which quotes what the user said."""
    kept = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        rest = [block for block in blocks if SUMMARY not in json.dumps(block)]
        if rest:
            kept.append({**message, "content": rest})
    return kept
