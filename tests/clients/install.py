"""The real clients, one exact version each, from npm into a folder of the project."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.node.install import retried

PROJECT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("LOCKSTITCH_CLIENTS_CACHE") or PROJECT / ".cache" / "clients")


class NotInstalled(UserWarning):
    """A client could not be installed, so nothing was tried with it."""


@cache
def installed(package: str, version: str) -> Path | NotInstalled:
    """The folder that holds a package in this version, or why it cannot be had.

    Scripts of the package are not run. The folder appears whole or not at all, and processes
    that want the same package wait for the one that fetches it.
    """
    folder = CACHE / f"{package.rpartition('/')[2]}-{version}"
    if not folder.is_dir():
        try:
            CACHE.mkdir(parents=True, exist_ok=True)
            with _lock(CACHE / f"{folder.name}.lock"):
                if not folder.is_dir():
                    _fetch(f"{package}@{version}", folder)
        except OSError as error:
            return NotInstalled(f"{package}@{version} cannot be installed: {error.strerror}")
    return folder / "node_modules"


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(spec: str, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(2, "npm is not installed")
    fresh = Path(tempfile.mkdtemp(dir=CACHE))
    try:
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--fetch-retries=1"]
        command = [npm, "install", *options, "--prefix", str(fresh), spec]
        # Once: without a network every try takes long, and what is missing is said.
        failed = retried(command, fresh, [0])
        if failed:
            said = failed.splitlines()
            raise OSError(5, next((line for line in said if "npm error" in line), said[0]))
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
