"""Databases of checkpoints: many threads, undo, and all that can be wrong with a file or a row."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from msgspec import structs

from lockstitch import sessions
from lockstitch.cli import scan
from lockstitch.errors import LockstitchError
from lockstitch.formats import repair
from lockstitch.formats.interface import Context
from lockstitch.formats.langgraph.snapshot import branches, seconds_of, session_name
from lockstitch.formats.langgraph.sqlite import LangGraph
from lockstitch.formats.repair import RepairOptions
from lockstitch.formats.tables import Row
from lockstitch.sources import operations, rows
from tests.formats.databases import rows as every_row

from .graphs import BATCH, Making, Scripted, calling, config, graph_of, saving

Run = Callable[..., tuple[int, str]]
FORM = LangGraph()
SERDE = JsonPlusSerializer()
BROKEN = 11
TABLES = {
    "checkpoints": "parent_checkpoint_id, checkpoint, metadata",
    "writes": "task_id, task_path, idx, channel, value",
}


def decoded(printed: str) -> Any:
    return json.JSONDecoder().raw_decode(printed)[0]


def found(lockstitch: Run, path: Path, *words: str) -> dict[str, list[str]]:
    """The codes of each session."""
    _, printed = lockstitch("check", path, "--json", *words)
    listed = decoded(printed)["sessions"]
    return {one["session"]: sorted(f["code"] for f in one["findings"]) for one in listed}


def changed(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(statement, values)


# The database as a whole


def test_a_scan_changes_not_one_byte(threads: Path, lockstitch: Run) -> None:
    with closing(sqlite3.connect(threads)) as base:
        base.execute("pragma wal_checkpoint(truncate)")
    before = threads.read_bytes()
    lockstitch("scan", threads)
    lockstitch("check", threads)
    lockstitch("show", threads, "--session", "agent-killed")
    assert threads.read_bytes() == before
    assert sorted(path.name for path in threads.parent.iterdir()) == [threads.name]


def test_all_threads_are_repaired_and_brought_back(threads: Path, lockstitch: Run) -> None:
    before = every_row(threads)
    status, printed = lockstitch("repair", "--yes", threads)
    assert f"Repaired {BROKEN} sessions" in printed
    left = {code for codes in found(lockstitch, threads).values() for code in codes}
    assert (status, left) == (0, set())
    after = every_row(threads)
    assert len(after["checkpoints"]) == len(before["checkpoints"]) + BROKEN
    for _ in range(BROKEN):
        lockstitch("undo", "--yes", threads)
        if every_row(threads) == before:
            break
    assert every_row(threads) == before


def test_an_undo_is_refused_once_the_thread_went_on(threads: Path, lockstitch: Run) -> None:
    thread = "agent-halted"
    lockstitch("repair", "--yes", threads, "--session", thread)
    with saving(threads) as saver:
        graph = graph_of(thread, Scripted(), saver)
        graph.invoke({"messages": [HumanMessage("go on")]}, config(thread))
    before = every_row(threads)
    status, printed = lockstitch("undo", "--yes", threads)
    assert (status, "was continued" in printed) == (2, True)
    assert every_row(threads) == before


@pytest.mark.parametrize("meanwhile", ["nothing", "a change", "a deletion"])
def test_the_backup_of_a_large_state_is_small(
    meanwhile: str, threads: Path, lockstitch: Run
) -> None:
    thread = "state-halted"
    with saving(threads) as saver:
        head = saver.get_tuple(config(thread))
        assert head is not None
        assert head.parent_config is not None
        large = {**head.checkpoint["channel_values"], "attic": os.urandom(1 << 20)}
        checkpoint = {**head.checkpoint, "channel_values": large}
        saver.put(head.parent_config, checkpoint, {"source": "loop", "step": 1}, {})
    before = every_row(threads)
    lockstitch("repair", "--yes", threads, "--session", thread)
    [manifest] = (threads.parent / ".lockstitch").iterdir()
    assert manifest.stat().st_size < 1 << 15
    last = "where checkpoint_id = (select max(checkpoint_id) from checkpoints where thread_id = ?)"
    if meanwhile == "a change":
        changed(threads, f"update checkpoints set checkpoint = x'80' {last}", thread)  # noqa: S608
    elif meanwhile == "a deletion":
        changed(threads, f"delete from checkpoints {last}", thread)  # noqa: S608
    status, _ = lockstitch("undo", "--yes", threads)
    assert status == (2 if meanwhile == "a change" else 0)
    assert (every_row(threads) == before) == (status == 0)


def test_a_copy_of_one_thread_is_refused(threads: Path, lockstitch: Run, tmp_path: Path) -> None:
    words = ("repair", "--yes", threads, "--session", "agent-halted", "-o", tmp_path / "copy.db")
    status, printed = lockstitch(*words)
    assert (status, "is in a database" in printed) == (2, True)
    assert not (tmp_path / "copy.db").exists()


def test_only_a_thread_that_is_named_is_repaired_in_a_database_that_is_open(
    threads: Path, lockstitch: Run
) -> None:
    hold = (
        "import sqlite3, sys; base = sqlite3.connect(sys.argv[1]);"
        "base.execute('select count(*) from writes').fetchone(); print('ready', flush=True);"
        "sys.stdin.read()"
    )
    words = [sys.executable, "-c", hold, str(threads)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        before = every_row(threads)
        status, printed = lockstitch("repair", "--yes", threads)
        assert (status, "has it open" in printed, "--session" in printed) == (2, True, True)
        assert "inserted" not in printed
        assert "brought back" not in printed
        assert every_row(threads) == before
        status, printed = lockstitch("repair", "--yes", threads, "--session", "agent-killed")
        assert (status, "Repaired 1 session" in printed) == (0, True)
        program.communicate()


def test_a_plan_is_told_as_a_plan(threads: Path, lockstitch: Run) -> None:
    words = ("repair", threads, "--session", "agent-killed")
    for more in ((), ("--diff",)):
        _, printed = lockstitch(*words, *more)
        told = printed.index("planned, nothing is changed yet")
        assert told < printed.index("will bring back")
    _, printed = lockstitch(*words, "--yes")
    assert "brought back" in printed
    assert "planned" not in printed


def repaired(printed: str) -> list[dict[str, Any]]:
    """What a repair says of each session in JSON."""
    found: list[dict[str, Any]] = decoded(printed)["sessions"]
    return found


def test_a_thread_that_goes_on_meanwhile_is_left_alone(
    threads: Path, lockstitch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between what was read and what is written, one more result is stored."""
    planned = operations.plan_session

    def slowly(session: Any, options: Any) -> Any:
        made = planned(session, options)
        with closing(sqlite3.connect(threads)) as base:
            names = [row[1] for row in base.execute("pragma table_info(writes)")]
        picked = ", ".join("idx + 7" if name == "idx" else name for name in names)
        changed(
            threads,
            f"insert into writes ({', '.join(names)}) select {picked} from writes where "  # noqa: S608
            "thread_id = 'agent-killed' and channel = 'messages' order by checkpoint_id desc "
            "limit 1",
        )
        return made

    words = ("repair", "--yes", threads, "--session", "agent-killed", "--json")
    monkeypatch.setattr(operations, "plan_session", slowly)
    status, printed = lockstitch(*words)
    [session] = repaired(printed)
    assert (status, session["outcome"], session["applied"]) == (1, "went on", False)
    assert session["backup"] is None
    monkeypatch.setattr(operations, "plan_session", planned)
    status, printed = lockstitch(*words)
    [session] = repaired(printed)
    assert (status, session["outcome"], session["applied"]) == (0, "repaired", True)


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_database_that_is_being_written_is_waited_for(
    mode: str, threads: Path, lockstitch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = "agent-killed"
    with closing(sqlite3.connect(threads, check_same_thread=False)) as base:
        assert base.execute(f"pragma journal_mode = {mode}").fetchone() == (mode,)
        base.execute("begin immediate")
        monkeypatch.setattr("lockstitch.formats.sqlite.WRITE_WAIT", 0.2)
        status, printed = lockstitch("repair", "--yes", threads, "--session", thread)
        assert (status, "locked by another program" in printed) == (2, True)
        assert "nothing was written" in printed
        assert "brought back" not in printed
        monkeypatch.setattr("lockstitch.formats.sqlite.WRITE_WAIT", 60.0)
        timer = threading.Timer(0.5, base.rollback)
        timer.start()
        assert lockstitch("repair", "--yes", threads, "--session", thread)[0] == 0
        timer.join()
    assert found(lockstitch, threads, "--session", thread) == {thread: []}


def test_a_thread_is_repaired_with_its_subgraphs(threads: Path, lockstitch: Run) -> None:
    """A subgraph with a memory of its own is a session, and a part of its thread."""
    names = {"remembering", "remembering#inner"}
    assert found(lockstitch, threads, "--session", "remembering").keys() == names
    status, printed = lockstitch("repair", "--yes", threads, "--session", "remembering", "--json")
    made = {one["session"]: one["outcome"] for one in repaired(printed)}
    assert (status, made) == (0, {"remembering": "ok", "remembering#inner": "repaired"})
    assert lockstitch("show", threads, "--session", "remembering")[0] == 0


DIES = """
import os, signal, sys
from lockstitch import sessions
from lockstitch.sources import operations
from lockstitch.files import backup
keep = backup.keep_row_images

def die(*words, **more):
    keep(*words, **more)
    os.kill(os.getpid(), signal.SIGKILL)

backup.keep_row_images = die
sessions.repair(sessions.sources(sys.argv[1], session="agent-halted")[0])
"""


def test_a_repair_that_is_killed_has_done_nothing(threads: Path, lockstitch: Run) -> None:
    before = every_row(threads)
    done = subprocess.run([sys.executable, "-c", DIES, str(threads)], timeout=600, check=False)
    assert done.returncode == -signal.SIGKILL
    assert every_row(threads) == before
    status, printed = lockstitch("undo", "--yes", threads)
    assert (status, "no backup to go back to" in printed) == (2, True)
    assert every_row(threads) == before
    assert lockstitch("repair", "--yes", threads, "--session", "agent-halted")[0] == 0
    assert found(lockstitch, threads, "--session", "agent-halted") == {"agent-halted": []}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["as repaired", "the other way"])
