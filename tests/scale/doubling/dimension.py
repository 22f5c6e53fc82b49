"""What a dimension is, and how what it costs is counted."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import lockstitch

Work = Callable[[], Any]
# Twice as much may cost this many times as much: n log n does, and what a table costs that grows.
LIMIT = 2.3
_OURS = str(Path(lockstitch.__file__).parent)
_MACHINE = ("disk.py", "processes.py", "claude_processes.py", "running.py")

_UUID = rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAMED = rb"\b(?:toolu|msg|req|call|fc|rs|run_shell_command)[_-][0-9A-Za-z]+"
_SHORT = rb'(?<=")[0-9a-f]{8}(?:[0-9a-f]{4})?(?=")'
_IDS = re.compile(rb"%b|%b|%b" % (_UUID, _NAMED, _SHORT))


@dataclass(frozen=True, slots=True)
class Dimension:
    """Something there can be more of; ``make`` puts n of it into an empty folder.

    What ``make`` gives is the work to measure, done once.
    """

    name: str
    make: Callable[[int, Path], Work]


def renamed(data: bytes, copy: int, kept: bytes = b"") -> bytes:
    """JSON, whole or torn, with other ids: the same ones for the same copy; one may be kept."""

    def other(found: re.Match[bytes]) -> bytes:
        name = found[0]
        if name == kept or not copy:
            return name
        digits = hashlib.sha256(b"%b %d" % (name, copy)).hexdigest().encode()
        if name[8:9] == b"-":
            return name[:14] + digits[:4] + name[18:19] + digits[4:7] + b"-" + digits[8:20]
        if b"_" in name or b"-" in name:
            return name[: re.search(rb"[_-]", name).end()] + digits[: len(name) - 6]  # type: ignore[union-attr]
        return digits[: len(name)]

    return _IDS.sub(other, data)


def calls_of(work: Work) -> int:
    """How many functions are called from our own code: the same number in every run.

    What asks the machine (which processes have a file open) is left out: others live there.
    """
    calls = 0
    ours: dict[str, bool] = {}

    def count(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        if event in {"c_call", "call"}:
            name = frame.f_code.co_filename
            if name not in ours:
                ours[name] = name.startswith(_OURS) and not name.endswith(_MACHINE)
            calls += ours[name]

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls
