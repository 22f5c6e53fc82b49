"""Rows of databases that other programs have open: read, written, taken back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lockstitch.errors import Busy, Conflict, Unreadable, UsageError
from lockstitch.files import backup as backups
from lockstitch.formats import sqlite
from lockstitch.formats.openai_agents import OpenAIAgents
from lockstitch.formats.records import Record
from lockstitch.formats.tables import (
    ProgramTable,
    Row,
    columns_of,
    new_row,
    number_rows,
    put_value,
    rows_in,
)
from lockstitch.sources import rows
from lockstitch.sources import rows as row_undo

from .databases import AGENTS, AgentsBook, OpencodeBook
from .databases import rows as every_row

FORM = OpenAIAgents()
TABLE = FORM.layout.tables[1]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    book = AgentsBook("rows")
    book.work("Read the settings.", "settings")
    book.work("Run the build.", "build")
    book.write(tmp_path / "agents.db")
    return tmp_path / "agents.db"


def session_of(path: Path) -> str:
    return rows.list_sessions(path, FORM)[0].id


def loaded(path: Path) -> list[Record]:
    return rows.load_rows(path, FORM, session_of(path))


def changed(records: list[Record], number: int, text: str) -> list[Record]:
    row = records[number]
    assert isinstance(row, Row)
    return [*records[:number], put_value(row, ("content",), text), *records[number + 1 :]]


def inserted(records: list[Record], number: int, text: str) -> list[Record]:
    item = {"role": "user", "content": text}
    row = new_row(TABLE, {"session_id": records[0].value["session_id"], "message_data": item})
    return [*records[:number], row, *records[number:]]


def said(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as live:
        found = live.execute("select message_data from agent_messages order by id")
        return [data for (data,) in found]


def files(folder: Path) -> dict[str, bytes]:
    """All files but the index of a log, which is no data."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(p): p.read_bytes() for p in found if not p.name.endswith("-shm")}


def nothing(_: Any) -> None:
    pass


# Reading


def test_a_row_is_a_record_with_its_columns(base: Path) -> None:
    assert rows.table_names(base) >= {"agent_sessions", "agent_messages"}
    first = rows_in(loaded(base), "agent_messages")[0]
    assert first.place == "agent_messages.1"
    assert first.value["session_id"] == session_of(base)
    assert first.value["message_data"]["role"] == "user"
    assert first.text == said(base)[0]
    assert not first.is_new


def test_sessions_come_newest_first(base: Path) -> None:
    with closing(sqlite3.connect(base)) as live, live:
        live.execute("update agent_sessions set updated_at = '2020-01-01 00:00:00'")
        live.execute("insert into agent_sessions values ('new', '2026-01-01', '2026-01-01')")
    first, second = rows.list_sessions(base, FORM)
    assert (first.id, second.updated) == ("new", 1_577_836_800.0)


def test_reading_leaves_a_closed_database_as_it_was(base: Path) -> None:
    before = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in base.parent.iterdir()}
    assert set(before) == {"agents.db"}
    loaded(base)
    after = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in base.parent.iterdir()}
    assert after == before


def test_reading_leaves_a_live_database_and_its_log_as_they_were(base: Path) -> None:
    with closing(sqlite3.connect(base)) as live:
        live.execute("insert into agent_messages (session_id, message_data) values ('x', '{}')")
        live.commit()
        before = files(base.parent)
        assert any(name.endswith("-wal") for name in before)
        loaded(base)
        assert files(base.parent) == before
        live.execute("insert into agent_messages (session_id, message_data) values ('x', '{}')")
        live.commit()


def test_reading_leaves_what_a_killed_program_left(base: Path) -> None:
    killed(base, "live.execute(\"insert into agent_sessions values ('late', '1', '1')\")")
    before = files(base.parent)
    assert "late" in [row.id for row in rows.list_sessions(base, FORM)]
    assert files(base.parent) == before


def test_the_file_is_never_opened_but_by_sqlite(base: Path) -> None:
    script = (
        "import os, sys\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) "
        "if event == 'open' and not args[2] & getattr(os, 'O_PATH', 0) else None)\n"
        "from lockstitch.sources import rows\n"
        "from lockstitch.formats.openai_agents import OpenAIAgents\n"
        "path, form = sys.argv[1], OpenAIAgents()\n"
        "rows.table_names(path)\n"
        "[session] = rows.list_sessions(path, form)\n"
        "before = rows.load_rows(path, form, session.id)\n"
        "rows.write_rows(path, form, before, before[:-1], 'run')\n"
        "print([name for name in opened if 'agents.db' in name and '.lockstitch' not in name])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(base)], capture_output=True, check=True, text=True
    )
    assert done.stdout.strip() == "[]"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as live:
        live.execute("pragma journal_mode = delete")
        live.execute("begin exclusive")
        yield


