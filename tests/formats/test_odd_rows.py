"""Rows that no program writes: each is told of its own session, and all the others go on."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lockstitch.errors import Unreadable
from lockstitch.formats import sqlite
from lockstitch.formats import sqlite as schemas
from lockstitch.sources import operations, targets
from lockstitch.sources.source import Report

from . import hostile
from .campaign import Home
from .databases import OpencodeBook
from .test_openclaw import TURN, event, put

SESSIONS = {
    "openai-agents": ("agent_sessions", "session_id", "agent_messages"),
    "goose": ("sessions", "id", "messages"),
    "opencode": ("session", "id", "message"),
}


@pytest.fixture(params=[*SESSIONS])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def base(tmp_path: Path, name: str) -> Path:
    path = tmp_path / "it.db"
    hostile.PROGRAMS[name][0](path)
    return path


def changed(path: Path, statement: str, *values: Any) -> None:
    """Change a database whatever its schema forbids, as damage does."""
    with closing(sqlite3.connect(path, isolation_level=None)) as live:
        live.execute("pragma writable_schema = on")
        live.execute("update sqlite_master set sql = replace(sql, ' not null', '')")
    with closing(sqlite3.connect(path, isolation_level=None)) as live:
        live.execute(statement, values)


def every_row(path: Path) -> list[tuple[Any, ...]]:
    """All that is in a database, text as bytes."""
    with closing(sqlite3.connect(path)) as live:
        live.text_factory = bytes
        names = live.execute("select name from sqlite_master where type = 'table'").fetchall()
        return [
            (name, *row)
            for (name,) in names
            for row in live.execute(f"select rowid, * from {name.decode()}")  # noqa: S608
        ]


def copied(path: Path, name: str, own: str) -> None:
    """Give a database a second session, with an id that is anything."""
    table, key, _ = SESSIONS[name]
    with closing(sqlite3.connect(path)) as live, live:
        columns = [row[1] for row in live.execute(f"pragma table_info({table})")]
        chosen = ", ".join(own if column == key else column for column in columns)
        live.execute(f"insert into {table} select {chosen} from {table}")  # noqa: S608


def reports(path: Path) -> list[Report]:
    found = operations.scan_file(str(path))
    assert found
    return found


def there_and_back(path: Path) -> None:
    """A repair leaves less than there was, and its undo nothing of it."""
    before = every_row(path)
    for source in targets.resolve_sources(str(path)):
        first = operations.check(source)
        if first.error is None and operations.repair(source).backup:
            assert len(operations.check(source).findings) <= len(first.findings)
            assert not operations.repair(source).backup
            for backup in operations.find_undoable(str(path)):
                operations.undo(backup)
            assert every_row(path) == before


def test_an_id_that_is_no_utf_8(base: Path, name: str) -> None:
    copied(base, name, "cast(x'636166e9' as text)")
    found = {report.session: report for report in reports(base)}
    assert "caf\udce9" in found
    assert len(found) == 2
    assert any(report.findings for report in found.values())
    for table in {SESSIONS[name][2], hostile.PROGRAMS[name][1]}:
        changed(base, f"update {table} set session_id = cast(x'636166e9' as text)")  # noqa: S608
    [odd] = [one for one in targets.resolve_sources(str(base)) if one.session == "caf\udce9"]
    assert operations.check(odd).messages
    there_and_back(base)


@pytest.mark.parametrize("own", ["x'00ff'", "null"])
def test_an_id_that_is_no_text(base: Path, name: str, own: str) -> None:
    copied(base, name, own)
    odd, right = sorted(reports(base), key=lambda one: one.error is None)
    assert odd.error is not None
    assert "its id is not text" in odd.error
    assert right.error is None
    assert right.findings


@pytest.mark.parametrize("value", [None, b"\xff", "soon", 1e300, -(2**63), 2**63 - 1, 0.5])
def test_times_that_are_none(base: Path, name: str, value: Any) -> None:
    table, _, messages = SESSIONS[name]
    if name != "openai-agents":
        column = {"goose": "created_timestamp", "opencode": "time_created"}[name]
        changed(base, f"update {messages} set {column} = ?", value)  # noqa: S608
    column = "time_updated" if name == "opencode" else "updated_at"
    changed(base, f"update {table} set {column} = ?", value)  # noqa: S608
    [report] = reports(base)
    assert report.error is None
    there_and_back(base)


@pytest.mark.parametrize("value", [None, 2, "many", 2**63 - 1])
@pytest.mark.parametrize("name", ["openai-agents", "goose"])
def test_a_counter_that_is_wrong(base: Path, value: Any) -> None:
    changed(base, "update sqlite_sequence set seq = ?", value)
    if value == 2**63 - 1:
        with pytest.raises(Unreadable, match="has no number left"):
            there_and_back(base)
    else:
        there_and_back(base)


@pytest.mark.parametrize("name", ["openai-agents"])
def test_a_row_that_is_put_back_does_not_count(base: Path) -> None:
    changed(base, "update agent_messages set message_data = '[' where id = 6")
    changed(base, "update sqlite_sequence set seq = 3")
    there_and_back(base)


@pytest.mark.parametrize("name", ["openai-agents", "goose", "opencode"])
def test_values_of_other_kinds(base: Path, name: str) -> None:
    table, _, _ = SESSIONS[name]
    column = {"goose": "working_dir", "opencode": "directory", "openai-agents": "created_at"}[name]
    changed(base, f"update {table} set {column} = x'ff'")  # noqa: S608
    [report] = reports(base)
    assert report.error is None
    assert report.project is None
    there_and_back(base)


@pytest.mark.parametrize("blob", ["text", 5, 0.5])
def test_packed_events_of_other_kinds(tmp_path: Path, blob: Any) -> None:
    path = put(Home(tmp_path), *TURN, event("x", "b", type={"a": []}), zipped=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as live:
        live.execute("pragma writable_schema = on")
        live.execute("update sqlite_master set sql = replace(sql, ') STRICT', ')')")
    with closing(sqlite3.connect(path, isolation_level=None)) as live:
        live.execute("update transcript_events set event_zstd = ? where seq = 2", (blob,))
    [report] = reports(path)
    assert [found.code for found in report.findings] == ["LS610"]


def test_packed_events_that_are_gigabytes(tmp_path: Path) -> None:
    import zstandard

    packed = zstandard.ZstdCompressor(level=19).compress(b'{"type":"x","id":"' + b"x" * (4 << 20))
    path = put(Home(tmp_path), *TURN)
    with closing(sqlite3.connect(path, isolation_level=None)) as live:
        [(session,)] = live.execute("select session_id from session_windows").fetchall()
        for seq in range(100, 200):
            live.execute(
                "insert into transcript_events values (?, ?, null, 1, ?, null, null)",
                (session, seq, packed),
            )
    [report] = reports(path)
    assert report.error is not None
    assert "once it is unpacked" in report.error


def test_a_first_message_without_a_time(tmp_path: Path) -> None:
    """What is put in front of it is sorted in front of it."""
    path = tmp_path / "it.db"
    book = OpencodeBook("timeless")
    book.work("go", "build")
    book.stored("timeless").write(path)
    changed(path, "delete from message where json_extract(data, '$.role') = 'user'")
    changed(path, "update message set time_created = null")
    (source,) = targets.resolve_sources(str(path))
    assert [one.code for one in operations.check(source).findings] == ["LS406"]
    there_and_back(path)
    operations.repair(source)
    assert operations.check(source).findings == []


def test_a_database_that_says_it_may_only_be_read(tmp_path: Path) -> None:
    path = tmp_path / "it.db"
    hostile.PROGRAMS["goose"][0](path)
    data = bytearray(path.read_bytes())
    data[18] = 3  # the version of the format that it takes to write it
    path.write_bytes(data)
    (source,) = targets.resolve_sources(str(path))
    with pytest.raises(Unreadable, match="can only be read"):
        operations.repair(source)
    assert path.read_bytes() == data


def test_a_schema_that_sqlite_cannot_even_name(tmp_path: Path) -> None:
    """Its error would quote what is no text; read in WAL mode, twice: the second time to tidy."""
    path = tmp_path / "it.db"
    hostile.PROGRAMS["goose"][0](path)
    with closing(sqlite3.connect(path, isolation_level=None)) as live:
        live.execute("pragma journal_mode = wal")
        live.execute("pragma writable_schema = on")
        odd = "cast(x'637265617465207461626c6520c52028' as text)"
        live.execute(f"update sqlite_master set sql = {odd}, name = {odd}")  # noqa: S608
    with pytest.raises(Unreadable), sqlite.open_reading(path, follow=False) as base:
        schemas.tables_of(base)
    assert [each.name for each in tmp_path.iterdir()] == ["it.db"]