def test_each_thread_goes_back_alone(
    threads: Path, lockstitch: Run, order: tuple[int, int]
) -> None:
    names = ["agent-halted", "agent-killed"]
    before = every_row(threads)
    for name in names:
        assert lockstitch("repair", "--yes", threads, "--session", name)[0] == 0
    for number in order:
        state = every_row(threads)
        status, printed = lockstitch("undo", "--yes", threads, "--session", names[number])
        assert (status, names[number] in printed) == (0, True)
        assert every_row(threads) != state
    assert every_row(threads) == before
    assert lockstitch("undo", "--yes", threads, "--session", names[0])[0] == 2


def test_several_can_scan_one_database(threads: Path) -> None:
    whole = sessions.scan_file(str(threads))
    parts = [sessions.scan_file(str(threads), part, 3) for part in range(3)]
    assert all(parts)
    together = [report for part in parts for report in part]
    assert {(one.session, len(one.findings)) for one in together} == {
        (one.session, len(one.findings)) for one in whole
    }
    assert len(together) == len(whole)
    assert 0 < sum(report.size for report in whole) < threads.stat().st_size


def test_damage_to_one_thread_hides_no_other(threads: Path) -> None:
    with closing(sqlite3.connect(threads)) as base:
        base.execute("pragma wal_checkpoint(truncate)")
        base.execute("pragma journal_mode = delete")
    whole = bytearray(threads.read_bytes())
    before = {report.session: report.status for report in sessions.scan_file(str(threads))}
    place = max(whole.find(b"more7_0", at) for at in range(0, len(whole), 4096))
    page = place // 4096 * 4096
    whole[page : page + 4096] = b"\xff" * 4096
    threads.write_bytes(whole)
    after = {report.session: report.status for report in sessions.scan_file(str(threads))}
    assert after.keys() == before.keys()
    differing = {name for name in after if after[name] != before[name]}
    assert 0 < len(differing) < len(after) // 2


