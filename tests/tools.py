"""The programs besides Python that some tests need: found, installed, or said to be missing.

``python -m tests.tools``, which ``make test`` runs first, installs what is missing where it may:
with apt-get, as root or by a sudo that asks for nothing. ``LOCKSTITCH_INSTALL=never`` forbids it.
Where it may not, the tests that need the program are left out, and the summary counts them and
says why. Where ``CI`` is set, what could have been installed and is missing is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

POSTGRES = "LOCKSTITCH_POSTGRES"
RETRIED = Path(__file__).parents[1] / "scripts" / "retried"
APT = ("-q", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300")


def _on_path(program: str, *elsewhere: str) -> Callable[[], str | None]:
    return lambda: next(filter(None, map(shutil.which, (program, *elsewhere))), None)


def _initdb() -> str | None:
    """The program that makes a server, of the newest PostgreSQL on this machine."""
    if named := os.environ.get(POSTGRES):
        return shutil.which(f"{named}/initdb")
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    found = sorted(versions, key=lambda path: int(path.parts[-3]))
    return str(found[-1]) if found else shutil.which("initdb")


def _faketime() -> str | None:
    """The library that shows a program another time of day."""
    return next((str(path) for path in Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


@cache
def _why_not_attach() -> str:
    """Why strace may not follow a process of the same user, "" if it may."""
    strace = TOOLS["strace"].find()
    assert strace
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        command = [strace, "-o", os.devnull, "-p", str(other.pid)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            assert tracer.stderr
            said = tracer.stderr.readline()
            tracer.terminate()
        other.kill()
    return "" if "attached" in said else f"it may not attach to a process here ({said.strip()})"


@dataclass(frozen=True)
class Tool:
    """A program, the package of Debian that brings it, and what may be wrong with it."""

    name: str
    package: str
    find: Callable[[], str | None]
    why_unusable: Callable[[], str] = str


TOOLS = {
    tool.package: tool
    for tool in (
        Tool("strace", "strace", _on_path("strace"), _why_not_attach),
        Tool("PgBouncer", "pgbouncer", _on_path("pgbouncer", "/usr/sbin/pgbouncer")),
        Tool("PostgreSQL", "postgresql", _initdb),
        Tool("npm", "npm", _on_path("npm")),
        Tool("libfaketime", "libfaketime", _faketime),
        Tool("Chromium", "chromium", _on_path("chromium")),
        Tool("zsh", "zsh", _on_path("zsh")),
        Tool("fish", "fish", _on_path("fish")),
        Tool("groff", "groff-base", _on_path("groff")),
    )
}


def needed(package: str) -> str:
    """Return the path of a program; the test that asks for it is left out if there is none."""
    tool = TOOLS[package]
    path = tool.find()
    if path is None:
        leave_out(f"{tool.name} is missing: apt-get install {package}")
    if why := tool.why_unusable():
        leave_out(f"{tool.name} cannot be used: {why}", could_be_here=False)
    return path


def attached(pid: int | str, *options: str) -> list[str]:
    """Return the command that follows a process and its children with strace.

    Where calls are injected, only those are looked at: to print the others, too, is most of what
    strace does.
    """
    injected = [option.partition(":")[0] for option in options if option.startswith("inject=")]
    only = [f"--trace={each.removeprefix('inject=')}" for each in injected]
    return [needed("strace"), "-f", "-p", str(pid), *options, *only]


def leave_out(why: str, *, could_be_here: bool = True) -> NoReturn:
    """Leave a test out that needs what is not here, or fail it where that is no excuse."""
    import pytest  # not by programs that tests start, and that know this module only by others

    if could_be_here and os.environ.get("CI") and installer() is not None:
        pytest.fail(why)
    pytest.skip(why)


def left_out(reasons: Iterable[str]) -> list[str]:
    """Return a line for each reason why tests were skipped, with their number."""
    counted = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    return [
        f"left out: {count} test{'s' if count > 1 else ''}: {reason}"
        for reason, count in counted.most_common()
    ]


@cache
def installer() -> list[str] | None:
    """The words before those of apt-get with which packages may be installed, if they may."""
    apt = shutil.which("apt-get")
    if apt is None or os.environ.get("LOCKSTITCH_INSTALL") == "never":
        return None
    prefix: list[str] = []
    if os.geteuid() != 0:
        sudo = shutil.which("sudo")
        asking = [sudo, "-n", "true"] if sudo else ["false"]
        if not sudo or subprocess.run(asking, capture_output=True, check=False).returncode:
            return None
        prefix = [sudo, "-n"]
    return [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", apt, *APT]


def _installed(apt: list[str], packages: list[str]) -> bool:
    """Install packages; where nobody is there to try again if that fails, it is done here."""
    command = [str(RETRIED), *apt] if os.environ.get("CI") else apt
    steps = (["update"], ["install", "-y", "--no-install-recommends", *packages])
    return all(
        subprocess.run([*command, *step], stdout=sys.stderr, check=False).returncode == 0
        for step in steps
    )


def main() -> int:
    """Install what is missing; the exit status is 1 if that failed where it may not."""
    missing = [tool for tool in TOOLS.values() if tool.find() is None]
    if not missing:
        return 0
    names = ", ".join(tool.name for tool in missing)
    packages = [tool.package for tool in missing]
    apt = installer()
    if apt is None:
        print(  # noqa: T201
            f"{names}: missing, and not installed, which needs apt-get and root. The tests that "
            f"need them are left out, and counted at the end. To have them: apt-get install "
            f"{' '.join(packages)}",
            file=sys.stderr,
        )
        return 0
    print(f"{names}: missing, installed now", file=sys.stderr)  # noqa: T201
    if _installed(apt, packages):
        return 0
    print(f"{names}: could not be installed", file=sys.stderr)  # noqa: T201
    return 1 if os.environ.get("CI") else 0


if __name__ == "__main__":
    sys.exit(main())
