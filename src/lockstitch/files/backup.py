"""Backups of repaired files, and the way back to them.

They live in a folder ``.lockstitch`` beside the file, private to its owner, and are never
overwritten. A backup is the file as it was read (``.bak``), durable before anything is replaced,
and a manifest (``.json``), written when the outcome is known; without it the repair was cut
short. A repair of rows in a database has a manifest only, which holds the rows.

Whoever may write to the folder above can plant one. A backup that is put there would be theirs,
and one that is found there is what they want to be restored. So the folder is opened once, without
following links, its owner is asked of the descriptor, and everything in it is done relative to it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.conversation import json_text
from lockstitch.conversation.json_text import dump
from lockstitch.errors import Conflict, LockstitchError, Unreadable, UsageError
from lockstitch.files import os_files, replace
from lockstitch.files import replace as files
from lockstitch.files.read import Folder, folder_at, walk_folders
from lockstitch.files.replace import Replaced, Snapshot

FOLDER = replace.BACKUPS
_NO_FOLDER = (errno.ENOTDIR, errno.ELOOP, errno.EMLINK)
_COPY = "-o FILE writes a repaired copy elsewhere"


class Owner(Struct, frozen=True):
    """The user and the group that a file belongs to."""

    uid: int
    gid: int


def owner_of(path: str | Path) -> Owner:
    """Return the owner of a file, or of its folder if it is gone."""
    try:
        found = Path(path).lstat()
    except FileNotFoundError:
        found = Path(path).parent.stat()
    return Owner(found.st_uid, found.st_gid)


class BackupFolder(Struct):
    """An open folder of backups that is ours to use, and of whom files in it may be."""

    folder: Folder
    owner: Owner

    def hand_over(self, handle: int) -> None:
        """Give what root has made to the owner of the file that it is of: they may undo, too."""
        if os.name != "nt" and os.geteuid() == 0:
            with suppress(PermissionError):
                os.fchown(handle, self.owner.uid, self.owner.gid)

    def read(self, name: str) -> replace.Snapshot:
        """Read a file in it; raises Unreadable if somebody else put it there."""
        found = replace.snapshot(name, folder=self.folder)
        if os.name != "nt":
            own = self.folder.status().st_uid
            trusted = {own, self.owner.uid} if own == os.geteuid() else {own}
            if found.uid not in trusted:
                raise Unreadable(
                    f"was put there by another user (uid {found.uid}); it is not believed"
                )
        return found


@contextmanager
def open_backup_folder(
    path: str | Path, owner: Owner | None = None
) -> Iterator[BackupFolder | None]:
    """Open the folder of backups beside a file; None if there is none, or a link in its place.

    Raises UsageError if it belongs to somebody else, or if others may write to it.
    """
    known = owner_of(path) if owner is None else owner
    with folder_at(Path(path).parent) as beside:
        try:
            folder = beside.inside(FOLDER)
        except OSError as error:
            if error.errno not in (*_NO_FOLDER, errno.ENOENT):
                raise
            yield None
            return
        with closing(folder):
            _require_ours(folder, known, "what is in it is not believed and nothing was changed")
            mode, around = folder.status().st_mode, beside.status().st_mode
            # Those may write to it who may not write to the folder around it.
            if os.name != "nt" and mode & 0o022 & ~around and not mode & stat.S_ISVTX:
                raise UsageError(
                    f"has a folder {FOLDER} beside it that other users may write to: what is in it "
                    "is not believed and nothing was changed; look into it, and close it with "
                    "`chmod 700`"
                )
            yield BackupFolder(folder, known)


@contextmanager
def make_backup_folder(
    path: str | Path, owner: Owner, around: Folder | None = None
) -> Iterator[BackupFolder]:
    """Open the folder of backups beside a file, for writing; it is made if there is none.

    ``around`` is the folder of the file, if that is open already. Raises UsageError if somebody
    else's, or something else, has its name.
    """
    with folder_at(Path(path).parent) if around is None else nullcontext(around) as beside:
        is_new = False
        with suppress(FileExistsError):
            beside.make(FOLDER)
            is_new = True
        try:
            folder = beside.inside(FOLDER)
        except OSError as error:
            if error.errno not in _NO_FOLDER:
                raise
            raise UsageError(f"cannot be backed up: {FOLDER} next to it is not a folder") from None
        with closing(folder):
            vault = BackupFolder(folder, owner)
            _require_ours(folder, owner, f"no backup is put there and nothing was written; {_COPY}")
            if folder.handle is not None and is_new:
                vault.hand_over(folder.handle)
            elif folder.handle is not None and folder.status().st_mode & 0o077:
                os.fchmod(folder.handle, 0o700)
            if is_new:
                beside.sync()
            os_files.remove_stale_drafts(folder)
            yield vault


def _require_ours(folder: Folder, owner: Owner, so: str) -> None:
    """Raise UsageError unless a folder is the user's own, or for root that of the file's owner."""
    if os.name == "nt":
        return
    user = os.geteuid()
    found = folder.status().st_uid
    if found != user and not (user == 0 and found == owner.uid):
        raise UsageError(
            f"has a folder {FOLDER} beside it that belongs to another user (uid {found}): {so}"
        )


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


def new_backup(
    path: str | Path, run: str, now: datetime, token: str, vault: BackupFolder
) -> Backup:
    """Name a backup, later than all others of the file whatever the clock says."""
    require_run(run)
    stems = _stems_of(path, vault)
    latest = [_time_of(match) + timedelta(microseconds=1) for match in stems[:1]]
    time = max([now.astimezone(UTC), *latest])
    stem = f"{backup_label(Path(path).name)}.{time.strftime(_STAMP)}-{run}-{token}"
    return Backup(str(path), stem, time, _bare_manifest(path, run, time))


def _bare_manifest(path: str | Path, run: str, time: datetime) -> Manifest:
    return Manifest(VERSION, run, Path(path).name, time.isoformat())


def backup_label(name: str) -> str:
    """A file's name as it begins the names of its backups, which must not get too long."""
    raw = os.fsencode(name)
    return name if len(raw) <= _LONGEST_NAME else f"{name[:20]}~{replace.digest_of(raw)[:16]}"


