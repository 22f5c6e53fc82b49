"""Backups of repaired files, and the way back to them.

They live in a folder ``.lockstitch`` beside the file, private to its owner, and are never
overwritten. A backup is the file as it was read (``.bak``), durable before anything is replaced,
and a manifest (``.json``), written when the outcome is known. A backup without a manifest belongs
to a repair that was cut short. A repair of rows in a database has only a manifest, which holds the
rows.

Anyone who may write to the folder above can plant such a folder. They would own a backup that is
put there, and a backup that is found there is one that they want to be restored. So the folder is
opened once, without following links, its owner is read from the descriptor, and everything in it is
done relative to that descriptor.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch.conversation import json_text
from lockstitch.conversation.json_text import dump
from lockstitch.conversation.parts import repr_without
from lockstitch.errors import Conflict, LockstitchError, Unreadable, UsageError
from lockstitch.files import os_files, replace
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
    """An open folder of backups that is ours to use, and the owner of the file beside it."""

    folder: Folder
    owner: Owner
    status: os.stat_result

    def hand_over(self, handle: int) -> None:
        """Give a file that root has made to the owner of the backed up file, who may undo, too."""
        if os.name != "nt" and os.geteuid() == 0:
            with suppress(PermissionError):
                os.fchown(handle, self.owner.uid, self.owner.gid)

    def read(self, name: str) -> replace.Snapshot:
        """Read a file in the folder; raise Unreadable if another user put it there."""
        found = replace.snapshot(name, folder=self.folder)
        if os.name != "nt":
            own = self.status.st_uid
            trusted = {own, self.owner.uid} if own == os.geteuid() else {own}
            if found.uid not in trusted:
                raise Unreadable(
                    f"it was put there by another user (uid {found.uid}); it is not trusted"
                )
        return found


@contextmanager
def open_backup_folder(
    path: str | Path, owner: Owner | None = None
) -> Iterator[BackupFolder | None]:
    """Open the folder of backups beside a file; yield None if there is none, or a link.

    Raises UsageError if it belongs to another user, or if others may write to it.
    """
    known = owner_of(path) if owner is None else owner
    with ExitStack() as stack:
        beside = stack.enter_context(folder_at(Path(path).parent))
        try:
            folder = stack.enter_context(folder_at(FOLDER, beside))
        except OSError as error:
            if error.errno not in (*_NO_FOLDER, errno.ENOENT):
                raise
            yield None
            return
        so = "its contents are not trusted, and nothing was changed"
        backups = BackupFolder(folder, known, _require_own(folder, known, so))
        if beside.handle is not None:
            mode, around = backups.status.st_mode, os.fstat(beside.handle).st_mode
            # Users may write to it who may not write to the folder around it.
            if mode & 0o022 & ~around and not mode & stat.S_ISVTX:
                raise UsageError(
                    f"it has a folder {FOLDER} beside it that other users may write to: {so}; "
                    "check it, and close it with `chmod 700`"
                )
        yield backups


@contextmanager
def make_backup_folder(
    path: str | Path, owner: Owner, around: Folder | None = None
) -> Iterator[BackupFolder]:
    """Open the folder of backups beside a file for writing, and create it if needed.

    ``around`` is the folder of the file, if that is open already. Raises UsageError if its name is
    taken by a folder of another user, or by something else.
    """
    with ExitStack() as stack:
        beside = around or stack.enter_context(folder_at(Path(path).parent))
        is_new = False
        with suppress(FileExistsError):
            own = FOLDER if beside.handle is not None else beside.path / FOLDER
            os.mkdir(own, 0o700, dir_fd=beside.handle)
            is_new = True
        try:
            folder = stack.enter_context(folder_at(FOLDER, beside))
        except OSError as error:
            if error.errno not in _NO_FOLDER:
                raise
            raise UsageError(
                f"it cannot be backed up: {FOLDER} next to it is not a folder"
            ) from None
        so = f"no backup is put there and nothing was written; {_COPY}"
        backups = BackupFolder(folder, owner, _require_own(folder, owner, so))
        if folder.handle is not None and is_new:
            backups.hand_over(folder.handle)
        elif folder.handle is not None and backups.status.st_mode & 0o077:
            os.fchmod(folder.handle, 0o700)
        if is_new:
            beside.sync()
        os_files.remove_stale_drafts(folder)
        yield backups


def _require_own(folder: Folder, owner: Owner, so: str) -> os.stat_result:
    """Return the status of a folder of the user's own, or for root, of the file's owner.

    Raises UsageError for any other folder.
    """
    found = folder.path.lstat() if folder.handle is None else os.fstat(folder.handle)
    user = found.st_uid if os.name == "nt" else os.geteuid()
    if found.st_uid != user and not (user == 0 and found.st_uid == owner.uid):
        raise UsageError(
            f"it has a folder {FOLDER} beside it that belongs to another user"
            f" (uid {found.st_uid}): {so}"
        )
    return found


VERSION = 1

_LONGEST_NAME = 120
_STAMP = "%Y%m%dT%H%M%S%fZ"
_RUN = re.compile(r"[\w-]{1,64}", re.ASCII)
_NO_RUN = "the name of a run may have up to 64 letters, digits, - and _"
_STEM = re.compile(
    r"(?P<label>.+)\.(?P<time>\d{8}T\d{12}Z)-(?P<run>[\w-]{1,64})-\w{1,32}",
    re.ASCII | re.DOTALL,
)


class Manifest(Struct, frozen=True, omit_defaults=True):
    """What is recorded about a backup, besides its bytes.

    ``carried`` counts the bytes at the end of the new file that others appended during the repair.
    ``rows`` are the images of database rows, and ``session`` is their session. ``of`` names the
    backup that was restored, if an undo made this one. ``details`` belong to the caller.
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

    __repr__ = repr_without("rows", "details")


