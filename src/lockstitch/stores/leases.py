"""The holders of leases: whether they are alive, how to keep one's own lease alive, and the clocks.

The time of day plays no part in a lease; only records contain it. A process is identified by its
number and the moment it started, since numbers are reused. Both have a meaning only within one boot
of one machine and one namespace of processes. If one of these is unknown or differs from ours,
nothing is concluded, and only silence ends the lease.

A living holder counts up a number. It is silent when that number has not changed for the length of
its lease since it was first seen, by the steady clock of this machine. What was seen is also stored
beside the holder's claim, so that short-lived processes on this machine can continue the watch.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from lockstitch.files import os_files

_NANO = 1_000_000_000


class Holder(Struct, frozen=True):
    """A holder of leases: a process, and ``token`` for one holder in it; "" means unknown."""

    host: str
    boot: str
    namespace: str
    pid: int
    start: str
    token: str

    @property
    def label(self) -> str:
        """A description of the holder for people."""
        return f"process {self.pid} on {self.host}"


def myself() -> Holder:
    """Return a description of this process, with a new token."""
    pid = os.getpid()
    start = os_files.start_moment(pid) or ""
    return Holder(_host(), _boot(), _namespace(), pid, start, secrets.token_hex(8))


def read_holder(text: bytes) -> Holder | None:
    """Return the holder of a session from its stored form; None if that cannot be read."""
    try:
        return msgspec.json.decode(text, type=Holder)
    except (msgspec.MsgspecError, ValueError):
        return None


def is_gone(holder: Holder) -> bool:
    """Whether a holder is certainly dead; False if it may be alive."""
    if not holder.boot or not _boot():
        return False
    if holder.boot != _boot():
        return holder.host == _host()
    # Within one boot, host names are ignored because containers have their own.
    if not holder.start or not holder.namespace or holder.namespace != _namespace():
        return False
    start = os_files.start_moment(holder.pid)
    return start is not None and start != holder.start


def clock() -> float:
    """Return the seconds since this machine started, which count while it is suspended, too."""
    if sys.platform != "linux":
        return time.monotonic()
    return (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - _shift("boottime")) / _NANO


def steady() -> float:
    """Return the seconds that this machine has been running, without the time it was suspended.

    Use it to watch a holder, since nobody can show a sign of life while the machine is suspended.
    """
    if sys.platform != "linux":
        return time.monotonic()
    return (time.monotonic_ns() - _shift("monotonic")) / _NANO


def now() -> int:
    """Return the time of day as records have it, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@cache
def _shift(clock_name: str) -> int:
    """Return by how much a time namespace shifts a clock of this process against the machine's."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/timens_offsets").read_text("ascii").splitlines():
            name, seconds, nanoseconds = line.split()
            if name == clock_name:
                return int(seconds) * _NANO + int(nanoseconds)
    return 0


def _namespace() -> str:
    """Return the namespaces of process numbers and of time, which shifts starting times."""
    numbers = os_files.namespace()
    with suppress(OSError):
        return f"{numbers} {Path('/proc/self/ns/time').readlink()}" if numbers else ""
    return numbers


@cache
def _host() -> str:
    return socket.gethostname()


@cache
def _boot() -> str:
    if sys.platform == "linux":
        with suppress(OSError):
            return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    if sys.platform == "darwin":
        # A string that the macOS kernel provides.
        value = ctypes.create_string_buffer(64)
        size = ctypes.c_size_t(len(value))
        failed = ctypes.CDLL(None).sysctlbyname(
            b"kern.bootsessionuuid", value, ctypes.byref(size), None, 0
        )
        return "" if failed else value.value.decode("ascii", "replace")
    return ""


_MOST_NOTED = 16


class Sighting(Struct, frozen=True, array_like=True):
    """A holder's token and number, and when they were first seen together."""

    token: str
    beats: float
    since: float


class HolderSighting(Struct, frozen=True):
    """What a store says of a session's holder, and what watchers have stored beside it."""

    token: str
    holder: str
    beats: float
    term: float
    watched: str = ""


class HolderWatch:
    """What a process has seen of the holders of sessions; threads may share it."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._boot = myself().boot
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[Sighting, float]] = {}
        self._noted: dict[str, float] = {}

    def silent(self, session: str) -> tuple[str, float]:
        """Return the token and number of the session's holder if it has been silent too long."""
        with self._lock:
            sight, term = self._seen.get(session, (Sighting("", 0, 0.0), 0.0))
        is_due = sight.token and steady() >= sight.since + term
        return (sight.token, sight.beats) if is_due else ("", 0)

    def see(self, session: str, held: HolderSighting) -> float:
        """Record a holder's number; return for how many seconds more it has to stay unchanged."""
        now = steady()
        term = held.term or self._lease_seconds
        with self._lock:
            sight, _ = self._seen.get(session, (Sighting("", 0, 0.0), 0.0))
            if (sight.token, sight.beats) != (held.token, held.beats):
                sight = Sighting(held.token, held.beats, now)
            noted = _noted(held.watched).get(self._boot) if self._boot else None
            if noted and (noted.token, noted.beats) == (held.token, held.beats):
                # A time in the future comes from the clock of another boot.
                since = min(noted.since, now)
                sight = Sighting(held.token, held.beats, min(sight.since, since))
            self._seen[session] = (sight, term)
        return max(sight.since + term - now, 0.0)

    def note(self, session: str, held: HolderSighting) -> str:
        """Return what to store in the session's row; "" if it is there or was stored recently."""
        now = steady()
        with self._lock:
            sight, term = self._seen[session]
            others = {
                boot: one
                for boot, one in _noted(held.watched).items()
                if (one.token, one.beats) == (held.token, held.beats)
            }
            is_recent = now < self._noted.get(session, -term) + term / 3
            if not self._boot or self._boot in others or is_recent:
                return ""
            self._noted[session] = now
            kept = dict([*others.items()][-_MOST_NOTED + 1 :])
        return msgspec.json.encode({**kept, self._boot: sight}).decode()

    def forget(self, session: str) -> None:
        """Forget what was seen of a session's holder, since this process holds the session now."""
        with self._lock:
            self._seen.pop(session, None)
            self._noted.pop(session, None)


def _noted(text: str) -> dict[str, Sighting]:
    try:
        return msgspec.json.decode(text.encode(), type=dict[str, Sighting]) if text else {}
    except (msgspec.MsgspecError, UnicodeError):
        return {}


class Heartbeat:
    """Calls a method of its owner every few seconds while there are leases to keep alive.

    It refers to its owner weakly, so a store that is dropped without being closed falls silent.
    ``beat`` must not raise.
    """

    def __init__(self, beat: Callable[[], None], seconds: float) -> None:
        self._beat = weakref.WeakMethod(beat)
        self._seconds = seconds
        self._guard = threading.Lock()
        self._ended: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to beat, unless it does already."""
        with self._guard:
            if self._ended is None:
                self._ended = threading.Event()
                arguments = (self._beat, self._seconds, self._ended)
                self._thread = threading.Thread(
                    target=_run, args=arguments, name="lockstitch-heartbeat", daemon=True
                )
                self._thread.start()

    def stop(self, *, wait: bool = False) -> None:
        """Stop; with ``wait``, wait for a beat that is in progress."""
        with self._guard:
            ended, thread = self._ended, self._thread
            self._ended = self._thread = None
        if ended is not None:
            ended.set()
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join()


def _run(
    method: weakref.WeakMethod[Callable[[], None]], seconds: float, ended: threading.Event
) -> None:
    while not ended.wait(seconds):
        beat = method()
        if beat is None:
            return
        beat()
        del beat