def write_original(backup: Backup, data: bytes, vault: BackupFolder) -> None:
    """Write the bytes of a backup, durably; a file that exists is never touched."""
    name = backup.file.name
    handle = vault.folder.open(name, os_files.CREATING)
    try:
        os_files.write_all(handle, data)
        vault.hand_over(handle)
        os_files.sync_file(handle)
        vault.folder.sync()
    except BaseException:
        vault.folder.remove(name)
        raise
    finally:
        os.close(handle)


def remove_original(backup: Backup, owner: Owner) -> None:
    """Remove the bytes of a backup of a repair that was not done."""
    with open_backup_folder(backup.path, owner) as vault:
        if vault is not None:
            vault.folder.remove(backup.file.name)


def delete_backup(backup: Backup) -> None:
    """Delete a backup for good: its bytes, then its manifest, so that none is without the other.

    Raises UsageError if its folder is not ours, as reading it does.
    """
    with open_backup_folder(backup.path) as vault:
        if vault is None:
            return
        for name in dict.fromkeys((backup.file.name, _manifest_of(backup))):
            vault.folder.remove(name)
        vault.folder.sync()


def write_manifest(backup: Backup, owner: Owner, **changes: Any) -> Backup:
    """Write the manifest with these changes, atomically."""
    changed = msgspec.structs.replace(backup.manifest, **changes)
    # what was valid JSON and could not be read here is kept as the text that it was
    data = encode_manifest(msgspec.to_builtins(changed, builtin_types=(msgspec.Raw,)))
    with make_backup_folder(backup.path, owner) as vault:
        replace.write_file_in(vault.folder, _manifest_of(backup), data, vault.hand_over)
    return msgspec.structs.replace(backup, manifest=changed)


def encode_manifest(value: Any) -> bytes:
    """JSON as the standard library writes it: it takes what others refuse, lone surrogates."""
    try:
        return f"{dump(value, indent=1, ascii_only=True)}\n".encode()
    except (RecursionError, TypeError, ValueError) as error:
        raise UsageError("what is written down of a repair must be JSON values") from error


