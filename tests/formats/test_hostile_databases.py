"""Databases that are made to run something, or to get large, when they are read or repaired."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from lockstitch.errors import Unreadable
from lockstitch.formats import goose, sqlite
from lockstitch.sources import operations, rows, targets
from tests.fuzz.sqlite_mutants import seeds

from . import hostile
from .databases import rows as every_row

# What a read of a small file may take beyond what Python takes anyway.
MEGABYTES = 400


@pytest.fixture(params=[*hostile.PROGRAMS])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def base(tmp_path: Path, name: str) -> Path:
    path = tmp_path / "it.db"
    hostile.PROGRAMS[name][0](path)
    hostile.changed(path, "create table ran (what)")
    return path


def is_read(path: Path) -> bool:
    [report] = operations.scan_file(str(path))
    return report.error is None and bool(report.findings)


def repaired(path: Path) -> str:
    [source] = targets.resolve_sources(str(path))
    return str(operations.repair(source).backup)


@pytest.mark.parametrize("what", ["insert", "update", "delete"])
def test_a_trigger_does_not_run_on_a_repair(base: Path, name: str, what: str) -> None:
    _, table, other = hostile.PROGRAMS[name]
    for own in {table, "message" if name == "opencode" else table}:
        planted = hostile.TRIGGER.format(what=what, table=own, other=other)
        hostile.changed(base, planted.replace("planted", f"planted_{own}", 1))
    before = every_row(base)
    assert is_read(base)
    with pytest.raises(Unreadable, match=r"trigger planted_.*nothing was written"):
        repaired(base)
    assert every_row(base) == before


def test_a_trigger_that_says_it_is_an_index_does_not_run(base: Path, name: str) -> None:
    _, table, other = hostile.PROGRAMS[name]
    for what in ("insert", "update", "delete"):
        planted = hostile.TRIGGER.format(what=what, table=table, other=other)
        hostile.changed(base, planted.replace("planted", f"planted_{what}", 1))
    hostile.changed(base, "update sqlite_master set type = 'index' where type = 'trigger'")
    before = base.read_bytes()
    # SQLite itself may find that odd.
    with pytest.raises(Unreadable, match=r"trigger planted_.*nothing was written|damaged"):
        repaired(base)
    assert base.read_bytes() == before


@pytest.mark.parametrize("what", ["insert", "update", "delete"])
def test_a_trigger_does_not_run_on_an_undo(base: Path, name: str, what: str) -> None:
    _, table, other = hostile.PROGRAMS[name]
    repaired(base)
    hostile.changed(base, hostile.TRIGGER.format(what=what, table=table, other=other))
    before = every_row(base)
    [backup] = operations.find_undoable(str(base))
    with pytest.raises(Unreadable, match=r"trigger planted .*nothing was written"):
        operations.undo(backup)
    assert every_row(base) == before


def test_rows_go_nowhere_on_the_heels_of_others(base: Path, name: str) -> None:
    """What a foreign key would delete or change is left alone."""
    _, table, _ = hostile.PROGRAMS[name]
    hostile.changed(
        base,
        f"create table hangs (row integer references {table}(id) on delete cascade)",
        f"insert into hangs select id from {table}",  # noqa: S608
    )
    before = hostile.asked(base, "select count(*) from hangs")
    repaired(base)
    [backup] = operations.find_undoable(str(base))
    operations.undo(backup)
    assert hostile.asked(base, "select count(*) from hangs") == before


def test_a_view_in_the_place_of_a_table_is_declined(base: Path, name: str) -> None:
    _, table, _ = hostile.PROGRAMS[name]
    hostile.changed(
        base,
        f"alter table {table} rename to kept",
        f"create view {table} as select * from kept",  # noqa: S608
        # It is known by its tables, so it says that it is one.
        f"update sqlite_master set type = 'table' where name = '{table}'",  # noqa: S608
    )
    [report] = operations.scan_file(str(base))
    assert report.error is not None
    assert f"{table} is not a plain table" in report.error or "damaged" in report.error


def test_a_view_is_not_read_by_whoever_asks(base: Path, name: str) -> None:
    """Also where the check of the schema was led astray."""
    _, table, _ = hostile.PROGRAMS[name]
    hostile.changed(
        base,
        f"alter table {table} rename to kept",
        f"create view {table} as select * from kept",  # noqa: S608
    )
    with rows.open_reading(base, follow=True) as opened:
        with pytest.raises(sqlite3.DatabaseError):
            opened.execute(f"select * from {table}").fetchall()  # noqa: S608
        assert f"a view or a trigger {table}" in opened.reason


def test_a_virtual_table_is_declined(base: Path, name: str) -> None:
    _, table, _ = hostile.PROGRAMS[name]
    found = hostile.asked(base, f"pragma table_info({table})")
    columns = ", ".join(str(row[1]) for row in found)
    hostile.changed(
        base,
        f"alter table {table} rename to kept",
        f"create virtual table {table} using fts5({columns})",
        f"update sqlite_master set rootpage = 2 where name = '{table}'",  # noqa: S608
    )
    [report] = operations.scan_file(str(base))
    assert report.error is not None
    assert "is not a plain table" in report.error or "damaged" in report.error


def test_a_column_that_is_computed_is_not_read(base: Path, name: str) -> None:
    _, table, _ = hostile.PROGRAMS[name]
    hostile.changed(
        base, f"alter table {table} add column made text as (hex(zeroblob(400000000))) virtual"
    )
    assert is_read(base)
    with pytest.raises(Unreadable, match=f"column made in the table {table}"):
        repaired(base)


def test_a_column_that_is_needed_may_not_be_computed(tmp_path: Path) -> None:
    path = tmp_path / "it.db"
    hostile.openai(path)
    hostile.changed(
        path,
        "alter table agent_messages rename column message_data to kept",
        "alter table agent_messages add column message_data text as (kept) virtual",
    )
    [report] = operations.scan_file(str(path))
    assert report.error is not None
    assert "agent_messages has no plain column message_data" in report.error


def test_a_column_of_the_list_may_not_be_computed(tmp_path: Path) -> None:
    path = tmp_path / "it.db"
    hostile.openai(path)
    hostile.changed(
        path,
        "alter table agent_sessions rename column updated_at to kept",
        "alter table agent_sessions add column updated_at text as (hex(zeroblob(4))) virtual",
    )
    [report] = operations.scan_file(str(path))
    assert report.error is not None
    assert "computed column agent_sessions.updated_at" in report.error


def test_a_table_without_numbers_of_rows_is_declined(tmp_path: Path) -> None:
    path = tmp_path / "it.db"
    hostile.openai(path)
    hostile.changed(path, "alter table agent_messages add column rowid text")
    [report] = operations.scan_file(str(path))
    assert report.error is not None
    assert "agent_messages has a column rowid" in report.error


def test_what_a_later_version_adds_is_no_reason_to_decline(base: Path, name: str) -> None:
    _, table, other = hostile.PROGRAMS[name]
    hostile.changed(
        base,
        f"alter table {table} add column later text default 'x'",
        f"alter table {other} add column later integer",
        f"create index later_index on {table} (later)",
        "create table later_table (id integer primary key)",
        "create view later_view as select 1",
        "create trigger later_trigger after insert on later_table begin select 1; end",
    )
    before = every_row(base)
    assert is_read(base)
    repaired(base)
    [backup] = operations.find_undoable(str(base))
    operations.undo(backup)
    assert every_row(base) == before


def test_a_database_of_langgraph_is_no_other(tmp_path: Path) -> None:
    path = tmp_path / "it.db"
    path.write_bytes(seeds("langgraph")[0])
    hostile.changed(
        path,
        "create trigger planted after insert on checkpoints begin delete from writes; end",
    )
    before = every_row(path)
    broken = [one for one in operations.scan_file(str(path)) if one.findings]
    assert "open" in {report.session for report in broken}
    for source in targets.resolve_sources(str(path)):
        if source.session == "open":
            with pytest.raises(
                Unreadable, match=r"trigger planted .*LangGraph.*nothing was written"
            ):
                operations.repair(source)
    assert every_row(path) == before
    hostile.changed(
        path,
        "alter table writes rename to kept",
        "create table writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type,"
        " value as (hex(zeroblob(400000000))))",
        "insert into writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type)"
        " select thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type from kept",
    )
    assert all(report.error is None for report in operations.scan_file(str(path)))


COUNTING = """
create trigger keeps_count_{what} after {what} on messages begin
  update sessions set total_tokens = coalesce(total_tokens, 0)
    + coalesce(json_extract('{{"a":1}}', '$.a'), 1);
