"""Sessions of other programs that are too long: written here, compacted by the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lockstitch.journal.messages import import_events
from lockstitch.journal.requests import project
from lockstitch.journal.state import JournalState
from tests.formats import claude_files, codex_files
from tests.formats.stored import dumped, joined

Json = dict[str, Any]

LONG = "and this is a long request " * 40
TURNS = 8
BUDGET = 2500
LAST_TURN = 7
LAST_CODEX_TURN = 4


def claude_book(layout: str = "tree", turns: int = TURNS) -> claude_files.Book:
    book = claude_files.Book("long", layout)
    for turn in range(turns):
        book.work(f"Task {turn} {LONG}", f"first-{turn}", f"second-{turn}")
    return book


def claude_file(folder: Path, layout: str = "tree") -> tuple[Path, claude_files.Book]:
    book = claude_book(layout)
    path = folder / f"{book.session}.jsonl"
    path.write_bytes(claude_files.joined(book.lines()))
    return path, book


def codex_file(folder: Path, *, paginated: bool) -> tuple[Path, codex_files.Rollout]:
    rollout = codex_files.Rollout("long", paginated=paginated)
    for turn in range(TURNS):
        rollout.work(f"Task {turn} {LONG}", f"first-{turn}")
    path = folder / f"rollout-2026-09-01T10-00-00-{rollout.session}.jsonl"
    path.write_bytes(joined([dumped(line) for line in rollout.lines]))
    return path, rollout


def messages(dialect: str, *, turns: int = TURNS, result: str = "a.txt", ask: str = LONG) -> list:
    """A conversation with a call in each turn, in any dialect."""
    made: list[Json] = []
    for turn in range(turns):
        call = {"type": "tool_use", "id": f"toolu_{turn}", "name": "bash", "input": {"n": turn}}
        found = {"type": "tool_result", "tool_use_id": f"toolu_{turn}", "content": result}
        made += [
            {"role": "user", "content": f"Task {turn} {ask}"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [found]},
            {"role": "assistant", "content": [{"type": "text", "text": f"Done with {turn}."}]},
        ]
    made.append({"role": "user", "content": "The last words."})
    if dialect == "anthropic":
        return made
    return project(JournalState().snapshot(*import_events(made, "anthropic").events), dialect)


def list_file(folder: Path, value: Any, *, lines: bool = False) -> Path:
    path = folder / ("list.jsonl" if lines else "list.json")
    if lines:
        path.write_text("".join(f"{json.dumps(one)}\n" for one in value), "utf-8")
    else:
        path.write_text(json.dumps(value, indent=2), "utf-8")
    return path
