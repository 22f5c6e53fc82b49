"""Programs that are missing: installed, or the tests that need them left out and counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tools
from tests.tools import TOOLS, left_out

PROJECT = Path(__file__).parents[2]
NEEDING = """
import pytest
from tests import tools

@pytest.mark.parametrize("number", range(3))
def test_with_npm(number):
    tools.needed("npm")

def test_with_a_tracer():
    tools.needed("strace")

def test_with_nothing():
    pass
"""
# Notes what it was asked for, and brings the program: the words in the middle are options.
APT = """#!/bin/sh
for last; do :; done
case "$*" in
    *update) ;;
    *) echo "$*" >> "$NOTED"; [ -z "$BROKEN" ] || exit 100; : > "${0%/*}/$last"
       chmod +x "${0%/*}/$last" ;;
esac
"""


class Machine:
    """A machine with no programs but those that are put there."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.noted = folder / "noted"
        self.programs.mkdir()
        kept = {name: value for name, value in os.environ.items() if name != "CI"}
        self.environment = {**kept, "PATH": str(self.programs), "NOTED": str(self.noted)}
        self.put("sleep", "#!/bin/sh\n")
        self.put("env", '#!/bin/sh\nshift\nexec "$@"\n')
        self.put("chmod", '#!/bin/sh\nPATH=/usr/bin:/bin exec chmod "$@"\n')

    def put(self, name: str, script: str) -> None:
        path = self.programs / name
        path.write_text(script, "utf-8")
        path.chmod(0o755)

    def may_install(self) -> None:
        self.put("apt-get", APT)
        self.put("sudo", '#!/bin/sh\nshift\n[ "$1" = true ] || exec "$@"\n')

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *words],
            cwd=PROJECT,
            env={**self.environment, **environment},
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def tests(self, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run tests that need programs, with the summary of this project."""
        path = self.programs.parent / "test_needing.py"
        path.write_text(NEEDING, "utf-8")
        words = ["-p", "no:cacheprovider", "-p", "tests.conftest", "--confcutdir", str(path.parent)]
        return self.run("pytest", *words, str(path), **environment)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_where_nothing_may_be_installed_tests_are_left_out_and_counted(machine: Machine) -> None:
    done = machine.tests(CI="true")
    assert done.returncode == 0, done.stdout
    assert "left out: 3 tests: npm is missing: apt-get install npm" in done.stdout
    assert "left out: 1 test: strace is missing: apt-get install strace" in done.stdout
    assert "1 passed, 4 skipped" in done.stdout


@pytest.mark.parametrize(
    ("environment", "outcome"),
    [
        ({}, pytest.skip.Exception),
        ({"CI": "true"}, pytest.fail.Exception),
        ({"CI": "true", "LOCKSTITCH_INSTALL": "never"}, pytest.skip.Exception),
    ],
    ids=["person", "ci", "forbidden"],
)
def test_what_could_have_been_installed_is_a_failure_where_nothing_may_get_lost(
    machine: Machine,
    environment: dict[str, str],
    outcome: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine.may_install()
    monkeypatch.setattr(os, "environ", {**machine.environment, **environment})
    tools.installer.cache_clear()
    try:
        with pytest.raises(outcome, match="npm is missing: apt-get install npm"):
            tools.needed("npm")
    finally:
        tools.installer.cache_clear()


def test_what_is_missing_is_installed_where_that_is_allowed(machine: Machine) -> None:
    machine.may_install()
    done = machine.run("tests.tools")
    assert done.returncode == 0, done.stderr
    assert ": missing, installed now" in done.stderr
    [asked] = machine.noted.read_text().splitlines()
    assert " install -y --no-install-recommends strace " in asked
    assert "npm" in asked.split()


def test_nothing_is_done_where_nothing_is_missing(machine: Machine) -> None:
    machine.may_install()
    for tool in TOOLS.values():
        machine.put(tool.package, "#!/bin/sh\n")
        machine.put(tool.name.lower(), "#!/bin/sh\n")
    machine.put("initdb", "#!/bin/sh\n")
    done = machine.run("tests.tools", LOCKSTITCH_POSTGRES=str(machine.programs))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not machine.noted.exists()


def test_where_it_is_not_allowed_that_is_said(machine: Machine) -> None:
    done = machine.run("tests.tools", CI="true")
    assert done.returncode == 0
    assert "The tests that need them are left out, and counted at the end." in done.stderr
    assert "apt-get install strace" in done.stderr


@pytest.mark.parametrize(("ci", "status", "tries"), [("", 0, 1), ("true", 1, 4)])
def test_a_mirror_that_fails(machine: Machine, ci: str, status: int, tries: int) -> None:
    machine.may_install()
    done = machine.run("tests.tools", CI=ci, BROKEN="yes")
    assert done.returncode == status
    assert "could not be installed" in done.stderr
    assert len(machine.noted.read_text().splitlines()) == tries


def test_reasons_are_counted() -> None:
    assert left_out(["Skipped: a", "Skipped: b", "Skipped: a"]) == [
        "left out: 2 tests: a",
        "left out: 1 test: b",
    ]