def test_a_locked_database_is_said_to_be_locked(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "READ_WAIT", 0.05)
    with locked(base), pytest.raises(Unreadable, match="locked by another program"):
        rows.table_names(base)


def test_what_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"not a database at all, " * 100)
    with pytest.raises(Unreadable, match="not an SQLite database"):
        rows.table_names(tmp_path / "a.db")
    with pytest.raises(Unreadable, match="no such file"):
        rows.table_names(tmp_path / "b.db")
    with pytest.raises(UsageError, match="not a regular file"):
        rows.table_names(tmp_path)


def test_damaged_pages_are_said_to_be_damaged(base: Path) -> None:
    with closing(sqlite3.connect(base)) as live:
        live.execute("pragma journal_mode = delete")
    data = bytearray(base.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    base.write_bytes(data)
    with pytest.raises(Unreadable, match="damaged"):
        loaded(base)


def test_other_tables_are_said_to_be_other_ones(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as live:
        live.execute("create table agent_sessions (something integer)")
    with pytest.raises(Unreadable, match="not the known ones"):
        rows.list_sessions(tmp_path / "a.db", FORM)


def test_a_link_is_read_but_not_written(base: Path) -> None:
    link = base.with_name("link.db")
    link.symlink_to(base)
    before = loaded(link)
    with pytest.raises(UsageError, match="symbolic link"):
        rows.save_rows(link, FORM, before, changed(before, 1, "new"), nothing)
    rows.save_rows(link, FORM, before, changed(before, 1, "new"), nothing, follow=True)
    with pytest.raises(UsageError, match="symbolic link"):
        rows.table_names(link, follow=False)


# Writing


def test_only_what_differs_is_written(base: Path) -> None:
    before, old = loaded(base), said(base)
    images = rows.save_rows(base, FORM, before, changed(before, 1, "Read it, please."), nothing)
    assert said(base)[1:] == old[1:]
    content = json.loads(old[0])["content"]
    assert said(base)[0] == old[0].replace(content, "Read it, please.")
    assert [image["table"] for image in images["rows"]] == ["agent_messages"]


def test_nothing_is_written_where_nothing_differs(base: Path) -> None:
    before, state = loaded(base), every_row(base)
    assert rows.save_rows(base, FORM, before, before, nothing)["rows"] == []
    assert every_row(base) == state


def test_rows_behind_a_new_one_are_moved_behind_it(base: Path) -> None:
    before, old = loaded(base), said(base)
    rows.save_rows(base, FORM, before, inserted(before, 3, "between"), nothing)
    now = said(base)
    assert now[:2] == old[:2]
    assert "between" in now[2]
    assert now[3:] == old[2:]


def test_a_new_row_at_the_end_moves_nobody(base: Path) -> None:
    before = loaded(base)
    keys = [row.rowid for row in rows_in(before, "agent_messages")]
    rows.save_rows(base, FORM, before, inserted(before, len(before), "last"), nothing)
    after = [row.rowid for row in rows_in(loaded(base), "agent_messages")]
    assert after == [*keys, keys[-1] + 1]


@pytest.mark.parametrize("wrong", ["changed", "added", "removed"])
def test_a_session_that_went_on_is_not_written(base: Path, wrong: str) -> None:
    before = loaded(base)
    with closing(sqlite3.connect(base)) as live, live:
        if wrong == "changed":
            live.execute("update agent_messages set created_at = 'later' where id = 3")
        elif wrong == "added":
            insert = "insert into agent_messages (session_id, message_data) values (?, '{}')"
            live.execute(insert, (session_of(base),))
        else:
            live.execute("delete from agent_messages where id = 8")
    state = every_row(base)
    with pytest.raises(Conflict, match="was continued meanwhile; nothing was written"):
        rows.save_rows(base, FORM, before, changed(before, 1, "new"), nothing)
    assert every_row(base) == state


def test_other_sessions_may_go_on(base: Path) -> None:
    before = loaded(base)
    with closing(sqlite3.connect(base)) as live, live:
        live.execute("insert into agent_messages (session_id, message_data) values ('x', '{}')")
    rows.save_rows(base, FORM, before, inserted(before, 3, "between"), nothing)
    assert sum("between" in text for text in said(base)) == 1


def test_a_writer_is_waited_for(base: Path) -> None:
    before = loaded(base)
    live = sqlite3.connect(base, isolation_level=None, check_same_thread=False)
    live.execute("begin immediate")
    live.execute("insert into agent_messages (session_id, message_data) values ('x', '{}')")
    later = threading.Timer(0.3, lambda: live.execute("commit"))
    later.start()
    rows.save_rows(base, FORM, before, changed(before, 1, "new"), nothing)
    later.join()
    live.close()
    assert said(base)[-1] == "{}"
    assert '"new"' in said(base)[0]


def test_a_writer_that_does_not_end_makes_it_busy(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "WRITE_WAIT", 0.05)
    before = loaded(base)
    with closing(sqlite3.connect(base, isolation_level=None)) as live:
        live.execute("begin immediate")
        with pytest.raises(Busy, match="nothing was written"):
            rows.save_rows(base, FORM, before, changed(before, 1, "new"), nothing)


def test_without_a_backup_nothing_is_written(base: Path) -> None:
    before, state = loaded(base), every_row(base)

    def fail(_: Any) -> None:
        raise OSError("no room for the backup")

    with pytest.raises(OSError, match="no room"):
        rows.save_rows(base, FORM, before, changed(before, 1, "new"), fail)
    assert every_row(base) == state


def test_a_repair_is_backed_up_and_undone(base: Path) -> None:
    before, state = loaded(base), every_row(base)
    made = rows.write_rows(
        base, FORM, before, inserted(before, 3, "x"), "run", {"codes": ["LS101"]}
    )
    assert Path(made).is_file()
    [backup] = backups.list_backups(base)
    assert (backup.status, backup.manifest.details) == ("done", {"codes": ["LS101"]})
    assert every_row(base) != state
    backups.undo_backup(base, restore=row_undo.restore_rows)
    assert every_row(base) == state


HOLDING = """
import sqlite3, sys
live = sqlite3.connect(sys.argv[1])
live.execute("select * from agent_messages").fetchall()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="knows who has a file open")
def test_what_a_running_program_may_be_at_work_on_is_not_repaired(base: Path) -> None:
    before, state = loaded(base), every_row(base)
    run = [sys.executable, "-c", HOLDING, str(base)]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        with pytest.raises(Busy, match=f"process {program.pid} has it open"):
            rows.write_rows(base, FORM, before, changed(before, 1, "new"), "run")
        assert every_row(base) == state
        assert backups.list_backups(base) == []
        program.communicate()
    rows.write_rows(base, FORM, before, changed(before, 1, "new"), "run")


def test_undo_keeps_what_came_since(base: Path) -> None:
    before, old = loaded(base), said(base)
    images = rows.save_rows(base, FORM, before, inserted(before, 3, "x"), nothing)
    with closing(sqlite3.connect(base)) as live, live:
        insert = "insert into agent_messages (session_id, message_data) values (?, '{}')"
        live.execute(insert, (session_of(base),))
    row_undo.take_back(base, images)
    assert said(base) == [*old, "{}"]


def test_undo_of_what_is_no_longer_there_is_refused(base: Path) -> None:
    before = loaded(base)
    images = rows.save_rows(base, FORM, before, changed(before, 1, "new"), nothing)
    with closing(sqlite3.connect(base)) as live, live:
        live.execute("update agent_messages set message_data = '{}' where id = 1")
    state = every_row(base)
    with pytest.raises(Conflict, match="has changed since the repair"):
        row_undo.take_back(base, images)
    assert every_row(base) == state


def test_undo_of_a_repair_that_was_never_finished_changes_nothing(base: Path) -> None:
    before, state = loaded(base), every_row(base)
    seen: list[dict[str, Any]] = []

    def fail(images: dict[str, Any]) -> None:
        seen.append(images)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rows.save_rows(base, FORM, before, inserted(before[:-1], 3, "x"), fail)
    row_undo.take_back(base, seen[0])
    assert every_row(base) == state


def test_odd_values_survive_a_repair_and_its_undo(tmp_path: Path) -> None:
    path = tmp_path / "odd.db"
    with closing(sqlite3.connect(path)) as live, live:
        live.execute("pragma journal_mode = wal")
        live.executescript(AGENTS)
        live.execute("alter table agent_messages add column more")
        live.execute("insert into agent_sessions (session_id) values ('s')")
        odd = [b"\x00\xff", 1.5, float("inf"), None, 2**62, "a\0b", "\N{SNOWMAN}"]
        for value in odd:
            live.execute(
                "insert into agent_messages (session_id, message_data, more) values (?, ?, ?)",
                ("s", '{"role":"user","content":"q"}', value),
            )
        live.execute(
            "insert into agent_messages (session_id, message_data, more) "
            "values ('s', '{\"role\":\"user\"}', cast(x'ff41' as text))"
        )
    state = raw_rows(path)
    before = rows.load_rows(path, FORM, "s")
    images = rows.save_rows(path, FORM, before, inserted(before[:-3], 1, "x"), nothing)
    assert raw_rows(path) != state
    stored = backups.keep_row_images(path, "run", images)
    assert backups.list_backups(path)[0].rows == stored.rows
    row_undo.take_back(path, backups.list_backups(path)[0].rows or {})
    assert raw_rows(path) == state


def raw_rows(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as live:
        query = "select id, typeof(more), cast(more as blob), message_data from agent_messages"
        return live.execute(f"{query} order by id").fetchall()


# Dying


def killed(path: Path, statement: str) -> None:
    """Let a program write something and die with its connection open."""
    script = (
        "import os, signal, sqlite3, sys\n"
        "live = sqlite3.connect(sys.argv[1])\n"
        f"{statement}\n"
        "live.commit()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL


DYING = """
import os, signal, sys, threading
from lockstitch.sources import rows
from lockstitch.formats.openai_agents import OpenAIAgents
path, when = sys.argv[1:]
form = OpenAIAgents()
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
[session] = rows.list_sessions(path, form)
before = rows.load_rows(path, form, session.id)
if when not in ("before", "after"):
    threading.Timer(float(when), die).start()
rows.save_rows(path, form, before, [*before[:2], *before[3:]], die if when == "before" else print)
die()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_before_or_after_the_commit(base: Path, when: str) -> None:
    old = said(base)
    run = [sys.executable, "-c", DYING, str(base), when]
    assert subprocess.run(run, check=False, stdout=subprocess.DEVNULL).returncode < 0
    assert said(base) == (old if when == "before" else [old[0], *old[2:]])
    with closing(sqlite3.connect(base)) as live:
        assert live.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_kill_at_any_moment_leaves_the_old_or_the_new(base: Path) -> None:
    old = said(base)
    new = [old[0], *old[2:]]
    for step in range(8):
        copy = base.with_name(f"copy{step}.db")
        shutil.copy(base, copy)
        run = [sys.executable, "-c", DYING, str(copy), str(step * 0.002)]
        subprocess.run(run, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert said(copy) in (old, new)


WRITING = """
import sqlite3, sys, time
path, session = sys.argv[1:]
live = sqlite3.connect(path, timeout=600)
for number in range(60):
    live.execute(
        "insert into agent_messages (session_id, message_data) values (?, ?)",
        (session, '{"role": "user", "content": "late %d"}' % number),
    )
    live.commit()
    time.sleep(0.004)
"""


def test_not_one_row_of_a_live_writer_is_lost(base: Path) -> None:
    session, old = session_of(base), said(base)
    run = [sys.executable, "-c", WRITING, str(base), session]
    with subprocess.Popen(run) as writer:
        repaired = refused = 0
        while writer.poll() is None or not repaired:
            before = rows.load_rows(base, FORM, session)
            time.sleep(0.003)
            try:
                text = f"between {repaired}"
                rows.save_rows(base, FORM, before, inserted(before, 3, text), nothing)
                repaired += 1
            except Conflict:
                refused += 1
        assert writer.wait() == 0
    now = said(base)
    late = [text for text in now if "late" in text]
    assert [f"late {n}" in text for n, text in enumerate(late)] == [True] * 60
    assert [text for text in now if "late" not in text and "between" not in text] == old
    assert sum("between" in text for text in now) == repaired


# Order


@pytest.mark.parametrize(
    ("times", "moved"), [([5, 5, 6], 1), ([5, 6, 7], 0), ([5, 5, 5], 2)], ids=str
)
def test_only_rows_of_the_same_second_make_room(times: list[int], moved: int) -> None:
    table = ProgramTable(
        "messages", "content_json", order=("created_timestamp", "id"), counted=True
    )
    old = [
        Row("", {"id": n, "created_timestamp": t}, rowid=n, stored={"id": n})
        for n, t in enumerate(times, 1)
    ]
    new = new_row(table, {"content_json": [], "created_timestamp": times[0]})
    keys = iter(range(100, 200))
    placed = number_rows(table, [old[0], new, *old[1:]], lambda: next(keys))
    spots = [(columns["created_timestamp"], columns["id"]) for _, columns in placed]
    assert spots == sorted(spots)
    assert sum(columns["id"] >= 100 for _, columns in placed) == moved + 1


def test_columns_that_are_not_known_stay(tmp_path: Path) -> None:
    book = OpencodeBook("columns")
    book.message("user", book.text("q"))
    book.write(tmp_path / "opencode.db")
    from lockstitch.formats.opencode import OpenCode

    records = rows.load_rows(tmp_path / "opencode.db", OpenCode(), book.session)
    part = rows_in(records, "part")[0]
    columns = columns_of(put_value(part, ("text",), "new"))
    assert {**columns, "data": ""} == {**part.stored, "data": ""}


@pytest.mark.skipif(os.name == "nt", reason="modes of files")
def test_a_database_that_may_not_be_written(base: Path) -> None:
    before = loaded(base)
    base.chmod(0o444)
    if os.access(base, os.W_OK):
        pytest.skip("this user may write everything")
    with pytest.raises(PermissionError, match="cannot be written"):
        rows.save_rows(base, FORM, before, changed(before, 1, "new"), nothing)
