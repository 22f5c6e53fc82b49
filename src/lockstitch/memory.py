"""How much memory is left, asked before a large input is decoded.

Past the end of memory there is no error to catch: the kernel kills the process, or a C library
crashes on an allocation it did not check.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

# Decoded JSON of real conversations takes two to four times the bytes of its text.
FACTOR = 4


def room() -> int:
    """The largest input this process has the memory for, as far as the system tells."""
    left = [sys.maxsize]
    with suppress(ImportError):
        import resource  # noqa: PLC0415 - not on Windows

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            left.append(soft)
    with suppress(OSError, StopIteration):
        rows = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = next(row.split()[1] for row in rows if row.startswith("MemAvailable:"))
        left.append(int(kilobytes) * 1024)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = (
            int((group / name).read_text(encoding="ascii"))
            for name in ("memory.max", "memory.current")
        )
        left.append(limit - used)
    return min(left) // FACTOR
