"""The server's time of day is set, and no lease begins or ends by it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lockstitch.errors import Fenced, Held
from lockstitch.stores import leases
from lockstitch.stores.postgres import PostgresBackend
from tests import tools
from tests.postgres_server import open_room, own, running
from tests.stores.postgres.making import entries, keys, run
from tests.stores.postgres.test_leases import end, holding

HOUR = 3600
JUMPS = (HOUR, -HOUR)
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
Set = Callable[[int], None]


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Set]]:
    """A store on a server, and a function that sets the server's time of day."""
    with _clocked(Path(tmp_path_factory.mktemp("clock", numbered=True))) as given:
        yield given


@contextmanager
def _clocked(folder: Path) -> Iterator[tuple[str, Set]]:
    library = tools.needed("libfaketime")
    hands = Path(open_room()) / f"lockstitch-clock-{os.getpid()}-{folder.name}"
    hands.write_text("+0\n", "ascii")
    own(hands)
    environment = {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(hands),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
    }
    try:
        with running({"fsync": "off"}, environment) as server:
            dsn = server.fresh()

            def turn(seconds: int) -> None:
                hands.write_text(f"{seconds:+d}\n", "ascii")
                ((now,),) = run(dsn, NOW)
                assert abs(float(str(now)) - time.time() - seconds) < HOUR / 4

            turn(0)
            yield dsn, turn
    finally:
        hands.unlink()


@pytest.mark.parametrize("jump", JUMPS)
def test_a_living_holder_keeps_its_session(clock: tuple[str, Set], jump: int) -> None:
    dsn, turn = clock
    turn(0)
    session = f"living{jump}"
    with PostgresBackend(dsn, lease_seconds=2) as one, PostgresBackend(dsn) as two:
        lease = one.acquire(session)
        one.append(lease, entries("a"), 0)
        turn(jump)
        with pytest.raises(Held):
            two.acquire(session)
        with pytest.raises(Held):
            two.acquire(session, wait=3)
        one.append(lease, entries("b"), 1)
        assert [listed.holder != "" for listed in two.sessions() if listed.session == session] == [
            True
        ]
    assert keys(PostgresBackend(dsn), session) == ["a", "b"]


@pytest.mark.parametrize("jump", JUMPS)
def test_a_silent_holder_is_taken_over_after_its_lease_and_no_hour_later(
    clock: tuple[str, Set], jump: int
) -> None:
    dsn, turn = clock
    turn(0)
    holder = holding(dsn, 1.0)
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        turn(jump)
        with PostgresBackend(dsn) as backend:
            with pytest.raises(Held):
                backend.acquire("s")
            lease = backend.acquire("s", wait=120)
            turn(0)
            backend.append(lease, entries(f"after{jump}"), lease.head.seq)
            os.kill(holder.pid, signal.SIGCONT)
            turn(-jump)
            with pytest.raises(Held):
                PostgresBackend(dsn).acquire("s")
            backend.append(lease, entries(f"again{jump}"), lease.head.seq + 1)
    finally:
        end(holder)
        turn(0)


@pytest.mark.parametrize("jump", JUMPS)
def test_who_follows_is_told_all_the_same(clock: tuple[str, Set], jump: int) -> None:
    dsn, turn = clock
    turn(0)
    with PostgresBackend(dsn) as one, PostgresBackend(dsn) as two:
        lease = one.acquire(f"followed{jump}")
        assert not two.wait(lease.session, 0, 0.5)
        turn(jump)
        one.append(lease, entries("a"), 0)
        assert two.wait(lease.session, 0, 60)
        ((is_told,),) = run(
            dsn, "SELECT told > beats FROM lockstitch.sessions WHERE session = %s", lease.session
        )
        assert is_told
    turn(0)


# Watching


def test_a_holder_that_was_taken_over_by_silence_is_fenced(dsn: str) -> None:
    with PostgresBackend(dsn, lease_seconds=0.3) as one, PostgresBackend(dsn) as two:
        lease = one.acquire("s")
        one._heartbeat.stop(wait=True)  # noqa: SLF001 - as if it could not be heard
        taken = two.acquire("s", wait=60)
        with pytest.raises(Fenced):
            one.append(lease, entries("a"), 0)
        two.append(taken, entries("b"), 0)


def test_short_tries_add_up_over_processes(dsn: str) -> None:
    """Each try is a store of its own that does not wait, as a program that is started again."""
    with PostgresBackend(dsn, lease_seconds=1.0) as one:
        one.acquire("s")
        one._heartbeat.stop(wait=True)  # noqa: SLF001 - as above
        # Of another machine, so that nothing is known of its process.
        run(dsn, "UPDATE lockstitch.sessions SET holder = replace(holder, 'pid', 'other')")
        tries = 0
        while True:
            with PostgresBackend(dsn) as two:
                try:
                    assert two.acquire("s").epoch == 2
                except Held:
                    tries += 1
                else:
                    break
            time.sleep(0.05)
        assert tries > 0


def test_an_append_between_two_looks_is_a_sign_of_life(dsn: str) -> None:
    with PostgresBackend(dsn, lease_seconds=1.0) as one, PostgresBackend(dsn) as two:
        lease = one.acquire("s")
        one._heartbeat.stop(wait=True)  # noqa: SLF001 - as above
        for number in range(6):
            with pytest.raises(Held):
                two.acquire("s", wait=0.3)
            one.append(lease, entries(f"k{number}"), number)


def test_what_was_seen_counts_once_it_is_old_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(leases, "steady", lambda: now)
    watch = leases.HolderWatch(30)
    seen = leases.HolderSighting("t", "", 7, 10.0)
    assert watch.silent("s") == ("", 0)
    assert watch.see("s", seen) == 10
    now = 109.0
    assert watch.see("s", seen) == 1
    assert watch.silent("s") == ("", 0)
    now = 110.0
    assert watch.silent("s") == ("t", 7)
    assert watch.see("s", leases.HolderSighting("t", "", 8, 10.0)) == 10
    assert watch.silent("s") == ("", 0)
    note = watch.note("s", leases.HolderSighting("t", "", 8, 10.0))
    assert note
    assert not watch.note("s", leases.HolderSighting("t", "", 8, 10.0))
    now = 119.0
    other = leases.HolderWatch(30)
    assert other.see("s", leases.HolderSighting("t", "", 8, 10.0, note)) == 1
    assert other.see("s", leases.HolderSighting("t", "", 9, 10.0, note)) == 10
    # A note from before the machine was started again is from the future, or of another boot.
    now = 3.0
    again = leases.HolderWatch(30)
    assert again.see("s", leases.HolderSighting("t", "", 8, 10.0, note)) == 10
    assert again.see("s", leases.HolderSighting("t", "", 8, 10.0, "no JSON")) == 10
