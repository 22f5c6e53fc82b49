"""Full disks, forbidden folders, foreign files, failing calls: a clear error, nothing changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstitch.errors import LockstitchError
from lockstitch.files import backup, os_files, replace
from lockstitch.files.backup import FOLDER
from tests.files.conftest import LINES, leftovers
from tests.files.test_replace import NEW, QUICK, append
from tests.postgres_server import open_room

IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
NOBODY = 65534

REPAIR = """
import os, resource, signal, sys
from lockstitch.files import backup
from lockstitch.files.replace import snapshot
size, user, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
before = snapshot(path)
if size:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
try:
    backup.replace_with_backup(before, before.data.replace(b"1", b"one"), "run", {})
except OSError as error:
    assert error.filename == path, error.filename
    print(f"{error.strerror}: {error.filename}")
    sys.exit(1)
"""


def repair(path: Path, size: int = 0, user: int = 0) -> subprocess.CompletedProcess[str]:
    """Repair a file in a process of its own, with a limit on file sizes or as another user."""
    command = [sys.executable, "-c", REPAIR, str(size), str(user), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def contents(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def assert_refused(done: subprocess.CompletedProcess[str], reason: str) -> None:
    assert (done.returncode, done.stderr) == (1, "")
    assert reason in done.stdout


def test_the_program_of_this_test_can_repair(session: Path) -> None:
    assert repair(session).returncode == 0
    assert session.read_bytes() == LINES.replace(b"1", b"one")


@pytest.mark.parametrize("limit", [4, len(LINES)])
def test_a_file_that_may_not_grow_any_more_stays_as_it_is(session: Path, limit: int) -> None:
    """The limit hits the backup first, and then only the longer new file."""
    assert_refused(repair(session, size=limit), "File too large")
    assert session.read_bytes() == LINES
    assert contents(session.parent) == [FOLDER, session.name]


FULL = 'mount -t tmpfs -o size=256k full "$1" && cp "$2" "$1/session.jsonl" && shift 2 && exec "$@"'


@pytest.mark.parametrize("copies", [1.5, 2.5])
def test_a_full_disk(tmp_path: Path, copies: float) -> None:
    """Too small for the backup, or for backup and new file."""
    unshare = shutil.which("unshare")
    if not IS_ROOT or unshare is None:
        pytest.skip("NOT TESTED on a full disk: only root can make a small one")
    large = tmp_path / "large"
    large.write_bytes((b"x" * 1023 + b"\n") * int(256 / copies))
    place = tmp_path / "full"
    place.mkdir()
    look = f"{REPAIR.replace('sys.exit(1)', LOOK)}"
    words = [sys.executable, "-c", look, "0", "0", str(place / "session.jsonl")]
    done = subprocess.run(
        [unshare, "-m", "sh", "-c", FULL, "sh", str(place), str(large), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if "mount" in done.stderr:
        pytest.skip(f"NOT TESTED on a full disk: {done.stderr.strip()}")
    assert done.stdout.splitlines() == [
        f"No space left on device: {place}/session.jsonl",
        "['.lockstitch', 'session.jsonl'] [] True",
    ]


LOOK = (
    "folder = os.path.dirname(path); "
    "print(sorted(os.listdir(folder)), os.listdir(folder + '/.lockstitch'), "
    "open(path, 'rb').read() == before.data)"
)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that any user can reach, with a file that any user can read.

    Not in the folder of the test run: pytest closes that to others whenever it starts.
    """
    if not IS_ROOT:
        pytest.skip("NOT TESTED as another user: only root can become one")
    with tempfile.TemporaryDirectory(dir=open_room()) as name:
        folder = Path(name)
        folder.chmod(0o755)
        path = folder / "session.jsonl"
        path.write_bytes(LINES)
        path.chmod(0o644)
        yield path


def test_a_folder_one_may_not_write_to(public: Path) -> None:
    assert_refused(repair(public, user=NOBODY), "Permission denied")
    assert public.read_bytes() == LINES
    assert contents(public.parent) == [public.name]