end
"""


def test_a_trigger_of_the_program_itself_runs_and_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sessions.db"
    hostile.goose(path)
    texts = [COUNTING.format(what=what).strip() for what in ("insert", "delete", "update")]
    hostile.changed(path, *texts)
    known = frozenset(map(sqlite.digest_of, texts))
    monkeypatch.setattr(goose.Goose, "triggers", known)
    before = every_row(path)
    repaired(path)
    assert hostile.asked(path, "select total_tokens from sessions") != [(None,)]
    [backup] = operations.find_undoable(str(path))
    operations.undo(backup)
    assert every_row(path) == before


def test_a_second_trigger_of_a_known_name_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sessions.db"
    hostile.goose(path)
    text = COUNTING.format(what="insert").strip()
    monkeypatch.setattr(goose.Goose, "triggers", frozenset({sqlite.digest_of(text)}))
    planted = text.replace("update sessions set total_tokens =", "update sessions set id =")
    hostile.changed(path, "create table first (a)", text)
    planted = planted.replace("create trigger", "create trigger if not exists").replace("'", "''")
    pretend = "update sqlite_master set type = 'trigger', tbl_name = 'messages', rootpage = 0"
    hostile.changed(path, f"{pretend}, sql = '{planted}' where name = 'first'")
    before = path.read_bytes()
    with pytest.raises(Unreadable):
        repaired(path)
    assert path.read_bytes() == before


# Size


MEASURED = """
import resource, sys
from lockstitch.sources import operations as checking
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
[report] = checking.scan_file(sys.argv[1])
print(report.error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most) // 1024)
"""


def measured(path: Path) -> tuple[str, int]:
    """What is said of a file, and how many megabytes that took."""
    command = [sys.executable, "-c", MEASURED, str(path)]
    limit = 8 << 30
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said, megabytes = done.stdout.splitlines()
    return said, int(megabytes)


def test_pages_in_circles_are_not_followed_for_ever(tmp_path: Path, name: str) -> None:
    path = tmp_path / "it.db"
    make, table, _ = hostile.PROGRAMS[name]
    make(path)
    hostile.circular(path, table)
    assert path.stat().st_size < 300_000
    said, megabytes = measured(path)
    assert "than a file of its size can hold" in said or "than a database of its size" in said
    assert megabytes < MEGABYTES


def test_default_values_do_not_add_up(tmp_path: Path) -> None:
    path = tmp_path / "it.db"
    hostile.openai(path)
    hostile.changed(
        path,
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)"
        " insert into agent_messages (session_id, message_data)"
        " select session_id, '{}' from agent_sessions, n",
        f"alter table agent_messages add column made text default '{'x' * 500_000}'",
    )
    said, megabytes = measured(path)
    assert "more than a file of its size can hold" in said
    assert megabytes < MEGABYTES


def test_work_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstitch.formats.sqlite._STEPS_MORE", 100_000)
    path = tmp_path / "it.db"
    hostile.openai(path)
    endless = (
        "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    )
    with pytest.raises(Unreadable, match="takes more work than a database of its size"):
        _asked(path, endless)


def _asked(path: Path, question: str) -> None:
    with rows.open_reading(path, follow=True) as opened:
        opened.set_authorizer(None)
        opened.execute(question).fetchall()
