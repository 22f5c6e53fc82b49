"""Targets on the command line: sessions, stores, and LangGraph's threads."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lockstitch.cli import terminal
from lockstitch.cli.render import STDIN, current_folder
from lockstitch.cli.terminal import ProgressBar
from lockstitch.errors import (
    LockstitchError,
    UnknownFormat,
    Unreadable,
    UsageError,
    reason_of,
)
from lockstitch.files import replace
from lockstitch.files.read import ZSTD_MAGIC, read_file, read_head
from lockstitch.formats.interface import DOCUMENT
from lockstitch.formats.records import read_json
from lockstitch.sources.own_stores import (
    DATABASES,
    MAGIC,
    is_postgres,
    is_same_store,
    may_be,
    may_hold_many,
    path_of,
    place_of,
)
from lockstitch.sources.source import Survey, pasted
from lockstitch.sources.targets import (
    STORE,
    THREADS,
    classify,
    resolve,
    resolve_sources,
    session_paths,
)
from lockstitch.stores.addresses import public

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lockstitch.sources.source import Source

_REQUESTS = "requests"
_SHOWN = 4


def is_own_store(target: str | None, form: str | None) -> bool:
    """Whether a target is a Lockstitch store: its address, its folder, or a session's file."""
    if target is None:
        return False
    if form is None and os.path.isdir(target):  # noqa: PTH112 - start-up time
        return place_of(target) is not None
    return classify(target, form) == STORE


@contextmanager
def naming_target(target: str) -> Iterator[None]:
    """Add the target's name to errors raised in the block."""
    try:
        yield
    except LockstitchError as error:
        # An error about another store, such as the one to copy to, keeps the name of that store.
        if error.target is None or is_same_store(error.target, target):
            error.about(public(target))
        raise


def require_own_session(target: str | None) -> str:
    """Return a target that is a Lockstitch store; raise an error with a hint for other programs."""
    if target is None:
        raise UsageError("nothing to read: name the address of a store, such as sqlite:///agent.db")
    return require_store(
        target,
        "checkpoints, rewind and fork need. For another program's session, `lockstitch repair "
        "--branch` writes a branch as a new session, and `--strategy rollback` goes back to the "
        "last complete turn",
    )


def require_store(target: str | None, purpose: str = "this command needs") -> str:
    """Return a target that is a Lockstitch store, for a command that works only on those."""
    if target is None:
        raise UsageError("name the address of a store, such as sqlite:///agent.db")
    if not is_own_store(target, None):
        if "://" not in target and not os.path.lexists(target):
            raise Unreadable("no such file").about(public(target))
        error = f"it is not a Lockstitch store, which {purpose}"
        raise UsageError(error).about(public(target))
    return target


def write_copy(
    output: str, data: bytes | None, target: str | None, path: str = "", *, force: bool = False
) -> None:
    """Write a copy of a target's content; without data, only check that this is allowed.

    The copy never replaces the input (``path`` is its file, if that is not the target itself), and
    replaces another file only with ``force``.
    """
    sources: list[str | int] = [0]
    if target is not None and target != STDIN:
        sources = _files_of(path or target)
    try:
        if data is None:
            replace.require_new(output, force=force, sources=sources)
        else:
            replace.write_new(output, data, force=force, sources=sources)
    except OSError as error:
        raise UsageError(f"-o {output} cannot be written: {reason_of(error)}") from error


def _files_of(target: str) -> list[str | int]:
    """Return the files of a target: itself, a database's logs, all files of a store."""
    if is_postgres(target):
        return []
    place = place_of(target) if may_be(target) else None
    path = target
    if place is not None and place.url.startswith(("sqlite:", "jsonl:")):
        path = path_of(place.url)
    elif target.startswith("sqlite:"):
        path = path_of(target)
    if os.path.isdir(path):  # noqa: PTH112 - start-up time
        return [entry.path for entry in os.scandir(path)]
    return [path, *(f"{path}-{end}" for end in ("wal", "shm", "journal"))]