def test_a_folder_one_may_not_write_to_with_backups_in_it(public: Path) -> None:
    (public.parent / FOLDER).mkdir()
    os.chown(public.parent / FOLDER, NOBODY, NOBODY)
    assert_refused(repair(public, user=NOBODY), "Permission denied")
    assert public.read_bytes() == LINES
    assert contents(public.parent) == [FOLDER, public.name]


def test_a_file_of_somebody_else_in_a_folder_of_ours(public: Path) -> None:
    os.chown(public.parent, NOBODY, NOBODY)
    assert_refused(repair(public, user=NOBODY), "belongs to another user")
    assert (public.read_bytes(), public.stat().st_uid) == (LINES, 0)
    assert contents(public.parent) == [FOLDER, public.name]


def test_a_file_of_ours_as_an_ordinary_user(public: Path) -> None:
    os.chown(public.parent, NOBODY, NOBODY)
    os.chown(public, NOBODY, NOBODY)
    done = repair(public, user=NOBODY)
    assert (done.returncode, done.stderr) == (0, "")
    assert public.stat().st_uid == NOBODY
    assert public.read_bytes() == LINES.replace(b"1", b"one")


def test_what_root_backs_up_belongs_to_the_owner_of_the_folder(public: Path) -> None:
    os.chown(public.parent, NOBODY, NOBODY)
    os.chown(public, NOBODY, NOBODY)
    assert repair(public).returncode == 0
    kept = [public.parent / FOLDER, *(public.parent / FOLDER).iterdir()]
    assert {(path.stat().st_uid, path.stat().st_mode & 0o077) for path in kept} == {(NOBODY, 0)}


# Every call that can fail, one after the other, without strace.


class Failing:
    """Makes the N-th call of any of these functions fail."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.left = number
        self.failed = ""
        for module, name in POINTS:
            patch.setattr(module, name, self.instead_of(getattr(module, name), name))

    def instead_of(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if not self.left:
                self.failed = name
                raise OSError(5, "Input/output error")
            return real(*args, **options)

        return call


POINTS = [
    (os, "open"),
    (os, "write"),
    (os, "fsync"),
    (os, "fstat"),
    (os, "pread"),
    (os, "mkdir"),
    (os, "replace"),
    (os, "fchmod"),
    (os_files, "_exchange_names"),
]


def test_every_call_that_fails_leaves_the_old_file_or_the_new_with_its_backup(
    session: Path,
) -> None:
    outcomes = set()
    for number in range(1, 500):
        session.write_bytes(LINES)
        os.utime(session, (0, 0))
        shutil.rmtree(session.parent / FOLDER, ignore_errors=True)
        with pytest.MonkeyPatch.context() as patch:
            failing = Failing(patch, number)
            try:
                backup.replace_with_backup(replace.snapshot(session), NEW, "run", {})
                outcome = "done"
            except (LockstitchError, OSError) as error:
                outcome = "mended" if "the file is repaired" in str(error) else "refused"
        assert leftovers(session.parent) == [], failing.failed
        assert session.read_bytes() == (LINES if outcome == "refused" else NEW), failing.failed
        kept = backup.list_backups(session)
        assert [one.file.read_bytes() for one in kept] == [LINES] * (outcome != "refused")
        outcomes.add(outcome)
        if not failing.failed:
            break
    assert outcomes == {"done", "mended", "refused"}


def test_lines_that_could_not_be_carried_over_are_in_the_old_file(
    session: Path, around_swap: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fail(handle: int) -> None:
        if os.fstat(handle).st_size > len(NEW):
            raise OSError(28, "No space left on device")
        real(handle)

    around_swap(lambda: append(session, b"late\n"), lambda: monkeypatch.setattr(os, "fsync", fail))
    with pytest.raises(OSError, match="No space left") as failure:
        replace.replace(replace.snapshot(session), NEW, patience=QUICK)
    assert failure.value.filename == str(session)
    assert session.read_bytes() == LINES + b"late\n"
    assert leftovers(session.parent) == []
