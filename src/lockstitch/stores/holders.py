"""Who holds a lease on this machine, and whether they are still there, without the time of day.

A process is told by its number and the moment it started, since numbers are used again. Both mean
something only in one boot of one machine and one namespace of processes; where one of these is
not known or not ours, nothing is concluded, and only silence ends a lease.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from msgspec import Struct

from lockstitch import processes

_NANO = 1_000_000_000


class Holder(Struct, frozen=True):
    """A holder of leases: a process, and in it the one that ``token`` names; "" is not known."""

    host: str
    boot: str
    namespace: str
    pid: int
    start: str
    token: str

    @property
    def label(self) -> str:
        """What a person is told about it."""
        return f"process {self.pid} on {self.host}"


def myself() -> Holder:
    """Describe this process, with a token that nobody else has."""
    pid = os.getpid()
    start = processes.start(pid) or ""
    return Holder(_host(), _boot(), _namespace(), pid, start, secrets.token_hex(8))


def is_gone(holder: Holder) -> bool:
    """Whether a holder is surely dead; False where it may be alive."""
    if not holder.boot or not _boot():
        return False
    if holder.boot != _boot():
        return holder.host == _host()
    # In one boot the host's name plays no part: containers have names of their own.
    if not holder.start or not holder.namespace or holder.namespace != _namespace():
        return False
    start = processes.start(holder.pid)
    return start is not None and start != holder.start


def clock() -> float:
    """Seconds that pass evenly for all processes since this machine started, suspended or not."""
    if sys.platform != "linux":
        return time.monotonic()
    return (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - _shift("boottime")) / _NANO


def steady() -> float:
    """Seconds that pass evenly for all processes of this machine while it is not suspended.

    Whoever watches a holder must not count the time in which both were asleep.
    """
    if sys.platform != "linux":
        return time.monotonic()
    return (time.monotonic_ns() - _shift("monotonic")) / _NANO


@cache
def _shift(clock_name: str) -> int:
    """How far a time namespace moves a clock of this process against that of the machine."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/timens_offsets").read_text("ascii").splitlines():
            name, seconds, nanoseconds = line.split()
            if name == clock_name:
                return int(seconds) * _NANO + int(nanoseconds)
    return 0


def _namespace() -> str:
    """The namespace of process numbers, and that of time, which moves when processes started."""
    numbers = processes.namespace()
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
        return _sysctl(b"kern.bootsessionuuid")
    return ""


def _sysctl(name: bytes) -> str:
    """A text that macOS's kernel keeps."""
    value = ctypes.create_string_buffer(64)
    size = ctypes.c_size_t(len(value))
    failed = ctypes.CDLL(None).sysctlbyname(name, value, ctypes.byref(size), None, 0)
    return "" if failed else value.value.decode("ascii", "replace")
