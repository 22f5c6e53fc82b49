"""What somebody else may have put beside a session: folders, links, manifests, pipes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstitch.files import replace

if TYPE_CHECKING:
    import pytest

FOLDER = ".lockstitch"
MALLORY = 65533
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0

# Swaps two names in one step, again and again, until it is killed.
SWAPPING = """
import ctypes, os, sys
call = ctypes.CDLL(None).renameat2
one, other = map(os.fsencode, sys.argv[1:3])
print("ready", flush=True)
while True:
    call(-100, one, -100, other, 2)
"""


def make_foreign(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let something belong to another user, as far as this process can see that."""
    if IS_ROOT:
        os.chown(folder, MALLORY, MALLORY, follow_symlinks=False)
    else:
        own = os.geteuid()
        patch.setattr(os, "geteuid", lambda: own + 1)


def plant(target: Path, data: bytes, said: Mapping[str, Any] = {}) -> Path:
    """Write a backup of a file as a repair would, with what a manifest may be made to say."""
    place, run = target.parent / FOLDER, "evil"
    place.mkdir(exist_ok=True, mode=0o700)
    time = datetime(2026, 11, 1, 12, tzinfo=UTC)
    stem = f"{target.name}.{time:%Y%m%dT%H%M%S%fZ}-{run}-cafe"
    present = target.read_bytes() if target.is_file() else b""
    manifest = {
        "version": 1,
        "run": run,
        "target": target.name,
        "time": time.isoformat(),
        "before_digest": replace.digest_of(data),
        "before_size": len(data),
        "after_digest": replace.digest_of(present),
        "after_size": len(present),
        "finished": True,
        **said,
    }
    (place / f"{stem}.bak").write_bytes(data)
    (place / f"{stem}.json").write_text(json.dumps(manifest), encoding="utf-8")
    return place / stem
