"""Databases that somebody made to do more than to hold rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from .databases import AgentsBook, GooseBook, OpencodeBook

# What a trigger, a view or a generated column of somebody else's does where it runs: it says so.
TRIGGER = (
    "create trigger planted after {what} on {table} begin"
    " insert into ran values ('planted'); delete from {other}; end"
)


def openai(path: Path) -> None:
    """A session with an open call, which a repair answers by a row of its own."""
    book = AgentsBook("hostile")
    book.work("Read the settings.", "settings")
    book.ask("Run the build.")
    book.call("build")
    book.ask("Are you there?")
    book.write(path)


def goose(path: Path) -> None:
    book = GooseBook("hostile")
    book.work("Read the settings.", "settings")
    book.message("user", book.text("Run the build."))
    book.message("assistant", book.text("I build it."), book.request("build"))
    book.work("Are you there?", "status")
    book.write(path)


def opencode(path: Path) -> None:
    book = OpencodeBook("hostile")
    book.message("user", book.text("Run the build."))
    book.message("assistant", book.text("I build it."), book.tool("build", None), done=False)
    book.write(path)


# A program, the table of its messages, and another one of its tables.
PROGRAMS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "openai-agents": (openai, "agent_messages", "agent_sessions"),
    "goose": (goose, "messages", "sessions"),
    "opencode": (opencode, "part", "session"),
}


def changed(path: Path, *statements: str) -> None:
    """Do something to a database, as anybody could who may write to the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("pragma writable_schema = on")
        for statement in statements:
            base.execute(statement)


def asked(path: Path, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as base:
        return base.execute(question).fetchall()


def circular(path: Path, table: str, rows: int = 40, size: int = 3000) -> None:
    """Let the pages of a table point at each other, so that a small file has rows without end."""
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("pragma journal_mode = delete")
        names = [row[1] for row in base.execute(f"pragma table_info({table})")]
        last, *_ = base.execute(f"select * from {table} order by rowid desc limit 1")  # noqa: S608
        for number in range(rows):
            row = dict(zip(names, last, strict=True))
            row |= {"id": 1000 + number if type(row["id"]) is int else f"{row['id']}{number:04d}"}
            text = next(name for name in names if name in {"message_data", "content_json", "data"})
            row[text] = '{"type":"text","text":"' + "x" * size + '"}'
            slots = ", ".join("?" * len(row))
            base.execute(
                f"insert into {table} ({', '.join(row)}) values ({slots})",  # noqa: S608
                list(row.values()),
            )
        # Nothing but the table itself leads to its rows.
        indexes = "select name from sqlite_master where tbl_name = ? and sql like 'create index%'"
        for (index,) in base.execute(indexes, (table,)).fetchall():
            base.execute(f"drop index {index}")
        [(root,)] = base.execute("select rootpage from sqlite_master where name = ?", (table,))
        [(page,)] = base.execute("pragma page_size")
    data = bytearray(path.read_bytes())
    at = (root - 1) * page
    head = 100 if root == 1 else 0
    assert data[at + head] == 5, "the root is an interior page"
    count = int.from_bytes(data[at + head + 3 : at + head + 5], "big")
    cells = [
        int.from_bytes(data[at + head + 12 + 2 * n : at + head + 14 + 2 * n], "big")
        for n in range(count)
    ]
    # Ten levels of pages, each with all its children being the same page of the next level.
    leaf = int.from_bytes(data[at + cells[0] : at + cells[0] + 4], "big")
    levels = len(data) // page
    for level in range(10):
        copy = bytearray(data[at : at + page])
        child = leaf if level == 9 else levels + 2 + level
        for cell in cells:
            copy[cell : cell + 4] = child.to_bytes(4, "big")
        copy[head + 8 : head + 12] = child.to_bytes(4, "big")
        data += copy
    for cell in cells:
        data[at + cell : at + cell + 4] = (levels + 1).to_bytes(4, "big")
    data[at + head + 8 : at + head + 12] = (levels + 1).to_bytes(4, "big")
    data[28:32] = (len(data) // page).to_bytes(4, "big")
    path.write_bytes(bytes(data))
