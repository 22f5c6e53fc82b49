"""The real LangGraph Server, in the exact versions of its lock file, in a folder of the project.

``LOCKSTITCH_SERVER_CACHE`` moves that folder. What this environment has in the same version is
not fetched again, so that the folder holds the rest, for a server that this very Python runs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2]
LOCK = PROJECT / "requirements" / "server.lock"
CACHE = Path(os.environ.get("LOCKSTITCH_SERVER_CACHE") or PROJECT / ".cache" / "server")
# A requirement with its hashes: lines that go on behind a backslash.
_ENTRY = re.compile(r"^[a-z0-9](?:.*\\\n)*.*", re.MULTILINE)


@cache
def packages() -> Path:
    """The folder with the packages of the server; it appears whole or not at all."""
    missing = "\n".join(entry for entry in _ENTRY.findall(LOCK.read_text("utf-8")) if _lacks(entry))
    digest = hashlib.sha256(f"{sys.version}{missing}".encode()).hexdigest()[:16]
    folder = CACHE / digest
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=CACHE))
    try:
        (fresh / "requirements.txt").write_text(missing, "utf-8")
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
        given = ["--target", str(fresh), "--requirement", str(fresh / "requirements.txt")]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *given], check=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _lacks(entry: str) -> bool:
    wanted = Requirement(entry.partition(" \\")[0])
    if wanted.marker is not None and not wanted.marker.evaluate():
        return False
    try:
        return not wanted.specifier.contains(metadata.version(wanted.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return True
