"""How backups lie on the disk: their folder, their names, their bytes, their manifests."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch import backup_folder, disk, files
from lockstitch.backup_folder import Owner, Vault, found_beside, made_beside
from lockstitch.conversation import json_text
from lockstitch.conversation.json_text import dump
from lockstitch.errors import LockstitchError, Unreadable, UsageError

FOLDER = backup_folder.NAME
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


def require_run(run: str) -> None:
    """Raise UsageError if a run has a name that cannot be part of the name of a file."""
    if not _RUN.fullmatch(run):
        raise UsageError("the name of a run is up to 64 letters, digits, - and _")


def new(path: str | Path, run: str, now: datetime, token: str, vault: Vault) -> Backup:
    """Name a backup, later than all others of the file whatever the clock says."""
    require_run(run)
    stems = _stems_of(path, vault)
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


def create(backup: Backup, data: bytes, vault: Vault) -> None:
    """Write the bytes of a backup, durably; a file that exists is never touched."""
    name = backup.file.name
    handle = vault.folder.open(name, disk.CREATING)
    try:
        disk.write(handle, data)
        vault.hand_over(handle)
        disk.sync(handle)
        vault.folder.sync()
    except BaseException:
        vault.folder.remove(name)
        raise
    finally:
        os.close(handle)


def remove(backup: Backup, owner: Owner) -> None:
    """Remove the bytes of a backup of a repair that was not done."""
    with found_beside(backup.path, owner) as vault:
        if vault is not None:
            vault.folder.remove(backup.file.name)


def prune(backup: Backup) -> None:
    """Delete a backup for good: its bytes, then its manifest, so that none is without the other.

    Raises UsageError if its folder is not ours, as reading it does.
    """
    with found_beside(backup.path) as vault:
        if vault is None:
            return
        for name in dict.fromkeys((backup.file.name, _manifest_of(backup))):
            vault.folder.remove(name)
        vault.folder.sync()


def note(backup: Backup, owner: Owner, **changes: Any) -> Backup:
    """Write the manifest with these changes, atomically."""
    changed = msgspec.structs.replace(backup.manifest, **changes)
    # what was valid JSON and could not be read here is kept as the text that it was
    data = encode(msgspec.to_builtins(changed, builtin_types=(msgspec.Raw,)))
    with made_beside(backup.path, owner) as vault:
        files.write_in(vault.folder, _manifest_of(backup), data, vault.hand_over)
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
        with found_beside(backup.path) as vault:
            if vault is None:
                raise Unreadable("no such file")
            found = vault.read(backup.file.name)
    except LockstitchError as error:
        raise Unreadable(f"has a backup that cannot be read: {error}") from error
    if backup.manifest.before_digest not in ("", found.digest):
        raise Unreadable("has a backup that is damaged: its digest is not the one written down")
    return found.data


def of_file(path: str | Path) -> list[Backup]:
    """All backups of one file, newest first."""
    if not Path(path).parent.is_dir():
        return []
    with found_beside(path) as vault:
        return [] if vault is None else [_read(path, m, vault) for m in _stems_of(path, vault)]


def of_folder(folder: Path, names: list[str]) -> list[Backup]:
    """All backups of the files in one folder, which has these names in it, newest first."""
    known = {label(name): name for name in names}
    found: list[Backup] = []
    around = folder.stat()
    with found_beside(folder / FOLDER, Owner(around.st_uid, around.st_gid)) as vault:
        if vault is None:
            return []
        for match in _stems(vault):
            name = known.get(match["label"], match["label"])
            backup = _read(folder / name, match, vault)
            found.append(msgspec.structs.replace(backup, path=str(folder / _target(backup))))
    return found


def _target(backup: Backup) -> str:
    """Return the name of the file that a backup is of, which may be longer than its label."""
    name = backup.manifest.target
    return name if label(name) == label(Path(backup.path).name) else Path(backup.path).name


def _stems_of(path: str | Path, vault: Vault) -> list[re.Match[str]]:
    wanted = label(Path(path).name)
    return [match for match in _stems(vault) if match["label"] == wanted]


def _stems(vault: Vault) -> list[re.Match[str]]:
    """The names of the backups in a folder, newest first."""
    split = map(os.path.splitext, vault.folder.names())
    names = {stem for stem, end in split if end in (".bak", ".json")}
    found = [match for name in names if (match := _STEM.fullmatch(name)) and _is_time(match)]
    return sorted(found, key=lambda match: (match["time"], match[0]), reverse=True)


def _is_time(match: re.Match[str]) -> bool:
    with suppress(ValueError):
        return bool(_time_of(match))
    return False


def _time_of(match: re.Match[str]) -> datetime:
    return datetime.strptime(match["time"], _STAMP).replace(tzinfo=UTC)


def _read(path: str | Path, match: re.Match[str], vault: Vault) -> Backup:
    """A backup with its manifest, or with the little that is known without one."""
    time = _time_of(match)
    known = _bare(path, match["run"], time)
    backup = Backup(str(path), match[0], time, known)
    with suppress(LockstitchError, RecursionError, ValueError):
        # what was taken out may be what no decoder here takes, and was kept as it is
        written = json_text.decode(vault.read(_manifest_of(backup)).data.decode())
        manifest = msgspec.convert(written, Manifest)
        if _is_as_written(manifest, match):
            return msgspec.structs.replace(backup, manifest=manifest)
    bytes_of = vault.folder.look(f"{backup.stem}.bak")
    if bytes_of is not None:
        known = msgspec.structs.replace(known, before_size=bytes_of.st_size)
    return msgspec.structs.replace(backup, manifest=known)


def _is_as_written(manifest: Manifest, match: re.Match[str]) -> bool:
    """Whether a manifest names the file, the run and the sizes in the way that is written here."""
    target = manifest.target
    is_name = target == Path(target).name and target not in ("", ".", "..") and "\0" not in target
    is_run = manifest.run == match["run"] and manifest.time == _time_of(match).isoformat()
    is_of = manifest.of is None or _STEM.fullmatch(manifest.of) is not None
    is_sized = min(manifest.before_size, manifest.after_size, manifest.carried) >= 0
    is_sized = is_sized and manifest.carried <= max(manifest.after_size, 0)
    is_known = manifest.version == VERSION and is_run and is_of and is_sized
    return is_known and is_name and label(target) == match["label"]


def _manifest_of(backup: Backup) -> str:
    return f"{backup.stem}.json"
