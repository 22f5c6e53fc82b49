"""The real clients, one exact version each, from npm into a folder of the project."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("LOCKSTITCH_CLIENTS_CACHE") or PROJECT / ".cache" / "clients")
PATIENCE = 600


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
            with _lock(folder.with_suffix(".lock")):
                if not folder.is_dir():
                    _fetch(f"{package}@{version}", folder)
        except (OSError, subprocess.SubprocessError) as error:
            return NotInstalled(f"{package}@{version} cannot be installed: {_reason(error)}")
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
    with tempfile.TemporaryDirectory(dir=CACHE) as fresh:
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--fetch-retries=1"]
        command = [npm, "install", *options, "--prefix", fresh, spec]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        (Path(fresh) / "node_modules").rename(_made(folder) / "node_modules")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        said = error.stderr.decode(errors="replace").splitlines()
        return next((line for line in said if "npm error" in line), f"npm: {error.returncode}")
    if isinstance(error, subprocess.TimeoutExpired):
        return f"npm took more than {PATIENCE} seconds"
    return getattr(error, "strerror", None) or type(error).__name__
