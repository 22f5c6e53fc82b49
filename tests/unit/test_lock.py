"""The lock file of the development environment: exact, complete, and of no registry."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2]
LOCKED = (PROJECT / "requirements" / "dev.lock").read_text("utf-8")
# A requirement with its hashes: lines that go on behind a backslash.
ENTRIES = re.findall(r"^[a-z0-9](?:.*\\\n)*.*", LOCKED, re.MULTILINE)
UNUSED = {"bench"}  # extras that are not for developing


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_entry_is_one_release_by_its_hashes() -> None:
    assert len(ENTRIES) > 50
    for entry in ENTRIES:
        assert re.match(r"\S+==\S+ ", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


def test_no_registry_is_named() -> None:
    assert "://" not in LOCKED
    assert not re.search(r"^-", LOCKED, re.MULTILINE), "an option of pip"


def asked() -> list[str]:
    with (PROJECT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    lists = [extras[name] for name in sorted(extras.keys() - UNUSED)]
    return sorted({each for one in [project["dependencies"], *lists] for each in one})


@pytest.mark.parametrize("asked", asked())
def test_what_the_project_asks_for_is_locked_in_a_version_that_it_takes(asked: str) -> None:
    wanted = Requirement(asked)
    versions = [
        locked.specifier
        for locked in (Requirement(entry.partition(" \\")[0]) for entry in ENTRIES)
        if canonical(locked.name) == canonical(wanted.name)
    ]
    assert versions, "run `make lock`"
    for exact in versions:
        [version] = [each.version for each in exact]
        assert wanted.specifier.contains(version), "run `make lock`"
