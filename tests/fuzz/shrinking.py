"""Smaller mutants that break the same promise: fewer lines, then fewer keys, rows and options."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from .mutants import Mutant

TRIES = 600
Fails = Callable[[Mutant], bool]


def smaller(mutant: Mutant, fails: Fails) -> Iterator[Mutant]:
    """Give ever smaller mutants that still fail, until no step helps or enough was tried."""
    left = TRIES
    best = mutant
    progress = True
    while progress and left > 0:
        progress = False
        for changed in _simpler(best):
            left -= 1
            if left < 0:
                break
            if fails(changed):
                best, progress = changed, True
                yield best
                break


def _simpler(mutant: Mutant) -> Iterator[Mutant]:
    """Give mutants that are a step simpler, the largest steps first."""
    if mutant.side:
        yield replace(mutant, side={})
    changes = _rows(mutant.data) if mutant.is_base else _texts(mutant.data)
    for data in changes:
        if len(data) < len(mutant.data) or mutant.is_base:
            yield replace(mutant, data=data)


def _texts(data: bytes) -> Iterator[bytes]:
    lines = data.split(b"\n")
    size = len(lines) // 2
    while size:
        for at in range(0, len(lines), size):
            yield b"\n".join(lines[:at] + lines[at + size :])
        size //= 2
    for at, line in enumerate(lines):
        with suppress(ValueError, RecursionError):
            for value in _values(json.loads(line if len(lines) > 1 else data)):
                text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
                short = text.encode("utf-8", "surrogatepass")
                yield b"\n".join([*lines[:at], short, *lines[at + 1 :]])
    with suppress(ValueError, RecursionError):
        for value in _values(json.loads(data)):
            yield json.dumps(value).encode()


def _values(value: Any) -> Iterator[Any]:
    """Give the value without one thing in it, anywhere."""
    if isinstance(value, dict):
        for key in value:
            yield {name: one for name, one in value.items() if name != key}
        for key, one in value.items():
            for less in _values(one):
                yield {**value, key: less}
    elif isinstance(value, list):
        for at in range(len(value)):
            yield value[:at] + value[at + 1 :]
        for at, one in enumerate(value):
            for less in _values(one):
                yield [*value[:at], less, *value[at + 1 :]]
    elif isinstance(value, str) and len(value) > 8:
        yield value[: len(value) // 2]


def _rows(data: bytes) -> Iterator[bytes]:
    """Give the database without one row, or without the bytes of rows that were deleted."""
    with suppress(sqlite3.Error, OverflowError):
        for table, row in _places(data):
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as base:
                base.deserialize(data[:18] + b"\1\1" + data[20:])
                with suppress(sqlite3.Error):
                    base.execute(f'delete from "{table}" where rowid = ?', (row,))  # noqa: S608
                    yield base.serialize()


def _places(data: bytes) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(":memory:")) as base:
        base.deserialize(data[:18] + b"\1\1" + data[20:])
        base.text_factory = lambda raw: raw.decode("utf-8", "replace")
        names = base.execute("select name from sqlite_master where type = 'table'").fetchall()
        return [
            (name, row)
            for (name,) in names
            for (row,) in base.execute(f'select rowid from "{name}"')  # noqa: S608
        ]
