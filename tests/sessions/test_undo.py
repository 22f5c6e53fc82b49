"""``undo`` where there is more than one thing to take back: sessions of a database, whole runs."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lockstitch.files import backup
from tests.formats.databases import AgentsBook, GooseBook, OpencodeBook, rows
from tests.sessions import claude
from tests.sessions.command import run

Book = OpencodeBook | GooseBook | AgentsBook


def opencode(name: str) -> OpencodeBook:
    book = OpencodeBook(name)
    book.work("Read the settings.", "settings")
    book.message("user", book.text("Run the build."))
    book.message("assistant", book.text("I build it."), book.tool("build", None), done=False)
    return book


def goose(name: str) -> GooseBook:
    book = GooseBook(name)
    book.message("user", book.text("Run the build."))
    book.message("assistant", book.text("I build it."), book.request("build"))
    book.work("Are you there?", "status")
    return book


def agents(name: str) -> AgentsBook:
    book = AgentsBook(name)
    book.ask("Run the build.")
    book.call("build")
    book.work("Are you there?", "status")
    return book


def merged(folder: Path, make: Callable[[str], Book]) -> tuple[Path, list[str]]:
    """A database with two broken sessions, written one after the other."""
    first, second = make("first"), make("second")
    path, other = folder / "sessions.db", folder / "other.db"
    first.write(path)
    second.write(other)
    with closing(sqlite3.connect(path)) as base:
        base.execute("attach ? as other", (str(other),))
        names = [
            name
            for (name,) in base.execute(
                "select name from other.sqlite_master "
                "where type = 'table' and name not like 'sqlite_%' order by rowid"
            )
        ]
        for name in names:
            columns = [row[1] for row in base.execute(f"pragma table_info({name})")]
            keys = [row[1] for row in base.execute(f"pragma table_info({name})") if row[5]]
            is_counted = keys == ["id"] and isinstance(first, GooseBook | AgentsBook)
            own = [c for c in columns if not (is_counted and name != "sessions" and c == "id")]
            listed = ", ".join(own)
            source = f"select {listed} from other.{name}"  # noqa: S608
            base.execute(f"insert or ignore into {name} ({listed}) {source}")
        base.commit()
    for one in folder.glob("other.db*"):
        one.unlink()
    return path, [first.session, second.session]


KINDS: dict[str, Callable[[Path], tuple[Path, list[str]]]] = {
    "opencode": lambda folder: merged(folder, opencode),
    "goose": lambda folder: merged(folder, goose),
    "openai-agents": lambda folder: merged(folder, agents),
}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["as repaired", "the other way"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_session_of_a_database_goes_back_alone(
    tmp_path: Path, kind: str, order: tuple[int, int]
) -> None:
    path, names = KINDS[kind](tmp_path)
    state = rows(path)
    for name in names:
        done = run("repair", "--yes", path, "--session", name)
        assert done.returncode == 0, done.stderr
    both = rows(path)
    for number in order:
        before = rows(path)
        other = names[1 - number]
        kept = json.loads(run("export", path, "--session", other, "--raw").stdout)
        done = run("undo", "--yes", path, "--session", names[number])
        assert done.returncode == 0, done.stderr
        assert names[number] in done.stderr
        assert rows(path) != before
        assert json.loads(run("export", path, "--session", other, "--raw").stdout) == kept
    assert both != state
    assert rows(path) == state
    done = run("undo", "--yes", path, "--session", names[0])
    assert done.returncode == 2
    assert "all undone" in done.stderr


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("opencode", ".local/share/opencode/opencode.db"),
        ("goose", ".local/share/goose/sessions/sessions.db"),
    ],
)
def test_an_id_means_its_own_session_of_a_database(tmp_path: Path, kind: str, place: str) -> None:
    made, names = KINDS[kind](tmp_path)
    path = tmp_path / "home" / place
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(made)) as base:
        base.execute("pragma wal_checkpoint(truncate)")
    shutil.copy(made, path)
    environ = {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    for name in names:
        assert run("repair", "--yes", path, "--session", name).returncode == 0
    second = run("export", path, "--session", names[1], "--raw").stdout
    done = run("undo", "--yes", names[0], env=environ)
    assert done.returncode == 0, done.stderr
    assert run("export", path, "--session", names[1], "--raw").stdout == second
    assert run("check", path, "--session", names[0]).returncode == 1


def test_a_session_that_was_repaired_again_goes_back_step_by_step(tmp_path: Path) -> None:
    path, names = merged(tmp_path, agents)
    state = rows(path)
    assert run("repair", "--yes", path, "--session", names[0]).returncode == 0
    once = rows(path)
    # The same rows again: the neutral result of the first repair loses its call's name.
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(
            "update agent_messages set message_data = '{' where session_id = ? and "
            "message_data like '%function_call_output%'",
            (names[0],),
        )
    broken = rows(path)
    assert run("repair", "--yes", path, "--session", names[0]).returncode == 0
    listed = json.loads(run("undo", "--list", "--json", path).stdout)["backups"]
    second, first = (one["run"] for one in listed)
    mended = rows(path)
    done = run("undo", "--yes", "--run", first, path)
    assert done.returncode == 2
    assert f"so undo run {second} first" in done.stderr
    assert rows(path) == mended
    assert run("undo", "--yes", path).returncode == 0
    assert rows(path) == broken
    # What the first repair left is no longer there, whoever changed it.
    done = run("undo", "--yes", path)
    assert (done.returncode, "has changed since the repair" in done.stderr) == (2, True)
    assert once != state


def test_a_whole_run_goes_back_or_nothing_of_it(tmp_path: Path) -> None:
    path, names = merged(tmp_path, agents)
    state = rows(path)
    assert run("repair", "--yes", path).returncode == 0
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(
            "delete from agent_messages where id in (select max(id) from agent_messages "
            "where session_id = ?)",
            (names[0],),
        )
    changed = rows(path)
    done = run("undo", "--yes", path)
    assert done.returncode == 2
    assert rows(path) == changed
    done = run("undo", "--yes", path, "--session", names[1])
    assert done.returncode == 0, done.stderr
    assert state != changed


def test_undo_waits_for_the_program_that_has_the_database_open(tmp_path: Path) -> None:
    path, names = merged(tmp_path, agents)
    assert run("repair", "--yes", path, "--session", names[0]).returncode == 0
    state = rows(path)
    code = (
        "import sqlite3, sys; base = sqlite3.connect(sys.argv[1]); "
        "base.execute('select * from agent_messages').fetchall(); print(1, flush=True); "
        "sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        done = run("undo", "--yes", path)
        program.communicate()
    assert done.returncode == 2
    assert f"process {program.pid} has it open" in done.stderr
    assert rows(path) == state
    assert run("undo", "--yes", path).returncode == 0


def test_session_is_for_databases(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(claude.broken(), encoding="utf-8")
    assert run("repair", "--yes", path).returncode == 0
    done = run("undo", "--yes", path, "--session", "other")
    assert done.returncode == 2
    assert "--session is for one in a database" in done.stderr


# Lists, folders and runs.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b/c", "b/d"):
        path = tmp_path / "project" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(claude.broken(), encoding="utf-8")
    return tmp_path / "project"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*.jsonl")}


def listed(*words: object) -> list[dict[str, Any]]:
    done = run("undo", "--list", "--json", *words)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["backups"]
    return found


def test_a_list_names_files_that_are_there(tmp_path: Path) -> None:
    path, _ = merged(tmp_path, agents)
    done = run("repair", "--yes", "--json", path)
    made = {session["backup"] for session in json.loads(done.stdout)["sessions"]}
    found = listed(path)
    assert {one["backup"] for one in found} == made
    assert all(Path(one["backup"]).exists() for one in found)
    assert len({one["session"] for one in found}) == len(found) == 2
    printed = run("undo", "--list", path).stdout
    assert all(one["backup"] in printed and one["session"] in printed for one in found)
    assert all(f" {one['size']}  {one['backup']}" in printed for one in found)


def test_a_backup_that_was_removed_is_said_to_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(claude.broken(), encoding="utf-8")
    run("repair", "--yes", path)
    [one] = listed(path)
    Path(one["backup"]).unlink()
    [one] = listed(path)
    assert one["status"] == "missing"
    assert Path(one["backup"]).exists()
    done = run("undo", "--yes", path)
    assert (done.returncode, "cannot be read: no such file" in done.stderr) == (2, True)


def test_a_folder_can_be_listed_and_its_undo_undone(folder: Path) -> None:
    before = files(folder)
    assert run("repair", "--yes", folder).returncode == 0
    mended = files(folder)
    assert run("undo", "--yes", folder).returncode == 0
    assert files(folder) == before
    found = listed(folder)
    assert {(one["kind"], one["status"]) for one in found} == {
        ("repair", "undone"),
        ("undo", "done"),
    }
    [again] = {one["run"] for one in found if one["kind"] == "undo"}
    done = run("undo", "--yes", "--run", again, folder)
    assert done.returncode == 0, done.stderr
    assert files(folder) == mended
    assert run("undo", "--yes", folder).returncode == 0
    assert files(folder) == before
    done = run("undo", "--yes", folder)
    assert (done.returncode, "all undone" in done.stderr) == (2, True)


def test_what_is_left_of_a_run_goes_back(folder: Path) -> None:
    before = files(folder)
    run("repair", "--yes", folder)
    [repair] = {one["run"] for one in listed(folder)}
    assert run("undo", "--yes", folder / "a.jsonl").returncode == 0
    done = run("undo", "--yes", "--run", repair, folder)
    assert done.returncode == 0, done.stderr
    assert files(folder) == before
    done = run("undo", "--yes", "--run", repair, folder)
    assert (done.returncode, "already" in done.stderr) == (2, True)
    done = run("undo", "--yes", "--run", "nobody", folder)
    assert (done.returncode, "nothing from run nobody" in done.stderr) == (2, True)


def test_a_run_is_taken_back_whatever_came_later_elsewhere(folder: Path) -> None:
    assert run("repair", "--yes", folder / "a.jsonl").returncode == 0
    [first] = {one["run"] for one in listed(folder)}
    assert run("repair", "--yes", folder / "b").returncode == 0
    later = {name: data for name, data in files(folder).items() if "/b/" in name}
    assert run("undo", "--yes", "--run", first, folder).returncode == 0
    assert (folder / "a.jsonl").read_text("utf-8") == claude.broken()
    assert {name: data for name, data in files(folder).items() if "/b/" in name} == later


def test_a_file_that_was_moved_away_is_named_and_brought_back_by_force(folder: Path) -> None:
    name = f"{'x' * 150}.jsonl"
    (folder / name).write_text(claude.broken(), encoding="utf-8")
    before = files(folder)
    run("repair", "--yes", folder)
    mended = files(folder)
    (folder / name).rename(folder.parent / "elsewhere.jsonl")
    assert str(folder / name) in {one["target"] for one in listed(folder)}
    done = run("undo", "--yes", folder)
    assert done.returncode == 2
    assert f"{name}: no such file; --force restores it" in done.stderr
    assert {**files(folder), str(folder / name): mended[str(folder / name)]} == mended
    assert run("undo", "--yes", "--force", folder).returncode == 0
    assert files(folder) == before


def test_a_name_without_a_folder_is_enough_when_the_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text(claude.broken(), encoding="utf-8")
    run("repair", "--yes", path)
    path.unlink()
    done = run("undo", "--yes", "--force", "session.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert path.read_text("utf-8") == claude.broken()


def test_a_link_leads_to_the_backups_of_its_file(tmp_path: Path) -> None:
    path, link = tmp_path / "real" / "session.jsonl", tmp_path / "link.jsonl"
    path.parent.mkdir()
    path.write_text(claude.broken(), encoding="utf-8")
    link.symlink_to(path)
    assert run("repair", "--yes", "--follow-symlinks", link).returncode == 0
    assert run("undo", "--yes", link).returncode == 0
    assert link.is_symlink()
    assert path.read_text("utf-8") == claude.broken()


def test_older_backups_do_not_name_their_session(tmp_path: Path) -> None:
    path, names = merged(tmp_path, goose)
    before = rows(path)
    for name in names:
        assert run("repair", "--yes", path, "--session", name).returncode == 0
    for manifest in (tmp_path / backup.FOLDER).glob("*.json"):
        known = json.loads(manifest.read_bytes())
        del known["session"]
        manifest.write_text(json.dumps(known))
    assert {one["session"] for one in listed(path)} == set(names)
    for name in names:
        assert run("undo", "--yes", path, "--session", name).returncode == 0
    assert rows(path) == before