def test_a_large_database_is_scanned_on_all_cores(
    threads: Path, lockstitch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = decoded(lockstitch("scan", threads, "--json")[1])
    monkeypatch.setattr(scan, "WORTH_WORKERS", 1)
    shared = decoded(lockstitch("scan", threads, "--json", "--workers", "2")[1])
    assert shared["sessions"] != []
    by_name = {one["session"]: one for one in shared["sessions"]}
    assert by_name == {one["session"]: one for one in alone["sessions"]}


def test_a_thread_that_goes_on_meanwhile_is_a_conflict(threads: Path) -> None:
    [source] = sessions.sources(str(threads), session="agent-halted")
    session = sessions.opened(source)
    mended = sessions.planned(session)
    changed(threads, "update writes set value = x'c0' where thread_id = 'agent-halted'")
    before = every_row(threads)
    with pytest.raises(LockstitchError, match="meanwhile"):
        sessions.applied(session, mended, "run")
    assert every_row(threads) == before


def test_a_folder_is_scanned_with_its_databases(threads: Path, lockstitch: Run) -> None:
    _, printed = lockstitch("scan", threads.parent, "--json")
    assert {one["format"] for one in decoded(printed)["sessions"]} == {"langgraph"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no such|empty|not one of a known program"),
        (b"SQLite format 3\0" + b"\1" * 500, "not an SQLite|damaged"),
    ],
    ids=["empty", "noise"],
)
def test_a_file_that_is_no_database_is_said(
    content: bytes, said: str, tmp_path: Path, lockstitch: Run
) -> None:
    path = tmp_path / "checkpoints.db"
    path.write_bytes(content)
    status, printed = lockstitch("check", path)
    assert status == 2
    assert any(word in printed for word in said.split("|")), printed
    assert path.read_bytes() == content


