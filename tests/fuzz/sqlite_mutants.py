"""Databases of other programs, and one change after another that makes them odd or broken.

``seeds(format)`` gives databases of a program as bytes, ``mutant(database, rng)`` one that differs
from it in a few cells, rows, columns or bytes of the file. Everything comes from the random numbers
that are passed in, so that a mutant can be made again from its seed.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec.msgpack import Ext

FORMATS = ("goose", "opencode", "openai-agents", "openclaw", "langgraph")

_HUGE = 1 << 62
_NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 1 << 31, (1 << 63) - 1, -(1 << 63), _HUGE, 1e18, -1e300, 1e308, 0.5, -0.0,
    float("inf"), float("-inf"), 253402300800, 253402300800000, 9_007_199_254_740_993,
)  # fmt: skip
_TEXTS = (
    "", " ", "0", "-1", "null", "NaN", "{}", "[]", "[[]]", "[null]", '{"type":null}', '""', "x" * 9,
    "\ud800", "\u202e\x1b[2J", "a\0b", "'\"`;--", "%s%23", "2026-99-99 99:99:99", "1e999", "é" * 5,
    "[" * 2000, '{"a":' * 500, "9" * 5000, '{"role":"user"}', '[{"type":"text"}]', "true",
)  # fmt: skip
_BYTES = (
    b"",
    b"\0",
    b"\xff\xfe",
    b"caf\xe9",
    b"\xed\xa0\x80",
    b"\xc3",
    b'{"a":1}',
    b"\x28\xb5\x2f\xfd",
)
_WORDS = (
    "role", "type", "content", "text", "id", "tool_calls", "toolRequest", "toolResponse", "state",
    "user", "assistant", "tool", "system", "status", "running", "completed", "call_id", "input",
    "function_call", "function_call_output", "reasoning", "message", "parts", "parentId", "leaf",
    "compaction", "summary", "time", "created", "error", "success", "output", "thinking", "image",
)  # fmt: skip


# What a schema forbids; a check for "IS NOT NULL" is no such thing.
_KINDS = ("text", "integer", "TEXT", "INTEGER", "BLOB")
_STRICT = (
    (") STRICT", ")"),
    *((f"{kind} {rule}", kind) for rule in ("not null", "NOT NULL") for kind in _KINDS),
)


# What the mutants are made of


@cache
def seeds(form: str) -> tuple[bytes, ...]:
    """Return databases of a program: healthy ones, and some with what it leaves after a crash."""
    if form == "langgraph":
        return (_graph(),)
    if form == "openclaw":
        return (_claw(),)
    from tests.formats.databases import CASES

    return tuple(_written(case.write) for case in CASES if case.format == form)


def _written(write: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "it.db")
        write(path)
        with closing(sqlite3.connect(path)) as base:
            base.execute("pragma wal_checkpoint(truncate)")
            base.execute("pragma journal_mode=delete")
        return path.read_bytes()


def _claw() -> bytes:
    from tests.formats import test_openclaw as claw

    call = {"type": "toolCall", "id": "toolu_1", "name": "exec", "arguments": {}}
    message = {"role": "assistant", "content": [call], "api": "anthropic-messages"}
    events = (
        *claw.TURN,
        claw.said("c", "b", "user", "More."),
        claw.event("d", "c", message=message),
    )
    return _written(lambda path: claw._write(path, events, zipped=True))  # noqa: SLF001


def _graph() -> bytes:
    """Return threads as SqliteSaver writes them: a healthy one, and one with an open call."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.sqlite import SqliteSaver

    call = {"name": "look", "args": {"where": "here"}, "id": "call_1"}
    asked = [HumanMessage("Ask.", id="h1"), AIMessage("", tool_calls=[call], id="a1")]
    whole = [
        *asked,
        ToolMessage("Found.", tool_call_id="call_1", id="t1"),
        AIMessage("So.", id="a2"),
    ]

    def write(path: Path) -> None:
        with closing(sqlite3.connect(path, check_same_thread=False)) as base:
            saver = SqliteSaver(base)
            for thread, last in (("healthy", whole), ("open", [*whole, *_renamed(asked)])):
                config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
                for step, messages in enumerate(([], last[:1], last), -1):
                    point = {
                        **empty_checkpoint(),
                        "id": f"1f0a{step + 1:04d}-0000-6000-8000-00000000000{step + 1}",
                    }
                    point["channel_values"] = {"messages": messages, "branch:to:agent": None}
                    point["channel_versions"] = {
                        "messages": f"{step + 2:032d}.0",
                        "branch:to:agent": "1",
                    }
                    about: Any = {
                        "source": "input" if step < 0 else "loop",
                        "step": step,
                        "parents": {},
                    }
                    config = saver.put(config, point, about, point["channel_versions"])  # type: ignore[arg-type]
                    saver.put_writes(config, [("messages", messages[-1:])], f"task-{step}")

    return _written(write)