def read_original(backup: Backup) -> bytes:
    """The bytes of before, if they are still what was written down."""
    try:
        with open_backup_folder(backup.path) as vault:
            if vault is None:
                raise Unreadable("no such file")
            found = vault.read(backup.file.name)
    except LockstitchError as error:
        raise Unreadable(f"has a backup that cannot be read: {error}") from error
    if backup.manifest.before_digest not in ("", found.digest):
        raise Unreadable("has a backup that is damaged: its digest is not the one written down")
    return found.data


def _backups_in_folder(folder: Path, names: list[str]) -> list[Backup]:
    """All backups of the files in one folder, which has these names in it, newest first."""
    known = {backup_label(name): name for name in names}
    found: list[Backup] = []
    around = folder.stat()
    with open_backup_folder(folder / FOLDER, Owner(around.st_uid, around.st_gid)) as vault:
        if vault is None:
            return []
        for match in _stems(vault):
            name = known.get(match["label"], match["label"])
            backup = _read_backup(folder / name, match, vault)
            # The name of the file may be longer than its label; the manifest has all of it.
            target = backup.manifest.target
            if backup_label(target) == backup_label(name):
                backup = msgspec.structs.replace(backup, path=str(folder / target))
            found.append(backup)
    return found


def _stems_of(path: str | Path, vault: BackupFolder) -> list[re.Match[str]]:
    wanted = backup_label(Path(path).name)
    return [match for match in _stems(vault) if match["label"] == wanted]


def _stems(vault: BackupFolder) -> list[re.Match[str]]:
    """The names of the backups in a folder, newest first."""
    split = map(os.path.splitext, vault.folder.names())
    names = {stem for stem, end in split if end in (".bak", ".json")}
    found = []
    for match in filter(None, map(_STEM.fullmatch, names)):
        with suppress(ValueError):  # digits that are no time
            _time_of(match)
            found.append(match)
    return sorted(found, key=lambda match: (match["time"], match[0]), reverse=True)


def _time_of(match: re.Match[str]) -> datetime:
    return datetime.strptime(match["time"], _STAMP).replace(tzinfo=UTC)


def _read_backup(path: str | Path, match: re.Match[str], vault: BackupFolder) -> Backup:
    """A backup with its manifest, or with the little that is known without one."""
    time = _time_of(match)
    known = _bare_manifest(path, match["run"], time)
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
    return is_known and is_name and backup_label(target) == match["label"]


def _manifest_of(backup: Backup) -> str:
    return f"{backup.stem}.json"


_REFUSALS = {
    "done": (
        "is no longer what the repair left; nothing was written: --force restores the backup "
        "and keeps the present file as a backup"
    ),
    "missing": (
        "is no longer what the repair left, and the file of its backup is gone; nothing was written"
    ),
    "unfinished": (
        "has a backup of a repair that was cut short; nothing was written: --force restores it "
        "and keeps the present file as a backup"
    ),
}
_UNSETTLED = (
    "the file is repaired and its backup exists, but what was done could not be recorded, "
    "so that an undo needs --force"
)


class RepairRun(Struct, frozen=True):
    """What one repair, or one undo, backed up over all its files; newest first."""

    id: str
    time: datetime
    backups: tuple[Backup, ...]


class Undone(Struct, frozen=True):
    """A finished undo: what was restored, and what holds the state that it took the place of."""

    path: str
    restored: Backup
    kept: Backup | None = None


Declined = Callable[[str, Exception], object]
Clock = Callable[[], datetime]
Token = Callable[[], str]


def _now() -> datetime:
    return datetime.now(UTC)


def new_run() -> str:
    """A name for one repair, however many files it mends."""
    return secrets.token_hex(6)