def test_a_database_that_is_cut_off_is_said(threads: Path, lockstitch: Run) -> None:
    with closing(sqlite3.connect(threads)) as base:
        base.execute("pragma wal_checkpoint(truncate)")
    whole = threads.read_bytes()
    for end in (100, 4096, 20_000, len(whole) // 2):
        threads.write_bytes(whole[:end])
        status, printed = lockstitch("check", threads)
        assert (status, "SQLite" in printed) == (2, True), printed
        assert lockstitch("repair", "--yes", threads)[0] == 2
        assert threads.read_bytes()[:end] == whole[:end]


NOBODY = """
import os, sys
from lockstitch import sessions
from lockstitch.sources import operations
[source] = sessions.sources(sys.argv[1], session="agent-halted")
session = sessions.opened(source)
mended = sessions.planned(session)  # loads what lies where nobody may read it
import lockstitch.sources.rows, lockstitch.files.backup, encodings.idna
os.geteuid() or os.setuid(65534)
try:
    sessions.applied(session, mended, "run")
except OSError as error:
    print(type(error).__name__)
"""


def test_a_database_that_may_not_be_written_is_said(threads: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "threads.db")
        with closing(sqlite3.connect(threads)) as base:
            base.execute("pragma journal_mode = delete")
        path.write_bytes(threads.read_bytes())
        path.chmod(0o444)
        path.parent.chmod(0o555)
        words = [sys.executable, "-c", NOBODY, str(path)]
        done = subprocess.run(words, capture_output=True, timeout=600, check=False)
        path.parent.chmod(0o755)
        assert done.stdout == b"PermissionError\n", done.stderr.decode()
        assert path.read_bytes() == threads.read_bytes()


def test_other_tables_of_these_names_are_said(tmp_path: Path, lockstitch: Run) -> None:
    path = tmp_path / "other.db"
    changed(path, "create table checkpoints (a)")
    changed(path, "create table writes (b)")
    status, printed = lockstitch("check", path)
    assert (status, "not the known ones" in printed) == (2, True)


# Threads


def test_names_of_threads_are_told_from_those_of_subgraphs() -> None:
    assert session_name("a#b", "") == "a#b"
    assert session_name("a#b", "inner") == "a%23b#inner"
    assert seconds_of("1ef4f797-8335-6428-8001-8a1503f9b875") == pytest.approx(1_722_432_000, rel=1)
    assert seconds_of("no time") == 0


def test_threads_with_any_name_are_found(tmp_path: Path, lockstitch: Run) -> None:
    path = tmp_path / "names.db"
    names = ["", " ", "a#b", "ünï", "x'y\"z", "../../etc", "-" * 300]
    making = Making(str(path))
    making.said("agent-one", calling(*BATCH), stop=making.halt("agent-one", 2))
    for name in names:
        for table, rest in TABLES.items():
            columns = f"checkpoint_ns, checkpoint_id, type, {rest}"
            copied = f"select ?, {columns} from {table} where thread_id = 'agent-one'"  # noqa: S608
            changed(path, f"insert into {table} (thread_id, {columns}) {copied}", name)
    expected = {key: ["LS901"] * 3 for key in ["agent-one", *names]}
    assert found(lockstitch, path) == expected
    lockstitch("repair", "--yes", path)
    assert found(lockstitch, path) == {key: [] for key in expected}


def test_lasting_namespaces_are_told_from_runs(tmp_path: Path, lockstitch: Run) -> None:
    path = tmp_path / "spaces.db"
    spaces = ["", "inner", "inner:1", "inner:2|deep:3", "inner|deep", "inner|deep:4", "other"]
    with saving(path) as saver:
        for thread in ("a", "b"):
            for space in spaces:
                where = {"configurable": {"thread_id": thread, "checkpoint_ns": space}}
                saver.put(where, empty_checkpoint(), {"source": "input", "step": -1}, {})
    lasting = ["", "#inner", "#inner|deep", "#other"]
    assert found(lockstitch, path) == {f"{t}{space}": [] for t in "ab" for space in lasting}


def test_a_checkpoint_of_an_old_version_is_mended(tmp_path: Path, lockstitch: Run) -> None:
    path = tmp_path / "old.db"
    values = {
        "messages": [HumanMessage("hi", id="1"), calling("fast")],
        "agent": "agent",
        "mood": "mood",
        "branch:agent:cond:tools": "agent",
        "join:a+b:c": {"a", "b"},
        "join:a+b:d": {"a"},
    }
    with saving(path) as saver:
        old = {**empty_checkpoint(), "v": 1, "channel_values": values, "pending_sends": []}
        old["channel_versions"] = dict.fromkeys(values, "00000000000000000000000000000002.0.1")
        old["versions_seen"] = {"agent": {}, "tools": {}}
        saver.put(config("t"), old, {"source": "loop", "step": 1}, {})
    assert lockstitch("repair", "--yes", path)[0] == 0
    with saving(path) as saver:
        new = saver.get_tuple(config("t"))
    assert new is not None
    assert new.checkpoint["channel_values"].keys() == {"messages", "mood", "join:a+b:d"}
    assert new.checkpoint["v"] == 4
    assert new.checkpoint["channel_versions"]["agent"].startswith("0" * 31 + "3.")


def test_a_turn_of_another_writer_is_told(threads: Path, lockstitch: Run) -> None:
    thread = "agent-healthy"
    with saving(threads) as saver:
        graph = graph_of(thread, Scripted(), saver)
        head = graph.get_state(config(thread)).config
        for words in ("one", "two"):
            graph.invoke({"messages": [HumanMessage(words)]}, head)
    assert found(lockstitch, threads, "--session", thread) == {thread: ["LS905"]}
    _, printed = lockstitch("check", threads, "--session", thread, "--json")
    assert decoded(printed)["sessions"][0]["unreachable"] == 1


def test_branches_are_told_apart() -> None:
    parents = [("1", None), ("2", "1"), ("3", "2"), ("3b", "2"), ("4b", "3b"), ("4c", "3b")]
    assert branches("3", parents) == [["4c", "3b"], ["4b"]]
    assert branches("x", [("x", "y"), ("y", "x")]) == []
    assert branches("x", [("x", None), ("a", "b"), ("b", "a"), ("c", "b")]) == [["c", "b", "a"]]


@pytest.mark.parametrize("thread", ["delta-halted", "delta-healthy"])
def test_a_chain_of_changes_that_is_cut_is_said(
    thread: str, threads: Path, lockstitch: Run
) -> None:
    with saving(threads) as saver:
        head = saver.get_tuple(config(thread))
    assert head is not None
    assert "messages" not in head.checkpoint["channel_values"]
    assert head.parent_config is not None
    parent = head.parent_config["configurable"]["checkpoint_id"]
    changed(threads, "delete from checkpoints where checkpoint_id = ?", parent)
    before = every_row(threads)
    assert found(lockstitch, threads, "--session", thread) == {thread: ["LS904"]}
    lockstitch("repair", "--yes", threads, "--session", thread, "--force-cleanup")
    assert every_row(threads) == before


def test_a_change_that_is_gone_is_said(threads: Path, lockstitch: Run) -> None:
    thread = "delta-halted"
    with saving(threads) as saver:
        head = saver.get_tuple(config(thread))
    assert head is not None
    assert head.parent_config is not None
    parent = head.parent_config["configurable"]["checkpoint_id"]
    where = "checkpoint_id = ? and channel = 'messages'"
    changed(threads, f"delete from writes where {where}", parent)  # noqa: S608
    assert found(lockstitch, threads, "--session", thread) == {thread: ["LS904"]}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("type", "msgpack+aes"),
        ("type", "pickle"),
        ("type", "whatever"),
        ("checkpoint", b"\x82\xa1v\x04"),
        ("checkpoint", b""),
        ("checkpoint", None),
        ("checkpoint", 5),
        ("checkpoint", "text"),
        ("checkpoint", os.urandom(500)),
    ],
)
def test_a_value_that_cannot_be_decoded_is_said(
    column: str, value: Any, threads: Path, lockstitch: Run
) -> None:
    thread = "agent-killed"
    statement = f"update checkpoints set {column} = ? where thread_id = '{thread}'"  # noqa: S608
    changed(threads, statement, value)
    before = every_row(threads)
    runs_code = ["LS902"] if value == "pickle" else []
    assert found(lockstitch, threads, "--session", thread) == {thread: [*runs_code, "LS907"]}
    status, _ = lockstitch("repair", "--yes", threads, "--session", thread, "--force-cleanup")
    assert status == 1
    assert every_row(threads) == before