def _renamed(messages: list[Any]) -> list[Any]:
    human, ai = messages
    call = {**ai.tool_calls[0], "id": "call_2"}
    return [
        human.model_copy(update={"id": "h2"}),
        ai.model_copy(update={"id": "a3", "tool_calls": [call]}),
    ]


# Mutants


def mutant(database: bytes, rng: Random) -> bytes:
    """Return a database that differs from one in a few places, which may be anywhere."""
    wanted = rng.choices((1, 2, 4), (6, 3, 1))[0]
    if rng.random() < 0.12:
        return _file(database, rng)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as base:
        base.deserialize(_in_rollback_mode(database))
        base.text_factory = bytes
        _relax(base, rng)
        for _ in range(wanted):
            # What the schema still forbids is left out: another change is as good.
            with suppress(sqlite3.Error, OverflowError):
                rng.choices(_CHANGES, _WEIGHTS)[0](base, rng)
        changed = base.serialize()
    return _file(changed, rng) if rng.random() < 0.03 else changed


def _in_rollback_mode(database: bytes) -> bytes:
    """SQLite holds no database in memory that says that it has a log."""
    return database[:18] + b"\1\1" + database[20:]


def _relax(base: sqlite3.Connection, rng: Random) -> None:
    """Take what a schema forbids out of it, most of the time: a damaged file need not follow it."""
    base.execute("pragma ignore_check_constraints=on")
    base.execute("pragma foreign_keys=off")
    if rng.random() < 0.2:
        return
    base.execute("pragma writable_schema=on")
    for old, new in _STRICT:
        base.execute(
            "update sqlite_master set sql = replace(sql, ?, ?) where type = 'table'", (old, new)
        )
    base.execute("pragma writable_schema=reset")


def _cell(base: sqlite3.Connection, rng: Random) -> None:
    spot = _spot(base, rng)
    if spot is not None:
        _put(base, *spot[:3], _odd(rng, spot[3]))


def _inside(base: sqlite3.Connection, rng: Random) -> None:
    """Change what stands in a cell: JSON or msgpack at one place, other values in a byte."""
    spots = [spot for _ in range(4) if (spot := _spot(base, rng)) is not None]
    spots.sort(key=lambda spot: -len(spot[3]) if type(spot[3]) is bytes else 0)
    if not spots or type(spots[0][3]) is not bytes:
        return _cell(base, rng)
    table, column, rowid, value, is_text = spots[0]
    changed: Any = _document(value, rng, is_text)
    if changed is None:
        changed = _bytes(value, rng)
    if is_text:
        base.execute(_setting(table, column, "cast(? as text)"), (changed, rowid))
    else:
        _put(base, table, column, rowid, changed)
    return None


def _remove(base: sqlite3.Connection, rng: Random) -> None:
    table, rows = _rows(base, rng)
    if rows:
        base.execute(f"delete from {table} where rowid = ?", (rng.choice(rows),))  # noqa: S608


def _double(base: sqlite3.Connection, rng: Random) -> None:
    table, rows = _rows(base, rng)
    if not rows:
        return
    columns = _columns(base, table)
    key = rng.choice(columns)
    other = f"{key} || '2'" if rng.random() < 0.5 else "null"
    chosen = ", ".join(other if name == key else name for name in columns)
    base.execute(
        f"insert into {table} ({', '.join(columns)}) select {chosen} from {table} where rowid = ?",  # noqa: S608
        (rng.choice(rows),),
    )


