"""Databases and stores: every kind of damage n times over, and many sessions in one of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lockstitch.stores.sqlite import SqliteBackend
from tests.formats import databases
from tests.formats.databases import AgentsBook, GooseBook, OpencodeBook
from tests.formats.stored import Stored
from tests.formats.test_openclaw import HEAD, PLACE, _write, said
from tests.scale.filling import fill, multiply

from .commands import READING, WRITING, Write, commanded
from .dimension import Dimension, renamed


def dimensions() -> Iterator[Dimension]:
    """All of them."""
    for case in databases.CASES:
        yield from commanded(f"rows of {case}", _longer(case), *WRITING, "check", "export")
    for name, write in SHAPES.items():
        yield from commanded(name, write, *WRITING, *READING)
    yield from commanded("openclaw turns", _openclaw, *READING)
    yield from commanded("lockstitch records of one session", _own, "check", "show")
    yield from commanded("lockstitch sessions of one store", _own_many, "check")


def _longer(case: Stored) -> Write:
    """A session of n times the rows."""

    def write(count: int, folder: Path) -> Path:
        book = copy.copy(case.write.__self__)  # type: ignore[attr-defined]
        path = folder / case.path
        path.parent.mkdir(parents=True)
        if isinstance(book, GooseBook):
            book.rows = [
                (role, _other(content, number), metadata)
                for number in range(count)
                for role, content, metadata in book.rows
            ]
        elif isinstance(book, AgentsBook):
            book.items = [_other(item, number) for number in range(count) for item in book.items]
        else:
            _again(book, count)
        book.write(path)
        return path

    return write


def _other(text: str, copy_: int) -> str:
    return renamed(text.encode(), copy_).decode()


def _again(book: OpencodeBook, count: int) -> None:
    """Messages and parts sort by their ids, which count."""
    messages, parts = book.messages, book.parts
    book.messages, book.parts = [], []
    for number in range(count):
        for own, data in messages:
            text = json.dumps(data).replace('"msg_', f'"msg_{number:05d}')
            book.messages.append((own.replace("msg_", f"msg_{number:05d}"), json.loads(text)))
        for own, message, data in parts:
            home = message.replace("msg_", f"msg_{number:05d}")
            part = json.loads(_other(json.dumps(data), number))
            book.parts.append((own.replace("prt_", f"prt_{number:05d}"), home, part))


def _of(make: Callable[[int], Any]) -> Write:
    def write(count: int, folder: Path) -> Path:
        stored = make(count).stored("doubling")
        path = folder / stored.path
        path.parent.mkdir(parents=True)
        stored.write(path)
        return path

    return write


def _goose_open(count: int) -> GooseBook:
    book = GooseBook("doubling")
    for _ in range(count):
        book.message("user", book.text("Go."))
        book.message("assistant", book.text("I go."), book.request("it"))
    return book


def _goose_orphans(count: int) -> GooseBook:
    book = GooseBook("doubling")
    for number in range(count):
        book.message("user", book.response(f"toolu_nobody{number}", "done"))
        book.message("assistant", book.text("I see."))
    return book


def _goose_parallel(count: int) -> GooseBook:
    book = GooseBook("doubling")
    book.message("user", book.text("Go."))
    book.message("assistant", *(book.request("it") for _ in range(count)))
    return book


def _opencode_running(count: int) -> OpencodeBook:
    book = OpencodeBook("doubling")
    for _ in range(count):
        book.message("user", book.text("Go."))
        book.message("assistant", book.text("I go."), book.tool("it", None), done=False)
    return book


def _opencode_parallel(count: int) -> OpencodeBook:
    book = OpencodeBook("doubling")
    book.message("user", book.text("Go."))
    book.message("assistant", *(book.tool("it", None) for _ in range(count)), done=False)
    return book


def _agents_open(count: int) -> AgentsBook:
    book = AgentsBook("doubling")
    for _ in range(count):
        book.ask("Go.")
        book.call("it")
    return book


def _agents_orphans(count: int) -> AgentsBook:
    book = AgentsBook("doubling")
    for number in range(count):
        book.ask("Go.")
        book.answer(f"call_nobody{number}", "done")
    return book


SHAPES: dict[str, Write] = {
    "goose open requests": _of(_goose_open),
    "goose responses without requests": _of(_goose_orphans),
    "goose parallel requests": _of(_goose_parallel),
    "opencode running tools": _of(_opencode_running),
    "opencode parallel tools": _of(_opencode_parallel),
    "openai-agents open calls": _of(_agents_open),
    "openai-agents outputs without calls": _of(_agents_orphans),
}


def _openclaw(count: int, folder: Path) -> Path:
    path = folder / PLACE
    path.parent.mkdir(parents=True)
    events = [HEAD]
    for number in range(count):
        parent = f"b{number - 1}" if number else None
        events.append(said(f"a{number}", parent, "user", "Ask."))
        events.append(said(f"b{number}", f"a{number}", "assistant", "Answer."))
    _write(path, tuple(events), zipped=False)
    return path


def _own(count: int, folder: Path) -> Path:
    path = folder / "store.db"
    with SqliteBackend(path) as backend:
        fill(backend, "talk", count * 20)
    return path


def _own_many(count: int, folder: Path) -> Path:
    path = folder / "store.db"
    with SqliteBackend(path) as backend:
        multiply(backend, count)
    return path
