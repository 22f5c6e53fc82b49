"""How backups lie on the disk: their folder, their names, their bytes, their manifests."""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch import disk, files
from lockstitch.errors import LockstitchError, Unreadable, UsageError
from lockstitch.splices import dump

FOLDER = files.BACKUPS
VERSION = 1

_LONGEST_NAME = 120
_STAMP = "%Y%m%dT%H%M%S%fZ"
_RUN = re.compile(r"[\w-]{1,64}", re.ASCII)
_STEM = re.compile(
    r"(?P<label>.+)\.(?P<time>\d{8}T\d{12}Z)-(?P<run>[\w-]{1,64})-\w{1,32}",
    re.ASCII | re.DOTALL,
)


class Manifest(Struct, frozen=True, omit_defaults=True):
    """What is known of a backup beyond its bytes.

    ``carried`` counts the bytes at the end of the new file that others appended during the
    repair; ``rows`` are the images of database rows, and ``session`` is the one that they are of;
    ``of`` names the backup that was restored, if this one was made by an undo; ``details`` belong
    to the caller.
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
    session: str | None = None
    details: dict[str, Any] = {}


class Backup(Struct, frozen=True):
    """One backup of one file; its manifest is bare if the repair was cut short."""

    path: str
    stem: str
    time: datetime
    manifest: Manifest

    @property
    def run(self) -> str:
        """The repair it belongs to."""
        return self.manifest.run

    @property
    def file(self) -> Path:
        """The file that holds the bytes of before; of rows, the manifest that holds them."""
        kind = "bak" if self.rows is None else "json"
        return Path(self.path).parent / FOLDER / f"{self.stem}.{kind}"

    @property
    def record(self) -> Path:
        """The file to look at: that of the bytes, or the manifest where only that is left."""
        return self.file if os.path.lexists(self.file) else self.file.with_suffix(".json")

    @property
    def status(self) -> str:
        """The word for it in lists: ``done``, ``undone``, ``unfinished``, or ``missing``."""
        if self.manifest.undone:
            return "undone"
        if not os.path.lexists(self.file):
            return "missing"
        return "done" if self.manifest.finished else "unfinished"

    @property
    def rows(self) -> dict[str, Any] | None:
        """The images of database rows, if it holds those and no file."""
        return self.manifest.rows


def new(path: str | Path, run: str, now: datetime, token: str) -> Backup:
    """Name a backup, later than all others of the file whatever the clock says."""
    if not _RUN.fullmatch(run):
        raise UsageError("the name of a run is up to 64 letters, digits, - and _")
    stems = _stems_of(path)
    latest = [_time_of(match) + timedelta(microseconds=1) for match in stems[:1]]
    time = max([now.astimezone(UTC), *latest])
    stem = f"{label(Path(path).name)}.{time.strftime(_STAMP)}-{run}-{token}"
    return Backup(str(path), stem, time, _bare(path, run, time))


def _bare(path: str | Path, run: str, time: datetime) -> Manifest:
    return Manifest(VERSION, run, Path(path).name, time.isoformat())


def label(name: str) -> str:
    """A file's name as it begins the names of its backups, which must not get too long."""
    raw = os.fsencode(name)
    return name if len(raw) <= _LONGEST_NAME else f"{name[:20]}~{files.digest_of(raw)[:16]}"


def open_folder(beside: Path) -> None:
    """Make sure of a private folder for the backups; a link in its place is refused."""
    folder = beside / FOLDER
    try:
        folder.mkdir(mode=0o700)
        _hand_over(folder)
        disk.sync_folder(beside)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise UsageError(f"cannot be backed up: {FOLDER} beside it is no folder") from None
        if found.st_mode & 0o077 and os.name != "nt":
            folder.chmod(0o700)
    disk.tidy(folder)


def create(path: Path, data: bytes) -> None:
    """Write a new private file, durably; one that exists is never touched."""
    handle = os.open(path, disk.CREATING, 0o600)
    try:
        disk.write(handle, data)
        disk.sync(handle)
        _hand_over(path)
        disk.sync_folder(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def note(backup: Backup, **changes: Any) -> Backup:
    """Write the manifest with these changes, atomically."""
    changed = msgspec.structs.replace(backup.manifest, **changes)
    path = _manifest_of(backup)
    files.write_atomically(path, encode(msgspec.to_builtins(changed)))
    _hand_over(path)
    return msgspec.structs.replace(backup, manifest=changed)


def encode(value: Any) -> bytes:
    """JSON as the standard library writes it: it takes what others refuse, lone surrogates."""
    try:
        return f"{dump(value, indent=1, ascii_only=True)}\n".encode()
    except (RecursionError, TypeError, ValueError) as error:
        raise UsageError("what is written down of a repair must be JSON values") from error


def saved(backup: Backup) -> bytes:
    """The bytes of before, if they are still what was written down."""
    try:
        found = files.snapshot(backup.file)
    except LockstitchError as error:
        raise Unreadable(f"has a backup that cannot be read: {error}") from error
    if backup.manifest.before_digest not in ("", found.digest):
        raise Unreadable("has a backup that is damaged: its digest is not the one written down")
    return found.data


def of_file(path: str | Path) -> list[Backup]:
    """All backups of one file, newest first."""
    return [_read(path, match) for match in _stems_of(path)]


def of_folder(folder: Path, names: list[str]) -> list[Backup]:
    """All backups of the files in one folder, which has these names in it, newest first."""
    known = {label(name): name for name in names}
    found = [
        _read(folder / known.get(match["label"], match["label"]), match)
        for match in _stems(folder / FOLDER)
    ]
    return [msgspec.structs.replace(one, path=str(folder / _target(one))) for one in found]


def _target(backup: Backup) -> str:
    """Return the name of the file that a backup is of, which may be longer than its label."""
    name = backup.manifest.target
    return name if label(name) == label(Path(backup.path).name) else Path(backup.path).name


def _stems_of(path: str | Path) -> list[re.Match[str]]:
    wanted = label(Path(path).name)
    return [match for match in _stems(Path(path).parent / FOLDER) if match["label"] == wanted]


def _stems(folder: Path) -> list[re.Match[str]]:
    """The names of the backups in a folder, newest first; a link is not followed."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    names = {one.stem for one in folder.iterdir() if one.suffix in (".bak", ".json")}
    found = [match for name in names if (match := _STEM.fullmatch(name))]
    return sorted(found, key=lambda match: (match["time"], match[0]), reverse=True)


def _time_of(match: re.Match[str]) -> datetime:
    return datetime.strptime(match["time"], _STAMP).replace(tzinfo=UTC)


def _read(path: str | Path, match: re.Match[str]) -> Backup:
    """A backup with its manifest, or with the little that is known without one."""
    time = _time_of(match)
    known = _bare(path, match["run"], time)
    backup = Backup(str(path), match[0], time, known)
    with suppress(LockstitchError, RecursionError, ValueError):
        written = json.loads(files.snapshot(_manifest_of(backup)).data)
        return msgspec.structs.replace(backup, manifest=msgspec.convert(written, Manifest))
    with suppress(OSError):
        known = msgspec.structs.replace(known, before_size=backup.file.lstat().st_size)
    return msgspec.structs.replace(backup, manifest=known)


def _manifest_of(backup: Backup) -> Path:
    return backup.file.with_name(f"{backup.stem}.json")


def _hand_over(path: Path) -> None:
    """Root leaves no backups behind that the owner of the folder could not undo."""
    if os.name != "nt" and os.geteuid() == 0:
        owner = path.parent.lstat()
        with suppress(PermissionError):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
