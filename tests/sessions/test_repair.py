"""``repair`` and ``undo`` as a person meets them: asked, shown, refused, taken back."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from lockstitch.files import replace
from lockstitch.sources import source
from tests import tools
from tests.sessions import claude
from tests.sessions.command import LOCKSTITCH, run


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "session.jsonl"
    path.write_text(claude.broken(), encoding="utf-8")
    return path


def test_without_a_terminal_nothing_is_written(session: Path) -> None:
    done = run("repair", session)
    assert done.returncode == 1
    assert "Nothing was changed.\n--yes applies this plan" in done.stderr
    assert session.read_text("utf-8") == claude.broken()
    assert sorted(path.name for path in session.parent.iterdir()) == ["session.jsonl"]


def test_diff_shows_the_lines_and_writes_nothing(session: Path) -> None:
    done = run("repair", "--diff", session)
    assert done.returncode == 1
    signs = Counter(line[:1] for line in done.stdout.splitlines() if line[:3] not in ("---", "+++"))
    assert signs == {"@": 2, "-": 1, "+": 2, " ": 1}
    assert session.read_text("utf-8") == claude.broken()


def test_a_repair_keeps_all_but_what_it_names(session: Path) -> None:
    done = run("repair", "--yes", "--json", session)
    assert done.returncode == 0
    [report] = json.loads(done.stdout)["sessions"]
    assert report["status"] == "ok"
    assert report["remaining"] == []
    assert {edit["action"] for edit in report["edits"]} == {"inserted", "adjusted"}
    before, after = claude.broken().splitlines(), session.read_text("utf-8").splitlines()
    assert after[:2] == before[:2]
    assert after[4:] == before[3:]
    new = json.loads(after[2])
    assert new["parentUuid"] == claude.uuid(2)
    assert json.loads(after[3]) == {**json.loads(before[2]), "parentUuid": new["uuid"]}
    assert new["sessionId"] == claude.SESSION
    assert Path(report["backup"]).read_text("utf-8") == claude.broken()
    assert stat.S_IMODE(Path(report["backup"]).stat().st_mode) == 0o600


def test_a_person_is_asked(session: Path) -> None:
    pty = pytest.importorskip("pty")
    for answer, status in ((b"n\n", 1), (b"y\n", 0)):
        ours, theirs = pty.openpty()
        os.write(ours, answer)
        done = run("repair", session, stdin=theirs)
        os.close(ours)
        os.close(theirs)
        assert "Repair this session? A backup is kept. [y]es [n]o [d]iff [q]uit" in done.stderr
        assert done.returncode == status
    assert run("check", session).returncode == 0


def test_a_copy(session: Path, tmp_path: Path) -> None:
    copy = tmp_path / "mended.jsonl"
    assert run("repair", session, "-o", copy).returncode == 0
    assert session.read_text("utf-8") == claude.broken()
    assert run("check", copy).returncode == 0


def test_undo_and_its_own_undo(session: Path) -> None:
    assert run("repair", "--yes", session).returncode == 0
    mended = session.read_bytes()
    assert mended != claude.broken().encode()
    assert run("undo", "--yes", session).returncode == 0
    assert session.read_text("utf-8") == claude.broken()
    assert run("undo", "--yes", session).returncode == 2
    listed = json.loads(run("undo", "--list", "--json", session).stdout)["backups"]
    assert {backup["status"] for backup in listed} == {"undone", "done"}
    [undo] = [backup["run"] for backup in listed if backup["status"] == "done"]
    assert run("undo", "--yes", "--run", undo, session).returncode == 0
    assert session.read_bytes() == mended


def test_a_repaired_session_stays_as_old_as_it_was(session: Path) -> None:
    os.utime(session, (1_000_000_000, 1_000_000_000))
    assert run("repair", "--yes", session).returncode == 0
    assert 0 < session.stat().st_mtime - 1_000_000_000 < 1


def test_undo_of_a_whole_folder(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.jsonl" for name in "abc"]
    for path in paths:
        path.write_text(claude.broken(), encoding="utf-8")
    assert run("repair", "--yes", tmp_path).returncode == 0
    assert all(path.read_text("utf-8") != claude.broken() for path in paths)
    assert run("undo", "--yes", tmp_path).returncode == 0
    assert all(path.read_text("utf-8") == claude.broken() for path in paths)


def test_undo_refuses_when_the_session_went_on(session: Path) -> None:
    run("repair", "--yes", session)
    with session.open("a", encoding="utf-8") as file:
        file.write(claude.line(9, 4, "user", "More."))
    grown = session.read_bytes()
    done = run("undo", "--yes", session)
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert session.read_bytes() == grown
    assert run("undo", "--yes", "--force", session).returncode == 0
    assert session.read_text("utf-8") == claude.broken()


def test_rollback_goes_back_to_the_last_whole_turn(session: Path) -> None:
    turn = [
        claude.line(5, 4, "user", "Now the tests."),
        claude.line(6, 5, "assistant", claude.call("toolu_02")),
        claude.line(7, 6, "user", "Are you there?"),
        claude.line(8, 7, "assistant", claude.said("Yes.")),
    ]
    session.write_text(claude.healthy() + "".join(turn), encoding="utf-8")
    assert run("repair", "--yes", "--strategy", "rollback", session).returncode == 0
    assert session.read_text("utf-8") == claude.healthy()


def test_rollback_closes_the_call_if_no_turn_is_whole_and_says_so(session: Path) -> None:
    done = run("repair", "--yes", "--strategy", "rollback", session)
    assert done.returncode == 0
    assert "nothing is rolled back: open calls are answered instead" in done.stderr
    assert run("check", session).returncode == 0
    assert "Build it, please." in session.read_text("utf-8")


def test_a_link_is_refused_unless_it_is_wanted(session: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.jsonl"
    link.symlink_to(session)
    done = run("repair", "--yes", link)
    assert done.returncode == 2
    assert "--follow-symlinks" in done.stderr
    assert session.read_text("utf-8") == claude.broken()
    assert run("repair", "--yes", "--follow-symlinks", link).returncode == 0
    assert link.is_symlink()
    assert run("check", session).returncode == 0


@pytest.mark.parametrize(
    "data",
    [b"", b"\n\n", b"\0" * 100, b"\x7fELF\x02\x01\x01", b"{", b"[1, 2", b"nonsense\n", b"null\n"],
)
def test_bad_input_is_said_and_left_alone(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(data)
    for words in (["repair", "--yes"], ["check"], ["show"], ["export"], ["undo"]):
        done = run(*words, path)
        assert done.returncode == 2, words
        assert done.stderr.startswith("lockstitch: ")
        assert "Traceback" not in done.stderr
        assert path.read_bytes() == data
    assert sorted(found.name for found in tmp_path.iterdir()) == ["session.jsonl"]


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    for words in (["repair", "--yes"], ["check"], ["show"], ["export"], ["undo"]):
        done = run(*words, tmp_path / "session.jsonl")
        assert done.returncode == 2, words
        assert "no such file" in done.stderr or "no backup" in done.stderr


AS_NOBODY = """
import os, sys
from lockstitch.cli import run
run(["check", sys.argv[1]])  # loads what this user may not read
os.chdir("/")
os.setgroups([])
os.setuid(65534)
sys.exit(run(["repair", "--yes", sys.argv[2]]))
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize(("folder", "file"), [(0o555, 0o644), (0o755, 0o000)])
def test_without_the_right_to_write(tmp_path: Path, folder: int, file: int) -> None:
    """As another user, because nothing is forbidden to root."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        place = Path(name) / "place"
        place.mkdir()
        session = place / "session.jsonl"
        session.write_text(claude.broken(), encoding="utf-8")
        session.chmod(file)
        place.chmod(folder)
        known = tmp_path / "known.jsonl"
        known.write_text(claude.broken(), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(known), str(session)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert "ermission denied" in done.stderr
        assert session.read_text("utf-8") == claude.broken()
        assert [path.name for path in place.iterdir()] == ["session.jsonl"]


def test_a_full_disk(session: Path) -> None:
    """No file may grow beyond what is there already, as on a disk that is full."""
    limit = len(claude.broken()) // 2
    code = (
        "import resource, signal, sys; from lockstitch.cli import run; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
        "sys.exit(run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "repair", "--yes", str(session)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "File too large" in done.stderr
    assert session.read_text("utf-8") == claude.broken()


CHANGING = (
    "write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,"
    "fchmod,fchown,ftruncate"
)


def test_killed_at_every_system_call_that_changes_something(session: Path, tmp_path: Path) -> None:
    """The command itself; the steps of replacing a file alone are killed in tests/files."""
    session.write_text(claude.broken(), encoding="utf-8")
    os.utime(session, (1, 1))
    log = tmp_path / "log"
    words = [*LOCKSTITCH, "repair", "--yes", str(session)]
    subprocess.run(
        [tools.needed("strace"), "-f", "-o", log, "-e", f"trace={CHANGING}", *words],
        capture_output=True,
        check=True,
    )
    mended = session.read_bytes()
    calls = Counter(re.findall(r"^\d+ +(\w+)\(", log.read_text("utf-8", "replace"), re.MULTILINE))
    seen: Counter[str] = Counter()
    for name, count in calls.items():
        for number in range(1, count + 1):
            seen[_killed(session, words, name, number, mended)] += 1
    assert seen["old"] > 3
    assert seen["new"] > 3


def _killed(session: Path, words: list[str], name: str, number: int, mended: bytes) -> str:
    shutil.rmtree(session.parent / ".lockstitch", ignore_errors=True)
    session.write_text(claude.broken(), encoding="utf-8")
    os.utime(session, (1, 1))
    inject = f"inject={name}:signal=SIGKILL:when={number}"
    strace = [tools.needed("strace"), "-f", "-o", "/dev/null", "-e", inject, f"--trace={name}"]
    subprocess.run([*strace, *words], capture_output=True, check=False)
    data = session.read_bytes()
    if data == claude.broken().encode():
        return "old"
    assert data == mended, (name, number)
    [backup] = (session.parent / ".lockstitch").glob("*.bak")
    assert backup.read_text("utf-8") == claude.broken()
    return "new"


@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat", "openai-responses", "gemini"])
def test_what_was_exported_is_one_list_whatever_its_lines(
    session: Path, tmp_path: Path, dialect: str
) -> None:
    """A list that has its messages on lines of their own is no file of lines."""
    exported = run("export", session, "--to", dialect)
    assert exported.returncode == 0, exported.stderr
    path = tmp_path / "list.json"
    path.write_text(exported.stdout, encoding="utf-8")
    for words in (["check"], ["repair", "--yes"], ["repair", "--diff"]):
        done = run(*words, path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert path.read_text(encoding="utf-8") == exported.stdout
    plain = json.dumps(json.loads(exported.stdout), indent=1)
    path.write_text(plain, encoding="utf-8")
    assert run("repair", "--yes", path).returncode == 0
    assert path.read_text(encoding="utf-8") == plain


def test_the_time_of_a_file_behind_a_link_is_left_alone(tmp_path: Path) -> None:
    """Somebody puts a link in the place of the session right after it was repaired."""
    victim, path = tmp_path / "victim", tmp_path / "session.jsonl"
    for one in (victim, path):
        one.write_text(claude.broken(), encoding="utf-8")
    os.utime(path, (1, 1))
    before = replace.snapshot(path)
    path.unlink()
    path.symlink_to(victim)
    changed = victim.stat().st_mtime_ns
    source._keep_time(before)  # noqa: SLF001
    assert victim.stat().st_mtime_ns == changed