class Backup(Struct, frozen=True):
    """One backup of one file; its manifest is bare if the repair was interrupted."""

    path: str
    stem: str
    time: datetime
    manifest: Manifest

    @property
    def run(self) -> str:
        """The repair that the backup belongs to."""
        return self.manifest.run

    @property
    def file(self) -> Path:
        """The file with the original bytes; for rows, the manifest that holds them."""
        kind = "bak" if self.manifest.rows is None else "json"
        return Path(self.path).parent / FOLDER / f"{self.stem}.{kind}"

    @property
    def record(self) -> Path:
        """The file to look at: the one with the bytes, or the manifest if only that is left."""
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
        """The images of database rows, if the backup holds those instead of a file."""
        return self.manifest.rows


def new_backup(  # noqa: PLR0913 - what is kept and where, with clock and randomness
    path: str | Path,
    run: str,
    now: datetime,
    token: str,
    backups: BackupFolder,
    *,
    before: Snapshot | None = None,
) -> Backup:
    """Begin a backup, dated later than all others of the file whatever the clock says.

    The content read ``before`` is durable when this returns; a file that exists is never touched.
    """
    label = backup_label(Path(path).name)
    latest = [_time_of(match) + timedelta(microseconds=1) for match in _stems(backups, label)[:1]]
    time = max([now.astimezone(UTC), *latest])
    stem = f"{label}.{time.strftime(_STAMP)}-{run}-{token}"
    known = ("", 0) if before is None else (before.digest, before.size)
    manifest = Manifest(VERSION, run, Path(path).name, time.isoformat(), *known)
    if before is not None:
        name = f"{stem}.bak"
        handle = backups.folder.open(name, os_files.CREATING)
        try:
            os_files.write_all(handle, before.data)
            backups.hand_over(handle)
            os_files.sync_file(handle)
            backups.folder.sync()
        except BaseException:
            backups.folder.remove(name)
            raise
        finally:
            os.close(handle)
    return Backup(str(path), stem, time, manifest)


def backup_label(name: str) -> str:
    """Return the start of the names of a file's backups: its own name, shortened if it is long."""
    raw = os.fsencode(name)
    return name if len(raw) <= _LONGEST_NAME else f"{name[:20]}~{replace.digest_of(raw)[:16]}"


def delete_backup(backup: Backup) -> None:
    """Delete a backup for good: first its bytes, then its manifest.

    In this order no bytes are left without a manifest. Raises UsageError if the folder is not ours,
    as reading it does.
    """
    with open_backup_folder(backup.path) as backups:
        if backups is None:
            return
        for name in dict.fromkeys((backup.file.name, f"{backup.stem}.json")):
            backups.folder.remove(name)
        backups.folder.sync()


