from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lockstitch.files import backup as backups
from lockstitch.files import os_files, replace
from lockstitch.files.read import Folder

LINES = b'{"n": 1}\n{"n": 2}\n'


def keep_original(
    before: replace.Snapshot,
    run: str,
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    token: Callable[[], str] = backups.new_run,
) -> backups.Backup:
    """Do what a repair does before it replaces a file, and nothing after that."""
    owner = backups.Owner(before.uid, before.gid)
    with backups.make_backup_folder(before.path, owner) as vault:
        return backups.new_backup(before.path, run, now(), token(), vault, before=before)


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "session.jsonl"
    path.write_bytes(LINES)
    return path


@pytest.fixture
def without_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os_files, "is_leased", lambda _: False)


@pytest.fixture(params=["exchange", "link", "rename"])
def swapping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All three ways to swap two files, whatever this file system offers."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    if request.param != "exchange":
        monkeypatch.setattr(os_files, "_exchange_names", lambda *_: False)
    if request.param == "rename":
        monkeypatch.setattr(os, "link", refuse)
    return str(request.param)


@pytest.fixture
def around_swap(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let something happen right before and right after the first swap of two files."""

    def arrange(before: Callable[[], object] = int, after: Callable[[], object] = int) -> None:
        real = os_files.swap_names

        def swap(folder: Folder, new: str, target: str) -> bool:
            monkeypatch.setattr(os_files, "swap_names", real)
            before()
            done = real(folder, new, target)
            after()
            return done

        monkeypatch.setattr(os_files, "swap_names", swap)

    return arrange


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(f"{os_files.PREFIX}*")]
