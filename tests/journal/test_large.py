"""Large values: both ends of a text are what they are in the whole of it, and little is read."""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstitch
from lockstitch.journal.records import Large, text_ends

PIECES = st.sampled_from(
    ["a", "\n", "\\", '"', "\\\\n", "é", "漢", "😀", "\x01", "\u2028", "words and words ", "/"]
)
TEXTS = (
    st.lists(PIECES, min_size=1, max_size=60)
    .map("".join)
    .flatmap(lambda unit: st.integers(1, 80).map(lambda times: unit * times))
)


@given(text=TEXTS, head=st.integers(0, 300), tail=st.integers(0, 300), ascii=st.booleans())
def test_both_ends_are_those_of_the_whole(text: str, head: int, tail: int, *, ascii: bool) -> None:  # noqa: A002
    raw = json.dumps(text, ensure_ascii=ascii).encode()
    found = text_ends(Large({"it": raw}), "it", head, tail)
    if found is not None and head + tail <= len(text):
        assert found == (text[:head], text[len(text) - tail :])


def test_both_ends_of_a_program_are_found() -> None:
    text = "    return 'é\\n' + \"x\"\n" * 50_000
    found = text_ends(Large({"it": msgspec.json.encode(text)}), "it", 6666, 3334)
    assert found == (text[:6666], text[-3334:])


@pytest.mark.parametrize("raw", [b"null", b'{"a": "b"}', b"[1]", b'"x', b""])
def test_what_is_no_text_has_no_ends(raw: bytes) -> None:
    assert text_ends(Large({"it": raw}), "it", 3, 3) is None


RESULT = "\n".join(f"line {number} of a log" for number in range(50_000))


def _filled(store: Any, count: int) -> None:
    with store.session("s") as session:
        for number in range(count):
            session.say(f"question {number}")
            call = {"type": "tool_use", "id": f"c{number}", "name": "log", "input": {}}
            session.record({"role": "assistant", "content": [call]}, "anthropic")
            session.run_tools({"log": lambda n=number: f"{n}{RESULT}{n}"})
            session.record(
                {"role": "assistant", "content": [{"type": "text", "text": "done"}]}, "anthropic"
            )
        session.say("and now?")


@pytest.mark.parametrize("dialect", ["anthropic", "bedrock"])
def test_a_request_of_far_too_much_reads_little_of_it(tmp_path: Path, dialect: str) -> None:
    with lockstitch.open(f"sqlite:///{tmp_path}/s.db") as store:
        _filled(store, 36)
        with store.session("s") as session:
            tracemalloc.start()
            messages = session.request(dialect)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            sent = len(msgspec.json.encode(messages))
            assert lockstitch.check(messages, dialect) == []
            assert 36 * len(RESULT) > 32 << 20
            assert peak < 4 * sent < 20_000_000
            text = json.dumps(messages)
            assert text.count("bytes are left out here") == 36
            assert text.count("line 0 of a log") == text.count("line 49999 of a log") == 36
            session.say("go on")
            more = session.request(dialect)
            assert more == store.read("s").request(dialect)
            assert more[: len(messages) - 1] == messages[:-1]


def test_what_fits_goes_out_whole(tmp_path: Path) -> None:
    with lockstitch.open(f"sqlite:///{tmp_path}/s.db") as store:
        _filled(store, 3)
        messages = store.read("s").request("anthropic")
        assert messages[2]["content"][0]["content"] == f"0{RESULT}0"


def test_a_value_of_which_only_the_ends_are_sent_is_verified(tmp_path: Path) -> None:
    with lockstitch.open(f"sqlite:///{tmp_path}/s.db") as store:
        _filled(store, 36)
    with closing(sqlite3.connect(tmp_path / "s.db")) as base, base:
        base.execute(
            "update blobs set body = replace(body, 'line 777 ', 'line 778 ') where rowid = 9"
        )
    with lockstitch.open(f"sqlite:///{tmp_path}/s.db") as store:
        reader = store.read("s")
        with pytest.raises(lockstitch.Damaged, match="not what was written"):
            reader.request("anthropic")