def write_manifest(backup: Backup, backups: BackupFolder, **changes: Any) -> Backup:
    """Write the manifest with these changes, atomically."""
    changed = msgspec.structs.replace(backup.manifest, **changes)
    # JSON that was valid but could not be read here is kept as the text that it was
    data = encode_manifest(msgspec.to_builtins(changed, builtin_types=(msgspec.Raw,)))
    replace.write_file_in(backups.folder, f"{backup.stem}.json", data, backups.hand_over)
    return msgspec.structs.replace(backup, manifest=changed)


def encode_manifest(value: Any) -> bytes:
    """Return JSON as the standard library writes it, which also accepts lone surrogates."""
    try:
        return f"{dump(value, indent=1, ascii_only=True)}\n".encode()
    except (RecursionError, TypeError, ValueError) as error:
        raise UsageError("what is recorded about a repair must be JSON values") from error


def read_original(backup: Backup) -> bytes:
    """Return the original bytes; raise Unreadable if they do not match the digest on record."""
    try:
        with open_backup_folder(backup.path) as backups:
            if backups is None:
                raise Unreadable("no such file")
            found = backups.read(backup.file.name)
    except LockstitchError as error:
        raise Unreadable(f"it has a backup that cannot be read: {error}") from error
    if backup.manifest.before_digest not in ("", found.digest):
        raise Unreadable(
            "it has a backup that is damaged: its digest does not match the recorded one"
        )
    return found.data


def _backups_in_folder(folder: Path, names: list[str]) -> list[Backup]:
    """Return all backups of the files in a folder, newest first; ``names`` are its files."""
    known = {backup_label(name): name for name in names}
    found: list[Backup] = []
    around = folder.stat()
    with open_backup_folder(folder / FOLDER, Owner(around.st_uid, around.st_gid)) as backups:
        if backups is None:
            return []
        for match in _stems(backups):
            name = known.get(match["label"], match["label"])
            backup = _read_backup(folder / name, match, backups)
            # The name of the file may be longer than its label; the manifest has the whole name.
            target = backup.manifest.target
            if backup_label(target) == backup_label(name):
                backup = msgspec.structs.replace(backup, path=str(folder / target))
            found.append(backup)
    return found


def _stems(backups: BackupFolder, label: str | None = None) -> list[re.Match[str]]:
    """Return the names of the backups in a folder, all or those with a label, newest first."""
    folder = backups.folder
    names = os.listdir(folder.path if folder.handle is None else folder.handle)  # noqa: PTH208
    stems = {stem for stem, end in map(os.path.splitext, names) if end in (".bak", ".json")}
    found = []
    for match in filter(None, map(_STEM.fullmatch, stems)):
        with suppress(ValueError):  # digits that are no time
            _time_of(match)
            if label in (None, match["label"]):
                found.append(match)
    return sorted(found, key=lambda match: (match["time"], match[0]), reverse=True)


def _time_of(match: re.Match[str]) -> datetime:
    return datetime.strptime(match["time"], _STAMP).replace(tzinfo=UTC)


def _read_backup(path: str | Path, match: re.Match[str], backups: BackupFolder) -> Backup:
    """Return a backup with its manifest, or with the little that is known without one."""
    stem, time = match[0], _time_of(match)
    with suppress(LockstitchError, RecursionError, ValueError):
        # values that were removed may be such that no decoder here accepts them; they stay as they
        # are
        written = json_text.decode(backups.read(f"{stem}.json").data.decode())
        manifest = msgspec.convert(written, Manifest)
        if _is_as_written(manifest, match):
            return Backup(str(path), stem, time, manifest)
    found = backups.folder.look(f"{stem}.bak")
    size = 0 if found is None else found.st_size
    bare = Manifest(VERSION, match["run"], Path(path).name, time.isoformat(), before_size=size)
    return Backup(str(path), stem, time, bare)