def replace_with_backup(  # noqa: PLR0913 - what is done, and clock and chance with their defaults
    before: Snapshot,
    data: bytes,
    run: str,
    details: dict[str, Any],
    *,
    of: str | None = None,
    now: Clock = _now,
    token: Token = new_run,
) -> tuple[Backup, Replaced]:
    """``files.replace`` with a backup: keep, replace, settle; no trace if nothing was written.

    Of several that replace the same file at once, one does; the others raise Conflict or Busy
    before they have kept anything.
    """
    encode_manifest(details)
    require_run(run)
    owner = Owner(before.uid, before.gid)
    with files.reopen_locked(before) as old:
        backup = keep_original(before, run, now=now, token=token, around=old.old.folder)
        try:
            replaced = old.replace(data)
        except BaseException:
            if not old.is_replaced:
                remove_original(backup, owner)
            raise
        try:
            return finish_backup(backup, replaced, details, owner, of=of), replaced
        except OSError as error:
            reason = f"{error.strerror}; {_UNSETTLED}"
            raise OSError(error.errno, reason, before.path) from error


def keep_original(
    before: Snapshot,
    run: str,
    *,
    now: Clock = _now,
    token: Token = new_run,
    around: Folder | None = None,
) -> Backup:
    """Save what was read, before it is replaced; durable when it returns."""
    require_run(run)
    owner = Owner(before.uid, before.gid)
    with files.naming_file(before.path), make_backup_folder(before.path, owner, around) as own:
        backup = new_backup(before.path, run, now(), token(), own)
        write_original(backup, before.data, own)
    known = msgspec.structs.replace(
        backup.manifest, before_digest=before.digest, before_size=before.size
    )
    return msgspec.structs.replace(backup, manifest=known)


def keep_row_images(  # noqa: PLR0913 - what is kept, and clock and chance with their defaults
    path: str | Path,
    run: str,
    rows: dict[str, Any],
    *,
    session: str | None = None,
    now: Clock = _now,
    token: Token = new_run,
) -> Backup:
    """Save the images of a session's rows, as JSON values, instead of the whole database."""
    require_run(run)
    owner = owner_of(path)
    with files.naming_file(str(path)):
        with make_backup_folder(path, owner) as own:
            backup = new_backup(path, run, now(), token(), own)
        return write_manifest(backup, owner, rows=rows, session=session)


def finish_backup(
    backup: Backup,
    after: Replaced | None,
    details: dict[str, Any],
    owner: Owner | None = None,
    *,
    of: str | None = None,
) -> Backup:
    """Write down how the repair ended; ``after`` is None for rows, which have no digest."""
    known: dict[str, Any] = {}
    if after is not None:
        known = {"after_digest": after.digest, "after_size": after.size, "carried": after.carried}
    whose = owner_of(backup.path) if owner is None else owner
    return write_manifest(backup, whose, **known, finished=True, of=of, details=details)


def list_backups(path: str | Path) -> list[Backup]:
    """Return the backups of one file, newest first, also the unfinished ones."""
    if not Path(path).parent.is_dir():
        return []
    with open_backup_folder(path) as vault:
        if vault is None:
            return []
        return [_read_backup(path, match, vault) for match in _stems_of(path, vault)]


def list_runs(
    where: str | Path | Iterable[str | Path], declined: Declined | None = None
) -> list[RepairRun]:
    """The repairs of some files, or of everything below a folder, newest first.

    Folders of backups that are not to be believed are told to ``declined``, or else raised.
    """
    groups: dict[str, list[Backup]] = {}
    found = sorted(_backups_below(where, declined), key=lambda one: one.time, reverse=True)
    for backup in found:
        groups.setdefault(backup.run, []).append(backup)
    # The newest backup of each run comes first, so the runs are in order, too.
    return [RepairRun(run, group[0].time, tuple(group)) for run, group in groups.items()]


def _backups_below(
    where: str | Path | Iterable[str | Path], declined: Declined | None
) -> Iterator[Backup]:
    if not isinstance(where, str | Path):
        for one in where:
            yield from _backups_below(one, declined)
    elif not Path(where).is_dir():
        yield from list_backups(where)
    else:

        def unread(error: OSError) -> None:
            if declined is None:
                raise error
            declined(str(error.filename), error)

        for folder, inner, names in walk_folders(str(where), unread):
            if FOLDER in inner:
                inner.remove(FOLDER)
                try:
                    yield from _backups_in_folder(Path(folder), names)
                except (LockstitchError, OSError) as error:
                    if declined is None:
                        raise
                    declined(folder, error)


