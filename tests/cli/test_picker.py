"""The list that a person picks from: what keys do to it, and that it fits every terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.cli.picker import OPEN, QUIT, SessionList, TextPage, keys_in
from lockstitch.cli.terminal import text_width
from lockstitch.sessions import Summary as SessionSummary

NOW = 1_000_000.0
KEYS = ["up", "down", "enter", "escape", "erase", "page down", "end", "home", *"jk/b19 xé"]


def listed(count: int = 30, **fields: str) -> SessionList:
    found = SessionList("/home/ada", NOW)
    for number in range(count):
        level = "broken" if number % 3 == 0 else "healthy"
        state = "2 tool calls without results" if level == "broken" else "healthy"
        one = SessionSummary(
            f"/home/ada/.claude/{number}.jsonl",
            program="Claude Code",
            session=f"id-{number}",
            title=f"Session number {number}",
            project="/home/ada/src/app",
            updated=NOW - 3600 * number,
            level=level,
            state=state,
        )
        for name, value in fields.items():
            setattr(one, name, value)
        found.add(one)
    found.is_complete = True
    return found


def pressed(found: SessionList, *keys: str) -> str:
    found.draw(80, 24)
    return [found.key(key) for key in keys][-1]


def test_arrows_and_letters_move_the_cursor() -> None:
    found = listed()
    assert pressed(found, "down", "j", "j", "up") == ""
    assert found.chosen() is found.found[2]
    pressed(found, "G")
    assert found.chosen() is found.found[-1]
    pressed(found, "k", "k", "k", "g", "up")
    assert found.chosen() is found.found[0]


def test_a_digit_opens_the_session_with_that_number_on_the_screen() -> None:
    found = listed()
    assert pressed(found, "3") == OPEN
    assert found.chosen() is found.found[2]
    pressed(found, "G")
    found.draw(80, 24)
    assert "1 Session number 20" in found.draw(80, 24)[2]
    assert found.key("1") == OPEN
    assert found.chosen() is found.found[20]


def test_words_narrow_the_list_down_in_any_order_and_case() -> None:
    found = listed()
    pressed(found, "/", *"NUMBER session 17", "enter")
    assert [one.session for one in found.shown()] == ["id-17"]
    assert found.draw(80, 24)[-1].endswith("[/NUMBER session 17]")
    # letters are letters while words are typed
    assert pressed(found, "/", "q") == ""
    assert found.shown() == []
    assert pressed(found, "escape") == ""
    assert len(found.shown()) == 30
    assert pressed(found, "q") == QUIT


def test_only_what_is_broken() -> None:
    found = listed()
    pressed(found, "b")
    assert {one.level for one in found.shown()} == {"broken"}


def test_sessions_of_sub_agents_are_not_listed() -> None:
    found = SessionList("", NOW)
    found.add(SessionSummary("agent-1.jsonl", is_aside=True))
    assert found.found == []


@pytest.mark.parametrize("width", [80, 100, 40, 20])
def test_every_line_fits(width: int) -> None:
    found = listed(title="漢字 " * 40 + "\x1b[31m\u202e", project="/home/ada/" + "x" * 90)
    screen = found.draw(width, 24)
    assert len(screen) == 24
    assert all(text_width(line) <= width for line in screen)
    assert not any("\x1b" in line or "\u202e" in line for line in screen)


@given(st.lists(st.sampled_from(KEYS)), st.integers(20, 120), st.integers(6, 40))
def test_no_keys_and_no_size_bring_it_off_balance(keys: list[str], width: int, height: int) -> None:
    found = listed(12)
    for key in keys:
        screen = found.draw(width, height)
        assert len(screen) == height
        found.key(key)
        chosen = found.chosen()
        assert chosen is None or chosen in found.shown()


@given(st.lists(st.sampled_from(KEYS)), st.integers(0, 60), st.integers(6, 40))
def test_a_page_of_text_scrolls_within_its_ends(keys: list[str], count: int, height: int) -> None:
    page = TextPage([f"line {number}" for number in range(count)], "[q]uit")
    for key in keys:
        screen = page.draw(80, height)
        assert len(screen) == height
        page.key(key)
    last = page.draw(80, height)
    assert count == 0 or last[0].startswith("line") or page.top == 0


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("\x1b[A\x1bOB\x1b[5~", ["up", "down", "page up"]),
        ("\x1b", ["escape"]),
        ("\x1b[1;5Cq", ["q"]),
        ("a\x7f\r\x15", ["a", "erase", "enter", "clear"]),
        ("é漢", ["é", "漢"]),
        ("\x1b\x1b[A", ["escape", "up"]),
    ],
)
def test_keys_are_told_apart(text: str, keys: list[str]) -> None:
    assert [key for key in keys_in(text) if key] == keys