def _is_as_written(manifest: Manifest, match: re.Match[str]) -> bool:
    """Whether a manifest names the file, the run and the sizes as this module writes them."""
    target = manifest.target
    is_name = target == Path(target).name and target not in ("", ".", "..") and "\0" not in target
    is_run = manifest.run == match["run"] and manifest.time == _time_of(match).isoformat()
    is_of = manifest.of is None or _STEM.fullmatch(manifest.of) is not None
    is_sized = min(manifest.before_size, manifest.after_size, manifest.carried) >= 0
    is_sized = is_sized and manifest.carried <= max(manifest.after_size, 0)
    is_known = manifest.version == VERSION and is_run and is_of and is_sized
    return is_known and is_name and backup_label(target) == match["label"]


_REFUSALS = {
    "done": (
        "it has changed since the repair; nothing was written: --force restores the backup and "
        "keeps the present file as a backup"
    ),
    "missing": (
        "it has changed since the repair, and the file of its backup is gone; nothing was written"
    ),
    "unfinished": (
        "it has a backup of a repair that was interrupted; nothing was written: --force "
        "restores it and keeps the present file as a backup"
    ),
}
_UNRECORDED = (
    "the file is repaired and its backup exists, but the repair could not be recorded, so an "
    "undo needs --force"
)


class RepairRun(Struct, frozen=True):
    """The backups that one repair, or one undo, made of all its files; newest first."""

    id: str
    time: datetime
    backups: tuple[Backup, ...]


class Undone(Struct, frozen=True):
    """A finished undo: what was restored, and the backup of the state that it replaced."""

    path: str
    restored: Backup
    kept: Backup | None = None


Declined = Callable[[str, Exception], object]
Clock = Callable[[], datetime]
Token = Callable[[], str]


_now: Clock = partial(datetime.now, UTC)


# A new name for one repair, however many files it changes.
new_run: Token = partial(secrets.token_hex, 6)


def replace_with_backup(  # noqa: PLR0913 - what is done, with clock and randomness
    before: Snapshot,
    data: bytes,
    run: str,
    details: dict[str, Any],
    *,
    of: str | None = None,
    now: Clock = _now,
    token: Token = new_run,
) -> tuple[Backup, Replaced]:
    """Replace a file and keep a backup of it; leave no trace if nothing was written.

    If several replace the same file at once, only one does; the others raise Conflict or Busy
    before they have kept anything.
    """
    encode_manifest(details)
    if not _RUN.fullmatch(run):
        raise UsageError(_NO_RUN)
    owner = Owner(before.uid, before.gid)
    with (
        replace.reopen_locked(before) as old,
        make_backup_folder(before.path, owner, old.old.folder) as backups,
    ):
        backup = new_backup(before.path, run, now(), token(), backups, before=before)
        try:
            replaced = old.replace(data)
        except BaseException:
            if not old.is_replaced:
                backups.folder.remove(f"{backup.stem}.bak")
            raise
        try:
            done = write_manifest(
                backup,
                backups,
                after_digest=replaced.digest,
                after_size=replaced.size,
                carried=replaced.carried,
                finished=True,
                of=of,
                details=details,
            )
        except OSError as error:
            reason = f"{error.strerror}; {_UNRECORDED}"
            raise OSError(error.errno, reason, before.path) from error
    return done, replaced


def keep_row_images(  # noqa: PLR0913 - what is kept, with clock and randomness
    path: str | Path,
    run: str,
    rows: dict[str, Any],
    *,
    session: str | None = None,
    now: Clock = _now,
    token: Token = new_run,
) -> Backup:
    """Back up the images of a session's rows, as JSON values, instead of the whole database."""
    if not _RUN.fullmatch(run):
        raise UsageError(_NO_RUN)
    with replace.naming_file(str(path)), make_backup_folder(path, owner_of(path)) as backups:
        backup = new_backup(path, run, now(), token(), backups)
        return write_manifest(backup, backups, rows=rows, session=session)


def finish_rows(backup: Backup, details: dict[str, Any]) -> Backup:
    """Record that a repair of rows is done."""
    with make_backup_folder(backup.path, owner_of(backup.path)) as backups:
        return write_manifest(backup, backups, finished=True, details=details)