def is_undo(backup: Backup) -> bool:
    """Whether a backup holds what an undo took the place of, and not what a repair did."""
    return backup.manifest.of is not None


def find_undoable(
    path: str | Path, *, run: str | None = None, stem: str | None = None, force: bool = False
) -> Backup:
    """The backup that ``undo`` would restore; raises what it would raise and changes nothing."""
    return _due(path, run, stem, force=force)[0]


def undo_backup(  # noqa: PLR0913 - options, all but the path with a default
    path: str | Path,
    *,
    run: str | None = None,
    stem: str | None = None,
    force: bool = False,
    restore: Callable[[Backup], object] | None = None,
    as_run: str | None = None,
    now: Clock = _now,
    token: Token = new_run,
) -> Undone:
    """Take the last repair of a file back, byte for byte; or that of a run, or with one backup.

    Lines that others appended during the repair stay. A file that is no longer what the repair
    left is a Conflict, unless forced. The present state is kept as a backup of the run
    ``as_run``, by which the undo itself can be undone. ``restore`` does it for rows.
    """
    backup, present = _due(path, run, stem, force=force)
    kept = None
    if backup.rows is not None:
        if restore is None:
            raise UsageError("is a database, whose rows only its own format can restore")
        restore(backup)
    elif present is None:
        _bring_back(path, read_original(backup))
    else:
        is_repaired = backup.manifest.after_digest == present.digest
        # The lines that others appended while the file was being repaired.
        carried = present.data[present.size - backup.manifest.carried :] if is_repaired else b""
        data = files.join_lines(read_original(backup), carried)
        again = as_run or token()
        kept, _ = replace_with_backup(
            present, data, again, {}, of=backup.stem, now=now, token=token
        )
    owner = owner_of(backup.path)
    for other in list_backups(backup.path):
        # What an undone undo had taken back is in force again.
        if other.stem == backup.manifest.of:
            write_manifest(other, owner, undone=None)
    return Undone(str(path), write_manifest(backup, owner, undone=now().isoformat()), kept)


def _bring_back(path: str | Path, data: bytes) -> None:
    """Write a file that is gone; if another has come in its place, that stays."""
    own = Path(path)
    with files.naming_file(str(path)), folder_at(own.parent) as folder:
        owner = owner_of(path)

        def dress(handle: int) -> None:
            if os.name != "nt" and os.geteuid() == 0:
                os.fchown(handle, owner.uid, owner.gid)

        try:
            files.create_file_in(folder, own.name, data, dress)
        except FileExistsError:
            raise Conflict("has come back meanwhile; nothing was written") from None


def _due(
    path: str | Path, run: str | None, stem: str | None, *, force: bool
) -> tuple[Backup, Snapshot | None]:
    """What is to be undone, and the present file; None if that is gone, or a database."""

    def is_meant(backup: Backup) -> bool:
        if stem is not None:
            return backup.stem == stem
        # Without a run named, the last repair is meant: what an undo kept is not one.
        return not is_undo(backup) if run is None else backup.run == run

    found = [one for one in list_backups(path) if one.status != "undone" and is_meant(one)]
    if found and found[0].rows is not None:
        return found[0], None
    present = None
    if found and os.path.lexists(path):
        present = files.snapshot(path)
    elif found and not force:
        raise Unreadable("no such file; --force brings it back from its backup")
    for backup in found:
        is_unfinished = backup.status == "unfinished"
        if present and is_unfinished and read_original(backup) == present.data:
            continue  # the repair was cut short before it got as far as the file
        if force or (present and backup.manifest.after_digest == present.digest):
            return backup, present
        raise Conflict(_REFUSALS[backup.status])
    raise UsageError("has no backup to go back to")


def remove_leftovers(folder: str | Path) -> int:
    """Remove what killed repairs left half written in a folder and among its backups."""
    with folder_at(folder) as own:
        count = os_files.remove_stale_drafts(own)
        with suppress(OSError), closing(own.inside(FOLDER)) as inner:
            count += os_files.remove_stale_drafts(inner)
    return count
