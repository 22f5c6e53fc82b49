"""Sessions are found by what was said in them, in every store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstitch.errors import Damaged, UsageError
from lockstitch.journal.events import INLINE
from lockstitch.journal.queries import SearchWords
from lockstitch.session.store import Store
from lockstitch.stores.base import Backend
from tests.session.talk import DIALECTS, asks, says
from tests.stores.contract import Place

LONG = "filling words " * (INLINE // 10)


@pytest.fixture
def store(backend: Backend) -> Store:
    return Store(backend)


def test_the_user_the_model_and_the_tools_are_found(store: Store) -> None:
    with store.session("a") as session:
        session.say("Where is the Blue\nTeapot?")
        session.record(asks("anthropic", ("c1", "look", {}), text="Looking for the teapot."))
        session.run_tools({"look": lambda: "the teapot is GREEN"})
        session.record(says("anthropic", "There is none that is blue."))
    with store.session("b") as session:
        session.say(f"{LONG} a blue kettle")
    found = [(m.session, m.seq, m.who) for m in store.search("TEAPOT")]
    assert found == [("a", 1, "user"), ("a", 2, "assistant"), ("a", 4, "result")]
    (match,) = store.search("blue teapot")
    assert (match.seq, match.excerpt) == (1, "Where is the Blue Teapot?")
    assert match.at > 0
    (match,) = store.search("blue kettle")
    assert match.session == "b"
    assert match.excerpt.startswith("…")
    assert match.excerpt.endswith("a blue kettle")
    assert len(match.excerpt) < 200
    assert list(store.search("teapot kettle")) == []
    assert len(list(store.search("blue", limit=1))) == 1


@pytest.mark.parametrize("dialect", [d for d in DIALECTS if d not in {"bedrock", "langchain"}])
def test_replies_of_every_dialect_are_found(store: Store, dialect: str) -> None:
    with store.session("s") as session:
        session.say("Hello")
        session.record(says(dialect, "A purple \N{SNOWMAN} indeed."), dialect)
    assert [m.who for m in store.search("purple \N{SNOWMAN}")] == ["assistant"]


def test_letters_are_the_same_in_any_case_however_they_are_written(store: Store) -> None:
    with store.session("s") as session:
        session.say("STRASSE \N{KELVIN SIGN}elvin caf\N{LATIN SMALL LETTER E WITH ACUTE}")
        session.record(b'{"role":"assistant","content":[{"type":"text","text":"\\u0062lue"}]}',
                       "anthropic")  # fmt: skip
    for words in (
        "stra\N{LATIN SMALL LETTER SHARP S}e",
        "kelvin",
        "CAF\N{LATIN CAPITAL LETTER E WITH ACUTE}",
        "blue",
    ):
        assert len(list(store.search(words))) == 1, words


def test_content_blocks_are_found(store: Store) -> None:
    blocks: list[Any] = [
        {"type": "text", "text": "See the orange one"},
        {"type": "text", "text": "box"},
    ]
    with store.session("s") as session:
        session.say(blocks, dialect="anthropic")
    assert [m.excerpt for m in store.search("orange")] == ["See the orange one"]
    assert [m.seq for m in store.search("box orange")] == [1]


def test_a_reply_that_came_as_a_stream_is_found_once(store: Store) -> None:
    events = [
        {"type": "message_start", "message": {**says("anthropic"), "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0,
         "delta": {"type": "text_delta", "text": "a yellow bird"}},
        {"type": "content_block_stop", "index": 0},
    ]  # fmt: skip
    end = [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    with store.session("s") as session:
        session.say("Hello")
        with session.stream(iter([*events, *end]), "anthropic") as stream:
            list(stream)
        assert len(list(store.search("yellow bird"))) == 1
        session.say("Again")
        with session.stream(iter(events), "anthropic") as stream:
            list(stream)
        assert len(list(store.search("yellow bird"))) == 2


def test_what_is_no_speech_is_not_found(store: Store) -> None:
    with store.session("s") as session:
        session.describe("teapot", ["teapot"])
        session.note("teapot", "teapot")
        session.say("Hello")
    assert list(store.search("teapot")) == []
    assert list(store.search("said")) == []
    with pytest.raises(UsageError):
        store.search("  ")


def test_a_tag_narrows_it(store: Store) -> None:
    for name in ("a", "b"):
        with store.session(name) as session:
            session.say("A teapot")
            session.describe(tags=[name])
    assert [m.session for m in store.search("teapot", tag="b")] == ["b"]


@pytest.mark.parametrize("kind", ["sqlite"])
def test_compressed_records_are_found(kind: str, tmp_path: Path) -> None:
    with Place(kind, tmp_path) as place:
        place.url += "?compress=1"
        store = Store(place.open())
        with store.session("s") as session:
            session.say("filler " * 500 + " teapot")
            session.say(LONG + " kettle")
        assert [m.seq for m in store.search("teapot")] == [1]
        assert [m.seq for m in store.search("kettle")] == [2]


def test_damage_is_passed_by_and_said(tmp_path: Path) -> None:
    with Place("jsonl", tmp_path) as place:
        store = Store(place.open())
        for name in ("a", "b"):
            with store.session(name) as session:
                session.say("A teapot")
                session.say("Another one")
                session.say("A third")
        path = tmp_path / "sessions" / "b.jsonl"
        path.write_bytes(path.read_bytes().replace(b"Another", b"Bnother"))
        found: list[str] = []
        with pytest.raises(Damaged, match="lockstitch check"):
            found.extend(match.session for match in Store(place.open()).search("teapot"))
        assert sorted(found) == ["a", "b"]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"x":"A TeaPot"}', True),
        (b'{"x":"kettle"}', False),
        (b'{"x":"k\\u0061"}', True),
        ("\N{SNOWMAN}".encode(), True),
    ],
)
def test_the_quick_look_is_never_wrong_about_no(raw: bytes, expected: bool) -> None:
    assert SearchWords("teapot").may_be_in(raw) is expected
