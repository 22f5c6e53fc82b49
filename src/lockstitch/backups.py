"""Backups of repaired files, and the way back to them.

They live in a folder ``.lockstitch`` beside the file, private to its owner, and are never
overwritten. A backup is the file as it was read (``.bak``), durable before anything is replaced,
and a manifest (``.json``), written when the outcome is known; without it the repair was cut
short. A repair of rows in a database has a manifest only, which holds the rows.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch import disk, files
from lockstitch.errors import Conflict, LockstitchError, Unreadable, UsageError
from lockstitch.files import Snapshot
from lockstitch.moves import Replaced

FOLDER = ".lockstitch"
VERSION = 1

_LONGEST_NAME = 120
_STAMP = "%Y%m%dT%H%M%S%fZ"
_RUN = re.compile(r"[A-Za-z0-9_]{1,64}")
_STEM = re.compile(
    r"(?P<label>.+)\.(?P<time>\d{8}T\d{12}Z)-(?P<run>[A-Za-z0-9_]{1,64})-(?P<random>\w{1,32})",
    re.ASCII | re.DOTALL,
)


class Manifest(Struct, frozen=True, omit_defaults=True):
    """What is known of a backup beyond its bytes.

    ``carried`` counts the bytes at the end of the new file that others appended during the
    repair; ``rows`` are the images of database rows; ``of`` names the backup that was restored,
    if this one was made by an undo; ``details`` belong to the caller.
    """

    version: int
    run: str
    target: str
    time: str
    before_digest: str = ""
    before_size: int = 0
    after_digest: str = ""
    after_size: int = 0
    carried: int = 0
    finished: bool = False
    undone: str | None = None
    of: str | None = None
    rows: dict[str, Any] | None = None
    details: dict[str, Any] = {}


class Backup(Struct, frozen=True):
    """One backup of one file; ``manifest`` is missing if the repair was cut short."""

    path: str
    stem: str
    run: str
    time: datetime
    manifest: Manifest | None = None

    @property
    def file(self) -> Path:
        """The file that holds the bytes of before."""
        return Path(self.path).parent / FOLDER / f"{self.stem}.bak"

    @property
    def status(self) -> str:
        """The word for it in lists: ``done``, ``undone`` or ``unfinished``."""
        if self.manifest is None:
            return "unfinished"
        if self.manifest.undone:
            return "undone"
        return "done" if self.manifest.finished else "unfinished"

    @property
    def rows(self) -> dict[str, Any] | None:
        """The images of database rows, if it holds those and no file."""
        return self.manifest.rows if self.manifest else None


class Run(Struct, frozen=True):
    """What one repair, or one undo, backed up over all its files; newest first."""

    id: str
    time: datetime
    backups: tuple[Backup, ...]


class Undone(Struct, frozen=True):
    """A finished undo: what was restored, and what holds the state that it took the place of."""

    path: str
    restored: Backup
    kept: Backup | None = None


Clock = Callable[[], datetime]
Token = Callable[[], str]


def _now() -> datetime:
    return datetime.now(UTC)


def new_run() -> str:
    """A name for one repair, however many files it mends."""
    return secrets.token_hex(6)


def replace(
    before: Snapshot, data: bytes, run: str, details: dict[str, Any]
) -> tuple[Backup, Replaced]:
    """``files.replace`` with a backup: keep, replace, settle; no trace if nothing was written."""
    _encoded(details)
    backup = keep(before, run)
    try:
        replaced = files.replace(before, data)
    except BaseException:
        if _is_untouched(before):
            backup.file.unlink(missing_ok=True)
        raise
    return settle(backup, replaced, details), replaced


def _is_untouched(before: Snapshot) -> bool:
    with suppress(OSError):
        return Path(before.path).lstat().st_ino == before.inode
    return False


def keep(before: Snapshot, run: str, *, now: Clock = _now, token: Token = new_run) -> Backup:
    """Save what was read, before it is replaced; durable when it returns."""
    backup = _new(before.path, run, now, token)
    _create(backup.file, before.data)
    return backup


def keep_rows(
    path: str | Path,
    run: str,
    rows: dict[str, Any],
    *,
    now: Clock = _now,
    token: Token = new_run,
) -> Backup:
    """Save the images of database rows, as JSON values, instead of the whole database."""
    return _noted(_new(path, run, now, token), rows=rows)


def settle(
    backup: Backup, after: Replaced | None, details: dict[str, Any], *, of: str | None = None
) -> Backup:
    """Write down how the repair ended; ``after`` is None for rows, which have no digest."""
    known: dict[str, Any] = {}
    if backup.rows is None:
        saved = files.snapshot(backup.file)
        known = {"before_digest": saved.digest, "before_size": saved.size}
    if after is not None:
        known |= {"after_digest": after.digest, "after_size": after.size}
        known |= {"carried": after.carried}
    return _noted(backup, **known, finished=True, of=of, details=details)


def listed(path: str | Path) -> list[Backup]:
    """The backups of one file, newest first, also the unfinished ones."""
    label = _label(Path(path).name)
    found = _stems(Path(path).parent / FOLDER)
    return [_read(path, match) for match in found if match["label"] == label]


def runs(where: str | Path | Iterable[str | Path]) -> list[Run]:
    """The repairs of some files, or of everything below a folder, newest first."""
    groups: dict[str, list[Backup]] = {}
    for backup in _everywhere(where):
        groups.setdefault(backup.run, []).append(backup)
    return sorted((_run(group) for group in groups.values()), key=_time, reverse=True)


def _run(backups: list[Backup]) -> Run:
    newest = sorted(backups, key=_time, reverse=True)
    return Run(newest[0].run, newest[0].time, tuple(newest))


def _time(what: Run | Backup) -> datetime:
    return what.time


def _everywhere(where: str | Path | Iterable[str | Path]) -> Iterator[Backup]:
    if not isinstance(where, str | Path):
        for one in where:
            yield from _everywhere(one)
    elif not Path(where).is_dir():
        yield from listed(where)
    else:
        for folder, inner, names in os.walk(where):
            if FOLDER in inner:
                inner.remove(FOLDER)
                yield from _of_folder(Path(folder), names)


def _of_folder(folder: Path, names: list[str]) -> Iterator[Backup]:
    known = {_label(name): name for name in names}
    for match in _stems(folder / FOLDER):
        yield _read(folder / known.get(match["label"], match["label"]), match)


def ready(path: str | Path, *, run: str | None = None, force: bool = False) -> Backup:
    """The backup that ``undo`` would restore; raises what it would raise and changes nothing."""
    return _due(path, run, force=force)[0]


def undo(  # noqa: PLR0913 - options, all but the path with a default
    path: str | Path,
    *,
    run: str | None = None,
    force: bool = False,
    restore: Callable[[Backup], object] | None = None,
    as_run: str | None = None,
    now: Clock = _now,
    token: Token = new_run,
) -> Undone:
    """Take the last repair of a file (or that of a run) back, byte for byte.

    Lines that others appended during the repair stay. A file that is no longer what the repair
    left is a Conflict, unless forced. The present state is kept as a backup of the run
    ``as_run``, by which the undo itself can be undone. ``restore`` does it for rows.
    """
    backup, present = _due(path, run, force=force)
    if backup.rows is not None:
        if restore is None:
            raise UsageError("is a database, whose rows only its own format can restore")
        restore(backup)
        return Undone(str(path), _marked(backup, now))
    data = _saved(backup)
    if present is None:
        files.write_atomically(path, data)
        return Undone(str(path), _marked(backup, now))
    kept = keep(present, as_run or token(), now=now, token=token)
    replaced = files.replace(present, files.joined(data, _carried(backup, present)))
    kept = settle(kept, replaced, {}, of=backup.stem)
    return Undone(str(path), _marked(backup, now), kept)


def _due(path: str | Path, run: str | None, *, force: bool) -> tuple[Backup, Snapshot | None]:
    """What is to be undone, and the present file; None if that is gone, or a database."""
    found = [one for one in listed(path) if one.status != "undone" and _is_meant(one, run)]
    if found and found[0].rows is not None:
        return found[0], None
    present = _present(path, force=force)
    for backup in found:
        if present and _is_unrepaired(backup, present):
            continue
        if force or (present and _is_repaired(backup, present)):
            return backup, present
        raise Conflict(_REFUSALS[backup.status])
    raise UsageError("has no backup to go back to")


_REFUSALS = {
    "done": (
        "is no longer what the repair left; nothing was written: --force restores the backup "
        "and keeps the present file as a backup"
    ),
    "unfinished": (
        "has a backup of a repair that was cut short; nothing was written: --force restores it "
        "and keeps the present file as a backup"
    ),
}


def _is_meant(backup: Backup, run: str | None) -> bool:
    if run is not None:
        return backup.run == run
    return backup.manifest is None or backup.manifest.of is None


def _present(path: str | Path, *, force: bool) -> Snapshot | None:
    if force and not os.path.lexists(path):
        return None
    return files.snapshot(path)


def _is_repaired(backup: Backup, present: Snapshot) -> bool:
    return backup.manifest is not None and backup.manifest.after_digest == present.digest


def _is_unrepaired(backup: Backup, present: Snapshot) -> bool:
    """Whether a repair that was cut short never got as far as the file."""
    return backup.status == "unfinished" and _saved(backup) == present.data


def _carried(backup: Backup, present: Snapshot) -> bytes:
    """The lines that others appended while the file was being repaired."""
    if backup.manifest is None or not _is_repaired(backup, present):
        return b""
    return present.data[present.size - backup.manifest.carried :]


def _saved(backup: Backup) -> bytes:
    try:
        saved = files.snapshot(backup.file)
    except LockstitchError as error:
        raise Unreadable(f"has a backup that cannot be read: {error}") from error
    if backup.manifest and backup.manifest.before_digest not in ("", saved.digest):
        raise Unreadable("has a backup that is damaged: its digest is not the one written down")
    return saved.data


def _marked(backup: Backup, now: Clock) -> Backup:
    """Note that a backup was restored; what an undone undo had taken back is in force again."""
    of = backup.manifest.of if backup.manifest else None
    for other in listed(backup.path):
        if other.stem == of:
            _noted(other, undone=None)
    return _noted(backup, undone=now().isoformat())


def _new(path: str | Path, run: str, now: Clock, token: Token) -> Backup:
    """Name a backup, later than all others of the file whatever the clock says."""
    if not _RUN.fullmatch(run):
        raise UsageError("the name of a run is up to 64 letters, digits and underscores")
    _open_folder(Path(path).parent)
    time = max([now(), *(one.time + timedelta(microseconds=1) for one in listed(path)[:1])])
    stem = f"{_label(Path(path).name)}.{time.astimezone(UTC).strftime(_STAMP)}-{run}-{token()}"
    return Backup(str(path), stem, run, time)


def _label(name: str) -> str:
    """A file's name as it begins the names of its backups, which must not get too long."""
    raw = os.fsencode(name)
    return name if len(raw) <= _LONGEST_NAME else f"{name[:20]}~{files.digest_of(raw)[:16]}"