def list_backups(path: str | Path) -> list[Backup]:
    """Return the backups of one file, newest first, including unfinished ones."""
    if not Path(path).parent.is_dir():
        return []
    with open_backup_folder(path) as backups:
        if backups is None:
            return []
        stems = _stems(backups, backup_label(Path(path).name))
        return [_read_backup(path, match, backups) for match in stems]


def list_runs(
    where: str | Path | Iterable[str | Path], declined: Declined | None = None
) -> list[RepairRun]:
    """Return the repairs of some files, or of everything below a folder, newest first.

    A folder of backups that cannot be trusted is reported to ``declined``, or raised if that is
    None.
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
    """Whether a backup holds the state that an undo replaced, rather than that before a repair."""
    return backup.manifest.of is not None


def find_undoable(
    path: str | Path, *, run: str | None = None, stem: str | None = None, force: bool = False
) -> Backup:
    """Return the backup that an undo would restore; raise what the undo would raise."""
    return _choose_undo(path, run, stem, force=force)[0]


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
    """Take back, byte for byte, the last repair of a file, or that of a run or a backup.

    Lines that others appended during the repair stay. If the file is no longer what the repair
    left, this raises Conflict, unless forced. The present state is kept as a backup of the run
    ``as_run``, by which the undo itself can be undone. For rows, ``restore`` does the work.
    """
    backup, present = _choose_undo(path, run, stem, force=force)
    kept = None
    if backup.rows is not None:
        if restore is None:
            raise UsageError("it is a database, whose rows only its own format can restore")
        restore(backup)
    elif present is None:
        data, owner, own = read_original(backup), owner_of(path), Path(path)

        def dress(handle: int) -> None:
            if os.name != "nt" and os.geteuid() == 0:
                os.fchown(handle, owner.uid, owner.gid)

        with replace.naming_file(str(path)), folder_at(own.parent) as folder:
            try:
                replace.write_file_in(folder, own.name, data, dress, new=True)
            except FileExistsError:
                raise Conflict("it has been created again meanwhile; nothing was written") from None
    else:
        is_repaired = backup.manifest.after_digest == present.digest
        # The lines that others appended while the file was being repaired.
        carried = present.data[present.size - backup.manifest.carried :] if is_repaired else b""
        data = replace.join_lines(read_original(backup), carried)
        again = as_run or token()
        kept, _ = replace_with_backup(
            present, data, again, {}, of=backup.stem, now=now, token=token
        )
    others = list_backups(backup.path)
    with make_backup_folder(backup.path, owner_of(backup.path)) as backups:
        for other in others:
            # If this undoes an undo, the repair that was undone then is in force again.
            if other.stem == backup.manifest.of:
                write_manifest(other, backups, undone=None)
        restored = write_manifest(backup, backups, undone=now().isoformat())
    return Undone(str(path), restored, kept)


def _choose_undo(
    path: str | Path, run: str | None, stem: str | None, *, force: bool
) -> tuple[Backup, Snapshot | None]:
    """Return the backup to restore, and the present file; None for a missing file or a database."""

    def is_asked_for(backup: Backup) -> bool:
        if stem is not None:
            return backup.stem == stem
        # Unless a run is named, it is the last repair; a backup that an undo kept is not a repair.
        return not is_undo(backup) if run is None else backup.run == run

    found = [one for one in list_backups(path) if one.status != "undone" and is_asked_for(one)]
    if found and found[0].rows is not None:
        return found[0], None
    present = None
    if found and os.path.lexists(path):
        present = replace.snapshot(path)
    elif found and not force:
        raise Unreadable("no such file; --force restores it from its backup")
    for backup in found:
        is_unfinished = backup.status == "unfinished"
        if present and is_unfinished and read_original(backup) == present.data:
            continue  # the repair was cut short before it got as far as the file
        if force or (present and backup.manifest.after_digest == present.digest):
            return backup, present
        raise Conflict(_REFUSALS[backup.status])
    raise UsageError("it has no backup to go back to")


def remove_leftovers(folder: str | Path) -> int:
    """Remove half-written files that killed repairs left in a folder and its backups."""
    with folder_at(folder) as own:
        count = os_files.remove_stale_drafts(own)
        with suppress(OSError), folder_at(FOLDER, own) as inner:
            count += os_files.remove_stale_drafts(inner)
    return count
