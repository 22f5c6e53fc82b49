"""Backups of repaired files, and the way back to them.

They live in a folder ``.lockstitch`` beside the file, private to its owner, and are never
overwritten. A backup is the file as it was read (``.bak``), durable before anything is replaced,
and a manifest (``.json``), written when the outcome is known; without it the repair was cut
short. A repair of rows in a database has a manifest only, which holds the rows.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lockstitch import disk, files, manifests
from lockstitch.backup_folder import Owner, made_beside, owner_of
from lockstitch.errors import Conflict, LockstitchError, Unreadable, UsageError
from lockstitch.files import Snapshot
from lockstitch.folders import Folder, folder_at, walk
from lockstitch.manifests import FOLDER, Backup
from lockstitch.moves import Replaced

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


Declined = Callable[[str, Exception], object]
Clock = Callable[[], datetime]
Token = Callable[[], str]


def _now() -> datetime:
    return datetime.now(UTC)


def new_run() -> str:
    """A name for one repair, however many files it mends."""
    return secrets.token_hex(6)


def replace(  # noqa: PLR0913 - what is done, and clock and chance with their defaults
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
    manifests.encode(details)
    manifests.require_run(run)
    owner = Owner(before.uid, before.gid)
    with files.reopened(before) as old:
        backup = keep(before, run, now=now, token=token, around=old.folder)
        try:
            replaced = old.replace(data)
        except BaseException:
            if not old.is_replaced:
                manifests.remove(backup, owner)
            raise
        try:
            return settle(backup, replaced, details, owner, of=of), replaced
        except OSError as error:
            reason = f"{error.strerror}; {_UNSETTLED}"
            raise OSError(error.errno, reason, before.path) from error


def keep(
    before: Snapshot,
    run: str,
    *,
    now: Clock = _now,
    token: Token = new_run,
    around: Folder | None = None,
) -> Backup:
    """Save what was read, before it is replaced; durable when it returns."""
    manifests.require_run(run)
    owner = Owner(before.uid, before.gid)
    with files.blaming(before.path), made_beside(before.path, owner, around) as own:
        backup = manifests.new(before.path, run, now(), token(), own)
        manifests.create(backup, before.data, own)
    known = msgspec.structs.replace(
        backup.manifest, before_digest=before.digest, before_size=before.size
    )
    return msgspec.structs.replace(backup, manifest=known)


def keep_rows(  # noqa: PLR0913 - what is kept, and clock and chance with their defaults
    path: str | Path,
    run: str,
    rows: dict[str, Any],
    *,
    session: str | None = None,
    now: Clock = _now,
    token: Token = new_run,
) -> Backup:
    """Save the images of a session's rows, as JSON values, instead of the whole database."""
    manifests.require_run(run)
    owner = owner_of(path)
    with files.blaming(str(path)):
        with made_beside(path, owner) as own:
            backup = manifests.new(path, run, now(), token(), own)
        return manifests.note(backup, owner, rows=rows, session=session)


