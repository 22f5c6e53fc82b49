"""The real LangGraph.js, in the exact versions of the lock file, in a folder of the project.

``LOCKSTITCH_NODE_CACHE`` moves that folder. Nothing is compiled and no script of a package is
run. Some of the packages need Node.js 22: an older one only runs npm, and the node that is used
comes as a package, too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests import tools

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
CACHE = Path(os.environ.get("LOCKSTITCH_NODE_CACHE") or HERE.parents[1] / ".cache" / "node")
NEEDED = 22
PATIENCE = 600
PAUSES = (0, 5, 30)
_OPTIONS = [
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--loglevel=error",
]
_FILES = ("package.json", "package-lock.json")
_MACHINES = {"x86_64": "x64", "aarch64": "arm64"}


@cache
def program() -> tuple[str, str]:
    """The node to run and the script that does acts; tests are left out where there is none.

    The packages appear whole or not at all, and processes that want them wait for the one that
    fetches them.
    """
    folder = CACHE / f"{_digest(*_FILES)}{'' if _is_new_enough() else '-with-node'}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with _lock(CACHE / "lock"):
        if failed := _fetch(folder):
            tools.leave_out(f"npm cannot install LangGraph.js: {failed}")
        _place_scripts(folder)
    return _node_in(folder), str(folder / "scripts" / "run.mjs")


def _digest(*names: str) -> str:
    data = b"\0".join((HERE / name).read_bytes() for name in names)
    return hashlib.sha256(data).hexdigest()[:16]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@cache
def _fetch(folder: Path) -> str:
    """Fetch the packages unless they are there; gives the last words of npm if it fails."""
    if folder.is_dir():
        return ""
    npm = tools.needed("npm")
    fresh = Path(tempfile.mkdtemp(dir=CACHE))
    try:
        for name in _FILES:
            shutil.copy(HERE / name, fresh)
        command = [npm, "ci", *_OPTIONS, *(["--omit=optional"] if _is_new_enough() else [])]
        failed = retried(command, fresh)
        if not failed:
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return failed


def retried(command: list[str], folder: Path, pauses: Iterable[float] = PAUSES) -> str:
    """Run npm, again if it fails, as registries do now and then; gives its last words if so."""
    failed = ""
    for pause in pauses:
        time.sleep(pause)
        try:
            done = subprocess.run(
                [*command, *_cache_option()],
                cwd=folder,
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
        except subprocess.TimeoutExpired:
            return f"npm took more than {PATIENCE} seconds"
        if done.returncode == 0:
            return ""
        failed = done.stderr or f"npm ended with status {done.returncode}"
    return failed


def _cache_option() -> list[str]:
    """A cache beside the packages where that of the user cannot be written."""
    own = Path.home() / ".npm"
    there = own if own.exists() else own.parent
    return [] if os.access(there, os.W_OK) else [f"--cache={CACHE / 'npm'}"]


def _place_scripts(folder: Path) -> None:
    """Beside the packages, since that is where a script's imports are looked for."""
    for source in (*(HERE / "scripts").iterdir(), *EXAMPLES.glob("*.mjs")):
        target = folder / "scripts" / source.name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(exist_ok=True)
            shutil.copy(source, target)


def _node_in(folder: Path) -> str:
    if _is_new_enough():
        return str(shutil.which("node"))
    machine = _MACHINES.get(platform.machine(), platform.machine())
    found = folder / "node_modules" / f"node-linux-{machine}" / "bin" / "node"
    if not found.exists():
        tools.leave_out(f"Node.js {NEEDED} or newer is missing, and no package has it")
    return str(found)


@cache
def _is_new_enough() -> bool:
    node = shutil.which("node")
    if node is None:
        return False
    said = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    number = re.match(r"v(\d+)", said)
    return number is not None and int(number[1]) >= NEEDED
