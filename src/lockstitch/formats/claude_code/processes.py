"""Which processes of Claude Code have a session open.

Since 2.1.112 at the latest every process keeps a file ``sessions/<pid>.json`` in the folder that
holds ``projects``, as long as it lives: its number, its session, when it was started (in
milliseconds since 1970, and as the system counts it), and in the newest versions the machine and
the namespace that its number belongs to. Versions without such files can only be told by their
name and their working directory.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from lockstitch.errors import LockstitchError
from lockstitch.files import os_files, read
from lockstitch.files.os_files import SLACK, SessionUser, working_in_folder

NAME = "claude"
_PROJECTS = "projects"
_LONGEST = 200  # a longer name of a project is cut, and has a digest behind it
# So long after its last sign of life a process counts that cannot be asked.
_SILENCE = 3600.0


class ProcessFile(Struct, rename="camel"):
    """What a process says of itself."""

    session_id: str
    started_at: float = 0
    proc_start: str = ""
    pid_domain: str = ""


def users(path: str, session: str | None) -> Iterator[SessionUser]:
    """Return the processes that have a session's file open, as far as can be told."""
    file = Path(os.path.realpath(path))
    # The folders of settings that the session is under: by its name, and by its real one. One that
    # lies anywhere else is a copy, which no process has open.
    found: dict[Path, None] = {}
    for name in (os.path.abspath(path), file):  # noqa: PTH100 - not resolved
        found |= {one.parent: None for one in Path(name).parents if one.name == _PROJECTS}
    moved = os.environ.get("CLAUDE_CONFIG_DIR")
    usual = Path(moved) if moved else Path.home() / ".claude"
    if file.is_relative_to(os.path.realpath(usual / _PROJECTS)):
        found[usual] = None
    folders = list(found)
    if not folders:
        return
    known: set[int] = set()
    parents = {one.parent.name for one in file.parents if one.name == "subagents"}
    own_ids = {file.stem, session, *parents}  # a sub-agent's session is its parent's
    records: list[Path] = []
    for folder in folders:
        with suppress(OSError):
            listed = (folder / "sessions").glob("*.json")
            records += [one for one in listed if one.stem.isdecimal()]
    for record in records:
        pid = int(record.stem)
        known.add(pid)
        own = None
        with suppress(LockstitchError, msgspec.MsgspecError):
            own = msgspec.json.decode(read.read_file(record), type=ProcessFile)
        if own is not None and own.session_id in own_ids:
            yield from _alive(pid, own, record, file)
    for user in working_in_folder((NAME,), path, lambda folder: is_project(file, folder)):
        if user.pid not in known and _is_at_home(user.pid, folders):
            yield user


def _alive(pid: int, own: ProcessFile, record: Path, file: Path) -> Iterator[SessionUser]:
    """Return the process of a process file if it is alive, and still the one that wrote it."""
    space = os_files.namespace()
    # In another container its number means nothing here: then the time of its files has to tell.
    is_here = not own.pid_domain or not space.startswith("pid:") or own.pid_domain.endswith(space)
    start = os_files.start_moment(pid) if is_here else None
    if start is None:
        times = [0.0]
        for path in (record, file):
            with suppress(OSError):
                times.append(path.stat().st_mtime)
        if time.time() - max(times) < _SILENCE:
            yield SessionUser(pid, record=str(record))
    elif start and sys.platform == "linux" and own.proc_start.isdecimal():
        # it says when it started as the system here does: in ticks since the boot
        if start == own.proc_start:
            yield SessionUser(pid)
    elif start:
        # It was there when its file was written, so that its number is not reused.
        since = os_files.started_at(pid)
        is_own = since is None or since <= own.started_at / 1000 + SLACK
        with suppress(OSError):
            is_own = is_own or NAME in os_files.names_of(pid)
        if is_own:
            yield SessionUser(pid)


def belongs(path: str, folder: str) -> bool:
    """Whether a file is a session of a working directory, and not one of a sub-agent's."""
    file = Path(os.path.realpath(path))
    is_main = not file.name.startswith("agent-") and file.parent.name != "subagents"
    return is_main and is_project(file, folder)


def is_project(file: Path, folder: str) -> bool:
    """Whether the sessions of a working directory are kept where a file is."""
    name = re.sub(r"[^a-zA-Z0-9]", "-", folder)
    names = [one.name for one in file.parents]
    if len(name) <= _LONGEST:
        return name in names
    return any(one.startswith(f"{name[:_LONGEST]}-") for one in names)


def _is_at_home(pid: int, folders: list[Path]) -> bool:
    """Whether a process keeps its sessions in one of these folders, as far as it can be told."""
    environ = os_files.environ_of(pid)
    if environ is None:
        return True
    home = environ.get("CLAUDE_CONFIG_DIR") or os.path.join(environ.get("HOME", ""), ".claude")  # noqa: PTH118
    return any(os.path.realpath(home) == os.path.realpath(folder) for folder in folders)
