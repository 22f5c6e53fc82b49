"""A home directory with sessions of every program, some of them broken, newest first."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tests.formats.codex_files import Rollout
from tests.formats.databases import GooseBook, OpencodeBook
from tests.formats.gemini_files import Chat
from tests.formats.pi_files import Session
from tests.sessions import claude

PROJECT = ".claude/projects/-home-ada-project"
HOUR = 3600


def titled(text: str, title: str) -> str:
    """A Claude Code session with a title of its own."""
    record = {"type": "ai-title", "aiTitle": title, "sessionId": claude.SESSION}
    return text + json.dumps(record) + "\n"


def renamed(text: str, session: str) -> str:
    """A Claude Code session under another id."""
    return text.replace(claude.SESSION, session)


def put(home: Path, place: str, text: str, hours: float) -> Path:
    """Write a file that was last used so many hours ago."""
    path = home / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    when = time.time() - hours * HOUR
    os.utime(path, (when, when))
    return path


def two_windows() -> str:
    """A second window wrote a turn while the first went on; a resume drops it."""
    return "".join(
        (
            claude.line(1, None, "user", "Build it, please."),
            claude.line(2, 1, "assistant", claude.said("Built.")),
            claude.line(3, 2, "user", "The other window asks."),
            claude.line(4, 2, "user", "This window asks."),
            claude.line(5, 3, "assistant", claude.said("The other window is answered.")),
            claude.line(6, 4, "assistant", claude.said("This window is answered.")),
        )
    )


def small(home: Path) -> Path:
    """One broken session of Claude Code, and a healthy one; gives the broken one's file."""
    healthy = renamed(titled(claude.healthy(), "The healthy one"), f"5{claude.SESSION[1:]}")
    put(home, f"{PROJECT}/5{claude.SESSION[1:]}.jsonl", healthy, 30)
    broken = titled(claude.broken(), "Fix the failing test")
    return put(home, f"{PROJECT}/{claude.SESSION}.jsonl", broken, 2)


def large(home: Path) -> None:
    """Sessions of all programs, healthy and broken."""
    small(home)
    name = f"6{claude.SESSION[1:]}"
    put(home, f"{PROJECT}/{name}.jsonl", renamed(two_windows(), name), 3)
    rollout = Rollout("listed")
    rollout.ask("Run the build.")
    rollout.call("build")
    tree = Session("listed")
    tree.work("Read the settings.", "settings")
    chat = Chat("listed")
    chat.work("Look around.", "look")
    for hours, stored in enumerate((rollout.stored("a"), tree.stored("b"), chat.stored("c")), 4):
        path = home / stored.path
        path.parent.mkdir(parents=True, exist_ok=True)
        stored.write(path)
        when = time.time() - hours * HOUR
        os.utime(path, (when, when))
    book = OpencodeBook("listed")
    book.message("user", book.text("Run the build."))
    book.message("assistant", book.tool("build", None), done=False)
    goose = GooseBook("listed")
    goose.work("Look around.", "look")
    for database in (book.stored("d"), goose.stored("e")):
        path = home / database.path.partition("/")[2]
        path.parent.mkdir(parents=True, exist_ok=True)
        database.write(path)