def _swap(base: sqlite3.Connection, rng: Random) -> None:
    """Give a cell the value of another one, or exchange the two."""
    one, other = _spot(base, rng), _spot(base, rng)
    if one is None or other is None:
        return
    table, column, rowid = one[:3]
    taken = f"(select {other[1]} from {other[0]} where rowid = ?)"  # noqa: S608
    base.execute(_setting(table, column, taken), (other[2], rowid))


def _reshape(base: sqlite3.Connection, rng: Random) -> None:
    """Drop, rename or add a column, a table or an index."""
    table = rng.choice(_tables(base))
    column = rng.choice(_columns(base, table))
    base.execute(
        rng.choice(
            (
                f"alter table {table} drop column {column}",
                f"alter table {table} drop column {column}",
                f"alter table {table} rename column {column} to {column}_",
                f'alter table {table} rename column {column} to "caf\u00e9 \'"',
                f"alter table {table} add column later text",
                f"alter table {table} rename to {table}_",
                f"drop table {table}",
                f"delete from {table}",  # noqa: S608
                f"create index an_index on {table} ({column})",
                "create table a_later_one (id integer primary key, data text)",
                f"update sqlite_sequence set seq = {rng.choice((0, -5, 'null', 2**63 - 1))}",  # noqa: S608
            )
        )
    )


_CHANGES = (_cell, _inside, _remove, _double, _swap, _reshape)
_WEIGHTS = (30, 40, 8, 7, 10, 5)

Spot = tuple[str, str, int, Any, bool]


def _tables(base: sqlite3.Connection) -> list[str]:
    query = "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
    return [f'"{name.decode()}"' for (name,) in base.execute(query)]


def _columns(base: sqlite3.Connection, table: str) -> list[str]:
    return [f'"{row[1].decode()}"' for row in base.execute(f"pragma table_info({table})")]


def _rows(base: sqlite3.Connection, rng: Random) -> tuple[str, list[int]]:
    for _ in range(4):
        table = rng.choice(_tables(base))
        rows = [row for (row,) in base.execute(f"select rowid from {table}")]  # noqa: S608
        if rows:
            return table, rows
    return "", []


def _spot(base: sqlite3.Connection, rng: Random) -> Spot | None:
    table, rows = _rows(base, rng)
    if not rows:
        return None
    column, rowid = rng.choice(_columns(base, table)), rng.choice(rows)
    query = f"select {column}, typeof({column}) from {table} where rowid = ?"  # noqa: S608
    value, kind = base.execute(query, (rowid,)).fetchone()
    return table, column, rowid, value, kind == b"text"


def _setting(table: str, column: str, value: str) -> str:
    return f"update {table} set {column} = {value} where rowid = ?"  # noqa: S608


def _put(base: sqlite3.Connection, table: str, column: str, rowid: int, value: Any) -> None:
    if type(value) is str:
        raw = value.encode("utf-8", "surrogatepass")
        base.execute(_setting(table, column, "cast(? as text)"), (raw, rowid))
    else:
        base.execute(_setting(table, column, "?"), (value, rowid))