def find_sessions(
    target: str, form: str | None, session: str | None, *, is_list: bool = False
) -> list[Source]:
    """Return the sessions that a target names, or the one list that it is, as far as can be told.

    ``is_list`` says that a person called it a list.
    """
    if is_list or target == STDIN or (form is None and _starts_as_list(target)):
        return [_list_source(target)]
    try:
        return resolve_sources(target, format=form, session=session)
    except UnknownFormat as error:
        is_file = os.path.isfile(target)  # noqa: PTH113 - start-up time
        is_base = target.endswith(DATABASES)
        is_base = is_base or _read_head(target, 16).startswith((MAGIC, ZSTD_MAGIC))
        # an unrecognizable file is read as a list, which reports where it stops being JSON
        if form is None and is_file and not is_base and not error.likeness:
            return [_list_source(target)]
        raise


def _list_source(target: str) -> Source:
    from lockstitch.sources.lists import ListSource

    return ListSource(target, "list", DOCUMENT)


def _starts_as_list(target: str) -> bool:
    """Whether a file is one JSON list, and not lines of which the first happens to be a list."""
    start = _read_head(target, 4096).lstrip()
    first, newline, rest = start.partition(b"\n")
    if not start.startswith(b"[") or (newline and rest.strip() and _is_whole(first)):
        return False
    # Complete records on later lines belong to a session whose first line is damaged, or to a list.
    has_records = any(line[:1] == b"{" and _is_whole(line) for line in rest.split(b"\n"))
    return not has_records or _is_whole(read_file(target))


def _read_head(target: str, size: int) -> bytes:
    try:
        return read_head(target, size)
    except LockstitchError:
        return b""


def _is_whole(line: bytes) -> bool:
    try:
        read_json(line)
    except ValueError:
        return False
    return True


def last_used_session(target: str | None, session: str | None) -> tuple[str, str | None]:
    """Return the target and the id of the session that was used last, for ``--last``.

    Sessions of the current folder come first, then any of this machine.
    """
    from lockstitch.sources import listing

    if target is not None or session is not None:
        raise UsageError("--last takes the most recently used session: do not name another")
    folder = current_folder()
    found = None
    for known in listing.summarize_files(session_paths()):
        if known.is_aside:
            continue
        found = found or known
        if folder and known.project == folder:
            found = known
            break
    if found is None:
        raise UsageError(
            "no sessions were found on this machine; `lockstitch scan` says where it looked"
        )
    terminal.note(f"{found.program} {pasted(found.target)} {found.session or ''}".rstrip())
    return found.target, found.session if may_hold_many(found.target) else None


def find_one(target: str | None, form: str | None, session: str | None) -> Source:
    """Return the only session that a target names."""
    if target is None:
        raise UsageError("nothing to read: name a file or a session id")
    name = public(target)
    try:
        found = resolve(target, format=form, session=session, most=_SHOWN)
    except LockstitchError as error:
        error.about(name)
        raise
    if not found:
        raise Unreadable("it holds no session").about(name)
    found = [source for source in found if source.session == session] or found
    if len(found) > 1:
        ids = ", ".join(str(source.session) for source in found[:3] if source.session)
        more = f" such as {ids}" if ids else ""
        count = f"{_SHOWN} or more sessions" if len(found) == _SHOWN else f"{len(found)} sessions"
        many = count if is_postgres(target) else f"{len(found)} sessions"
        raise UsageError(f"it holds {many}; name one with --session{more}").about(name)
    if found[0].format == _REQUESTS:
        raise UsageError(
            "it holds a request on every line; check and repair take such a file, but this "
            "command takes a file with one request"
        ).about(name)
    return found[0]


# Many sessions.


def survey_of(
    workers: int | None, part: tuple[int, int] | None, targets: Sequence[str], *, are_threads: bool
) -> Survey:
    """Return options for going through stores and databases, with a progress bar."""
    if part is not None and not (targets and are_threads):
        raise UsageError(
            "--shard divides the threads of a PostgreSQL database with LangGraph's checkpoints: "
            "name its address, and leave out --session"
        )
    return Survey(workers=workers, shard=part or (1, 1), bar=ProgressBar)


def name_threads(targets: Sequence[str], form: str | None, session: str | None) -> bool:
    """Whether all targets are databases of threads, and no single thread is named."""
    return session is None and all(classify(one, form) == THREADS for one in targets)