def _open_folder(beside: Path) -> None:
    """Make sure of a private folder of our own for the backups."""
    folder = beside / FOLDER
    try:
        folder.mkdir(mode=0o700)
        _hand_over(folder, beside)
        disk.sync_folder(beside)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise UsageError(f"cannot be backed up: {FOLDER} beside it is no folder") from None
        if found.st_mode & 0o077 and os.name != "nt":
            folder.chmod(0o700)


def _create(path: Path, data: bytes) -> None:
    try:
        handle = os.open(path, disk.CREATING, 0o600)
        try:
            disk.write(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
    except FileExistsError:
        raise
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    _hand_over(path, path.parent)
    disk.sync_folder(path.parent)


def _hand_over(path: Path, folder: Path) -> None:
    """Root leaves no backups that the owner of the folder cannot undo."""
    if os.name != "nt" and os.geteuid() == 0:
        owner = folder.lstat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _noted(backup: Backup, **changes: Any) -> Backup:
    """Write the manifest with these changes."""
    old = backup.manifest or Manifest(
        VERSION, backup.run, Path(backup.path).name, backup.time.isoformat()
    )
    new = msgspec.structs.replace(old, **changes)
    path = backup.file.with_name(f"{backup.stem}.json")
    files.write_atomically(path, _encoded(msgspec.to_builtins(new)))
    _hand_over(path, path.parent)
    return msgspec.structs.replace(backup, manifest=new)


def _encoded(value: Any) -> bytes:
    """JSON as the standard library writes it: it takes what others refuse, lone surrogates."""
    try:
        return f"{json.dumps(value, indent=1)}\n".encode()
    except (RecursionError, TypeError, ValueError) as error:
        raise UsageError("the details of a backup must be JSON values") from error


def _stems(folder: Path) -> list[re.Match[str]]:
    """The names of the backups in a folder, newest first; a link is not followed."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    names = {Path(name).stem for name in os.listdir(folder) if name.endswith((".bak", ".json"))}
    found = [match for name in names if (match := _STEM.fullmatch(name))]
    return sorted(found, key=lambda match: (match["time"], match[0]), reverse=True)


def _read(path: str | Path, match: re.Match[str]) -> Backup:
    time = datetime.strptime(match["time"], _STAMP).replace(tzinfo=UTC)
    backup = Backup(str(path), match[0], match["run"], time)
    manifest = None
    with suppress(LockstitchError, RecursionError, ValueError, msgspec.ValidationError):
        data = files.snapshot(backup.file.with_name(f"{match[0]}.json")).data
        manifest = msgspec.convert(json.loads(data), Manifest)
    return msgspec.structs.replace(backup, manifest=manifest)


def tidy(folder: str | Path) -> int:
    """Remove what killed repairs left half written in a folder and among its backups."""
    return disk.tidy(Path(folder)) + disk.tidy(Path(folder) / FOLDER)