def _odd(rng: Random, old: Any) -> Any:
    """Return a value that a column should not have."""
    kind = rng.randrange(7)
    if kind == 0:
        return None
    if kind == 1:
        return rng.choice(_NUMBERS)
    if kind == 2:
        return rng.choice(_TEXTS)
    if kind == 3:
        return rng.choice(_BYTES)
    if kind == 4 and type(old) is bytes:  # text that is no UTF-8
        return (old[: len(old) // 2] + b"\xe9\xff" + old[len(old) // 2 :]).decode("latin-1")
    if kind == 5 and type(old) is bytes:
        return old  # a BLOB where text belongs
    return old[: rng.randrange(len(old) + 1)] if type(old) is bytes else float(rng.randrange(9))


def _bytes(value: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(value) + 1)
    return rng.choice(
        (
            value[:place],
            value[:place] + bytes([rng.randrange(256)]) + value[place + 1 :],
            value[:place] + rng.choice(_BYTES) + value[place:],
            value[:place] + value[rng.randrange(len(value) + 1) :],
        )
    )


# Documents


def _document(value: bytes, rng: Random, is_text: bool) -> bytes | None:
    """Return JSON or msgpack with a change somewhere in it; None for anything else."""
    if rng.random() < 0.15:
        return None
    with suppress(ValueError, RecursionError, UnicodeError):
        found = json.loads(value)
        return json.dumps(_changed(found, rng)).encode("utf-8", "surrogatepass")
    if not is_text:
        with suppress(msgspec.MsgspecError, ValueError, RecursionError, OverflowError, TypeError):
            return msgspec.msgpack.encode(_changed(msgspec.msgpack.decode(value), rng))
    return None


def _changed(value: Any, rng: Random) -> Any:
    """Return a value with one change at a random depth."""
    if isinstance(value, Ext):
        return _changed_ext(value, rng)
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.15:
        return _leaf(value, rng)
    if isinstance(value, list):
        place = rng.randrange(len(value))
        step = rng.randrange(8)
        if step == 0:
            return value[:place] + value[place + 1 :]
        if step == 1:
            return [*value, value[place]]
        if step == 2:
            return [*value[:place], *value[place:][::-1]]
        return [*value[:place], _changed(value[place], rng), *value[place + 1 :]]
    key = rng.choice(list(value))
    step = rng.randrange(8)
    if step == 0:
        return {name: item for name, item in value.items() if name != key}
    if step == 1:
        return {**value, rng.choice(_WORDS): value[key]}
    if step == 2:
        return {(rng.choice(_WORDS) if name == key else name): item for name, item in value.items()}
    return {**value, key: _changed(value[key], rng)}


def _changed_ext(value: Ext, rng: Random) -> Any:
    step = rng.randrange(6)
    if step == 0:
        return Ext(rng.randrange(-128, 128), value.data)
    if step == 1:
        return Ext(value.code, _bytes(bytes(value.data), rng))
    with suppress(msgspec.MsgspecError, ValueError):
        inner = msgspec.msgpack.decode(bytes(value.data))
        return Ext(value.code, msgspec.msgpack.encode(_changed(inner, rng)))
    return None


def _leaf(value: Any, rng: Random) -> Any:
    return rng.choice(
        (
            None, True, 0, -1, 1.5, "", "x", [], {}, [None], [[]], {"": None}, rng.choice(_WORDS),
            rng.choice(_WORDS), rng.choice(_NUMBERS[:9]), [value], {"value": value},
            str(value)[:99], "\ud800" if rng.random() < 0.2 else "\u202e", 2**64 - 1,
            {rng.choice(_WORDS): value},
        )
    )  # fmt: skip


# Files


def _file(database: bytes, rng: Random) -> bytes:
    """Return a file that is damaged as a whole: bytes, pages, its length."""
    data = bytearray(database)
    page = int.from_bytes(data[16:18], "big") or 4096
    page = 65536 if page == 1 else page
    count = max(len(data) // page, 1)
    step = rng.randrange(7)
    if step == 0:
        del data[rng.randrange(len(data)) :]
    elif step == 1:
        data[rng.randrange(100)] = rng.randrange(256)
    elif step == 2:
        first, other = (rng.randrange(count) * page for _ in range(2))
        data[first : first + page] = data[other : other + page]
    elif step == 3:
        first = rng.randrange(count) * page
        data[first : first + page] = bytes(page)
    elif step == 4:
        data += bytes(rng.randrange(3 * page))
    else:
        for _ in range(rng.choice((1, 3, 20, 200))):
            # the heads of pages and cells, mostly: that is where all lengths are
            near = rng.randrange(count) * page
            place = near + rng.randrange(100) if rng.random() < 0.5 else rng.randrange(len(data))
            data[min(place, len(data) - 1)] ^= 1 << rng.randrange(8)
    return bytes(data)
