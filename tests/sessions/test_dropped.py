"""``show --dropped``: the turns that are stored, but that a resume would not send."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.formats.codex_files import Rollout
from tests.formats.gemini_files import Chat
from tests.formats.pi_files import Session
from tests.formats.stored import dumped, joined
from tests.sessions import claude, homes
from tests.sessions.command import run


def test_turns_of_a_second_window(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(homes.two_windows(), encoding="utf-8")
    done = run("show", path, "--dropped")
    assert done.returncode == 0
    assert "2 messages from line 3 on: written by a second window" in done.stdout
    assert "a repair brings them back" in done.stdout.replace("\n", " ")
    assert "The other window asks." in done.stdout
    assert "This window" not in done.stdout
    assert run("repair", "--yes", path).returncode == 0
    again = run("show", path, "--dropped")
    assert again.stdout == "A resume sends everything that is stored here.\n"


def test_what_was_rewound_is_shown_as_left_on_purpose(tmp_path: Path) -> None:
    lines = [
        claude.line(1, None, "user", "Build it, please."),
        claude.line(2, 1, "assistant", claude.said("Built.")),
        claude.line(3, 2, "user", "A road not taken."),
        claude.line(4, 3, "assistant", claude.said("Indeed.")),
        claude.line(20, 2, "user", "The road taken.", timestamp=claude.time(60)),
        claude.line(21, 20, "assistant", claude.said("Good."), timestamp=claude.time(61)),
    ]
    path = tmp_path / "session.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    shown = run("show", path, "--dropped").stdout
    assert "A road not taken." in shown
    assert "left behind on purpose, by a rewind; a repair leaves them alone" in shown.replace(
        "\n", " "
    )


def _codex() -> bytes:
    book = Rollout("dropped", paginated=True)
    book.work("Read the settings.", "settings")
    book.add("session_meta", **book.meta())
    book.work("Go on.", "more")
    return joined([dumped(line) for line in book.lines])


def _pi() -> bytes:
    tree = Session("dropped")
    tree.work("Read the settings.", "settings")
    tree.lines[-1] = {**tree.lines[-1], "parentId": "nowhere"}
    tree.work("Go on.", "more")
    return joined([dumped(line) for line in tree.lines])


def _gemini() -> bytes:
    chat = Chat("dropped")
    chat.work("Read the settings.", "settings")
    chat.lines.append({"$rewindTo": "nowhere"})
    chat.work("Go on.", "more")
    return joined([dumped(line) for line in chat.lines])


@pytest.mark.parametrize(
    ("place", "data"),
    [
        (".codex/sessions/2026/09/01/rollout-2026-09-01T10-00-00-x.jsonl", _codex()),
        (".pi/agent/sessions/--x--/one.jsonl", _pi()),
        (".gemini/tmp/x/chats/session-1.jsonl", _gemini()),
    ],
    ids=["codex", "pi", "gemini-cli"],
)
def test_other_programs(tmp_path: Path, place: str, data: bytes) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    found = json.loads(run("check", path, "--json").stdout)["sessions"][0]
    assert found["unreachable"] == 1, found
    shown = run("show", path, "--dropped").stdout
    assert "Read the settings." in shown
    assert "Go on." not in shown
