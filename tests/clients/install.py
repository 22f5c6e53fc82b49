"""The real clients, one exact version each, from npm into a folder of the project.

What a version brings along is locked with its hashes, in ``locks``. ``python -m
tests.clients.install PACKAGE VERSION`` locks another one; a version that nobody has locked is
installed with what npm finds for it today.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.node.install import retried

PROJECT = Path(__file__).parents[2]
LOCKS = Path(__file__).parent / "locks"
_OPTIONS = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"]
CACHE = Path(os.environ.get("LOCKSTITCH_CLIENTS_CACHE") or PROJECT / ".cache" / "clients")


class NotInstalled(UserWarning):
    """A client could not be installed, so nothing was tried with it."""


@cache
def installed(package: str, version: str) -> Path | NotInstalled:
    """The folder that holds a package in this version, or why it cannot be had.

    Scripts of the package are not run. The folder appears whole or not at all, and processes
    that want the same package wait for the one that fetches it.
    """
    folder = CACHE / _name_of(package, version)
    if not folder.is_dir():
        try:
            CACHE.mkdir(parents=True, exist_ok=True)
            with _lock(CACHE / f"{folder.name}.lock"):
                if not folder.is_dir():
                    _fetch(package, version, folder)
        except OSError as error:
            return NotInstalled(f"{package}@{version} cannot be installed: {error.strerror}")
    return folder / "node_modules"


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _name_of(package: str, version: str) -> str:
    return f"{package.rpartition('/')[2]}-{version}"


def _fetch(package: str, version: str, folder: Path) -> None:
    fresh = Path(tempfile.mkdtemp(dir=CACHE))
    try:
        lock = LOCKS / f"{_name_of(package, version)}.json"
        _describe(package, version, fresh)
        if lock.exists():
            shutil.copy(lock, fresh / "package-lock.json")
        _run_npm(["ci" if lock.exists() else "install"], fresh)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _describe(package: str, version: str, folder: Path) -> None:
    """Write down that a folder needs a package."""
    (folder / "package.json").write_text(json.dumps({"dependencies": {package: version}}))


def _run_npm(words: list[str], folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(2, "npm is not installed")
    # Once: without a network every try takes long, and what is missing is said.
    if failed := retried([npm, *words, *_OPTIONS], folder, [0]):
        said = failed.splitlines()
        raise OSError(5, next((line for line in said if "npm error" in line), said[0]))


def lock(package: str, version: str) -> None:
    """Write down what a version brings along, for every platform; without naming a registry."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _describe(package, version, folder)
        # Also a package for another platform than this one.
        options = ["--package-lock-only", "--omit-lockfile-registry-resolved", "--force"]
        _run_npm(["install", *options], folder)
        found = json.loads((folder / "package-lock.json").read_text())
    # npm names a project by its folder.
    locked = {**found, "name": "client"}
    target = LOCKS / f"{_name_of(package, version)}.json"
    target.write_text(json.dumps(locked, indent=1) + "\n")


if __name__ == "__main__":
    lock(*sys.argv[1:])