def test_a_value_that_runs_code_is_said_and_does_not(threads: Path, lockstitch: Run) -> None:
    made = threads.parent / "made"
    order = b"\x93\xa2os\xa5mkdir" + SERDE.dumps_typed(str(made))[1]
    evil = b"\xc7" + bytes([len(order)]) + b"\x00" + order
    for thread in ("agent-halted", "agent-healthy"):
        insert = (
            "insert into writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, "
            "type, value) select thread_id, '', max(checkpoint_id), 'task', 0, 'x', 'msgpack', ? "
            "from checkpoints where thread_id = ?"
        )
        changed(threads, insert, evil, thread)
        codes = found(lockstitch, threads, "--session", thread)[thread]
        assert "LS902" in codes
        lockstitch("show", threads, "--session", thread)
        lockstitch("repair", "--yes", threads, "--session", thread)
        lockstitch("export", threads, "--session", thread, "--to", "anthropic")
    assert not made.exists()
    _, printed = lockstitch("check", threads, "--session", "agent-healthy")
    assert "os.mkdir" in printed
    with saving(threads) as saver:
        saver.get_tuple(config("agent-healthy"))
    assert made.exists(), "LangGraph itself runs it"


def test_messages_with_one_id_are_told_apart(threads: Path, lockstitch: Run) -> None:
    thread = "agent-healthy"
    with saving(threads) as saver:
        head = saver.get_tuple(config(thread))
        assert head is not None
        messages = head.checkpoint["channel_values"]["messages"]
        twice = [*messages, messages[0], HumanMessage("other", id=messages[0].id)]
        values = {**head.checkpoint["channel_values"], "messages": twice}
        checkpoint = {**head.checkpoint, "channel_values": values}
        assert head.parent_config is not None
        saver.put(head.parent_config, checkpoint, {"source": "update", "step": 9}, {})
    assert found(lockstitch, threads, "--session", thread) == {thread: ["LS906", "LS906"]}
    assert lockstitch("repair", "--yes", threads, "--session", thread)[0] == 0
    with saving(threads) as saver:
        after = saver.get_tuple(config(thread))
    assert after is not None
    made = after.checkpoint["channel_values"]["messages"]
    assert [m.content for m in made] == [m.content for m in [*messages, twice[-1]]]
    assert len({m.id for m in made}) == len(made)