def settle(
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
    return manifests.note(backup, whose, **known, finished=True, of=of, details=details)


def listed(path: str | Path) -> list[Backup]:
    """The backups of one file, newest first, also the unfinished ones."""
    return manifests.of_file(path)


def runs(where: str | Path | Iterable[str | Path], declined: Declined | None = None) -> list[Run]:
    """The repairs of some files, or of everything below a folder, newest first.

    Folders of backups that are not to be believed are told to ``declined``, or else raised.
    """
    groups: dict[str, list[Backup]] = {}
    for backup in _everywhere(where, declined):
        groups.setdefault(backup.run, []).append(backup)
    return sorted((_run(group) for group in groups.values()), key=_time, reverse=True)


def _run(backups: list[Backup]) -> Run:
    newest = sorted(backups, key=_time, reverse=True)
    return Run(newest[0].run, newest[0].time, tuple(newest))


def _time(what: Run | Backup) -> datetime:
    return what.time


def _everywhere(
    where: str | Path | Iterable[str | Path], declined: Declined | None
) -> Iterator[Backup]:
    if not isinstance(where, str | Path):
        for one in where:
            yield from _everywhere(one, declined)
    elif not Path(where).is_dir():
        yield from listed(where)
    else:
        for folder, inner, names in walk(str(where), partial(_unread, declined)):
            if FOLDER in inner:
                inner.remove(FOLDER)
                try:
                    yield from manifests.of_folder(Path(folder), names)
                except (LockstitchError, OSError) as error:
                    if declined is None:
                        raise
                    declined(folder, error)


def _unread(declined: Declined | None, error: OSError) -> None:
    if declined is None:
        raise error
    declined(str(error.filename), error)


def is_undo(backup: Backup) -> bool:
    """Whether a backup holds what an undo took the place of, and not what a repair did."""
    return backup.manifest.of is not None


def ready(
    path: str | Path, *, run: str | None = None, stem: str | None = None, force: bool = False
) -> Backup:
    """The backup that ``undo`` would restore; raises what it would raise and changes nothing."""
    return _due(path, run, stem, force=force)[0]


def undo(  # noqa: PLR0913 - options, all but the path with a default
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
        _bring_back(path, manifests.saved(backup))
    else:
        data = files.joined(manifests.saved(backup), _carried(backup, present))
        again = as_run or token()
        kept, _ = replace(present, data, again, {}, of=backup.stem, now=now, token=token)
    return Undone(str(path), _marked(backup, now), kept)


def _bring_back(path: str | Path, data: bytes) -> None:
    """Write a file that is gone; if another has come in its place, that stays."""
    own = Path(path)
    with files.blaming(str(path)), folder_at(own.parent) as folder:
        owner = owner_of(path)

        def dress(handle: int) -> None:
            if os.name != "nt" and os.geteuid() == 0:
                os.fchown(handle, owner.uid, owner.gid)

        try:
            files.create_in(folder, own.name, data, dress)
        except FileExistsError:
            raise Conflict("has come back meanwhile; nothing was written") from None


def _due(
    path: str | Path, run: str | None, stem: str | None, *, force: bool
) -> tuple[Backup, Snapshot | None]:
    """What is to be undone, and the present file; None if that is gone, or a database."""
    found = [one for one in listed(path) if one.status != "undone" and _is_meant(one, run, stem)]
    if found and found[0].rows is not None:
        return found[0], None
    present = _present(path, force=force) if found else None
    for backup in found:
        if present and _is_unrepaired(backup, present):
            continue
        if force or (present and _is_repaired(backup, present)):
            return backup, present
        raise Conflict(_REFUSALS[backup.status])
    raise UsageError("has no backup to go back to")


def _is_meant(backup: Backup, run: str | None, stem: str | None) -> bool:
    """Without a run named, the last repair is meant: what an undo kept is not one."""
    if stem is not None:
        return backup.stem == stem
    return not is_undo(backup) if run is None else backup.run == run


def _present(path: str | Path, *, force: bool) -> Snapshot | None:
    if not os.path.lexists(path):
        if force:
            return None
        raise Unreadable("no such file; --force brings it back from its backup")
    return files.snapshot(path)


def _is_repaired(backup: Backup, present: Snapshot) -> bool:
    return backup.manifest.after_digest == present.digest


def _is_unrepaired(backup: Backup, present: Snapshot) -> bool:
    """Whether a repair that was cut short never got as far as the file."""
    return backup.status == "unfinished" and manifests.saved(backup) == present.data


def _carried(backup: Backup, present: Snapshot) -> bytes:
    """The lines that others appended while the file was being repaired."""
    if not _is_repaired(backup, present):
        return b""
    return present.data[present.size - backup.manifest.carried :]


def _marked(backup: Backup, now: Clock) -> Backup:
    """Note that a backup was restored; what an undone undo had taken back is in force again."""
    owner = owner_of(backup.path)
    for other in listed(backup.path):
        if other.stem == backup.manifest.of:
            manifests.note(other, owner, undone=None)
    return manifests.note(backup, owner, undone=now().isoformat())


def tidy(folder: str | Path) -> int:
    """Remove what killed repairs left half written in a folder and among its backups."""
    with folder_at(folder) as own:
        count = disk.tidy(own)
        with suppress(OSError), closing(own.inside(FOLDER)) as inner:
            count += disk.tidy(inner)
    return count
