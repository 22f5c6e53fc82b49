"""Summaries without a model: bounded, the same every time, and never nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstitch.compaction.ladder import (
    SpokenLine,
    accept_summary,
    digest,
    key_of,
    prompt,
    split_parts,
    spoken_lines,
)
from lockstitch.compaction.plan import ROOM_LEAST, estimate
from lockstitch.journal.projection import SUMMARY
from lockstitch.journal.state import fold
from lockstitch.session.store import Store
from tests.compaction.generated import sessions
from tests.compaction.talks import BUDGET, grown
from tests.journal.sessions import Session
from tests.session.talk import says

SOME = settings(max_examples=max(1, settings().max_examples // 2))
FEWER = settings(max_examples=max(1, settings().max_examples // 4))
WHO = st.sampled_from(["user", "assistant", "call", "result"])
TEXTS = st.text(max_size=60) | st.sampled_from(
    ["why? " * 400, "a/b.py is broken, is it not?\n", ""]
)
ARGUMENTS = st.none() | st.dictionaries(
    st.sampled_from(["path", "file_path", "command", "n", ""]), TEXTS | st.integers(), max_size=3
)
LINES = st.lists(
    st.builds(
        SpokenLine,
        st.integers(1, 99),
        WHO,
        TEXTS,
        st.sampled_from(["", "read"]),
        ARGUMENTS,
        st.booleans(),
    ),
    max_size=40,
)


def count(text: str) -> int:
    return estimate([{"role": "user", "content": text}])


@SOME
@given(lines=LINES, previous=TEXTS, room=st.sampled_from([ROOM_LEAST, 100, 500, 2000, 100_000]))
def test_it_is_bounded_the_same_and_never_empty(
    lines: list[SpokenLine], previous: str, room: int
) -> None:
    text = digest(lines, previous, room, count)
    assert count(text) <= room
    assert text == digest(list(lines), previous, room, count)
    assert text.strip()
    if room == 100_000:
        for line in lines:
            if line.who == "user":
                assert line.text.strip() in text, "a request is not there verbatim"
        assert previous in text


@FEWER
@given(session=sessions(wild=True))
def test_of_any_session_it_says_something(session: Session) -> None:
    view = fold(session.records).view
    lines = spoken_lines(view, view.items, session.blobs)
    for room in (ROOM_LEAST, 5000):
        text = digest(lines, "", room, count)
        assert text.strip()
        assert count(text) <= room


def test_it_has_requests_files_errors_and_questions() -> None:
    lines = [
        SpokenLine(1, "user", "Fix the parser, and do not touch the tests." + " Really." * 700),
        SpokenLine(2, "call", "", "edit", {"file_path": "src/parser.py"}),
        SpokenLine(2, "result", "edited", "edit"),
        SpokenLine(
            3, "call", "", "bash", {"command": "pytest tests/unit/test_x.py -q && cat ./a/b.txt"}
        ),
        SpokenLine(3, "result", "1 failed: expected ]", "bash", failed=True),
        SpokenLine(4, "assistant", "The parser is fixed. One test fails still."),
        SpokenLine(5, "user", "Why?"),
        SpokenLine(6, "assistant", "It expects a bracket. Shall I change the test?"),
    ]
    text = digest(lines, "Before: <OLD>", 10_000, count)
    assert lines[0].text in text
    for part in ("<OLD>", "src/parser.py", "tests/unit/test_x.py", "./a/b.txt", "expected ]"):
        assert part in text
    assert "Shall I change the test?" in text.rpartition("##")[2]
    tight = digest(lines, "Before: <OLD>", 200, count)
    assert "Fix the parser" in tight
    assert count(tight) <= 200


def test_older_requests_are_shortened_first() -> None:
    lines = [SpokenLine(n, "user", f"<B{n}> " + "word " * 200 + f"<E{n}>") for n in range(10)]
    text = digest(lines, "", 2400, count)
    ends = [n for n in range(10) if f"<B{n}> " + "word " * 200 in text]
    assert ends
    assert ends == list(range(ends[0], 10))
    assert all(f"<B{n}>" in text for n in range(10))


def test_only_calls_without_a_word_are_told_as_well() -> None:
    lines = [SpokenLine(1, "call", "", "spin", {"n": 1}), SpokenLine(1, "result", "", "spin")] * 3
    assert "spin (3)" in digest(lines, "", 100, count)


def test_it_stands_in_a_user_turn_and_says_that_it_is_data(store: Store) -> None:
    grown(store)
    with store.session("s") as session:
        session.compact(budget=BUDGET)
        assert "not instructions" in SUMMARY
        first = session.request("openai-chat")[0]
        assert first["role"] == "user"
        assert str(first["content"]).count(SUMMARY) == 1
        for dialect in ("anthropic", "gemini", "bedrock"):
            first = session.request(dialect)[0]
            assert first["role"] == "user"
            assert SUMMARY in str(first)
        assert SUMMARY in str(session.request("openai-responses")[0])
        assert session.request("openai-responses")[0]["role"] == "user"
        assert session.request("langchain")[0]["type"] == "human"


# What a model is asked ------------------------------------------------------------------------


@SOME
@given(lines=LINES, room=st.sampled_from([30, 100, 1000]))
def test_parts_are_bounded_and_say_everything(lines: list[SpokenLine], room: int) -> None:
    made = split_parts(lines, room, count)
    whole = "".join(made).replace("\n", "")
    for line in lines:
        if line.who != "result":
            assert line.text.replace("\n", "") in whole
    # what stands between two lines, and what is too short to be parted
    assert all(count(part) <= room * 1.2 + 20 for part in made)


def test_a_question_has_the_notes_so_far_and_names_itself() -> None:
    asked = prompt("User: go", "so far: <N>", 1000)
    assert asked.index("<notes>\nso far: <N>") < asked.index("<conversation>\nUser: go")
    assert "data" in asked
    assert key_of(asked) == key_of(prompt("User: go", "so far: <N>", 1000))
    assert key_of(asked) != key_of(prompt("User: go", "so far: <M>", 1000))
    assert key_of("half \ud83d")


def test_what_is_no_summary() -> None:
    good = "Requests: fix it. Done: the parser was fixed, with tests."
    assert accept_summary(f"  {good}\n", 100, count) == good
    bad = ["", " " * 99, "...", "API Error: 500 something went wrong, and will again, and again",
           "Error: the model is overloaded, please try again some minutes later",
           '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
           '{"error": {"message": "context length exceeded", "code": 400}}',
           "<!DOCTYPE html><html><body>Bad gateway, please try again later</body></html>",
           "I'm sorry, but I can't help with summarising this conversation.",
           "I cannot continue with this conversation, as it is too long.",
           "x" * 10_000, None, 7, b"Requests: fix it. Done: the parser was fixed."]  # fmt: skip
    assert [text for text in bad if accept_summary(text, 100, count) is not None] == []


def test_requests_stay_word_for_word_as_long_as_the_budget_has_room(store: Store) -> None:
    asked = [f"Question {n}: fix compute_{n} in src/file{n}.py, keep its name." for n in range(25)]
    with store.session("s") as session:
        for text in asked:
            session.say(text)
            session.record(says("anthropic", "done " + "so " * 1500))
        done = session.compact(budget=3000)
        assert (done.rung, done.after.tokens <= 3000) == ("digest", True)
        sent = str(session.request("anthropic"))
    assert [text for text in asked if text not in sent] == []


@pytest.mark.parametrize("room", range(300, 1300, 100))
def test_a_note_is_never_longer_than_what_it_stands_for(room: int) -> None:
    lines = [SpokenLine(n, "user", f"<{n}> " + "x" * (40 + n * 5)) for n in range(40)]
    text = digest(lines, "", room, count)
    assert count(text) <= room
    assert [
        int(found) for found in re.findall(r"…(\d+) characters…", text) if int(found) < 30
    ] == []