# Rows that are nothing


@pytest.fixture(scope="session")
def loaded(_made: Path) -> dict[str, list[Any]]:
    names = ("agent-killed", "delta-halted", "agent-healthy", "agent-asked")
    return {name: list(rows.load_rows(_made, FORM, name)) for name in names}


COLUMNS = ("type", "checkpoint", "metadata", "value", "channel", "task_id", "checkpoint_id")
JUNK = (
    st.none()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=50)
    | st.sampled_from(["json", "null", "bytes", "messages", "__interrupt__", "{}", b"{}", b"\x80"])
)


def damaged(row: Row, column: str, junk: Any, cut: int, *, replace: bool) -> Row:
    old = row.value.get(column)
    if not replace and type(old) is bytes and old:
        place = cut % len(old)
        junk = old[:place] + (junk if type(junk) is bytes else b"") + old[place + 1 :]
    stored = {**row.stored, **({column: junk} if column in row.stored else {})}
    return structs.replace(row, value=stored, stored=stored)


@given(data=st.data())
def test_rows_with_any_damage_are_judged_and_nothing_else_happens(
    data: st.DataObject, loaded: dict[str, list[Any]]
) -> None:
    session = data.draw(st.sampled_from(sorted(loaded)))
    records = list(loaded[session])
    for _ in range(data.draw(st.integers(0, 2))):
        number = data.draw(st.integers(0, len(records) - 1))
        column, junk = data.draw(st.sampled_from(COLUMNS)), data.draw(JUNK)
        cut, whole = data.draw(st.integers(0, 3000)), data.draw(st.booleans())
        records[number] = damaged(records[number], column, junk, cut, replace=whole)
    before = [dict(row.stored) for row in records]
    for options in (
        RepairOptions(),
        RepairOptions(force_cleanup=True),
        RepairOptions(strategy="rollback"),
    ):
        transcript = FORM.parse(records, Context(b"", session))
        mended = repair.plan_repair(FORM, transcript, options)
        old = [row for row in mended.after.records if not row.is_new]
        assert [row.stored for row in old] == before
        assert len(mended.after.records) - len(old) == mended.changed
