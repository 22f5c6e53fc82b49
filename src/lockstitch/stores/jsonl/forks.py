"""Forking a session's file: a new one with the first records of another, all or none."""

from __future__ import annotations

import os
import time
from pathlib import Path

from msgspec import structs

from lockstitch import disk
from lockstitch.errors import Held, UsageError
from lockstitch.journal.records import Head
from lockstitch.stores.jsonl.files import Files
from lockstitch.stores.jsonl.lines import Written, opening, record_line


def forked(files: Files, source: str, upto: int, target: str) -> Head:
    """Copy the first records; raises ``Held`` if ``target`` has others, and ``OSError``."""
    parts = _first(files, source, upto)
    if not files.exists(target) and _made(files, target, parts):
        return files.state(target).head
    if _first(files, target, None) != parts:
        raise Held(f"session {target}: it exists, with other records than the fork's")
    return files.state(target).head


def _first(files: Files, session: str, upto: int | None) -> list[Written]:
    """The first records of a session, each as if it had been appended alone."""
    parts: list[Written] = []
    for whole in files.appends(session):
        parts += [structs.replace(part, index=0, count=1) for part in whole]
        if upto is not None and len(parts) >= upto:
            break
    if upto is not None and not 0 <= upto <= len(parts):
        raise UsageError(f"session {session}: there is no record {upto} to fork at")
    return parts[:upto]


def _made(files: Files, target: str, parts: list[Written]) -> bool:
    """Put the copy in its place; False if another file is there now."""
    with disk.draft(files.folder) as new:
        disk.write(new.handle, _copy(target, parts))
        disk.sync(new.handle)
        new.close()
        if not placed(new.path, files.log(target)):
            return False
    disk.sync_folder(files.folder)
    return True


def placed(draft: Path, target: Path) -> bool:
    """Give a file its name without ever taking that of another."""
    try:
        os.link(draft, target, follow_symlinks=False)
    except FileExistsError:
        return False
    except (OSError, NotImplementedError):
        # No second names here: then nothing better than looking first.
        if target.exists():
            return False
        draft.rename(target)
    return True


def _copy(target: str, parts: list[Written]) -> bytes:
    """The lines of a fork: every epoch is opened before its first record, by nobody."""
    now = time.time_ns() // 1_000_000
    lines = [] if parts else [opening(target, 0, now, None, None)]
    epoch = 0
    for part in parts:
        if part.record.epoch != epoch:
            epoch = part.record.epoch
            lines.append(opening(target, epoch, now, None, None))
        lines.append(record_line(part))
    return b"".join(lines)
