"""What a disk can hold after the power went out, and whether a store may hold it."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from lockstitch.journal.records import blob_name
from lockstitch.stores.base import StoreFault
from lockstitch.stores.sqlite import SqliteBackend
from tests.stores import changes
from tests.stores.sqlite.recorder import NAME, PLAN, Recording, Step, entry

SECTOR = 512


class State(Struct, frozen=True):
    """The files after a crash behind a step, and what had been acknowledged till then."""

    step: int
    files: dict[str, bytes]
    acked: dict[str, int]


def recorded(folder: Path, rounds: int, kind: str = "work") -> Recording:
    """Let a store work in a process of its own."""
    command = [sys.executable, "-m", "tests.stores.sqlite.recorder", str(folder), str(rounds), kind]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.msgpack.decode(done.stdout, type=Recording)


class Disk:
    """What has surely reached the disk, and what was written since and may or may not have."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = dict(files)
        self.pending: list[Step] = []

    def take(self, step: Step) -> None:
        if step.what != "sync":
            self.pending.append(step)
            return
        for one in self.pending:
            if one.name == step.name:
                _apply(self.files, one, len(one.data))
        self.pending = [one for one in self.pending if one.name != step.name]

    def kept(self, chance: float, dice: random.Random) -> dict[str, bytes]:
        """Let each step that is not synced survive with a chance, or some sectors of it."""
        files = dict(self.files)
        for one in self.pending:
            if dice.random() < chance:
                is_torn = 0 < chance < 1 and dice.random() < 0.3
                size = dice.randrange(0, len(one.data) + 1, SECTOR) if is_torn else len(one.data)
                _apply(files, one, size)
        return files


def _apply(files: dict[str, bytes], step: Step, size: int) -> None:
    old = files.get(step.name, b"")
    if step.what == "delete":
        files.pop(step.name, None)
    elif step.what == "truncate":
        files[step.name] = old[: step.place].ljust(step.place, b"\0")
    else:
        old = old.ljust(step.place, b"\0")
        files[step.name] = old[: step.place] + step.data[:size] + old[step.place + size :]


def states(recording: Recording, samples: int, seed: int) -> Iterator[State]:
    """Crash behind every step: unsynced steps lost, kept, and in part; each state once."""
    dice = random.Random(seed)  # noqa: S311
    disk = Disk(recording.files)
    acked: dict[str, int] = {}
    seen: set[int] = set()
    for number, step in enumerate(recording.steps):
        if step.what == "acked":
            acked[step.name] = step.place
        else:
            disk.take(step)
        for chance in [0.0, 1.0, *(dice.random() for _ in range(samples))]:
            files = disk.kept(chance, dice)
            told = hash((*sorted(files.items()), *sorted(acked.items())))
            if told not in seen:
                seen.add(told)
                yield State(number, files, dict(acked))


def _restore(state: State, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in state.files.items():
        (folder / name).write_bytes(data)


def check_plan(state: State, folder: Path, ops: list[changes.Op]) -> bool:
    """All changes that were acknowledged are made, or one more, which is told; and it goes on."""
    _restore(state, folder)
    made = state.acked.get(PLAN, 0)
    models = changes.models(ops)
    with SqliteBackend(folder / NAME) as store:
        found = changes.require_one_of(store, models[made : made + 2])
        for op in ops[models.index(found) : models.index(found) + 2]:
            changes.carry_out(store, op)
        changes.require_one_of(store, models[models.index(found) :][:3][-1:])
    return found != models[made]


def check(state: State, folder: Path) -> int:
    """Open the store as it was left and go on with it; how many unacknowledged records it has."""
    _restore(state, folder)
    with SqliteBackend(folder / NAME) as store:
        assert not [one for one in store.verify() if isinstance(one, StoreFault)]
        found = {one.session: one.seq for one in store.sessions()}
        for session, seq in state.acked.items():
            assert found.get(session, -1) >= seq, (state.step, session, seq, found)
        for session in found:
            _check_session(store, session)
    return sum(found.values()) - sum(state.acked.values())


def _check_session(store: SqliteBackend, session: str) -> None:
    """Every record is the one that was written there, its large values too, and it goes on."""
    source = "one" if session == "branch" else session
    seq = 0
    for seq, record in enumerate(store.read(session), 1):
        sent = entry(source, seq)
        assert (record.key, record.at, record.body) == (sent.key, sent.at, sent.body)
        names = [blob_name(blob) for blob in sent.blobs]
        assert list(store.blobs(names).values()) == list(sent.blobs)
    lease = store.acquire(session)
    assert store.append(lease, [entry(source, seq + 1)], seq).seq == seq + 1
